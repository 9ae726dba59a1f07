"""Drive one family through the real course of looks, with a real, a replayed or a scripted host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Optional, Union

from agent.course import Course
from agent.evidence import Store, write_json
from agent.grammar import Section
from agent.host import Host, LiveHost, Ran, ReplayHost, utc_now
from agent.model import Clause, Contract, Finding
from agent.plan import Options

# What a scripted program does: stdout, or stdout and stderr with an exit status, or an errno's name.
Said = Union[str, tuple[str, str, int], Exception]
Script = Callable[[str, Sequence[str]], Said]


class ScriptedHost(LiveHost):
    """Answers from a function of (probe, argv) and records like a real host; sleeps are only counted."""

    def __init__(self, run: Path, script: Script) -> None:
        super().__init__(Store(run))
        self.script = script
        self.slept = 0.0
        self.asked: list[tuple[str, tuple[str, ...]]] = []

    def run(
        self,
        probe: str,
        argv: Sequence[str],
        timeout_s: float,
        *,
        worker: bool = False,
        extra_env: Optional[Mapping[str, str]] = None,
        cwd: Optional[str] = None,
        inputs: Optional[Mapping[str, bytes]] = None,
    ) -> Ran:
        beside = ".neighbours." in probe  # scripts are about the measurement
        if not beside:
            self.asked.append((probe, tuple(argv)))
        folder = self.store.begin(probe)
        said = "{}" if beside else self.script(probe, argv)
        meta: dict[str, Any] = {"probe": probe, "argv": list(argv), "started_at": utc_now(), "seconds": 0.1}
        if isinstance(said, TimeoutError):
            meta.update(timed_out=True, seconds=timeout_s, signal=15)
        elif isinstance(said, Exception):
            meta.update(start_error=str(said))
        else:
            out, err, status = said if isinstance(said, tuple) else (said, "", 0)
            (folder / "stdout").write_text(out)
            (folder / "stderr").write_text(err)
            meta["exit"] = status
        write_json(folder / "meta.json", meta)
        return ReplayHost(self.store, {probe: folder}).run(probe, argv, timeout_s)

    def sleep(self, seconds: float) -> None:
        self.slept += seconds


def clause(module: ModuleType, name: str, written: str, /, **settings: Any) -> Clause:
    """A clause as the loader makes it, without tolerance."""
    section: Section = module.GRAMMAR
    family = module.__name__.rpartition(".")[2]
    promise = section.clauses[name].parse(written)
    place = promise.value if section.each else settings[section.many or ""]
    key = f"{family}[{place}]" + ("" if section.each else f".{name}")
    return Clause(key, family, name, promise, 1, 1, settings)


def judged(module: ModuleType, clauses: Sequence[Clause], host: Host, facts: bool = False) -> dict[str, Finding]:
    """Steps, looks and findings of these clauses, by id; a fault of our own fails the test."""
    course = Course(Contract(tuple(clauses), b"", ""), Options(), {clauses[0].family: module}, host)
    if facts:
        course.read_facts()
    course.make_plan()
    course.measure()
    findings = course.findings()
    assert not course.faults, course.faults
    return {f.id: f for f in findings}
