"""Simulation of 8-GPU nodes: healthy ones rejected, slow cards found, by the limit of each card and by `spread`.

    python -m tests.perf.simulate_nodes [--seeds N]

Noise, all relative: cards of one node range over 5 % (uniform), nodes differ by sd 1.5 %, each card's level by
sd 1 % from attempt to attempt; a block is the median of 20 samples of sd 1.5 % with autocorrelation 0.6, of
which 0.5 % are outliers at half the rate. The judged limit is 0.95 × (1 − 5 % tolerance) of the typical rate.
With more launches an attempt's blocks come from as many launches, each with a level of its own.
Node k of every row uses `random.Random(f"node:{slow}:{k}")`. Attempts are shared: the limit of every card and
the spread see the same first attempt.
"""

from __future__ import annotations

import argparse
import functools
import math
import random
import time
from collections.abc import Sequence

from agent import stats
from agent.stats import Attempt, Decision, Op
from tests.perf.simulate_stats import SEEDS, series

GPUS = 8
CARD_RANGE = 0.05
NODE_SD = 0.015
RUN_SD = 0.01
SAMPLE_SD = 0.015
OUTLIERS = 0.005
LIMIT = 0.95 * 0.95
SPREADS = (0.035, 0.04, 0.045, 0.05, 0.06, 0.10)
SLOW = (0.0, 0.08, 0.12)
DEPTHS = (1, 2, 6)  # launches of an attempt; 1 is what a run does
CHOSEN = 0.05  # few false accusations before all
REJECTED_MOST, OPEN_MOST = 0.001, 0.02  # of healthy nodes
FOUND_LEAST = {0.12: 0.99, 0.08: 0.95}

Shares = dict[float, tuple[float, float]]


@functools.lru_cache
def block_pool() -> tuple[float, ...]:
    """20,000 block medians over their level."""
    rng = random.Random("block pool")
    pool = []
    for _ in range(20_000):
        samples = [x * (0.5 if rng.random() < OUTLIERS else 1.0) for x in series(rng, 1.0, SAMPLE_SD, 20)]
        pool.append(stats.median(samples))
    return tuple(pool)


class Node:
    """One node with its cards' true levels; attempts are made when asked for and kept."""

    def __init__(self, seed: int, slow: float, launches: int = 1) -> None:
        self.launches = launches
        self.rng = random.Random(f"node:{slow}:{seed}")
        whole = 1 + self.rng.gauss(0, NODE_SD)
        self.levels = [whole * (1 + CARD_RANGE * (self.rng.random() - 0.5)) for _ in range(GPUS)]
        self.levels[0] *= 1 - slow
        self.made: dict[tuple[int, int], list[list[list[float]]]] = {}

    def blocks(self, number: int, look: int) -> list[list[list[float]]]:
        """Attempt `number` at `look`: per GPU its blocks, one median each."""
        if (number, look) not in self.made:
            count = stats.BLOCKS if look == 1 else stats.BLOCKS_DEEPER
            self.made[number, look] = [self._card(level, count) for level in self.levels]
        return self.made[number, look]

    def _card(self, level: float, count: int) -> list[list[float]]:
        runs = [level * (1 + self.rng.gauss(0, RUN_SD)) for _ in range(self.launches)]
        return [[runs[i % self.launches] * self.rng.choice(block_pool())] for i in range(count)]

    def judged(self, op: Op, limit: float, gpu: int) -> Decision:
        """One card against its limit, or with gpu −1 the spread, followed to its end."""
        attempts: list[Attempt] = []
        look = 1
        while True:
            blocks = self.blocks(len(attempts), look)
            attempts.append(stats.spread_attempt(blocks, look) if gpu < 0 else stats.block_attempt(blocks[gpu], look))
            decision = stats.decide(op, limit, attempts)
            if decision.again is None:
                return decision
            look = 2 if decision.again == "deeper" else look


def outcome(decisions: Sequence[Decision]) -> str:
    """The fold of a verdict: any fail, else any inconclusive, else pass."""
    outcomes = {decision.outcome for decision in decisions}
    return next(name for name in ("fail", "inconclusive", "pass") if name in outcomes)


def shares(slow: float, seeds: int, launches: int = 1) -> Shares:
    """For each limit on the spread (infinite: none asked): shares of nodes that fail, and that stay open."""
    counts = {limit: [0, 0] for limit in (math.inf, *SPREADS)}
    for seed in range(seeds):
        node = Node(seed, slow, launches)
        cards = [node.judged(">=", LIMIT, gpu) for gpu in range(GPUS)]
        for limit, count in counts.items():
            both = cards if limit == math.inf else [*cards, node.judged("<=", limit, -1)]
            name = outcome(both)
            count[0] += name == "fail"
            count[1] += name == "inconclusive"
    return {limit: (fails / seeds, still_open / seeds) for limit, (fails, still_open) in counts.items()}


def main() -> int:
    """Print the curve over the limit on the spread."""
    parser = argparse.ArgumentParser(description="Simulate 8-GPU nodes.")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="nodes in each row")
    seeds = parser.parse_args().seeds
    start = time.perf_counter()
    print(f"seeds 0 to {seeds - 1}; each card >= {LIMIT:.4f} of typical; per cent of nodes: failed, open")
    for launches in DEPTHS:
        rows = {slow: shares(slow, seeds, launches) for slow in SLOW}
        print(f"  {f'{launches} launches: slower by':<24}" + "".join(f"{name:>17}" for name in _names()))
        for slow, row in rows.items():
            cells = "".join(f"{100 * f:9.2f}{100 * o:8.2f}" for f, o in row.values())
            print(f"  {f'{100 * slow:.0f} %':<24}{cells}")
        for limit in (0.045, CHOSEN):
            print(f"  spread <= {100 * limit:g} %: " + "; ".join(targets(rows, limit)))
    print(f"chosen: spread <= {100 * CHOSEN:g} % with one launch an attempt, for few false accusations")
    print(f"{time.perf_counter() - start:.0f} s")
    return 0


def targets(rows: dict[float, Shares], limit: float) -> list[str]:
    """The figures of a limit on the spread against what they should be."""
    rejected, still_open = rows[0.0][limit]
    said = [
        _against("healthy rejected", rejected, REJECTED_MOST, most=True),
        _against("healthy open", still_open, OPEN_MOST, most=True),
    ]
    for slow, least in FOUND_LEAST.items():
        found = rows[slow][limit][0]
        said.append(_against(f"{100 * slow:.0f} % slower found", found, least, most=False))
    return said


def _against(name: str, share: float, target: float, *, most: bool) -> str:
    met = share <= target if most else share >= target
    order = "<=" if most else ">="
    return f"{name} {100 * share:.2f} % ({order} {100 * target:g} %: {'met' if met else 'NOT MET'})"


def _names() -> list[str]:
    return ["no spread", *(f"spread <= {100 * limit:g} %" for limit in SPREADS)]


if __name__ == "__main__":
    raise SystemExit(main())
