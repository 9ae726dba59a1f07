"""``accept plan CONTRACT``."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Optional

import click

from agent.cli.commands.run import seconds
from agent.cli.shared import LANGUAGE, checks, fail_text, language_of, load_contract, no_clause, translate_for
from agent.cli.terminal import Terminal, duration, plan_lines
from agent.course import Course
from agent.evidence import Store
from agent.host import LiveHost
from agent.model import Finding
from agent.plan import Options, clauses_of, unknown_patterns
from agent.text import Text, msg


@click.command(name="plan")
@click.argument("contract", type=click.Path(path_type=Path))
@click.option(
    "--profile", type=click.Choice(["facts", "quick", "standard", "full"]), default="standard", show_default=True
)
@click.option("--budget", callback=seconds, help="Time to spend, such as 45m.")
@click.option("--only", multiple=True, metavar="KEY")
@click.option("--skip", multiple=True, metavar="KEY")
@click.option("--python", type=click.Path(dir_okay=False))
@click.option("--root", default="/", hidden=True, type=click.Path(exists=True, file_okay=False))
@LANGUAGE
def command(
    contract: Path,
    profile: Any,
    budget: Optional[float],
    only: tuple[str, ...],
    skip: tuple[str, ...],
    python: Optional[str],
    root: str,
    lang: Optional[str],
) -> None:
    """What would run here, in which order and for how long; what cannot be verified with this access, and why.

    Reads the machine's facts, loads nothing, keeps nothing.
    """
    read = load_contract(contract, lang)
    language = language_of(lang, read)
    for pattern in unknown_patterns(read, (*only, *skip)):
        fail_text(no_clause(pattern, read), language)
    terminal = Terminal(translate_for(language))
    options = Options(profile, budget, only, skip, python=python)
    with tempfile.TemporaryDirectory(prefix="accept-plan-") as folder:
        course = Course(read, options, checks(), LiveHost(Store(Path(folder)), Path(root)))
        course.read_facts()
        plan = course.make_plan()
        course.ask_unable()
        findings = course.findings()
    for line in plan_lines(plan, read.header):
        terminal.say(line)
    able = [p for p in plan.steps if p.can_run]
    for planned in able:
        keys = clauses_of(planned.step.keys)
        terminal.raw(f"  {duration(planned.cost.seconds):>8}  {planned.step.name}  ({keys})")
    if plan.aside:
        names = ", ".join(p.step.name for p in plan.aside)
        terminal.say(msg("beside the loads of the GPUs: {names}", names=names))
    if plan.tools:
        terminal.say(msg("beside our own, on this machine: {tools}", tools=", ".join(plan.tools)))
    if plan.no_time_for:
        terminal.say(msg("on this machine, but no time for: {tools}", tools=", ".join(plan.no_time_for)))
    waiting = {k for p in able for k in p.step.keys}
    blind = [
        f
        for f in findings
        if f.outcome == "inconclusive"
        and f.reason_code != "interrupted"
        and not waiting.intersection((f.id, f.clause, *f.measurements))
    ]
    if blind:
        terminal.say(msg("cannot be verified here:"))
    # One reason often stands behind twenty promises: it is said once.
    for (reason, grant), ids in _by_reason(blind).items():
        terminal.raw(f"  {clauses_of(ids)}")
        terminal.raw(f"      {reason.render(terminal.translate)}")
        if grant is not None:
            terminal.raw(f"      → {grant.render(terminal.translate)}")


def _by_reason(blind: Iterable[Finding]) -> dict[tuple[Text, Optional[Text]], list[str]]:
    found: dict[tuple[Text, Optional[Text]], list[str]] = {}
    for f in blind:
        found.setdefault((f.reason, f.grant), []).append(f.id)
    return found
