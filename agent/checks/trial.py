"""The ``trial`` clauses: the trial days; only ``availability`` is a promise."""

from __future__ import annotations

from agent.grammar import Section, duration, hours_of_day, percent, text
from agent.text import msg

GRAMMAR = Section(
    clauses={"availability": percent("at_least")},
    settings={
        "days": duration("equal", unit="d"),
        "every": duration("equal"),
        "evening": hours_of_day(),
        "timezone": text(msg("a time zone such as {example}", example="Asia/Shanghai"), r"[A-Za-z][A-Za-z0-9_+/-]*"),
    },
    quiet=True,
)
