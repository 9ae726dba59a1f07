"""Drive the real command from outside, as a renter does."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Optional

import pytest

needs_fio = pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
ACCEPT = [sys.executable, "-m", "agent.cli.main"]
CHECKOUT = Path(__file__).parents[1]

FACTS_ONLY = "version: 1\ncpu: {vcpus: '>= 1'}\nmemory: {size: '>= 100 MB'}\n"
WRITES = "version: 1\ndisk: [{path: ., write: '>= 1 MB/s'}]\ncpu: {vcpus: '>= 1'}\n"


@dataclass(frozen=True)
class Done:
    """How the command ended."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        return self.out + self.err


def environment(extra: Optional[Mapping[str, str]] = None) -> dict[str, str]:
    env = {**os.environ, "PYTHONPATH": str(CHECKOUT), "LANG": "C.UTF-8", "COLUMNS": "300", **(extra or {})}
    env.pop("LC_ALL", None)
    return env


def accept(*args: str, cwd: Path, env: Optional[Mapping[str, str]] = None, timeout: float = 240) -> Done:
    """Run the command to its end."""
    done = subprocess.run(
        [*ACCEPT, *args], cwd=cwd, env=environment(env), capture_output=True, text=True, timeout=timeout, check=False
    )
    return Done(done.returncode, done.stdout, done.stderr)


def start(*args: str, cwd: Path, env: Optional[Mapping[str, str]] = None) -> subprocess.Popen[str]:
    """Start the command, to be disturbed."""
    return subprocess.Popen(
        [*ACCEPT, *args], cwd=cwd, env=environment(env), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def contract(folder: Path, text: str, name: str = "contract.yaml") -> Path:
    """A contract file in the folder."""
    path = folder / name
    path.write_text(text)
    return path


def result(folder: Path) -> dict[str, Any]:
    """``result.json`` of a run folder."""
    value: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return value


def findings(folder: Path) -> dict[str, dict[str, Any]]:
    """Findings by id."""
    return {f["id"]: f for f in result(folder)["findings"]}


def until(what: Callable[[], Any], timeout: float = 60) -> Any:
    """Poll until ``what`` gives something true."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        value = what()
        if value:
            return value
        time.sleep(0.1)
    raise AssertionError("it did not happen in time")


def writing(folder: Path) -> bool:
    """Whether a test file of at least 1 MiB is being written below the folder."""
    return any(p.stat().st_size > 1 << 20 for p in folder.glob(".accept-test-*/seq.dat"))


def leftovers(folder: Path) -> list[Path]:
    """Test files that are still there."""
    return [p for p in folder.rglob("*") if p.is_file() and ".accept-test-" in str(p) and p.stat().st_size >= 1 << 20]


def ours(folder: Path) -> list[str]:
    """Running tools (not zombies) that name the folder on their command line."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            argv = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if str(folder) in argv and state not in "ZX" and int(entry.name) != os.getpid() and "pytest" not in argv:
            found.append(argv)
    return found


def kill(process: subprocess.Popen[str], sign: signal.Signals) -> None:
    """Send a signal to the agent alone, not to its group."""
    os.kill(process.pid, sign)


def shim(folder: Path, name: str, script: str) -> Path:
    """A program of that name which runs a shell script; returns the folder for PATH."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return folder


def path_with(folder: Path) -> dict[str, str]:
    """An environment whose PATH begins with the folder."""
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def only_these(folder: Path, names: Sequence[str]) -> dict[str, str]:
    """An environment whose PATH holds nothing but links to these programs."""
    folder.mkdir(exist_ok=True)
    for name in names:
        found = shutil.which(name)
        if found and not (folder / name).exists():
            (folder / name).symlink_to(found)
    return {"PATH": str(folder)}
