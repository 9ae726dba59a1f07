"""What all measurements of one path share: the folder, the engine, the sizes, and a way to run one fio job.

O_DIRECT always: a file system that refuses it is said so, never silently measured through the page cache.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional, Union

from agent import stats
from agent.bench import neighbours
from agent.bench.neighbours import Between, Counters
from agent.bench.step import Look
from agent.facts._read import remedy
from agent.host import TEST_FILE, Host, Ran, Scratch
from agent.model import Attempt, Block, Depth, Result, Statistic, Taken, Void
from agent.quantity import format_quantity
from agent.reading import Missing, MissingKind, Reading
from agent.text import Text, msg
from agent.tools import ParseError, fio

MIB = 1 << 20
GIB = 1 << 30
ENGINES = ("io_uring", "libaio", "psync")
FILE_MAX = 8 * GIB
FILE_MIN = 64 * MIB
FREE_SHARE = 0.5  # of the free space at most: somebody else may need the rest
# A read needs blocks that were written; laying out the file takes at most this long.
LAYOUT_S = 8
FILE_BYTES: Mapping[Depth, int] = {"quick": 2 * GIB, "standard": FILE_MAX, "deeper": FILE_MAX}
_DIRECT_GRANT = msg("name a path on a file system that supports O_DIRECT: buffered I/O would measure memory")


# These take O_DIRECT and use a cache all the same (OpenZFS before 2.3; FUSE leaves it to its daemon).
_IGNORE_DIRECT = ("zfs", "fuse")
CACHED = "page-cache"
ON_DISK = 0.9  # of what was read or written at least, or the rest was memory's


@dataclass(frozen=True)
class Ground:
    """What lies under a path as far as the facts tell: the device whose counters tell of it, the file system.

    ``remote``: what is read comes over the network; without a device no disk of this machine counts it.
    """

    device: Optional[str] = None
    fstype: str = ""
    remote: bool = False


UNKNOWN_GROUND = Ground()


@dataclass(frozen=True)
class Told:
    """What the runs say they moved: ``direction`` is ``read`` or ``write``."""

    direction: str
    bytes: float


@dataclass(frozen=True)
class Rig:
    """One execution at one path. ``engine`` is one of ENGINES, or ``dd`` where there is no fio."""

    host: Host
    look: Look
    probe: str
    scratch: Scratch
    engine: str
    file_bytes: int
    ground: Ground = UNKNOWN_GROUND
    notes: tuple[Text, ...] = ()

    def begin(self, name: str) -> Reading[Counters]:
        """What the machine has moved so far, before the runs of one kind."""
        return neighbours.look(self.host, f"{self.probe}.{name}.neighbours.before")

    def since(self, name: str, before: Reading[Counters]) -> Reading[Between]:
        """What it has moved meanwhile, after them."""
        after = neighbours.look(self.host, f"{self.probe}.{name}.neighbours.after")
        return neighbours.between(before, after)

    @property
    def file(self) -> str:
        """The test file that reads and writes share."""
        return f"{self.scratch.path}/seq{TEST_FILE}"

    @property
    def repetitions(self) -> int:
        """How many separate runs of a tool make one attempt."""
        return repetitions(self.look.depth)

    @property
    def weak(self) -> Optional[Void]:
        """Why this engine may keep a promise but not break it."""
        if self.engine == "dd":
            text = msg("dd has one request in flight: a fast disk needs more; install fio to decide")
            return Void("tool-too-weak", text)
        if self.engine == "psync":
            text = msg("each thread has one request in flight here (no io_uring, no libaio): too few for a fast disk")
            return Void("tool-too-weak", text)
        return None

    def fio(self, name: str, seconds: float, **job: Any) -> Ran:
        """One fio job on the shared file; ``job`` goes to :func:`agent.tools.fio.job_argv`."""
        extra = ["--thread", *job.pop("extra", ())]
        argv = fio.job_argv(
            file=self.file, size=self.file_bytes, runtime_s=0, engine=self.engine, direct=True, extra=extra, **job
        )
        return self.host.run(f"{self.probe}.{name}", argv, timeout_s=seconds + 60)


def repetitions(depth: Depth) -> int:
    """Six, or eleven for the second look at greater depth."""
    return stats.REPETITIONS_DEEPER if depth == "deeper" else stats.REPETITIONS


def prepare(host: Host, look: Look, probe: str, scratch: Scratch, ground: Ground) -> Union[Rig, Missing]:
    """Sizes and engine for one execution, or why nothing can be measured here."""
    size = min(FILE_BYTES[look.depth], int(scratch.free * FREE_SHARE)) // MIB * MIB
    if size < FILE_MIN:
        free = format_quantity(float(scratch.free), "B")
        return Missing(
            "failed",
            msg("only {free} are free: too little for a test file of {size}", free=free, size="64 MiB"),
            (scratch.evidence,),
            msg("free at least 128 MiB on the path"),
        )
    return _with_engine(Rig(host, look, probe, scratch, "", size, ground))


def _with_engine(rig: Rig) -> Union[Rig, Missing]:
    """The first engine that writes one block here; the reasons why the better ones don't are kept as notes."""
    refusals: list[Text] = []
    last: Optional[Missing] = None
    for engine in ENGINES:
        ran = rig.host.run(
            f"{rig.probe}.engine.{engine}",
            fio.job_argv(
                file=f"{rig.scratch.path}/engine{TEST_FILE}",
                rw="write",
                bs="1M",
                iodepth=1,
                size=MIB,
                runtime_s=0,
                engine=engine,
                direct=True,
                extra=["--thread", "--fallocate=none"],
            ),
            timeout_s=20,
        )
        full = _full(ran)
        if full is not None:
            return full
        last = _trial_problem(ran, engine)
        if last is None:
            why = (msg("{engine} is used: {why}", engine=engine, why=tuple(refusals)),) if refusals else ()
            return replace(rig, engine=engine, notes=(*rig.notes, *why))
        if last.kind in ("no-tool", "denied"):
            note = msg("{why}: measured with dd, one request at a time", why=last.detail)
            return replace(rig, engine="dd", notes=(*rig.notes, note))
        refusals.append(last.detail)
    return last if last is not None else rig


def _full(ran: Ran) -> Optional[Missing]:
    """Not even one block fits: no other engine will do."""
    said = f"{ran.stdout}\n{ran.stderr}"
    return no_space(ran, _first_error(said)) if re.search(fio.NO_SPACE, said) else None


def _trial_problem(ran: Ran, engine: str) -> Optional[Missing]:
    """Why an engine cannot be used. One block is too short for numbers, but not for an error."""
    missing = ran.missing()
    if missing is not None:
        return missing
    said = f"{ran.stdout}\n{ran.stderr}"
    # A bare EINVAL may also be of an engine that this kernel knows in part only, but not with plain writes.
    if "O_DIRECT" in said or (engine == "psync" and "Invalid argument" in said):
        return _indirect(ran)
    if ran.exit != 0:
        return Missing("failed", msg("fio cannot use this engine here: {error}", error=_first_error(said)), ran.cited)
    return None


def _first_error(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if "fio:" in line or "err" in line.lower()]
    return (lines or ["no error text"])[0][:160]


def layout(rig: Rig) -> Optional[Missing]:
    """Write the shared file once, for at most :data:`LAYOUT_S`, so that reads meet written blocks.

    Not preallocated: unwritten extents would be read without the disk. Reads then use ``--size=100%`` of it.
    """
    ran = rig.fio(
        "layout",
        LAYOUT_S,
        rw="write",
        bs="1M",
        iodepth=32,
        extra=[f"--io_size={rig.file_bytes}", f"--runtime={LAYOUT_S}", "--fallocate=none", "--end_fsync=1"],
    )
    return read_job(ran, "write")[1]


def read_job(ran: Ran, direction: str) -> tuple[Optional[fio.Direction], Optional[Missing]]:
    """The direction of fio's (one, grouped) job, or why there is none."""
    missing = ran.missing()
    if missing is not None:
        return None, missing
    try:
        job = fio.parse(ran.stdout).jobs[0]
    except ParseError as error:
        return None, failure(error, ran, "fio")
    part: fio.Direction = getattr(job, direction)
    if part.bytes_per_s is None or not part.seconds:
        return None, Missing("unparsable", msg("fio reports no I/O in this direction"), ran.cited)
    return part, None


def failure(error: ParseError, ran: Ran, tool: str) -> Missing:
    """Why a run of ``fio`` or ``dd`` gave no number, from what it printed."""
    if error.kind == "enospc":
        return no_space(ran, str(error))
    if error.kind in ("direct_unsupported", "invalid_argument"):
        return _indirect(ran)
    if error.kind == "tool_missing":
        return Missing("no-tool", msg("{tool} is not installed", tool=tool), ran.cited, remedy(error.kind, tool))
    kind: MissingKind = "denied" if error.kind == "denied" else "failed"
    return Missing(kind, msg("{tool}: {error}", tool=tool, error=str(error)), ran.cited, remedy(error.kind, tool))


def _indirect(ran: Ran) -> Missing:
    return Missing("unsupported", msg("the file system refuses O_DIRECT"), ran.cited, _DIRECT_GRANT)


def no_space(ran: Ran, error: str) -> Missing:
    """The space that this user may fill is too small for what was to be written."""
    text = msg("the space, or this user's quota, ran out while it was measured: {error}", error=error)
    return Missing("failed", text, ran.cited, msg("free space, or a larger quota"))


def series_of(ran: Ran, seconds: float) -> tuple[float, ...]:
    """Bytes per second of each whole second of the first job, which was to end after ``seconds``."""
    if not ran.has("series_bw.1.log"):
        return ()
    samples = fio.parse_bw_log(ran.bytes("series_bw.1.log").decode("utf-8", "replace"))
    return fio.per_second(samples, seconds)


def taken(
    rig: Rig,
    blocks: Sequence[Block],
    runs: Sequence[Ran],
    unit: str,
    window: Reading[Between],
    *,
    statistic: Statistic = "median of repetitions",
    notes: Sequence[Text] = (),
    told: Optional[Told] = None,
    journal: bool = False,
) -> Taken:
    """One attempt of this rig, with what others did meanwhile.

    ``told``: what the runs say they moved: the number is void unless a disk moved as much. ``journal``: see
    :func:`agent.bench.neighbours.on_disk`.
    """
    attempt = Attempt(
        blocks=tuple(blocks),
        depth=rig.look.depth,
        started_at=runs[0].started_at,
        evidence=tuple(e for r in runs for e in r.cited),
        weak=rig.weak,
        notes=(*rig.notes, *notes),
        reproduce=runs[0].argv,
        void=None if told is None else _in_memory(rig.ground, window, told),
    )
    return Taken(neighbours.told(attempt, neighbours.on_disk(window, rig.ground.device, journal)), unit, statistic)


def _in_memory(ground: Ground, window: Reading[Between], told: Told) -> Optional[Void]:
    """Why what was moved did not come from a disk, or reach it, as far as the kernel's counters tell."""
    if ground.remote and ground.device is None:
        return None
    reads = told.direction == "read"
    counted = _counted(ground, window, reads)
    if counted is None:
        return _uncounted(ground, reads)
    if counted >= ON_DISK * told.bytes:
        return None
    sizes = {"told": format_quantity(told.bytes, "B"), "disk": format_quantity(float(counted), "B")}
    if reads:
        text = msg("of {told} that were read the disk delivered {disk}: the rest came from memory", **sizes)
    else:
        text = msg("of {told} that were written {disk} reached the disk: the rest was kept back or shrunk", **sizes)
    return Void(CACHED, text)


def _counted(ground: Ground, window: Reading[Between], reads: bool) -> Optional[int]:
    """Bytes that the disk moved; where it does not count, what our own processes had storage read for them.

    Of their writes they count what they dirtied, which tells nothing of a disk; a cache of its own (ZFS) counts for
    nobody.
    """
    if isinstance(window, Missing):
        return None
    moved = window.value.on(ground.device)
    if moved is not None:
        return moved[0 if reads else 1]
    ours = window.value.agent
    return ours[0] if ours is not None and reads and not ground.fstype.startswith(_IGNORE_DIRECT) else None


def _uncounted(ground: Ground, reads: bool) -> Optional[Void]:
    """Nothing counts: O_DIRECT is believed, but not of those that are known to use a cache all the same."""
    if not ground.fstype.startswith(_IGNORE_DIRECT):
        return None
    if reads:
        text = msg("{fs} reads through a cache, and no counter shows whether a disk was read", fs=ground.fstype)
    else:
        text = msg("{fs} writes through a cache, and no counter shows whether a disk wrote it", fs=ground.fstype)
    return Void(CACHED, text)


# What one kind of measurement does with a rig: a result for each of the keys it was given.
Measure = Callable[[Rig, Mapping[str, str]], Mapping[str, Result]]
