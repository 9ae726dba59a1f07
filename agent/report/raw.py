"""The raw output of a run's evidence, cut to what a page can hold, each stream with its sha256."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional
from urllib.parse import quote

from markupsafe import escape

from agent.evidence import EVIDENCE, MANIFEST, sha256
from agent.report.clean import decoded, one_line, shortened, visible

HEAD, TAIL = 3072, 1024
_PAGE = 128 * 1024  # as the page holds it: a quote takes five bytes there
_MOST_FILES = 12
_META = "meta.json"


@dataclass(frozen=True)
class Stream:
    """One file of a probe: its beginning and end as text, ``cut`` bytes between them left out."""

    name: str
    href: str
    size: int
    sha256: str
    head: str
    tail: str
    cut: int


@dataclass(frozen=True)
class Probe:
    """One evidence folder."""

    name: str
    command: str
    seconds: Optional[float]
    end: str
    timed_out: bool
    streams: tuple[Stream, ...]

    @property
    def main(self) -> str:
        """The sha256 of the file that a finding rests on: the worker's result, else what the tool printed."""
        by_name = {s.name: s.sha256 for s in self.streams}
        first = next(iter(by_name.values()), "")
        return by_name.get("result.json") or by_name.get("stdout") or first


def probes(folder: Optional[Path], cited: Iterable[str]) -> tuple[Probe, ...]:
    """All probes below ``folder``. Text is shown while the page has room: first for what findings cite."""
    root = folder / EVIDENCE if folder else None
    if root is None or not root.is_dir():
        return ()
    places = sorted(p for p in root.iterdir() if p.is_dir() and not p.is_symlink())
    wanted = frozenset(cited)
    room = _Room(_PAGE)
    read = {p.name: _probe(p, room) for p in sorted(places, key=lambda p: p.name not in wanted)}
    return tuple(read[p.name] for p in places)


def digest(folder: Optional[Path]) -> Optional[str]:
    """The run's digest: the sha256 of its manifest, None while there is none."""
    manifest = folder / MANIFEST if folder else None
    return sha256(manifest) if manifest and manifest.is_file() else None


class _Room:
    """How many bytes of raw output the page still takes, escaped as they are."""

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self, wanted: int) -> bool:
        if wanted > self.left:
            return False
        self.left -= wanted
        return True


def _probe(place: Path, room: _Room) -> Probe:
    meta = _meta(place / _META)
    argv = meta.get("argv") or ()
    seconds = meta.get("seconds")
    return Probe(
        name=shortened(one_line(place.name), 120),
        command=shortened(one_line(" ".join(str(a) for a in argv)), 600) if isinstance(argv, list) else "",
        seconds=float(seconds) if isinstance(seconds, (int, float)) else None,
        end=_end(meta),
        timed_out=meta.get("timed_out") is True,
        streams=tuple(_streams(place, room)),
    )


def _meta(path: Path) -> dict[str, Any]:
    """What the host noted; a folder without it (an interrupted probe) or with a broken one has nothing to say."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _end(meta: dict[str, Any]) -> str:
    if meta.get("signal") is not None:
        return one_line(f"signal {meta['signal']}")
    return one_line(f"exit {meta['exit']}") if meta.get("exit") is not None else ""


def _streams(place: Path, room: _Room) -> Iterator[Stream]:
    files = sorted(p for p in place.rglob("*") if p.is_file() and not p.is_symlink() and p.name != _META)
    for path in files[:_MOST_FILES]:
        if path.stat().st_size:
            yield _stream(path, place, room)


def _stream(path: Path, place: Path, room: _Room) -> Stream:
    size = path.stat().st_size
    with path.open("rb") as source:
        head = source.read(HEAD + TAIL if size <= HEAD + TAIL else HEAD)
        tail = b""
        if size > HEAD + TAIL:
            source.seek(-TAIL, 2)
            tail = source.read()
    if not room.take(len(escape(visible(decoded(head + tail))).encode())):
        head = tail = b""
    name = str(path.relative_to(place))
    return Stream(
        name=one_line(name),
        href=quote(f"{EVIDENCE}/{place.name}/{name}", errors="surrogateescape"),
        size=size,
        sha256=sha256(path),
        head=visible(decoded(head)),
        tail=visible(decoded(tail)),
        cut=size - len(head) - len(tail),
    )
