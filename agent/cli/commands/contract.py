"""``accept contract check FILE``."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Optional

import click

from agent import catalogue
from agent import contract as contracts
from agent.checks import network
from agent.checks._api import blind
from agent.cli.shared import LANGUAGE, checks, language_of, load_contract, problem_line, translate_for
from agent.model import Access, Clause, Contract
from agent.text import Text, msg


@click.group(name="contract")
def command() -> None:
    """Look at a contract before it is signed."""


@command.command(name="check")
@click.argument("file", type=click.Path(path_type=Path))
@LANGUAGE
def check(file: Path, lang: Optional[str]) -> int:
    """Whether FILE is sound: exit 0, 1 for contradictions, 2 when it cannot be read.

    Also names the clauses that the contract's own `access` will not let anybody verify.
    """
    read = load_contract(file, lang)
    translate = translate_for(language_of(lang, read))
    problems = contracts.contradictions(read, str(file))
    for problem in problems:
        click.echo(problem_line(problem, translate))
    for note in _notes(read):
        click.echo(f"{file}:{note.render(translate)}")
    families = checks()
    for clause in read.clauses:
        module = families[clause.family]
        why = _unseen(clause, module, read.access)
        if why is not None:
            click.echo(f"{file}:{clause.line}: {why.render(translate)}")
    if not problems:
        click.echo(msg("sound; clauses: {n}", n=len(read.clauses)).render(translate))
    return 1 if problems else 0


def _notes(contract: Contract) -> Iterator[Text]:
    """What is no contradiction, and still hardly meant."""
    for clause in contract.clauses:
        name = str(clause.promise.value)
        if clause.key == "gpu.model" and not (known := catalogue.load()).match(name):
            titles = {m.title.lower(): m.title for m in known.models}
            near = tuple(titles[t] for t in get_close_matches(name.lower(), list(titles), 2, 0.6))
            said = msg("{line}: {key}: the catalogue has no “{name}”, so only the name can be compared",
                       line=clause.line, key=clause.key, name=name)  # fmt: skip
            yield msg("{said}; the nearest are {near}", said=said, near=near) if near else said
        if clause.family == "network" and clause.name in network.DIRECTIONS and not clause.settings.get("servers"):
            yield msg(
                "{line}: {key}: cannot be measured without a far end of yours: add servers: [host:5201] "
                "(accept serve makes one)",
                line=clause.line,
                key=clause.key,
            )


def _unseen(clause: Clause, module: ModuleType, access: Access) -> Optional[Text]:
    if not hasattr(module, "judge"):
        return msg("{key}: not checked by this version of accept", key=clause.key)
    grant = blind(clause, module, access)
    return (
        None
        if grant is None
        else msg("{key}: cannot be verified with this access: {grant}", key=clause.key, grant=grant)
    )
