"""What ``benchmarks/training.py`` measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

from agent.tools import ParseError
from agent.tools.worker import Unable, mapping, number, numbers, sequence, text, unable, whole


@dataclass(frozen=True)
class Stretch:
    """One block: tokens a second of all devices together, one for each step."""

    started_at: str
    ended_at: str
    tokens_per_second: tuple[float, ...]


@dataclass(frozen=True)
class Training:
    """``operations_per_token``: floating-point operations. ``losses``: every step's, None where it was not finite.

    ``batch``: sequences a step on each of ``ranks`` devices. ``memory_bytes``: the most on any device.
    """

    name: str
    parameters: int
    sequence: int
    operations_per_token: float
    batch: int
    parallel: str
    ranks: int
    stretches: tuple[Stretch, ...]
    losses: tuple[Optional[float], ...]
    memory_bytes: Optional[int]
    stopped: Optional[Unable]


def parse(data: Mapping[str, Any]) -> Training:
    """A result file. :class:`ParseError` where it is not what the worker writes."""
    model = mapping(data.get("model"), "model")
    stopped, memory = data.get("stopped"), data.get("memory_bytes")
    found = Training(
        name=text(model.get("name"), "model.name"),
        parameters=whole(model.get("parameters"), "model.parameters"),
        sequence=whole(model.get("sequence"), "model.sequence"),
        operations_per_token=number(model.get("operations_per_token"), "model.operations_per_token"),
        batch=whole(data.get("batch"), "batch"),
        parallel=text(data.get("parallel"), "parallel"),
        ranks=len(sequence(data.get("devices"), "devices")),
        stretches=tuple(_stretch(mapping(b, "blocks")) for b in sequence(data.get("blocks"), "blocks")),
        losses=tuple(None if v is None else number(v, "losses") for v in sequence(data.get("losses"), "losses")),
        memory_bytes=None if memory is None else whole(memory, "memory_bytes"),
        stopped=None if stopped is None else unable(stopped, "stopped"),
    )
    if found.parallel not in ("one", "ddp", "fsdp") or found.parameters == 0 or found.operations_per_token == 0:
        raise ParseError("unparsable", "parallel is none of one, ddp, fsdp, or a model without weights")
    return found


def _stretch(found: Mapping[str, Any]) -> Stretch:
    return Stretch(
        text(found.get("started_at"), "started_at"),
        text(found.get("ended_at"), "ended_at"),
        numbers(found.get("tokens_per_second"), "tokens_per_second"),
    )
