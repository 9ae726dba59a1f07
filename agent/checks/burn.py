"""The ``burn`` clauses: a load on all GPUs at once, for a stated time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Optional

from agent.bench.burn import DURATION_S, BurnStep
from agent.bench.step import Step
from agent.checks._api import Case
from agent.checks._judge import REASONS, fact, limit_of, rate, unreadable
from agent.checks._measured import HELD, load_dtype, subjects, throttle_causes, tools, whose_work, wrong_result
from agent.grammar import Section, duration, percent, temperature
from agent.model import Clause, Finding, Measurement
from agent.reading import Known, Missing
from agent.text import Text, msg

GRAMMAR = Section(
    clauses={
        "temperature": temperature(),
        "throttled": percent(),
        "power": percent("at_least"),
        "sag": percent(),
    },
    settings={"duration": duration("equal", such="10 min")},
    # the share of the power limit that a load draws is the card's business, not a fault
    advisory=frozenset({"power"}),
)
FACTS = ("gpus", "processes", "pythons", "trade_tools")


def steps(clauses: Sequence[Clause], case: Case) -> Iterator[Step]:
    """One load for all clauses."""
    if "pythons" not in case.facts or not clauses:
        return
    yield BurnStep(
        case.facts["pythons"].chosen,
        metrics=tuple(dict.fromkeys(c.name for c in clauses)),
        duration_s=float(clauses[0].settings.get("duration", DURATION_S)),
        dtype=load_dtype(case),
        tools=tools(case),
    ).step()


def judge(clauses: Sequence[Clause], case: Case) -> Iterator[Finding]:
    """Each GPU by itself; without any, the clause as a whole with the reason."""
    for clause in clauses:
        found: list[Optional[str]] = [*subjects(clause, case)]
        for subject in found or [None]:
            yield _one(clause, case, subject)


def _one(clause: Clause, case: Case, subject: Optional[str]) -> Finding:
    if clause.name == "temperature":
        return _temperature(clause, case, subject)
    found = whose_work(wrong_result(rate(clause, case, subject=subject), case), case)
    if found.outcome != "fail":
        return found
    why = _cause(case, subject)
    if why is None:
        return found
    return replace(found, reason=msg("{reason}: {why}", reason=found.reason, why=why))


def _temperature(clause: Clause, case: Case, subject: Optional[str]) -> Finding:
    """The hottest moment of all attempts, exactly: a thermometer has no repetitions."""
    key = f"{clause.key}@{subject}" if subject else clause.key
    taken = case.measured.get(key, Missing("left-out", msg("not measured")))
    if isinstance(taken, Missing):
        return unreadable(clause, taken, subject)
    values = [block.value for attempt in taken.attempts for block in attempt.blocks]
    evidence = tuple(dict.fromkeys(e for a in taken.attempts for e in a.evidence))
    last = taken.attempts[-1]
    found = fact(clause, Known(max(values), evidence), subject=subject, unit=taken.unit, notes=last.notes)
    found = replace(
        found,
        limit=limit_of(replace(clause, tolerance=0.0)),
        measurements=(key,),
        depth=last.depth,
        reproduce=last.reproduce,
        interval_rule=None,
    )
    if found.outcome == "pass" and all(a.depth == "quick" for a in taken.attempts):
        return replace(found, outcome="inconclusive", reason_code="shortened", reason=REASONS["shortened"])
    return whose_work(found, case)


def _cause(case: Case, subject: Optional[str]) -> Optional[Text]:
    """Which causes held the clocks down for which share of the time, from any metric's attempt on this card."""
    for key, taken in case.measured.items():
        if not isinstance(taken, Measurement) or key.partition("@")[2] != (subject or "") or key[:5] != "burn.":
            continue
        causes = throttle_causes(taken.attempts[-1])
        if causes:
            return msg(HELD.template, causes=causes)
    return None
