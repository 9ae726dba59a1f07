"""A healthy recorded run whose evidence is cut, emptied, swapped or taken away, judged again.

No mutation makes the vendor guilty, and nothing stays kept on evidence that is gone.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from agent import contract as contracts
from agent import runner
from agent.checks import families, grammars
from agent.model import Contract, Run
from tests.fakenode import judging, wrong

CASE = wrong.CASES["8 H100"]
# A tool that says nothing where NVML answers is worth a line, and convicts nobody.
TOLD = ("integrity.nvidia_smi",)

CHANGES: Mapping[str, Callable[[bytes], bytes]] = {
    "emptied": lambda data: b"",
    "cut in half": lambda data: data[: len(data) // 2],
    "zeros": lambda data: b"\0" * len(data),
    "other JSON": lambda data: b'{"unrelated": 1}',
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    folder = tmp_path_factory.mktemp("lost")
    with pytest.MonkeyPatch.context() as patched:
        run = judging.run(CASE, folder, patched)
    assert run.verdict == "accepted"
    return folder / "run", run


def contract() -> Contract:
    return contracts.load(judging.CONTRACTS / CASE.contract, grammars())


def probes(run: Path) -> list[str]:
    return sorted(p.name for p in (run / "evidence").iterdir() if (p / "meta.json").exists())


def mutated(recorded: Path, probe: str, change: str) -> Iterator[Run]:
    """The run judged with this probe's answers changed; nothing where it left no answer to change."""
    place = recorded / "evidence" / probe
    kept = place.with_name(f"{probe}.kept")
    place.rename(kept)
    try:
        if change != "taken away":
            shutil.copytree(kept, place)
            answers = [p for p in place.rglob("*") if p.is_file() and p.name != "meta.json" and p.stat().st_size]
            if not answers:
                return
            for answer in answers:
                answer.write_bytes(CHANGES[change](answer.read_bytes()))
        yield runner.judge_again(recorded, contract(), families())[1]
    finally:
        shutil.rmtree(place, ignore_errors=True)
        kept.rename(place)


@pytest.mark.parametrize("change", ["taken away", *CHANGES])
def test_no_lost_answer_convicts_or_keeps(change: str, recorded: tuple[Path, Run]) -> None:
    folder, healthy = recorded
    before = {f.id: f.outcome for f in healthy.findings}
    wrongly: list[str] = []
    for probe in probes(folder):
        for run in mutated(folder, probe, change):
            gone = f"evidence/{probe}" if change in ("taken away", "emptied") else None
            for found in run.findings:
                said = f"{probe} {change}: {found.id} {found.outcome} {found.reason_code}: {found.reason}"
                if found.outcome == "fail" and before.get(found.id) != "fail" and found.clause not in TOLD:
                    wrongly.append(said)
                if found.reason_code == "agent-failed":
                    wrongly.append(said)
                if gone and found.outcome == "pass" and set(found.evidence) <= {gone}:
                    wrongly.append(f"kept on nothing: {said}")
            assert {c.key for c in contract().clauses} <= {f.clause for f in run.findings}
    assert not wrongly


def test_the_card_that_was_not_read_is_not_accused(recorded: tuple[Path, Run]) -> None:
    """NVML's lines end after some cards: the others are there, as nvidia-smi says, and were not asked by NVML."""
    folder, _ = recorded
    nvml, smi = (next(p for p in probes(folder) if p.endswith(end)) for end in ("-nvml", "-nvidia-smi-xml"))
    for run in mutated(folder, nvml, "cut in half"):
        count = next(f for f in run.findings if f.id == "gpu.count")
        assert (count.outcome, count.measured) == ("pass", 8)
        assert not [f.id for f in run.findings if f.id.startswith("integrity.gpu_bus") and f.outcome == "fail"]
        last = [f for f in run.findings if f.clause == "gpu.memory"][-1]
        assert last.outcome == "inconclusive" or f"evidence/{smi}" in last.evidence
        assert run.verdict != "rejected"


def test_judging_what_is_left_gives_the_same_twice(recorded: tuple[Path, Run]) -> None:
    folder, _ = recorded
    probe = next(p for p in probes(folder) if p.endswith("-nvml"))
    twice = [
        [(f.id, f.outcome, f.reason_code, str(f.reason), f.evidence) for f in run.findings]
        for _ in range(2)
        for run in mutated(folder, probe, "cut in half")
    ]
    assert len(twice) == 2
    assert twice[0] == twice[1]
