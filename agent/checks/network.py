"""The ``network`` clauses: one entry a network, by a name of the renter's own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Optional

from agent import stats
from agent.bench import network as bench
from agent.bench import path_mtu
from agent.bench.step import Step
from agent.checks import _far_end
from agent.checks._api import Case
from agent.checks._judge import pending_trial, unsupported
from agent.checks._network_facts import FACT_JUDGES, along_the_way
from agent.grammar import Section, count, flag, interface, label, list_of, percent, rate, server
from agent.model import Clause, Finding, Measurement
from agent.quantity import convert
from agent.text import Text, msg

GRAMMAR = Section(
    clauses={
        "download": rate(),
        "upload": rate(),
        "dedicated": flag(),
        "evening_drop": percent(),
        "speed": rate(measured=False),
        "mtu": count("at_least"),
    },
    settings={"name": label(), "servers": list_of(server()), "interface": interface()},
    many="name",
)
FACTS = ("network",)
DIRECTIONS = ("download", "upload")
OVER_DAYS = ("dedicated", "evening_drop")


def steps(clauses: Sequence[Clause], case: Case) -> Iterable[Step]:
    """One step an entry that promises a rate; one where an MTU is promised and a server tells the way."""
    measured = [c for c in clauses if c.name in DIRECTIONS]
    for name in dict.fromkeys(str(c.settings["name"]) for c in measured):
        yield bench.step(entry_of([c for c in measured if c.settings["name"] == name]))
    for clause in clauses:
        servers = tuple(str(s) for s in clause.settings.get("servers") or ())
        if clause.name == "mtu" and servers:
            size = clause.promise.value[0] if isinstance(clause.promise.value, tuple) else clause.promise.value
            named = clause.settings.get("interface")
            yield path_mtu.step(str(clause.settings["name"]), servers, int(size), named)


def entry_of(clauses: Sequence[Clause]) -> bench.Entry:
    """The entry that these clauses of one name make up."""
    settings = clauses[0].settings
    named: Optional[str] = settings.get("interface")
    servers = tuple(str(s) for s in settings.get("servers") or ())
    return bench.Entry(str(settings["name"]), servers, {c.name: _bits_per_s(c) for c in clauses}, named)


def _bits_per_s(clause: Clause) -> float:
    promise = clause.promise
    value = promise.value[-1] if isinstance(promise.value, tuple) else promise.value
    return convert(float(value), promise.unit, "bit/s") if promise.op != "auto" else 0.0


def judge(clauses: Sequence[Clause], case: Case) -> Iterable[Finding]:
    """Rates by rule 11, the interface by its facts; what needs days waits for the trial."""
    for clause in clauses:
        if clause.name in DIRECTIONS:
            yield _rate(clause, case)
        elif clause.name in FACT_JUDGES:
            found = FACT_JUDGES[clause.name](clause, case.facts["network"])
            yield along_the_way(found, case.measured.get(clause.key)) if clause.name == "mtu" else found
        elif clause.name in OVER_DAYS:
            yield pending_trial(clause)
        else:
            yield unsupported(clause)


def _rate(clause: Clause, case: Case) -> Finding:
    seen = [
        m
        for key, m in case.measured.items()
        if isinstance(m, Measurement) and key.startswith("network[") and key.endswith(f".{clause.name}")
    ]
    found = _far_end.judge(clause, case, seen=seen)
    flat = _flat_line(case.measured.get(clause.key)) if found.outcome != "pass" else None
    return replace(found, notes=(*found.notes, flat)) if flat else found


def _flat_line(taken: object) -> Optional[Text]:
    """A hint: the line of a policer or shaper, flat and at a round number."""
    if not isinstance(taken, Measurement):
        return None
    series = [sample for block in taken.attempts[-1].blocks for sample in block.samples]
    found = stats.policer(series, taken.unit) if series and stats.problem(series) is None else None
    if found is None:
        return None
    return msg(
        "a flat line at {level} Mbit/s, just under {limit}: a limit set on the way, or a link of that speed",
        level=f"{found.level_mbit:.0f}",
        limit=f"{found.limit_mbit:.0f} Mbit/s",
    )
