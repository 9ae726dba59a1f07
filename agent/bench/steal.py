"""Steal under load: an idle guest is robbed of nothing, so its CPUs are kept busy while the kernel counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent import probes, stats
from agent.bench._probe import answer
from agent.bench.step import Cost, Look, Step
from agent.host import Host, Ran
from agent.model import Attempt, Block, Depth, Result, Taken
from agent.reading import Missing
from agent.text import msg

STRETCH_S = 5.0
STRETCHES: Mapping[Depth, int] = {
    "quick": 2,
    "standard": stats.TIME_BLOCKS,
    "deeper": stats.TIME_BLOCKS_DEEPER,
}


def steal(key: str, processes: int) -> Step:
    """The step for ``cpu.steal``; ``processes`` spin, one for each CPU that this process may use."""
    return Step(
        name=key,
        keys=(key,),
        load="cpu",
        cost=lambda depth: Cost(STRETCHES[depth] * STRETCH_S + 2),
        execute=lambda host, look: {key: _execute(host, look, key, processes)},
    )


def _execute(host: Host, look: Look, key: str, processes: int) -> Result:
    count = STRETCHES[look.depth]
    arguments = [str(processes), str(count), str(STRETCH_S)]
    ran = probes.ask(host, f"{key}.{look.number}", "steal_probe", arguments, count * STRETCH_S + 30)
    answered = answer(ran)
    if isinstance(answered, Missing):
        return answered
    return attempt(answered.value, look, ran)


def attempt(answered: Mapping[str, Any], look: Look, ran: Ran) -> Result:
    """Percent of CPU time stolen, one block a stretch."""
    rows = answered.get("stretches")
    if not isinstance(rows, list) or not rows or not all(_whole(row) for row in rows):
        return Missing("unparsable", msg("the kernel's CPU times did not advance"), ran.cited)
    blocks = tuple(Block(100.0 * row["steal"] / row["ticks"], conditions=dict(row)) for row in rows)
    taken = Attempt(
        blocks=blocks, depth=look.depth, started_at=ran.started_at, evidence=ran.cited, reproduce=("vmstat", "5", "13")
    )
    return Taken(taken, "%", "share of time")


def _whole(row: Any) -> bool:
    return isinstance(row, dict) and row.get("ticks", 0) > 0 and 0 <= row.get("steal", -1) <= row["ticks"]
