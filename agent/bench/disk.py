"""Sequential rates of one path: fio with O_DIRECT, or dd where there is no fio.

Writes first, reads back what was written: a read of blocks never written would be answered without the disk.
O_DIRECT always: a file system that refuses it is said so, never silently measured through the page cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Optional, Union

from agent import stats
from agent.bench.step import Cost, Look, Step
from agent.host import TEST_FILE, Host, Ran, Scratch
from agent.model import Attempt, Block, Depth, Result, Taken, Void
from agent.quantity import format_quantity
from agent.reading import Missing
from agent.text import Text, msg
from agent.tools import ParseError, dd, fio

MIB = 1 << 20
GIB = 1 << 30
ENGINES = ("io_uring", "libaio", "psync")
QUEUE_DEPTH = 32
SECONDS: Mapping[Depth, int] = {"quick": 2, "standard": 8, "deeper": 8}
# Bytes written by one execution: wear is money. Six repetitions share them.
WRITE_CAP: Mapping[Depth, int] = {"quick": 4 * GIB, "standard": 32 * GIB, "deeper": 64 * GIB}
FILE_MAX = 8 * GIB
FILE_MIN = 64 * MIB
FREE_SHARE = 0.5  # of the free space at most: somebody else may need the rest


@dataclass(frozen=True)
class Rig:
    """What the repetitions of one execution share."""

    host: Host
    probe: str
    scratch: Scratch
    engine: str  # one of ENGINES, or "dd"
    file_bytes: int
    seconds: int
    write_each: int
    notes: tuple[Text, ...] = ()

    @property
    def file(self) -> str:
        return f"{self.scratch.path}/seq{TEST_FILE}"


def sequential(path: str, keys: Mapping[str, str]) -> Step:
    """The step for one path; ``keys`` maps ``read`` and ``write`` to measurement keys (B/s), either may be absent."""

    def cost(depth: Depth) -> Cost:
        each = repetitions(depth) * (SECONDS[depth] + 1)
        # A read needs the file written first, and each execution finds its engine.
        seconds = each * len(keys) + (SECONDS[depth] if "write" not in keys else 0) + 4
        return Cost(seconds, written=WRITE_CAP[depth] if "write" in keys else min(FILE_MAX, WRITE_CAP[depth]))

    return Step(
        name=f"disk[{path}]",
        keys=tuple(keys.values()),
        load="disk",
        cost=cost,
        execute=lambda host, look: _execute(host, look, path, keys),
        settle_s=5.0,
    )


def repetitions(depth: Depth) -> int:
    """How many separate runs of fio make one attempt."""
    return stats.REPETITIONS_DEEPER if depth == "deeper" else stats.REPETITIONS


def _execute(host: Host, look: Look, path: str, keys: Mapping[str, str]) -> Mapping[str, Result]:
    wanted = {direction: key for direction, key in keys.items() if look.wants(key)}
    probe = f"disk[{path}].{look.number}"
    scratch = host.scratch(f"{probe}.scratch", path)
    if isinstance(scratch, Missing):
        return dict.fromkeys(wanted.values(), scratch)
    try:
        rig = _rig(host, look, probe, scratch)
        if isinstance(rig, Missing):
            return dict.fromkeys(wanted.values(), rig)
        return _measure(rig, look, wanted)
    finally:
        host.clear(scratch)


def _measure(rig: Rig, look: Look, wanted: Mapping[str, str]) -> Mapping[str, Result]:
    results: dict[str, Result] = {}
    if "write" in wanted:
        results[wanted["write"]] = _attempt(rig, look, "write", _write)
    if "read" in wanted:
        # The last write left the file; where there was none, it is laid out now.
        laid = results.get(wanted.get("write", "")) or _layout(rig)
        results[wanted["read"]] = laid if isinstance(laid, Missing) else _attempt(rig, look, "read", _read)
    return results


def _rig(host: Host, look: Look, probe: str, scratch: Scratch) -> Union[Rig, Missing]:
    count = repetitions(look.depth)
    cap = WRITE_CAP[look.depth]
    size = min(FILE_MAX, cap, int(scratch.free * FREE_SHARE)) // MIB * MIB
    if size < FILE_MIN:
        free = format_quantity(float(scratch.free), "B")
        return Missing(
            "failed",
            msg("only {free} are free: too little for a test file of {size}", free=free, size="64 MiB"),
            (scratch.evidence,),
            msg("free at least 128 MiB on the path"),
        )
    notes = (msg("at most {bytes} written, file of {size}", bytes=_gib(cap), size=_gib(size)),)
    rig = Rig(host, probe, scratch, "", size, SECONDS[look.depth], max(cap // count // MIB * MIB, MIB), notes)
    return _with_engine(rig)


def _gib(size: float) -> str:
    return f"{size / GIB:.3g} GiB"


def _with_engine(rig: Rig) -> Union[Rig, Missing]:
    """The first engine that writes one block here; the reasons why the better ones don't are kept as notes."""
    refusals: list[Text] = []
    last: Optional[Missing] = None
    for engine in ENGINES:
        trial = replace(rig, engine=engine)
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
        last = _trial_problem(ran)
        if last is None:
            weak = (msg("{engine} is used: {why}", engine=engine, why=tuple(refusals)),) if refusals else ()
            return replace(trial, notes=(*rig.notes, *weak))
        if last.kind in ("no-tool", "denied"):
            note = msg("{why}: measured with dd, one request at a time", why=last.detail)
            return replace(rig, engine="dd", notes=(*rig.notes, note))
        refusals.append(last.detail)
    return last if last is not None else rig


def _trial_problem(ran: Ran) -> Optional[Missing]:
    """Why an engine cannot be used. One block is too short for numbers, but not for an error."""
    missing = ran.missing()
    if missing is not None:
        return missing
    said = f"{ran.stdout}\n{ran.stderr}"
    if "O_DIRECT" in said or "Invalid argument" in said:
        return Missing("unsupported", msg("the file system refuses O_DIRECT"), ran.cited, _DIRECT_GRANT)
    if ran.exit != 0:
        return Missing("failed", msg("fio cannot use this engine here: {error}", error=_first_error(said)), ran.cited)
    return None


_DIRECT_GRANT = msg("name a path on a file system that supports O_DIRECT: buffered I/O would measure memory")


def _first_error(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if "fio:" in line or "err" in line.lower()]
    return (lines or ["no error text"])[0][:160]


def _layout(rig: Rig) -> Optional[Missing]:
    """Write the file once, so that reads meet written blocks."""
    return _block(rig, "write", _write(rig, "layout"))[1]


def _write(rig: Rig, name: str) -> Ran:
    if rig.engine == "dd":
        count = max(1, min(rig.write_each, rig.file_bytes) // MIB)
        argv = dd.write_argv(file=rig.file, block_bytes=MIB, count=count, direct=True)
    else:
        # Ends after the bytes or the seconds, whichever come first. Not preallocated: reading unwritten extents
        # would be answered without the disk.
        limits = [f"--io_size={rig.write_each}", f"--runtime={rig.seconds}", "--fallocate=none", "--end_fsync=1"]
        argv = _job(rig, "write", limits)
    return rig.host.run(f"{rig.probe}.{name}", argv, timeout_s=_deadline(rig))


def _read(rig: Rig, name: str) -> Ran:
    if rig.engine == "dd":
        count = max(1, min(rig.write_each, rig.file_bytes) // MIB)
        argv = dd.read_argv(file=rig.file, block_bytes=MIB, count=count, direct=True)
    else:
        argv = _job(rig, "read", ["--size=100%", "--time_based", f"--runtime={rig.seconds}"])
    return rig.host.run(f"{rig.probe}.{name}", argv, timeout_s=_deadline(rig))


def _deadline(rig: Rig) -> float:
    # dd cannot be bounded by time: a slow disk gets as long as 16 MiB/s need, then it is stopped.
    return rig.seconds + 60 if rig.engine != "dd" else max(60, min(rig.write_each, rig.file_bytes) / (16 * MIB))


def _job(rig: Rig, rw: str, extra: list[str]) -> list[str]:
    return fio.job_argv(
        file=rig.file,
        rw=rw,
        bs="1M",
        iodepth=QUEUE_DEPTH,
        size=rig.file_bytes,
        runtime_s=0,
        engine=rig.engine,
        direct=True,
        bw_log="{evidence}/series",
        extra=["--thread", *extra],
    )


def _attempt(rig: Rig, look: Look, direction: str, job: Callable[[Rig, str], Ran]) -> Result:
    blocks: list[Block] = []
    runs: list[Ran] = []
    for number in range(1, repetitions(look.depth) + 1):
        ran = job(rig, f"{direction}.{number}")
        runs.append(ran)
        block, problem = _block(rig, direction, ran)
        if block is None:
            return problem or Missing("failed", msg("no number"), ran.cited)
        blocks.append(block)
    attempt = Attempt(
        blocks=tuple(blocks),
        depth=look.depth,
        started_at=runs[0].started_at,
        evidence=tuple(e for r in runs for e in r.cited),
        weak=_weakness(rig),
        notes=(*rig.notes, *_falls(blocks)),
        reproduce=runs[0].argv,
    )
    return Taken(attempt, "B/s", "median of repetitions")


def _weakness(rig: Rig) -> Optional[Void]:
    if rig.engine == "dd":
        return Void("tool-too-weak", msg("dd has one request in flight: a fast disk needs more; install fio to decide"))
    if rig.engine == "psync":
        text = msg("only one request in flight is possible here (no io_uring, no libaio): too few to judge a fast disk")
        return Void("tool-too-weak", text)
    return None


def _block(rig: Rig, direction: str, ran: Ran) -> tuple[Optional[Block], Optional[Missing]]:
    missing = ran.missing()
    if missing is not None:
        return None, missing
    try:
        if rig.engine == "dd":
            return _dd_block(ran), None
        return _fio_block(ran, direction), None
    except ParseError as error:
        return None, Missing(
            "denied" if error.kind == "denied" else "failed",
            msg("{tool}: {error}", tool=ran.argv[0], error=str(error)),
            ran.cited,
        )


def _dd_block(ran: Ran) -> Block:
    result = dd.parse(ran.stderr)
    if result.bytes_per_s is None or result.seconds is None or result.bytes is None:
        raise ParseError("unparsable", "dd printed no rate")
    conditions = {"tool": "dd", "bytes": result.bytes, "seconds": result.seconds}
    return Block(result.bytes / result.seconds, conditions=conditions)


def _fio_block(ran: Ran, direction: str) -> Block:
    result = fio.parse(ran.stdout)
    job = result.jobs[0]
    part = job.read if direction == "read" else job.write
    if part.bytes_per_s is None or part.seconds is None:
        raise ParseError("unparsable", "fio reports no I/O in this direction")
    series = _series(ran)
    conditions = {
        "tool": result.fio_version,
        "bytes": part.bytes_per_s * part.seconds,
        "seconds": part.seconds,
        "lat_ns_p99": part.lat_ns_p99,
    }
    return Block(part.bytes_per_s, samples=series, conditions=conditions)


def _series(ran: Ran) -> tuple[float, ...]:
    """Bytes per second of each whole second, summed over fio's jobs (fio loses the last, incomplete one)."""
    if not ran.has("series_bw.1.log"):
        return ()
    return tuple(s.bytes_per_s for s in fio.parse_bw_log(ran.bytes("series_bw.1.log").decode("utf-8", "replace")))


def _falls(blocks: list[Block]) -> tuple[Text, ...]:
    """Lasting falls: within repetitions, else in the series laid end to end, with their time and both levels."""
    falls = [f for f in (stats.lasting_fall(b.samples) for b in blocks) if f is not None]
    whole = stats.lasting_fall([s for b in blocks for s in b.samples])
    if not falls and whole is None:
        return ()
    fall = falls[0] if falls else whole
    assert fall is not None
    before, after = format_quantity(fall.before, "B/s"), format_quantity(fall.after, "B/s")
    if falls:
        args = {"s": fall.at_s, "before": before, "after": after, "n": len(falls), "m": len(blocks)}
        return (msg("the rate falls {s} s into a repetition from {before} to {after}, in {n} of {m}", **args),)
    return (
        msg("the rate falls after {s} s of load from {before} to {after}", s=fall.at_s, before=before, after=after),
    )
