"""What ``benchmarks/allreduce.py`` measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

from agent.tools import ParseError
from agent.tools.worker import Unable, mapping, numbers, sequence, text, unable, whole


@dataclass(frozen=True)
class Row:
    """One size of one collective among ``count`` ranks. ``busbw`` and ``algbw`` in GB/s, one for each sample.

    ``block``: the number of the judged block, None in the sweep over sizes. ``wrong``: wrong numbers over all ranks.
    """

    op: str
    count: int
    bytes: int
    block: Optional[int]
    calls: int
    busbw: tuple[float, ...]
    algbw: tuple[float, ...]
    wrong: int
    started_at: str
    ended_at: str


@dataclass(frozen=True)
class Allreduce:
    """All rows that all ranks finished. ``stopped``: why there are no more. ``log``: NCCL's, of rank 0."""

    rows: tuple[Row, ...]
    unavailable: Mapping[str, Unable]
    stopped: Optional[Unable]
    log: str

    def blocks(self, count: int, size: int, op: str = "all_reduce") -> tuple[Row, ...]:
        """The judged blocks of a collective, in their order."""
        found = [r for r in self.rows if r.block is not None and (r.op, r.count, r.bytes) == (op, count, size)]
        return tuple(sorted(found, key=lambda r: r.block or 0))

    def sweep(self, op: str, count: int) -> tuple[Row, ...]:
        """One row a size, the smallest first."""
        found = [r for r in self.rows if r.block is None and (r.op, r.count) == (op, count)]
        return tuple(sorted(found, key=lambda r: r.bytes))


def parse(data: Mapping[str, Any]) -> Allreduce:
    """A result file. :class:`ParseError` where it is not what the worker writes."""
    stopped = data.get("stopped")
    log = data.get("log")
    if not isinstance(log, str):
        raise ParseError("unparsable", "log is not a text", repr(log)[:200])
    missing = mapping(data.get("unavailable"), "unavailable")
    return Allreduce(
        tuple(_row(mapping(r, "rows")) for r in sequence(data.get("rows"), "rows")),
        {op: unable(why, f"unavailable.{op}") for op, why in missing.items()},
        None if stopped is None else unable(stopped, "stopped"),
        log,
    )


def _row(found: Mapping[str, Any]) -> Row:
    block = found.get("block")
    return Row(
        op=text(found.get("op"), "rows.op"),
        count=whole(found.get("count"), "rows.count"),
        bytes=whole(found.get("bytes"), "rows.bytes"),
        block=None if block is None else whole(block, "rows.block"),
        calls=whole(found.get("calls"), "rows.calls"),
        busbw=numbers(found.get("busbw"), "rows.busbw"),
        algbw=numbers(found.get("algbw"), "rows.algbw"),
        wrong=whole(found.get("wrong"), "rows.wrong"),
        started_at=text(found.get("started_at"), "rows.started_at"),
        ended_at=text(found.get("ended_at"), "rows.ended_at"),
    )
