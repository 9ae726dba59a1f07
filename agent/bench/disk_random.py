"""Random 4 KiB reads and writes at queue depth 256 (4 threads × 64): IOPS, and the 99th percentile of latency.

One run gives both numbers of a direction. Each percentile is of one repetition, never pooled. Where writes are asked
for, a short mix of 70 % reads and 30 % writes is shown beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

from agent.bench.disk_rig import GIB, Rig, read_job, taken
from agent.bench.neighbours import Between
from agent.host import Ran
from agent.model import Block, Depth, Result, Statistic
from agent.quantity import format_quantity
from agent.reading import Missing, Reading
from agent.text import Text, msg
from agent.tools.fio import Direction

JOBS, DEPTH_EACH = 4, 64
SECONDS: Mapping[Depth, int] = {"quick": 1, "standard": 6, "deeper": 6}
WRITE_CAP: Mapping[Depth, int] = {"quick": 1 * GIB, "standard": 8 * GIB, "deeper": 16 * GIB}
MIXED_S, MIXED_CAP = 3, GIB // 4
DIRECTIONS = {"read": ("read_iops", "read_p99"), "write": ("write_iops", "write_p99")}
WRITES = frozenset(DIRECTIONS["write"])


@dataclass(frozen=True)
class _Seen:
    """All repetitions in one direction; ``read``: bytes that were read, None where none were."""

    parts: tuple[Direction, ...]
    runs: tuple[Ran, ...]
    window: Reading[Between]
    notes: tuple[Text, ...]
    read: Optional[float]


def measure(rig: Rig, wanted: Mapping[str, str]) -> Mapping[str, Result]:
    """``wanted`` maps ``read_iops`` (/s), ``read_p99`` (ms) and the same of ``write`` to keys."""
    if rig.engine == "dd":
        return dict.fromkeys(wanted.values(), Missing("no-tool", msg("fio is not installed"), (), msg("install fio")))
    mixed = _mixed(rig) if WRITES.intersection(wanted) else ()
    results: dict[str, Result] = {}
    for direction, names in DIRECTIONS.items():
        keys = {n: wanted[n] for n in names if n in wanted}
        if keys:
            results.update(_direction(rig, direction, keys, mixed))
    return results


def _direction(rig: Rig, direction: str, keys: Mapping[str, str], mixed: tuple[Text, ...]) -> Mapping[str, Result]:
    parts: list[Direction] = []
    runs: list[Ran] = []
    before = rig.begin(f"rand{direction}")
    for number in range(1, rig.repetitions + 1):
        ran = _job(rig, direction, number)
        part, missing = read_job(ran, direction)
        if part is None:
            return dict.fromkeys(keys.values(), missing or Missing("failed", msg("no number"), ran.cited))
        parts.append(part)
        runs.append(ran)
    window = rig.since(f"rand{direction}", before)
    read = sum((p.bytes_per_s or 0.0) * (p.seconds or 0.0) for p in parts) if direction == "read" else None
    note = msg("4 KiB, {jobs} threads with {depth} requests each in flight", jobs=JOBS, depth=DEPTH_EACH)
    seen = _Seen(tuple(parts), tuple(runs), window, (note, *mixed), read)
    iops, p99 = DIRECTIONS[direction]
    makers = {iops: _iops, p99: _p99}
    return {keys[name]: make(rig, seen) for name, make in makers.items() if name in keys}


def _iops(rig: Rig, seen: _Seen) -> Result:
    known = [p.iops for p in seen.parts if p.iops is not None]
    if len(known) < len(seen.parts):
        return Missing("unparsable", msg("fio reports no IOPS"), seen.runs[0].cited)
    blocks = [Block(v, conditions=_conditions(p)) for v, p in zip(known, seen.parts)]
    return taken(rig, blocks, seen.runs, "/s", seen.window, notes=seen.notes, read=seen.read)


def _p99(rig: Rig, seen: _Seen) -> Result:
    known = [p.lat_ns_p99 for p in seen.parts if p.lat_ns_p99 is not None]
    if len(known) < len(seen.parts):
        return Missing("unparsable", msg("fio reports no 99th percentile"), seen.runs[0].cited)
    blocks = [Block(v / 1e6, conditions=_conditions(p)) for v, p in zip(known, seen.parts)]
    statistic: Statistic = "percentile per repetition"
    return taken(rig, blocks, seen.runs, "ms", seen.window, statistic=statistic, notes=seen.notes, read=seen.read)


def _mixed(rig: Rig) -> tuple[Text, ...]:
    """One short job of 70 % reads and 30 % writes: context, judged by nothing."""
    ran = _fio(rig, "mixed", "randrw", ["--rwmixread=70", *_written(MIXED_CAP), f"--runtime={MIXED_S}"], MIXED_S)
    read, missing = read_job(ran, "read")
    write, _ = read_job(ran, "write")
    if read is None or write is None:
        why = missing.detail if missing is not None else msg("fio reports no I/O in this direction")
        return (msg("70 % reads, 30 % writes: not measured ({why})", why=why),)
    return (
        msg(
            "70 % reads, 30 % writes: {read} reads/s ({read_latency}), {write} writes/s ({write_latency})",
            read=f"{read.iops or 0:.0f}",
            write=f"{write.iops or 0:.0f}",
            read_latency=_latency(read),
            write_latency=_latency(write),
        ),
    )


def _latency(part: Direction) -> str:
    found = {"p50": part.lat_ns_p50, "p99": part.lat_ns_p99}
    return ", ".join(f"{rank} {format_quantity(ns / 1e6, 'ms')}" for rank, ns in found.items() if ns is not None)


def _conditions(part: Direction) -> dict[str, object]:
    return {"tool": "fio", "lat_ns_p50": part.lat_ns_p50, "lat_ns_p99": part.lat_ns_p99, "iops": part.iops}


def _job(rig: Rig, direction: str, number: int) -> Ran:
    seconds = SECONDS[rig.look.depth]
    limits = ["--time_based"] if direction == "read" else _written(WRITE_CAP[rig.look.depth] // rig.repetitions)
    extra = [*limits, f"--runtime={seconds}"]
    return _fio(rig, f"rand{direction}.{number}", f"rand{direction}", extra, seconds)


def _written(cap: int) -> list[str]:
    """Over blocks that exist: allocation would be measured otherwise."""
    return [f"--io_size={cap // JOBS}", "--overwrite=1"]


def _fio(rig: Rig, name: str, rw: str, extra: list[str], seconds: int) -> Ran:
    return rig.fio(
        name,
        seconds,
        rw=rw,
        bs="4k",
        iodepth=DEPTH_EACH,
        numjobs=JOBS if rig.engine != "psync" else JOBS * 4,
        extra=["--norandommap", "--randrepeat=0", "--size=100%", *extra],
    )
