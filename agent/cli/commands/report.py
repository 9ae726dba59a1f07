"""``accept report RUN``."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import click

from agent import report
from agent.cli.shared import (
    LANGUAGE,
    RUN_FOLDER,
    by_ending,
    checks,
    emit,
    fail_text,
    language_of,
    load_run,
    outside_records,
    translate_for,
)
from agent.evidence import write_atomic
from agent.text import msg
from agent.verdict import Exit


@click.command(name="report")
@click.argument("run", type=RUN_FOLDER)
@click.option(
    "--format",
    "asked",
    help="html, md, txt (for a chat), json, junit, csv, prom or pdf (default: as FILE ends, else txt).",
)
@click.option("--redact", is_flag=True, help="Replace names, addresses, serials, paths and secrets.")
@click.option("--also", metavar="WORD", multiple=True, help="With --redact: replace this word too (repeatable).")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file.")
@LANGUAGE
def command(
    run: Path, asked: Optional[str], redact: bool, also: tuple[str, ...], output: Optional[Path], lang: Optional[str]
) -> None:
    """Render a run again, in another format or language."""
    formats = sorted({*report.renderers(), "pdf"})
    endings = {r.extension: r.format for r in report.renderers().values()}
    name = asked or by_ending(output, {"pdf": "pdf", **endings}) or "txt"
    if name not in formats:
        fail_text(msg("no format “{name}”; there are {formats}", name=name, formats=tuple(formats)), language_of(lang))
    kind = "html" if name == "pdf" else name
    read = load_run(run, lang)
    language = language_of(lang, read)
    text = _redacted(run, kind, also, language) if redact else report.render(read, kind, run, language)
    if name == "pdf":
        _write_pdf(text, output, language)
    else:
        emit(text, output, language)


def _write_pdf(page: str, output: Optional[Path], language: str) -> None:
    from agent.report.pdf import PdfError, missing_font, pdf

    if output is None:
        fail_text(msg("a PDF needs a file to go to: -o report.pdf"), language)
    outside_records(output, language)
    try:
        made = pdf(page)
    except PdfError as error:
        fail_text(error.text, language, Exit.AGENT_FAILED)
    lacking = missing_font(page)
    if lacking is not None:
        click.echo(f"accept: {lacking.render(translate_for(language))}", err=True)
    try:
        write_atomic(output, made)
    except OSError as error:
        fail_text(
            msg("{path} cannot be written: {error}", path=str(output), error=error.strerror or str(error)), language
        )


def _redacted(run: Path, name: str, also: tuple[str, ...], language: str) -> str:
    from agent.redact.folder import RedactionError, redacted

    try:
        with redacted(run, checks(), also) as copy:
            return report.render(load_run(copy.folder, language), name, copy.folder, language)
    except RedactionError as error:
        fail_text(error.text, language)
