"""Sequential rates: 1 MiB at queue depth 32 with fio, or dd where there is no fio."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Optional, Union

from agent import probes, stats
from agent.bench.disk_rig import GIB, MIB, Rig, Told, failure, layout, read_job, series_of, taken
from agent.host import Ran
from agent.model import Block, Depth, Result
from agent.quantity import format_quantity
from agent.reading import Missing
from agent.text import Text, msg
from agent.tools import ParseError, dd

QUEUE_DEPTH = 32
# The command's clock starts when the data is ready: a first line says so.
_FED = '"$1" -I "$2" | { read -r ready; shift 2; exec "$@"; }'
SECONDS: Mapping[Depth, int] = {"quick": 1, "standard": 8, "deeper": 8}
# Bytes written by one execution: wear is money. The repetitions share them; what is written in under 0.1 s is no rate.
WRITE_CAP: Mapping[Depth, int] = {"quick": 8 * GIB, "standard": 32 * GIB, "deeper": 64 * GIB}


def measure(rig: Rig, wanted: Mapping[str, str]) -> Mapping[str, Result]:
    """``wanted`` maps ``write`` and ``read`` to keys; rates in B/s. Writes first: reads need what they leave."""
    results: dict[str, Result] = {}
    for name in ("write", "read"):
        if name in wanted:
            results[wanted[name]] = _attempt(rig, name)
    return results


def lay_out(rig: Rig) -> Optional[Missing]:
    """The file that the reads need, where no write leaves one."""
    return _problem(rig, _write(rig, "layout")) if rig.engine == "dd" else layout(rig)


def _attempt(rig: Rig, direction: str) -> Result:
    blocks: list[Block] = []
    runs: list[Ran] = []
    before = rig.begin(direction)
    for number in range(1, rig.repetitions + 1):
        ran = (_write if direction == "write" else _read)(rig, f"{direction}.{number}")
        runs.append(ran)
        block = _dd_block(ran) if rig.engine == "dd" else _fio_block(ran, direction, SECONDS[rig.look.depth])
        if isinstance(block, Missing):
            return block
        blocks.append(block)
    window = rig.since(direction, before)
    told = Told(direction, sum(b.conditions["bytes"] for b in blocks))
    return taken(rig, blocks, runs, "B/s", window, notes=(*_cap(rig, direction), *falls(blocks)), told=told)


def _cap(rig: Rig, direction: str) -> tuple[Text, ...]:
    size = _gib(rig.file_bytes)
    if direction == "read":
        return (msg("file of {size}", size=size),)
    return (msg("at most {bytes} written, file of {size}", bytes=_gib(WRITE_CAP[rig.look.depth]), size=size),)


def _gib(size: float) -> str:
    return f"{size / GIB:.3g} GiB"


def _write_each(rig: Rig) -> int:
    return max(WRITE_CAP[rig.look.depth] // rig.repetitions // MIB * MIB, MIB)


def _dd_count(rig: Rig) -> int:
    return max(1, min(_write_each(rig), rig.file_bytes) // MIB)


def _write(rig: Rig, name: str) -> Ran:
    if rig.engine == "dd":
        argv = dd.write_argv(file=rig.file, block_bytes=MIB, count=_dd_count(rig), direct=True)
        return _fed(rig, name, argv)
    seconds = SECONDS[rig.look.depth]
    # Ends after the bytes or the seconds, whichever come first.
    limits = [f"--io_size={_write_each(rig)}", f"--runtime={seconds}", "--fallocate=none", "--end_fsync=1"]
    return rig.fio(name, seconds, rw="write", bs="1M", iodepth=QUEUE_DEPTH, bw_log="{evidence}/series", extra=limits)


def _read(rig: Rig, name: str) -> Ran:
    if rig.engine == "dd":
        argv = dd.read_argv(file=rig.file, block_bytes=MIB, count=_dd_count(rig), direct=True)
        return rig.host.run(f"{rig.probe}.{name}", argv, _dd_deadline(rig))
    seconds = SECONDS[rig.look.depth]
    limits = ["--size=100%", "--time_based", f"--runtime={seconds}"]
    return rig.fio(name, seconds, rw="read", bs="1M", iodepth=QUEUE_DEPTH, bw_log="{evidence}/series", extra=limits)


def _fed(rig: Rig, name: str, argv: Sequence[str]) -> Ran:
    """A command with data on its standard input that cannot be shrunk."""
    command = ["sh", "-c", _FED, "sh", rig.host.python(), "{evidence}/feed_probe.py", *argv]
    inputs = {"feed_probe.py": probes.source("feed_probe")}
    return rig.host.run(f"{rig.probe}.{name}", command, _dd_deadline(rig), inputs=inputs)


def _dd_deadline(rig: Rig) -> float:
    # dd cannot be bounded by time: a slow disk gets as long as 16 MiB/s need, then it is stopped.
    return max(60.0, _dd_count(rig) / 16)


def _problem(rig: Rig, ran: Ran) -> Optional[Missing]:
    block = _dd_block(ran) if rig.engine == "dd" else _fio_block(ran, "write", SECONDS[rig.look.depth])
    return block if isinstance(block, Missing) else None


def _dd_block(ran: Ran) -> Union[Block, Missing]:
    missing = ran.missing()
    if missing is not None:
        return missing
    try:
        result = dd.parse(ran.stderr)
    except ParseError as error:
        return failure(error, ran, "dd")
    if result.seconds is None or result.bytes is None or result.bytes_per_s is None:
        return Missing("unparsable", msg("dd printed no rate"), ran.cited)
    conditions = {"tool": "dd", "bytes": result.bytes, "seconds": result.seconds}
    return Block(result.bytes / result.seconds, conditions=conditions)


def _fio_block(ran: Ran, direction: str, seconds: float) -> Union[Block, Missing]:
    part, missing = read_job(ran, direction)
    if part is None or part.bytes_per_s is None or part.seconds is None:
        return missing or Missing("unparsable", msg("fio reports no I/O in this direction"), ran.cited)
    conditions = {
        "tool": "fio",
        "bytes": part.bytes_per_s * part.seconds,
        "seconds": part.seconds,
        "lat_ns_p50": part.lat_ns_p50,
        "lat_ns_p99": part.lat_ns_p99,
    }
    return Block(part.bytes_per_s, samples=series_of(ran, seconds), conditions=conditions)


def falls(blocks: Sequence[Block]) -> tuple[Text, ...]:
    """Lasting falls: within repetitions, else in the series laid end to end, with their time and both levels."""
    within = [f for f in (stats.lasting_fall(b.samples) for b in blocks) if f is not None]
    if within:
        args = {**_levels(within[0]), "n": len(within), "m": len(blocks)}
        return (msg("the rate falls {s} s into a repetition from {before} to {after}, in {n} of {m}", **args),)
    whole = stats.lasting_fall([s for b in blocks for s in b.samples])
    if whole is None:
        return ()
    return (msg("the rate falls after {s} s of load from {before} to {after}", **_levels(whole)),)


def _levels(fall: stats.Step) -> dict[str, object]:
    before, after = format_quantity(fall.before, "B/s"), format_quantity(fall.after, "B/s")
    return {"s": fall.at_s, "before": before, "after": after}
