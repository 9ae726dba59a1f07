"""Rate of the memory of each GPU by the triad: ``memory_bandwidth@0000:1b:00.0``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Optional, Union

from agent import stats
from agent.bench import _devices
from agent.bench.gemm import SEED, START_S, WRONG, Effort
from agent.bench.step import Cost, Look, Step
from agent.bench.telemetry import conditions, seen_as
from agent.bench.worker import WorkerResult, as_missing, launch, unreadable
from agent.facts.pythons import Interpreter
from agent.host import Host
from agent.model import Attempt, Block, Depth, Result, Taken, Void
from agent.reading import Missing, Reading
from agent.text import Text, msg
from agent.tools import ParseError
from agent.tools.memory_bandwidth import OneDevice, Timing, Triad, parse
from agent.tools.worker import Device

FAMILY = "memory_bandwidth"
UNIT = "GB/s"
BUFFER_BYTES = 2 << 30  # far above any L2; three of them fit into 8 GB
# A memory is steady: shorter blocks than a multiplication, whose power and clocks have to settle.
EFFORT: Mapping[Depth, Effort] = {
    "quick": Effort(stats.BLOCKS, samples=3, sample_s=0.03, warmup_s=0.06, pause_s=0.0),
    "standard": Effort(stats.BLOCKS, samples=5, sample_s=0.1, warmup_s=0.5, pause_s=10.0),
    "deeper": Effort(stats.BLOCKS_DEEPER, samples=5, sample_s=0.1, warmup_s=0.5, pause_s=10.0),
}

# GB/s that the memory of this device can never exceed, from the catalogue; None where it is not known.
Bound = Callable[[Device], Optional[float]]


def no_bound(device: Device) -> Optional[float]:
    """Nothing is known of any device."""
    return None


@dataclass
class MemoryBandwidthStep:
    """The triad on all devices that the interpreter sees."""

    interpreter: Reading[Interpreter]
    device: str = "cuda"
    bound: Bound = no_bound
    buffer_bytes: int = BUFFER_BYTES
    effort: Mapping[Depth, Effort] = field(default_factory=lambda: EFFORT)

    def step(self) -> Step:
        return Step(FAMILY, self.keys(), "cpu" if self.device == "cpu" else "gpu", self.cost, self.execute, 10.0)

    def keys(self) -> tuple[str, ...]:
        return _devices.keys(FAMILY, _devices.devices(self.interpreter, self.device))

    def cost(self, depth: Depth) -> Cost:
        found = _devices.devices(self.interpreter, self.device)
        return Cost(0.0) if isinstance(found, Missing) else Cost(START_S + self.effort[depth].seconds(len(found)))

    def execute(self, host: Host, look: Look) -> Mapping[str, Result]:
        if isinstance(self.interpreter, Missing):
            return _devices.all_of(self.keys(), self.interpreter)
        found = _devices.devices(self.interpreter, self.device)
        if isinstance(found, Missing):
            return _devices.all_of(self.keys(), found)
        wanted = [d for d in found if look.wants(f"{FAMILY}@{d.subject}")]
        limit_s = 60 + 4 * self.cost(look.depth).seconds
        request = self.request(look.depth, limit_s, [d.index for d in wanted])
        python = self.interpreter.value.path
        watch = self.device == "cuda"
        ran = launch(host, f"{FAMILY}/{look.number}", FAMILY, request, python, limit_s + 120, watch)
        if isinstance(ran, Missing):
            return _devices.all_of(self.keys(), ran)
        try:
            measured = parse(ran.data)
        except ParseError as error:
            return _devices.all_of(self.keys(), unreadable(FAMILY, error, ran.evidence))
        return self.results(ran, measured, look, wanted)

    def request(self, depth: Depth, limit_s: float, indexes: list[int]) -> dict[str, Any]:
        """As ``benchmarks/memory_bandwidth.py`` documents it."""
        return {
            "device": self.device,
            "buffer_bytes": self.buffer_bytes,
            **timing_request(self.effort[depth]),
            "limit_s": limit_s,
            "seed": SEED,
            "indexes": indexes,
        }

    def results(self, ran: WorkerResult, measured: Triad, look: Look, wanted: list[Device]) -> dict[str, Result]:
        seen = {d.index: d for d in ran.devices}
        by_subject = {seen[d.index].subject: d for d in measured.devices if d.index in seen}
        found: dict[str, Result] = {}
        for device in wanted:
            # The CPU is named by the agent; a GPU must be the one that the facts saw.
            one = measured.devices[0] if self.device == "cpu" else by_subject.get(device.subject)
            found[f"{FAMILY}@{device.subject}"] = self._taken(ran, measured, look, device, one)
        return found

    def _taken(
        self, ran: WorkerResult, measured: Triad, look: Look, device: Device, one: Optional[OneDevice]
    ) -> Result:
        if one is None:
            return Missing("failed", msg("torch no longer sees {slot}", slot=device.subject), ran.evidence)
        if one.error is not None:
            return as_missing(one.error, ran.evidence)
        size = f"{measured.buffer_bytes / (1 << 30):.3g}"
        notes = (msg("triad a = b + s·c, two reads and one write counted, three arrays of {size} GiB", size=size),)
        attempt = attempt_of(one.timings, ran, look, notes, measured.stopped, self.bound(device), device)
        return (
            attempt if isinstance(attempt, Missing) else Taken(attempt, UNIT, "median of block medians", device.subject)
        )


def timing_request(effort: Effort) -> dict[str, Any]:
    """The fields of a request that say how hard to look."""
    return {
        "blocks": effort.blocks,
        "samples": effort.samples,
        "sample_s": effort.sample_s,
        "warmup_s": effort.warmup_s,
        "pause_s": effort.pause_s,
    }


def attempt_of(
    timings: tuple[Timing, ...],
    ran: WorkerResult,
    look: Look,
    notes: tuple[Text, ...],
    stopped: Optional[str],
    bound: Optional[float],
    device: Device,
) -> Union[Attempt, Missing]:
    """The blocks of one memory as an attempt; void where a sum was wrong or the rate is above ``bound`` GB/s."""
    if not timings:
        return Missing("timeout", msg("no block was finished within the test's own time limit"), ran.evidence)
    blocks = tuple(Block(stats.median(t.samples), t.samples, t.warmup, _conditions(t, ran, device)) for t in timings)
    correct = all(t.correct for t in timings)
    if stopped is not None:
        notes = (*notes, msg("stopped by its own time limit before all blocks were done"))
    return Attempt(
        blocks=blocks,
        depth=look.depth,
        started_at=ran.started_at,
        evidence=ran.evidence,
        void=_above(blocks, bound) if correct else _wrong(timings),
        correct=correct,
        notes=notes,
        reproduce=ran.argv,
    )


def _conditions(timing: Timing, ran: WorkerResult, device: Device) -> dict[str, Any]:
    found = conditions(ran.telemetry, seen_as(ran, device), timing.started_at, timing.ended_at)
    return {"calls": timing.calls, "started_at": timing.started_at, "ended_at": timing.ended_at, **found}


def _wrong(timings: tuple[Timing, ...]) -> Void:
    bad = sum(not t.correct for t in timings)
    return Void(WRONG, msg("the sums of {bad} of {n} blocks are wrong", bad=bad, n=len(timings)))


def _above(blocks: tuple[Block, ...], bound: Optional[float]) -> Optional[Void]:
    """Nothing is better than physics: such a clock, such arrays or such a device is not what it claims."""
    value = stats.median([b.value for b in blocks])
    code = stats.void_above(value, bound)
    if code is None or bound is None:
        return None
    detail = msg(
        "{value} GB/s is above the {bound} GB/s of this model's memory", value=f"{value:.0f}", bound=f"{bound:.0f}"
    )
    return Void(code, detail)
