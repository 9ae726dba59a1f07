"""Cases of the NVIDIA parsers' tests: fixtures by name, and the corpus where it lies beside the checkout."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Optional, TypeVar

import pytest

from agent.tools import ParseError
from tests.tools.fuzz import CORPUS, FIXTURES, cases, foreign_numbers, mutations, outcome, read_case, truncations

_Result = TypeVar("_Result")


def attempt(parse: Callable[[str], _Result], text: str) -> Optional[_Result]:
    """The reading, or None where the parser refused; any other exception fails the test."""
    try:
        return parse(text)
    except ParseError:
        return None


def fixture(name: str) -> str:
    """The text of ``tests/fixtures/tools/<name>.txt``."""
    return read_case(FIXTURES / f"{name}.txt")


def survives(module: ModuleType) -> None:
    """Damaged fixtures of a kind give a result or a refusal, and cut ones no number of their own."""
    paths = cases(module.KIND)
    assert len(paths) > 5
    for path in paths:
        text = read_case(path)
        for damaged in mutations(text, seed=7, count=40):
            outcome(module, damaged)
        if outcome(module, text) is not None:
            assert foreign_numbers(module, text, count=40) == [], path.name


def cut_readings(module: ModuleType, text: str, count: int = 200) -> list[tuple[str, Any]]:
    """The cuts of a text that a parser still reads, with their readings."""
    read = [(cut, outcome(module, cut)) for cut in truncations(text, 3, count)]
    return [(cut, got) for cut, got in read if got is not None]


def corpus(kind: str) -> dict[str, tuple[str, str]]:
    """``id -> (expected facts, text)`` of one kind of the corpus; skips the test where there is none."""
    manifest = CORPUS / "MANIFEST.tsv"
    if not manifest.exists():
        pytest.skip(f"no corpus at {CORPUS}: its {kind} cases are not checked")
    rows = [line.split("\t") for line in manifest.read_text(encoding="utf-8").splitlines()[1:]]
    found = {row[0]: (row[5], read_case(CORPUS / row[2])) for row in rows if row[1] == kind}
    assert found, f"no {kind} cases in {manifest}"
    return found


def corpus_file(name: str) -> Path:
    """A file of the corpus."""
    return CORPUS / name
