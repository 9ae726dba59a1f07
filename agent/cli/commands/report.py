"""``accept report RUN``."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import click

from agent import report
from agent.cli.shared import LANGUAGE, RUN_FOLDER, emit, fail, load_run


@click.command(name="report")
@click.argument("run", type=RUN_FOLDER)
@click.option("--format", "name", default="txt", help="html, md, txt (for a chat or ticket), json, junit or csv.")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file.")
@LANGUAGE
def command(run: Path, name: str, output: Optional[Path], lang: Optional[str]) -> None:
    """Render a run again, in another format or language."""
    formats = report.renderers()
    if name not in formats:
        fail(f"accept: no format “{name}”; there are {', '.join(sorted(formats))}")
    emit(report.render(load_run(run, lang), name, run, lang), output)
