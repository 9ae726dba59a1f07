"""Every format of every sample run against the text it gave last: ``pytest tests/report --update-golden`` rewrites."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent import report
from tests.report.samples import CASES, Case, sample_run, write_evidence

GOLDEN = Path(__file__).parent / "golden"
CHINESE = (("rejected", "txt"), ("rejected", "html"), ("inconclusive", "md"))


def _compare(text: str, name: str, update: bool) -> None:
    path = GOLDEN / name
    if update:
        path.write_bytes(text.encode())
    with path.open(encoding="utf-8", newline="") as source:
        assert text == source.read(), f"{name} changed: look at it, then run with --update-golden"


def _rendered(case: Case, name: str, folder: Path, language: str) -> str:
    write_evidence(folder)
    text = report.render(sample_run(case), name, folder, language)
    # The style sheet is one file for all; a golden file of a page is about its content.
    return re.sub(r"<style>.*?\n</style>", "<style></style>", text, flags=re.DOTALL)


@pytest.mark.parametrize("name", sorted(report.renderers()))
@pytest.mark.parametrize("case", CASES)
def test_golden(case: Case, name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    extension = name if name != "junit" else "junit.xml"
    _compare(_rendered(case, name, tmp_path, "en"), f"{case}.{extension}", request.config.getoption("--update-golden"))


@pytest.mark.parametrize(("case", "name"), CHINESE)
def test_golden_in_chinese(case: Case, name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    _compare(_rendered(case, name, tmp_path, "zh"), f"{case}.zh.{name}", request.config.getoption("--update-golden"))
