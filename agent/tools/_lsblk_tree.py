"""lsblk's tree for people: read where no column but the last may be empty, so that blanks cannot shift a value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Optional

from agent.tools import ParseError

# What is never empty, and how it looks; NAME stands first, and a mount point may stand last.
_ALWAYS = {
    "MAJ:MIN": r"\d+:\d+",
    "RM": r"[01]",
    "SIZE": r"\d+(?:[.,]\d+)?[BKMGTPE]?",
    "RO": r"[01]",
    "ROTA": r"[01]",
    "TYPE": r"[a-z][a-z0-9]*",
}
_LAST = ("MOUNTPOINT", "MOUNTPOINTS")
_HEADER = re.compile(r"^\s*NAME((?:\s+[A-Z][A-Z:-]*)+)\s*$")
_BRANCH = re.compile(r"^(?P<indent>(?:[|\u2502 ] )*)(?P<mark>[|`\u251c\u2514][-\u2500])?(?P<rest>.*)$")

Row = tuple[dict[str, Any], Optional[str]]


def columns(text: str) -> Optional[tuple[str, ...]]:
    """The columns of a tree that can be read; None where the text is no tree or one with columns that may be empty."""
    header = next((line for line in text.splitlines() if line.strip()), "")
    match = _HEADER.match(header)
    names = tuple(match[1].split()) if match else ()
    fixed = names[:-1] if names and names[-1] in _LAST else names
    return names if fixed and all(name in _ALWAYS for name in fixed) else None


def rows(text: str, names: Sequence[str]) -> Iterator[Row]:
    """One row a line with the name of the device above it. Raises :class:`ParseError` ``truncated``, ``unparsable``."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()][1:]
    if not lines or not text.endswith("\n"):
        raise ParseError("truncated", "the last line of lsblk's tree may be cut off", lines[-1] if lines else None)
    fixed = [name for name in names if name in _ALWAYS]
    pattern = re.compile(
        r"(?P<name>\S+)(?: \(dm-\d+\))?\s+" + r"\s+".join(f"({_ALWAYS[name]})" for name in fixed) + r"(?:\s+(\S.*))?$"
    )
    above: list[str] = []
    open_at: dict[int, str] = {}
    row: Optional[dict[str, Any]] = None
    for line in lines:
        branch = _BRANCH.match(line)
        rest = branch["rest"] if branch else line
        mount = rest.strip(" |\u2502")
        if row is not None and names[-1] == "MOUNTPOINTS" and re.match(r"/|\[SWAP\]$", mount):
            row["mountpoints"].append(mount)
            continue
        found = pattern.match(rest)
        if branch is None or found is None or (found.groups()[-1] and names[-1] not in _LAST):
            kind = "truncated" if line is lines[-1] else "unparsable"
            raise ParseError(kind, "not a row of lsblk's tree", line)
        if row is not None:
            yield row, above[-2] if len(above) > 1 else None
        depth = len(branch["indent"]) // 2 + (1 if branch["mark"] else 0)
        if depth > len(above):
            raise ParseError("unparsable", "a row of lsblk's tree without the one above it", line)
        above[depth:] = [found["name"]]
        open_at = {at: name for at, name in open_at.items() if at < depth}
        if branch["mark"] and branch["mark"][0] in "|\u251c":
            open_at[depth] = found["name"]
        row = {name.lower(): value for name, value in zip(fixed, found.groups()[1:])}
        row["name"] = found["name"]
        if names[-1] in _LAST:
            row["mountpoints"] = [found.groups()[-1]] if found.groups()[-1] else []
    if open_at:
        raise ParseError("truncated", "lsblk's tree announces one more device on this branch", lines[-1])
    if row is not None:
        yield row, above[-2] if len(above) > 1 else None
