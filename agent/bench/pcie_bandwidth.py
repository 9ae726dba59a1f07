"""Copies between host and each GPU, both ways, with the link watched meanwhile. Needs a driver and no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Optional

from agent import stats
from agent.bench import second_source
from agent.bench.device_copies import SHORT, START_S, WAYS, Effort, block_of, no_block, nothing_known, taken
from agent.bench.device_link import LINK, link_taken
from agent.bench.device_memory import MIB, WORKER, Answer, Slots, ask, sysfs
from agent.bench.step import Cost, Look, Step
from agent.bench.worker import as_missing, unreadable
from agent.host import Host
from agent.model import Depth, Result
from agent.reading import Missing
from agent.text import Text, msg
from agent.tools import ParseError
from agent.tools.device_memory import Copies, copies, stopped

PCIE = "pcie_bandwidth"
WAKE_S = 0.1  # the link wakes up before it is watched
INSIDE = 0.25  # of the time goes into copies inside the card, which no clause is about
# GB/s one way that a slot can never exceed.
Bound = Callable[[str], Optional[float]]
COPY_EFFORT: Mapping[Depth, Effort] = {
    "quick": Effort(stats.BLOCKS, 3, 0.02, 0.02, 0.0, 0.5, 64 * MIB, 0.06),
    "standard": Effort(stats.BLOCKS, 5, 0.05, 0.1, 10.0, 2.0, 256 * MIB, 0.25),
    "deeper": Effort(stats.BLOCKS_DEEPER, 5, 0.05, 0.1, 10.0, 2.0, 256 * MIB, 0.25),
}


@dataclass(frozen=True)
class PcieStep:
    """Both ways of each GPU, and its link under load (``gpu.pcie@SLOT``, GB/s of line rate)."""

    slots: Slots
    bound: Bound = nothing_known
    effort: Mapping[Depth, Effort] = field(default_factory=lambda: COPY_EFFORT)
    slack_s: float = 60.0
    tools: second_source.Where = field(default_factory=dict)

    def step(self) -> Step:
        return Step(
            PCIE, self.keys(), "gpu", self.cost, self.execute, 10.0, second_source.seconds(self.tools, "nvbandwidth")
        )

    def keys(self) -> tuple[str, ...]:
        clauses = (*(f"{PCIE}.{w}" for w in WAYS), LINK)
        if isinstance(self.slots, Missing):
            return clauses
        return tuple(f"{c}@{s}" for s in self.slots for c in clauses)

    def cost(self, depth: Depth) -> Cost:
        if isinstance(self.slots, Missing):
            return Cost(0.0)
        effort = self.effort[depth]
        block_s = 2 * (WAKE_S + effort.timed_s) + INSIDE * effort.timed_s + effort.handling_s
        at_once = 2 * (WAKE_S + effort.together_s) if len(self.slots) > 1 else 0.0
        return Cost(START_S + effort.rounds(len(self.slots), block_s) + at_once)

    def execute(self, host: Host, look: Look) -> Mapping[str, Result]:
        if isinstance(self.slots, Missing):
            return dict.fromkeys(self.keys(), self.slots)
        wanted = [s for s in self.slots if any(look.wants(k) for k in self._of(s))]
        keys = [k for s in wanted for k in self._of(s)]
        limit_s = 60 + 4 * self.cost(look.depth).seconds
        request = {"task": "copy", "slots": wanted, "sysfs": sysfs(host), "limit_s": limit_s}
        answer = ask(
            host, f"{PCIE}/{look.number}", {**request, **self.effort[look.depth].request()}, limit_s + self.slack_s
        )
        if isinstance(answer, Missing):
            return dict.fromkeys(keys, answer)
        try:
            found = {c.index: c for c in copies(answer.ran.data)}
            short = stopped(answer.ran.data)
        except ParseError as error:
            return dict.fromkeys(keys, unreadable(WORKER, error, answer.ran.evidence))
        results: dict[str, Result] = {}
        for where in wanted:
            one = found.get(answer.index.get(where, -1))
            results.update(self._results(answer, where, one, look, short))
        numbers = {number: where for where, number in answer.index.items()}
        ways = {w: f"{PCIE}.{w}@{{slot}}" for w in WAYS}
        return second_source.pcie(host, look, self.tools, numbers, results, ways)

    @staticmethod
    def _of(where: str) -> tuple[str, ...]:
        return (*(f"{PCIE}.{w}@{where}" for w in WAYS), f"{LINK}@{where}")

    def _results(
        self, answer: Answer, where: str, one: Optional[Copies], look: Look, short: Optional[str]
    ) -> Mapping[str, Result]:
        keys = self._of(where)
        if one is None:
            return dict.fromkeys(keys, answer.missing(where))
        if one.error is not None:
            return dict.fromkeys(keys, as_missing(one.error, answer.ran.evidence))
        if not one.blocks:
            return dict.fromkeys(keys, no_block(answer))
        found: dict[str, Result] = {}
        for way in WAYS:
            blocks = tuple(block_of(answer, where, b.ways[way], b.wrong_bytes) for b in one.blocks)
            notes = tuple(_copy_notes(one, way, short))
            found[f"{PCIE}.{way}@{where}"] = taken(answer, look, where, blocks, self.bound(where), notes)
        found[f"{LINK}@{where}"] = link_taken(answer, look, where, one)
        return found


def _copy_notes(one: Copies, way: str, short: Optional[str]) -> list[Text]:
    notes = []
    if one.cpus is None:
        notes.append(msg("the kernel does not tell which CPUs are near this GPU: host memory lies where it fell"))
    if one.together is not None:
        notes.append(msg("with all GPUs at once: {rate} GB/s", rate=f"{one.together[way]:.1f}"))
    inside = stats.median([stats.median(b.ways["d2d"].samples) for b in one.blocks])
    notes.append(msg("copies inside the card: {rate} GB/s, each byte counted once", rate=f"{inside:.0f}"))
    if short is not None:
        notes.append(SHORT)
    return notes
