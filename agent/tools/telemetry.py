"""What ``agent/probes/telemetry_probe.py`` sampled beside a load."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Optional

from agent.tools import ParseError
from agent.tools.worker import mapping, number, sequence, text, whole

# nvmlClocksEventReasons
REASONS: Mapping[int, str] = {
    0x1: "idle",
    0x2: "app_clocks",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "power_brake",
    0x100: "display_clocks",
}
SLOW = ("power_w", "temperature_c", "memory_temperature_c", "mem_mhz", "utilization", "memory_used_mib")
COUNTERS = (
    "ecc_uncorrected",
    "ecc_corrected",
    "remapped_uncorrectable",
    "remapped_pending",
    "remapped_failure",
    "pcie_replay",
    "power_ns",
    "thermal_ns",
    "board_ns",
    "reliability_ns",
)


@dataclass(frozen=True)
class Gpu:
    """A card as NVML named it when the telemetry began; ``slot`` as sysfs writes it.

    ``no_events``: NVML's error where it refused to tell this card's faults.
    """

    uuid: Optional[str]
    slot: Optional[str]
    clock_sm_max_mhz: Optional[float]
    power_enforced_w: Optional[float]
    power_default_w: Optional[float]
    no_events: Optional[str] = None


@dataclass(frozen=True)
class Fast:
    """One sample of all cards: SM clock in MHz and the bits of clock event reasons. ``late_ms`` after its slot."""

    t: float
    clocks: tuple[Optional[float], ...]
    reasons: tuple[Optional[int], ...]
    late_ms: float = 0.0


@dataclass(frozen=True)
class Rows:
    """Values by name for each card at one moment (:data:`SLOW` or :data:`COUNTERS`)."""

    t: float
    gpus: tuple[Mapping[str, Optional[float]], ...]


@dataclass(frozen=True)
class HostSample:
    """Of the whole host, over the second before ``t``."""

    t: float
    values: Mapping[str, Optional[float]]


@dataclass(frozen=True)
class Telemetry:
    """``started_at``: UTC seconds since 1970; ``t`` counts from there. ``error``: why there are no GPUs.

    ``done``: the end was written; without it the telemetry was cut off. ``faults``: (t, card, Xid).
    ``busy``: how busy each card still was in % when the load began, after waiting; empty where nobody looked.
    """

    started_at: float
    interval_s: float
    gpus: tuple[Gpu, ...]
    error: Optional[str]
    fast: tuple[Fast, ...]
    slow: tuple[Rows, ...]
    counters: tuple[Rows, ...]
    host: tuple[HostSample, ...]
    faults: tuple[tuple[float, int, int], ...]
    done: bool
    busy: tuple[Optional[float], ...] = ()


def parse(raw: str) -> Telemetry:
    """All lines that are whole; a last line that was cut off is left out. :class:`ParseError` for anything else."""
    lines = [_object(line) for line in raw.split("\n")[:-1]]
    if not lines or "telemetry" not in lines[0]:
        raise ParseError("unparsable", "the telemetry has no first line")
    head, body = lines[0], lines[1:]
    gpus, error = _cards(head.get("gpus"))
    return Telemetry(
        started_at=epoch(text(head.get("started_at"), "started_at")),
        interval_s=number(head.get("interval_s"), "interval_s"),
        gpus=gpus,
        error=error,
        fast=tuple(_fast(line, len(gpus)) for line in body if "f" in line),
        slow=tuple(_rows(line, "s", SLOW, len(gpus)) for line in body if "s" in line),
        counters=tuple(_rows(line, "c", COUNTERS, len(gpus)) for line in body if "c" in line),
        host=tuple(_host(line) for line in body if "h" in line),
        faults=tuple(fault for line in body if "x" in line for fault in _faults(line, len(gpus))),
        done=any(line.get("done") is True for line in body),
    )


def parse_gate(raw: str) -> tuple[Optional[float], ...]:
    """What ``benchmarks/beside.py`` saw before the load. :class:`ParseError` where it is not that."""
    rows = sequence(_object(raw).get("busy_percent"), "busy_percent")
    return tuple(None if row is None else number(row, "busy_percent") for row in rows)


def epoch(moment: str) -> float:
    """``2026-11-30T08:15:02.123Z`` as seconds since 1970. :class:`ParseError` where it is no such moment."""
    try:
        return datetime.strptime(moment.replace("Z", "+0000"), "%Y-%m-%dT%H:%M:%S.%f%z").timestamp()
    except ValueError as error:
        raise ParseError("unparsable", str(error)) from error


def _object(line: str) -> Mapping[str, Any]:
    try:
        return mapping(json.loads(line), "a line of telemetry")
    except (ValueError, RecursionError) as error:
        raise ParseError("unparsable", f"a line of telemetry is no JSON: {error}"[:200]) from error


def _cards(value: Any) -> tuple[tuple[Gpu, ...], Optional[str]]:
    if isinstance(value, dict):
        return (), text(value.get("error"), "gpus.error")
    return tuple(_card(mapping(g, "gpus")) for g in sequence(value, "gpus")), None


def _card(found: Mapping[str, Any]) -> Gpu:
    uuid, slot, deaf = found.get("uuid"), found.get("slot"), found.get("no_events")
    return Gpu(
        None if uuid is None else text(uuid, "gpus.uuid"),
        None if slot is None else text(slot, "gpus.slot"),
        _maybe(found.get("clock_sm_max_mhz"), "clock_sm_max_mhz"),
        _maybe(found.get("power_enforced_w"), "power_enforced_w"),
        _maybe(found.get("power_default_w"), "power_default_w"),
        None if deaf is None else text(deaf, "gpus.no_events"),
    )


def _maybe(value: Any, where: str) -> Optional[float]:
    if isinstance(value, bool):
        return float(value)
    return None if value is None else number(value, where)


def _lists(line: Mapping[str, Any], key: str, width: int, cards: int) -> list[list[Any]]:
    rows = [sequence(row, key) for row in sequence(line.get(key), key)]
    if len(rows) != cards or any(len(row) != width for row in rows):
        raise ParseError("unparsable", f"a line {key!r} of telemetry has not {cards} × {width} values")
    return rows


def _fast(line: Mapping[str, Any], cards: int) -> Fast:
    rows = _lists(line, "f", 2, cards)
    return Fast(
        number(line.get("t"), "t"),
        tuple(_maybe(clock, "f") for clock, _ in rows),
        tuple(None if bits is None else whole(bits, "f") for _, bits in rows),
        number(line.get("late", 0.0), "late"),
    )


def _rows(line: Mapping[str, Any], key: str, names: tuple[str, ...], cards: int) -> Rows:
    rows = _lists(line, key, len(names), cards)
    return Rows(number(line.get("t"), "t"), tuple({n: _maybe(v, n) for n, v in zip(names, row)} for row in rows))


def _host(line: Mapping[str, Any]) -> HostSample:
    return HostSample(number(line.get("t"), "t"), {k: _maybe(v, k) for k, v in mapping(line.get("h"), "h").items()})


def _faults(line: Mapping[str, Any], cards: int) -> list[tuple[float, int, int]]:
    t = number(line.get("t"), "t")
    found = [(t, whole(g, "x"), whole(x, "x")) for g, x in _lists(line, "x", 2, len(sequence(line.get("x"), "x")))]
    if any(g >= cards for _, g, _ in found):
        raise ParseError("unparsable", "a fault of a card that is not listed")
    return found
