"""``accept run CONTRACT``."""

from __future__ import annotations

import re
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Optional

import click

from agent.cli.shared import (
    LANGUAGE,
    RUN_FOLDER,
    checks,
    fail_text,
    language_in,
    language_of,
    load_contract,
    load_run,
    no_clause,
    own_command,
    pasted,
    translate_for,
)
from agent.cli.terminal import Terminal, ask, plan_lines, show_run
from agent.evidence import LOG, Busy, is_locked, locked
from agent.host import spawn_detached
from agent.model import Contract, Run
from agent.plan import Options, Plan, unknown_patterns
from agent.quantity import QuantityError, convert, parse_quantity
from agent.runner import (
    REPORT_NAMES,
    Job,
    RunError,
    begin_session,
    create,
    default_folder,
    enter,
    execute,
    finish,
    ledger,
    live_host,
    load,
    read_result,
    same_machine,
    status_of,
)
from agent.text import Text, msg
from agent.verdict import Exit

RUNS = Path("accept-runs")


class Declined(Exception):
    """The renter answered no to the plan."""


class Watcher(Terminal):
    """The terminal of a run: shows the plan and asks once."""

    def __init__(self, terminal: Terminal, header: Any, consent: bool) -> None:
        super().__init__(terminal.translate, terminal.console)
        self._header = header
        self._consent = consent

    def planned(self, plan: Plan) -> None:
        super().planned(plan)
        for line in plan_lines(plan, self._header):
            self.say(line)
        if not self._consent and plan.steps and sys.stdin.isatty() and self.live:
            question = msg("Start now?").render(self.translate)
            if not ask(question):
                raise Declined


def seconds(_ctx: click.Context, _param: click.Parameter, value: Optional[str]) -> Optional[float]:
    """``45m`` (minutes: nobody spends milliseconds), ``2 h``, ``90 s`` in seconds."""
    if value is None:
        return None
    try:
        quantity = parse_quantity(re.sub(r"(\d)\s*m\s*$", r"\1 min", value), "time")
        return convert(quantity.value, quantity.unit, "s")
    except QuantityError as error:
        raise click.BadParameter(f"{value!r} is no time; write it like 45m or 2h") from error


@click.command(name="run")
@click.argument("contract", type=click.Path(path_type=Path), required=False)
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), help="Run folder (default: a new one in accept-runs/)."
)
@click.option(
    "--profile",
    type=click.Choice(["facts", "quick", "standard", "full"]),
    default="standard",
    show_default=True,
    help="facts: no loads. quick: everything touched, nothing proven. full: greater depth at once.",
)
@click.option(
    "--budget",
    callback=seconds,
    help="Time to spend, such as 45m; what does not fit is shortened or left out and listed.",
)
@click.option(
    "--only", multiple=True, metavar="KEY", help="Only these clauses, such as cpu or disk[/data].read; may be repeated."
)
@click.option("--skip", multiple=True, metavar="KEY", help="Leave these clauses out; may be repeated.")
@click.option("--stop-on-breach", is_flag=True, help="Stop at the first broken promise.")
@click.option("--recheck", type=RUN_FOLDER, metavar="RUN", help="Only what that earlier run did not find kept.")
@click.option("--python", type=click.Path(dir_okay=False), help="The Python that has torch, for the GPU workers.")
@click.option("--resume", type=RUN_FOLDER, metavar="DIR", help="Go on with a run that broke off.")
@click.option("--detach", is_flag=True, help="Go on in the background; see: accept status DIR.")
@click.option("--yes", is_flag=True, help="Do not ask before the loads start.")
@click.option("--root", default="/", hidden=True, type=click.Path(exists=True, file_okay=False))
@LANGUAGE
def command(
    contract: Optional[Path],
    out: Optional[Path],
    profile: Any,
    budget: Optional[float],
    only: tuple[str, ...],
    skip: tuple[str, ...],
    stop_on_breach: bool,
    recheck: Optional[Path],
    python: Optional[str],
    resume: Optional[Path],
    detach: bool,
    yes: bool,
    root: str,
    lang: Optional[str],
) -> int:
    """Judge this machine against CONTRACT: facts first, then loads, then the verdict and the report.

    Nothing is changed on the machine; test files lie below the paths that the contract names and are removed.
    """
    if resume is None and contract is None:
        raise click.UsageError("name a contract, or --resume DIR")
    if resume is not None:
        _as_it_was_begun()
        job = _resumed(resume, contract, lang)
    else:
        assert contract is not None
        read = load_contract(contract, lang)
        language = language_of(lang, read)
        for pattern in unknown_patterns(read, (*only, *skip)):
            fail_text(no_clause(pattern, read), language)
        options = Options(profile, budget, only, skip, stop_on_breach, python, _unkept(recheck, read, lang))
        job = _created(out, read, options, language, root)
    if detach:
        return _detach(job)
    return _run(job, yes, fresh=resume is None)


def _unkept(recheck: Optional[Path], contract: Contract, lang: Optional[str]) -> Optional[frozenset[str]]:
    """The clauses that were not kept in that run; also those that it knew nothing of."""
    if recheck is None:
        return None
    found = load_run(recheck, lang).findings
    kept = {f.clause for f in found} - {f.clause for f in found if f.outcome != "pass"}
    return frozenset(c.key for c in contract.clauses if c.key not in kept)


# What a run is begun with and goes on with: to ask for something else is to ask for another run.
_FIXED = ("out", "profile", "budget", "only", "skip", "stop_on_breach", "recheck", "python", "root")


def _as_it_was_begun() -> None:
    context = click.get_current_context()
    asked = [p for p in _FIXED if context.get_parameter_source(p) == click.core.ParameterSource.COMMANDLINE]
    if asked:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in asked)
        raise click.UsageError(f"a run goes on as it was begun: {options} cannot be given with --resume")


def _created(out: Optional[Path], contract: Contract, options: Options, language: str, root: str) -> Job:
    folder = out or default_folder(RUNS, socket.gethostname())
    try:
        return create(folder, contract, options, language, root)
    except RunError as error:
        fail_text(error.text, language)


def _resumed(folder: Path, contract: Optional[Path], lang: Optional[str]) -> Job:
    language = language_in(lang, folder)
    try:
        job = load(folder, checks())
        if (folder / "result.json").exists() and read_result(folder).complete:
            fail_text(msg("{folder} is finished: there is nothing to resume", folder=str(folder)), language)
    except RunError as error:
        fail_text(error.text, language)
    if contract is not None and load_contract(contract, lang).sha256 != job.contract.sha256:
        fail_text(msg("{folder} was started with another contract: start a new run", folder=str(folder)), language)
    job.language = lang or job.language
    return job


def _detach(job: Job) -> int:
    """Start the agent again on the prepared folder, in a session of its own."""
    if is_locked(job.folder) is not None:
        fail_text(msg("another agent works on {folder}", folder=str(job.folder)), job.language)
    pid = spawn_detached(
        [*own_command(), "run", "--resume", str(job.folder), "--yes", "--lang", job.language], job.folder / LOG
    )
    translate = translate_for(job.language)
    for line in (
        msg("started in the background, process {pid}", pid=pid),
        msg("see: accept status {folder}", folder=pasted(job.folder)),
    ):
        click.echo(line.render(translate))
    return Exit.ACCEPTED


def _run(job: Job, yes: bool, fresh: bool) -> int:
    terminal = Terminal(translate_for(job.language))
    watcher = Watcher(terminal, job.contract.header, yes)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell's background job ignores it
        signal.signal(signal.SIGINT, _interrupt)
    try:
        with locked(job.folder):
            return _locked_run(job, watcher, fresh)
    except Busy:
        fail_text(msg("another agent works on {folder}", folder=str(job.folder)), job.language)


def _interrupt(_signal: int, _frame: Any) -> None:
    # Only the first counts: a second Ctrl-C must not cut short the removal of test files, or the reports.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def _locked_run(job: Job, watcher: Watcher, fresh: bool) -> int:
    watcher.say(msg("run folder: {folder}", folder=str(job.folder)))
    try:
        host = live_host(job)
        begin_session(job, host, sys.argv)
        if not same_machine(job):
            reason = msg("the machine was rebooted or is another one since this run broke off: start a new run")
            fail_text(reason, job.language)
        _entered(job)
        run = execute(job, host, checks(), watcher)
    except Declined:
        watcher.say(msg("not started"))
        return Exit.INTERRUPTED
    except KeyboardInterrupt:
        watcher.close()
        _conclude(job, _stored(job), watcher)
        return Exit.INTERRUPTED
    finally:
        watcher.close()
    _conclude(job, run, watcher)
    return status_of(run)


def _entered(job: Job) -> None:
    """In the ledger, once: also a run that was killed before it stood there."""
    book = ledger(job)
    try:
        if not any(e.get("event") == "start" and e.get("run_id") == job.run_id for e in book.entries()):
            enter(job)
    except OSError as error:
        why = error.strerror or str(error)
        text = msg("{file}, where every run is numbered, cannot be written ({error}): name another place with --out",
                   file=str(book.path), error=why)  # fmt: skip
        fail_text(text, job.language)


def _stored(job: Job) -> Optional[Run]:
    with suppress(RunError):
        return read_result(job.folder)
    return None


def _conclude(job: Job, run: Optional[Run], watcher: Terminal) -> None:
    if run is None:
        watcher.say(msg("interrupted before anything was measured"))
        return
    show_run(watcher, run)
    try:
        digest = finish(job, run)
    except OSError as error:
        watcher.say(msg("the reports could not be written: {error}", error=str(error)))
        return
    watcher.say(msg("report: {path}", path=str(job.folder / REPORT_NAMES["html"])))
    if run.complete:
        watcher.say(_digest(digest))
    else:
        watcher.say(msg("go on with: accept run --resume {folder}", folder=pasted(job.folder)))


def _digest(digest: str) -> Text:
    return msg("digest: {digest} (send this to the vendor now: it fixes what was measured)", digest=digest)
