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
from agent.checks._measured import models, tools, whose_work, wrong_result
from agent.grammar import Section, count, size
from agent.grammar import rate as rate_kind
from agent.model import Clause, Finding, Limit, Measurement, Origin
from agent.text import Text, msg
from agent.tools.worker import Device

GRAMMAR = Section(
    clauses={"busbw": rate_kind(auto=True, such="360 GB/s")},
    settings={"gpus": count(words={"all": "all", "全部": "all"}), "size": size("equal")},
)
FACTS = ("gpus", "processes", "pythons", "trade_tools")
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
        promised=promised(case),
        size=int(settings.get("size", SIZE)),
        bound=partial(_bound, models(case)),
        tools=tools(case),
    ).step()


def promised(case: Case) -> Optional[int]:
    """How many GPUs the contract says there are."""
    wanted = [c.promise.value for c in case.contract.clauses if c.key == "gpu.count" and c.promise.op == "=="]
    return int(wanted[0]) if wanted else None


def _bound(known: Known, devices: tuple[Device, ...], nvls: Optional[bool]) -> Optional[float]:
    """The line rate of the fastest links that these cards can have, where nothing reduces on the way."""
    possible = [m for d in devices for m in known.get(d.subject, ())]
    # A log that does not tell whether the switch reduces leaves it possible from Hopper on.
    reduces = nvls or (nvls is None and any(float(m.compute_capability) >= 9.0 for m in possible))
    return None if reduces else line(known, devices)


def line(known: Known, devices: tuple[Device, ...], nvls: Optional[bool] = None) -> Optional[float]:
    """What the fastest links that these cards can have carry one way, in GB/s; None where that is not known."""
    cards = [known.get(d.subject, ()) for d in devices]
    lines = [expected(m, len(devices)).line for each in cards for m in each]
    if not all(cards) or None in lines:
        return None
    return max((rate for rate in lines if rate is not None), default=None)


def judge(clauses: Sequence[Clause], case: Case) -> Iterator[Finding]:
    """At the contract's size and number of GPUs, never an average over sizes."""
    for clause in clauses:
        yield _judge(clause, case)


def _judge(clause: Clause, case: Case) -> Finding:
    number = count_of(case, KEY)
    least = weakest(case, number)
    note = () if least is None else (least.derivation,)
    if clause.promise.op != "auto":
        return told(rate(clause, case), case, note)
    limit = _auto(clause, case, number, least)
    if limit is None:
        why = least.derivation if least is not None else msg("the cards are not known")
        return without_limit(clause, case, why)
    if limit.origin.kind == "topology":
        # From a derivation or a single source nobody is convicted, whatever was agreed.
        clause = replace(clause, severity="advisory")
    return told(rate(clause, case, limit=limit), case, note)


def told(found: Finding, case: Case, note: tuple[Text, ...]) -> Finding:
    """With whose work was there meanwhile, wrong results, and what was to be expected."""
    found = whose_work(wrong_result(found, case), case)
    return replace(found, notes=(*found.notes, *note))


def _auto(clause: Clause, case: Case, number: int, least: Optional[Expected]) -> Optional[Limit]:
    """A published floor of the ring for this number of GPUs, else what the links should give, each minus tolerance.

    The ring's: that a container has no NVLS is no fault of the links.
    """
    cards = list(models(case).values())
    floors = [m.floor(FLOOR, number, "ring") for each in cards for m in each]
    known = [f for f in floors if f is not None]
    if known and len(known) == len(floors) and all(cards):
        floor = min(known, key=lambda f: f.value)
        origin = Origin("catalogue", ", ".join(floor.cite.sources))
        return Limit(">=", floor.value * (1 - clause.tolerance), "GB/s", clause.tolerance, origin)
    if least is None or least.ring is None:
        return None
    origin = Origin("topology", str(least.derivation))
    return Limit(">=", least.ring * (1 - clause.tolerance), "GB/s", clause.tolerance, origin)


def weakest(case: Case, number: int) -> Optional[Expected]:
    """What so many of the weakest of what the cards can be should reach; None where a card is not known."""
    cards = list(models(case).values())
    if not cards or not all(cards) or number < 2:
        return None
    all_expected = [expected(m, number) for each in cards for m in each]
    return min(all_expected, key=lambda e: -1.0 if e.ring is None else e.ring)


def count_of(case: Case, key: str) -> int:
    """How many GPUs were measured; all of this machine where nothing was."""
    taken = case.measured.get(key)
    if isinstance(taken, Measurement):
        return int(taken.attempts[-1].blocks[0].conditions["gpus"])
    return len(models(case))


def without_limit(clause: Clause, case: Case, why: Text) -> Finding:
    """Reported without an absolute verdict."""
    found = rate(clause, case, limit=limit_of(clause))
    taken = case.measured.get(clause.key)
    if not isinstance(taken, Measurement):
        return found
    counting = [a for a in taken.attempts if a.void is None]
    value = stats.median([b.value for b in counting[-1].blocks]) if counting else None
    reason = msg("no limit can be derived: {why}", why=why)
    notes = tuple(n for a in taken.attempts[-1:] for n in a.notes)
    evidence = tuple(e for a in taken.attempts for e in a.evidence)
    return wrong_result(
        replace(found, measured=value, unit=taken.unit, reason=reason, notes=notes, evidence=evidence), case
    )
