"""A tiny GPT trained on this CPU, and the days that a larger job would take by what was measured."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

import pytest

from agent import catalogue
from agent.bench.step import Look
from agent.bench.training import KEY, SHAPES, Effort, Shape, TrainingStep, named
from agent.checks import training, workload
from agent.checks._api import Case
from agent.evidence import Store
from agent.facts.pythons import Pythons
from agent.host import ReplayHost, marked
from agent.model import Attempt, Block, Clause, Contract, Depth, Finding, Measurement, Promise, Result, Taken, Void
from agent.reading import Missing
from agent.text import msg
from agent.tools import ParseError
from agent.tools import training as tool
from tests.bench.interpreters import GPUS, interpreter, live, needs_torch, shim

SHORT = Effort(blocks=6, block_s=0.2)
EFFORTS: Mapping[Depth, Effort] = {"quick": SHORT, "standard": SHORT, "deeper": SHORT}
TINY: Shape = {"name": "tiny", "layers": 2, "width": 64, "heads": 4, "vocabulary": 512, "sequence": 32}


def step(python: Optional[str] = None, **settings: Any) -> TrainingStep:
    chosen = interpreter(python) if python else interpreter()
    few: dict[str, Any] = {"device": "cpu", "shapes": (TINY,), "effort": EFFORTS, "ranks": 1, "warmup_steps": 10}
    return TrainingStep(chosen, **{**few, "stall_s": 60.0, **settings})


def taken(found: Result) -> Taken:
    assert isinstance(found, Taken), found
    return found


def missing(found: Result) -> Missing:
    assert isinstance(found, Missing), found
    return found


class TestReal:
    """With the real torch of this Python."""

    pytestmark = needs_torch

    @pytest.mark.parametrize(("ranks", "sharded", "how"), [(1, None, "one"), (2, False, "DDP"), (2, True, "FSDP")])
    def test_a_loss_that_falls(self, tmp_path: Path, ranks: int, sharded: Optional[bool], how: str) -> None:
        host = live(tmp_path)
        one = taken(step(ranks=ranks, sharded=sharded).execute(host, Look()))
        assert (one.unit, one.attempt.correct, one.attempt.void) == ("/s", True, None)
        assert len(one.attempt.blocks) == 6
        assert one.attempt.blocks[0].conditions["gpus"] == ranks
        assert one.attempt.blocks[0].conditions["parameters"] == 134912
        said = " ".join(str(n) for n in one.attempt.notes)
        assert how in said
        assert "loss" in said
        assert not marked(host.token)
        again = step(ranks=ranks, sharded=sharded)
        assert again.execute(ReplayHost(Store(tmp_path / "run")), Look()) == one

    @pytest.mark.parametrize("damage", ["for p in group['params']: p.grad.mul_(float('nan'))", "group['lr'] = 0.0"])
    def test_a_training_that_learns_nothing_is_void(self, tmp_path: Path, damage: str) -> None:
        source = f"""
            import torch
            real = torch.optim.AdamW.step
            def step(self, *a, **k):
                for group in self.param_groups:
                    {damage}
                return real(self, *a, **k)
            torch.optim.AdamW.step = step
        """
        one = taken(step(shim(tmp_path, sitecustomize=source)).execute(live(tmp_path), Look()))
        assert one.attempt.void is not None
        assert one.attempt.void.code == "loss-not-falling"

    def test_the_largest_that_fits(self, tmp_path: Path) -> None:
        huge: Shape = {**TINY, "name": "huge", "layers": 10_000, "width": 16_384}
        one = taken(step(shapes=(huge, TINY)).execute(live(tmp_path), Look()))
        assert "tiny" in str(one.attempt.notes[0])

    def test_none_that_fits_is_our_trouble(self, tmp_path: Path) -> None:
        huge: Shape = {**TINY, "name": "huge", "layers": 10_000, "width": 16_384}
        assert "not enough memory" in str(missing(step(shapes=(huge,)).execute(live(tmp_path), Look())).detail)

    def test_a_rank_that_dies(self, tmp_path: Path) -> None:
        source = """
            import os, sys, torch
            real, seen = torch.optim.AdamW.step, []
            def step(self, *a, **k):
                seen.append(1)
                if len(seen) > 3 and sys.argv[-3] == "1":
                    os.kill(os.getpid(), 9)
                return real(self, *a, **k)
            torch.optim.AdamW.step = step
        """
        host, begun = live(tmp_path), time.monotonic()
        found = missing(step(shim(tmp_path, sitecustomize=source), ranks=2).execute(host, Look()))
        assert "rank 1 was ended by signal 9" in str(found.detail)
        assert time.monotonic() - begun < 90
        assert not marked(host.token)


# ---------------------------------------------------------------- steps and parsing


def test_models_by_name() -> None:
    assert [s["name"] for s in named("gpt-125m")] == ["gpt-125m"]
    assert next(s["name"] for s in named("largest")) == "gpt-13b"
    assert named("gpt-5") == ()
    assert step(model="gpt-5", shapes=None).cost("standard").seconds == 0


def test_an_unknown_model_names_the_known(tmp_path: Path) -> None:
    found = missing(step(model="gpt-5", shapes=None).execute(live(tmp_path), Look()))
    assert found.kind == "unsupported"
    assert "gpt-125m" in str(found.detail)


RESULT: dict[str, Any] = {
    "devices": [{}] * 8,
    "model": {"name": "gpt-1b", "parameters": 1_313_000_000, "sequence": 2048, "operations_per_token": 9.1e9},
    "batch": 8,
    "parallel": "ddp",
    "blocks": [{"started_at": "a", "ended_at": "b", "tokens_per_second": [3e5]}],
    "losses": [10.8, 3.0],
    "memory_bytes": None,
    "stopped": None,
}


def test_a_result() -> None:
    found = tool.parse(RESULT)
    assert (found.ranks, found.losses) == (8, (10.8, 3.0))


@pytest.mark.parametrize(
    "change",
    [
        {"parallel": "magic"},
        {"model": {**RESULT["model"], "parameters": 0}},
        {"losses": None},
        {"blocks": [{"started_at": "a", "ended_at": "b", "tokens_per_second": []}]},
        {"memory_bytes": -1},
    ],
)
def test_what_is_wrong_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ParseError):
        tool.parse({**RESULT, **change})


# ---------------------------------------------------------------- judging

PROMISE = Clause(KEY, "training", "tokens_per_second", Promise(">=", 3e5, "/s", ">= 300000"), 1, 1, tolerance=0.05)


def attempt(value: float, void: Optional[Void] = None, gpus: int = 8) -> Attempt:
    conditions = {"operations_per_token": 9.0e9, "gpus": gpus, "parameters": 1_300_000_000}
    blocks = tuple(Block(value + i, (value + i,), (), conditions) for i in range(6))
    return Attempt(blocks, "standard", "2026-11-30T00:00:00Z", void=void, correct=void is None)


def case(*attempts: Attempt, clauses: tuple[Clause, ...] = ()) -> Case:
    measured = {KEY: Measurement(KEY, "/s", "median of block medians", attempts)} if attempts else {}
    return Case(Contract(clauses, b"", ""), {}, measured)


def test_tokens_are_judged() -> None:
    (good,) = training.judge((PROMISE,), case(attempt(4e5)))
    assert good.outcome == "pass"
    (bad,) = training.judge((PROMISE,), case(attempt(2e5), attempt(2e5)))
    assert bad.outcome == "fail"
    dull = attempt(4e5, Void("loss-not-falling", msg("the loss did not fall")))
    (once,) = training.judge((PROMISE,), case(dull))
    (twice,) = training.judge((PROMISE,), case(dull, dull))
    assert (once.outcome, once.again, twice.outcome, twice.again) == ("inconclusive", "repeat", "inconclusive", None)


def test_the_mfu_is_of_the_dense_peak() -> None:
    one = TrainingStep(interpreter(devices=GPUS), peak=989.0)
    said = [str(n) for n in one.notes(tool.parse({**RESULT, "blocks": RESULT["blocks"] * 6}))]
    # 300,000 tokens × 9.1 GFLOP ÷ 8 GPUs = 341 TFLOPS.
    assert any("341.2 TFLOPS a GPU, 34.5 % of the dense bf16 peak" in s for s in said)


def job(days: float = 30, **settings: Any) -> Clause:
    asked = {"params": 7e9, "tokens": 300e9, "precision": "bf16", "zero": "3", **settings}
    promise = Promise("<=", days, "d", f"{days} d")
    return Clause("workload.within", "workload", "within", promise, 1, 1, settings=asked, severity="advisory")


def judged(clause: Clause, given: Case) -> Finding:
    (found,) = workload.judge((clause,), given)
    return found


def test_days_with_the_arithmetic_shown() -> None:
    # 6 · 7e9 · 300e9 = 1.26e22; 400,000 tokens/s · 9e9 = 3.6e15 operations a second: 40.5 days.
    found = judged(job(45), case(attempt(4e5)))
    assert (found.outcome, found.unit, found.measurements) == ("pass", "d", (KEY,))
    assert found.measured == pytest.approx(1.26e22 / 3.6e15 / 86400, rel=1e-4)
    said = str(found.notes[0])
    for part in ("6 × 7e+09 parameters × 3e+11 tokens = 1.26e+22", "8 GPUs", "3600 TFLOPS", "40.51 days"):
        assert part in said
    late = judged(job(30), case(attempt(4e5), attempt(4e5)))
    assert (late.outcome, late.severity) == ("fail", "advisory")


def test_a_job_that_does_not_fit_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload, "_memory", lambda given: 80e9)
    assert judged(job(45, zero="3"), case(attempt(4e5))).outcome == "pass"  # 112 GB over 8
    whole = judged(job(45, zero="0"), case(attempt(4e5)))
    assert (whole.outcome, whole.reason_code) == ("fail", "does-not-fit")
    assert "112 GB" in str(whole.reason)


@pytest.mark.parametrize(("stage", "gb"), [("0", 120), ("1", 31.4), ("2", 16.6), ("3", 1.9)])
def test_memory_is_what_the_zero_paper_says(monkeypatch: pytest.MonkeyPatch, stage: str, gb: float) -> None:
    monkeypatch.setattr(workload, "_memory", lambda given: 1e12)
    found = judged(job(900, params=7.5e9, zero=stage), case(attempt(4e5, gpus=64)))
    shown = str(found.notes[-1])
    assert f"{gb:g}" in shown or f"{gb * 1.01:.4g}" in shown or _near(shown, gb)


def _near(shown: str, gb: float) -> bool:
    number = next(float(w) for w in shown.split() if w.replace(".", "", 1).isdigit())
    return number == pytest.approx(gb, rel=0.02)


def test_another_precision_is_slower_by_the_published_peaks(monkeypatch: pytest.MonkeyPatch) -> None:
    h100 = catalogue.load().get("h100-sxm5-80gb")
    assert h100 is not None
    monkeypatch.setattr(workload, "models", lambda given: {"0000:1b:00.0": (h100,)})
    bf16, tf32 = (judged(job(900, precision=p), case(attempt(4e5))) for p in ("bf16", "tf32"))
    assert tf32.measured == pytest.approx(2 * bf16.measured, rel=0.01)
    monkeypatch.setattr(workload, "models", lambda given: {})
    assert judged(job(900, precision="fp32"), case(attempt(4e5))).outcome == "inconclusive"


def test_without_a_training_or_a_job_there_is_nothing_to_project() -> None:
    assert judged(job(), case()).outcome == "inconclusive"
    half = replace(job(), settings={"params": 7e9})
    assert "params and tokens" in str(judged(half, case(attempt(4e5))).reason)
    dull = attempt(4e5, Void("loss-not-falling", msg("x")))
    assert judged(job(), case(dull)).outcome == "inconclusive"


def test_one_training_serves_both() -> None:
    clauses = (replace(PROMISE, settings={"model": "GPT-125M"}), job())
    facts = {"pythons": Pythons(interpreter(devices=GPUS))}
    given = Case(Contract(clauses, b"", ""), facts)
    first, second = next(training.steps(clauses[:1], given)), next(workload.steps(clauses[1:], given))
    assert (first.name, first.keys) == (second.name, second.keys)
    assert first.cost("standard") == second.cost("standard")
    assert set(SHAPES) >= {"gpt-125m", "gpt-1b"}
