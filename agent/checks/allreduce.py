"""The ``allreduce`` clauses: all-reduce over the GPUs of this node, as bus bandwidth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Optional

from agent import stats
from agent.bench.allreduce import KEY, SIZE, AllreduceStep
from agent.bench.step import Step
from agent.catalogue import Model
from agent.checks._allreduce import Expected, expected
from agent.checks._api import Case
from agent.checks._judge import limit_of, rate
from agent.checks._measured import models, whose_work, wrong_result
from agent.grammar import Section, count, size
from agent.grammar import rate as rate_kind
from agent.model import Clause, Finding, Limit, Measurement, Origin
from agent.text import Text, msg
from agent.tools.worker import Device

GRAMMAR = Section(
    clauses={"busbw": rate_kind(auto=True)},
    settings={"gpus": count(words={"all": "all", "全部": "all"}), "size": size("equal")},
)
FACTS = ("gpus", "processes", "pythons")
FLOOR = "allreduce"

Known = Mapping[str, tuple[Model, ...]]


def steps(clauses: Sequence[Clause], case: Case) -> Iterator[Step]:
    """One launch over the GPUs that the contract names, at the size that it names."""
    if "pythons" not in case.facts or not clauses:
        return
    settings = clauses[0].settings
    gpus = settings.get("gpus", "all")
    yield AllreduceStep(
        case.facts["pythons"].chosen,
        gpus=gpus if isinstance(gpus, str) else int(gpus),
        promised=_promised(case),
        size=int(settings.get("size", SIZE)),
        bound=partial(_bound, models(case)),
    ).step()


def _promised(case: Case) -> Optional[int]:
    wanted = [c.promise.value for c in case.contract.clauses if c.key == "gpu.count" and c.promise.op == "=="]
    return int(wanted[0]) if wanted else None


def _bound(known: Known, devices: tuple[Device, ...], nvls: Optional[bool]) -> Optional[float]:
    """The line rate of the fastest links that these cards can have, where nothing reduces on the way."""
    cards = [known.get(d.subject, ()) for d in devices]
    possible = [m for each in cards for m in each]
    # A log that does not tell whether the switch reduces leaves it possible from Hopper on.
    reduces = nvls or (nvls is None and any(float(m.compute_capability) >= 9.0 for m in possible))
    lines = [expected(m, len(devices)).line for m in possible]
    if reduces or not all(cards) or None in lines:
        return None
    return max((line for line in lines if line is not None), default=None)


def judge(clauses: Sequence[Clause], case: Case) -> Iterator[Finding]:
    """At the contract's size and number of GPUs, never an average over sizes."""
    for clause in clauses:
        yield _judge(clause, case)


def _judge(clause: Clause, case: Case) -> Finding:
    weakest = _expected(case)
    note = () if weakest is None else (weakest.derivation,)
    if clause.promise.op != "auto":
        found = rate(clause, case)
        return _told(found, case, note)
    limit = _auto(clause, case, weakest)
    if limit is None:
        return _without_limit(clause, case, weakest)
    if limit.origin.kind == "topology":
        # From a derivation or a single source nobody is convicted, whatever was agreed.
        clause = replace(clause, severity="advisory")
    found = rate(clause, case, limit=limit)
    return _told(found, case, note)


def _told(found: Finding, case: Case, note: tuple[Text, ...]) -> Finding:
    found = whose_work(wrong_result(found, case), case)
    return replace(found, notes=(*found.notes, *note))


def _auto(clause: Clause, case: Case, weakest: Optional[Expected]) -> Optional[Limit]:
    """A published floor of the ring for this number of GPUs, else what the links should give, each minus tolerance.

    The ring's: that a container has no NVLS is no fault of the links.
    """
    number = _count(case)
    cards = list(models(case).values())
    floors = [m.floor(FLOOR, number, "ring") for each in cards for m in each]
    known = [f for f in floors if f is not None]
    if known and len(known) == len(floors) and all(cards):
        floor = min(known, key=lambda f: f.value)
        origin = Origin("catalogue", ", ".join(floor.cite.sources))
        return Limit(">=", floor.value * (1 - clause.tolerance), "GB/s", clause.tolerance, origin)
    if weakest is None or weakest.ring is None:
        return None
    origin = Origin("topology", str(weakest.derivation))
    return Limit(">=", weakest.ring * (1 - clause.tolerance), "GB/s", clause.tolerance, origin)


def _expected(case: Case) -> Optional[Expected]:
    """Of the weakest of what the cards can be; None where a card is not known."""
    cards = list(models(case).values())
    number = _count(case)
    if not cards or not all(cards) or number < 2:
        return None
    all_expected = [expected(m, number) for each in cards for m in each]
    return min(all_expected, key=lambda e: -1.0 if e.ring is None else e.ring)


def _count(case: Case) -> int:
    """How many GPUs were measured; all of this machine where nothing was."""
    taken = case.measured.get(KEY)
    if isinstance(taken, Measurement):
        return int(taken.attempts[-1].blocks[0].conditions["gpus"])
    return len(models(case))


def _without_limit(clause: Clause, case: Case, weakest: Optional[Expected]) -> Finding:
    """Reported without an absolute verdict."""
    found = rate(clause, case, limit=limit_of(clause))
    taken = case.measured.get(KEY)
    if not isinstance(taken, Measurement):
        return found
    counting = [a for a in taken.attempts if a.void is None]
    value = stats.median([b.value for b in counting[-1].blocks]) if counting else None
    why = weakest.derivation if weakest is not None else msg("the cards are not known")
    reason = msg("no limit can be derived: {why}", why=why)
    notes = tuple(n for a in taken.attempts[-1:] for n in a.notes)
    evidence = tuple(e for a in taken.attempts for e in a.evidence)
    return wrong_result(
        replace(found, measured=value, unit=taken.unit, reason=reason, notes=notes, evidence=evidence), case
    )
