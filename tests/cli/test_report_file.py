"""``accept report RUN -o FILE``: what the file's name asks for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.runs import FACTS_ONLY, accept, contract

BEGINS = {
    "page.html": "<!DOCTYPE html>",
    "page.HTM": "<!DOCTYPE html>",
    "page.md": "# ",
    "page.json": "{",
    "junit.xml": "<?xml",
    "page.csv": "",
    "node.prom": "# HELP",
    "page.txt": "✓ ACCEPTED",
    "page": "✓ ACCEPTED",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    contract(folder, FACTS_ONLY)
    assert accept("run", "contract.yaml", "--out", "run", "--lang", "en", cwd=folder).code == 0
    return folder / "run"


@pytest.mark.parametrize("name", BEGINS)
def test_the_ending_of_the_file_is_the_format(run: Path, tmp_path: Path, name: str) -> None:
    done = accept("report", str(run), "-o", name, cwd=tmp_path)
    assert done.code == 0, done.said
    assert (tmp_path / name).read_text(encoding="utf-8").lower().startswith(BEGINS[name].lower())


def test_a_format_that_is_asked_for_stands_whatever_the_file_is_called(run: Path, tmp_path: Path) -> None:
    assert accept("report", str(run), "--format", "json", "-o", "page.html", cwd=tmp_path).code == 0
    assert json.loads((tmp_path / "page.html").read_text(encoding="utf-8"))["complete"] is True


def test_the_machine_is_told_in_words_and_units(run: Path, tmp_path: Path) -> None:
    accept("report", str(run), "-o", "page.html", cwd=tmp_path)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    machine = page.partition('<section id="machine"')[2].partition("</section>")[0]
    assert "Host name" in machine
    assert "bytes" not in machine
    assert "cuda_driver" not in machine


@pytest.mark.parametrize("name", ["page.html", "page.md", "page.json", "page.txt", "page"])
def test_a_comparison_likewise(run: Path, tmp_path: Path, name: str) -> None:
    done = accept("compare", str(run), str(run), "-o", name, "--lang", "en", cwd=tmp_path)
    assert done.code == 0, done.said
    begins = {"html": "<!doctype html>", "md": "# ", "json": "{"}.get(name.partition(".")[2], "the same machine")
    assert (tmp_path / name).read_text(encoding="utf-8").lower().startswith(begins)


@pytest.mark.parametrize("name", ["page.html", "page.md", "page.json"])
def test_a_trial_likewise(run: Path, tmp_path: Path, name: str) -> None:
    done = accept("trial", "report", str(run.parent), "-o", name, cwd=tmp_path)
    assert done.code == 0, done.said
    begins = {"html": "<!doctype html>", "md": "# ", "json": "{"}[name.partition(".")[2]]
    assert (tmp_path / name).read_text(encoding="utf-8").lower().startswith(begins)
    assert not (run.parent / "trial.html").exists()


def test_a_trial_of_which_three_documents_could_be_meant(run: Path, tmp_path: Path) -> None:
    done = accept("trial", "report", str(run.parent), "-o", "page", cwd=tmp_path)
    assert done.code == 2
    assert "--format" in done.err
