"""Axes and curves for pictures: round ticks, places in percent, long series made short without losing their peaks.

A picture is drawn on a canvas of :data:`WIDE` × :data:`HIGH` that the page stretches; words stand beside it as text
of the page, so that they stay readable on a phone and in print.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Callable, Optional

WIDE, HIGH = 1000, 200
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Axis:
    """From ``low`` to ``high``, linear or (``log``) by powers."""

    low: float
    high: float
    log: bool = False

    def share(self, value: float) -> float:
        """0 at the low end, 1 at the high one, kept inside."""
        low, high, here = (self._placed(v) for v in (self.low, self.high, value))
        return min(max((here - low) / (high - low), 0.0), 1.0) if high > low else 0.5

    def percent(self, value: float) -> float:
        return round(100 * self.share(value), 2)

    def _placed(self, value: float) -> float:
        return math.log(max(value, 1e-300)) if self.log else value


def ticks(low: float, high: float, most: int = 5) -> tuple[float, ...]:
    """At most ``most`` + 1 round numbers (1, 2 or 5 times a power of ten) that cover ``low`` to ``high``."""
    span = high - low
    if not (math.isfinite(span) and span > 0):
        return ()
    rough = span / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.999)
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return tuple(round(i * step, 12) for i in range(first, last + 1))


def axis_over(values: Iterable[float], most: int = 4, zero: bool = False) -> tuple[Axis, tuple[float, ...]]:
    """A linear axis that ends at round numbers, and those numbers. ``zero``: begins at zero."""
    known = [v for v in values if math.isfinite(v)]
    if not known:
        return Axis(0.0, 1.0), (0.0, 1.0)
    low, high = (0.0 if zero else min(known)), max(known)
    if high <= low:
        low, high = (low - 1, high + 1) if not zero else (0.0, max(high, 1.0))
    found = ticks(low, high, most)
    return Axis(found[0], found[-1]), found


def path(points: Points, x: Axis, y: Axis) -> str:
    """The points as one line of an SVG path on the canvas; a NaN lifts the pen."""
    parts, down = [], False
    for px, py in points:
        if not math.isfinite(py):
            down = False
            continue
        at = f"{round(WIDE * x.share(px))} {round(HIGH * (1 - y.share(py)))}"
        parts.append(("L" if down else "M") + at)
        down = True
    return "".join(parts)


def area(upper: Points, lower: Points, x: Axis, y: Axis) -> str:
    """The surface between two lines as an SVG path."""
    return path([*upper, *reversed(list(lower))], x, y) + "Z" if upper else ""


@dataclass(frozen=True)
class Bucket:
    """One of the parts of a long series: the time of its middle, what was lowest, median and highest in it."""

    t: float
    low: float
    middle: float
    high: float


def buckets(points: Points, start: float, end: float, count: int) -> tuple[Bucket, ...]:
    """At most ``count`` parts of equal time from ``start`` to ``end``, without the empty ones."""
    if end <= start:
        return ()
    width = (end - start) / count
    found: dict[int, list[float]] = {}
    for t, value in points:
        if start <= t <= end and math.isfinite(value):
            found.setdefault(min(int((t - start) / width), count - 1), []).append(value)
    return tuple(_bucket(start + (i + 0.5) * width, sorted(values)) for i, values in sorted(found.items()))


def _bucket(t: float, values: list[float]) -> Bucket:
    return Bucket(t, values[0], values[len(values) // 2], values[-1])


def stretches(
    samples: Sequence[tuple[float, Optional[str]]], start: float, end: float, count: int, worst: Callable[[str], int]
) -> tuple[tuple[float, float, str], ...]:
    """States over time as (from, to, state); of several states in one part the one that ``worst`` ranks highest."""
    if end <= start:
        return ()
    width = (end - start) / count
    found: dict[int, str] = {}
    for t, state in samples:
        if state is None or not start <= t <= end:
            continue
        at = min(int((t - start) / width), count - 1)
        if at not in found or worst(state) > worst(found[at]):
            found[at] = state
    merged: list[tuple[int, int, str]] = []
    for at, state in sorted(found.items()):
        if merged and merged[-1][1] == at and merged[-1][2] == state:
            merged[-1] = (merged[-1][0], at + 1, state)
        else:
            merged.append((at, at + 1, state))
    return tuple((start + a * width, start + b * width, state) for a, b, state in merged)
