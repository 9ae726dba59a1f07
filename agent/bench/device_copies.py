"""What the steps that copy share: how hard to look, blocks of a timing, an attempt with its physical bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

from agent import stats
from agent.bench.device_memory import Answer
from agent.bench.step import Look
from agent.bench.telemetry import conditions
from agent.model import Attempt, Block, Statistic, Taken, Void
from agent.reading import Missing
from agent.text import Text, msg
from agent.tools.device_memory import Timing

UNIT = "GB/s"
WAYS = ("h2d", "d2h")
STATISTIC: Statistic = "median of block medians"
WRONG = "wrong-result"
START_S = 3.0
HANG_S = 60.0  # until a call of the driver is given up
SHORT = msg("stopped by its own time limit before all blocks were done")
# Gbit/s of data a lane carries, by generation: GT/s less 8b/10b, 128b/130b, or FLITs of 242 in 256 bytes.
LANES = {
    1: 2.5 * 8 / 10,
    2: 5 * 8 / 10,
    3: 8 * 128 / 130,
    4: 16 * 128 / 130,
    5: 32 * 128 / 130,
    6: 64 * 242 / 256,
    7: 128 * 242 / 256,
}


def line_rate(generation: int, width: int) -> float:
    """GB/s one way of a PCIe link without any overhead of packets: Gen5 x16 is 63.0. KeyError beyond Gen7."""
    return LANES[generation] * width / 8


@dataclass(frozen=True)
class Effort:
    """How hard to look: see ``benchmarks/device_memory.py``. ``handling_s``: filling and comparing, a block."""

    blocks: int
    samples: int
    sample_s: float
    warmup_s: float
    pause_s: float
    together_s: float
    size: int
    handling_s: float

    @property
    def timed_s(self) -> float:
        return self.warmup_s + self.samples * self.sample_s

    def rounds(self, count: int, block_s: float) -> float:
        """Seconds of all blocks of so many; those of the others count as pause."""
        one_round = max(count * block_s, self.pause_s + block_s)
        return (self.blocks - 1) * one_round + count * block_s

    def request(self) -> dict[str, Any]:
        return {
            "bytes": self.size,
            "blocks": self.blocks,
            "samples": self.samples,
            "sample_s": self.sample_s,
            "warmup_s": self.warmup_s,
            "pause_s": self.pause_s,
            "together_s": self.together_s,
            "hang_s": HANG_S,
        }


def nothing_known(*slots: str) -> Optional[float]:
    """No bound."""
    return None


def no_block(answer: Answer) -> Missing:
    """The time was up before there was anything."""
    return Missing("timeout", msg("no block was finished within the test's own time limit"), answer.ran.evidence)


def block_of(answer: Answer, where: str, timing: Timing, wrong_bytes: int) -> Block:
    """GB/s, with the telemetry of the GPU in slot ``where``; ``wrong_bytes`` arrived as something else."""
    found = {
        "calls": timing.calls,
        "started_at": timing.started_at,
        "ended_at": timing.ended_at,
        "wrong_bytes": wrong_bytes,
        **conditions(answer.ran.telemetry, answer.device(where), timing.started_at, timing.ended_at),
    }
    return Block(stats.median(timing.samples), timing.samples, timing.warmup, found)


def taken(
    answer: Answer, look: Look, subject: str, blocks: tuple[Block, ...], bound: Optional[float], notes: tuple[Text, ...]
) -> Taken:
    """An attempt; void where data arrived wrong or where the rate is above ``bound`` GB/s."""
    wrong = sum(b.conditions["wrong_bytes"] for b in blocks)
    attempt = Attempt(
        blocks=blocks,
        depth=look.depth,
        started_at=answer.ran.started_at,
        evidence=answer.ran.evidence,
        void=_wrong(blocks, wrong) if wrong else _above(blocks, bound),
        correct=wrong == 0,
        notes=notes,
        reproduce=answer.ran.argv,
    )
    return Taken(attempt, UNIT, STATISTIC, subject)


def _wrong(blocks: tuple[Block, ...], wrong: int) -> Void:
    bad = sum(b.conditions["wrong_bytes"] > 0 for b in blocks)
    return Void(WRONG, msg("{wrong} bytes arrived wrong, in {bad} of {n} blocks", wrong=wrong, bad=bad, n=len(blocks)))


def _above(blocks: tuple[Block, ...], bound: Optional[float]) -> Optional[Void]:
    value = stats.median([b.value for b in blocks])
    code = stats.void_above(value, bound)
    if code is None:
        return None
    detail = msg("{value} GB/s is above the {bound} GB/s of the line", value=f"{value:.1f}", bound=f"{bound:.1f}")
    return Void(code, detail)
