"""``accept status`` from the first moment of a run to its end."""

from __future__ import annotations

from pathlib import Path

from agent.evidence import locked
from tests.runs import FACTS_ONLY, accept, contract


def test_a_run_that_has_measured_nothing_yet_is_no_error(tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = accept("run", str(contract(tmp_path, FACTS_ONLY)), "--out", str(run), cwd=tmp_path)
    assert done.code == 0, done.said
    (run / "result.json").unlink()
    waiting = accept("status", str(run), cwd=tmp_path)
    assert (waiting.code, waiting.err) == (0, "")
    assert "nothing measured yet" in waiting.out
    with locked(run):
        begun = accept("status", str(run), cwd=tmp_path)
    assert "running, process" in begun.out


def test_a_folder_that_is_no_run_is_one(tmp_path: Path) -> None:
    done = accept("status", str(tmp_path), cwd=tmp_path)
    assert done.code == 2
    assert "is not a run folder" in done.err
