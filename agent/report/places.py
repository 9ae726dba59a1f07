"""Finding one probe's files in a run folder, by its logical name. Links are not followed: a bundle may be hostile."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Optional

from agent.evidence import EVIDENCE


def folders(folder: Optional[Path]) -> Iterator[Path]:
    """The evidence folders of a run, in order; none without a run folder."""
    root = folder / EVIDENCE if folder else None
    if root is not None and root.is_dir() and not root.is_symlink():
        yield from sorted(p for p in root.iterdir() if p.is_dir() and not p.is_symlink())


def probe(place: Path) -> str:
    """The logical name: ``burn/1``; that of the folder where nobody noted one."""
    try:
        meta = json.loads((place / "meta.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        meta = None
    name = meta.get("probe") if isinstance(meta, dict) else None
    return name if isinstance(name, str) else place.name[5:]


def whole(path: Path, most: int) -> Optional[bytes]:
    """A regular file of at most ``most`` bytes; None for anything else."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size > most:
        return None
    return path.read_bytes()
