"""A span of the log in a few lines: what each GPU and the host did, and what happened. Pure but for reading the log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from agent import stats
from agent.bench.telemetry import FAULTS, POWER_CAP
from agent.tools.telemetry import REASONS
from agent.tools.watch import Card
from agent.watch.events import COUNTED, Event
from agent.watch.log import Begun, Item, Seen, Unread

GAP = 3.0  # times the interval: no look for longer than this is time that was not watched
SPANNED = ("temperature_c", "memory_temperature_c", "power_w", "sm_mhz", "utilization", "memory_used_mib")
HOST_SPANNED = ("cpu", "steal", "iowait", "disk_read", "disk_written", "received", "sent")


@dataclass(frozen=True)
class Span:
    """Least, median and most of the values of a span."""

    least: float
    median: float
    most: float


@dataclass
class OfCard:
    """What is known of one card, by its slot. ``held``: seconds by cause; ``grew``: by counter."""

    card: Card
    values: dict[str, list[float]] = field(default_factory=dict)
    held: dict[str, float] = field(default_factory=dict)
    waited: float = 0.0
    first: dict[str, float] = field(default_factory=dict)
    grew: dict[str, float] = field(default_factory=dict)
    looks: int = 0

    def span(self, name: str) -> Optional[Span]:
        found = self.values.get(name)
        return Span(min(found), stats.median(found), max(found)) if found else None


@dataclass
class Summary:
    """``watched_s`` of ``begin`` … ``end`` (seconds since 1970); the rest are ``gaps``."""

    begin: Optional[float] = None
    end: Optional[float] = None
    looks: int = 0
    watched_s: float = 0.0
    gaps: list[tuple[float, float]] = field(default_factory=list)
    cards: dict[str, OfCard] = field(default_factory=dict)
    host: dict[str, list[float]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    unread: int = 0

    def host_span(self, name: str) -> Optional[Span]:
        found = self.host.get(name)
        return Span(min(found), stats.median(found), max(found)) if found else None


def summarise(items: Iterable[Item], since: Optional[float] = None, until: Optional[float] = None) -> Summary:
    """Of the looks and events from ``since`` to ``until`` (seconds since 1970)."""
    found = Summary()
    begun: Optional[Begun] = None
    last: Optional[float] = None
    for item in items:
        if isinstance(item, Unread):
            found.unread += 1
            continue
        if isinstance(item, Begun):
            begun = item
            continue
        if (since is not None and item.t < since) or (until is not None and item.t > until):
            continue
        if isinstance(item, Event):
            found.events.append(item)
        elif begun is not None:
            last = _look(found, begun, item, last)
    return found


def _look(found: Summary, begun: Begun, seen: Seen, last: Optional[float]) -> float:
    passed = begun.every if last is None else max(0.0, seen.t - last)
    if last is not None and passed > GAP * begun.every:
        found.gaps.append((last, seen.t))
        passed = begun.every
    if last is None:
        found.begin = seen.t
    found.end = seen.t
    found.looks += 1
    found.watched_s += passed
    for card, values in zip(begun.cards, seen.look.gpus):
        one = found.cards.setdefault(card.slot or card.uuid or "?", OfCard(card))
        _card(one, values, passed)
    for name in HOST_SPANNED:
        value = seen.look.host.get(name)
        if value is not None:
            found.host.setdefault(name, []).append(value)
    return seen.t


def _card(one: OfCard, values: Mapping[str, Optional[float]], passed: float) -> None:
    one.looks += 1
    for name in SPANNED:
        value = values.get(name)
        if value is not None:
            one.values.setdefault(name, []).append(value)
    bits = values.get("reasons")
    if bits is not None:
        for bit, cause in REASONS.items():
            if cause in (*FAULTS, POWER_CAP) and int(bits) & bit:
                one.held[cause] = one.held.get(cause, 0.0) + passed
    for name in COUNTED:
        value = values.get(name)
        if value is None:
            continue
        before = one.first.get(name)
        one.first[name] = value
        if before is not None and value > before:
            one.grew[name] = one.grew.get(name, 0.0) + value - before


def to_json(found: Summary) -> dict[str, Any]:
    """The fixed shape of ``--format json``: what was not told is null."""
    return {
        "schema": "accept.watch-summary/1",
        "begin": found.begin,
        "end": found.end,
        "looks": found.looks,
        "watched_s": round(found.watched_s, 1),
        "gaps": [[round(a, 1), round(b, 1)] for a, b in found.gaps],
        "unread_lines": found.unread,
        "gpus": [
            {
                "slot": slot,
                "uuid": one.card.uuid,
                "name": one.card.name,
                "looks": one.looks,
                **{name: _span_json(one.span(name)) for name in SPANNED},
                "held_down_s": {cause: round(s, 1) for cause, s in one.held.items()},
                "grew": one.grew,
            }
            for slot, one in sorted(found.cards.items())
        ],
        "host": {name: _span_json(found.host_span(name)) for name in HOST_SPANNED},
        "events": [{"t": e.t, "kind": e.kind, "subject": e.subject, "values": dict(e.values)} for e in found.events],
    }


def _span_json(span: Optional[Span]) -> Optional[Sequence[float]]:
    return None if span is None else [round(span.least, 3), round(span.median, 3), round(span.most, 3)]
