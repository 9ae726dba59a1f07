"""Linux software RAID. Source: ``/proc/mdstat``."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any, Optional

from agent.tools import ParseError, _shell
from agent.tools._text import clean, first_line, recognise

KIND = "mdstat"
TIMEOUT_S = 5.0
_SIGN = re.compile(r"Personalities|\bmd\d|unused devices")
PATH = "/proc/mdstat"

_FIXED = ("name", "level", "state", "devices", "degraded")
_ARRAY = re.compile(r"^(md\S*)\s*:\s*(active|inactive|broken|clear|readonly)((?:\s*\([^)]*\))*)\s*(.*)$")
_LEVEL = re.compile(r"^(?:raid\d+|linear|multipath|faulty|container)$")
_MEMBER = re.compile(r"^([^\s\[\]]+)\[(\d+)\]((?:\([A-Z]\))*)$")
_HEALTH = re.compile(r"\[(\d+)/(\d+)\]\s+\[([U_]+)\]")
_PROGRESS = re.compile(r"(resync|recovery|reshape|check|repair)\s*=\s*(?:(\d+(?:\.\d+)?)%|(PENDING|DELAYED|REMOTE))")
_END = re.compile(r"^unused devices:\s*(?:<none>|[\w/!-]+(?:\s+[\w/!-]+)*)\s*$")


@dataclass(frozen=True)
class Member:
    """A member device with its number in the array; ``flags`` as printed: F failed, S spare, J, R, W."""

    name: str
    number: int
    flags: str


@dataclass(frozen=True)
class Array:
    """One array. ``degraded`` is None where the kernel prints no ``[n/m]`` (RAID 0, inactive arrays).

    ``action`` is resync, recovery, reshape, check or repair; ``progress_percent`` as printed, None while
    it waits.
    """

    name: str
    level: Optional[str]
    state: str
    devices: tuple[str, ...]
    degraded: Optional[bool]
    members: tuple[Member, ...]
    slots: Optional[int]
    working: Optional[int]
    action: Optional[str]
    progress_percent: Optional[float]
    blocks_kib: int


@dataclass(frozen=True)
class Mdstat:
    """All arrays; none is an empty tuple, a fact of its own."""

    arrays: tuple[Array, ...]


def parse(text: str) -> Mdstat:
    """The arrays of ``/proc/mdstat``.

    Raises :class:`ParseError`: ``truncated`` where the last line (``unused devices:``) is missing,
    ``absent`` for a kernel without md, ``denied``, ``empty``, ``unparsable``.
    """
    recognise(text, "mdstat", _SIGN)
    lines = [line.rstrip() for line in clean(text).split("\n") if line.strip()]
    if not lines:
        raise ParseError("empty", "an empty mdstat: the kernel always prints two lines")
    _raise_on_message(lines)
    starts = [at for at, line in enumerate(lines) if _ARRAY.match(line)]
    if not starts and not any(line.startswith("Personalities") for line in lines):
        raise _shell.failure(text, "mdstat") or ParseError("unparsable", "not /proc/mdstat", first_line(text))
    ends = [at for at, line in enumerate(lines) if _END.match(line)]
    if not ends:
        raise ParseError("truncated", "mdstat without its last line", lines[-1])
    if len(ends) > 1:
        raise ParseError("several_results", f"{len(ends)} mdstat texts; give one at a time")
    if starts and starts[-1] > ends[0]:
        raise ParseError("unparsable", "an array behind the last line", lines[starts[-1]])
    stops = [*starts[1:], ends[0]]
    _raise_on_foreign(lines[: ends[0]], starts)
    return Mdstat(tuple(_array(lines[start:stop]) for start, stop in zip(starts, stops)))


def to_json(result: Mdstat) -> dict[str, Any]:
    """The fixed shape of ``accept parse mdstat``."""
    return {"arrays": [{key: asdict(array)[key] for key in _FIXED} for array in result.arrays]}


def _raise_on_message(lines: list[str]) -> None:
    for line in lines:
        if re.search(r"mdstat.{0,300}(?:No such file|没有那个文件)", line):
            raise ParseError("absent", "no /proc/mdstat: this kernel has no software RAID", line)
        if re.search(r"mdstat.{0,300}(?:Permission denied|not permitted)", line):
            raise ParseError("denied", "no permission to read /proc/mdstat", line)


def _raise_on_foreign(lines: list[str], starts: list[int]) -> None:
    """A line at the margin that is no array's first: an array that would be missed."""
    for at, line in enumerate(lines):
        if re.match(r"^md\S*\s*:", line) and at not in starts:
            raise ParseError("unparsable", "an array line that cannot be read", line)


def _array(lines: list[str]) -> Array:
    match = _ARRAY.match(lines[0])
    if match is None:
        raise ParseError("unparsable", "an array line that cannot be read", lines[0])
    name, state, remarks, rest = match.groups()
    words = rest.split()
    level = words.pop(0) if words and _LEVEL.match(words[0]) else None
    members = tuple(_member(word, lines[0]) for word in words)
    body = " ".join(lines[1:])
    blocks = re.search(r"(\d+) blocks\b", body)
    if blocks is None:
        raise ParseError("truncated", f"array {name} without its size line", lines[0])
    health = _HEALTH.search(body)
    if health is None and re.search(r"\[\d+/\d*(?:\s|$|\])", body.split("bitmap")[0]):
        raise ParseError("unparsable", f"array {name} with half of its health", lines[1])
    return Array(
        name=name,
        level=level,
        state=" ".join([state, *remarks.split()]),
        devices=tuple(member.name for member in members),
        degraded=_degraded(health),
        members=members,
        slots=int(health[1]) if health else None,
        working=int(health[2]) if health else None,
        action=_progress(body)[0],
        progress_percent=_progress(body)[1],
        blocks_kib=int(blocks[1]),
    )


def _member(word: str, line: str) -> Member:
    match = _MEMBER.match(word)
    if match is None:
        raise ParseError("unparsable", f"not a RAID member: {word}", line)
    return Member(match[1], int(match[2]), re.sub(r"[()]", "", match[3]))


def _degraded(health: Optional[re.Match[str]]) -> Optional[bool]:
    if health is None:
        return None
    return int(health[2]) < int(health[1]) or "_" in health[3]


def _progress(body: str) -> tuple[Optional[str], Optional[float]]:
    match = _PROGRESS.search(body)
    if match is None:
        return None, None
    return match[1], float(match[2]) if match[2] else None
