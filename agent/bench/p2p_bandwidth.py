"""Copies from each GPU to each other one, compared where they arrive. Needs a driver and no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Optional, Union

from agent import stats
from agent.bench import second_source
from agent.bench.device_copies import SHORT, START_S, Effort, block_of, no_block, nothing_known, taken
from agent.bench.device_memory import MIB, WORKER, Answer, Slots, ask
from agent.bench.step import Cost, Look, Step
from agent.bench.worker import as_missing, unreadable
from agent.host import Host
from agent.model import Depth, Result
from agent.reading import Missing
from agent.text import Text, msg
from agent.tools import ParseError
from agent.tools.device_memory import Pair, pairs, stopped

PEER = "p2p_bandwidth"
# GB/s one way between two slots that can never be exceeded.
PairBound = Callable[[str, str], Optional[float]]
PEER_EFFORT: Mapping[Depth, Effort] = {
    "quick": Effort(stats.BLOCKS, 3, 0.008, 0.008, 0.0, 0.0, 32 * MIB, 0.02),
    "standard": Effort(stats.BLOCKS, 3, 0.03, 0.03, 10.0, 0.0, 128 * MIB, 0.08),
    "deeper": Effort(stats.BLOCKS_DEEPER, 3, 0.03, 0.03, 10.0, 0.0, 128 * MIB, 0.08),
}


Pairs = Union[tuple[tuple[str, str], ...], Missing]


def every_pair(slots: Slots) -> Pairs:
    """All ordered pairs; why there are none where there is only one GPU."""
    if isinstance(slots, Missing):
        return slots
    if len(slots) < 2:
        return Missing("not-there", msg("a copy between GPUs needs two of them; there is {n}", n=len(slots)))
    return tuple((a, b) for a in slots for b in slots if a != b)


def pair_subject(source: str, target: str) -> str:
    """``0000:1b:00.0>0000:43:00.0``: from the first to the second."""
    return f"{source}>{target}"


@dataclass(frozen=True)
class PeerStep:
    """Copies from each GPU to each other one."""

    pairs: Pairs
    bound: PairBound = nothing_known
    effort: Mapping[Depth, Effort] = field(default_factory=lambda: PEER_EFFORT)
    slack_s: float = 60.0
    tools: second_source.Where = field(default_factory=dict)

    def step(self) -> Step:
        return Step(
            PEER,
            tuple(self.keys()),
            "gpu",
            self.cost,
            self.execute,
            10.0,
            second_source.seconds(self.tools, "nvbandwidth"),
        )

    def keys(self) -> Mapping[str, Optional[tuple[str, str]]]:
        if isinstance(self.pairs, Missing):
            return {PEER: None}
        return {f"{PEER}@{pair_subject(*p)}": p for p in self.pairs}

    def cost(self, depth: Depth) -> Cost:
        if isinstance(self.pairs, Missing):
            return Cost(0.0)
        effort = self.effort[depth]
        return Cost(START_S + effort.rounds(len(self.pairs), effort.timed_s + effort.handling_s))

    def execute(self, host: Host, look: Look) -> Mapping[str, Result]:
        if isinstance(self.pairs, Missing):
            return {PEER: self.pairs}
        wanted = {k: p for k, p in self.keys().items() if p is not None and look.wants(k)}
        limit_s = 60 + 4 * self.cost(look.depth).seconds
        request = {
            "task": "peer",
            "slots": sorted({s for p in wanted.values() for s in p}),
            "pairs": [list(p) for p in wanted.values()],
            "limit_s": limit_s,
            **self.effort[look.depth].request(),
        }
        answer = ask(host, f"{PEER}/{look.number}", request, limit_s + self.slack_s)
        if isinstance(answer, Missing):
            return dict.fromkeys(wanted, answer)
        try:
            found = {(p.source, p.target): p for p in pairs(answer.ran.data)}
            short = stopped(answer.ran.data)
        except ParseError as error:
            return dict.fromkeys(wanted, unreadable(WORKER, error, answer.ran.evidence))
        results = {key: self._result(answer, pair, found, look, short) for key, pair in wanted.items()}
        numbers = {number: where for where, number in answer.index.items()}
        return second_source.peers(
            host, look, self.tools, numbers, results, f"{PEER}@{pair_subject('{source}', '{target}')}"
        )

    def _result(
        self,
        answer: Answer,
        pair: tuple[str, str],
        found: Mapping[tuple[int, int], Pair],
        look: Look,
        short: Optional[str],
    ) -> Result:
        gone = next((s for s in pair if s not in answer.index), None)
        if gone is not None:
            return answer.missing(gone)
        one = found.get((answer.index[pair[0]], answer.index[pair[1]]))
        if one is None:
            return Missing("failed", msg("our own test left this pair out"), answer.ran.evidence)
        if one.error is not None:
            return as_missing(one.error, answer.ran.evidence)
        if not one.blocks:
            return no_block(answer)
        blocks = tuple(block_of(answer, pair[0], b.timing, b.wrong_bytes) for b in one.blocks)
        notes: tuple[Text, ...] = () if one.access else (_THROUGH_HOST,)
        notes += (SHORT,) if short is not None else ()
        return taken(answer, look, pair_subject(*pair), blocks, self.bound(*pair), notes)


_THROUGH_HOST = msg("these GPUs have no access to each other: the driver copies through host memory")
