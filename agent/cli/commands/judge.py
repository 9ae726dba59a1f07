"""``accept judge CONTRACT RUN``."""

from __future__ import annotations

from dataclasses import replace
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
from agent.runner import JOB, REPORT_NAMES, REPORTS, RunError, inside, judge_again, status_of
from agent.text import msg


@click.command(name="judge")
@click.argument("contract", type=click.Path(path_type=Path))
@click.argument("run", type=RUN_FOLDER)
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Write result.json and reports here.")
@LANGUAGE
def command(contract: Path, run: Path, out: Optional[Path], lang: Optional[str]) -> int:
    """Judge the recorded evidence of RUN again, also with another CONTRACT; starts no process."""
    read = load_contract(contract, lang)
    language = language_of(lang, read)
    if out is not None and (taken := out if (out / JOB).exists() else inside(out)) is not None:
        fail_text(msg("{folder} is the record of a run and is not written over: name another place with --out",
                      folder=str(taken)), language)  # fmt: skip
    try:
        _, judged = judge_again(run, read, checks())
    except RunError as error:
        fail_text(error.text, language)
    said = msg("judged again from what run {run} recorded, whose own result stays as it is", run=judged.run_id)
    judged = replace(judged, language=language, notes=(*judged.notes, said))
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
