"""One course through a contract: facts, steps, judging, second looks. The same for a live run and a replay.

Everything here survives: a fault of our own in one check becomes that clause's ``inconclusive``, never the end of
the run and never a finding against the vendor.
"""

from __future__ import annotations

import errno
import threading
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any, Callable, Optional, Protocol, TypeVar

from agent import facts as facts_package
from agent.bench.step import Look, Step
from agent.checks._api import Case
from agent.checks._judge import finding, integrity, unsupported
from agent.facts import Asked
from agent.host import Host, Ran
from agent.model import (
    Clause,
    Contract,
    Finding,
    Measurement,
    Result,
    ScopeEntry,
    StepRecord,
    Taken,
)
from agent.plan import INTEGRITY, Options, Plan, Planned, Selection, arrange, select
from agent.reading import Missing
from agent.text import Text, msg

T = TypeVar("T")
LOOKS_MAX = 4  # one look, a repeat, a deeper look and its repeat: no course of outcomes asks for more
CANCEL_S = 15.0  # for the programs of an interrupted look to end
# What a machine is recognised by, whatever the contract asks.
ALWAYS_FACTS = ("system", "cpu", "memory", "disks", "network")


class Observer(Protocol):
    """Whoever wants to know how the run goes: the terminal, the run folder."""

    def planned(self, plan: Plan) -> None: ...

    def begins(self, planned: Planned, look: Look) -> None: ...

    def ended(self, planned: Planned, look: Look) -> None: ...


class Silent:
    """An observer that does nothing, for replays and tests."""

    def planned(self, plan: Plan) -> None: ...

    def begins(self, planned: Planned, look: Look) -> None: ...

    def ended(self, planned: Planned, look: Look) -> None: ...


@dataclass
class Course:
    """The state of one run in memory; ``findings()`` may be asked at any moment."""

    contract: Contract
    options: Options
    families: Mapping[str, ModuleType]
    host: Host
    observer: Observer = field(default_factory=Silent)
    facts: dict[str, Any] = field(default_factory=dict)
    measured: dict[str, Any] = field(default_factory=dict)
    steps: list[StepRecord] = field(default_factory=list)
    plan: Plan = field(default_factory=lambda: Plan(()))
    faults: list[str] = field(default_factory=list)
    stopped: bool = False
    full: bool = False  # the disk of the run folder: then evidence cannot be kept

    def __post_init__(self) -> None:
        self.selection: Selection = select(self.contract, self.options)
        self._begun = time.monotonic()
        self._lock = threading.RLock()  # held by whoever changes the course while steps run beside each other
        self._waiting: dict[str, ScopeEntry] = {}

    # ---- the course

    def read_facts(self) -> None:
        """Read the machine for every clause that is asked, and for integrity."""
        names: set[str] = set(ALWAYS_FACTS)
        for module in self._asked_modules():
            names.update(getattr(module, "FACTS", ()))
        for clause in self.selection.asked:
            names.update(getattr(self.families[clause.family], "FACTS_OF", {}).get(clause.name, ()))
        paths = [str(c.settings["path"]) for c in self.selection.asked if "path" in c.settings]
        delivered = [str(c.settings["python_path"]) for c in self.selection.asked if "python_path" in c.settings]
        python = self.options.python or next(iter(delivered), None)
        asked = Asked(tuple(dict.fromkeys(paths)), python)
        before = (len(self.host.log), len(self.host.cited))
        begun = time.monotonic()
        for name in sorted(names):
            read = self._guard(f"facts {name}", partial(facts_package.collect, [name], self.host, asked))
            self.facts.update(read or {})
        self._record("facts", before, time.monotonic() - begun, self.host)

    def make_plan(self) -> Plan:
        """The steps that the asked clauses need on this machine."""
        steps: list[Step] = []
        for key, clauses in self._by_family():
            module = self.families[key]
            if hasattr(module, "steps"):
                found = self._guard(f"steps of {key}", partial(_listed, module.steps, clauses, self._case()))
                steps += found or []
        self.plan = arrange(steps, self.options)
        self._waiting = {k: ScopeEntry(k, msg("not measured yet")) for p in self.plan.steps for k in p.step.keys}
        for entry in self.plan.left_out:
            self.measured[entry.key] = Missing("left-out", entry.why)
        self.observer.planned(self.plan)
        return self.plan

    def ask_unable(self) -> None:
        """Have the steps that cannot run say why: their reason without a load, for a plan."""
        for planned in self.plan.steps:
            if not planned.can_run:
                self._execute(planned, planned.look, self.host)

    def measure(self, after_step: Callable[[], None] = lambda: None) -> None:
        """Every planned step, with the further looks that the judges ask for."""
        beside = _Beside(self, self.plan.aside if self.host.live else (), after_step)
        try:
            for planned in self.plan.steps:
                if self.options.stop_on_breach and self._broken():
                    self._stop()
                    break
                if planned in beside.steps:
                    continue
                if planned.step.load == "gpu":
                    beside.start()
                self._looks(planned)
                with self._lock:
                    after_step()
            beside.wait()
        except BaseException:
            beside.cancel()
            raise
        for planned in beside.gave:
            if not self.stopped:
                self._further(planned, planned.look)
                after_step()
        if self.plan.steps:
            before = (len(self.host.log), len(self.host.cited))
            begun = time.monotonic()
            self.facts.update(self._guard("facts again", partial(facts_package.again, self.facts, self.host)) or {})
            self._record("facts after the loads", before, time.monotonic() - begun, self.host)

    def findings(self) -> tuple[Finding, ...]:
        """All clauses judged on what is known now, in the contract's order; what is left out comes with its reason."""
        case = self._case()
        by_clause: dict[str, list[Finding]] = {}
        for key, clauses in self._by_family():
            for f in self._judge(self.families[key], clauses, case):
                by_clause.setdefault(f.clause, []).append(f)
        why = {e.key: e.why for e in self.selection.left_out}
        ordered: list[Finding] = []
        for clause in self.contract.clauses:
            if clause.key in why:
                ordered.append(finding(clause, "inconclusive", "left-out", why[clause.key]))
                continue
            ordered += by_clause.pop(clause.key, []) or [_forgotten(clause)]
        if INTEGRITY not in why:
            ordered += self._judge(self.families[INTEGRITY], (), case) if INTEGRITY in self.families else ()
        return tuple(ordered)

    def measurements(self) -> tuple[Measurement, ...]:
        """All measurements taken, in the order of their keys."""
        with self._lock:
            return tuple(m for _, m in sorted(self.measured.items()) if isinstance(m, Measurement))

    def tried(self, what: str, work: Callable[[], T]) -> Optional[T]:
        """What ``work`` gives, or None: a fault of ours is noted and ends no run."""
        return self._guard(what, work)

    # ---- looks

    def _looks(self, planned: Planned) -> None:
        look = planned.look
        if self._execute(planned, look, self.host):
            self._further(planned, look)

    def _further(self, planned: Planned, look: Look) -> None:
        """The looks after one that gave a number, as long as a judge asks for them."""
        while look.number < LOOKS_MAX:
            again = self._asked_again(planned.step)
            if not again or not self._time_for(planned):
                return
            deeper = "deeper" in again.values()
            keys = frozenset(k for k, v in again.items() if v == "deeper" or not deeper)
            look = Look(look.number + 1, "deeper" if deeper else look.depth, keys)
            self.host.sleep(planned.step.settle_s)
            if not self._execute(planned, look, self.host):
                return

    def _execute(self, planned: Planned, look: Look, host: Host, cancelled: Callable[[], bool] = lambda: False) -> bool:
        """Run one look and keep what it gave; False when it gave no new number."""
        step = planned.step
        with self._lock:
            self.observer.begins(planned, look)
        before = (len(host.log), len(host.cited))
        begun = time.monotonic()
        results = self._guard(step.name, lambda: step.execute(host, look))
        with self._lock:
            if cancelled():
                return False
            name = step.name if look.number == 1 else f"{step.name} (look {look.number})"
            self._record(name, before, time.monotonic() - begun, host)
            fault = Missing(
                "failed", self._fault(msg("accept itself failed in this step; this says nothing about the machine"))
            )
            added = False
            for key in step.keys:
                if look.wants(key):
                    result = fault if results is None else results.get(key, fault)
                    added |= self._keep(key, result)
            self.observer.ended(planned, look)
        return added

    def _keep(self, key: str, result: Result) -> bool:
        self._waiting.pop(key, None)
        before = self.measured.get(key)
        if isinstance(result, Taken):
            earlier = before.attempts if isinstance(before, Measurement) else ()
            self.measured[key] = Measurement(
                key, result.unit, result.statistic, (*earlier, result.attempt), result.subject
            )
            return True
        if not isinstance(before, Measurement):
            self.measured[key] = result
        return False

    def _asked_again(self, step: Step) -> dict[str, str]:
        """Measurement keys of this step that a judge wants to see again, and how."""
        wanted: dict[str, str] = {}
        for f in self.findings():
            if f.again is not None:
                wanted.update({k: f.again for k in f.measurements if k in step.keys})
        return wanted

    def _time_for(self, planned: Planned) -> bool:
        if self.options.budget_s is None or not self.host.live:
            return True
        left = self.options.budget_s - (time.monotonic() - self._begun)
        return planned.step.cost(planned.depth).seconds <= left

    def _broken(self) -> bool:
        return any(f.outcome == "fail" and f.severity == "breach" for f in self.findings())

    def _stop(self) -> None:
        self.stopped = True
        for key in self._waiting:
            self.measured.setdefault(key, Missing("left-out", msg("stopped at the first breach (--stop-on-breach)")))

    # ---- judging

    def _case(self) -> Case:
        with self._lock:
            return Case(self.contract, self.facts, {**self._unmeasured(), **self.measured}, self.options.profile)

    def _unmeasured(self) -> dict[str, Missing]:
        return {k: Missing("interrupted", e.why) for k, e in self._waiting.items()}

    def _judge(self, module: ModuleType, clauses: Sequence[Clause], case: Case) -> Sequence[Finding]:
        if not hasattr(module, "judge"):
            return [unsupported(c) for c in clauses]
        name = module.__name__.rpartition(".")[2]
        found = self._guard(f"judge of {name}", partial(_listed, module.judge, clauses, case))
        if found is not None:
            return found
        reason = self._fault(msg("accept itself failed while judging; this says nothing about the machine"))
        if not clauses:
            return [integrity("agent", "inconclusive", "agent-failed", reason)]
        return [finding(c, "inconclusive", "agent-failed", reason) for c in clauses]

    def _by_family(self) -> list[tuple[str, list[Clause]]]:
        grouped: dict[str, list[Clause]] = {}
        for clause in self.selection.asked:
            grouped.setdefault(clause.family, []).append(clause)
        return list(grouped.items())

    def _asked_modules(self) -> list[ModuleType]:
        names = dict.fromkeys(c.family for c in self.selection.asked)
        return [self.families[n] for n in (*names, INTEGRITY) if n in self.families]

    # ---- records

    def _record(self, name: str, before: tuple[int, int], seconds: float, host: Host) -> None:
        ran: Sequence[Ran] = host.log[before[0] :]
        main = max(ran, key=lambda r: r.seconds, default=None)
        self.steps.append(
            StepRecord(
                name=name,
                argv=main.argv if main else (),
                started_at=ran[0].started_at if ran else None,
                seconds=round(seconds, 3),
                exit=main.exit if main else None,
                evidence=tuple(host.cited[before[1] :]),
            )
        )

    def _guard(self, what: str, work: Callable[[], T]) -> Optional[T]:
        try:
            return work()
        except OSError as error:
            self.full |= error.errno in (errno.ENOSPC, errno.EDQUOT)
            self._note(what)
            return None
        except Exception:  # noqa: BLE001 - rule 12: our own fault must not end the run; it is kept and reported
            self._note(what)
            return None

    def _note(self, what: str) -> None:
        text = f"{what}\n{traceback.format_exc()}"
        if text not in self.faults:
            self.faults.append(text)

    def _fault(self, otherwise: Text) -> Text:
        full = msg("the disk of the run folder is full: evidence cannot be kept, so nothing more is judged")
        return full if self.full else otherwise


class _Beside:
    """First looks that run in a thread beside the course's own steps. ``gave``: those that gave a number."""

    def __init__(self, course: Course, steps: Sequence[Planned], after_step: Callable[[], None]) -> None:
        self.steps = steps
        self.gave: list[Planned] = []
        self._course, self._after = course, after_step
        self._host = course.host.beside()
        self._cancelled = False
        self._thread: Optional[threading.Thread] = None

    def start(self) -> None:
        """Begin, once."""
        if self.steps and self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def wait(self) -> None:
        """Until all looks are done; with pauses, so that a signal is heard."""
        while self._thread is not None and self._thread.is_alive():
            self._thread.join(0.2)

    def cancel(self) -> None:
        """No look outlives an interrupted run: its programs are ended, what they gave is dropped."""
        self._cancelled = True
        deadline = time.monotonic() + CANCEL_S
        while self._thread is not None and self._thread.is_alive() and time.monotonic() < deadline:
            self._host.stop_all()
            self._thread.join(0.1)

    def _run(self) -> None:
        course = self._course
        for planned in self.steps:
            if self._cancelled or course.stopped:
                return
            if course._execute(planned, planned.look, self._host, lambda: self._cancelled):
                self.gave.append(planned)
            with course._lock:
                if not self._cancelled:
                    self._after()


def _listed(
    function: Callable[[Sequence[Clause], Case], Iterable[T]], clauses: Sequence[Clause], case: Case
) -> list[T]:
    return list(function(clauses, case))


def _forgotten(clause: Clause) -> Finding:
    """A judge that says nothing of a clause it was given: our fault, and never a pass."""
    reason = msg("accept itself gave no finding for this clause; this says nothing about the machine")
    return finding(clause, "inconclusive", "agent-failed", reason)
