"""Rate of the host's memory by the triad on all CPUs: ``memory.bandwidth``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent import stats
from agent.bench.gemm import Effort
from agent.bench.memory_bandwidth import UNIT, attempt_of, timing_request
from agent.bench.step import Cost, Look, Step
from agent.bench.worker import WorkerResult, launch, unreadable
from agent.facts.pythons import Interpreter
from agent.host import Host
from agent.model import Depth, Result, Taken
from agent.reading import Missing, Reading
from agent.text import Text, msg
from agent.tools import ParseError
from agent.tools.memory_bandwidth import HostTriad, parse_host
from agent.tools.worker import Device

WORKER = "cpu_memory_bandwidth"
KEY = "memory.bandwidth"
BUFFER_BYTES = 1 << 30
HOST = Device(0, "cpu")
START_S = 8.0  # importing torch and touching the arrays, on all NUMA nodes at once
CHECK_S = 0.7  # comparing all numbers after each block
EFFORT: Mapping[Depth, Effort] = {
    "quick": Effort(stats.BLOCKS, samples=3, sample_s=0.2, warmup_s=0.2, pause_s=0.0),
    "standard": Effort(stats.BLOCKS, samples=5, sample_s=0.5, warmup_s=1.0, pause_s=10.0),
    "deeper": Effort(stats.BLOCKS_DEEPER, samples=5, sample_s=0.5, warmup_s=1.0, pause_s=10.0),
}


@dataclass
class CpuMemoryBandwidthStep:
    """The triad in host memory; needs an interpreter with torch, not a GPU."""

    interpreter: Reading[Interpreter]
    buffer_bytes: int = BUFFER_BYTES
    effort: Mapping[Depth, Effort] = field(default_factory=lambda: EFFORT)

    def step(self) -> Step:
        return Step(KEY, (KEY,), "cpu", self.cost, lambda host, look: {KEY: self.execute(host, look)}, 10.0)

    def cost(self, depth: Depth) -> Cost:
        if isinstance(self.interpreter, Missing):
            return Cost(0.0)
        effort = self.effort[depth]
        return Cost(START_S + effort.seconds(1) + effort.blocks * CHECK_S)

    def execute(self, host: Host, look: Look) -> Result:
        if isinstance(self.interpreter, Missing):
            return self.interpreter
        limit_s = 60 + 4 * self.cost(look.depth).seconds
        request = {"buffer_bytes": self.buffer_bytes, **timing_request(self.effort[look.depth]), "limit_s": limit_s}
        ran = launch(host, f"{KEY}/{look.number}", WORKER, request, self.interpreter.value.path, limit_s + 60, True)
        if isinstance(ran, Missing):
            return ran
        try:
            measured = parse_host(ran.data)
        except ParseError as error:
            return unreadable(WORKER, error, ran.evidence)
        return self._taken(ran, measured, look)

    def _taken(self, ran: WorkerResult, measured: HostTriad, look: Look) -> Result:
        attempt = attempt_of(measured.timings, ran, look, (_note(measured),), measured.stopped, None, HOST)
        return attempt if isinstance(attempt, Missing) else Taken(attempt, UNIT, "median of block medians")


def _note(measured: HostTriad) -> Text:
    return msg(
        "triad a = b + s·c, counted as STREAM does, three arrays of {size} GiB on {nodes} NUMA nodes, {cpus} CPUs",
        size=f"{measured.buffer_bytes / (1 << 30):.3g}",
        nodes=len(measured.nodes),
        cpus=sum(cpus for _, cpus in measured.nodes),
    )
