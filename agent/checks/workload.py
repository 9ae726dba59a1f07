"""The ``workload`` clauses: whether the renter's own training would end in time, projected from what was measured."""

from __future__ import annotations

from agent.grammar import Section, count, duration, one_of

GRAMMAR = Section(
    clauses={"within": duration()},
    settings={
        "params": count(),
        "precision": one_of("fp32", "tf32", "fp16", "bf16", "fp8"),
        "zero": one_of("0", "1", "2", "3"),
        "tokens": count(),
    },
    advisory=frozenset({"within"}),
)
