"""The terminal: progress with time left, and the verdict; plain lines where nobody watches a terminal.

A terminal that goes away (lost SSH connection) must not stop the run: what cannot be printed is dropped.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Optional

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, TaskID, TextColumn, TimeElapsedColumn

from agent.bench.step import TRAFFIC_CAP, Look
from agent.model import Finding, Run, ScopeEntry
from agent.plan import FACTS_S, Plan, Planned, folded
from agent.quantity import format_quantity
from agent.report import looks, numbers
from agent.report.clean import visible
from agent.report.view import partial
from agent.text import Text, Translate, msg

SHOWN_FINDINGS = 40
SAME_AGAIN = "promised {promised}, found {found}"  # a reason that tells nothing beside the two


class _Console(Console):
    """Printing to a reader that went away goes nowhere: rich would end the process with status 1."""

    def on_broken_pipe(self) -> None:
        _into_nothing()


def _into_nothing() -> None:
    """Point stdout at /dev/null, so that neither a later line nor the flush at exit fails again."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.close(nothing)


class _Moving(Progress):
    """A bar that also moves within a step, by the clock: a burn of ten minutes is not ten minutes of one picture."""

    def __init__(self, now: Callable[[], tuple[float, str]], *columns: ProgressColumn, console: Console) -> None:
        self._now = now
        super().__init__(*columns, console=console, transient=True)

    def get_renderables(self) -> Iterable[RenderableType]:
        completed, left = self._now()
        for task in self.task_ids:
            self.update(task, completed=completed, left=left)
        return super().get_renderables()


class Terminal:
    """An observer that draws; ``live`` is a terminal that can show a moving bar. ``clock`` gives seconds."""

    def __init__(
        self, translate: Translate, console: Optional[Console] = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.translate = translate
        self.console = console or _Console(highlight=False, soft_wrap=True)
        self.live = self.console.is_terminal
        self._bar: Optional[Progress] = None
        self._task: Optional[TaskID] = None
        self._done = 0.0
        self._clock = clock
        self._step: tuple[float, float] = (0.0, 0.0)  # when the running step began, and what it was planned to take
        self._plan = Plan(())

    def say(self, text: Text, style: str = "") -> None:
        """One line; nothing happens when the terminal is gone."""
        self.raw(text.render(self.translate), style)

    def raw(self, line: str, style: str = "") -> None:
        """A line that is already in the user's language; control characters are made visible."""
        try:
            self.console.print(escape(visible(line)), style=style or None)
            self.console.file.flush()
        except OSError:
            _into_nothing()

    def planned(self, plan: Plan) -> None:
        """What will happen, before it does."""
        self._plan = plan

    def begins(self, planned: Planned, look: Look) -> None:
        """A step starts: the bar's text, or a plain line."""
        words = self._step_words(planned, look)
        if planned not in self._plan.aside:
            self._step = (self._clock(), planned.cost.seconds if look.number == 1 else 0.0)
        if not self.live:
            self.raw(words)
            return
        with suppress(OSError):
            if self._bar is None:
                self._open()
            if self._bar is not None and self._task is not None:
                self._bar.update(self._task, description=escape(visible(words)))

    def ended(self, planned: Planned, look: Look) -> None:
        """A step is over."""
        if look.number == 1 and planned not in self._plan.aside:
            self._done += planned.cost.seconds
            self._step = (0.0, 0.0)

    def close(self) -> None:
        """Take the bar away."""
        with suppress(OSError):
            if self._bar is not None:
                self._bar.stop()
        self._bar = None

    def _open(self) -> None:
        self._bar = _Moving(
            self._now,
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=self.console,
        )
        total = max(self._plan.seconds - FACTS_S, 1.0)
        self._task = self._bar.add_task("", total=total, left="")
        self._bar.start()

    def _now(self) -> tuple[float, str]:
        """Seconds of the plan that are over, and the rest in words; a step that lasts longer than planned waits."""
        began, planned_s = self._step
        over = self._done + min(max(self._clock() - began, 0.0), planned_s)
        rest = max(self._plan.seconds - FACTS_S - over, 0.0)
        return over, msg("about {left} left", left=duration(rest)).render(self.translate)

    def _step_words(self, planned: Planned, look: Look) -> str:
        names = [p.step.name for p in self._plan.steps]
        name = planned.step.name
        where = f"[{names.index(name) + 1}/{len(names)}]" if name in names else ""
        text = msg("{name}, about {s}", name=name, s=duration(planned.cost.seconds))
        if look.number > 1:  # of some of its promises only
            text = msg("{name}, look {n}", name=name, n=look.number)
        return f"{where} {text.render(self.translate)}".strip()


def duration(seconds: float) -> str:
    """``45 s`` or ``2.5 min``, the same in every language."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.1f} min"


def plan_lines(plan: Plan, header: Mapping[str, Any]) -> list[Text]:
    """What will run and what it costs, in minutes, bytes and, where the contract has a price, in money."""
    lines = [
        msg("plan: {n} measurements, about {time}", n=sum(p.can_run for p in plan.steps), time=duration(plan.seconds))
    ]
    cost = money(plan.seconds, header)
    if cost is not None:
        lines.append(msg("costs about {money} of rented time", money=cost))
    if plan.written:
        lines.append(msg("writes at most {bytes} of test files, removed afterwards", bytes=_bytes(plan.written)))
    if plan.sent:
        text = msg(
            "moves about {bytes} over the network at the promised rates; a faster line moves more: up to {most} a test "
            "and direction where traffic may be paid by the byte",
            bytes=_bytes(plan.sent),
            most=_bytes(TRAFFIC_CAP),
        )
        lines.append(text)
    lines += _by_reason(plan.left_out)
    lines += _by_reason(plan.shortened)
    return lines


def _by_reason(entries: Iterable[ScopeEntry]) -> list[Text]:
    """One line for each reason, however many clauses it meets: ``shortened by --profile quick: gemm.bf16, burn``."""
    keys: dict[Text, list[str]] = {}
    for entry in folded(entries):
        keys.setdefault(entry.why, []).append(entry.key)
    return [msg("{why}: {keys}", why=why, keys=tuple(of)) for why, of in keys.items()]


def _bytes(count: int) -> str:
    return format_quantity(float(count), "B")


HOURS = {"hour": 1.0, "h": 1.0, "day": 24.0, "week": 168.0, "month": 730.0, "year": 8760.0}


def money(seconds: float, header: Mapping[str, Any]) -> Optional[str]:
    """The share of the contract's price that the run takes; None where the contract states none."""
    price = header.get("price")
    if not isinstance(price, Mapping):
        return None
    hours = HOURS.get(str(price.get("per", "")).strip().lower())
    amount = price.get("amount")
    if hours is None or not isinstance(amount, (int, float)):
        return None
    return f"{amount * seconds / 3600 / hours:.2f} {price.get('currency', '')}".strip()


def show_run(terminal: Terminal, run: Run) -> None:
    """Broken promises, then what could not be decided, then the headline and the verdict."""
    order = [f for f in run.findings if f.outcome == "fail"]
    order += [f for f in run.findings if f.outcome == "inconclusive"]
    order += [f for f in run.findings if f.outcome == "pass" and f.severity == "breach"]
    beside = [f for f in run.findings if f.outcome == "pass" and f.severity == "advisory"]
    order += beside
    for f in order[:SHOWN_FINDINGS]:
        # What the headline does not count stands apart from what it does.
        if beside and f is beside[0]:
            terminal.say(msg("also looked at, nothing wrong:"))
        terminal.raw(finding_line(f, terminal.translate), looks.of_outcome(f.outcome, f.severity).colour)
    if len(order) > SHOWN_FINDINGS:
        terminal.say(msg("… and {n} more in the report", n=len(order) - SHOWN_FINDINGS))
    terminal.raw("")
    terminal.say(run.headline)
    for text in partial(run):
        terminal.say(text)
    verdict = looks.of_verdict(run.verdict)
    terminal.raw(f"{verdict.sigil} {verdict.word.render(terminal.translate)}", f"bold {verdict.colour}")


def finding_line(f: Finding, translate: Translate) -> str:
    """One finding in one line: sigil, id, promised, measured, and why where it is not kept."""
    parts = [f"{looks.of_outcome(f.outcome, f.severity).sigil} {f.id}"]
    if f.promised:
        parts.append(msg("promised {value}", value=f.promised).render(translate))
    if f.measured is not None:
        parts.append(msg("measured {value}", value=measured(f, translate)).render(translate))
    if f.outcome != "pass" and not (f.measured is not None and f.reason.template == SAME_AGAIN):
        parts.append(f.reason.render(translate))
    if f.grant is not None:
        parts.append(f.grant.render(translate))
    return "  ".join(parts)


def measured(f: Finding, translate: Translate) -> str:
    """The measured value with its unit, as a person reads it."""
    if isinstance(f.measured, float) and f.unit:
        return format_quantity(f.measured, f.unit, numbers.ends(f.limit, f.unit))
    if isinstance(f.measured, int) and not isinstance(f.measured, bool):
        return f"{f.measured} {f.unit}".strip()
    return numbers.measured(f, translate)


def ask(question: str) -> bool:
    """A yes from the keyboard; only asked where somebody sits at one."""
    sys.stdout.write(f"{question} [Y/n] ")
    sys.stdout.flush()
    answer = sys.stdin.readline()
    if not answer:
        return False  # end of input is no consent
    return answer.strip().lower() in ("", "y", "yes", "是", "好")
