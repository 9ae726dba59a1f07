"""``accept status DIR``."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import click

from agent.cli.shared import LANGUAGE, RUN_FOLDER, fail_text, language_in, language_of, pasted, translate_for
from agent.evidence import is_locked
from agent.report import looks
from agent.runner import RunError
from agent.text import Text, msg


@click.command(name="status")
@click.argument("folder", type=RUN_FOLDER)
@LANGUAGE
def command(folder: Path, lang: Optional[str]) -> None:
    """Where a detached or broken run stands."""
    from agent.runner import JOB, status

    language = language_in(lang, folder)
    try:
        run, pid = status(folder)
    except RunError as error:
        if not (folder / JOB).exists():
            fail_text(error.text, language)
        # A run begins with facts; its first result.json comes after them.
        translate = translate_for(language)
        click.echo(_begun(is_locked(folder), folder).render(translate))
        return
    translate = translate_for(language_of(lang, run))
    done = ", ".join(s.name for s in run.steps) or "–"
    lines: list[Text] = []
    if pid is not None:
        lines.append(msg("running, process {pid}", pid=pid))
    elif run.complete:
        lines.append(msg("finished: {verdict}", verdict=looks.of_verdict(run.verdict).word))
    else:
        lines.append(msg("broken off; go on with: accept run --resume {folder}", folder=pasted(folder)))
    lines += [msg("done: {steps}", steps=done), run.headline]
    for line in lines:
        click.echo(line.render(translate))


def _begun(pid: Optional[int], folder: Path) -> Text:
    if pid is not None:
        return msg("running, process {pid}; nothing measured yet", pid=pid)
    return msg("nothing measured yet; if no agent works on it: accept run --resume {folder}", folder=pasted(folder))
