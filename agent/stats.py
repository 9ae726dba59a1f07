"""The statistics of the verdict: one rule for each kind of number, and one rule from attempts to a decision.

Pure and standard library only. Three parts:

* **intervals**: device rates (blocks), disk and network rates (repetitions), shares (binomial trials), shares
  of time (blocks), percentiles (one per repetition). Each `*_attempt` function gives an `Attempt`;
* **decide**: attempts → pass, fail, inconclusive, and what to measure next;
* **series**: steps, sags and policers in a per-second series, and how a fall enters the judged rate.

The error budget. Each clause gets at most two looks. Look 1 may err by 2/2**6 = 3.1 % (both sides together:
the minimum and maximum of six blocks), look 2 by what is left of 5 %, 1.9 %. The sum bounds the error whatever
the dependence between the looks (Bonferroni), and look 2 is measured afresh, so an unlucky first run is not
counted twice. These figures are about the noise *inside* an attempt. An offset that a whole attempt shares (a
warm room, another placement) no interval of that attempt can show; against it stands the rule that a fail must
repeat. `tests/perf/simulate_stats.py` prints what both together achieve.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Optional

Op = Literal[">=", "<=", "=="]
Again = Literal["repeat", "deeper"]
Outcome = Literal["pass", "fail", "inconclusive"]

# Device rates: separate launches, interleaved over the GPUs.
BLOCKS = 6
# 3rd lowest to 3rd highest of 14 blocks: 98.7 %, within look 2's budget. 12 blocks would have to use the 2nd
# (99.4 %), whose interval is a quarter wider for two launches less.
BLOCKS_DEEPER = 14
# Disk and network rates, percentiles: each repetition costs bytes, so look 2 takes the fewest that leave out
# an outlier on each side: 2nd lowest to 2nd highest of 11, 98.8 %.
REPETITIONS = 6
REPETITIONS_DEEPER = 11
# Shares of time (throttled, steal): many blocks of the same length.
TIME_BLOCKS = 12
TIME_BLOCKS_DEEPER = 24

ERROR_BUDGET = 0.05
ERROR_FIRST_LOOK = 2.0 / (1 << BLOCKS)
CONFIDENCE = 1.0 - ERROR_FIRST_LOOK
CONFIDENCE_DEEPER = 1.0 - (ERROR_BUDGET - ERROR_FIRST_LOOK)
# Shares are as noisy as their own size: nearly all of the distance to the limit is sampling error, so the tail
# itself must hold the false acceptances down. 0.0625 % + 0.0375 % = 0.1 % on each side over the two looks.
SHARE_CONFIDENCE = 1.0 - 2 * 0.000625
SHARE_CONFIDENCE_DEEPER = 1.0 - 2 * 0.000375
# Shares of time: the spread over the blocks is itself estimated, and now and then too small.
TIME_CONFIDENCE = 1.0 - 2 * 0.00025
TRIALS_DEEPER_FACTOR = 4
CLEAR_VIOLATION = 4.0
CLEAR_VIOLATION_POWER = 0.95

# Ends that differ from the limit by less, as a share, lie on it: 2,000,000 ns are 2 ms to the last bit or not.
SAME = 1e-12
PHYSICAL_MARGIN = 1.05
ABOVE_PHYSICAL_LIMIT = "above-physical-limit"


@dataclass(frozen=True)
class Interval:
    """Both ends in the unit of the value; `rule` says how it was made, `coverage` (0 to 1) how sure it is.

    The default coverage is that of an exact number (a fact, a counter).
    """

    low: float
    high: float
    rule: str
    coverage: float = 1.0


@dataclass(frozen=True)
class Attempt:
    """One complete measurement of one number. `look` is 1, or 2 for the greater depth.

    `void` is a reason code: the attempt stays listed and decides nothing. A number that could not be computed
    is None, always with a `void` that says why.
    """

    value: Optional[float]
    interval: Optional[Interval]
    look: int = 1
    void: Optional[str] = None


@dataclass(frozen=True)
class Decision:
    """`value` and `interval` are those of the attempt that settled it (the last one of the deciding kind).

    reason_code: `kept`; `below-limit`, `above-limit`, `not-equal`; `fail-not-repeated`, `unstable`,
    `too-close`; or why nothing counted: the attempt's own void reason, `too-few-samples`, `not-a-number`,
    `negative`, `no-measurement`. `again` says what to measure next, None when this is final.
    """

    outcome: Outcome
    reason_code: str
    value: Optional[float]
    interval: Optional[Interval]
    again: Optional[Again]


# ---------------------------------------------------------------- numbers


def problem(values: Sequence[float]) -> Optional[str]:
    """Why these can't be measured rates, shares or times: `no-samples`, `not-a-number`, `negative`, or None."""
    if not values:
        return "no-samples"
    if not all(math.isfinite(value) for value in values):
        return "not-a-number"
    if min(values) < 0:
        return "negative"
    return None


def _checked(values: Sequence[float]) -> list[float]:
    trouble = problem(values)
    if trouble is not None:
        raise ValueError(trouble)
    return sorted(values)


def median(values: Sequence[float]) -> float:
    """Middle value, or the mean of the two in the middle. ValueError for empty, NaN, infinite or negative."""
    ordered = _checked(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def percentile(samples: Sequence[float], share: float) -> float:
    """The smallest sample that at least `share` (0 < share <= 1) of all samples don't exceed (nearest rank)."""
    if not 0 < share <= 1:
        raise ValueError(f"a percentile lies in (0, 1], not {share}")
    ordered = _checked(samples)
    return ordered[max(0, math.ceil(share * len(ordered) - 1e-9) - 1)]


def void_above(value: float, bound: Optional[float]) -> Optional[str]:
    """`above-physical-limit` when value > 1.05 × bound (same unit); None below it or where no bound is known."""
    if bound is None or not value > PHYSICAL_MARGIN * bound:
        return None
    return ABOVE_PHYSICAL_LIMIT


# ---------------------------------------------------------------- intervals


def required_confidence(look: int) -> float:
    """The coverage below which an attempt of this look decides nothing."""
    return CONFIDENCE if look <= 1 else CONFIDENCE_DEEPER


def order_coverage(count: int, rank: int) -> float:
    """Exact coverage of the median by the rank-th lowest to the rank-th highest of `count` draws.

    1 − 2 · P(Binomial(count, ½) < rank): it holds for every continuous distribution.
    """
    return 1.0 - 2.0 * sum(math.comb(count, below) for below in range(rank)) / (1 << count)


def order_interval(values: Sequence[float], confidence: float = CONFIDENCE, noun: str = "blocks") -> Interval:
    """The narrowest symmetric order-statistic interval that covers the median with at least `confidence`.

    Six values: minimum to maximum, 96.9 %. Too few values for `confidence`: still minimum to maximum, with
    the coverage they really have (5: 93.8 %, 3: 75 %, 1: 0 %), and `decide` will not decide on it.
    """
    ordered = _checked(values)
    count = len(ordered)
    rank = 1
    while 2 * (rank + 1) <= count and order_coverage(count, rank + 1) >= confidence:
        rank += 1
    coverage = order_coverage(count, rank)
    ends = "min–max" if rank == 1 else f"{_ordinal(rank)} lowest–{_ordinal(rank)} highest"
    rule = f"{ends} of {count} {noun}, {_percent(coverage)}"
    return Interval(ordered[rank - 1], ordered[count - rank], rule, coverage)


def _ordinal(rank: int) -> str:
    return f"{rank}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(rank, 'th') if rank < 20 else 'th' }"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 0.9985 else f"{100 * share:.2f} %"


def median_attempt(values: Sequence[float], look: int = 1, noun: str = "blocks") -> Attempt:
    """One value per block or repetition → their median and order-statistic interval."""
    trouble = problem(values)
    if trouble is not None:
        return Attempt(None, None, look, trouble)
    return Attempt(median(values), order_interval(values, required_confidence(look), noun), look)


def block_attempt(blocks: Sequence[Sequence[float]], look: int = 1) -> Attempt:
    """Device rates: the samples of each block, without warm-ups → median of the block medians."""
    trouble = next((reason for reason in map(problem, blocks) if reason is not None), None)
    if trouble is not None:
        return Attempt(None, None, look, trouble)
    return median_attempt([median(block) for block in blocks], look, "blocks")


def spread_attempt(gpus: Sequence[Sequence[Sequence[float]]], look: int = 1) -> Attempt:
    """How far the slowest GPU lags: (median − slowest) / median over the GPUs, 0 to 1.

    `gpus`: per GPU its blocks, per block its samples. One spread for each round of interleaved blocks, so that
    what changes for the whole node from round to round drops out. Void `uneven-blocks` where the GPUs have
    different numbers of blocks, `no-samples` for fewer than two GPUs, `not-a-number` for a median rate of 0.
    """
    rounds = [list(blocks) for blocks in zip(*gpus)]
    trouble = next((reason for blocks in gpus for reason in map(problem, blocks) if reason is not None), None)
    if trouble is not None or len(gpus) < 2:
        return Attempt(None, None, look, trouble or "no-samples")
    if any(len(blocks) != len(rounds) for blocks in gpus):
        return Attempt(None, None, look, "uneven-blocks")
    rates = [[median(block) for block in blocks] for blocks in rounds]
    if not all(median(rate) > 0 for rate in rates):
        return Attempt(None, None, look, "not-a-number")
    return median_attempt([1 - min(rate) / median(rate) for rate in rates], look, "rounds")


def percentile_attempt(repetitions: Sequence[float], look: int = 1) -> Attempt:
    """One percentile per repetition (never pooled: a pooled tail hides that one repetition was bad)."""
    return median_attempt(repetitions, look, "repetitions")


# ---------------------------------------------------------------- shares


def _log_pmf(count: int, trials: int, p: float) -> float:
    choose = math.lgamma(trials + 1) - math.lgamma(count + 1) - math.lgamma(trials - count + 1)
    return choose + count * math.log(p) + (trials - count) * math.log1p(-p)


def tail_at_most(count: int, trials: int, p: float) -> float:
    """P(Binomial(trials, p) <= count)."""
    if count >= trials or p <= 0:
        return 1.0
    if count < 0 or p >= 1:
        return 0.0
    if count > trials * p:
        return 1.0 - _lower_sum(trials - count - 1, trials, 1 - p)
    return _lower_sum(count, trials, p)


def _lower_sum(count: int, trials: int, p: float) -> float:
    # Below the mean the terms fall, so the sum can stop when they no longer matter.
    term = total = math.exp(_log_pmf(count, trials, p))
    for k in range(count, 0, -1):
        term *= k * (1 - p) / ((trials - k + 1) * p)
        total += term
        if term < total * 1e-17:
            break
    return min(total, 1.0)


def tail_at_least(count: int, trials: int, p: float) -> float:
    """P(Binomial(trials, p) >= count): the other tail, seen from the failures."""
    return tail_at_most(trials - count, trials, 1 - p)


def share_interval(count: int, trials: int, confidence: float = SHARE_CONFIDENCE) -> Interval:
    """Clopper–Pearson interval (0 to 1) of a share seen as `count` of `trials` independent trials."""
    if not 0 <= count <= trials or trials == 0:
        raise ValueError(f"{count} of {trials} is not a share")
    tail = (1 - confidence) / 2
    low = 0.0 if count == 0 else _bisect(lambda p: tail_at_least(count, trials, p) - tail)
    high = 1.0 if count == trials else _bisect(lambda p: tail - tail_at_most(count, trials, p))
    rule = f"exact binomial (Clopper–Pearson), {count} of {trials}, {_percent(confidence)}"
    return Interval(low, high, rule, confidence)


def _bisect(rising: Callable[[float], float], low: float = 0.0, high: float = 1.0) -> float:
    """Where a rising function passes 0, to the last bit that matters here."""
    for _ in range(100):
        middle = (low + high) / 2
        if rising(middle) < 0:
            low = middle
        else:
            high = middle
        if high - low <= 1e-14 * high:
            break
    return (low + high) / 2


def share_attempt(count: int, trials: int, look: int = 1) -> Attempt:
    """Share of independent trials, such as pings lost of pings sent. No trials: void `no-samples`."""
    if trials <= 0:
        return Attempt(None, None, look, "no-samples")
    if not 0 <= count <= trials:
        return Attempt(None, None, look, "negative" if min(count, trials) < 0 else "not-a-number")
    confidence = SHARE_CONFIDENCE if look <= 1 else SHARE_CONFIDENCE_DEEPER
    return Attempt(count / trials, share_interval(count, trials, confidence), look)


def trials_for(limit: float, op: Op = "<=", look: int = 1) -> int:
    """Number of independent trials that a clause on a share (0 to 1) needs; `op` is the clause's order.

    The smallest number at which (a) not one bad trial passes, and (b) a clear violation, four times the share
    of bad trials that the clause allows, fails with 95 %. Look 2 takes four times look 1's trials, so that a
    node with a few bad trials, but fewer than allowed, can pass. "Loss <= 0.5 %": 1,472 pings, then 5,888.
    ValueError for a limit that no number of trials can show (no bad trial at all, or nothing but).
    """
    allowed = 1 - limit if op == ">=" else limit
    if op == "==" or not 0 < allowed < 1:
        raise ValueError(f"a share {op} {limit} can't be shown by trials: judge it as a count")
    tail = (1 - SHARE_CONFIDENCE) / 2
    trials = math.ceil(math.log(tail) / math.log1p(-allowed))
    violation = min(CLEAR_VIOLATION * allowed, (1 + allowed) / 2)
    while tail_at_least(_failing_count(allowed, trials, tail), trials, violation) < CLEAR_VIOLATION_POWER:
        trials += max(1, trials // 50)
    return trials if look <= 1 else TRIALS_DEEPER_FACTOR * trials


def _failing_count(allowed: float, trials: int, tail: float) -> int:
    """The smallest number of bad trials whose Clopper–Pearson interval lies wholly above `allowed`."""
    count = int(allowed * trials)
    while tail_at_least(count, trials, allowed) >= tail:
        count += 1
    return count


def time_share_attempt(shares: Sequence[float], look: int = 1) -> Attempt:
    """Share of time (0 to 1), one per block of the same length → share of the whole time, t interval.

    Time throttled comes in bouts: trials would not be independent, and a median over blocks can be 0 while a
    third of the time was lost. The mean over equal blocks is the share of the whole; the blocks, longer than a
    bout, are what is independent. Such sums are skewed, and a low mean comes with a low spread, so mean ± t · s
    would accept too often: the interval is the gamma distribution's with the blocks' mean and variance, see
    `gamma_ends`. All blocks 0 stays exactly 0.
    """
    trouble = problem(shares) or ("not-a-number" if max(shares) > 1 + 1e-9 else None)
    if trouble is not None:
        return Attempt(None, None, look, trouble)
    count, needed = len(shares), TIME_BLOCKS if look <= 1 else TIME_BLOCKS_DEEPER
    mean = math.fsum(shares) / count
    if count < needed:
        rule = f"min–max of {count} blocks, {needed} needed"
        return Attempt(mean, Interval(min(shares), max(shares), rule, 0.0), look)
    variance = math.fsum((share - mean) ** 2 for share in shares) / (count - 1)
    low, high = gamma_ends(mean, variance / count, t_quantile((1 + TIME_CONFIDENCE) / 2, count - 1))
    rule = f"gamma interval of {count} blocks, {_percent(TIME_CONFIDENCE)}"
    return Attempt(mean, Interval(low, max(mean, min(1.0, high)), rule, TIME_CONFIDENCE), look)


def gamma_ends(mean: float, variance: float, t: float) -> tuple[float, float]:
    """Ends for a mean made of rare events: it weighs as many of them as `events` = mean² / variance.

    The Poisson limits of that count in the Wilson–Hilferty form (Byar's), with Student's t for the normal
    quantile because the variance was estimated. For many events this is mean ± t · √variance.
    """
    if variance <= 0:
        return mean, mean
    events = mean * mean / variance
    more = events + 1
    low = max(0.0, 1 - 1 / (9 * events) - t / (3 * math.sqrt(events))) ** 3
    high = more / events * (1 - 1 / (9 * more) + t / (3 * math.sqrt(more))) ** 3
    return mean * min(low, 1.0), mean * high


@lru_cache(maxsize=256)
def t_quantile(probability: float, degrees: int) -> float:
    """Student's t: the value not exceeded with `probability` (0.5 to 1), for whole degrees of freedom."""
    return _bisect(lambda t: t_within(t, degrees) - (2 * probability - 1), 0.0, 1e4)


def t_within(t: float, degrees: int) -> float:
    """P(|T| <= t), by the finite sums for whole degrees of freedom (Abramowitz and Stegun 26.7.3, 26.7.4)."""
    angle = math.atan(t / math.sqrt(degrees))
    odd = degrees % 2
    term, total = (math.cos(angle) if odd else 1.0), 0.0
    for k in range(2 if odd else 1, degrees, 2):
        total += term
        term *= k / (k + 1) * math.cos(angle) ** 2
    if odd:
        return 2 / math.pi * (angle + math.sin(angle) * total)
    return math.sin(angle) * total


# ---------------------------------------------------------------- disk and network rates


@dataclass(frozen=True)
class Repetition:
    """One timed transfer. `series` holds bytes per second for each second of it; empty if it was not logged."""

    transferred: float
    seconds: float
    series: tuple[float, ...] = ()


def rate_attempt(repetitions: Sequence[Repetition], look: int = 1) -> Attempt:
    """Disk and network rates: the judged rate (bytes/s) of each repetition → median and interval over them."""
    trouble = problem([number for r in repetitions for number in (r.transferred, r.seconds, *r.series)])
    if trouble is None and min(r.seconds for r in repetitions) <= 0:
        trouble = "not-a-number"
    if trouble is not None:
        return Attempt(None, None, look, trouble)
    return median_attempt(judged_rates(repetitions), look, "repetitions")


def judged_rates(repetitions: Sequence[Repetition]) -> tuple[float, ...]:
    """The rate (bytes/s) of each repetition that the clause is held against.

    Bytes over seconds, which counts every stall. But where a device starts on a cache or on credit and then
    falls for good, a mean over both only says how long one chose to look. So where a series shows a lasting
    fall, the level after it is judged as well: the repetition's rate is the smaller of the two. A fall within a
    repetition counts for that one; a fall that shows only when the repetitions are laid end to end (each too
    short to show it) counts for all. A rhythm of fast and slow stays in bytes over seconds, which is right for it.
    """
    own = tuple(min(r.transferred / r.seconds, _level_after_fall(r.series)) for r in repetitions)
    if any(lasting_fall(r.series) for r in repetitions):
        return own
    ceiling = _level_after_fall([rate for r in repetitions for rate in r.series])
    return tuple(min(rate, ceiling) for rate in own)


def _level_after_fall(series: Sequence[float]) -> float:
    fall = lasting_fall(series)
    return math.inf if fall is None else fall.after


# ---------------------------------------------------------------- series: steps, sags, policers

# A level must last this long to be one: longer than a dip, shorter than any cache or credit worth naming.
LEVEL_S = 10
# A step changes the rate by at least a fifth of the higher level ...
STEP_RATIO = 0.2
# ... and by five standard errors of the difference between the levels' medians. The error of a median is
# 1.25 sd / √n, doubled because neighbouring seconds are alike: √((1 + 0.6) / (1 − 0.6)) = 2.
STEP_ERRORS = 5.0
MEDIAN_ERROR = 1.2533 * 2.0
SUSTAINED_PART_S = 30


@dataclass(frozen=True)
class Step:
    """A change of level `at_s` seconds after the start; `before` and `after` are the medians of the levels."""

    at_s: int
    before: float
    after: float


def steps(series: Sequence[float]) -> tuple[Step, ...]:
    """Changes of level in a per-second series (any unit), in order; () for a steady one, however noisy.

    Where the medians of the ten seconds before and after a moment differ by a fifth, a step is suspected; it is
    placed where two levels fit best; it stays if the whole levels on its two sides differ by a fifth and by five
    standard errors. Medians make dips of a few seconds invisible. A level shorter than ten seconds, or a slow
    slope, is no step (see `sustained_share`). ValueError for NaN, infinite or negative numbers.
    """
    values = list(series)
    if len(values) < 2 * LEVEL_S:
        return ()
    _checked(values)
    cuts = _suspects(values)
    weakest = _weakest(values, cuts)
    while weakest is not None:
        cuts.remove(weakest)
        weakest = _weakest(values, cuts)
    edges = [0, *cuts, len(values)]
    levels = [median(values[start:end]) for start, end in zip(edges, edges[1:])]
    return tuple(Step(cut, before, after) for cut, before, after in zip(cuts, levels, levels[1:]))


def _contrast(before: float, after: float) -> float:
    higher = max(before, after)
    return abs(before - after) / higher if higher > 0 else 0.0


def _suspects(values: list[float]) -> list[int]:
    moments = range(LEVEL_S, len(values) - LEVEL_S + 1)
    contrasts = {at: _contrast(median(values[at - LEVEL_S : at]), median(values[at : at + LEVEL_S])) for at in moments}
    cuts: list[int] = []
    for at in sorted(moments, key=lambda at: -contrasts[at]):
        if contrasts[at] < STEP_RATIO:
            break
        place = _placed(values, at)
        if all(abs(place - cut) >= LEVEL_S for cut in cuts):
            cuts.append(place)
    return sorted(cuts)


def _placed(values: list[float], near: int) -> int:
    """The cut within ten seconds of `near` where two constant levels fit best (least absolute error)."""
    start, end = near - LEVEL_S, near + LEVEL_S
    before, after = median(values[start:near]), median(values[near:end])
    cost = best_cost = 0.0
    best = start
    for at in range(start, end):
        cost += abs(values[at] - before) - abs(values[at] - after)
        if cost < best_cost:
            best, best_cost = at + 1, cost
    return min(max(best, LEVEL_S), len(values) - LEVEL_S)


def _weakest(values: list[float], cuts: list[int]) -> Optional[int]:
    """Of the cuts that are no steps after all, the one whose levels differ least."""
    edges = [0, *cuts, len(values)]
    failing = [
        (_contrast(median(values[start:cut]), median(values[cut:end])), cut)
        for start, cut, end in zip(edges, edges[1:], edges[2:])
        if not _is_step(values[start:cut], values[cut:end])
    ]
    return min(failing)[1] if failing else None


def _is_step(left: list[float], right: list[float]) -> bool:
    before, after = median(left), median(right)
    residuals = [abs(value - before) for value in left] + [abs(value - after) for value in right]
    sd = 1.4826 * median(residuals)  # the median absolute deviation of a normal distribution is sd / 1.4826
    error = MEDIAN_ERROR * sd * math.sqrt(1 / len(left) + 1 / len(right))
    return _contrast(before, after) >= STEP_RATIO and abs(before - after) > STEP_ERRORS * error


def lasting_fall(series: Sequence[float]) -> Optional[Step]:
    """From the first level to the last, where every step goes down: cache or credit used up, throttling.

    `at_s` is the last step. None for a steady series, and for one whose falls recover.
    """
    found = steps(series)
    if not found or any(step.after >= step.before for step in found):
        return None
    return Step(found[-1].at_s, found[0].before, found[-1].after)


def sustained_share(series: Sequence[float]) -> float:
    """Mean rate of the last 30 s over that of the first 30 s (thirds of the series where it is under 90 s).

    1 is steady, 0.33 a third of the first speed. ValueError for under 6 s, a first part of 0, bad numbers.
    """
    _checked(series)
    part = min(SUSTAINED_PART_S, len(series) // 3)
    if part < 2:
        raise ValueError("no-samples")
    first = math.fsum(series[:part])
    if first <= 0:
        raise ValueError("nothing was transferred in the first part")
    return math.fsum(series[-part:]) / first


MBIT_PER_S = {
    "bit/s": 1e-6,
    "kbit/s": 1e-3,
    "Mbit/s": 1.0,
    "Gbit/s": 1e3,
    "B/s": 8e-6,
    "kB/s": 8e-3,
    "MB/s": 8.0,
    "GB/s": 8e3,
}
# Rates as they are sold: 10, 15, 20 ... 80, times powers of ten.
ROUND_RATES = (10, 15, 20, 25, 30, 40, 50, 60, 80)
# A limit counted on the wire (headers included) leaves TCP 94 to 98 % of it; one counted on payload leaves all.
PAYLOAD_SHARES = ((0.94, 0.985), (0.995, 1.015))
FLAT_WITHIN = 0.02
FLAT_SHARE = 0.9


@dataclass(frozen=True)
class Policer:
    """A flat line (`level_mbit`) at or just under a round number (`limit_mbit`), both in Mbit/s."""

    limit_mbit: float
    level_mbit: float


def policer(series: Sequence[float], unit: str) -> Optional[Policer]:
    """A shaper's flat line: nine seconds in ten within 2 % of the median, and the median at a round Mbit/s.

    A hint for the report, never a verdict: a link's own line rate is as flat and as round, so the caller names
    it a policer only below the link's speed. None for fewer than ten seconds or an idle series. ValueError for
    an unknown unit or bad numbers.
    """
    if unit not in MBIT_PER_S:
        raise ValueError(f"unknown unit of a rate: {unit}")
    if len(series) < LEVEL_S:
        return None
    middle = median(series)
    flat = sum(abs(value - middle) <= FLAT_WITHIN * middle for value in series)
    if middle <= 0 or flat < FLAT_SHARE * len(series):
        return None
    level = middle * MBIT_PER_S[unit]
    decade = 10.0 ** (math.floor(math.log10(level)) - 1)
    for limit in (rate * scale for scale in (decade, 10 * decade) for rate in ROUND_RATES):
        if any(low <= level / limit <= high for low, high in PAYLOAD_SHARES):
            return Policer(limit, level)
    return None


# ---------------------------------------------------------------- decide

_Side = Literal["good", "bad", "across"]


def decide(op: Op, limit: float, attempts: Sequence[Attempt]) -> Decision:
    """From all attempts at one number, in the order they were made, to a decision. Pure; nothing is picked.

    `limit` is in the unit of the values, tolerance already applied; the limit itself is on the good side.
    P: the interval lies wholly on the good side. F: wholly on the bad side. S: it straddles. 1, 2: the look.
    V: set aside, that is void, or not a finite number >= 0, or an interval whose coverage is below what its
    look requires (`too-few-samples`). An attempt that is set aside stays listed and decides nothing.

    | row | attempts that count, in order              | outcome      | reason code           | again  |
    |-----|--------------------------------------------|--------------|-----------------------|--------|
    | 1   | none, and none made                        | inconclusive | no-measurement        | –      |
    | 2   | none, only V                               | inconclusive | the last V's          | –      |
    | 3   | any P and any F                            | inconclusive | unstable              | –      |
    | 4   | an unsettled S, no look 2 yet (S1, F S1)   | inconclusive | too-close             | deeper |
    | 5   | an unsettled S, look 2 made (S1 S2, F S2)  | inconclusive | too-close             | –      |
    | 6   | one F, all S settled (F, S1 F2)            | inconclusive | fail-not-repeated     | repeat |
    | 7   | more F, all S settled (FF, S1 F2 F,        | fail         | below-limit, above-   | –      |
    |     | F S1 F2)                                   |              | limit, not-equal      |        |
    | 8   | only P, all S settled (P, PP, S1 P2)       | pass         | kept                  | –      |

    The first row that fits decides. A straddle is settled only by a later attempt at greater depth that does
    not straddle: measuring again at the same depth until it passes is picking, so S1 P1 still asks for the
    deeper look, and S2 is final. A repeat is made after settling, at the depth of the fail. An attempt that is
    set aside has used its turn: straight after one, `again` is None (the caller may measure again all the same;
    the table then judges the longer list). No course of outcomes asks for more than three attempts.
    ValueError for an unknown `op`; a limit that is not finite gives `not-a-number`.
    """
    if op not in (">=", "<=", "=="):
        raise ValueError(f"unknown order {op!r}")
    if not math.isfinite(limit):
        return Decision("inconclusive", "not-a-number", None, None, None)
    reasons = [set_aside(attempt) for attempt in attempts]
    counting = [attempt for attempt, reason in zip(attempts, reasons) if reason is None]
    if not counting:
        return Decision("inconclusive", (reasons and reasons[-1]) or "no-measurement", None, None, None)
    return _judge(op, limit, counting, stalled=reasons[-1] is not None)


def _judge(op: Op, limit: float, counting: list[Attempt], stalled: bool) -> Decision:
    sides = [_side(op, limit, attempt.interval) for attempt in counting if attempt.interval is not None]
    last = dict(zip(sides, counting))
    if "good" in last and "bad" in last:
        return _decision("inconclusive", "unstable", counting[-1])
    if _unsettled(sides, counting):
        final = stalled or max(attempt.look for attempt in counting) > 1
        return _decision("inconclusive", "too-close", last["across"], None if final else "deeper")
    if sides.count("bad") == 1:
        return _decision("inconclusive", "fail-not-repeated", last["bad"], None if stalled else "repeat")
    if "bad" in last:
        code = {">=": "below-limit", "<=": "above-limit", "==": "not-equal"}[op]
        return _decision("fail", code, last["bad"])
    return _decision("pass", "kept", last["good"])


def _decision(outcome: Outcome, code: str, attempt: Attempt, again: Optional[Again] = None) -> Decision:
    return Decision(outcome, code, attempt.value, attempt.interval, again)


def set_aside(attempt: Attempt) -> Optional[str]:
    """The reason code why this attempt decides nothing, or None if it counts."""
    if attempt.void is not None:
        return attempt.void or "void"
    if attempt.value is None or attempt.interval is None:
        return "no-samples"
    low, high = attempt.interval.low, attempt.interval.high
    trouble = problem([attempt.value, low, high])
    if trouble is not None:
        return trouble
    if not low <= attempt.value <= high:
        return "not-a-number"
    return None if attempt.interval.coverage >= required_confidence(attempt.look) else "too-few-samples"


def _side(op: Op, limit: float, interval: Interval) -> _Side:
    low, high = (limit if math.isclose(end, limit, rel_tol=SAME) else end for end in (interval.low, interval.high))
    if op == "==":
        return "good" if low == high == limit else "across" if low <= limit <= high else "bad"
    if op == ">=":
        return "good" if low >= limit else "bad" if high < limit else "across"
    return "good" if high <= limit else "bad" if low > limit else "across"


def _unsettled(sides: list[_Side], counting: list[Attempt]) -> bool:
    """Whether a straddle has no later attempt at greater depth that came down on one side."""
    for place, attempt in enumerate(counting):
        later = zip(sides[place + 1 :], counting[place + 1 :])
        settled = any(side != "across" and other.look > attempt.look for side, other in later)
        if sides[place] == "across" and not settled:
            return True
    return False
