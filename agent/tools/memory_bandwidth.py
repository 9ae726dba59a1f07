"""What ``benchmarks/memory_bandwidth.py`` and ``benchmarks/cpu_memory_bandwidth.py`` measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

from agent.tools import ParseError
from agent.tools.worker import Unable, mapping, numbers, optional_text, sequence, text, truth, unable, whole


@dataclass(frozen=True)
class Timing:
    """One block; ``samples`` and ``warmup`` in GB/s, both reads and the write counted."""

    samples: tuple[float, ...]
    warmup: tuple[float, ...]
    calls: int
    started_at: str
    ended_at: str
    correct: bool


@dataclass(frozen=True)
class OneDevice:
    index: int
    timings: tuple[Timing, ...]
    error: Optional[Unable]


@dataclass(frozen=True)
class Triad:
    """All GPUs. ``buffer_bytes``: each of the three arrays."""

    buffer_bytes: int
    stopped: Optional[str]
    devices: tuple[OneDevice, ...]


@dataclass(frozen=True)
class HostTriad:
    """The host's memory. ``nodes``: NUMA node and the number of CPUs used there."""

    buffer_bytes: int
    cache_bytes: int
    nodes: tuple[tuple[int, int], ...]
    stopped: Optional[str]
    timings: tuple[Timing, ...]


def parse(data: Mapping[str, Any]) -> Triad:
    """A result file of ``memory_bandwidth.py``. :class:`ParseError` where it is not what the worker writes."""
    devices = tuple(_device(mapping(d, "triad")) for d in sequence(data.get("triad"), "triad"))
    if not devices or len({d.index for d in devices}) != len(devices):
        raise ParseError("unparsable", "triad: no device, or one index twice")
    stopped = optional_text(data.get("stopped"), "stopped")
    return Triad(whole(data.get("buffer_bytes"), "buffer_bytes"), stopped, devices)


def parse_host(data: Mapping[str, Any]) -> HostTriad:
    """A result file of ``cpu_memory_bandwidth.py``."""
    nodes = tuple(_node(mapping(n, "nodes")) for n in sequence(data.get("nodes"), "nodes"))
    if not nodes:
        raise ParseError("unparsable", "nodes: none")
    return HostTriad(
        whole(data.get("buffer_bytes"), "buffer_bytes"),
        whole(data.get("cache_bytes"), "cache_bytes"),
        nodes,
        optional_text(data.get("stopped"), "stopped"),
        _timings(data.get("blocks")),
    )


def _node(found: Mapping[str, Any]) -> tuple[int, int]:
    return whole(found.get("node"), "nodes.node"), whole(found.get("cpus"), "nodes.cpus")


def _device(found: Mapping[str, Any]) -> OneDevice:
    error = found.get("error")
    return OneDevice(
        whole(found.get("index"), "triad.index"),
        _timings(found.get("blocks")),
        None if error is None else unable(error, "triad.error"),
    )


def _timings(value: Any) -> tuple[Timing, ...]:
    return tuple(_timing(mapping(b, "blocks")) for b in sequence(value, "blocks"))


def _timing(found: Mapping[str, Any]) -> Timing:
    return Timing(
        samples=numbers(found.get("samples"), "samples"),
        warmup=numbers(found.get("warmup"), "warmup"),
        calls=whole(found.get("calls"), "calls"),
        started_at=text(found.get("started_at"), "started_at"),
        ended_at=text(found.get("ended_at"), "ended_at"),
        correct=truth(found.get("correct"), "correct"),
    )
