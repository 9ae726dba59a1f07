"""What several commands need: loading contracts and runs with one clear line per error, language, output."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import NoReturn, Optional, Union
from zipfile import is_zipfile

import click

from agent import contract as contracts
from agent import resources
from agent.checks import families, grammars
from agent.evidence import write_atomic
from agent.model import Contract, Run
from agent.runner import CONTRACT, RunError, inside, read_result
from agent.text import LANGUAGES, Text, Translate, msg, translator
from agent.verdict import Exit

LANGUAGE = click.option(
    "--lang",
    type=click.Choice(LANGUAGES),
    help="Language of what is printed and reported (default: the contract's, then LANG).",
)
RUN_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


def language_of(option: Optional[str], of: Union[Contract, Run, None] = None) -> str:
    """``--lang``, else the contract's (or that of the run's contract), else the locale's, else English."""
    if option:
        return option
    said = of.contract_header.get("language") if isinstance(of, Run) else of.language if of else None
    if said in LANGUAGES:
        return str(said)
    locale = os.environ.get("LC_ALL") or os.environ.get("LC_MESSAGES") or os.environ.get("LANG") or ""
    return "zh" if locale.lower().startswith("zh") else "en"


def language_in(option: Optional[str], folder: Path) -> str:
    """:func:`language_of` for the folder of a run or a trial, whose result may be missing or broken."""
    return language_of(option or contracts.written_language(folder / CONTRACT))


def translate_for(language: str) -> Translate:
    """gettext for a language, from the catalogues that ship."""
    return translator(language, resources.locale_dir())


def fail(text: str, code: int = Exit.USAGE) -> NoReturn:
    """One line on stderr, then the exit status."""
    click.echo(text, err=True)
    sys.exit(int(code))


def fail_text(text: Text, language: str, code: int = Exit.USAGE) -> NoReturn:
    """:func:`fail` in the language of the user."""
    fail(f"accept: {text.render(translate_for(language))}", code)


def problem_line(problem: contracts.Problem, translate: Translate) -> str:
    """``file:line:column: what is wrong``, in the language of the user."""
    place = f"{problem.file}:{problem.line}:{problem.column}" if problem.line else problem.file
    return f"{place}: {problem.message.render(translate)}"


def load_contract(path: Path, language: Optional[str]) -> Contract:
    """A contract, or every problem of the file on a line of its own and exit 2."""
    try:
        return contracts.load(path, grammars())
    except contracts.ContractErrors as errors:
        translate = translate_for(language_of(language or contracts.written_language(path)))
        for problem in errors.problems:
            click.echo(problem_line(problem, translate), err=True)
        sys.exit(int(Exit.USAGE))


def no_clause(pattern: str, contract: Contract) -> Text:
    """What is wrong with a pattern of ``--only`` or ``--skip``, and the keys that there are."""
    keys = [c.key for c in contract.clauses]
    near = get_close_matches(pattern, keys, 3, 0.5)
    return msg("no clause of the contract matches “{key}”; it has {keys}", key=pattern, keys=tuple(near or keys[:20]))


def load_run(folder: Path, language: Optional[str] = None) -> Run:
    """The result of a run folder, or one line and exit 2."""
    try:
        return read_result(folder)
    except RunError as error:
        fail_text(error.text, language_in(language, folder))


def own_command() -> list[str]:
    """argv that starts this very accept again, from anywhere: the one file, the script, or the package.

    By its script where there is one: ``-m agent`` would start a folder ``agent`` of the user's own where he stands.
    """
    program = os.path.abspath(sys.argv[0])
    itself = is_zipfile(program) or (os.path.basename(program) == "accept" and os.path.isfile(program))
    return [sys.executable, program] if itself else [sys.executable, "-m", "agent"]


def checks() -> dict[str, ModuleType]:
    """All families of clauses."""
    return families()


def pasted(path: Union[Path, str]) -> str:
    """A path in a command that is shown to be pasted into a shell."""
    return shlex.quote(str(path))


def by_ending(output: Optional[Path], formats: Mapping[str, str]) -> Optional[str]:
    """The format that a file's name tells: nobody wants a text in a file called report.html.

    ``formats`` by extension; "htm" is "html". None where the name tells none.
    """
    ending = output.suffix.lower().lstrip(".") if output is not None else ""
    return formats.get("html" if ending == "htm" else ending)


def outside_records(output: Path, language: Optional[str] = None) -> None:
    """Exit 2 for a file in a run folder: the run would no longer be intact, and the file no part of what is signed."""
    run = inside(output)
    if run is not None:
        text = msg("{file} lies in the run folder {run}, which holds what was recorded and nothing else: name another "
                   "place", file=str(output), run=str(run))  # fmt: skip
        fail_text(text, language_in(language, run))


def emit(text: str, output: Optional[Path], language: Optional[str] = None) -> None:
    """Print, or write whole to a file."""
    if output is None:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        return
    outside_records(output, language)
    try:
        write_atomic(output, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        fail_text(
            msg("{path} cannot be written: {error}", path=str(output), error=error.strerror or str(error)),
            language_of(language),
        )
