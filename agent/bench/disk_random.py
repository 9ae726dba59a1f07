"""Random 4 KiB reads and writes at queue depth 256 (4 threads × 64): IOPS, and the 99th percentile of latency.

One run gives both numbers of a direction. Each percentile is of one repetition, never pooled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

from agent.bench.disk_rig import GIB, Rig, read_job, taken
from agent.bench.neighbours import Between
from agent.host import Ran
from agent.model import Block, Depth, Result
from agent.reading import Missing, Reading
from agent.text import Text, msg
from agent.tools.fio import Direction

JOBS, DEPTH_EACH = 4, 64
SECONDS: Mapping[Depth, int] = {"quick": 2, "standard": 6, "deeper": 6}
WRITE_CAP: Mapping[Depth, int] = {"quick": 1 * GIB, "standard": 8 * GIB, "deeper": 16 * GIB}
DIRECTIONS = {"read": ("read_iops", "read_p99"), "write": ("write_iops", "write_p99")}


def measure(rig: Rig, wanted: Mapping[str, str]) -> Mapping[str, Result]:
    """``wanted`` maps ``read_iops`` (/s), ``read_p99`` (ms) and the same of ``write`` to keys."""
    if rig.engine == "dd":
        return dict.fromkeys(wanted.values(), Missing("no-tool", msg("fio is not installed"), (), msg("install fio")))
    results: dict[str, Result] = {}
    for direction, names in DIRECTIONS.items():
        keys = {n: wanted[n] for n in names if n in wanted}
        if keys:
            results.update(_direction(rig, direction, keys))
    return results


def _direction(rig: Rig, direction: str, keys: Mapping[str, str]) -> Mapping[str, Result]:
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
    results: dict[str, Result] = {}
    iops, p99 = DIRECTIONS[direction]
    note = (msg("4 KiB, {jobs} threads with {depth} requests each in flight", jobs=JOBS, depth=DEPTH_EACH),)
    if iops in keys:
        results[keys[iops]] = _iops(rig, parts, runs, window, note, read)
    if p99 in keys:
        results[keys[p99]] = _p99(rig, parts, runs, window, note, read)
    return results


def _iops(
    rig: Rig,
    parts: list[Direction],
    runs: list[Ran],
    window: Reading[Between],
    note: tuple[Text, ...],
    read: Optional[float],
) -> Result:
    known = [p.iops for p in parts if p.iops is not None]
    if len(known) < len(parts):
        return Missing("unparsable", msg("fio reports no IOPS"), runs[0].cited)
    blocks = [Block(v, conditions=_conditions(p)) for v, p in zip(known, parts)]
    return taken(rig, blocks, runs, "/s", window, notes=note, read=read)


def _p99(
    rig: Rig,
    parts: list[Direction],
    runs: list[Ran],
    window: Reading[Between],
    note: tuple[Text, ...],
    read: Optional[float],
) -> Result:
    known = [p.lat_ns_p99 for p in parts if p.lat_ns_p99 is not None]
    if len(known) < len(parts):
        return Missing("unparsable", msg("fio reports no 99th percentile"), runs[0].cited)
    blocks = [Block(v / 1e6, conditions=_conditions(p)) for v, p in zip(known, parts)]
    return taken(rig, blocks, runs, "ms", window, statistic="percentile per repetition", notes=note, read=read)


def _conditions(part: Direction) -> dict[str, object]:
    return {"tool": "fio", "lat_ns_p50": part.lat_ns_p50, "lat_ns_p99": part.lat_ns_p99, "iops": part.iops}


def _job(rig: Rig, direction: str, number: int) -> Ran:
    seconds = SECONDS[rig.look.depth]
    if direction == "read":
        extra = ["--size=100%", "--time_based", f"--runtime={seconds}"]
    else:
        each = WRITE_CAP[rig.look.depth] // rig.repetitions // JOBS
        # Over blocks that exist: allocation would be measured otherwise.
        extra = ["--size=100%", f"--io_size={each}", f"--runtime={seconds}", "--overwrite=1"]
    threads = JOBS if rig.engine != "psync" else JOBS * 4
    return rig.fio(
        f"rand{direction}.{number}",
        seconds,
        rw=f"rand{direction}",
        bs="4k",
        iodepth=DEPTH_EACH,
        numjobs=threads,
        extra=["--norandommap", "--randrepeat=0", *extra],
    )
