"""Design rule 11: a shortfall on the network is the vendor's only if the far end is out of the question.

An attempt that fell short through one end convicts where that end was seen to reach the promised rate within the
hour, or where an attempt through an end in another network fell short too. Where another end reached the promise,
the attempt that fell short is set aside: it only shows that its far end is slow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from statistics import fmean
from typing import Optional

from agent.bench.network import FAR_END
from agent.checks import _own_address
from agent.checks._api import Case
from agent.checks._judge import limit_of, rate
from agent.model import Attempt, Block, Clause, Finding, Measurement
from agent.quantity import convert
from agent.text import Text, msg

WITHIN_S = 3600.0


@dataclass(frozen=True)
class Bound:
    """A clause's limit in the measurement's unit; ``op`` is ``>=`` (rates) or ``<=`` (loss, jitter)."""

    op: str
    value: float

    def short(self, attempt: Attempt) -> bool:
        """Whether the attempt as a whole misses it: not one repetition is fast enough, or too much is lost in all."""
        values = [block.value for block in attempt.blocks]
        if self.op == ">=":
            return bool(values) and all(value < self.value for value in values)
        return bool(values) and fmean(values) > self.value

    def shows(self, seen: Attempt, end: object) -> bool:
        """Whether this attempt shows the end to be capable. The short screening shows nothing: a far end with burst
        credits is fast for two seconds; nor does one test without loss among others with it."""
        if self.op == "<=" and self.short(seen):
            return False
        return any(_kept(self, block) for block in seen.blocks if block.conditions.get("server") == end)


def _kept(bound: Bound, block: Block) -> bool:
    return block.value >= bound.value if bound.op == ">=" else block.value <= bound.value


def judge(
    clause: Clause,
    case: Case,
    seen: Sequence[Measurement] = (),
    agreeing: Sequence[Measurement] = (),
    more_to_come: bool = False,
    subject: Optional[str] = None,
) -> Finding:
    """The clause's number by rule 11.

    ``seen``: other measurements in the same direction, which may show an end to be capable. ``agreeing``: other
    measurements that fell short of their own promise, each a witness if it is short of this one too.
    ``more_to_come``: such a witness may still appear, so that a repetition is worth its traffic.
    """
    key = f"{clause.key}@{subject}" if subject else clause.key
    case = _own_address.aside(case, key)
    taken = case.measured.get(key)
    if not isinstance(taken, Measurement) or clause.promise.op not in (">=", "<="):
        return rate(clause, case, subject=subject)
    settled = settle(taken, _bound(clause, taken), seen, agreeing)
    found = rate(clause, replace(case, measured={**case.measured, key: settled}), subject=subject)
    return _worded(found, settled, more_to_come)


def _bound(clause: Clause, taken: Measurement) -> Bound:
    limit = limit_of(clause)
    return Bound(limit.op, convert(float(limit.value), limit.unit, taken.unit))


def judge_each(clauses: Sequence[Clause], case: Case) -> Iterator[Finding]:
    """Entries with one far end each: those that fall short of their own promise are each other's witnesses."""
    for clause in clauses:
        others = [c for c in clauses if c is not clause]
        agreeing = [m for c in others if (m := _short_of_its_own(c, case)) is not None]
        yield judge(clause, case, agreeing=agreeing, more_to_come=bool(others))


def _short_of_its_own(clause: Clause, case: Case) -> Optional[Measurement]:
    """The measurement if every attempt fell short of its own promise."""
    case = _own_address.aside(case, clause.key)
    taken = case.measured.get(clause.key)
    if not isinstance(taken, Measurement) or clause.promise.op != ">=":
        return None
    bound = _bound(clause, taken)
    return taken if all(bound.short(a) for a in taken.attempts) else None


def settle(
    taken: Measurement, bound: Bound, seen: Sequence[Measurement] = (), agreeing: Sequence[Measurement] = ()
) -> Measurement:
    """The attempts with their weakness lifted, kept, or turned into being set aside."""
    attempts = tuple(_settled(a, taken, bound, seen, agreeing) for a in taken.attempts)
    return replace(taken, attempts=attempts)


def _settled(
    attempt: Attempt, taken: Measurement, bound: Bound, seen: Sequence[Measurement], agreeing: Sequence[Measurement]
) -> Attempt:
    if attempt.weak is None or attempt.weak.code != FAR_END or attempt.void is not None:
        return attempt
    others = [a for a in taken.attempts if a is not attempt and a.void is None and _near(a, attempt)]
    elsewhere = [a for a in others if _differ(a, attempt)]
    witnesses = [a for m in seen for a in m.attempts if _near(a, attempt)]
    if any(bound.shows(a, _of(attempt, "server")) for a in (attempt, *others, *witnesses)):
        return replace(attempt, weak=None)
    if any(not bound.short(a) for a in elsewhere):
        return replace(attempt, void=attempt.weak)
    # An attempt held back by our own CPU or by a small file is no witness.
    agreed = [a for m in agreeing for a in m.attempts if _near(a, attempt) and _differ(a, attempt)]
    if any(bound.short(a) and a.void is None and _by_far_end(a) for a in (*elsewhere, *agreed)):
        return replace(attempt, weak=None)
    return attempt


def _by_far_end(attempt: Attempt) -> bool:
    return attempt.weak is None or attempt.weak.code == FAR_END


def _differ(one: Attempt, other: Attempt) -> bool:
    here, there = _of(one, "network"), _of(other, "network")
    return here is not None and there is not None and here != there


def _of(attempt: Attempt, name: str) -> object:
    return attempt.blocks[0].conditions.get(name) if attempt.blocks else None


def _near(one: Attempt, other: Attempt) -> bool:
    return abs(_seconds(one) - _seconds(other)) <= WITHIN_S


def _seconds(attempt: Attempt) -> float:
    moment = datetime.fromisoformat(attempt.started_at.replace("Z", "+00:00"))
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()


def _worded(found: Finding, settled: Measurement, more_to_come: bool) -> Finding:
    """What was set aside is said; a repeat is asked for only where it can lead to a decision."""
    if found.outcome == "pass":
        aside = [a for a in settled.attempts if a.void is not None and a.void.code == FAR_END]
        return replace(found, notes=(*found.notes, *map(_set_aside, aside)))
    last = settled.attempts[-1]
    if found.again != "repeat" or last.weak is None or more_to_come or _of(last, "other_networks"):
        return found
    return replace(found, again=None, reason_code=last.weak.code, reason=last.weak.text)


def _set_aside(attempt: Attempt) -> Text:
    server = str(_of(attempt, "server"))
    return msg("short through {server}, which is set aside: another end kept the promise", server=server)
