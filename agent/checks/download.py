"""The ``download`` clauses: one entry a URL; how fast it arrives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Optional

from agent.bench import download as bench
from agent.bench.step import Step
from agent.checks import _far_end
from agent.checks._api import Case
from agent.checks._judge import limit_of
from agent.grammar import Section, rate, url
from agent.model import Clause, Finding, Measurement
from agent.quantity import convert

GRAMMAR = Section(clauses={"rate": rate()}, settings={"url": url()}, many="url")


def steps(clauses: Sequence[Clause], case: Case) -> Iterable[Step]:
    """One step a URL."""
    for clause in clauses:
        promise = clause.promise
        value = promise.value[-1] if isinstance(promise.value, tuple) else promise.value
        promised = convert(float(value), promise.unit, "B/s") if promise.op != "auto" else 0.0
        yield bench.step(bench.Entry(str(clause.settings["url"]), promised))


def judge(clauses: Sequence[Clause], case: Case) -> Iterable[Finding]:
    """Each rate by rule 11: a shortfall convicts where a URL in another network falls short too."""
    for clause in clauses:
        others = [c for c in clauses if c is not clause]
        agreeing = [m for c in others if (m := _short(c, case)) is not None]
        yield _far_end.judge(clause, case, agreeing=agreeing, more_to_come=bool(others))


def _short(clause: Clause, case: Case) -> Optional[Measurement]:
    """The measurement if every attempt fell short of its own promise."""
    taken = case.measured.get(clause.key)
    if not isinstance(taken, Measurement) or clause.promise.op != ">=":
        return None
    limit = limit_of(clause)
    least = convert(float(limit.value), limit.unit, taken.unit)
    return taken if all(_far_end.short(a, least) for a in taken.attempts) else None
