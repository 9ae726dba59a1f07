"""The ``rdma`` clauses: InfiniBand and RoCE devices."""

from __future__ import annotations

from agent.grammar import Section, count, flag, rate

GRAMMAR = Section(
    clauses={
        "devices": count(),
        "rate": rate(measured=False),
        "write_bandwidth": rate(),
        "gpudirect": flag(),
    },
)
