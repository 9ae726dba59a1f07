"""``accept watch``."""

from __future__ import annotations

import json
import re
import signal
import time
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any, Optional

import click

from agent.cli.commands.run import seconds
from agent.cli.shared import LANGUAGE, emit, fail_text, language_of, pasted, translate_for
from agent.cli.terminal import Terminal
from agent.cli.watching import View, event_line, summary_lines
from agent.evidence import Busy, locked
from agent.text import msg
from agent.verdict import Exit
from agent.watch import log
from agent.watch.source import Source
from agent.watch.summary import summarise, to_json
from agent.watch.watching import Watching

FOLDER = Path("accept-watch")
SHORTEST_S = 1.0


class WallClock:
    """The machine's own clocks."""

    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds))


def moment(_ctx: click.Context, _param: click.Parameter, value: Optional[str]) -> Optional[float]:
    """``2h`` (ago) or a local ``2026-11-30 21:00`` as seconds since 1970."""
    if value is None:
        return None
    if re.fullmatch(r"\d{4}-\d\d-\d\d.*", value.strip()):
        try:
            return datetime.fromisoformat(value.strip().replace("Z", "+00:00")).timestamp()
        except ValueError as error:
            raise click.BadParameter(
                f"{value!r} is no time; write it like 2026-11-30 21:00, or 2h for 2 h ago"
            ) from error
    ago = seconds(_ctx, _param, value)
    return None if ago is None else time.time() - ago


@click.command(name="watch")
@click.option("--every", callback=seconds, default="5s", show_default=True, help="Time between two looks.")
@click.option(
    "--dir", "folder", type=click.Path(file_okay=False, path_type=Path), default=FOLDER, show_default=True,
    help="Folder of the log.",
)  # fmt: skip
@click.option("--no-log", is_flag=True, help="Only show, keep nothing.")
@click.option("--for", "lasts", callback=seconds, help="Stop after this time.")
@click.option("--prom", type=click.Path(dir_okay=False, path_type=Path), help="Also keep this Prometheus text file.")
@click.option("--summary", is_flag=True, help="Do not watch: say what the log of a span holds.")
@click.option("--since", callback=moment, help="With --summary: from then, 2h (ago) or 2026-11-30 21:00.")
@click.option("--until", callback=moment, help="With --summary: until then.")
@click.option("--format", "name", type=click.Choice(["txt", "json"]), default="txt", show_default=True)
@click.option("--root", default="/", hidden=True, type=click.Path(exists=True, file_okay=False))
@LANGUAGE
def command(
    every: float, folder: Path, no_log: bool, lasts: Optional[float], prom: Optional[Path], summary: bool,
    since: Optional[float], until: Optional[float], name: str, root: str, lang: Optional[str],
) -> int:  # fmt: skip
    """Watch GPUs and host while you work: live, with a log, marking faults and GPUs that wait for data.

    Temperature, power, clocks, utilization, memory, causes of throttling, PCIe and NVLink traffic and errors, Xids as
    they come, CPU, stolen time, disk and network. No load, nothing is changed. The log is bounded: at most 16 MB plus
    24 packed files of that size, the oldest go. Ctrl-C ends it.
    """
    language = language_of(lang)
    if summary:
        return _summary(folder, since, until, name, language)
    if since is not None or until is not None:
        raise click.UsageError("--since and --until belong to --summary")
    if every < SHORTEST_S:
        raise click.BadParameter("at least 1s; accept run samples faster beside its loads", param_hint="--every")
    terminal = Terminal(translate_for(language))
    view = View(terminal)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _interrupt)
    looks = None if lasts is None else max(1, round(lasts / every))
    source = Source(WallClock(), every, "" if root == "/" else root, looks)
    with ExitStack() as stack:
        if not no_log:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locked(folder))
            except Busy:
                fail_text(msg("another agent watches into {folder}", folder=str(folder)), language)
            except OSError as error:
                fail_text(msg("{folder} cannot be written: {error}", folder=str(folder), error=str(error)), language)
            terminal.say(msg("log: {path}", path=str(folder / log.FILE)))
        try:
            for told in Watching(every, None if no_log else folder, prom).follow(source):
                view.tell(told)
        except KeyboardInterrupt:
            pass  # the usual end
        finally:
            view.close()
    if not no_log:
        terminal.say(msg("sum it up with: accept watch --summary --dir {folder}", folder=pasted(folder)))
    return Exit.ACCEPTED


def _interrupt(_signal: int, _frame: Any) -> None:
    raise KeyboardInterrupt


def _summary(folder: Path, since: Optional[float], until: Optional[float], name: str, language: str) -> int:
    if not (folder / log.FILE).exists() and not any(folder.glob(log.OLD)):
        fail_text(msg("{folder} holds no log of accept watch", folder=str(folder)), language)
    found = summarise(log.read(folder), since, until)
    if name == "json":
        emit(json.dumps(to_json(found), indent=1), None)
        return Exit.ACCEPTED
    terminal = Terminal(translate_for(language))
    for line in summary_lines(found):
        terminal.say(line)
    if found.events:
        terminal.say(msg("events:"))
    for event in found.events:
        terminal.raw(event_line(event, terminal.translate))
    return Exit.ACCEPTED
