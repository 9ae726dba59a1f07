"""Every healthy and bad node through the agent: the verdict, and each finding where it belongs and nowhere else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent import contract as contracts
from agent import runner
from agent.checks import families, grammars
from agent.model import Run
from tests.fakenode import judging, wrong

SEEN: dict[str, tuple[Run, Path]] = {}


def seen(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Run, Path]:
    """A case's run and the folder of its node and recording: made once."""
    if name not in SEEN:
        with monkeypatch.context() as patched:
            SEEN[name] = judging.run(wrong.CASES[name], folder, patched), folder
    return SEEN[name]


@pytest.mark.parametrize("name", list(wrong.CASES))
def test_node(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = seen(name, tmp_path, monkeypatch)
    assert judging.compare(wrong.CASES[name], run) == []


@pytest.mark.parametrize("name", ["8 H100", "card lost", "A800 called A100", "HAMi slice", "all UNKNOWN"])
def test_judged_again_without_the_node(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, folder = seen(name, tmp_path, monkeypatch)
    (folder / "node").rename(folder / "gone")
    assert str(folder) not in os.environ["PATH"]
    contract = contracts.load(judging.CONTRACTS / wrong.CASES[name].contract, grammars())
    _, again = runner.judge_again(folder / "run", contract, families())
    assert (again.verdict, str(again.headline)) == (run.verdict, str(run.headline))
    assert [(f.id, f.outcome, f.reason_code, str(f.reason)) for f in again.findings] == [
        (f.id, f.outcome, f.reason_code, str(f.reason)) for f in run.findings
    ]


@pytest.mark.parametrize("name", ["all NOT_SUPPORTED", "all NO_PERMISSION", "all UNKNOWN"])
def test_silence_keeps_no_promise(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = seen(name, tmp_path, monkeypatch)
    promised = [f for f in run.findings if f.clause.startswith(("gpu.", "topology."))]
    assert {f.outcome for f in promised} == {"inconclusive"}
    assert all(f.reason_code and str(f.reason) for f in promised)
    assert all(f.measured is None for f in promised)


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Nodes and what was found on them, for whoever reads the test's output."""
    with capsys.disabled():
        print()
        for name, (run, _) in SEEN.items():
            said = judging.told(run)
            print(f"{name:32} {run.verdict!s:13} {said[0] if said else ''}")
            for line in said[1:]:
                print(f"{'':46} {line}")
    assert set(SEEN) <= set(wrong.CASES)
