"""``accept contract check FILE``."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Optional

import click

from agent import contract as contracts
from agent.checks._api import blind
from agent.cli.shared import LANGUAGE, checks, language_of, load_contract, problem_line, translate_for
from agent.model import Access, Clause
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
    families = checks()
    for clause in read.clauses:
        module = families[clause.family]
        why = _unseen(clause, module, read.access)
        if why is not None:
            click.echo(f"{file}:{clause.line}: {why.render(translate)}")
    if not problems:
        click.echo(msg("sound; clauses: {n}", n=len(read.clauses)).render(translate))
    return 1 if problems else 0


def _unseen(clause: Clause, module: ModuleType, access: Access) -> Optional[Text]:
    if not hasattr(module, "judge"):
        return msg("{key}: not checked by this version of accept", key=clause.key)
    grant = blind(clause, module, access)
    return (
        None
        if grant is None
        else msg("{key}: cannot be verified with this access: {grant}", key=clause.key, grant=grant)
    )
