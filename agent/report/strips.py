"""Each measurement as a strip: its blocks as dots on a common axis, with the limit as a line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Optional

from agent.model import Attempt, Block, Finding, Measurement, Run
from agent.quantity import QuantityError, convert, dimension_of, format_quantity
from agent.report import looks, numbers
from agent.report.clean import one_line, shortened
from agent.report.names import title
from agent.report.phrases import phrase
from agent.report.rows import MANY, gpu_labels, label_of, say
from agent.result import clause_of, last_counted
from agent.text import Text, Translate, msg

_MOST_SAMPLES = 12
_MOST_LINES = 240  # lines of samples on a page
_PADDING = 0.06


@dataclass(frozen=True)
class Dots:
    """All dots of one kind (now, earlier or void) as one SVG path of points with round ends."""

    d: str
    kind: str


@dataclass(frozen=True)
class BlockLine:
    """One block of the table of samples."""

    attempt: str
    value: str
    samples: str
    warmup: str
    conditions: str


@dataclass(frozen=True)
class Strip:
    """One subject's line: dots, interval and median in percent of the axis; ``says`` is the picture in words."""

    label: str
    value: str
    interval: str
    tone: str
    dots: tuple[Dots, ...]
    band: Optional[tuple[float, float]]
    middle: Optional[float]
    says: str
    remarks: tuple[str, ...]
    blocks: tuple[BlockLine, ...]


@dataclass(frozen=True)
class Chart:
    """One clause's measurements on a common axis from ``low`` to ``high``; ``limit_at`` in percent."""

    key: str
    title: str
    unit: str
    statistic: str
    low: str
    high: str
    limit: str
    limit_at: Optional[float]
    strips: tuple[Strip, ...]
    places: str
    cut: bool = False

    @property
    def many(self) -> bool:
        """More lines than a reader wants before he asks for them."""
        return len(self.strips) > MANY


_DEPTHS: dict[str, Text] = {"quick": msg("quick"), "standard": msg("standard"), "deeper": msg("deeper look")}
# The conditions worth a glance, with their unit; all of them are in the result.
_CONDITIONS: dict[str, tuple[Text, str]] = {
    "sm_mhz": (msg("clock"), "MHz"),
    "power_w": (msg("power"), "W"),
    "temp_c": (msg("temperature"), "C"),
    "throttle": (msg("slowed down"), ""),
    "foreign": (msg("others"), ""),
    "tool": (msg("tool"), ""),
    "server": (msg("far end"), ""),
    "streams": (msg("streams"), ""),
    "seconds": (msg("lasted"), "s"),
    "retransmits": (msg("sent again"), ""),
    "count": (msg("counted"), ""),
    "trials": (msg("of"), ""),
}
# What others did meanwhile, as "foreign" holds it; a share is a percentage already.
_FOREIGN: dict[str, tuple[Text, str]] = {
    "cpu_percent": (msg("CPU"), "%"),
    "steal_percent": (msg("stolen CPU time"), "%"),
    "gpu_busy_percent": (msg("GPU busy"), "%"),
    "disk_mb_s": (msg("disk"), "MB/s"),
    "disk_bytes_per_s": (msg("disk"), "B/s"),
    "network_mb_s": (msg("network"), "MB/s"),
    "net_bytes_per_s": (msg("network"), "B/s"),
    "own_bytes_per_s": (msg("of it your own work"), "B/s"),
}


def charts(run: Run, translate: Translate) -> tuple[Chart, ...]:
    """One chart for each clause that was measured, in the order of the measurements."""
    findings = {key: f for f in run.findings for key in f.measurements}
    labels = gpu_labels(run)
    groups: dict[str, list[Measurement]] = {}
    for m in run.measurements:
        groups.setdefault(clause_of(m), []).append(m)
    return _within(tuple(_chart(clause, ms, findings, labels, translate) for clause, ms in groups.items()))


def _within(found: tuple[Chart, ...]) -> tuple[Chart, ...]:
    """The tables of samples as far as a page takes them, those of what is not kept first; all are in the result."""
    left = _MOST_LINES
    whole: set[str] = set()
    for chart in sorted(found, key=lambda c: all(s.tone == "good" for s in c.strips)):
        lines = sum(len(s.blocks) for s in chart.strips)
        if lines <= left:
            left -= lines
            whole.add(chart.key)
    return tuple(c if c.key in whole else _without_blocks(c) for c in found)


def _without_blocks(chart: Chart) -> Chart:
    return replace(chart, strips=tuple(replace(s, blocks=()) for s in chart.strips), cut=True)


def counted_median(m: Measurement) -> Optional[float]:
    """The median of the blocks that count, in the measurement's own unit; None where nothing counts."""
    counted = last_counted(m)
    values = _values(counted) if counted else []
    return median(values) if values else None


def _values(attempt: Attempt) -> list[float]:
    return [b.value for b in attempt.blocks if math.isfinite(b.value)]


@dataclass(frozen=True)
class _Axis:
    low: float
    high: float

    def at(self, value: float) -> float:
        """Percent from the left end, kept inside the picture."""
        share = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return round(100 * min(max(share, 0.0), 1.0), 2)


def _axis(measurements: Iterable[Measurement], limit: Optional[float]) -> _Axis:
    seen = [v for m in measurements for a in m.attempts for v in _values(a)]
    seen += [limit] if limit is not None else []
    if not seen:
        return _Axis(0.0, 1.0)
    low, high = min(seen), max(seen)
    room = (high - low or abs(high) or 1.0) * _PADDING
    # Nothing measured here is below zero, so the axis is not either; a dot at zero keeps its half width.
    return _Axis(low - room if low < 0 else max(low - room, 0.0), high + room)


def _limit(finding: Optional[Finding], unit: str) -> Optional[float]:
    limit = finding.limit if finding else None
    if limit is None or limit.unit != unit or isinstance(limit.value, bool):
        return None
    return float(limit.value) if isinstance(limit.value, (int, float)) and math.isfinite(limit.value) else None


def _unit(ms: list[Measurement], judged: Optional[Finding]) -> str:
    """What to show these measurements in: the unit they were judged in, else one that reads well."""
    own = ms[0].unit
    if any(m.unit != own for m in ms) or not _known(own):
        return own
    if judged and judged.limit and _known(judged.limit.unit) and dimension_of(judged.limit.unit) == dimension_of(own):
        return judged.limit.unit
    values = [v for m in ms for a in m.attempts for v in _values(a)]
    return format_quantity(max(values), own).partition(" ")[2] if values else own


def _known(unit: str) -> bool:
    try:
        dimension_of(unit)
    except QuantityError:
        return False
    return True


def _in_unit(m: Measurement, unit: str) -> Measurement:
    """``m`` with its numbers in ``unit``, for the eye."""
    if m.unit == unit:
        return m
    factor = convert(1.0, m.unit, unit)

    def block(b: Block) -> Block:
        samples, warmup = (tuple(v * factor for v in values) for values in (b.samples, b.warmup))
        return replace(b, value=b.value * factor, samples=samples, warmup=warmup)

    attempts = tuple(replace(a, blocks=tuple(map(block, a.blocks))) for a in m.attempts)
    return replace(m, unit=unit, attempts=attempts)


def _chart(
    clause: str, ms: list[Measurement], findings: Mapping[str, Finding], labels: Mapping[str, str], translate: Translate
) -> Chart:
    judged = next((findings[m.key] for m in ms if m.key in findings), None)
    unit = _unit(ms, judged)
    ms = [_in_unit(m, unit) for m in ms]
    limit = _limit(judged, unit)
    axis = _axis(ms, limit)
    sign = numbers.promise(judged.limit.op) if judged and judged.limit else ""
    return Chart(
        key=shortened(one_line(clause), 200),
        title=shortened(title(clause, translate), 200),
        unit=shortened(one_line(unit), 40),
        statistic=shortened(phrase(ms[0].statistic, translate), 200),
        low=numbers.number(axis.low, 3),
        high=numbers.number(axis.high, 3),
        limit=shortened(f"{sign} {numbers.quantity(limit, unit, translate)}", 60) if limit is not None else "",
        limit_at=axis.at(limit) if limit is not None else None,
        strips=tuple(_strip(m, findings.get(m.key), axis, labels, translate) for m in ms),
        places=msg("{n} places", n=len(ms)).render(translate),
    )


def _strip(
    m: Measurement, finding: Optional[Finding], axis: _Axis, labels: Mapping[str, str], translate: Translate
) -> Strip:
    counted = last_counted(m)
    values = _values(counted) if counted else []
    middle = median(values) if values else None
    limit = numbers.ends(finding.limit, m.unit) if finding else ()
    shown = numbers.quantity(middle, m.unit, translate, limit)
    spread = ""
    if middle is not None and len(values) > 1:
        shown = numbers.aligned(middle, min(values), max(values), m.unit, limit)
        spread = numbers.interval(min(values), max(values), m.unit, limit)
    label = label_of(m.subject, labels)
    says = msg("{n} blocks, {interval}, median {value}", n=len(values), interval=spread or shown, value=shown)
    return Strip(
        label=label,
        value=shortened(shown, 120),
        interval=shortened(spread, 120),
        tone=looks.of_outcome(finding.outcome, finding.severity).tone if finding else "mute",
        dots=tuple(_dots(m, counted, axis)),
        band=(axis.at(min(values)), axis.at(max(values))) if len(values) > 1 else None,
        middle=axis.at(middle) if middle is not None else None,
        says=says.render(translate),
        remarks=tuple(_remarks(m, translate)),
        blocks=tuple(_blocks(m, translate)),
    )


def _dots(m: Measurement, counted: Optional[Attempt], axis: _Axis) -> Iterable[Dots]:
    places: dict[str, list[float]] = {"void": [], "earlier": [], "now": []}
    for attempt in m.attempts:
        kind = "now" if attempt is counted else ("void" if attempt.void else "earlier")
        places[kind] += [axis.at(v) for v in _values(attempt)]
    for kind, found in places.items():
        if found:
            yield Dots("".join(f"M{round(10 * at)} 13h0" for at in found), kind)


def _remarks(m: Measurement, translate: Translate) -> Iterable[str]:
    for n, attempt in enumerate(m.attempts, 1):
        if attempt.void:
            text = msg("attempt {n} does not count: {why}", n=n, why=say(attempt.void.text, translate))
            yield text.render(translate)
        if attempt.weak:
            text = msg(
                "attempt {n} may keep the promise, not break it: {why}", n=n, why=say(attempt.weak.text, translate)
            )
            yield text.render(translate)
        if attempt.correct is False:
            yield msg("attempt {n}: the results were wrong", n=n).render(translate)
        yield from (say(note, translate) for note in attempt.notes)


def _blocks(m: Measurement, translate: Translate) -> Iterable[BlockLine]:
    for n, attempt in enumerate(m.attempts, 1):
        depth = _DEPTHS[attempt.depth].render(translate) if attempt.depth in _DEPTHS else one_line(attempt.depth)
        for i, block in enumerate(attempt.blocks, 1):
            yield BlockLine(
                attempt=f"{n}.{i} · {depth}",
                value=numbers.number(block.value),
                samples=_listed(block.samples),
                warmup=_listed(block.warmup),
                conditions=_conditions(block.conditions, translate),
            )


def _listed(values: tuple[float, ...]) -> str:
    if not values:
        return numbers.NONE
    shown = "  ".join(numbers.number(v) for v in values[:_MOST_SAMPLES])
    return shown if len(values) <= _MOST_SAMPLES else f"{shown} … ({len(values)})"


def _conditions(conditions: Mapping[str, Any], translate: Translate) -> str:
    parts = [_condition(k, v, translate) for k, v in conditions.items() if v not in (None, {}, [], ())]
    return shortened(" · ".join(p for p in parts if p), 300)


def _condition(key: str, value: Any, translate: Translate) -> str:
    if key not in _CONDITIONS:
        return ""
    name, unit = _CONDITIONS[key]
    if isinstance(value, Mapping):
        inner = [_beside(k, v, translate) for k, v in value.items() if v]
        return f"{name.render(translate)} {', '.join(inner)}" if inner else ""
    return f"{name.render(translate)} {numbers.quantity(value, unit, translate)}"


def _beside(key: Any, value: Any, translate: Translate) -> str:
    """One number of several: what others did in its own unit, else a share such as of the time throttled."""
    if key in _FOREIGN and numbers.is_number(value):
        name, unit = _FOREIGN[key]
        return f"{name.render(translate)} {numbers.quantity(float(f'{value:.3g}'), unit, translate)}"
    return f"{one_line(str(key))} {_share_or_text(value)}"


def _share_or_text(value: Any) -> str:
    if isinstance(value, float) and 0 <= value <= 1:
        return numbers.percent(value)
    return one_line(str(value))
