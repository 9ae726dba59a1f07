"""``accept doctor``."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Optional

import click

from agent import doctor
from agent.cli.shared import LANGUAGE, language_of, translate_for
from agent.doctor import Item, State
from agent.evidence import Store
from agent.host import LiveHost
from agent.report.clean import visible
from agent.text import Text, Translate, msg

SIGILS: dict[State, str] = {"there": "✓", "missing": "✗", "not-here": "–"}


@click.command(name="doctor")
@LANGUAGE
def command(lang: Optional[str]) -> int:
    """Which tools, permissions and devices are there; what to install or ask for.

    Exit status 0: all there; 1: something is missing. What this machine has no use for does not count.
    """
    translate = translate_for(language_of(lang))
    with tempfile.TemporaryDirectory(prefix="accept-doctor-") as folder:
        sections = doctor.examine(LiveHost(Store(Path(folder))))
    for section in sections:
        click.echo(click.style(section.title.render(translate), bold=True))
        for item in section.items:
            for line in lines(item, translate):
                click.echo(line)
    lacking = doctor.lacks(sections)
    end = msg("what is marked ✗ leaves its clauses undecided") if lacking else msg("all there")
    click.echo(end.render(translate))
    return 1 if lacking else 0


def lines(item: Item, translate: Translate) -> Iterator[str]:
    """One line for what was found; one more for what to do where something is missing."""

    def shown(text: Text) -> str:
        return visible(text.render(translate))

    needed = msg("for {clauses}", clauses=item.serves)
    yield f"  {SIGILS[item.state]} {shown(item.name)}: {shown(item.found)}  ({shown(needed)})"
    if item.state == "missing" and item.get is not None:
        how = msg("get it: {how}", how=item.get)
        yield f"      {shown(how)}"
