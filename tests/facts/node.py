"""A simulated machine: a tree of files for reads, and a folder of shell scripts in the place of tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from agent.evidence import Store
from agent.host import LiveHost, ReplayHost
from agent.reading import Known, Missing

HANG = "exec /bin/sleep 60"


def value(reading: object) -> Any:
    """The value of a known reading, which must cite its evidence."""
    assert isinstance(reading, Known), reading
    assert reading.evidence
    return reading.value


def missing(reading: object, kind: str) -> Missing:
    """A missing reading of that kind, which must say why."""
    assert isinstance(reading, Missing), reading
    assert reading.kind == kind, reading
    assert str(reading.detail)
    return reading


class Simulated(LiveHost):
    """Reads below ``root``; waits for nothing."""

    slept = 0.0
    meanwhile: Optional[Callable[[], object]] = None
    path = ""
    interpreter: Optional[str] = None

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        if self.meanwhile is not None:
            self.meanwhile()

    def python(self) -> str:
        return self.interpreter or super().python()

    def _environment(self, allowed: Sequence[str], extra: Optional[Mapping[str, str]]) -> dict[str, str]:
        """Without the tools that this machine happens to have."""
        return {**super()._environment(allowed, extra), "PATH": self.path}


class Node:
    """Build with :meth:`write`, :meth:`link` and :meth:`tool`, then :meth:`host`.

    A tool called ``probe`` stands in for the interpreter of the agent's own probes.
    """

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.tools = folder / "tools"
        self.run = folder / "run"
        for made in (self.root, self.tools, self.run):
            made.mkdir()

    def write(self, files: Mapping[str, str]) -> Node:
        for path, text in files.items():
            real = self.root / path.lstrip("/")
            real.parent.mkdir(parents=True, exist_ok=True)
            real.write_text(text)
        return self

    def link(self, path: str, target: str) -> Node:
        real = self.root / path.lstrip("/")
        real.parent.mkdir(parents=True, exist_ok=True)
        real.symlink_to(target)
        return self

    def tool(self, name: str, script: str) -> Node:
        path = self.tools / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return self

    def host(self) -> Simulated:
        host = Simulated(Store(self.run), self.root)
        host.path = str(self.tools)
        probes = self.tools / "probe"
        host.interpreter = str(probes) if probes.exists() else None
        return host

    def replay(self) -> ReplayHost:
        return ReplayHost(Store(self.run))
