"""Temperature, power and clock of every card beside a load, and when its clocks were held down: from the telemetry."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Callable, Optional

from agent.model import Run
from agent.report import numbers
from agent.report.clean import one_line, shortened
from agent.report.figures import Band, Curve, Key, Mark, Panel, Plot, Row, Table, Tick
from agent.report.places import folders, probe, whole
from agent.report.scale import Axis, Bucket, area, axis_over, buckets, path, stretches, ticks
from agent.text import Text, Translate, msg
from agent.tools import ParseError
from agent.tools.telemetry import Telemetry, parse

TELEMETRY = "telemetry.jsonl"
_LARGEST = 64 << 20
_MOST = 3  # timelines on a page
_BUCKETS = 180
_EACH = 8  # more cards than this are drawn as the range of all
_MOST_ROWS = 12
# Bits of agent.tools.telemetry.REASONS: what no healthy card shows, and what a full load normally meets.
FAULT_BITS = 0x8 | 0x20 | 0x40 | 0x80
CAP_BIT = 0x4

_LOADS: dict[str, Text] = {
    "burn": msg("Full load"),
    "gemm": msg("Matrix multiplication"),
    "allreduce": msg("All-reduce"),
    "collectives": msg("Other collectives"),
    "memory_bandwidth": msg("GPU memory bandwidth"),
}
Series = list[tuple[float, float]]


@dataclass(frozen=True)
class _Load:
    """One load's telemetry and the name of its evidence folder."""

    name: str
    folder: str
    telemetry: Telemetry


@dataclass(frozen=True)
class _Card:
    label: str
    broken: bool
    temperature: Series
    power: Series
    clock: Series
    reasons: list[tuple[float, Optional[int]]]

    @property
    def kind(self) -> str:
        """How its curves look: broken, held down by heat or a brake for more than a hundredth of the time, or quiet."""
        if self.broken:
            return "bad"
        return "odd" if (_share(self, FAULT_BITS) or 0.0) > 0.01 else "each"


def timelines(run: Run, folder: Optional[Path], translate: Translate) -> tuple[Plot, ...]:
    """At most three, the full load first; none where no telemetry was recorded."""
    loads = sorted(_loads(folder), key=lambda load: (list(_LOADS).index(load.name), load.folder))
    return tuple(_plot(load, run, translate) for load in loads[:_MOST])


def _loads(folder: Optional[Path]) -> Iterable[_Load]:
    for place in folders(folder):
        name = probe(place).partition("/")[0]
        raw = whole(place / TELEMETRY, _LARGEST) if name in _LOADS else None
        if raw is None:
            continue
        try:
            telemetry = parse(raw.decode("utf-8", "replace"))
        except ParseError:
            continue  # the finding that rests on it says so
        if telemetry.gpus and len(telemetry.fast) > 1:
            yield _Load(name, place.name, telemetry)


def _cards(load: _Load, run: Run) -> tuple[_Card, ...]:
    known = {str(g.get(k)): g for g in run.node.get("gpus") or () for k in ("slot", "uuid") if g.get(k)}
    broken = {f.subject for f in run.findings if f.outcome == "fail" and f.severity == "breach"}
    found = []
    for i, gpu in enumerate(load.telemetry.gpus):
        entry = known.get(str(gpu.uuid)) or known.get(str(gpu.slot)) or {}
        index = entry.get("index")
        slot = entry.get("slot") or gpu.slot
        found.append(_card(load.telemetry, i, f"GPU {one_line(str(i if index is None else index))}", slot in broken))
    return tuple(found)


def _card(telemetry: Telemetry, i: int, label: str, broken: bool) -> _Card:
    def slow(name: str) -> Series:
        return [(row.t, v) for row in telemetry.slow if (v := row.gpus[i][name]) is not None]

    clock = [(f.t, v) for f in telemetry.fast if (v := f.clocks[i]) is not None]
    return _Card(
        shortened(label, 24),
        broken,
        slow("temperature_c"),
        slow("power_w"),
        clock,
        [(f.t, f.reasons[i]) for f in telemetry.fast],
    )


def _plot(load: _Load, run: Run, translate: Translate) -> Plot:
    cards = _cards(load, run)
    start, end = load.telemetry.fast[0].t, load.telemetry.fast[-1].t
    x = Axis(start, end)
    minutes = end - start > 180
    panels = [
        _panel(msg("Temperature, °C"), [c.temperature for c in cards], cards, x, translate, _temperature_limit(run)),
        _panel(msg("Power, W"), [c.power for c in cards], cards, x, translate, None),
        _panel(msg("Clock, MHz"), [c.clock for c in cards], cards, x, translate, None),
    ]
    rows = tuple(_rows(cards, x))
    return Plot(
        title=_LOADS[load.name].render(translate),
        code=shortened(one_line(load.folder), 40),
        says=_says(cards, translate),
        panels=tuple(p for p in panels if p is not None),
        x=_time_ticks(start, end, minutes),
        x_title=(msg("minutes") if minutes else msg("seconds")).render(translate),
        keys=tuple(_keys(cards, translate)),
        rows=rows,
        rows_title=msg("Clock held down").render(translate) if rows else "",
        table=_table(cards, translate),
    )


def _time_ticks(start: float, end: float, minutes: bool) -> tuple[Tick, ...]:
    unit = 60.0 if minutes else 1.0
    x = Axis(start, end)
    found = (t for t in ticks(0.0, (end - start) / unit, 6) if t * unit <= end - start)
    return tuple(Tick(x.percent(start + t * unit), numbers.number(t)) for t in found)


def _temperature_limit(run: Run) -> Optional[Mark]:
    for f in run.findings:
        if f.clause == "burn.temperature" and f.limit is not None and isinstance(f.limit.value, (int, float)):
            return Mark(float(f.limit.value), f"{numbers.promise(f.limit.op)} {numbers.number(f.limit.value)}", "limit")
    return None


def _panel(
    title: Text, series: Sequence[Series], cards: Sequence[_Card], x: Axis, translate: Translate, limit: Optional[Mark]
) -> Optional[Panel]:
    count = max(40, min(_BUCKETS, 2400 // max(len(cards), 1)))
    reduced = [buckets(s, x.low, x.high, count) for s in series]
    values = [v for parts in reduced for b in parts for v in (b.low, b.high)]
    if not values:
        return None
    y, marks = axis_over([*values, *([limit.at] if limit else [])])
    return Panel(
        title=title.render(translate),
        y=tuple(Tick(y.percent(v), numbers.number(v)) for v in marks),
        curves=tuple(_curves(reduced, cards, x, y)),
        levels=(Mark(y.percent(limit.at), limit.label, limit.kind),) if limit else (),
    )


def _curves(reduced: Sequence[Sequence[Bucket]], cards: Sequence[_Card], x: Axis, y: Axis) -> Iterable[Curve]:
    """The cards that kept everything in grey, the broken ones above them; many cards as their range and median."""
    quiet = [parts for parts, card in zip(reduced, cards) if card.kind == "each"]
    if len(cards) > _EACH and quiet:
        yield from _range(quiet, x, y)
    else:
        yield from (Curve(_line(parts, x, y), "each") for parts in quiet)
    loud = ((p, c) for p, c in zip(reduced, cards) if c.kind != "each")
    yield from (Curve(_line(p, x, y), c.kind, c.label) for p, c in loud)


def _line(parts: Sequence[Bucket], x: Axis, y: Axis) -> str:
    return path([(b.t, b.middle) for b in parts], x, y)


def _range(series: Sequence[Sequence[Bucket]], x: Axis, y: Axis) -> Iterable[Curve]:
    at: dict[float, list[float]] = {}
    for parts in series:
        for b in parts:
            at.setdefault(b.t, []).append(b.middle)
    upper, lower = [(t, max(v)) for t, v in sorted(at.items())], [(t, min(v)) for t, v in sorted(at.items())]
    yield Curve(area(upper, lower, x, y), "range")
    yield Curve(path([(t, median(v)) for t, v in sorted(at.items())], x, y), "each")


def state(bits: Optional[int]) -> Optional[str]:
    """``bad`` where a fault held the clock down, ``cap`` at the power limit, None for neither or unknown."""
    if bits is None or not bits & (FAULT_BITS | CAP_BIT):
        return None
    return "bad" if bits & FAULT_BITS else "cap"


def _rows(cards: Sequence[_Card], x: Axis) -> Iterable[Row]:
    shown = list(cards) if len(cards) <= _MOST_ROWS else [c for c in cards if c.kind != "each"]
    rank: Callable[[str], int] = ("cap", "bad").index
    for card in shown[:_MOST_ROWS]:
        found = stretches([(t, state(bits)) for t, bits in card.reasons], x.low, x.high, _BUCKETS, rank)
        bands = (Band(x.percent(a), round(x.percent(b) - x.percent(a), 2), kind) for a, b, kind in found)
        yield Row(card.label, tuple(bands))


def _share(card: _Card, mask: int) -> Optional[float]:
    known = [bits for _, bits in card.reasons if bits is not None]
    return sum(bool(bits & mask) for bits in known) / len(known) if known else None


def _keys(cards: Sequence[_Card], translate: Translate) -> Iterable[Key]:
    for kind in ("bad", "odd"):
        names = [c.label for c in cards if c.kind == kind]
        if names:
            yield Key(kind, ", ".join(names[:6]) + (" …" if len(names) > 6 else ""))
    rest = sum(c.kind == "each" for c in cards)
    if rest:
        alone = rest == len(cards)
        yield Key("each", (msg("{n} GPUs", n=rest) if alone else msg("the other {n} GPUs", n=rest)).render(translate))
    if any(_share(c, FAULT_BITS) for c in cards):
        yield Key("band-bad", msg("heat or power brake").render(translate))
    if any(_share(c, CAP_BIT) for c in cards):
        yield Key("band-cap", msg("power limit reached").render(translate))


def _table(cards: Sequence[_Card], translate: Translate) -> Table:
    heads = (
        msg("GPU"),
        msg("Hottest"),
        msg("Mean power"),
        msg("Median clock"),
        msg("Heat or brake"),
        msg("At power limit"),
    )
    rows = (
        (
            card.label,
            _shown(card.temperature, max, "C", translate),
            _shown(card.power, lambda v: math.fsum(v) / len(v), "W", translate),
            _shown(card.clock, median, "MHz", translate),
            _percent(_share(card, FAULT_BITS)),
            _percent(_share(card, CAP_BIT)),
        )
        for card in cards
    )
    return Table(tuple(h.render(translate) for h in heads), tuple(rows))


def _shown(series: Series, fold: Callable[[list[float]], float], unit: str, translate: Translate) -> str:
    if not series:
        return numbers.NONE
    return numbers.quantity(round(fold([v for _, v in series])), unit, translate)


def _percent(share: Optional[float]) -> str:
    return numbers.NONE if share is None else numbers.percent(share)


def _says(cards: Sequence[_Card], translate: Translate) -> str:
    hot = max((v for c in cards for _, v in c.temperature), default=None)
    slow = [c.label for c in cards if _share(c, FAULT_BITS)]
    text = msg(
        "{n} GPUs beside the load; hottest {hot}; clocks held down by heat or power brake on: {slow}",
        n=len(cards),
        hot=numbers.quantity(hot, "C", translate),
        slow=", ".join(slow) or numbers.NONE,
    )
    return shortened(text.render(translate), 400)
