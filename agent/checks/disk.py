"""The ``disk`` clauses: one entry a path."""

from __future__ import annotations

from agent.grammar import Section, duration, one_of, per_second, percent, raid, rate, size, text
from agent.text import msg

GRAMMAR = Section(
    clauses={
        "kind": one_of(
            "nvme",
            "ssd",
            "hdd",
            aliases={"nvme ssd": "nvme", "sata ssd": "ssd", "固态": "ssd", "机械": "hdd"},
            order="one_of",
        ),
        "size": size(),
        "read": rate(),
        "write": rate(),
        "read_iops": per_second(),
        "write_iops": per_second(),
        "read_p99": duration(),
        "write_p99": duration(),
        "raid": raid(),
        "wear": percent(),
        "hours": duration(unit="h"),
        "sustained": percent("at_least"),
        "checkpoint": rate(),
        "small_files": per_second(),
    },
    settings={"path": text(msg("a path such as {example}", example="/data"))},
    many="path",
)
