"""The run folder: numbered evidence, atomic writes, the manifest, and the ledger beside it.

Everything a verdict rests on is text or raw bytes below the run folder; ``manifest.json`` holds the sha256 of
each file and its own hash is the run's digest.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Optional

from agent.model import RunNumber

EVIDENCE = "evidence"
MANIFEST = "manifest.json"
RESULT = "result.json"
LEDGER = "ledger.jsonl"
LOCK = "run.lock"
LOG = "agent.log"  # what an agent in the background prints, its last lines after the manifest is made
# Written while the agent lives, so never part of what is signed.
UNLISTED = frozenset({MANIFEST, LOCK, LOG})


def write_atomic(path: Path, data: bytes) -> None:
    """Write whole or not at all: a temporary name in the same folder, fsync, rename."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """JSON as the run folder keeps it: UTF-8, sorted by insertion, no NaN."""
    write_atomic(path, (json.dumps(value, ensure_ascii=False, indent=1, allow_nan=False) + "\n").encode())


def read_json(path: Path, trim: Optional[Callable[[bytes], bytes]] = None) -> Any:
    """The JSON value of a file of the run folder; ``trim`` may shorten its text before it is parsed.

    Raises OSError, and ValueError for what is no JSON, nested too deep, or no regular file: the folder may come
    from somebody else, and a FIFO or a device in it must not hold the agent up.
    """
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as source:
        if not stat.S_ISREG(os.fstat(source.fileno()).st_mode):
            raise ValueError(f"{path.name} is not a regular file")
        try:
            text = source.read()
            return json.loads(text if trim is None else trim(text))
        except RecursionError as error:
            raise ValueError(f"{path.name} is nested too deep") from error


def sha256(path: Path) -> str:
    """Hex sha256 of a file, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as source:
        while piece := source.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def readable(probe: str) -> str:
    """A probe's name as its folder has it."""
    return re.sub(r"[^A-Za-z0-9._=-]+", "-", probe).strip("-")[:60]


class Store:
    """The evidence folders of one run, numbered in the order they were begun: ``NNNN-<probe>``."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.root = run / EVIDENCE
        self.root.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._next = 1 + max((int(p.name[:4]) for p in self.root.iterdir() if p.name[:4].isdigit()), default=0)

    def begin(self, probe: str) -> Path:
        """A new empty folder for one probe."""
        with self._lock:  # looks at the network run beside those at the GPUs
            folder = self.root / f"{self._next:04d}-{readable(probe)}"
            self._next += 1
        folder.mkdir()
        return folder

    def name(self, folder: Path) -> str:
        """The folder as findings cite it, relative to the run folder."""
        return f"{EVIDENCE}/{folder.name}"

    def recorded(self) -> dict[str, Path]:
        """Finished probes by logical name; of several recordings of one probe the latest counts.

        One whose meta.json cannot be read counts as none: not recorded when judged again, asked again when resumed.
        """
        found: dict[str, Path] = {}
        for folder in sorted(self.root.iterdir()):
            meta = folder / "meta.json"
            if not meta.exists():
                continue
            try:
                found[str(read_json(meta)["probe"])] = folder
            except (OSError, ValueError, KeyError, TypeError):
                continue
        return found


def manifest(run: Path) -> dict[str, str]:
    """sha256 of every file of the run, by path relative to it, sorted."""
    files = sorted(p for p in run.rglob("*") if p.is_file() and not p.is_symlink())
    return {
        str(p.relative_to(run)): sha256(p)
        for p in files
        if str(p.relative_to(run)) not in UNLISTED and not p.name.endswith(".tmp")
    }


def write_manifest(run: Path) -> str:
    """Write ``manifest.json`` and return the run's digest, the sha256 of that file."""
    write_json(run / MANIFEST, {"schema": "accept.manifest/1", "files": manifest(run)})
    return sha256(run / MANIFEST)


class Busy(Exception):
    """Another agent holds this run folder."""


@contextmanager
def locked(run: Path) -> Iterator[None]:
    """Hold the run folder: released by the kernel when the agent dies, however it dies."""
    descriptor = os.open(run / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Busy(str(run)) from error
        os.truncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.close(descriptor)


def is_locked(run: Path) -> Optional[int]:
    """The pid of the agent that holds the run folder, or None."""
    try:
        descriptor = os.open(run / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.read(descriptor, 32).decode().strip()
        return int(text) if text.isdigit() else None
    finally:
        os.close(descriptor)
    return None


class Ledger:
    """Append-only list of every run started below one folder; each line carries the hash of the one before."""

    def __init__(self, runs: Path) -> None:
        self.path = runs / LEDGER

    def entries(self) -> list[dict[str, Any]]:
        """All lines that are whole, in order."""
        if not self.path.exists():
            return []
        lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        return [e for e in (_entry(line) for line in lines) if e is not None]

    def add(self, entry: Mapping[str, Any]) -> None:
        """Append one entry under a lock, with the sha256 of the last line as ``previous``."""
        with self.path.open("a+b") as out:
            fcntl.flock(out, fcntl.LOCK_EX)
            out.seek(0)
            before = out.read()
            last = before.rstrip(b"\n").rsplit(b"\n", 1)[-1]
            line = {**entry, "previous": hashlib.sha256(last).hexdigest() if last else None}
            # A line cut off by a full disk or a kill is closed, so that it spoils only itself.
            lead = b"" if not before or before.endswith(b"\n") else b"\n"
            out.write(lead + json.dumps(line, ensure_ascii=False).encode() + b"\n")
            out.flush()
            os.fsync(out.fileno())

    def number(self, run_id: str, contract_sha256: str, machine: str) -> Optional[RunNumber]:
        """Which run of this contract on this machine ``run_id`` is, and how many there are by now."""
        same = [
            e["run_id"]
            for e in self.entries()
            if e.get("event") == "start" and e.get("contract") == contract_sha256 and e.get("machine") == machine
        ]
        if run_id not in same:
            return None
        return RunNumber(same.index(run_id) + 1, len(same), str(self.path))


def _entry(line: str) -> Optional[dict[str, Any]]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
