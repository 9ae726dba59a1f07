"""One path of the contract: its measurements in order, in one folder, on one test file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Callable, Optional

from agent.bench import disk_files, disk_random, disk_sequential, disk_sustained
from agent.bench.disk_rig import FILE_BYTES, LAYOUT_S, UNKNOWN_GROUND, Ground, Measure, Rig, prepare, repetitions
from agent.bench.step import Cost, Look, Step
from agent.host import Host
from agent.model import Depth, Result
from agent.reading import Missing

ENGINE_S = 1.0  # finding the engine
FIO_S = 0.35  # fio's start and end, beside its run time
Promised = Mapping[str, float]  # clause name → its value: B/s or /s


@dataclass(frozen=True)
class Task:
    """One kind of measurement: the clause names it serves, whether it reads the shared file, and its cost.

    ``seconds``: on a disk that does what is promised. A write ends with its bytes, so a faster disk is done sooner.
    """

    names: tuple[str, ...]
    measure: Measure
    reads_file: bool
    seconds: Callable[[Depth, Promised], float]
    written: Callable[[Depth, Promised], int]


def _sequential(depth: Depth, promised: Promised) -> float:
    longest, each = disk_sequential.SECONDS[depth], disk_sequential.WRITE_CAP[depth] / repetitions(depth)
    took = {"write": _until(longest, each, promised.get("write")), "read": longest}
    return repetitions(depth) * sum(took[name] + FIO_S for name in took if name in promised)


def _random(depth: Depth, promised: Promised) -> float:
    longest, each = disk_random.SECONDS[depth], disk_random.WRITE_CAP[depth] / repetitions(depth)
    rate = promised.get("write_iops", 0.0) * disk_random.BLOCK_BYTES
    took = dict.fromkeys(disk_random.NAMES, float(longest)) | {"write_iops": _until(longest, each, rate)}
    asked = [name for name in took if name in promised]
    writes = not disk_random.WRITES.isdisjoint(asked)
    mixed = _until(disk_random.MIXED_S, disk_random.MIXED_CAP, rate) + FIO_S if writes else 0.0
    return mixed + repetitions(depth) * sum(took[name] + FIO_S for name in asked)


def _random_written(depth: Depth, promised: Promised) -> int:
    writes = len(disk_random.WRITES & promised.keys())
    return writes * disk_random.WRITE_CAP[depth] + (disk_random.MIXED_CAP if writes else 0)


def _checkpoint(depth: Depth, promised: Promised) -> float:
    # Written and read back.
    took = _until(1.0 if depth == "quick" else 2.5, 2 * disk_files.CHECKPOINT_BYTES[depth], promised["checkpoint"])
    return repetitions(depth) * took


def _small_files(depth: Depth, promised: Promised) -> float:
    # Made and read.
    took = _until(1.5 if depth == "quick" else 4.0, 2 * disk_files.SMALL_FILES[depth], promised["small_files"])
    return repetitions(depth) * took


def _sustained(depth: Depth, promised: Promised) -> float:
    return _until(disk_sustained.SECONDS[depth], disk_sustained.WRITE_CAP[depth], promised.get("write"))


def _until(longest: float, amount: float, rate: Optional[float]) -> float:
    return min(longest, amount / rate) if rate else longest


# Writes come before reads of the same file, and what wears the disk most comes last.
TASKS = (
    Task(
        ("write", "read"),
        disk_sequential.measure,
        True,
        _sequential,
        lambda depth, _: disk_sequential.WRITE_CAP[depth],
    ),
    Task(
        ("read_iops", "read_p99", "write_iops", "write_p99"),
        disk_random.measure,
        True,
        _random,
        _random_written,
    ),
    Task(
        ("checkpoint",),
        disk_files.checkpoint,
        False,
        _checkpoint,
        lambda depth, _: disk_files.CHECKPOINT_BYTES[depth] * repetitions(depth),
    ),
    Task(
        ("small_files",),
        disk_files.small_files,
        False,
        _small_files,
        lambda depth, _: disk_files.SMALL_FILES[depth] * disk_files.SMALL_BYTES * repetitions(depth),
    ),
    Task(
        ("sustained",),
        disk_sustained.measure,
        False,
        _sustained,
        lambda depth, _: disk_sustained.WRITE_CAP[depth],
    ),
)
MEASURED = frozenset(n for t in TASKS for n in t.names)
_READS_ONLY = frozenset({"read", "read_iops", "read_p99"})


def step(
    path: str,
    keys: Mapping[str, str],
    ground: Ground = UNKNOWN_GROUND,
    shut: bool = False,
    promised: Optional[Promised] = None,
) -> Step:
    """The step for one path; ``keys`` maps clause names (see :data:`MEASURED`) to measurement keys.

    ``promised``: the values of those clauses, for the plan's minutes; 0 or absent where none is known.

    ``shut``: the path is known not to be there, or to be closed to this user: the step costs nothing and says so.
    """
    return Step(
        name=f"disk[{path}]",
        keys=tuple(keys.values()),
        load="disk",
        cost=lambda depth: Cost(0.0) if shut else _cost({n: (promised or {}).get(n, 0.0) for n in keys}, depth),
        execute=lambda host, look: _execute(host, look, path, keys, ground),
        settle_s=5.0,
    )


def _cost(promised: Promised, depth: Depth) -> Cost:
    seconds, written = ENGINE_S, 0
    if _needs_layout(promised):
        # Written about half as fast as it is then read.
        seconds += _until(LAYOUT_S, 2 * FILE_BYTES[depth], promised.get("read"))
        written += FILE_BYTES[depth]
    for task in TASKS:
        asked = promised.keys() & task.names
        if asked:
            seconds += task.seconds(depth, promised)
            written += 0 if _READS_ONLY.issuperset(asked) else task.written(depth, promised)
    return Cost(seconds, written=written)


def _needs_layout(keys: Iterable[str]) -> bool:
    asked = set(keys)
    return "write" not in asked and any(n in asked for t in TASKS if t.reads_file for n in t.names)


def _execute(host: Host, look: Look, path: str, keys: Mapping[str, str], ground: Ground) -> Mapping[str, Result]:
    wanted = {name: key for name, key in keys.items() if look.wants(key)}
    probe = f"disk[{path}].{look.number}"
    scratch = host.scratch(f"{probe}.scratch", path)
    if isinstance(scratch, Missing):
        return dict.fromkeys(wanted.values(), scratch)
    try:
        rig = prepare(host, look, probe, scratch, ground)
        if isinstance(rig, Missing):
            return dict.fromkeys(wanted.values(), rig)
        unlaid = disk_sequential.lay_out(rig) if _needs_layout(wanted) else None
        if unlaid is not None:
            return dict.fromkeys(wanted.values(), unlaid)
        return _measure(rig, wanted)
    finally:
        host.clear(scratch)


def _measure(rig: Rig, wanted: Mapping[str, str]) -> Mapping[str, Result]:
    results: dict[str, Result] = {}
    for task in TASKS:
        mine = {n: wanted[n] for n in task.names if n in wanted}
        if mine:
            results.update(task.measure(rig, mine))
    return results
