"""A btrfs over its devices, as ``/sys/fs/btrfs`` shows it to everybody: which they are, and how they are used."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

from agent.host import Files
from agent.reading import Known

DEVICES = "/sys/fs/btrfs/*/devices/*"
PROFILES = "/sys/fs/btrfs/*/allocation/*/*"
MISSING = "/sys/fs/btrfs/*/devinfo/*/missing"

# Copies on several devices; "dup" is two copies on the same one.
_LEVELS = {
    "single": "none",
    "dup": "none",
    "raid0": "0",
    "raid1": "1",
    "raid1c3": "1",
    "raid1c4": "1",
    "raid10": "10",
    "raid5": "5",
    "raid6": "6",
}


@dataclass(frozen=True)
class Pool:
    """``devices`` by kernel name; ``profiles`` by what is kept (``data``, ``metadata``); ``missing``: devices lost."""

    devices: tuple[str, ...]
    profiles: tuple[tuple[str, str], ...]
    missing: int

    def level(self, kept: str) -> Optional[str]:
        """``0``, ``1``, ``10``, ``none`` …; None where there is none or more than one."""
        asked = ("data", "mixed") if kept == "data" else (kept, "mixed")
        found = {_LEVELS[profile] for what, profile in self.profiles if what in asked and profile in _LEVELS}
        return found.pop() if len(found) == 1 else None


def pool(files: Files, device: Optional[str]) -> Optional[Pool]:
    """The pool that a device belongs to; None where the kernel shows none."""
    for path in files.match(DEVICES):
        place, _, name = path.rpartition("/devices/")
        if name == device:
            return _pool(files, place)
    return None


def _pool(files: Files, place: str) -> Pool:
    devices = [p.rpartition("/")[2] for p in files.match(f"{place}/devices/*")]
    ways = [re.search(r"/allocation/(\w+)/(\w+)$", p) for p in files.match(f"{place}/allocation/*/*")]
    profiles = [(way[1], way[2]) for way in ways if way is not None and way[2] in _LEVELS]
    texts = [files.text(p) for p in files.match(f"{place}/devinfo/*/missing")]
    missing = sum(isinstance(text, Known) and text.value.strip() == "1" for text in texts)
    return Pool(tuple(sorted(devices)), tuple(profiles), missing)
