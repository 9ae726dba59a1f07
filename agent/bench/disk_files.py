"""Files as a training job meets them: one checkpoint written with fsync, many small files read in random order."""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Union

from agent import probes
from agent.bench.disk_rig import CACHED, GIB, Rig, Told, no_space, taken
from agent.host import Ran
from agent.model import Block, Depth, Result, Taken, Void
from agent.quantity import format_quantity
from agent.reading import Missing
from agent.text import Text, msg

CHECKPOINT_BYTES: Mapping[Depth, int] = {"quick": GIB // 4, "standard": GIB, "deeper": 2 * GIB}
SMALL_FILES: Mapping[Depth, int] = {"quick": 500, "standard": 4000, "deeper": 8000}
SMALL_BYTES = 16 << 10
READERS = 16
TIMEOUT_S = 180.0
RESIDENT = 0.02  # of the pages that may be left in memory
CPU_BOUND = 0.9  # the reader's own CPU share from which on it, not the disk, sets the pace


def checkpoint(rig: Rig, wanted: Mapping[str, str]) -> Mapping[str, Result]:
    """``wanted`` maps ``checkpoint`` (B/s, write and fsync) to its key."""
    size = min(CHECKPOINT_BYTES[rig.look.depth], rig.scratch.free // 4)
    return {wanted["checkpoint"]: _repeat(rig, "checkpoint", [str(size)], "B/s")}


def small_files(rig: Rig, wanted: Mapping[str, str]) -> Mapping[str, Result]:
    """``wanted`` maps ``small_files`` (files/s read) to its key."""
    arguments = [str(SMALL_FILES[rig.look.depth]), str(SMALL_BYTES), str(READERS)]
    return {wanted["small_files"]: _repeat(rig, "small", arguments, "/s")}


def _repeat(rig: Rig, what: str, arguments: list[str], unit: str) -> Result:
    blocks: list[Block] = []
    runs: list[Ran] = []
    before = rig.begin(what)
    for number in range(1, rig.repetitions + 1):
        argv = [what, rig.scratch.path, *arguments]
        ran = probes.ask(rig.host, f"{rig.probe}.{what}.{number}", "files_probe", argv, TIMEOUT_S)
        runs.append(ran)
        found = _parsed(ran)
        if isinstance(found, Missing):
            return found
        blocks.append(_block(what, found))
    window = rig.since(what, before)
    rig = replace(rig, engine="")  # fio's engine and its weakness are not of this measurement
    if what == "checkpoint":
        told = Told("write", sum(float(b.conditions["bytes"]) for b in blocks))
        return taken(rig, blocks, runs, unit, window, notes=_notes(what, blocks), told=told, journal=True)
    told = Told("read", sum(float(b.conditions["files"] * b.conditions["bytes_each"]) for b in blocks))
    result = taken(rig, blocks, runs, unit, window, notes=_notes(what, blocks), told=told, journal=True)
    return _cached(_weakened(result))


def _parsed(ran: Ran) -> Union[dict[str, Any], Missing]:
    missing = ran.missing()
    if missing is not None:
        return missing
    try:
        found = json.loads(ran.stdout)
    except ValueError:
        return Missing("unparsable", msg("the file test printed no result"), ran.cited)
    if found.get("errno") in (errno.ENOSPC, errno.EDQUOT):
        return no_space(ran, str(found["error"]))
    if "error" in found:
        return Missing("failed", msg("the file test failed: {error}", error=found["error"]), ran.cited)
    if not found["seconds"] > 0:
        return Missing("unparsable", msg("the file test took no time"), ran.cited)
    return dict(found)


def _block(what: str, found: Mapping[str, Any]) -> Block:
    amount = found["bytes"] if what == "checkpoint" else found["files"]
    return Block(amount / found["seconds"], conditions=found)


def _notes(what: str, blocks: list[Block]) -> tuple[Text, ...]:
    first = blocks[0].conditions
    if what == "small":
        return (
            msg(
                "{n} files of 16 KiB, read in random order by {m} readers, caches dropped first",
                n=first["files"],
                m=READERS,
            ),
        )
    size = format_quantity(float(first["bytes"]), "B")
    backs = sorted(b.conditions["read_bytes"] / b.conditions["read_s"] for b in blocks)
    back = format_quantity(backs[len(backs) // 2], "B/s")
    return (msg("{size} written through the page cache with fsync; read back at {back}", size=size, back=back),)


def _weakened(result: Taken) -> Taken:
    """A reader that keeps a core busy measures itself: it may keep the promise but not break it."""
    busy = any(b.conditions["cpu_s"] >= CPU_BOUND * b.conditions["seconds"] for b in result.attempt.blocks)
    if not busy:
        return result
    weak = Void("tool-too-weak", msg("our reader was limited by one CPU core, not by the disk"))
    return replace(result, attempt=replace(result.attempt, weak=weak))


def _cached(result: Taken) -> Taken:
    """What is still in the page cache when the reading begins is not read from the disk."""
    kept = max(float(b.conditions["resident_share"]) for b in result.attempt.blocks)
    if kept <= RESIDENT or result.attempt.void is not None:
        return result
    text = msg("{share} of the files stayed in the page cache: reading them says nothing", share=f"{100 * kept:.0f} %")
    return replace(result, attempt=replace(result.attempt, void=Void(CACHED, text)))
