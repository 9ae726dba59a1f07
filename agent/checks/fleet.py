"""The ``fleet`` clauses: promises about several nodes together."""

from __future__ import annotations

from agent.grammar import Section, count, duration, flag, list_of, rate

GRAMMAR = Section(
    clauses={
        "nodes": count(),
        "identical": flag(),
        "allreduce.busbw": rate(such="300 GB/s"),
        "pairs": rate(such="45 GB/s"),
        "clock_offset": duration(such="50 ms"),
    },
    settings={"allreduce.nodes": list_of(count(words={"all": "all", "全部": "all"}))},
)
