"""All-gather, reduce-scatter and all-to-all as promises: measured over gloo, corrupted, hanging, refused; judged."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional

import pytest

from agent import catalogue, contract
from agent.bench import second_source
from agent.bench.allreduce import OPS, AllreduceStep
from agent.bench.step import Look
from agent.checks import allreduce, collectives, grammars
from agent.checks._api import Case
from agent.contradictions import contradictions
from agent.evidence import Store
from agent.facts.pythons import Pythons
from agent.facts.trade_tools import TradeTools
from agent.host import ReplayHost, marked
from agent.model import Attempt, Block, Clause, Contract, Finding, Measurement, Promise, Result, Taken
from agent.reading import Known, Missing
from agent.report import industry
from agent.tools.worker import Device
from tests.bench.interpreters import GPUS, interpreter, live, needs_torch, shim
from tests.bench.test_allreduce import EFFORTS, SIZE, WITH_NVLS

KEYS = tuple(f"collectives.{op}" for op in OPS)
EIGHT = tuple(Device(i, "x", slot=f"0000:{i:02x}:00.0") for i in range(8))


def step(python: Optional[str] = None, **settings: Any) -> AllreduceStep:
    chosen = interpreter(python) if python else interpreter()
    few: dict[str, Any] = {"gpus": 2, "size": SIZE, "smallest": 1 << 12, "largest": 1 << 16, "stall_s": 60.0}
    asked = {"device": "cpu", "effort": EFFORTS, "ops": OPS, "judged": OPS, "fewer": False, **few, **settings}
    return AllreduceStep(chosen, **asked)


def taken(found: Result) -> Taken:
    assert isinstance(found, Taken), found
    return found


def missing(found: Result) -> Missing:
    assert isinstance(found, Missing), found
    return found


def rows(folder: Path) -> list[dict[str, Any]]:
    (path,) = (folder / "run" / "evidence").glob("*/result.json")
    found: list[dict[str, Any]] = json.loads(path.read_text())["rows"]
    return found


NAMES = {
    "all_gather": "all_gather_into_tensor",
    "reduce_scatter": "reduce_scatter_tensor",
    "all_to_all": "all_to_all_single",
}


def patched(op: str, does: str, call: bool = True) -> str:
    """A torch whose collective does something else besides, or nothing."""
    return f"""
        import os, sys, time
        import torch.distributed as dist
        real = dist.{NAMES[op]}
        def other(output, tensor, *a, **k):
            done = real(output, tensor, *a, **k) if {call} else None
            {does or "pass"}
            return done
        dist.{NAMES[op]} = other
"""


class TestReal:
    """With gloo and the real torch of this Python."""

    pytestmark = needs_torch

    @pytest.mark.parametrize("ranks", [2, 4])
    def test_each_is_measured_at_its_size_and_verified_at_every_size(self, tmp_path: Path, ranks: int) -> None:
        host = live(tmp_path)
        found = step(gpus=ranks).results(host, Look())
        assert tuple(found) == KEYS
        for key in KEYS:
            one = taken(found[key])
            assert (one.unit, one.attempt.correct, one.attempt.void) == ("GB/s", True, None)
            conditions = [b.conditions for b in one.attempt.blocks]
            assert [(c["gpus"], c["bytes_per_call"]) for c in conditions] == [(ranks, SIZE)] * 6
            # The notes of one speak of no other that is judged.
            op = key.partition(".")[2]
            assert [str(n) for n in one.attempt.notes if str(n).startswith(op)]
            assert not [n for n in one.attempt.notes for other in OPS if other != op and str(n).startswith(other)]
        measured = rows(tmp_path)
        assert {(r["op"], r["count"]) for r in measured} == {(op, ranks) for op in OPS}
        assert {r["wrong"] for r in measured} == {0}
        assert {r["bytes"] for r in measured if r["block"] is None} == {1 << k for k in range(12, 17)}
        for row in measured:
            assert row["algbw"][0] == pytest.approx(row["bytes"] / row["seconds"][0] / 1e9)
            assert row["busbw"][0] == pytest.approx(row["algbw"][0] * (ranks - 1) / ranks)
        assert not marked(host.token)
        assert step(gpus=ranks).results(ReplayHost(Store(tmp_path / "run")), Look()) == found

    def test_blocks_of_one_lie_apart_the_others_between(self, tmp_path: Path) -> None:
        step().results(live(tmp_path), Look())
        blocks = [(r["started_at"], r["op"]) for r in rows(tmp_path) if r["block"] is not None]
        assert [op for _, op in sorted(blocks)] == [*OPS] * 6

    @pytest.mark.parametrize(
        ("op", "damage"),
        [
            ("all_gather", "output[1:3] = output[2:4].clone()"),
            ("reduce_scatter", "output[3] *= 1.5"),
            ("all_to_all", "output[5] = float('nan')"),
        ],
    )
    def test_wrong_contents_are_caught_of_that_collective_alone(self, tmp_path: Path, op: str, damage: str) -> None:
        does = f"if sys.argv[-3] == '1' and len(output) > 8: {damage}"
        found = step(shim(tmp_path, sitecustomize=patched(op, does))).results(live(tmp_path), Look())
        one = taken(found[f"collectives.{op}"])
        assert one.attempt.void is not None
        assert one.attempt.void.code == "wrong-result"
        assert f"{op} among 2" in str(one.attempt.void.text)
        others = [taken(found[k]) for k in KEYS if k != f"collectives.{op}"]
        assert all(other.attempt.correct and other.attempt.void is None for other in others)

    def test_a_part_that_lands_in_anothers_place_is_caught(self, tmp_path: Path) -> None:
        python = shim(
            tmp_path, sitecustomize=patched("all_gather", "output.copy_(output.view(2, -1).flip(0).reshape(-1))")
        )
        found = step(python, ops=("all_gather",), judged=("all_gather",)).execute(live(tmp_path), Look())
        assert taken(found).attempt.correct is False

    def test_one_that_does_nothing_later_on_is_caught(self, tmp_path: Path) -> None:
        """What an earlier call brought is no proof of the later ones."""
        op = "reduce_scatter"
        source = patched(op, "", call=False).replace("done = real(output, tensor, *a, **k) if False else None",
            "calls.append(1)\n            done = real(output, tensor, *a, **k) if len(calls) < 4 else None").replace(
            "real = dist", "calls = []\n        real = dist")  # fmt: skip
        found = step(shim(tmp_path, sitecustomize=source), ops=(op,), judged=(op,)).execute(live(tmp_path), Look())
        assert taken(found).attempt.correct is False

    def test_a_backend_without_one_of_them_needs_nccl_and_the_others_stand(self, tmp_path: Path) -> None:
        source = patched("reduce_scatter", "", call=False).replace(
            "done = real(output, tensor, *a, **k) if False else None",
            "raise RuntimeError('ProcessGroupGloo does not support reduce_scatter')",
        )
        found = step(shim(tmp_path, sitecustomize=source)).results(live(tmp_path), Look())
        gone = missing(found["collectives.reduce_scatter"])
        assert gone.kind == "unsupported"
        assert "needs NCCL (reduce_scatter: ProcessGroupGloo does not support reduce_scatter)" in str(gone.detail)
        assert "NCCL" in str(gone.grant)
        assert taken(found["collectives.all_gather"]).attempt.correct
        assert taken(found["collectives.all_to_all"]).attempt.correct

    def test_a_rank_that_hangs_is_named_and_what_was_measured_is_kept(self, tmp_path: Path) -> None:
        does = "if sys.argv[-3] == '1' and tensor.numel() > 2000: time.sleep(600)"
        host = live(tmp_path)
        found = step(shim(tmp_path, sitecustomize=patched("all_to_all", does)), stall_s=6.0).results(host, Look())
        for key in KEYS:
            assert missing(found[key]).kind == "timeout"
            assert "rank 1 is at all_to_all of 8192 bytes among 2" in str(missing(found[key]).detail)
        assert not marked(host.token)
        assert {r["op"] for r in rows(tmp_path)} == set(OPS)

    def test_a_failure_with_nvls_is_measured_again_without(self, tmp_path: Path) -> None:
        source = patched("all_gather", "if 'NCCL_NVLS_ENABLE' not in os.environ and tensor.numel() > 2000: os._exit(7)")
        source += """
        if "--meet" in sys.orig_argv:
            folder = os.path.dirname(sys.orig_argv[sys.orig_argv.index("--request") + 1])
            with open(os.path.join(folder, "nccl-%d.log" % os.getpid()), "w") as log:
                log.write(LOG)
""".replace("LOG", repr(WITH_NVLS))
        host = live(tmp_path)
        found = step(shim(tmp_path, sitecustomize=source)).results(host, Look())
        assert [r.probe for r in host.log] == ["collectives/1", "collectives/1.without-nvls"]
        for key in KEYS:
            one = taken(found[key])
            assert len(one.attempt.evidence) == 2
            assert any("measured again without it" in str(n) for n in one.attempt.notes)

    def test_faster_than_the_links_is_void(self, tmp_path: Path) -> None:
        found = step(bound=lambda devices, nvls: 1e-9).results(live(tmp_path), Look())
        for key in KEYS:
            one = taken(found[key])
            assert one.attempt.void is not None
            assert one.attempt.void.code == "above-physical-limit"
            assert "switch" not in str(one.attempt.void.text), "a switch that adds up does not help these"


# ---------------------------------------------------------------- judging


def clause(op: str, sign: Any = ">=", value: Optional[float] = 330.0, **more: Any) -> Clause:
    written = f"{sign} {value} GB/s" if value else "auto"
    return Clause(
        f"collectives.{op}", "collectives", op, Promise(sign, value, "GB/s", written), 1, 1, tolerance=0.05, **more
    )


def attempt(value: float, gpus: int = 8) -> Attempt:
    conditions = {"gpus": gpus, "bytes_per_call": 1 << 30}
    blocks = tuple(Block(value + i / 10, (value + i / 10,), (), conditions) for i in range(6))
    return Attempt(blocks, "standard", "2026-11-30T00:00:00Z", correct=True)


def judged(monkeypatch: pytest.MonkeyPatch, promise: Clause, model: str, *attempts: Attempt) -> Finding:
    card = catalogue.load().get(model)
    assert card is not None
    monkeypatch.setattr(allreduce, "models", lambda case: {f"0000:{i:02x}:00.0": (card,) for i in range(8)})
    taken = Measurement(promise.key, "GB/s", "median of block medians", attempts)
    (found,) = collectives.judge((promise,), Case(Contract((promise,), b"", ""), {}, {promise.key: taken}))
    return found


@pytest.mark.parametrize("op", OPS)
def test_a_promise_is_held_at_its_size(monkeypatch: pytest.MonkeyPatch, op: str) -> None:
    assert judged(monkeypatch, clause(op), "h100-sxm5-80gb", attempt(345)).outcome == "pass"
    once = judged(monkeypatch, clause(op), "h100-sxm5-80gb", attempt(200))
    assert (once.outcome, once.again) == ("inconclusive", "repeat")
    broken = judged(monkeypatch, clause(op), "h100-sxm5-80gb", attempt(200), attempt(201))
    assert (broken.outcome, broken.severity) == ("fail", "breach")


@pytest.mark.parametrize("op", ["all_gather", "reduce_scatter"])
def test_auto_is_what_a_ring_over_the_links_gives_and_convicts_nobody(monkeypatch: pytest.MonkeyPatch, op: str) -> None:
    auto = clause(op, "auto", None, agreed=True)
    good = judged(monkeypatch, auto, "h100-sxm5-80gb", attempt(360))
    assert (good.outcome, good.limit and good.limit.origin.kind) == ("pass", "topology")
    bad = judged(monkeypatch, auto, "h100-sxm5-80gb", attempt(200), attempt(200))
    assert (bad.outcome, bad.severity) == ("fail", "advisory")
    assert any("a ring as of an all-reduce" in str(n) for n in bad.notes)


@pytest.mark.parametrize(("op", "model"), [("all_to_all", "h100-sxm5-80gb"), ("all_gather", "rtx-4090")])
def test_auto_without_anything_published_is_reported_without_a_verdict(
    monkeypatch: pytest.MonkeyPatch, op: str, model: str
) -> None:
    found = judged(monkeypatch, clause(op, "auto", None, severity="advisory"), model, attempt(12.0))
    assert (found.outcome, found.measured, found.unit) == ("inconclusive", pytest.approx(12.25), "GB/s")
    assert "no limit can be derived" in str(found.reason)


# ---------------------------------------------------------------- contract, plan, command by hand

TEXT = """version: 1
gpu: {model: H100 SXM5 80GB, count: 8}
collectives: {all_gather: ">= 330 GB/s", all_to_all: auto, gpus: 8, size: 256 MiB}
"""


def loaded(folder: Path, text: str = TEXT) -> Contract:
    path = folder / "contract.yaml"
    path.write_text(text, encoding="utf-8")
    return contract.load(path, grammars())


def case_of(found: Contract) -> tuple[tuple[Clause, ...], Case]:
    clauses = tuple(c for c in found.clauses if c.family == "collectives")
    where = {"all_gather_perf": "/opt/nccl-tests/build/all_gather_perf"}
    facts = {"pythons": Pythons(interpreter(devices=EIGHT)), "trade_tools": TradeTools(Known(where, ()))}
    return clauses, Case(found, facts)


def test_the_contract_names_collectives_size_and_number(tmp_path: Path) -> None:
    clauses, case = case_of(loaded(tmp_path))
    (found,) = collectives.steps(clauses, case)
    assert (found.name, found.keys) == ("collectives", ("collectives.all_gather", "collectives.all_to_all"))
    assert set(found.tools) == {"all_gather_perf"}, "only what is there"
    assert 0 < found.cost("quick").seconds < 60 < found.cost("standard").seconds < 200
    assert list(collectives.steps(clauses, Case(case.contract))) == []


def test_a_request_is_of_what_is_promised_alone() -> None:
    asked = AllreduceStep(interpreter(devices=EIGHT), ops=OPS, judged=OPS, fewer=False).request(8, "standard", 60, True)
    assert (asked["counts"], asked["ops"], asked["judged"]["ops"]) == ([8], list(OPS), list(OPS))


@pytest.mark.parametrize("count", [1, 4])
def test_more_gpus_than_there_are_is_a_contradiction_before_anything_runs(tmp_path: Path, count: int) -> None:
    found = contradictions(loaded(tmp_path, TEXT.replace("count: 8", f"count: {count}")))
    assert any("a collective over 8 GPUs, but gpu.count is" in str(p.message) for p in found)
    assert any("collectives.all_gather needs two GPUs" in str(p.message) for p in found) == (count == 1)


def test_more_than_the_links_carry_one_way_is_a_contradiction(tmp_path: Path) -> None:
    sane, mad = (contradictions(loaded(tmp_path, TEXT.replace("330 GB/s", v))) for v in ("440 GB/s", "470 GB/s"))
    assert not sane
    assert any("collectives.all_gather promises" in str(p.message) for p in mad)


def test_too_few_gpus_are_not_there() -> None:
    one = AllreduceStep(interpreter(devices=GPUS), ops=OPS, judged=OPS, gpus=4)
    found = one.results(ReplayHost(Store(Path("/nonexistent"))), Look())
    assert {missing(r).kind for r in found.values()} == {"not-there"}
    assert "a collective over 4 GPUs is promised; torch sees 2" in str(missing(found[KEYS[0]]).detail)
    assert one.cost("standard").seconds == 0


@pytest.mark.parametrize("op", OPS)
def test_the_command_by_hand_is_the_trades_at_the_same_size(monkeypatch: pytest.MonkeyPatch, op: str) -> None:
    run: Any = SimpleNamespace(node={"gpus": [{"slot": d.slot, "index": d.index} for d in EIGHT]})
    found = judged(monkeypatch, clause(op), "h100-sxm5-80gb", attempt(345))
    assert industry.command(found, run) == f"{second_source.PROGRAMS[op]} -b 1G -e 1G -g 8 -n 20 -c 1"
    words = (second_source.PROGRAMS[op], *second_source.nccl_words(4, 1 << 28))
    assert industry.command(replace(found, reproduce=words), run) == f"{words[0]} -b 256M -e 256M -g 4 -n 20 -c 1"
