"""The ``network`` clauses: one entry a network, by a name of the renter's own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Optional

from agent import stats
from agent.bench import network as bench
from agent.bench import network_udp, path_mtu, unable
from agent.bench.step import Step
from agent.checks import _far_end
from agent.checks._api import Case
from agent.checks._judge import pending_trial, unsupported
from agent.checks._network_facts import FACT_JUDGES, along_the_way
from agent.facts.programs import absent
from agent.grammar import Section, count, duration, flag, interface, label, list_of, percent, rate, server
from agent.model import Clause, Finding, Measurement
from agent.quantity import convert
from agent.text import Text, msg

GRAMMAR = Section(
    clauses={
        "download": rate(such="500 Mbit/s"),
        "upload": rate(such="500 Mbit/s"),
        "dedicated": flag(),
        "evening_drop": percent(),
        "udp_loss": percent(),
        "udp_jitter": duration(),
        "speed": rate(measured=False, such="100 Gbit/s"),
        "mtu": count("at_least"),
    },
    settings={
        "name": label(),
        "servers": list_of(server()),
        "interface": interface(),
        "udp_rate": rate("equal", measured=False),
    },
    many="name",
)
FACTS = ("network", "programs")
DIRECTIONS = ("download", "upload")
OVER_DAYS = ("dedicated", "evening_drop")
UDP: tuple[network_udp.Name, ...] = ("udp_loss", "udp_jitter")


def steps(clauses: Sequence[Clause], case: Case) -> Iterable[Step]:
    """One step an entry that promises a rate, one for its UDP, and one where a server tells the way of an MTU."""
    why = absent(case.facts, "iperf3")
    measured = [c for c in clauses if c.name in DIRECTIONS]
    for name in dict.fromkeys(str(c.settings["name"]) for c in measured):
        one = bench.step(entry_of([c for c in measured if c.settings["name"] == name]))
        yield unable.step(one.name, one.keys, one.load, why) if why else one
    for name in dict.fromkeys(str(c.settings["name"]) for c in clauses if c.name in UDP):
        one = network_udp.step(udp_of([c for c in clauses if c.settings["name"] == name], case))
        yield unable.step(one.name, one.keys, one.load, why) if why else one
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
    rates = {c.name: _bits_per_s(c) for c in clauses if c.name in DIRECTIONS}
    return bench.Entry(str(settings["name"]), servers, rates, named)


def udp_of(clauses: Sequence[Clause], case: Case) -> network_udp.Asked:
    """What these clauses of one name ask of UDP, in the directions whose rate the contract promises."""
    mine = [c for c in clauses if c.name in UDP]
    name = mine[0].settings["name"]
    # Of the whole contract: what --only leaves out is promised all the same.
    rates = [
        c
        for c in case.contract.clauses
        if c.family == "network" and c.name in DIRECTIONS and c.settings["name"] == name and c.promise.op != "auto"
    ]
    entry = replace(entry_of(mine), promised={c.name: _bits_per_s(c) for c in rates})
    written = mine[0].settings.get("udp_rate")
    loss = next((c.promise for c in mine if c.name == "udp_loss"), None)
    share = loss.value / 100 if loss is not None and isinstance(loss.value, float) else None
    return network_udp.Asked(
        entry, tuple(n for n in UDP if any(c.name == n for c in mine)), 8 * written if written else None, share
    )


def _bits_per_s(clause: Clause) -> float:
    promise = clause.promise
    value = promise.value[-1] if isinstance(promise.value, tuple) else promise.value
    return convert(float(value), promise.unit, "bit/s") if promise.op != "auto" else 0.0


def judge(clauses: Sequence[Clause], case: Case) -> Iterable[Finding]:
    """Rates by rule 11, the interface by its facts; what needs days waits for the trial."""
    for clause in clauses:
        if clause.name in DIRECTIONS:
            yield _rate(clause, case)
        elif clause.name in UDP:
            yield from _udp(clause, case)
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


def _udp(clause: Clause, case: Case) -> Iterable[Finding]:
    """Each direction by itself, by rule 11: a far end may lose packets as well as the line."""
    for direction in udp_of([clause], case).directions:
        yield _far_end.judge(clause, case, subject=direction)


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
