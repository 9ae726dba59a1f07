"""Random 4 KiB reads and writes: IOPS at queue depth 256 (4 threads × 64), the 99th percentile of latency at depth 1.

A full queue tells how many requests a disk serves, and how long a request waits behind 255 others: no latency that a
vendor promised. So each has runs of its own, and the latencies under the full queue stand beside the IOPS. Each
percentile is of one repetition, never pooled. Where writes are asked for, a short mix of 70 % reads and 30 % writes is
shown beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Union

from agent.bench.disk_rig import GIB, Rig, Told, read_job, taken
from agent.bench.neighbours import Between
from agent.host import Ran
from agent.model import Block, Depth, Result, Statistic
from agent.quantity import format_quantity
from agent.reading import Missing, Reading
from agent.text import Text, msg
from agent.tools.fio import Direction

SECONDS: Mapping[Depth, int] = {"quick": 1, "standard": 6, "deeper": 6}
WRITE_CAP: Mapping[Depth, int] = {"quick": 2 * GIB, "standard": 8 * GIB, "deeper": 16 * GIB}
MIXED_S, MIXED_CAP = 3, GIB // 4
BLOCK_BYTES = 4096
DIRECTIONS = {"read": ("read_iops", "read_p99"), "write": ("write_iops", "write_p99")}
NAMES = tuple(name for names in DIRECTIONS.values() for name in names)
WRITES = frozenset(DIRECTIONS["write"])


@dataclass(frozen=True)
class _Queue:
    """How many threads keep how many requests in flight each."""

    jobs: int
    depth_each: int

    def note(self) -> Text:
        jobs, depth = self.jobs, self.depth_each
        if jobs == depth == 1:
            return msg("4 KiB, one request in flight")
        return msg("4 KiB, {jobs} threads with {depth} requests each in flight", jobs=jobs, depth=depth)


FULL, SINGLE = _Queue(4, 64), _Queue(1, 1)
# An engine that keeps one request in flight makes up for it a little with threads.
UNQUEUED = _Queue(16, 1)


@dataclass(frozen=True)
class _Seen:
    """All repetitions in one direction; ``told``: the bytes that they say they moved."""

    parts: tuple[Direction, ...]
    runs: tuple[Ran, ...]
    window: Reading[Between]
    notes: tuple[Text, ...]
    told: Told


def measure(rig: Rig, wanted: Mapping[str, str]) -> Mapping[str, Result]:
    """``wanted`` maps ``read_iops`` (/s), ``read_p99`` (ms) and the same of ``write`` to keys."""
    if rig.engine == "dd":
        return dict.fromkeys(wanted.values(), Missing("no-tool", msg("fio is not installed"), (), msg("install fio")))
    mixed = _mixed(rig) if WRITES.intersection(wanted) else ()
    results: dict[str, Result] = {}
    for direction, (iops, p99) in DIRECTIONS.items():
        if iops in wanted:
            seen = _repeated(rig, direction, f"rand{direction}", _full(rig))
            results[wanted[iops]] = seen if isinstance(seen, Missing) else _iops(rig, seen, mixed)
        if p99 in wanted:
            seen = _repeated(rig, direction, f"rand{direction}.single", SINGLE)
            results[wanted[p99]] = seen if isinstance(seen, Missing) else _p99(rig, seen, mixed)
    return results


def _full(rig: Rig) -> _Queue:
    return UNQUEUED if rig.engine == "psync" else FULL


def _repeated(rig: Rig, direction: str, name: str, queue: _Queue) -> Union[_Seen, Missing]:
    parts: list[Direction] = []
    runs: list[Ran] = []
    before = rig.begin(name)
    for number in range(1, rig.repetitions + 1):
        ran = _job(rig, f"{name}.{number}", direction, queue)
        part, missing = read_job(ran, direction)
        if part is None:
            return missing or Missing("failed", msg("no number"), ran.cited)
        parts.append(part)
        runs.append(ran)
    window = rig.since(name, before)
    told = Told(direction, sum((p.bytes_per_s or 0.0) * (p.seconds or 0.0) for p in parts))
    return _Seen(tuple(parts), tuple(runs), window, (queue.note(),), told)


def _iops(rig: Rig, seen: _Seen, mixed: tuple[Text, ...]) -> Result:
    known = [p.iops for p in seen.parts if p.iops is not None]
    if len(known) < len(seen.parts):
        return Missing("unparsable", msg("fio reports no IOPS"), seen.runs[0].cited)
    blocks = [Block(v, conditions=_conditions(p)) for v, p in zip(known, seen.parts)]
    notes = (*seen.notes, *_beside(seen), *mixed)
    return taken(rig, blocks, seen.runs, "/s", seen.window, notes=notes, told=seen.told)


def _beside(seen: _Seen) -> tuple[Text, ...]:
    """The latencies under the full queue: no promise is judged by them."""
    p50 = [p.lat_ns_p50 for p in seen.parts if p.lat_ns_p50 is not None]
    p99 = [p.lat_ns_p99 for p in seen.parts if p.lat_ns_p99 is not None]
    if not p50 or not p99:
        return ()
    shown = {"p50": _ms(median(p50)), "p99": _ms(median(p99))}
    return (msg("latency under this load: p50 {p50}, p99 {p99}", **shown),)


def _p99(rig: Rig, seen: _Seen, mixed: tuple[Text, ...]) -> Result:
    known = [p.lat_ns_p99 for p in seen.parts if p.lat_ns_p99 is not None]
    if len(known) < len(seen.parts):
        return Missing("unparsable", msg("fio reports no 99th percentile"), seen.runs[0].cited)
    blocks = [Block(v / 1e6, conditions=_conditions(p)) for v, p in zip(known, seen.parts)]
    # One request in flight: any engine keeps that.
    rig = replace(rig, engine="")
    statistic: Statistic = "percentile per repetition"
    notes = (*seen.notes, *mixed)
    return taken(rig, blocks, seen.runs, "ms", seen.window, statistic=statistic, notes=notes, told=seen.told)


def _mixed(rig: Rig) -> tuple[Text, ...]:
    """One short job of 70 % reads and 30 % writes: context, judged by nothing."""
    queue = _full(rig)
    limits = ["--rwmixread=70", *_written(MIXED_CAP, queue), f"--runtime={MIXED_S}"]
    ran = _fio(rig, "mixed", "randrw", limits, MIXED_S, queue)
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
    return ", ".join(f"{rank} {_ms(ns)}" for rank, ns in found.items() if ns is not None)


def _ms(ns: float) -> str:
    return format_quantity(ns / 1e6, "ms")


def _conditions(part: Direction) -> dict[str, object]:
    return {"tool": "fio", "lat_ns_p50": part.lat_ns_p50, "lat_ns_p99": part.lat_ns_p99, "iops": part.iops}


def _job(rig: Rig, name: str, direction: str, queue: _Queue) -> Ran:
    seconds = SECONDS[rig.look.depth]
    cap = WRITE_CAP[rig.look.depth] // rig.repetitions
    limits = ["--time_based"] if direction == "read" else _written(cap, queue)
    return _fio(rig, name, f"rand{direction}", [*limits, f"--runtime={seconds}"], seconds, queue)


def _written(cap: int, queue: _Queue) -> list[str]:
    """``cap`` bytes of all threads together. Over blocks that exist: allocation would be measured otherwise."""
    return [f"--io_size={cap // queue.jobs}", "--overwrite=1"]


def _fio(rig: Rig, name: str, rw: str, extra: list[str], seconds: int, queue: _Queue) -> Ran:
    return rig.fio(
        name,
        seconds,
        rw=rw,
        bs="4k",
        iodepth=queue.depth_each,
        numjobs=queue.jobs,
        extra=["--norandommap", "--randrepeat=0", "--size=100%", *extra],
    )
