"""The log of ``accept watch``: JSON lines in a folder, bounded in size, whole after any kill.

``watch.jsonl`` is written; when it reaches :data:`FILE_BYTES` it becomes ``watch-<UTC>.jsonl.gz``, and of those the
newest :data:`KEPT` stay. Each file begins with ``{"watch": 1, "t", "every", "cards", "error"}``; then looks
``{"t", "g": [[…]], "h": […], "b": {…}}`` (values in the order of :data:`VALUES` and :data:`HOST`, null is what was
not told) and events ``{"t", "e", "s", "v"}``. ``t`` is seconds since 1970, UTC.
"""

from __future__ import annotations

import gzip
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, BinaryIO, Optional, Union

from agent.tools.watch import HOST, VALUES, Card, Look
from agent.watch.events import KINDS, Event

FILE = "watch.jsonl"
OLD = "watch-*.jsonl.gz"
FILE_BYTES = 16 << 20
KEPT = 24
LONGEST_LINE = 1 << 20


@dataclass(frozen=True)
class Begun:
    """The head of a file: what is watched from ``t`` on, every ``every`` seconds."""

    t: float
    every: float
    cards: tuple[Card, ...]
    error: Optional[str] = None


@dataclass(frozen=True)
class Seen:
    """A look with its time."""

    t: float
    look: Look


@dataclass(frozen=True)
class Unread:
    """A line that is none of this log."""

    file: str
    line: int


Item = Union[Begun, Seen, Event, Unread]


class Log:
    """Appends to a folder. Every method may raise OSError (the disk is full); the file stays whole lines."""

    def __init__(self, folder: Path, begun: Begun, file_bytes: int = FILE_BYTES) -> None:
        self.folder, self.begun, self.file_bytes = folder, begun, file_bytes
        self._out: Optional[BinaryIO] = None
        self._size = 0
        self._open()

    def write(self, item: Union[Seen, Event]) -> None:
        """One line."""
        if self._size >= self.file_bytes:
            self._rotate(item.t)
        self._line(item)

    def close(self) -> None:
        """Nothing is kept back, so nothing is lost without it."""
        if self._out is not None:
            self._out.close()
            self._out = None

    def _open(self) -> None:
        path = self.folder / FILE
        _cut_half_line(path)
        # Unbuffered: one write a line, so that a kill cannot split what was written before.
        self._out = path.open("ab", buffering=0)
        self._size = path.stat().st_size
        self._line(self.begun)

    def _line(self, item: Item) -> None:
        assert self._out is not None
        data = (json.dumps(to_json(item), separators=(",", ":"), ensure_ascii=False) + "\n").encode(
            "utf-8", "backslashreplace"
        )
        written = self._out.write(data)
        if written != len(data):
            # A disk that fills up takes half a line: the next look begins with a line of its own.
            with suppress(OSError):
                os.truncate(self.folder / FILE, self._size)
            raise OSError(28, "no space left", str(self.folder / FILE))
        self._size += len(data)

    def _rotate(self, t: float) -> None:
        self.close()
        moment = datetime.fromtimestamp(t, timezone.utc)
        old = self.folder / f"watch-{moment:%Y%m%dT%H%M%S}Z.jsonl.gz"
        temporary = self.folder / f".{old.name}.tmp"
        try:
            with (self.folder / FILE).open("rb") as source, gzip.open(temporary, "wb", 6) as out:
                while chunk := source.read(1 << 20):
                    out.write(chunk)
            temporary.replace(old)
            (self.folder / FILE).unlink()
        except OSError:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            self._open()
            raise
        for oldest in sorted(self.folder.glob(OLD))[:-KEPT]:
            oldest.unlink(missing_ok=True)
        self._open()


def _cut_half_line(path: Path) -> None:
    """A killed agent may have left the beginning of a line."""
    try:
        with path.open("rb+") as file:
            size = file.seek(0, os.SEEK_END)
            keep = size
            while keep > 0:
                start = max(0, keep - 65536)
                file.seek(start)
                found = file.read(keep - start).rfind(b"\n")
                if found >= 0:
                    keep = start + found + 1
                    break
                keep = start
            if keep != size:
                file.truncate(keep)
    except FileNotFoundError:
        return


def to_json(item: Item) -> dict[str, Any]:
    """The object of one line."""
    if isinstance(item, Begun):
        cards = [asdict(card) for card in item.cards]
        return {"watch": 1, "t": item.t, "every": item.every, "cards": cards, "error": item.error}
    if isinstance(item, Event):
        return {"t": item.t, "e": item.kind, "s": item.subject, "v": dict(item.values)}
    if isinstance(item, Seen):
        rows = [[_short(values.get(name)) for name in VALUES] for values in item.look.gpus]
        host = [_short(item.look.host.get(name)) for name in HOST]
        return {"t": item.t, "g": rows, "h": host, "b": {k: list(v) for k, v in item.look.busy.items()}}
    raise TypeError(item)


def _short(value: Optional[float]) -> Optional[float]:
    """Whole numbers without ``.0``: half the size."""
    return int(value) if value is not None and value == int(value) else value


def read(folder: Path) -> Iterator[Item]:
    """All files in the order of time. A last line that was cut off is left out."""
    for path in [*sorted(folder.glob(OLD)), folder / FILE]:
        yield from _file(path)


def _file(path: Path) -> Iterator[Item]:
    number = 0
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            yield Unread(path.name, 0)
            return
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as source:
            while raw := source.readline(LONGEST_LINE):
                number += 1
                if not raw.endswith(b"\n"):
                    if len(raw) >= LONGEST_LINE:
                        yield Unread(path.name, number)
                    continue
                yield from_json(raw) or Unread(path.name, number)
    except FileNotFoundError:
        return
    except (OSError, EOFError, ValueError):
        yield Unread(path.name, number + 1)


def from_json(raw: bytes) -> Optional[Item]:
    """One line; None for anything that is no line of this log."""
    try:
        data = json.loads(raw)
        return _item(data)
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None


def _item(data: Mapping[str, Any]) -> Optional[Item]:
    t = float(data["t"])
    if data.get("watch") == 1:
        cards = tuple(_card(c) for c in data["cards"])
        return Begun(t, float(data["every"]), cards, _word(data.get("error")))
    if "e" in data:
        return Event(t, data["e"], _word(data.get("s")), dict(data["v"])) if data["e"] in KINDS else None
    rows = [[_number(v) for v in row] for row in data["g"]]
    host = [_number(v) for v in data["h"]]
    if any(len(row) != len(VALUES) for row in rows) or len(host) != len(HOST):
        return None
    busy = {str(k): (str(name), float(percent)) for k, (name, percent) in data["b"].items()}
    return Seen(t, Look(tuple(dict(zip(VALUES, row)) for row in rows), dict(zip(HOST, host)), busy))


def _card(data: Mapping[str, Any]) -> Card:
    slot, uuid, name = (_word(data[k]) for k in ("slot", "uuid", "name"))
    return Card(slot, uuid, name, _number(data["memory_total_mib"]), _number(data["slowdown_c"]))


def _word(value: Any) -> Optional[str]:
    if value is not None and not isinstance(value, str):
        raise TypeError(value)
    return value


def _number(value: Any) -> Optional[float]:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(value)
    return float(value)
