"""One number over the days: the evening against the rest, and drift. Pure.

Both work on logarithms, so that a drop is a share of the level. The spread is that of the trial's own runs; the error
is divided by the number of comparisons that the trial makes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from statistics import fmean
from typing import Optional

from agent.stats import t_quantile

ERROR = 0.005  # of one healthy trial, over all its comparisons together
EVENING_RUNS = 3  # at least so many runs in the evening, and in the rest, ...
EVENINGS = 2  # ... on at least so many days
DRIFT_RUNS = 6
DRIFT_LEAST = 0.02  # a slower change over the whole trial is not worth a word


@dataclass(frozen=True)
class Sample:
    """One run's value at its local time; ``run`` is its number in the report."""

    run: int
    at: datetime
    value: float
    evening: bool
    day: date


@dataclass(frozen=True)
class Drop:
    """How much lower the evening is, as a share of the rest: 0.2 is a fifth. Negative: the evening is better."""

    share: float
    low: float
    high: float
    evenings: int
    evening_runs: int
    other_runs: int


@dataclass(frozen=True)
class Drift:
    """Change from first to last run as a share of the first; ``since``: the run from which it is beyond noise."""

    share: float
    low: float
    high: float
    since: Optional[int]


def evening_drop(samples: Sequence[Sample], looks: int = 1) -> Optional[Drop]:
    """Two-sample t interval of the logarithms at confidence 1 − 0.005 / ``looks``; None with too few runs.

    What counts is rates: a value that is not above 0 has no logarithm, and gives None.
    """
    there = [s for s in samples if s.evening]
    rest = [s for s in samples if not s.evening]
    days = len({s.day for s in there})
    if min(len(there), len(rest)) < EVENING_RUNS or days < EVENINGS or min(s.value for s in samples) <= 0:
        return None
    one, two = [math.log(s.value) for s in rest], [math.log(s.value) for s in there]
    degrees = len(one) + len(two) - 2
    spread = (_squares(one) + _squares(two)) / degrees
    error = math.sqrt(spread * (1 / len(one) + 1 / len(two)))
    reach = t_quantile(1 - ERROR / looks / 2, degrees) * error
    fall = fmean(one) - fmean(two)
    shares = (-math.expm1(-(fall + sign * reach)) for sign in (0, -1, 1))
    share, low, high = shares
    return Drop(share, low, high, days, len(there), len(rest))


def _squares(values: Sequence[float]) -> float:
    middle = fmean(values)
    return math.fsum((v - middle) ** 2 for v in values)


def drift(samples: Sequence[Sample], looks: int = 1) -> Optional[Drift]:
    """A straight line through the logarithms over time; None with too few runs or no spread of times."""
    fitted = _line(samples, looks)
    if fitted is None:
        return None
    if not _beyond(fitted):
        return Drift(*fitted, None)
    # By halving: with so many runs it shows, with one less it does not.
    hidden, shown = DRIFT_RUNS - 1, len(samples)
    while shown - hidden > 1:
        middle = (hidden + shown) // 2
        earlier = _line(samples[:middle], looks)
        hidden, shown = (hidden, middle) if earlier is not None and _beyond(earlier) else (middle, shown)
    return Drift(*fitted, samples[shown - 1].run)


def _beyond(fitted: tuple[float, float, float]) -> bool:
    share, low, high = fitted
    return abs(share) >= DRIFT_LEAST and (low > 0 or high < 0)


def _line(samples: Sequence[Sample], looks: int) -> Optional[tuple[float, float, float]]:
    if len(samples) < DRIFT_RUNS or min(s.value for s in samples) <= 0:
        return None
    begin = samples[0].at
    times = [(s.at - begin).total_seconds() for s in samples]
    levels = [math.log(s.value) for s in samples]
    middle, level = fmean(times), fmean(levels)
    width = math.fsum((t - middle) ** 2 for t in times)
    if width == 0:
        return None
    slope = math.fsum((t - middle) * (v - level) for t, v in zip(times, levels)) / width
    rest = math.fsum((v - level - slope * (t - middle)) ** 2 for t, v in zip(times, levels))
    degrees = len(samples) - 2
    reach = t_quantile(1 - ERROR / looks / 2, degrees) * math.sqrt(rest / degrees / width)
    span = times[-1]
    return math.expm1(slope * span), math.expm1((slope - reach) * span), math.expm1((slope + reach) * span)
