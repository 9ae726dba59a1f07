"""Collectives over gloo on this machine: sums right, wrong, hanging, dead; and what the judge makes of them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional, Union

import pytest

from agent import catalogue
from agent.bench.allreduce import KEY, AllreduceStep
from agent.bench.gemm import Effort
from agent.bench.step import Look
from agent.checks import allreduce
from agent.checks._allreduce import expected, ring
from agent.checks._api import Case
from agent.evidence import Store
from agent.facts.pythons import Pythons
from agent.host import ReplayHost, marked
from agent.model import Attempt, Block, Clause, Contract, Depth, Finding, Measurement, Promise, Result, Taken, Void
from agent.reading import Missing
from agent.text import msg
from agent.tools import ParseError, nccl_log
from agent.tools import allreduce as tool
from agent.tools.worker import Device
from tests.bench.interpreters import GPUS, interpreter, live, needs_torch, shim

SHORT = Effort(blocks=6, samples=3, sample_s=0.005, warmup_s=0.005, pause_s=0.0)
EFFORTS: Mapping[Depth, Effort] = {"quick": SHORT, "standard": SHORT, "deeper": SHORT}
SIZE = 1 << 16


def step(python: Optional[str] = None, **settings: Any) -> AllreduceStep:
    chosen = interpreter(python) if python else interpreter()
    few: dict[str, Any] = {"gpus": 2, "size": SIZE, "smallest": 1 << 12, "largest": 1 << 16, "stall_s": 60.0}
    return AllreduceStep(chosen, **{"device": "cpu", "effort": EFFORTS, **few, **settings})


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


class TestReal:
    """With gloo and the real torch of this Python."""

    pytestmark = needs_torch

    def test_two_and_four_ranks_sum_right(self, tmp_path: Path) -> None:
        host = live(tmp_path)
        one = taken(step(gpus=4).execute(host, Look()))
        assert (one.unit, one.attempt.correct, one.attempt.void) == ("GB/s", True, None)
        assert [len(one.attempt.blocks), one.attempt.blocks[0].conditions["gpus"]] == [6, 4]
        assert one.attempt.blocks[0].conditions["bytes_per_call"] == SIZE
        found = rows(tmp_path)
        assert {r["count"] for r in found} == {2, 4}
        assert {r["bytes"] for r in found if r["block"] is None} == {1 << k for k in range(12, 17)}
        assert {r["wrong"] for r in found} == {0}
        sample = found[0]
        assert sample["busbw"][0] == pytest.approx(sample["algbw"][0] * 2 * (sample["count"] - 1) / sample["count"])
        assert sample["algbw"][0] == pytest.approx(sample["bytes"] / sample["seconds"][0] / 1e9)
        assert not marked(host.token)
        assert step(gpus=4).execute(ReplayHost(Store(tmp_path / "run")), Look()) == one

    def test_all_collectives_and_a_number_of_ranks_that_is_no_power_of_two(self, tmp_path: Path) -> None:
        ops = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
        taken(step(gpus=3, ops=ops, smallest=1 << 15).execute(live(tmp_path), Look()))
        found = rows(tmp_path)
        assert {(r["op"], r["count"]) for r in found} == {(op, n) for op in ops for n in (2, 3)}
        assert {r["wrong"] for r in found} == {0}

    @pytest.mark.parametrize(
        ("rank", "damage"),
        [("1", "tensor[3] *= 1.5"), ("0", "tensor[5] = float('nan')"), ("1", "tensor[1:3] = tensor[2:4].clone()")],
    )
    def test_a_corrupted_sum_is_caught(self, tmp_path: Path, rank: str, damage: str) -> None:
        python = shim(tmp_path, sitecustomize=patched(f"if sys.argv[-3] == '{rank}' and len(tensor) > 8: {damage}"))
        one = taken(step(python).execute(live(tmp_path), Look()))
        assert one.attempt.void is not None
        assert one.attempt.void.code == "wrong-result"
        assert "came out wrong" in str(one.attempt.void.text)

    def test_an_all_reduce_that_does_nothing_is_caught(self, tmp_path: Path) -> None:
        python = shim(tmp_path, sitecustomize=patched("", call=False))
        one = taken(step(python).execute(live(tmp_path), Look()))
        assert one.attempt.correct is False

    def test_a_rank_that_dies_is_named_and_takes_the_others_along(self, tmp_path: Path) -> None:
        does = "if sys.argv[-3] == '1' and tensor.numel() > 2000: os.kill(os.getpid(), 9)"
        host = live(tmp_path)
        found = missing(step(shim(tmp_path, sitecustomize=patched(does))).execute(host, Look()))
        assert found.kind == "failed"
        assert "rank 1 was ended by signal 9" in str(found.detail)
        assert not marked(host.token)
        assert {r["bytes"] for r in rows(tmp_path)} == {1 << 12}

    def test_a_rank_that_fails_says_why(self, tmp_path: Path) -> None:
        does = "if sys.argv[-3] == '1': raise RuntimeError('CUDA error: device lost')"
        found = missing(step(shim(tmp_path, sitecustomize=patched(does))).execute(live(tmp_path), Look()))
        assert "rank 1" in str(found.detail)
        assert "device lost" in str(found.detail)

    def test_a_hang_in_a_collective_ends_at_its_deadline_with_no_child_left(self, tmp_path: Path) -> None:
        does = "if sys.argv[-3] == '1' and tensor.numel() > 2000: time.sleep(600)"
        host, begun = live(tmp_path), time.monotonic()
        one = step(shim(tmp_path, sitecustomize=patched(does)), stall_s=6.0)
        found = missing(one.execute(host, Look()))
        assert found.kind == "timeout"
        assert "rank 1 is at all_reduce of 8192 bytes among 2" in str(found.detail)
        assert time.monotonic() - begun < 60
        assert not marked(host.token)

    def test_a_worker_past_its_time_limit_ends_its_ranks(self, tmp_path: Path) -> None:
        does = "if sys.argv[-3] == '1': time.sleep(600)"
        host = live(tmp_path)
        one = step(shim(tmp_path, sitecustomize=patched(does)), limit_s=8.0)
        assert "time limit of 8 s" in str(missing(one.execute(host, Look())).detail)
        assert not marked(host.token)

    def test_faster_than_the_links_is_void(self, tmp_path: Path) -> None:
        one = taken(step(bound=lambda devices, nvls: 1e-9).execute(live(tmp_path), Look()))
        assert one.attempt.void is not None
        assert one.attempt.void.code == "above-physical-limit"

    def test_a_failure_with_nvls_is_measured_again_without_and_both_stay(self, tmp_path: Path) -> None:
        source = patched("if 'NCCL_NVLS_ENABLE' not in os.environ and tensor.numel() > 2000: os._exit(7)")
        source += """
        if "--meet" in sys.orig_argv:
            folder = os.path.dirname(sys.orig_argv[sys.orig_argv.index("--request") + 1])
            with open(os.path.join(folder, "nccl-%d.log" % os.getpid()), "w") as log:
                log.write(LOG)
""".replace("LOG", repr(WITH_NVLS))
        host = live(tmp_path)
        one = taken(step(shim(tmp_path, sitecustomize=source)).execute(host, Look()))
        assert len(one.attempt.evidence) == 2
        assert len(one.attempt.blocks) == 6
        said = " ".join(str(n) for n in one.attempt.notes)
        assert "with NVLS: rank" in said
        assert "measured again without it" in said
        assert [r.probe for r in host.log] == ["allreduce/1", "allreduce/1.without-nvls"]


WITH_NVLS = """\
node:41:41 [0] NCCL INFO NCCL version 2.21.5+cuda12.4
node:41:97 [0] NCCL INFO NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 16)
node:41:97 [0] NCCL INFO Channel 00/24 :    0   1   2   3   4   5   6   7
node:41:97 [0] NCCL INFO Channel 01/24 :    0   1   2   3   4   5   6   7
node:41:97 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
node:41:97 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM/read
node:41:97 [0] NCCL INFO Connected all rings
node:41:97 [0] NCCL INFO 24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels
"""


def patched(does: str, call: bool = True) -> str:
    return f"""
        import os, sys, time
        import torch.distributed as dist
        real = dist.all_reduce
        def all_reduce(tensor, *a, **k):
            done = real(tensor, *a, **k) if {call} else None
            {does or "pass"}
            return done
        dist.all_reduce = all_reduce
"""


# ---------------------------------------------------------------- NCCL's log


def test_a_log_with_nvls() -> None:
    found = nccl_log.parse(WITH_NVLS)
    assert (found.version, found.rings, found.nvls) == ("2.21.5", 24, True)
    assert found.transports == {"P2P/CUMEM": 2}
    assert (found.settings, found.warnings) == ({}, ())


def test_a_log_without() -> None:
    found = nccl_log.parse(
        "n:1:1 [0] NCCL INFO NCCL version 2.18.3+cuda12.1\n"
        "n:1:2 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1.\n"
        "n:1:2 [0] NCCL INFO NCCL_DEBUG set by environment to INFO\n"
        "n:1:2 [0] NCCL INFO NVLS multicast support is not available on dev 0\n"
        "n:1:2 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct\n"
        "n:1:2 [0] NCCL INFO Channel 00/0 : 1[1] -> 0[0] [receive] via NET/IB/0/GDRDMA\n"
        "n:1:2 [0] transport/nvls.cc:254 NCCL WARN Cuda failure 'out of memory'\n" * 2
    )
    assert (found.version, found.rings, found.nvls) == ("2.18.3", None, False)
    assert found.transports == {"SHM/direct": 2, "NET/IB": 2}
    assert found.settings == {"NCCL_P2P_DISABLE": "1"}
    assert found.warnings == ("Cuda failure 'out of memory'",)


def test_switched_off_is_off() -> None:
    off = "n:1:1 [0] NCCL INFO NCCL_NVLS_ENABLE set by environment to 0.\n"
    assert nccl_log.parse(off).nvls is False
    assert nccl_log.parse(WITH_NVLS.replace("16 nvls", "0 nvls")).nvls is False


@pytest.mark.parametrize("text", ["", "\x00\xff", "hostname:3442:3442 [0] NCCL INFO Launch mode Parallel"])
def test_a_log_that_tells_nothing(text: str) -> None:
    found = nccl_log.parse(text)
    assert (found.version, found.rings, found.nvls, found.transports) == (None, None, None, {})


# ---------------------------------------------------------------- the result file

ROW: dict[str, Any] = {
    "op": "all_reduce",
    "count": 8,
    "bytes": 1 << 30,
    "block": 0,
    "calls": 20,
    "seconds": [0.004],
    "busbw": [470.0],
    "algbw": [268.6],
    "wrong": 0,
    "started_at": "2026-11-30T00:00:00Z",
    "ended_at": "2026-11-30T00:00:01Z",
}
RESULT: dict[str, Any] = {"rows": [ROW], "unavailable": {}, "stopped": None, "log": ""}


def test_rows_are_told_apart() -> None:
    more = [{**ROW, "block": 1}, {**ROW, "block": None}, {**ROW, "count": 4}, {**ROW, "bytes": 8, "block": None}]
    found = tool.parse({**RESULT, "rows": [*more, ROW]})
    assert [r.block for r in found.blocks(8, 1 << 30)] == [0, 1]
    assert [r.bytes for r in found.sweep("all_reduce", 8)] == [8, 1 << 30]


@pytest.mark.parametrize(
    "change",
    [
        {"rows": None},
        {"rows": [{**ROW, "busbw": []}]},
        {"rows": [{**ROW, "wrong": -1}]},
        {"rows": [{**ROW, "block": 0.5}]},
        {"log": None},
        {"stopped": "hung"},
        {"unavailable": {"all_to_all": None}},
    ],
)
def test_what_is_wrong_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ParseError):
        tool.parse({**RESULT, **change})


# ---------------------------------------------------------------- what is to be expected

# (product, GPUs, by): what was published, lowest and highest.
PUBLISHED = {
    ("h100-sxm5-80gb", 8, "nvls"): (478.9, 480),
    ("h100-sxm5-80gb", 8, "ring"): (365, 370),
    ("h100-sxm5-80gb", 4, "ring"): (365, 370),
    ("a100-sxm4-80gb", 8, "ring"): (231, 235),
    ("h800-sxm5", 8, "nvls"): (215, 215),
    ("h200-sxm-141gb", 8, "nvls"): (473, 482),
    ("a100-pcie-80gb", 2, "ring"): (208, 208),
    ("b200", 8, "nvls"): (838, 846),
}


@pytest.mark.parametrize(("model", "count", "by"), PUBLISHED)
def test_expected_is_what_was_published(model: str, count: int, by: str) -> None:
    known = catalogue.load().get(model)
    assert known is not None
    found = expected(known, count)
    value = found.nvls if by == "nvls" else found.ring
    low, high = PUBLISHED[model, count, by]
    assert value is not None
    assert low <= value <= high
    assert str(count) in str(found.derivation) or "links" in str(found.derivation)


def test_a_link_less_is_derived_less() -> None:
    a800, h800 = ring("8.0", 8), ring("9.0", 8)
    assert a800 == pytest.approx(155, abs=5)  # 160 in NCCL's model
    assert h800 == pytest.approx(165, abs=5)
    assert ring("8.9", 4) is None


@pytest.mark.parametrize(
    ("model", "count"), [("rtx-4090", 8), ("l40s", 4), ("a100-pcie-80gb", 4), ("v100-sxm2-32gb", 4)]
)
def test_nothing_absolute_is_expected_of_pcie(model: str, count: int) -> None:
    known = catalogue.load().get(model)
    assert known is not None
    found = expected(known, count)
    assert (found.ring, found.nvls) == (None, None)
    assert str(found.derivation)


# ---------------------------------------------------------------- judging


def clause(op: Any = ">=", value: Optional[float] = 360.0, **more: Any) -> Clause:
    written = f"{op} {value} GB/s" if value else "auto"
    return Clause(KEY, "allreduce", "busbw", Promise(op, value, "GB/s", written), 1, 1, tolerance=0.05, **more)


def attempt(value: float, gpus: int = 8, void: Optional[Void] = None) -> Attempt:
    conditions = {"gpus": gpus, "bytes_per_call": 1 << 30}
    blocks = tuple(Block(value + i / 10, (value + i / 10,), (), conditions) for i in range(6))
    return Attempt(blocks, "standard", "2026-11-30T00:00:00Z", void=void, correct=void is None)


def judged(promise: Clause, model: str, *attempts: Attempt, monkeypatch: pytest.MonkeyPatch) -> Finding:
    gpus = attempts[0].blocks[0].conditions["gpus"]
    card = catalogue.load().get(model)
    assert card is not None
    known = {f"0000:{i:02x}:00.0": (card,) for i in range(gpus)}
    monkeypatch.setattr(allreduce, "models", lambda case: known)
    measured: dict[str, Union[Measurement, Missing]] = {
        KEY: Measurement(KEY, "GB/s", "median of block medians", attempts)
    }
    (found,) = allreduce.judge((promise,), Case(Contract((promise,), b"", ""), {}, measured))
    return found


@pytest.mark.parametrize(
    ("model", "gpus", "healthy", "bad"),
    [
        ("h100-sxm5-80gb", 8, 480, 240),
        ("h100-sxm5-80gb", 8, 367, 280),  # without NVLS: no fault
        ("h100-sxm5-80gb", 4, 367, 172),
        ("a100-sxm4-80gb", 8, 231, 160),
        ("h800-sxm5", 8, 215, 110),
        ("a800-sxm4-80gb", 8, 155, 110),
        ("h200-sxm-141gb", 8, 473, 280),
        ("a100-pcie-80gb", 2, 208, 22),
    ],
)
def test_auto_keeps_the_healthy_and_finds_the_bad(
    monkeypatch: pytest.MonkeyPatch, model: str, gpus: int, healthy: float, bad: float
) -> None:
    auto = clause("auto", None, agreed=True)
    good = judged(auto, model, attempt(healthy, gpus), monkeypatch=monkeypatch)
    assert good.outcome == "pass"
    assert good.limit is not None
    assert good.limit.origin.detail
    broken = judged(auto, model, attempt(bad, gpus), attempt(bad, gpus), monkeypatch=monkeypatch)
    assert broken.outcome == "fail"
    # Only a floor that two independent sources measured convicts.
    assert broken.severity == ("breach" if broken.limit and broken.limit.origin.kind == "catalogue" else "advisory")


def test_pcie_is_reported_without_an_absolute_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    auto = clause("auto", None, severity="advisory")
    found = judged(auto, "rtx-4090", attempt(12.7), monkeypatch=monkeypatch)
    assert (found.outcome, found.measured, found.unit) == ("inconclusive", pytest.approx(12.95), "GB/s")
    assert "NVLink" in str(found.reason)


def test_the_promise_is_held_at_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged(clause(), "h100-sxm5-80gb", attempt(470), monkeypatch=monkeypatch).outcome == "pass"
    once = judged(clause(), "h100-sxm5-80gb", attempt(300), monkeypatch=monkeypatch)
    assert (once.outcome, once.again) == ("inconclusive", "repeat")
    twice = judged(clause(), "h100-sxm5-80gb", attempt(300), attempt(301), monkeypatch=monkeypatch)
    assert twice.outcome == "fail"


def test_wrong_sums_never_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = attempt(470, void=Void("wrong-result", msg("wrong")))
    found = judged(clause(), "h100-sxm5-80gb", wrong, monkeypatch=monkeypatch)
    assert (found.outcome, found.reason_code, found.again) == ("inconclusive", "wrong-result", "repeat")


# ---------------------------------------------------------------- steps


def steps(devices: tuple[Device, ...] = GPUS, **settings: Any) -> AllreduceStep:
    return AllreduceStep(interpreter(devices=devices), **settings)


def test_how_many_take_part() -> None:
    assert steps().ranks() == 2
    assert missing_kind(steps(gpus=4)) == "not-there"
    assert missing_kind(steps(promised=8)) == "not-there"
    assert missing_kind(steps(devices=GPUS[:1])) == "not-there"
    assert missing_kind(steps(devices=())) == "not-there"
    assert steps(gpus=2, promised=8).ranks() == 2


def missing_kind(one: AllreduceStep) -> str:
    found = one.ranks()
    assert isinstance(found, Missing)
    assert one.cost("standard").seconds == 0
    return found.kind


def test_a_short_look_takes_the_judged_size_alone() -> None:
    eight = tuple(Device(i, "x", slot=f"0000:{i:02x}:00.0") for i in range(8))
    one = steps(devices=eight)
    standard, quick = one.request(8, "standard", 60, True), one.request(8, "quick", 60, True)
    assert (standard["counts"], standard["smallest_bytes"], standard["largest_bytes"]) == ([2, 4, 8], 8, 8 << 30)
    assert (quick["counts"], quick["smallest_bytes"], quick["largest_bytes"]) == ([8], 1 << 27, 1 << 30)
    assert one.cost("quick").seconds < 60 < one.cost("standard").seconds < 240


def test_the_contract_names_size_and_number() -> None:
    settings = {"gpus": 4.0, "size": float(1 << 28)}
    facts = {"pythons": Pythons(interpreter(devices=GPUS))}
    promise = clause(settings=settings)
    (found,) = allreduce.steps((promise,), Case(Contract((promise,), b"", ""), facts))
    assert found.keys == (KEY,)
    assert list(allreduce.steps((promise,), Case(Contract((promise,), b"", "")))) == []


def test_the_line_rate_bounds_only_what_the_switch_does_not_reduce() -> None:
    h100, a100 = catalogue.load().get("h100-sxm5-80gb"), catalogue.load().get("a100-sxm4-80gb")
    assert h100 is not None
    assert a100 is not None
    hopper = {d.subject: (h100,) for d in GPUS}
    assert allreduce._bound(hopper, GPUS, False) == 450
    assert allreduce._bound(hopper, GPUS, True) is None
    assert allreduce._bound(hopper, GPUS, None) is None
    assert allreduce._bound({d.subject: (a100,) for d in GPUS}, GPUS, None) == 300
    assert allreduce._bound({}, GPUS, False) is None
