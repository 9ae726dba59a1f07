"""Whether a write rate lasts: SLC cache, burst credits, throttling.

One long sequential write. The value is what its last part keeps of its first part, in percent; the last part is
cut into six stretches, whose spread is the interval.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent import stats
from agent.bench.disk_rig import GIB, Rig, Told, read_job, series_of, taken
from agent.model import Block, Depth, Result
from agent.quantity import format_quantity
from agent.reading import Missing
from agent.text import Text, msg

# Long enough for a cache of some tens of GB to run out, as far as the byte cap lets it.
SECONDS: Mapping[Depth, int] = {"quick": 20, "standard": 120, "deeper": 300}
WRITE_CAP: Mapping[Depth, int] = {"quick": 16 * GIB, "standard": 128 * GIB, "deeper": 384 * GIB}
STRETCHES = 6
SHORTEST_S = 18  # a series shorter than this has no first and last part worth comparing


def measure(rig: Rig, wanted: Mapping[str, str]) -> Mapping[str, Result]:
    """``wanted`` maps ``sustained`` (%) to its key."""
    key = wanted["sustained"]
    if rig.engine == "dd":
        return {key: Missing("no-tool", msg("fio is not installed"), (), msg("install fio"))}
    seconds, cap = SECONDS[rig.look.depth], WRITE_CAP[rig.look.depth]
    before = rig.begin("sustained")
    ran = rig.fio(
        "sustained",
        seconds,
        rw="write",
        bs="1M",
        iodepth=32,
        bw_log="{evidence}/series",
        extra=[f"--io_size={cap}", f"--runtime={seconds}", "--fallocate=none"],
    )
    part, missing = read_job(ran, "write")
    if part is None:
        return {key: missing or Missing("failed", msg("no number"), ran.cited)}
    series = series_of(ran, seconds)
    if len(series) < SHORTEST_S:
        text = msg(
            "{cap} were written in {s} s: too short to tell whether the rate lasts", cap=_gib(cap), s=len(series)
        )
        return {key: Missing("left-out", text, ran.cited)}
    blocks = [Block(100 * share, samples=(), conditions={"tool": "fio"}) for share in shares(series)]
    blocks[0] = Block(blocks[0].value, samples=series, conditions={"tool": "fio", "series": "B/s"})
    window = rig.since("sustained", before)
    told = Told("write", (part.bytes_per_s or 0.0) * (part.seconds or 0.0))
    return {
        key: taken(
            rig, blocks, [ran], "%", window, notes=(*_words(series, cap), *burst_credits(rig, len(series))), told=told
        )
    }


def shares(series: tuple[float, ...]) -> list[float]:
    """Six stretches of the last third (30 s at most), each over the mean of the first third (30 s at most)."""
    part = min(stats.SUSTAINED_PART_S, len(series) // 3)
    first = sum(series[:part]) / part
    last = series[-part:]
    edges = [round(i * part / STRETCHES) for i in range(STRETCHES + 1)]
    return [sum(last[a:b]) / (b - a) / first for a, b in zip(edges, edges[1:])]


def _words(series: tuple[float, ...], cap: int) -> tuple[Text, ...]:
    notes = [msg("{s} s of writing, at most {bytes}", s=len(series), bytes=_gib(cap))]
    for step in stats.steps(series):
        levels = {"before": format_quantity(step.before, "B/s"), "after": format_quantity(step.after, "B/s")}
        notes.append(msg("step at {s} s: from {before} to {after}", s=step.at_s, **levels))
    return tuple(notes)


def burst_credits(rig: Rig, seconds: int) -> tuple[Text, ...]:
    """What a cloud's volume may hold back for longer than this looks."""
    if not rig.ground.remote:
        return ()
    return (
        msg(
            "a volume over the network may live on burst credits for half an hour: {s} s do not use them up",
            s=seconds,
        ),
    )


def _gib(size: float) -> str:
    return f"{size / GIB:.3g} GiB"
