"""The ``allreduce`` clauses: all-reduce over the GPUs of this node, as bus bandwidth."""

from __future__ import annotations

from agent.grammar import Section, count, rate, size

GRAMMAR = Section(
    clauses={"busbw": rate(auto=True)},
    settings={"gpus": count(words={"all": "all", "全部": "all"}), "size": size("equal")},
)
