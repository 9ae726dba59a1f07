"""The GEMM worker on a real torch (CPU), sound and corrupted, and what the agent makes of its answer."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import stats
from agent.bench.gemm import EFFORT, SEARCH_S, SPREAD, TOLERANCE, Effort, GemmStep, spread
from agent.bench.step import Look
from agent.evidence import Store
from agent.host import ReplayHost
from agent.model import Attempt, Block, Depth, Result, Taken
from agent.reading import Missing
from agent.text import msg
from agent.tools import ParseError, gemm
from agent.tools.worker import Device, Unable
from tests.bench.interpreters import GPUS, TWO_GPUS, interpreter, live, needs_torch, shim

SHORT = Effort(blocks=6, samples=3, sample_s=0.005, warmup_s=0.02, pause_s=0.0)
EFFORTS: Mapping[Depth, Effort] = dict.fromkeys(EFFORT, SHORT)
SMALL = ((512, 384, 256),)
CPU_KEY = "gemm.{}@device 0"


def step(dtype: str, python: Optional[str] = None, **settings: Any) -> GemmStep:
    chosen = interpreter(python, settings.pop("devices", ())) if python else interpreter()
    return GemmStep(
        dtype, chosen, **{"device": "cpu", "effort": EFFORTS, "shapes": SMALL, "common": SMALL[0], **settings}
    )


def taken(results: Mapping[str, Result], key: str) -> Taken:
    found = results[key]
    assert isinstance(found, Taken), found
    return found


def missing(results: Mapping[str, Result], key: str) -> Missing:
    found = results[key]
    assert isinstance(found, Missing), found
    return found


class TestReal:
    """With the real torch of this Python."""

    pytestmark = needs_torch

    @pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp64", "int8"])
    def test_a_sound_measurement(self, tmp_path: Path, dtype: str) -> None:
        key = CPU_KEY.format(dtype)
        found = taken(step(dtype).step().execute(live(tmp_path), Look()), key)
        assert found.unit == "TFLOPS"
        assert found.attempt.correct is True
        assert found.attempt.void is None
        assert len(found.attempt.blocks) == 6
        for block in found.attempt.blocks:
            assert len(block.samples) == 3
            assert 0.0001 < block.value < 100
            assert len(block.warmup) >= 2
            assert block.conditions["max_error"] <= TOLERANCE[dtype]
        # Rounding that a narrow type must show: an error of exactly 0 would mean that nothing was compared.
        if dtype == "bf16":
            assert all(b.conditions["max_error"] > 1e-4 for b in found.attempt.blocks)
        notes = " ".join(str(n) for n in found.attempt.notes)
        assert "512 × 384 × 256" in notes
        assert stats.block_attempt([b.samples for b in found.attempt.blocks]).interval is not None

    def test_a_replay_gives_the_same_and_starts_nothing(self, tmp_path: Path) -> None:
        host = live(tmp_path)
        first = step("fp32").step().execute(host, Look())
        assert step("fp32").step().execute(ReplayHost(Store(tmp_path / "run")), Look()) == first

    @pytest.mark.parametrize(
        ("dtype", "damage"),
        [
            ("fp32", "c[7, 11] += 300"),
            ("bf16", "c[7, 11] += 300"),
            ("fp32", "c.mul_(1.001)"),
            ("bf16", "c.mul_(1.05)"),
            ("fp32", "c[0, 0] = float('nan')"),
            ("fp32", "c.zero_()"),
            ("fp32", "c[200] = c[201]"),
        ],
    )
    def test_corrupted_arithmetic_is_caught(self, tmp_path: Path, dtype: str, damage: str) -> None:
        source = f"""
            import torch
            real = torch.mm
            def mm(a, b, out=None):
                c = real(a, b, out=out)
                {damage}
                return c
            torch.mm = mm
        """
        python = shim(tmp_path, sitecustomize=source)
        found = taken(step(dtype, python).step().execute(live(tmp_path), Look()), CPU_KEY.format(dtype))
        assert found.attempt.correct is False
        assert found.attempt.void is not None
        assert found.attempt.void.code == "wrong-result"

    def test_a_product_that_is_never_computed_is_caught(self, tmp_path: Path) -> None:
        python = shim(tmp_path, sitecustomize="import torch\ntorch.mm = lambda a, b, out=None: out\n")
        found = taken(step("fp32", python).step().execute(live(tmp_path), Look()), CPU_KEY.format("fp32"))
        assert found.attempt.void is not None

    def test_a_torch_without_fp8_names_the_version(self, tmp_path: Path) -> None:
        python = shim(tmp_path, sitecustomize="import torch\ndel torch.float8_e4m3fn\n")
        found = missing(step("fp8", python).step().execute(live(tmp_path), Look()), CPU_KEY.format("fp8"))
        assert found.kind == "unsupported"
        assert "torch ≥ 2.1" in str(found.detail)

    def test_an_interface_that_changed_is_an_old_or_new_torch_and_not_zero(self, tmp_path: Path) -> None:
        python = shim(tmp_path, sitecustomize="import torch\ntorch._int_mm = lambda a: a\n")
        found = missing(step("int8", python).step().execute(live(tmp_path), Look()), CPU_KEY.format("int8"))
        assert "torch._int_mm" in str(found.detail)

    def test_tf32_is_not_a_type_of_cpus(self, tmp_path: Path) -> None:
        found = missing(step("tf32").step().execute(live(tmp_path), Look()), CPU_KEY.format("tf32"))
        assert found.kind == "unsupported"

    def test_too_little_memory_is_our_trouble(self, tmp_path: Path) -> None:
        big = ((4_000_000, 64, 4_000_000),)
        found = missing(step("fp32", shapes=big).step().execute(live(tmp_path), Look()), CPU_KEY.format("fp32"))
        assert found.kind == "failed"
        assert "not enough memory" in str(found.detail)

    def test_the_common_shape_is_measured_beside_and_verified(self, tmp_path: Path) -> None:
        one = step("fp32", shapes=((64, 64, 64), (512, 512, 512)), common=(256, 256, 256))
        found = taken(one.execute(live(tmp_path), Look()), CPU_KEY.format("fp32"))
        assert found.attempt.blocks[0].conditions["shape"] == [512, 512, 512]
        (said,) = [str(n) for n in found.attempt.notes if str(n).startswith("at 256 × 256 × 256: ")]
        (path,) = (tmp_path / "run" / "evidence").glob("*/result.json")
        beside = json.loads(path.read_text())["dtypes"]["fp32"]["devices"][0]["beside"]
        assert (beside["shape"], len(beside["samples"]), beside["correct"]) == ([256, 256, 256], 3, True)
        assert f"{sorted(beside['samples'])[1]:.1f} TFLOPS" in said

    def test_where_the_common_shape_is_the_best_it_is_not_measured_twice(self, tmp_path: Path) -> None:
        one = step("fp32", common=SMALL[0])
        found = taken(one.execute(live(tmp_path), Look()), CPU_KEY.format("fp32"))
        assert not [n for n in found.attempt.notes if str(n).startswith("at ")]

    def test_a_wrong_product_of_the_common_shape_is_void_too(self, tmp_path: Path) -> None:
        source = """
            import torch
            real = torch.mm
            def mm(a, b, out=None):
                c = real(a, b, out=out)
                if c.shape[0] == 320: c[7, 11] += 300
                return c
            torch.mm = mm
        """
        one = step("fp32", shim(tmp_path, sitecustomize=source), common=(320, 256, 256))
        found = taken(one.execute(live(tmp_path), Look()), CPU_KEY.format("fp32"))
        assert found.attempt.void is not None
        assert "1 of 7 blocks" in str(found.attempt.void.text)

    def test_a_common_shape_without_memory_leaves_the_blocks(self, tmp_path: Path) -> None:
        one = step("fp32", common=(4_000_000, 64, 4_000_000))
        found = taken(one.execute(live(tmp_path), Look()), CPU_KEY.format("fp32"))
        assert found.attempt.void is None
        assert any("4000000 × 64 × 4000000: not measured" in str(n) for n in found.attempt.notes)

    def test_the_fastest_shape_is_searched_once_and_kept(self, tmp_path: Path) -> None:
        one = step("fp32", shapes=((16, 16, 16), (512, 512, 512)))
        host = live(tmp_path)
        first = taken(one.execute(host, Look()), CPU_KEY.format("fp32"))
        assert first.attempt.blocks[0].conditions["shape"] == [512, 512, 512]
        second = taken(one.execute(host, Look(2)), CPU_KEY.format("fp32"))
        assert second.attempt.blocks[0].conditions["shape"] == [512, 512, 512]
        request = json.loads((tmp_path / "run/evidence/0002-gemm.fp32-2/request.json").read_text())
        assert request["shapes"] == [[512, 512, 512]]

    def test_two_gpus(self, tmp_path: Path) -> None:
        python = shim(tmp_path, sitecustomize=TWO_GPUS)
        one = step("bf16", python, device="cuda", devices=GPUS, spread=True)
        keys = ("gemm.bf16@0000:1b:00.0", "gemm.bf16@0000:2b:00.0", SPREAD)
        assert one.step().keys == keys
        host = live(tmp_path)
        found = one.execute(host, Look())
        assert set(found) == set(keys)
        blocks = [(b.conditions["started_at"], key) for key in keys[:2] for b in taken(found, key).attempt.blocks]
        assert [key for _, key in sorted(blocks)] == list(keys[:2]) * 6
        assert 0 <= taken(found, SPREAD).attempt.blocks[0].value < 100
        assert len(taken(found, SPREAD).attempt.blocks) == 6
        for key in keys[:2]:
            assert any("with all GPUs at once" in str(note) for note in taken(found, key).attempt.notes)
        bits = [taken(found, key).attempt.blocks[0].conditions["bits"] for key in keys[:2]]
        assert bits[0] == bits[1]
        assert bits[0]["inputs"] != bits[0]["product"]
        again = one.execute(host, Look(2, keys=frozenset(keys[1:2])))
        assert list(again)[:1] == [keys[1]]
        request = json.loads((tmp_path / "run/evidence/0002-gemm.bf16-2/request.json").read_text())
        assert request["indexes"] == [1]

    def test_a_gpu_without_units_for_the_type(self, tmp_path: Path) -> None:
        python = shim(tmp_path, sitecustomize=TWO_GPUS.replace("CAPABILITY = (8, 0)", "CAPABILITY = (7, 0)"))
        found = step("bf16", python, device="cuda", devices=GPUS).execute(live(tmp_path), Look())
        for key in ("gemm.bf16@0000:1b:00.0", "gemm.bf16@0000:2b:00.0"):
            assert missing(found, key).kind == "unsupported"

    def test_a_gpu_that_went_away_between_facts_and_test(self, tmp_path: Path) -> None:
        source = TWO_GPUS.replace("cuda.device_count = lambda: 2", "cuda.device_count = lambda: 1")
        one = step("bf16", shim(tmp_path, sitecustomize=source), device="cuda", devices=GPUS, spread=True)
        found = one.execute(live(tmp_path), Look())
        assert taken(found, "gemm.bf16@0000:1b:00.0")
        assert missing(found, "gemm.bf16@0000:2b:00.0").kind == "failed"
        assert missing(found, SPREAD).kind == "failed"

    def test_one_gpu_that_fails_leaves_the_other_readable(self, tmp_path: Path) -> None:
        source = (
            TWO_GPUS
            + """
    seen = []
    def synchronise(index=None):
        seen.append(index)
        if index == 1 and len(seen) > 8:
            raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
    cuda.synchronize = synchronise
"""
        )
        one = step("bf16", shim(tmp_path, sitecustomize=source), device="cuda", devices=GPUS)
        found = one.execute(live(tmp_path), Look())
        assert len(taken(found, "gemm.bf16@0000:1b:00.0").attempt.blocks) == 6
        assert "uncorrectable ECC" in str(missing(found, "gemm.bf16@0000:2b:00.0").detail)


# ---------------------------------------------------------------- without torch


def test_without_an_interpreter_nothing_is_planned_and_the_reason_stays() -> None:
    why = Missing("no-tool", msg("no Python has torch"))
    one = GemmStep("bf16", why, spread=True)
    assert one.keys() == ("gemm.bf16", SPREAD)
    assert one.cost("standard").seconds == 0
    assert set(one.execute(ReplayHostThatFails(), Look()).values()) == {why}


def test_without_a_gpu_torch_says_why() -> None:
    one = GemmStep("bf16", interpreter())
    found = missing(one.execute(ReplayHostThatFails(), Look()), "gemm.bf16")
    assert found.kind == "not-there"
    assert found.evidence
    assert "built for CUDA" in str(found.grant)


class ReplayHostThatFails(ReplayHost):
    """No process may be asked for."""

    def __init__(self) -> None:
        self._recorded = {}

    def run(self, *args: Any, **settings: Any) -> Any:
        raise AssertionError("a process was asked for")


def test_the_plan_grows_with_the_gpus() -> None:
    one = GemmStep("bf16", interpreter(devices=GPUS[:1]))
    eight = GemmStep("bf16", interpreter(devices=tuple(Device(i, "x", slot=f"0000:{i}b:00.0") for i in range(8))))
    assert 60 < one.cost("standard").seconds < 120
    assert 100 < eight.cost("standard").seconds < 200
    assert eight.cost("quick").seconds < eight.cost("standard").seconds < eight.cost("deeper").seconds


def test_above_what_the_model_can_reach_is_void() -> None:
    block = Block(1100.0, (1100.0,))
    one = GemmStep("bf16", interpreter(devices=GPUS), bound=lambda dtype, device: 1000.0)
    void = one._above((block,) * 6, GPUS[0])
    assert void is not None
    assert void.code == "above-physical-limit"
    assert one._above((Block(1049.0, (1049.0,)),) * 6, GPUS[0]) is None
    assert GemmStep("bf16", interpreter())._above((block,), GPUS[0]) is None


# ---------------------------------------------------------------- spread


def gpu(values: list[float]) -> Taken:
    blocks = tuple(Block(v, (v,)) for v in values)
    return Taken(Attempt(blocks, "standard", "2026-11-30T00:00:00Z", correct=True), "TFLOPS", "median of block medians")


def test_spread_is_the_slowest_against_the_median_in_each_round() -> None:
    found = spread([gpu([600, 610]), gpu([600, 610]), gpu([540, 610]), gpu([620, 620])])
    assert isinstance(found, Taken)
    assert found.unit == "%"
    assert [b.value for b in found.attempt.blocks] == [pytest.approx(10.0), pytest.approx(0.0)]


def test_spread_needs_two_and_all() -> None:
    alone = spread([gpu([600])])
    assert isinstance(alone, Missing)
    assert alone.kind == "not-there"
    lost = spread([gpu([600]), gpu([600]), Missing("failed", msg("gone"))])
    assert isinstance(lost, Missing)
    assert "gone" in str(lost.detail)


# ---------------------------------------------------------------- parsing

BLOCK = {
    "samples": [1.0, 1.1],
    "warmup": [0.9],
    "calls": 3,
    "started_at": "2026-11-30T00:00:00.000Z",
    "ended_at": "2026-11-30T00:00:01.000Z",
    "max_error": 0.01,
    "row_error": None,
    "correct": True,
}
DTYPE: dict[str, Any] = {
    "shape": [1, 2, 3],
    "search": [{"shape": [1, 2, 3], "tflops": None}],
    "api": "torch.mm",
    "stopped": None,
    "devices": [{"index": 0, "blocks": [BLOCK], "error": None}],
}


def with_(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    data: dict[str, Any] = {"dtypes": {"bf16": copy.deepcopy(DTYPE)}}
    place: Any = data
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return data


def test_a_good_answer() -> None:
    found = gemm.parse(with_(("dtypes", "bf16", "stopped"), "time-limit"), "bf16")
    assert isinstance(found, gemm.Gemm)
    assert found.shape == (1, 2, 3)
    assert found.stopped == "time-limit"
    assert found.devices[0].timings[0].samples == (1.0, 1.1)
    assert found.devices[0].timings[0].row_error is None


def test_what_is_unavailable_is_a_reason() -> None:
    answer = {"kind": "needs-torch", "detail": "no fp8", "needs": "2.1"}
    found = gemm.parse({"dtypes": {"fp8": {"unavailable": answer}}}, "fp8")
    assert found == Unable("needs-torch", "no fp8", "2.1")


IN_BLOCK = ("dtypes", "bf16", "devices", 0, "blocks", 0)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("dtypes",), {}),
        (("dtypes", "bf16"), None),
        (("dtypes", "bf16", "shape"), [1, 2]),
        (("dtypes", "bf16", "shape"), [1, 2, 0]),
        (("dtypes", "bf16", "devices"), []),
        (("dtypes", "bf16", "devices"), DTYPE["devices"] * 2),
        ((*IN_BLOCK, "samples"), []),
        ((*IN_BLOCK, "samples"), [0.0]),
        ((*IN_BLOCK, "samples"), [-1.0]),
        ((*IN_BLOCK, "samples"), ["1.0"]),
        ((*IN_BLOCK, "samples"), [True]),
        ((*IN_BLOCK, "samples"), [math.inf]),
        ((*IN_BLOCK, "correct"), "yes"),
        ((*IN_BLOCK, "calls"), 1.5),
        ((*IN_BLOCK, "max_error"), -1),
    ],
)
def test_an_answer_that_is_not_what_it_claims(path: tuple[Any, ...], value: Any) -> None:
    with pytest.raises(ParseError):
        gemm.parse(with_(path, value), "bf16")


@given(st.sampled_from(["shape", "search", "api", "stopped", "devices"]), st.text() | st.integers() | st.none())
def test_no_traceback(field: str, value: Any) -> None:
    data = with_(("dtypes", "bf16", field), value)
    try:
        found = gemm.parse(data, "bf16")
    except ParseError:
        return
    assert isinstance(found, gemm.Gemm)
    assert found.shape == (1, 2, 3)


def test_on_gpus_what_published_numbers_are_of_is_measured_beside_and_planned() -> None:
    eight = tuple(Device(i, "x", slot=f"0000:{i:02x}:00.0") for i in range(8))
    one = GemmStep("bf16", interpreter(devices=eight))
    assert one.request("standard", 60, [0])["beside"] == [8192, 8192, 8192]
    alone = GemmStep("bf16", interpreter(devices=eight), shapes=((8192, 8192, 8192),))
    assert alone.request("standard", 60, [0])["beside"] is None
    assert GemmStep("bf16", interpreter(), device="cpu").request("standard", 60, [0])["beside"] is None
    for depth, least, most in (("quick", 2.5, 5.0), ("standard", 16.0, 20.0)):
        fixed = GemmStep("bf16", interpreter(devices=eight), shapes=((8192, 8192, 8192), (4096, 4096, 4096)))
        without = GemmStep("bf16", interpreter(devices=eight), shapes=((8192, 8192, 8192),))
        more = fixed.cost(depth).seconds - without.cost(depth).seconds - SEARCH_S[depth]  # type: ignore[arg-type,index]
        assert least <= more <= most
