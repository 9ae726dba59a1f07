"""``accept trial run|install|uninstall|status|report``."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, Optional

import click

from agent.cli.commands.run import seconds
from agent.cli.shared import (
    LANGUAGE,
    RUN_FOLDER,
    by_ending,
    checks,
    emit,
    fail_text,
    language_in,
    language_of,
    load_contract,
    own_command,
    pasted,
    translate_for,
)
from agent.cli.terminal import Terminal
from agent.course import Course
from agent.evidence import Busy, Store, is_locked, locked, write_atomic
from agent.host import LiveHost
from agent.model import Contract
from agent.plan import Options, Plan
from agent.quantity import format_quantity
from agent.reading import Known
from agent.report.phrases import STATES, VERDICTS
from agent.runner import CONTRACT, RunError, begin_session, create, enter, execute, finish, live_host
from agent.text import Text, msg
from agent.trial import document, presence, schedule, timer
from agent.trial.drive import Clock, Execute, WallClock, drive
from agent.trial.judge import Trial, judge
from agent.trial.runs import Unread, load_runs
from agent.trial.schedule import Schedule, ScheduleError, Slot
from agent.verdict import Exit, NothingJudged

IN_USE_MIB = 0.6 * 1024  # as much as firmware takes; who holds more on a card works on it
FORCE = click.option("--force", is_flag=True, help="Load GPUs that are in use, too.")
PYTHON = click.option(
    "--python", type=click.Path(dir_okay=False), help="The Python that has torch, for the GPU workers."
)
EXITS = {"accepted": Exit.ACCEPTED, "rejected": Exit.REJECTED, "inconclusive": Exit.INCONCLUSIVE}


@click.group(name="trial")
def command() -> None:
    """Trial days: run again and again, and see what changed, in one document."""


@command.command(name="run")
@click.argument("contract", type=click.Path(path_type=Path), required=False)
@click.option("--dir", "folder", required=True, type=click.Path(file_okay=False, path_type=Path), help="Trial folder.")
@click.option("--every", callback=seconds, help="Time between two runs, such as 4h (default: the contract's).")
@click.option("--for", "lasts", callback=seconds, help="Length of the trial, such as 3d (default: the contract's).")
@click.option("--due", is_flag=True, help="Do what is due now and return: for a timer.")
@FORCE
@PYTHON
@click.option("--root", default="/", hidden=True, type=click.Path(exists=True, file_okay=False))
@LANGUAGE
def run_command(
    contract: Optional[Path], folder: Path, every: Optional[float], lasts: Optional[float], due: bool, force: bool,
    python: Optional[str], root: str, lang: Optional[str],
) -> int:  # fmt: skip
    """Run the trial of CONTRACT, or go on with the one in the folder.

    The first and the last run are standard ones, those between quick; each evening of the contract's time zone gets
    at least one. A GPU that is in use is not loaded: that run takes facts and counters only, and says so.
    """
    known = (folder / schedule.FILE).exists()
    if contract is None and not known:
        raise click.UsageError("name a contract: there is no trial in this folder yet")
    read = load_contract(folder / CONTRACT if known else contract or Path(), lang)
    language = language_of(lang, read)
    if known:
        _same(folder, read, contract, every, lasts, lang)
    terminal = Terminal(translate_for(language))
    clock = WallClock()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder):
            plan = schedule.read(folder) if known else _begun(folder, read, clock, every, lasts, language)
            if not due:
                _announce(terminal, plan, *_plans(read, root, python))
            run = _executor(read, terminal, Options(python=python), plan.language, root, force)
            _go_through(folder, plan, clock, run, terminal, due)
    except Busy:
        fail_text(msg("another agent works on {folder}", folder=str(folder)), language)
    except ScheduleError as error:
        fail_text(error.text, language)
    except OSError as error:
        fail_text(msg("{folder} cannot be written: {error}", folder=str(folder), error=str(error)), language)
    except KeyboardInterrupt:
        terminal.close()
        terminal.say(msg("go on with: accept trial run --dir {folder}", folder=pasted(folder)))
        return Exit.INTERRUPTED
    return Exit.ACCEPTED


def _same(
    folder: Path, own: Contract, contract: Optional[Path], every: Optional[float], lasts: Optional[float],
    lang: Optional[str],
) -> None:  # fmt: skip
    """A trial goes on as it was planned; who asks for another one is told."""
    language = language_of(lang, own)
    if contract is not None and load_contract(contract, lang).sha256 != own.sha256:
        fail_text(msg("the trial in {folder} is of another contract", folder=str(folder)), language)
    plan = _schedule(folder, language)
    if plan is not None and (_or(every, plan.every_s), _or(lasts, plan.lasts_s)) != (plan.every_s, plan.lasts_s):
        fail_text(msg("the trial in {folder} is planned already: begin another one in another folder",
                      folder=str(folder)), language)  # fmt: skip


def _or(asked: Optional[float], usual: float) -> float:
    """0 s is asked for too, and refused as what it is."""
    return usual if asked is None else asked


def _interrupt(_signal: int, _frame: Any) -> None:
    raise KeyboardInterrupt


def _begun(
    folder: Path, contract: Contract, clock: Clock, every: Optional[float], lasts: Optional[float], language: str
) -> Schedule:
    set_every, set_lasts, evening, zone = schedule.settings_of(contract.trial)
    plan = schedule.plan(
        contract.sha256, clock.now(), _or(every, set_every), _or(lasts, set_lasts), evening, zone, language,
        seed=int(contract.sha256[:8], 16),
    )  # fmt: skip
    write_atomic(folder / CONTRACT, contract.source)
    schedule.write(folder, plan)
    return plan


def _plans(contract: Contract, root: str, python: Optional[str]) -> tuple[Plan, Plan]:
    """What a standard and a quick run would do here; reads facts, loads nothing, keeps nothing."""
    with tempfile.TemporaryDirectory(prefix="accept-plan-") as scratch:
        options = Options(python=python)
        course = Course(contract, options, checks(), LiveHost(Store(Path(scratch)), Path(root)))
        course.read_facts()
        standard = course.make_plan()
        course.options = replace(options, profile="quick")
        return standard, course.make_plan()


def _announce(terminal: Terminal, plan: Schedule, standard: Plan, quick: Plan) -> None:
    days = max(plan.lasts_s / 86400, 1e-9)
    counts = {"standard": 0, "quick": 0}
    for slot in plan.slots:
        counts["standard" if slot.profile == "standard" else "quick"] += 1

    def daily(of_standard: float, of_quick: float) -> float:
        return (counts["standard"] * of_standard + counts["quick"] * of_quick) / max(days, 1)

    terminal.say(
        msg(
            "{n} runs from {start} to {end} UTC: {standard} standard, {quick} quick",
            n=len(plan.slots),
            start=f"{plan.slots[0].at:%Y-%m-%d %H:%M}",
            end=f"{plan.slots[-1].at:%Y-%m-%d %H:%M}",
            standard=counts["standard"],
            quick=counts["quick"],
        )
    )
    terminal.say(
        msg(
            "a day: {minutes} minutes, {written} written to disks, {sent} over the network at most",
            minutes=f"{daily(standard.seconds, quick.seconds) / 60:.0f}",
            written=format_quantity(float(daily(standard.written, quick.written)), "B"),
            sent=format_quantity(float(daily(standard.sent, quick.sent)), "B"),
        )
    )


def _executor(
    contract: Contract, terminal: Terminal, options: Options, language: str, root: str, force: bool
) -> Execute:
    """Runs one slot as ``accept run`` would, but leaves cards in peace that are in use."""

    def run(slot: Slot, folder: Path) -> Optional[str]:
        notes: list[Text] = []

        def adapt(facts: Mapping[str, Any], asked: Options) -> Options:
            busy = () if force else in_use(facts)
            if not busy:
                return asked
            notes.append(msg("GPU {slots} in use: facts and counters only", slots=tuple(busy)))
            return replace(asked, profile="facts")

        try:
            job = create(folder, contract, replace(options, profile=slot.profile), language, root, "--dir")
        except RunError as error:
            return error.text.render(terminal.translate)
        with locked(folder):
            host = live_host(job)
            begin_session(job, host, sys.argv)
            enter(job)
            finish(job, execute(job, host, checks(), terminal, adapt))
        return "; ".join(n.render(terminal.translate) for n in notes) or None

    return run


def in_use(facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Slots of the cards on which somebody works, before any load of ours."""
    busy = []
    for gpu in getattr(facts.get("gpus"), "gpus", ()):
        listed = gpu.any("processes", "nvml", "smi")
        if isinstance(listed, Known) and any(p.used_mib is None or p.used_mib >= IN_USE_MIB for p in listed.value):
            busy.append(gpu.slot)
    return tuple(busy)


def _go_through(
    folder: Path, plan: Schedule, clock: Clock, run: Execute, terminal: Terminal, due: bool
) -> None:  # fmt: skip
    ended = plan
    for ended, slot in drive(folder, plan, clock, run, only_due=due):
        terminal.close()
        terminal.say(_slot_line(slot, len(ended.slots)))
    if ended.next() is None:
        terminal.say(msg("the trial is over; see: accept trial report {folder}", folder=pasted(folder)))


def _slot_line(slot: Slot, of: int) -> Text:
    said = msg("{when} UTC, run {n} of {m}: {state}", when=_when(slot), n=slot.number, m=of, state=STATES[slot.state])
    return msg("{said} ({note})", said=said, note=slot.note) if slot.note else said


def _when(slot: Slot) -> str:
    return f"{slot.at:%Y-%m-%d %H:%M}"


@command.command(name="install")
@click.argument("contract", type=click.Path(path_type=Path), required=False)
@click.option("--dir", "folder", required=True, type=click.Path(file_okay=False, path_type=Path), help="Trial folder.")
@click.option("--every", callback=seconds, help="Time between two runs, such as 4h (default: the contract's).")
@click.option("--for", "lasts", callback=seconds, help="Length of the trial, such as 3d (default: the contract's).")
@click.option("--as", "kind", type=click.Choice(["system", "user", "cron"]), help="Default: the best of what is there.")
@FORCE
@PYTHON
@click.option("--print", "only_print", is_flag=True, help="Show what would be written, and write nothing.")
@LANGUAGE
def install_command(
    contract: Optional[Path], folder: Path, every: Optional[float], lasts: Optional[float], kind: Optional[timer.Kind],
    force: bool, python: Optional[str], only_print: bool, lang: Optional[str],
) -> int:  # fmt: skip
    """Let a timer run the trial of CONTRACT, also after a reboot; the first run begins within minutes.

    A systemd timer of the system (as root) or of the user, or a line of the user's crontab. `accept trial uninstall`
    takes it away whole.
    """
    known = (folder / schedule.FILE).exists()
    if contract is None and not known:
        raise click.UsageError("name a contract: there is no trial in this folder yet")
    read = load_contract(folder / CONTRACT if known else contract or Path(), lang)
    language = language_of(lang, read)
    if known:
        _same(folder, read, contract, every, lasts, lang)
    terminal = Terminal(translate_for(language))
    settings = schedule.settings_of(read.trial)
    absolute = folder.resolve()
    try:
        between = schedule.read(folder).every_s if known else _or(every, settings[0])
        job = timer.Timer(absolute, own_command(), os.environ.get("PATH", os.defpath), between,
                          _told(force, python, language))  # fmt: skip
        if only_print:
            _print_timer(job, kind, terminal)
            return Exit.ACCEPTED
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="accept-timer-") as scratch:
            if not known:
                _begun(folder, read, WallClock(), every, lasts, language)
            done = timer.install(LiveHost(Store(Path(scratch))), job, kind)
    except ScheduleError as error:
        fail_text(error.text, language)
    except timer.TimerError as error:
        fail_text(error.text, language)
    except OSError as error:
        fail_text(msg("{folder} cannot be written: {error}", folder=str(folder), error=str(error)), language)
    for path in done.what:
        terminal.say(msg("installed: {path}", path=path))
    if done.note is not None:
        terminal.say(done.note)
    terminal.say(msg("see: accept trial status {folder}", folder=pasted(folder)))
    terminal.say(msg("take it away with: accept trial uninstall {folder}", folder=pasted(folder)))
    return Exit.ACCEPTED


def _told(force: bool, python: Optional[str], language: str) -> list[str]:
    """Options for every run of the timer, which starts in another folder: the interpreter by its whole path."""
    told = ["--force"] if force else []
    if python is not None:
        found = shutil.which(python)
        if found is None:
            fail_text(msg("{python} is no program that can be started", python=python), language)
        told += ["--python", os.path.abspath(found)]  # a virtual environment's is a link: it must stay one
    return told


def _print_timer(job: timer.Timer, kind: Optional[timer.Kind], terminal: Terminal) -> None:
    if kind in ("system", "user"):
        for name, text in (("service", timer.service_text(job)), ("timer", timer.timer_text(job))):
            terminal.raw(f"# {timer.units(kind) / f'{job.name}.{name}'}")
            click.echo(text)
    else:
        click.echo(timer.cron_line(job))


@command.command(name="uninstall")
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@LANGUAGE
def uninstall_command(folder: Path, lang: Optional[str]) -> int:
    """Take the timer of a trial away. The runs in DIR stay."""
    language = language_in(lang, folder)
    with tempfile.TemporaryDirectory(prefix="accept-timer-") as scratch:
        try:
            taken = timer.uninstall(LiveHost(Store(Path(scratch))), folder)
        except timer.TimerError as error:
            fail_text(error.text, language)
    if not taken:
        fail_text(msg("no timer is installed for {folder}", folder=str(folder)), language)
    terminal = Terminal(translate_for(language))
    for path in taken:
        terminal.say(msg("removed: {path}", path=path))
    return Exit.ACCEPTED


@command.command(name="status")
@click.argument("folder", metavar="DIR", type=RUN_FOLDER)
@LANGUAGE
def status_command(folder: Path, lang: Optional[str]) -> int:
    """Which runs of a trial are done, missed, to come."""
    language = language_in(lang, folder)
    plan = _schedule(folder, language)
    if plan is None:
        fail_text(
            msg("{folder} is no trial folder: it has no {file}", folder=str(folder), file=schedule.FILE), language
        )
    terminal = Terminal(translate_for(language))
    for slot in plan.slots:
        terminal.say(_slot_line(slot, len(plan.slots)))
    pid = is_locked(folder)
    coming = plan.next()
    if coming is None:
        terminal.say(msg("the trial is over; see: accept trial report {folder}", folder=pasted(folder)))
    elif pid is None:
        terminal.say(msg("nobody works on it now; go on with: accept trial run --dir {folder}", folder=pasted(folder)))
    else:
        terminal.say(msg("process {pid} works on it; next run {when} UTC", pid=pid, when=_when(coming)))
    return Exit.ACCEPTED


def _schedule(folder: Path, language: str) -> Optional[Schedule]:
    try:
        return schedule.read(folder)
    except FileNotFoundError:
        return None
    except ScheduleError as error:
        fail_text(error.text, language)


@command.command(name="report")
@click.argument("folder", metavar="DIR", type=RUN_FOLDER)
@click.option("--format", "name", type=click.Choice(document.FORMATS), help="Only this one, printed or to -o.")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--own-restart", multiple=True, type=click.IntRange(min=1), help="This restart was your own (1 = first).")
@LANGUAGE
def report_command(
    folder: Path, name: Optional[str], output: Optional[Path], own_restart: tuple[int, ...], lang: Optional[str]
) -> int:
    """One document over all runs in DIR: a trial folder, or any folder of runs.

    Writes trial.html, trial.md and trial-report.json into DIR. Exit 0 accepted, 1 rejected, 3 inconclusive.
    """
    name = name or by_ending(output, dict(zip(document.FORMATS, document.FORMATS)))
    if output is not None and name is None:
        raise click.UsageError("which of the three goes to -o? name it with --format, or let the file end so")
    gc.disable()  # hundreds of megabytes of JSON without a cycle: looking for one takes a quarter of the time
    language = language_in(lang, folder)
    plan = _schedule(folder, language)
    runs, unread = load_runs(folder)
    if not runs:
        _nothing(folder, unread, plan, language)
    own = folder / CONTRACT
    contract = load_contract(own if own.exists() else folder / runs[0].folder / CONTRACT, lang)
    language = language_of(lang, contract)
    others = tuple(Unread(r.folder, msg("another contract")) for r in runs if r.contract_sha256 != contract.sha256)
    runs, unread = tuple(r for r in runs if r.contract_sha256 == contract.sha256), (*unread, *others)
    try:
        up = presence.spans(folder)
    except (OSError, ValueError) as error:
        fail_text(msg("{file} of this trial cannot be read: {error}", file=presence.FILE, error=str(error)), language)
    try:
        trial = judge(runs, contract, plan, unread, up, own_restart)
    except NothingJudged:
        fail_text(msg("no run in {folder} judged this contract", folder=str(folder)), language, Exit.AGENT_FAILED)
    except ScheduleError as error:
        fail_text(error.text, language)
    translate = translate_for(language)
    if name is not None:
        emit(document.render(trial, name, translate, language), output, language)
    else:
        _write_all(folder, trial, Terminal(translate), language)
    return EXITS[trial.verdict]


def _nothing(folder: Path, unread: Sequence[Unread], plan: Optional[Schedule], language: str) -> NoReturn:
    """No result to judge: a folder without runs is wrong use; runs that all broke off are a trial that failed."""
    if not unread and plan is None:
        fail_text(msg("{folder} holds no run with a result", folder=str(folder)), language)
    if not unread:
        coming = plan.next() if plan is not None else None
        if coming is not None:
            fail_text(msg("no run of {folder} has begun; the next is due {when} UTC", folder=str(folder),
                          when=_when(coming)), language)  # fmt: skip
        fail_text(msg("no run of {folder} left a result", folder=str(folder)), language, Exit.AGENT_FAILED)
    notes = {s.folder: s.note for s in plan.slots if s.note} if plan is not None else {}
    first = unread[0]
    text = msg(
        "none of the {n} runs in {folder} has a result that can be read; {run}: {why}",
        n=len(unread),
        folder=str(folder),
        run=first.folder,
        why=notes.get(first.folder) or first.why,
    )
    fail_text(text, language, Exit.AGENT_FAILED)


def _write_all(folder: Path, trial: Trial, terminal: Terminal, language: str) -> None:
    for kind in document.FORMATS:
        text = document.render(trial, kind, terminal.translate, language)
        emit(text, folder / f"trial.{kind}" if kind != "json" else folder / "trial-report.json")
    terminal.say(msg("trial {verdict}: {headline}", verdict=VERDICTS[trial.verdict], headline=trial.headline))
    for judged in trial.judged:
        if judged.finding.outcome != "pass":
            terminal.say(msg("  {id}: {why}", id=judged.finding.id, why=judged.finding.reason))
    terminal.say(msg("report: {path}", path=str(folder / "trial.html")))
