"""One path of the contract: its measurements in order, in one folder, on one test file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Callable

from agent.bench import disk_files, disk_random, disk_sequential, disk_sustained
from agent.bench.disk_rig import FILE_BYTES, LAYOUT_S, UNKNOWN_GROUND, Ground, Measure, Rig, prepare, repetitions
from agent.bench.step import Cost, Look, Step
from agent.host import Host
from agent.model import Depth, Result
from agent.reading import Missing


@dataclass(frozen=True)
class Task:
    """One kind of measurement: the clause names it serves, whether it reads the shared file, and its cost."""

    names: tuple[str, ...]
    measure: Measure
    reads_file: bool
    seconds: Callable[[Depth, int], float]
    written: Callable[[Depth], int]


def _each(seconds: Mapping[Depth, int]) -> Callable[[Depth, int], float]:
    return lambda depth, names: repetitions(depth) * (seconds[depth] + 0.5) * names


# Writes come before reads of the same file, and what wears the disk most comes last.
TASKS = (
    Task(
        ("write", "read"),
        disk_sequential.measure,
        True,
        _each(disk_sequential.SECONDS),
        lambda depth: disk_sequential.WRITE_CAP[depth],
    ),
    Task(
        ("read_iops", "read_p99", "write_iops", "write_p99"),
        disk_random.measure,
        True,
        lambda depth, names: (
            repetitions(depth) * (disk_random.SECONDS[depth] + 0.5) * min(names, 2) + disk_random.MIXED_S
        ),
        lambda depth: disk_random.WRITE_CAP[depth] + disk_random.MIXED_CAP,
    ),
    Task(
        ("checkpoint",),
        disk_files.checkpoint,
        False,
        lambda depth, _: repetitions(depth) * (1.0 if depth == "quick" else 2.5),
        lambda depth: disk_files.CHECKPOINT_BYTES[depth] * repetitions(depth),
    ),
    Task(
        ("small_files",),
        disk_files.small_files,
        False,
        lambda depth, _: repetitions(depth) * (1.5 if depth == "quick" else 4.0),
        lambda depth: disk_files.SMALL_FILES[depth] * disk_files.SMALL_BYTES * repetitions(depth),
    ),
    Task(
        ("sustained",),
        disk_sustained.measure,
        False,
        lambda depth, _: float(disk_sustained.SECONDS[depth]),
        lambda depth: disk_sustained.WRITE_CAP[depth],
    ),
)
MEASURED = frozenset(n for t in TASKS for n in t.names)
_READS_ONLY = frozenset({"read", "read_iops", "read_p99"})


def step(path: str, keys: Mapping[str, str], ground: Ground = UNKNOWN_GROUND, shut: bool = False) -> Step:
    """The step for one path; ``keys`` maps clause names (see :data:`MEASURED`) to measurement keys.

    ``shut``: the path is known not to be there, or to be closed to this user: the step costs nothing and says so.
    """
    return Step(
        name=f"disk[{path}]",
        keys=tuple(keys.values()),
        load="disk",
        cost=lambda depth: Cost(0.0) if shut else _cost(keys, depth),
        execute=lambda host, look: _execute(host, look, path, keys, ground),
        settle_s=5.0,
    )


def _cost(keys: Mapping[str, str], depth: Depth) -> Cost:
    # Finding the engine, and laying out the file where no sequential write does it.
    seconds, written = 3.0, 0
    if _needs_layout(keys):
        seconds, written = seconds + LAYOUT_S, FILE_BYTES[depth]
    for task in TASKS:
        names = [n for n in task.names if n in keys]
        if names:
            seconds += task.seconds(depth, len(names))
            written += 0 if _READS_ONLY.issuperset(names) else task.written(depth)
    return Cost(seconds, written=written)


def _needs_layout(keys: Mapping[str, str]) -> bool:
    return "write" not in keys and any(n in keys for t in TASKS if t.reads_file for n in t.names)


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
