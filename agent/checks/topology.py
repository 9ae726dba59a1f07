"""The ``topology`` clauses: how GPUs, NICs and NUMA nodes hang together."""

from __future__ import annotations

from agent.grammar import Section, distance, one_of

GRAMMAR = Section(
    clauses={
        "gpu_gpu": distance("NVLink"),
        "gpu_nic": distance(),
        "numa": one_of("balanced", aliases={"均衡": "balanced"}),
    },
)
