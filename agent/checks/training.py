"""The ``training`` clauses: a small training run, tokens per second over all GPUs."""

from __future__ import annotations

from agent.grammar import Section, label, per_second

GRAMMAR = Section(
    clauses={"tokens_per_second": per_second()},
    settings={"model": label()},
    advisory=frozenset({"tokens_per_second"}),
)
