"""Looks at the network run beside the loads of GPUs, with real programs; all else alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from agent.bench.step import Cost, Load, Look, Step
from agent.course import Course
from agent.evidence import Store
from agent.grammar import Section, rate
from agent.host import Host, LiveHost, ReplayHost, marked
from agent.model import Attempt, Block, Clause, Contract, Finding, Result, Taken
from agent.plan import Options
from agent.reading import Missing
from agent.text import msg


def made(value: float, look: Look) -> Taken:
    blocks = tuple(Block(value, (value,)) for _ in range(6))
    attempt = Attempt(blocks=blocks, depth=look.depth, started_at="2026-11-30T08:00:00.000Z")
    return Taken(attempt, "GB/s", "median of block medians")


class Family(ModuleType):
    """A family of two steps: a program on the network, and one on the GPUs."""

    def __init__(self, network: list[str], gpu: list[str], timeout_s: float = 60.0, want_again: bool = False) -> None:
        super().__init__("agent.checks.made_up")
        self.GRAMMAR = Section(clauses={"net": rate(), "gpu": rate()})
        self.seen: list[tuple[str, Look, str]] = []
        self.programs = {"net": network, "gpu": gpu}
        self.patience, self.want_again = dict.fromkeys(self.programs, timeout_s), want_again

    def steps(self, clauses: Any, case: Any) -> list[Step]:
        return [self._step("net", "network"), self._step("gpu", "gpu")]

    def _step(self, name: str, load: Load) -> Step:
        def execute(host: Host, look: Look) -> Mapping[str, Result]:
            self.seen.append((name, look, threading.current_thread().name))
            ran = host.run(f"{name}.{look.number}", self.programs[name], self.patience[name])
            missing = ran.missing()
            return {f"made_up.{name}": missing or made(1.0, look)}

        return Step(name, (f"made_up.{name}",), load, lambda depth: Cost(1.0), execute)

    def judge(self, clauses: Any, case: Any) -> list[Finding]:
        found = []
        for clause in clauses:
            taken = case.measured.get(clause.key)
            reason = "interrupted" if taken is None else taken.kind if isinstance(taken, Missing) else "kept"
            many = 0 if taken is None or isinstance(taken, Missing) else len(taken.attempts)
            again: Any = "repeat" if self.want_again and many == 1 else None
            said = Finding(clause.key, clause.key, "inconclusive", "breach", "", reason, msg("made up"))
            found.append(replace(said, measurements=(clause.key,), again=again))
        return found


def course(family: Family, host: Host, profile: Any = "quick") -> Course:
    def clause(name: str) -> Clause:
        return Clause(f"made_up.{name}", "made_up", name, family.GRAMMAR.clauses[name].parse(">= 1 GB/s"), 1, 1)

    found = Course(Contract((clause("net"), clause("gpu")), b"", ""), Options(profile), {"made_up": family}, host)
    found.make_plan()
    return found


def live(folder: Path) -> LiveHost:
    return LiveHost(Store(folder / "run"))


def pause(seconds: float) -> list[str]:
    return ["sleep", str(seconds)]


def seconds(work: Callable[[], object]) -> float:
    begun = time.monotonic()
    work()
    return time.monotonic() - begun


def test_a_short_look_at_the_network_takes_no_time_of_its_own(tmp_path: Path) -> None:
    family = Family(pause(1.5), pause(1.5))
    run = course(family, live(tmp_path))
    assert run.plan.seconds == pytest.approx(13)
    assert seconds(run.measure) < 2.8
    assert {f.id: f.reason_code for f in run.findings()} == {"made_up.net": "kept", "made_up.gpu": "kept"}
    assert sorted(s.name for s in run.steps if s.name in ("net", "gpu")) == ["gpu", "net"]
    by_name = {s.name: s for s in run.steps}
    assert by_name["net"].argv == ("sleep", "1.5")
    assert len(by_name["net"].evidence) == len(by_name["gpu"].evidence) == 1
    assert not run.faults


def test_what_proves_something_runs_alone(tmp_path: Path) -> None:
    family = Family(pause(0.4), pause(0.4))
    run = course(family, live(tmp_path), "standard")
    assert run.plan.seconds == pytest.approx(14)
    run.measure()
    assert {thread for _, _, thread in family.seen} == {"MainThread"}
    assert [name for name, _, _ in family.seen] == ["net", "gpu"]


def test_it_is_looked_at_again_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LiveHost, "sleep", lambda host, seconds: None)
    family = Family(pause(0.1), pause(0.3), want_again=True)
    course(family, live(tmp_path)).measure()
    again = [(look.number, thread) for name, look, thread in family.seen if name == "net"]
    assert again[0][1] != "MainThread"
    assert again[1:] == [(2, "MainThread")]


def test_ending_a_program_that_hangs_leaves_the_other_course_alone(tmp_path: Path) -> None:
    family = Family(pause(3.0), ["sh", "-c", "sleep 60"], timeout_s=2.0)
    family.patience["net"] = 60.0
    run = course(family, live(tmp_path))
    run.measure()
    assert {f.id: f.reason_code for f in run.findings()} == {"made_up.net": "kept", "made_up.gpu": "timeout"}
    family = Family(["sh", "-c", "sleep 60"], pause(3.0), timeout_s=2.0)
    family.patience["gpu"] = 60.0
    run = course(family, live(tmp_path / "other"))
    run.measure()
    assert {f.id: f.reason_code for f in run.findings()} == {"made_up.net": "timeout", "made_up.gpu": "kept"}


def test_an_interrupt_ends_both_and_records_neither(tmp_path: Path) -> None:
    host = live(tmp_path)
    family = Family(pause(60), pause(0.5))
    run = course(family, host)

    def interrupt() -> None:
        raise KeyboardInterrupt

    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run.measure(interrupt)
    assert time.monotonic() - begun < 10
    assert not marked(host.token)
    assert not marked(f"{host.token}-beside")
    assert [s.name for s in run.steps] == ["gpu"]
    assert {f.id: f.reason_code for f in run.findings()}["made_up.net"] == "interrupted"


def test_judged_again_from_the_recording(tmp_path: Path) -> None:
    first = course(Family(pause(0.3), pause(0.2)), live(tmp_path))
    first.measure()
    again = course(Family(pause(0.3), pause(0.2)), ReplayHost(Store(tmp_path / "run")))
    again.measure()
    assert again.findings() == first.findings()
    assert [m.key for m in again.measurements()] == [m.key for m in first.measurements()]


def test_evidence_is_numbered_once(tmp_path: Path) -> None:
    store = Store(tmp_path / "run")
    names: list[str] = []

    def begin() -> None:
        names.extend(store.begin("x").name for _ in range(100))

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(names)) == 800
    assert sorted(names) == [f"{n:04d}-x" for n in range(1, 801)]
