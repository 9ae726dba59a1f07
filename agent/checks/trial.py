"""The ``trial`` clauses: the trial days; only ``availability`` is a promise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agent.checks._api import Case
from agent.checks._judge import pending_trial
from agent.grammar import Section, duration, hours_of_day, percent, text
from agent.model import Clause, Finding
from agent.text import msg

GRAMMAR = Section(
    clauses={"availability": percent("at_least", such="99.5 %")},
    settings={
        "days": duration("equal", unit="d", such="3 d"),
        "every": duration("equal", such="4 h"),
        "evening": hours_of_day(),
        "timezone": text(msg("a time zone such as {example}", example="Asia/Shanghai"), r"[A-Za-z][A-Za-z0-9_+/-]*"),
    },
    quiet=True,
)


def judge(clauses: Sequence[Clause], case: Case) -> Iterable[Finding]:
    """What needs days: ``accept trial report`` judges it."""
    return (pending_trial(clause) for clause in clauses)
