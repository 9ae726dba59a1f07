"""The ``backup`` clauses: one entry a target; how fast an upload goes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agent.bench import backup as bench
from agent.bench.step import Step
from agent.checks import _far_end, _own_address
from agent.checks._api import Case
from agent.grammar import Section, rate, url
from agent.model import Clause, Finding
from agent.quantity import convert

GRAMMAR = Section(clauses={"rate": rate()}, settings={"url": url(), "endpoint": url()}, many="url")
FACTS = _own_address.FACTS


def steps(clauses: Sequence[Clause], case: Case) -> Iterable[Step]:
    """One step a target."""
    for clause in clauses:
        promise = clause.promise
        value = promise.value[-1] if isinstance(promise.value, tuple) else promise.value
        promised = convert(float(value), promise.unit, "B/s") if promise.op != "auto" else 0.0
        endpoint = clause.settings.get("endpoint")
        yield bench.step(bench.Entry(str(clause.settings["url"]), promised, str(endpoint) if endpoint else None))


def judge(clauses: Sequence[Clause], case: Case) -> Iterable[Finding]:
    """Each rate by rule 11: a shortfall convicts where a target in another network falls short too."""
    yield from _far_end.judge_each(clauses, case)
