"""Mounts of this process: ``/proc/self/mountinfo`` (proc_pid_mountinfo(5))."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from agent.tools import ParseError


@dataclass(frozen=True)
class Mount:
    """One line: ``device`` is ``major:minor``, ``root`` the part of the file system that is shown at ``point``."""

    device: str
    root: str
    point: str
    options: tuple[str, ...]
    fstype: str
    source: str
    super_options: tuple[str, ...]

    @property
    def read_only(self) -> bool:
        """Of this mount or of the whole file system."""
        return "ro" in self.options or "ro" in self.super_options


def parse(text: str) -> tuple[Mount, ...]:
    """All mounts in order; a later one at the same point hides the earlier. Raises :class:`ParseError`."""
    return tuple(_mount(line) for line in text.splitlines() if line.strip())


def _mount(line: str) -> Mount:
    head, dash, tail = line.partition(" - ")
    front, back = head.split(" "), tail.split(" ")
    if not dash or len(front) < 6 or len(back) < 3:
        raise ParseError("unparsable", "not a line of mountinfo", line)
    return Mount(
        device=front[2],
        root=_plain(front[3]),
        point=_plain(front[4]),
        options=tuple(front[5].split(",")),
        fstype=back[0],
        source=_plain(back[1]),
        super_options=tuple(back[2].split(",")),
    )


def _plain(field: str) -> str:
    """The kernel writes blank, tab, newline and backslash as three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), field)


def under(mounts: Sequence[Mount], path: str) -> Optional[Mount]:
    """The mount that holds an absolute, resolved path: the longest point above it, the last of equals."""
    found: Optional[Mount] = None
    for mount in mounts:
        inside = path == mount.point or path.startswith(mount.point.rstrip("/") + "/")
        if inside and (found is None or len(mount.point) >= len(found.point)):
            found = mount
    return found
