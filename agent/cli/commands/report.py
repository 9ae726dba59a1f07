"""``accept report RUN``."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import click

from agent import report
from agent.cli.shared import LANGUAGE, RUN_FOLDER, checks, emit, fail, fail_text, language_of, load_run


@click.command(name="report")
@click.argument("run", type=RUN_FOLDER)
@click.option("--format", "name", default="txt", help="html, md, txt (for a chat or ticket), json, junit or csv.")
@click.option("--redact", is_flag=True, help="Replace names, addresses, serials, paths and secrets.")
@click.option("--also", metavar="WORD", multiple=True, help="With --redact: replace this word too (repeatable).")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file.")
@LANGUAGE
def command(
    run: Path, name: str, redact: bool, also: tuple[str, ...], output: Optional[Path], lang: Optional[str]
) -> None:
    """Render a run again, in another format or language."""
    formats = report.renderers()
    if name not in formats:
        fail(f"accept: no format “{name}”; there are {', '.join(sorted(formats))}")
    emit(_redacted(run, name, also, lang) if redact else report.render(load_run(run, lang), name, run, lang), output)


def _redacted(run: Path, name: str, also: tuple[str, ...], lang: Optional[str]) -> str:
    from agent.redact.folder import RedactionError, redacted

    try:
        with redacted(run, checks(), also) as copy:
            return report.render(load_run(copy.folder, lang), name, copy.folder, lang)
    except RedactionError as error:
        fail_text(error.text, language_of(lang))
