"""Faults of our own where nothing of the machine is judged: what was measured is kept, and the fault is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent import contract as contracts
from agent import inventory, report, runner
from agent.checks import families, grammars
from agent.course import Silent
from agent.model import Run
from agent.plan import Options
from tests.runs import FACTS_ONLY, contract, result


def begun(folder: Path) -> tuple[runner.Job, Run]:
    read = contracts.load(contract(folder, FACTS_ONLY), grammars())
    job = runner.create(folder / "runs" / "one", read, Options(profile="facts"), "en")
    host = runner.live_host(job)
    runner.begin_session(job, host, ["accept", "run"])
    runner.enter(job)
    return job, runner.execute(job, host, families(), Silent())


def broken(*_args: Any, **_kwargs: Any) -> Any:
    raise OverflowError("int too large to convert to float")


def test_an_inventory_that_cannot_be_made_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "node", broken)
    job, run = begun(tmp_path)
    assert (run.complete, run.verdict) == (True, "accepted")
    assert run.node["hostname"] is None
    assert any("faults of its own" in str(n) for n in run.notes)
    assert "OverflowError" in (job.folder / runner.FAULTS).read_text()


def test_a_memory_of_four_hundred_digits_convicts_nobody_and_ends_nothing(tmp_path: Path) -> None:
    job, run = begun(tmp_path)
    runner.finish(job, run)
    for told in job.folder.glob("evidence/*/files/*meminfo"):
        told.write_text("MemTotal: " + "9" * 400 + " kB\nMemAvailable: 1 kB\n")
    _, again = runner.judge_again(job.folder, job.contract, families())
    assert [f.outcome for f in again.findings if f.clause == "memory.size"] == ["inconclusive"]


def test_a_report_that_cannot_be_made_leaves_the_rest_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The digest stands in the ledger, and the report can be made when the fault is mended."""
    job, run = begun(tmp_path)
    whole = report.render

    def some(run: Run, name: str, *more: Any) -> str:
        return broken() if name == "html" else whole(run, name, *more)

    monkeypatch.setattr(report, "render", some)
    with pytest.raises(OverflowError):
        runner.finish(job, run)
    assert not (job.folder / "report.html").exists()
    assert (job.folder / "report.md").exists()
    assert "report.md" in json.loads((job.folder / "manifest.json").read_text())["files"]
    events = [json.loads(line)["event"] for line in (tmp_path / "runs" / "ledger.jsonl").read_text().splitlines()]
    assert events == ["start", "end"]
    assert result(job.folder)["verdict"] == "accepted"
