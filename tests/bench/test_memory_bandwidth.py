"""The triads on a real torch (CPU), sound and corrupted, and their judges."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

import pytest

from agent.bench.cpu_memory_bandwidth import CpuMemoryBandwidthStep
from agent.bench.gemm import Effort
from agent.bench.memory_bandwidth import MemoryBandwidthStep
from agent.bench.step import Look
from agent.catalogue import Cite, Figure
from agent.checks import memory, memory_bandwidth
from agent.checks._api import Case
from agent.checks._measured import catalogue_limit
from agent.evidence import Store
from agent.facts.pythons import Pythons
from agent.host import ReplayHost, marked
from agent.model import Attempt, Block, Clause, Contract, Depth, Finding, Measurement, Promise, Result, Taken, Void
from agent.reading import Missing
from agent.text import msg
from agent.tools import ParseError
from agent.tools import memory_bandwidth as tool
from tests.bench.interpreters import GPUS, TWO_GPUS, bare, interpreter, live, needs_torch, shim

SHORT = Effort(blocks=6, samples=3, sample_s=0.01, warmup_s=0.02, pause_s=0.0)
EFFORTS: Mapping[Depth, Effort] = {"quick": SHORT, "standard": SHORT, "deeper": SHORT}
BYTES = 8 << 20
KEY = "memory_bandwidth@device 0"


def device_step(python: Optional[str] = None, **settings: Any) -> MemoryBandwidthStep:
    chosen = interpreter(python, settings.pop("devices", ())) if python else interpreter()
    return MemoryBandwidthStep(chosen, **{"device": "cpu", "effort": EFFORTS, "buffer_bytes": BYTES, **settings})


def host_step(python: Optional[str] = None, buffer_bytes: int = BYTES) -> CpuMemoryBandwidthStep:
    chosen = interpreter(python) if python else interpreter()
    return CpuMemoryBandwidthStep(chosen, buffer_bytes=buffer_bytes, effort=EFFORTS)


def taken(found: Result) -> Taken:
    assert isinstance(found, Taken), found
    return found


def missing(found: Result) -> Missing:
    assert isinstance(found, Missing), found
    return found


class TestReal:
    """With the real torch of this Python."""

    pytestmark = needs_torch

    def test_a_device(self, tmp_path: Path) -> None:
        host = live(tmp_path)
        found = device_step().step().execute(host, Look())
        one = taken(found[KEY])
        assert (one.unit, one.attempt.correct, one.attempt.void) == ("GB/s", True, None)
        assert len(one.attempt.blocks) == 6
        assert all(0.1 < b.value < 10_000 for b in one.attempt.blocks)
        assert device_step().step().execute(ReplayHost(Store(tmp_path / "run")), Look()) == found

    @pytest.mark.parametrize("damage", ["r[70] += 1", "r.zero_()", "r[5] = float('nan')", "r.mul_(1.00001)"])
    def test_a_wrong_sum_is_void(self, tmp_path: Path, damage: str) -> None:
        python = shim(tmp_path, sitecustomize=corrupted(damage))
        one = taken(device_step(python).execute(live(tmp_path), Look())[KEY])
        assert one.attempt.void is not None
        assert one.attempt.void.code == "wrong-result"

    def test_a_triad_that_never_runs_is_void(self, tmp_path: Path) -> None:
        python = shim(tmp_path, sitecustomize="import torch\ntorch.add = lambda *a, **k: None\n")
        one = taken(device_step(python).execute(live(tmp_path), Look())[KEY])
        assert one.attempt.correct is False

    def test_two_gpus_take_turns(self, tmp_path: Path) -> None:
        python = shim(tmp_path, sitecustomize=TWO_GPUS + FULL_ON_CPU)
        one = device_step(python, device="cuda", devices=GPUS)
        found = one.execute(live(tmp_path), Look())
        starts = sorted((b.conditions["started_at"], key) for key in found for b in taken(found[key]).attempt.blocks)
        assert [key for _, key in starts] == list(one.keys()) * 6

    def test_faster_than_the_memory_of_that_model_is_void(self, tmp_path: Path) -> None:
        one = taken(device_step(bound=lambda device: 0.001).execute(live(tmp_path), Look())[KEY])
        assert one.attempt.void is not None
        assert one.attempt.void.code == "above-physical-limit"

    def test_the_host(self, tmp_path: Path) -> None:
        host = live(tmp_path)
        one = taken(host_step().execute(host, Look()))
        assert len(one.attempt.blocks) == 6
        assert one.attempt.correct is True
        assert all(0.1 < b.value < 10_000 for b in one.attempt.blocks)
        assert "NUMA nodes" in str(one.attempt.notes[0])
        assert not marked(host.token)
        assert host_step().execute(ReplayHost(Store(tmp_path / "run")), Look()) == one

    def test_the_host_adds_wrongly(self, tmp_path: Path) -> None:
        python = shim(tmp_path, sitecustomize=corrupted("r[70] += 1"))
        one = taken(host_step(python).execute(live(tmp_path), Look()))
        assert one.attempt.void is not None

    def test_a_node_process_that_dies_is_our_trouble(self, tmp_path: Path) -> None:
        python = shim(tmp_path, sitecustomize="import os, torch\ntorch.add = lambda *a, **k: os._exit(9)\n")
        host = live(tmp_path)
        found = missing(host_step(python).execute(host, Look()))
        assert "NUMA node 0 ended" in str(found.detail)
        assert not marked(host.token)

    def test_more_than_is_free_is_our_trouble(self, tmp_path: Path) -> None:
        found = missing(host_step(buffer_bytes=1 << 50).execute(live(tmp_path), Look()))
        assert "not enough memory" in str(found.detail)


FULL_ON_CPU = """
    torch.full = on_cpu(torch.full)
"""


def corrupted(damage: str) -> str:
    return f"""
        import torch
        real = torch.add
        def add(b, c, alpha=1, out=None):
            r = real(b, c, alpha=alpha, out=out)
            {damage}
            return r
        torch.add = add
    """


def test_no_torch_names_what_to_install(tmp_path: Path) -> None:
    found = missing(host_step(bare(tmp_path)).execute(live(tmp_path), Look()))
    assert found.kind == "no-tool"
    assert found.grant is not None


# ---------------------------------------------------------------- parsing

BLOCK = {
    "samples": [10.0],
    "warmup": [9.0],
    "seconds": [0.1],
    "calls": 2,
    "started_at": "2026-11-30T00:00:00Z",
    "ended_at": "2026-11-30T00:00:01Z",
    "correct": True,
}
DEVICE = {"index": 0, "blocks": [BLOCK], "error": None}
TRIAD: dict[str, Any] = {"buffer_bytes": 1024, "stopped": None, "triad": [DEVICE]}
HOST: dict[str, Any] = {
    "buffer_bytes": 1024,
    "cache_bytes": 0,
    "nodes": [{"node": 0, "cpus": 2}],
    "stopped": None,
    "blocks": [BLOCK],
}


def test_what_is_right_is_read() -> None:
    assert tool.parse(TRIAD).devices[0].timings[0].samples == (10.0,)
    assert tool.parse_host(HOST).nodes == ((0, 2),)


@pytest.mark.parametrize(
    "change", [{"triad": []}, {"triad": [DEVICE] * 2}, {"buffer_bytes": -1}, {"triad": [{**DEVICE, "error": "x"}]}]
)
def test_what_is_wrong_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ParseError):
        tool.parse({**TRIAD, **change})


@pytest.mark.parametrize("change", [{"nodes": []}, {"blocks": [{**BLOCK, "samples": [0.0]}]}, {"blocks": None}])
def test_a_wrong_host_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ParseError):
        tool.parse_host({**HOST, **change})


# ---------------------------------------------------------------- judging

CLAUSE = Clause(
    "memory_bandwidth", "memory_bandwidth", "memory_bandwidth", Promise(">=", 2.6, "TB/s", ">= 2.6 TB/s"), 1, 1
)
SLOT = "0000:1b:00.0"


def attempt(value: float, void: Optional[Void] = None) -> Attempt:
    blocks = tuple(Block(value + i, (value + i,)) for i in range(6))
    return Attempt(blocks, "standard", "2026-11-30T00:00:00Z", void=void, correct=void is None)


def judged(*attempts: Attempt) -> Finding:
    key = f"memory_bandwidth@{SLOT}"
    measured = {key: Measurement(key, "GB/s", "median of block medians", attempts, SLOT)}
    (found,) = memory_bandwidth.judge((CLAUSE,), Case(Contract((CLAUSE,), b"", ""), {}, measured))
    return found


def test_terabytes_are_held_against_gigabytes() -> None:
    assert (judged(attempt(2900)).outcome, judged(attempt(2900)).id) == ("pass", f"memory_bandwidth@{SLOT}")
    assert judged(attempt(2000)).again == "repeat"
    assert judged(attempt(2000), attempt(2000)).outcome == "fail"


def test_wrong_sums_never_pass_and_never_convict() -> None:
    wrong = Void("wrong-result", msg("wrong"))
    assert (judged(attempt(2900, wrong)).outcome, judged(attempt(2900, wrong)).again) == ("inconclusive", "repeat")
    assert judged(attempt(2900, wrong), attempt(2900)).outcome == "inconclusive"
    assert judged(attempt(2900, wrong), attempt(2900, wrong)).again is None


def test_steps_need_an_interpreter() -> None:
    facts = {"pythons": Pythons(interpreter(devices=GPUS))}
    (found,) = memory_bandwidth.steps((CLAUSE,), Case(Contract((CLAUSE,), b"", ""), facts))
    assert found.keys == tuple(f"memory_bandwidth@{d.slot}" for d in GPUS)
    assert list(memory_bandwidth.steps((CLAUSE,), Case(Contract((CLAUSE,), b"", "")))) == []


def test_the_host_needs_a_step_only_for_its_rate() -> None:
    facts = {"pythons": Pythons(interpreter())}
    rate = Clause("memory.bandwidth", "memory", "bandwidth", Promise(">=", 200.0, "GB/s", ">= 200 GB/s"), 1, 1)
    size = Clause("memory.size", "memory", "size", Promise(">=", 1.0, "B", "1 B"), 1, 1)
    assert [s.keys for s in memory.steps((rate, size), Case(Contract((rate,), b"", ""), facts))] == [
        ("memory.bandwidth",)
    ]
    assert list(memory.steps((size,), Case(Contract((size,), b"", ""), facts))) == []


def test_auto_is_the_lowest_floor_of_what_the_card_can_be() -> None:
    auto = Clause("memory_bandwidth", "memory_bandwidth", "memory_bandwidth", Promise("auto", None, "", "auto"), 1, 1)

    class Known:
        """A model with one floor."""

        def __init__(self, *values: float) -> None:
            self.floors = tuple(Figure(v, Cite(("a", "b"), "measured")) for v in values)

        def floor(self, key: str, count: int = 1, by: str = "") -> Optional[Figure]:
            return next(iter(self.floors), None)

    two: Any = (Known(2400.0), Known(1500.0))
    limit = catalogue_limit(auto, two, "memory.triad")
    assert (limit.op, limit.value, limit.origin.kind) == (">=", 1500.0, "catalogue")
    unknown: Any = (Known(2400.0), Known())
    assert catalogue_limit(auto, unknown, "memory.triad").op == "auto"
    assert catalogue_limit(auto, (), "memory.triad").op == "auto"
