"""``accept judge CONTRACT RUN``."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import click

from agent import report
from agent.cli.shared import (
    LANGUAGE,
    RUN_FOLDER,
    checks,
    fail,
    fail_text,
    language_of,
    load_contract,
    translate_for,
)
from agent.cli.terminal import Terminal, show_run
from agent.evidence import RESULT, write_atomic
from agent.result import dumps, to_json
from agent.runner import REPORT_NAMES, REPORTS, RunError, judge_again, status_of


@click.command(name="judge")
@click.argument("contract", type=click.Path(path_type=Path))
@click.argument("run", type=RUN_FOLDER)
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Write result.json and reports here.")
@LANGUAGE
def command(contract: Path, run: Path, out: Optional[Path], lang: Optional[str]) -> int:
    """Judge the recorded evidence of RUN again, also with another CONTRACT; starts no process."""
    read = load_contract(contract, lang)
    language = language_of(lang, read)
    try:
        _, judged = judge_again(run, read, checks())
    except RunError as error:
        fail_text(error.text, language)
    show_run(Terminal(translate_for(language)), judged)
    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
            write_atomic(out / RESULT, dumps(to_json(judged)).encode())
            for name in REPORTS:
                text = report.render(judged, name, run, language)
                write_atomic(out / REPORT_NAMES[name], text.encode("utf-8", "backslashreplace"))
        except OSError as error:
            fail(f"accept: {out}: {error.strerror}")
        click.echo(str(out / REPORT_NAMES["html"]))
    return status_of(judged)
