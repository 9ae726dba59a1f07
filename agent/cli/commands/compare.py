"""``accept compare RUN_A RUN_B``."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional, Union

import click

from agent.cli.shared import LANGUAGE, RUN_FOLDER, by_ending, emit, language_of, load_run, translate_for
from agent.cli.terminal import Terminal
from agent.compare import Comparison, Turn, compare
from agent.model import Outcome
from agent.redact import is_redacted
from agent.report import comparison, looks
from agent.report.clean import visible
from agent.text import Text, msg

CHANGED, NOT_COMPARABLE = 1, 3
FORMATS = ("txt", "json", "html", "md")
_PAGES = {"html": comparison.html, "md": comparison.md}


@click.command(name="compare")
@click.argument("before", metavar="RUN_A", type=RUN_FOLDER)
@click.argument("after", metavar="RUN_B", type=RUN_FOLDER)
@click.option("--format", "asked", type=click.Choice(FORMATS), help="Default: as the file's name ends, else txt.")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write it here.")
@LANGUAGE
def command(before: Path, after: Path, asked: Optional[str], output: Optional[Path], lang: Optional[str]) -> int:
    """What changed from RUN_A to RUN_B, beyond noise.

    Exit 0: nothing. 1: something. 3: the runs have nothing in common.
    """
    name = asked or by_ending(output, dict(zip(FORMATS, FORMATS))) or "txt"
    one, two = load_run(before, lang), load_run(after, lang)
    found = compare(one, two, (is_redacted(before), is_redacted(after)))
    language = language_of(lang, two)
    if name == "json":
        emit(json.dumps(_plain(found), ensure_ascii=False, indent=1, allow_nan=False), output, language)
    elif name in _PAGES:
        emit(_PAGES[name](found, one, two, translate_for(language), language), output, language)
    elif output is not None:
        translate = translate_for(language)
        emit("".join(f"{visible(line.render(translate))}\n" for line in lines(found)), output, language)
    else:
        terminal = Terminal(translate_for(language))
        for line in lines(found):
            terminal.say(line)
    if not found.comparable:
        return NOT_COMPARABLE
    return CHANGED if found.changed else 0


def lines(found: Comparison) -> Iterator[Text]:
    """The comparison in words, what matters most first."""
    yield from comparison.basis(found)
    for d in found.parts:
        yield msg("  {where}: {before} → {after}", where=d.where, before=_shown(d.before), after=_shown(d.after))
    for turn in found.turns:
        yield msg(
            "  {id}: {before} → {after}", id=turn.id, before=_word(turn.before, turn), after=_word(turn.after, turn)
        )
    for d in found.facts:
        yield msg("  {where}: {before} → {after}", where=d.where, before=_shown(d.before), after=_shown(d.after))
    if found.left_out:
        yield comparison.left_out(found)
    beyond = [c for c in found.changes if c.beyond_noise]
    for c in beyond:
        before, after = comparison.values(c)
        if c.relative is None:
            yield msg("  {key}: {before} → {after}", key=c.key, before=before, after=after)
            continue
        relative = f"{100 * c.relative:+.1f}"
        yield msg("  {key}: {before} → {after} ({change} %)", key=c.key, before=before, after=after, change=relative)
    yield comparison.count(len(beyond), len(found.changes))


def _word(outcome: Optional[Outcome], turn: Turn) -> Union[Text, str]:
    if outcome is None or turn.reason is None:
        return "–"
    return looks.of_outcome(outcome, turn.reason.severity).word


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _plain(found: Comparison) -> dict[str, Any]:
    turns = [{"id": t.id, "before": t.before, "after": t.after} for t in found.turns]
    data = dataclasses.asdict(dataclasses.replace(found, turns=()))
    beyond = [c.key for c in found.changes if c.beyond_noise]
    return {
        "schema": "accept.comparison/1",
        **{k: v for k, v in data.items() if k != "turns"},
        "turns": turns,
        "beyond_noise": beyond,
        "changed": found.changed,
    }
