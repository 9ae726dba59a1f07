"""Simulation of the statistics: how often a healthy node is rejected and a bad one accepted.

    python -m tests.perf.simulate_stats [--seeds N]

Every node is a whole course of attempts: `decide` says what to measure next and gets it, until it is final.
Noise: neighbouring samples alike (AR(1), 0.6); an offset, sd 2 %, that all of one attempt shares and that is
drawn anew for the next attempt. Node k of every row uses `random.Random(f"{row}:{k}")`, so each figure can be
had again. "healthy" lies 5 % on the good side of its limit, "bad" 8 % on the other.
"""

from __future__ import annotations

import argparse
import functools
import math
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Callable

from agent import stats
from agent.stats import Attempt, Decision, Op, Repetition

AUTOCORRELATION = 0.6
OFFSET_SD = 0.02
HEALTHY = 0.05
BAD = 0.08
TARGET = 0.001
SEEDS = 10_000

# (source of noise, true level over the limit, factor of this attempt, look) → attempt
Measure = Callable[[random.Random, float, float, int], Attempt]


@dataclass(frozen=True)
class Kind:
    """One kind of number: `measure` makes an attempt in units of the limit (or on `limit` itself)."""

    name: str
    op: Op
    limit: float
    measure: Measure


def normals(rng: random.Random, count: int) -> Iterator[float]:
    """AR(1), mean 0, sd 1."""
    kick = math.sqrt(1 - AUTOCORRELATION**2)
    state = rng.gauss(0, 1)
    for _ in range(count):
        yield state
        state = AUTOCORRELATION * state + kick * rng.gauss(0, 1)


def series(rng: random.Random, level: float, sd: float, count: int) -> list[float]:
    """Noise of relative sd `sd` around `level`, never negative."""
    return [max(0.0, level * (1 + sd * state)) for state in normals(rng, count)]


# ---------------------------------------------------------------- the kinds


def device(rng: random.Random, level: float, factor: float, look: int) -> Attempt:
    """GEMM and the like: blocks of 20 samples, sd 3 %."""
    count = stats.BLOCKS if look == 1 else stats.BLOCKS_DEEPER
    return stats.block_attempt([series(rng, level * factor, 0.03, 20) for _ in range(count)], look)


def transfer(rng: random.Random, level: float, factor: float, look: int) -> Attempt:
    """Disk and network: repetitions of 10 s, sd 5 % from second to second, a one-second dip in each third."""
    count = stats.REPETITIONS if look == 1 else stats.REPETITIONS_DEEPER
    return stats.rate_attempt([_repetition(rng, level * factor) for _ in range(count)], look)


def _repetition(rng: random.Random, level: float) -> Repetition:
    values = series(rng, level, 0.05, 10)
    if rng.random() < 1 / 3:
        values[rng.randrange(10)] *= 0.8
    return Repetition(math.fsum(values), float(len(values)), tuple(values))


LIMIT_LOSS = 0.005


def loss(rng: random.Random, level: float, factor: float, look: int) -> Attempt:
    """Ping loss against 0.5 %: independent trials, as many as the clause needs."""
    trials = stats.trials_for(LIMIT_LOSS, "<=", look)
    return _share(_lost(rng, trials, LIMIT_LOSS * level * factor), trials, look)


def _lost(rng: random.Random, trials: int, p: float) -> int:
    count, place = 0, 0
    while True:
        place += 1 + int(math.log(1.0 - rng.random()) / math.log1p(-p))
        if place > trials:
            return count
        count += 1


_SHARES: dict[tuple[int, int, int], Attempt] = {}


def _share(count: int, trials: int, look: int) -> Attempt:
    key = (count, trials, look)
    if key not in _SHARES:
        _SHARES[key] = stats.share_attempt(count, trials, look)
    return _SHARES[key]


LIMIT_THROTTLED = 0.01
# At 10 samples a second, an on-off series with autocorrelation 0.6 is on for 0.25 s at a time.
BOUT_S = 0.25


def throttled(bout_s: float = BOUT_S) -> Measure:
    """Share of time throttled against 1 %: 12 blocks of 50 s, bouts of `bout_s` on average."""

    def measure(rng: random.Random, level: float, factor: float, look: int) -> Attempt:
        count = stats.TIME_BLOCKS if look == 1 else stats.TIME_BLOCKS_DEEPER
        share = LIMIT_THROTTLED * level * factor
        return stats.time_share_attempt([_bouts(rng, share, 50.0, bout_s) for _ in range(count)], look)

    return measure


def _bouts(rng: random.Random, share: float, seconds: float, bout: float) -> float:
    gap = bout * (1 - share) / share
    at, bad = rng.expovariate(1 / gap), 0.0
    while at < seconds:
        length = rng.expovariate(1 / bout)
        bad += min(length, seconds - at)
        at += length + rng.expovariate(1 / gap)
    return bad / seconds


def latency(rng: random.Random, level: float, factor: float, look: int) -> Attempt:
    """99th percentile of latency, one per repetition of 1,000 operations."""
    count = stats.REPETITIONS if look == 1 else stats.REPETITIONS_DEEPER
    return stats.percentile_attempt([level * factor * rng.choice(latency_pool()) for _ in range(count)], look)


@functools.lru_cache
def latency_pool() -> tuple[float, ...]:
    """1,000 99th percentiles, each of 1,000 autocorrelated log-normal latencies, over their median."""
    rng = random.Random("latency pool")
    pool = [stats.percentile([math.exp(0.4 * x) for x in normals(rng, 1_000)], 0.99) for _ in range(1_000)]
    middle = stats.median(pool)
    return tuple(value / middle for value in pool)


KINDS = (
    Kind("device rate, 6 then 14 blocks", ">=", 1.0, device),
    Kind("disk or network rate, 6 then 11 x 10 s", ">=", 1.0, transfer),
    Kind("share of trials, loss <= 0.5 %", "<=", LIMIT_LOSS, loss),
    Kind("share of time, throttled <= 1 %, 12 then 24 blocks", "<=", LIMIT_THROTTLED, throttled()),
    Kind("percentile, 6 then 11 repetitions", "<=", 1.0, latency),
)


# ---------------------------------------------------------------- the courses


@dataclass(frozen=True)
class Tally:
    """How many of `nodes` ended how, and how many attempts they took together."""

    nodes: int
    passed: int
    failed: int
    attempts: int

    @property
    def inconclusive(self) -> int:
        return self.nodes - self.passed - self.failed


def course(kind: Kind, rng: random.Random, level: float, shared: float = 0.0) -> tuple[Decision, int]:
    """One node, measured until `decide` asks for nothing more. `shared`: the part of the offset's variance
    that all attempts have in common (0: each attempt draws its own)."""
    common = rng.gauss(0, math.sqrt(shared))
    attempts: list[Attempt] = []
    look = 1
    while True:
        factor = 1 + OFFSET_SD * (common + rng.gauss(0, math.sqrt(1 - shared)))
        attempts.append(kind.measure(rng, level, factor, look))
        decision = stats.decide(kind.op, kind.limit, attempts)
        if decision.again is None:
            return decision, len(attempts)
        look = 2 if decision.again == "deeper" else look


def tally(kind: Kind, level: float, seeds: int, shared: float = 0.0) -> Tally:
    """Nodes 0 to seeds − 1 at `level` (in units of the limit)."""
    outcomes: Counter[str] = Counter()
    made = 0
    for seed in range(seeds):
        rng = random.Random(f"{kind.name}:{level}:{seed}")
        decision, attempts = course(kind, rng, level, shared)
        outcomes[decision.outcome] += 1
        made += attempts
    return Tally(seeds, outcomes["pass"], outcomes["fail"], made)


def level_at(kind: Kind, margin: float) -> float:
    """Level over limit of a node that is `margin` on the good side."""
    return round(1 + margin if kind.op == ">=" else 1 - margin, 6)


# ---------------------------------------------------------------- disks that fall


def falling_disk(seconds: int, refilled: bool) -> Kind:
    """1.5 x the limit for 35 s of writing, then a third of that: half the limit. `refilled`: the cache recovers
    between the repetitions, of `seconds` each; otherwise the fall comes once."""

    def measure(rng: random.Random, level: float, factor: float, look: int) -> Attempt:
        count = stats.REPETITIONS if look == 1 else stats.REPETITIONS_DEEPER
        repetitions, written = [], 0
        for _ in range(count):
            noise = series(rng, level * factor, 0.05, seconds)
            values = tuple(x * (1.5 if written + i < 35 else 0.5) for i, x in enumerate(noise))
            repetitions.append(Repetition(math.fsum(values), float(seconds), values))
            written = 0 if refilled else written + seconds
        return stats.rate_attempt(repetitions, look)

    return Kind(f"{seconds} s repetitions, {'a fall in each' if refilled else 'one fall'}", ">=", 1.0, measure)


FALLING_DISKS = tuple(falling_disk(*how) for how in ((10, False), (20, False), (60, True), (60, False)))


def steps_seen(seeds: int, sd: float, fall_at: int, after: float, length: int = 300) -> Counter[int]:
    """How many steps are found in series with one-second dips to 0.3, falling to `after` at `fall_at` s."""
    found: Counter[int] = Counter()
    for seed in range(seeds):
        rng = random.Random(f"steps:{sd}:{fall_at}:{seed}")
        values = series(rng, 1.0, sd, length)
        values = [x * (after if i >= fall_at else 1.0) for i, x in enumerate(values)]
        for _ in range(length // 30):
            values[rng.randrange(length)] *= 0.3
        found[len(stats.steps(values))] += 1
    return found


# ---------------------------------------------------------------- the tables


def line(label: str, result: Tally) -> str:
    """One row: shares in per cent."""
    shares = [100 * n / result.nodes for n in (result.passed, result.failed, result.inconclusive)]
    cells = " ".join(f"{share:9.2f}" for share in shares)
    return f"  {label:<52} {cells} {result.attempts / result.nodes:9.2f}"


def print_targets(seeds: int) -> bool:
    """The table of the targets; True if all are met."""
    met = True
    for kind in KINDS:
        print(f"{kind.name}")
        healthy, bad = tally(kind, level_at(kind, HEALTHY), seeds), tally(kind, level_at(kind, -BAD), seeds)
        kept = healthy.failed <= TARGET * seeds and bad.passed <= TARGET * seeds
        met = met and kept
        print(line("5 % on the good side (reject <= 0.10)", healthy))
        print(line("8 % on the bad side (accept <= 0.10)", bad) + ("" if kept else "  TARGET MISSED"))
    return met


def print_curves(seeds: int) -> None:
    """Accuracy against the distance from the limit and, for time, against the length of a bout."""
    for kind in KINDS:
        print(f"{kind.name}: by distance from the limit, {seeds} nodes each")
        far = (0.02, 0.1) if kind.measure in (device, transfer, latency) else (0.5, 0.9)
        for margin in (-3 * far[1], -far[1], -far[0], 0.0, far[0], far[1]):
            print(line(f"{100 * margin:+.0f} %", tally(kind, level_at(kind, margin), seeds)))
    print(f"share of time, by the mean length of a bout, {seeds} nodes each")
    for bout in (0.1, 0.25, 0.5, 2.0):
        kind = Kind(f"bouts of {bout}", "<=", LIMIT_THROTTLED, throttled(bout))
        print(line(f"{bout} s, 8 % on the bad side", tally(kind, 1 + BAD, seeds)))
        print(line(f"{bout} s, a tenth of the limit", tally(kind, 0.1, seeds)))
        print(line(f"{bout} s, three times the limit", tally(kind, 3.0, seeds)))


def print_shared_offset(seeds: int) -> None:
    """What an offset does that outlives the attempt: then the node is what it measures, and a repeat agrees."""
    print(f"device rate, part of the 2 % offset shared by all attempts of a node, {seeds} nodes each")
    for shared in (0.0, 0.5, 1.0):
        print(line(f"{shared:.1f}, 5 % above", tally(KINDS[0], 1 + HEALTHY, seeds, shared)))
        print(line(f"{shared:.1f}, 8 % below", tally(KINDS[0], 1 - BAD, seeds, shared)))


def print_series(seeds: int) -> None:
    """Disks that fall, and the detector's false and true finds."""
    print(f"a disk at 1.5 x its limit for 35 s, then at half of it, {seeds} nodes each")
    for kind in FALLING_DISKS:
        print(line(kind.name, tally(kind, 1.0, seeds)))
    print(f"steps found in 300 s with ten one-second dips: {{steps: series}}, {seeds} series each")
    cases = ((0.03, 300, 1.0), (0.10, 300, 1.0), (0.03, 35, 1 / 3), (0.10, 35, 1 / 3), (0.03, 150, 0.7))
    for sd, at, after in cases:
        found = steps_seen(seeds, sd, at, after)
        what = "steady" if at == 300 else f"to {after:.2f} at {at} s"
        print(f"  sd {100 * sd:.0f} %, {what:<20}", dict(sorted(found.items())))


def main() -> int:
    """Print the tables; 1 if a target is missed."""
    parser = argparse.ArgumentParser(description="Simulate the statistics of the verdict.")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="nodes in each row of the targets")
    seeds = parser.parse_args().seeds
    start = time.perf_counter()
    head = " ".join(f"{name:>9}" for name in ("accept %", "reject %", "open %", "attempts"))
    print(f"seeds 0 to {seeds - 1} in each row\n  {'':<52} {head}")
    met = print_targets(seeds)
    print_curves(max(1, seeds // 10))
    print_shared_offset(seeds)
    print_series(max(1, seeds // 50))
    print(f"{'all targets met' if met else 'TARGETS MISSED'}, {time.perf_counter() - start:.0f} s")
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
