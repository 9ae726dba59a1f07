"""Memory and copies through the whole course: facts, steps, second looks, findings, on the fake node."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.bench import p2p_bandwidth, pcie_bandwidth, second_source
from agent.checks import families
from agent.course import Course
from agent.evidence import Store
from agent.host import Host, LiveHost, ReplayHost
from agent.model import Clause, Contract, Finding
from agent.plan import Options
from tests.bench.fake_gpus import MIB, deliver, slots, small
from tests.checks.gpu_node import clause
from tests.fakenode.node import Node

ASKED = ("gpu", "memory_test", "pcie_bandwidth", "p2p_bandwidth")
RATES = "* cuda.rate 400e6 200e6 300e6"


def bare(family: str, text: str) -> Clause:
    promise = families()[family].GRAMMAR.clauses[family].parse(text)
    return Clause(family, family, family, promise, 1, 1)


def judge(clauses: Sequence[Clause], host: Host) -> dict[str, Finding]:
    found = families()
    course = Course(Contract(tuple(clauses), b"", ""), Options(), {n: found[n] for n in ASKED}, host)
    course.read_facts()
    course.make_plan()
    course.measure()
    assert course.faults == []
    return {f.id: f for f in course.findings()}


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same blocks in little time."""
    less: dict[str, Any] = {"samples": 2, "sample_s": 0.01, "warmup_s": 0.02, "pause_s": 0.0, "size": 4 * MIB}
    for table in (pcie_bandwidth.COPY_EFFORT, p2p_bandwidth.PEER_EFFORT):
        for depth, effort in table.items():
            monkeypatch.setitem(table, depth, replace(effort, together_s=0.05 if effort.together_s else 0.0, **less))
    monkeypatch.setattr(LiveHost, "sleep", lambda host, seconds: None)


def run(node: Node, folder: Path, monkeypatch: pytest.MonkeyPatch, *clauses: Clause) -> dict[str, Finding]:
    """Judged live, then again from the recording: the same findings, and no process."""
    found = judge(clauses, deliver(node, folder, monkeypatch))
    assert judge(clauses, ReplayHost(Store(folder / "run"))) == found
    return found


MEMORY = (clause("gpu.memory", "60 MB"), bare("memory_test", "95%"))


def test_a_flipped_bit_breaks_the_promise_of_one_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = small().answering("1 cuda.flip 30000000:2")
    found = run(node, tmp_path, monkeypatch, *MEMORY)
    right, wrong = (found[f"memory_test@{s}"] for s in slots(node))
    assert right.outcome == "pass"
    assert (wrong.outcome, wrong.reason_code) == ("fail", "memory-wrong")
    assert f"{(2 << 44) + 2 * MIB + 30000000:#x}" in str(wrong.reason)
    assert len(wrong.evidence) == 2


def test_memory_that_is_not_there_breaks_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = small(cards=1).answering(f"0 cuda.capacity {30 * MIB}")
    found = run(node, tmp_path, monkeypatch, *MEMORY)[f"memory_test@{slots(node)[0]}"]
    assert (found.outcome, found.reason_code) == ("fail", "capacity-unreal")
    assert found.measured == pytest.approx(100 * 30 * MIB / 60e6, abs=7)


def test_copies_and_the_link_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = small(change=lambda c: c.but(pcie_width=8) if c.index == 1 else c).answering(RATES)
    asked = (
        clause("gpu.pcie", "Gen5 x16"),
        clause("pcie_bandwidth.h2d", ">= 0.25 GB/s"),
        clause("pcie_bandwidth.d2h", ">= 0.25 GB/s"),
    )
    found = run(node, tmp_path, monkeypatch, *asked)
    first, second = slots(node)
    outcomes = {i: f.outcome for i, f in found.items() if not i.startswith("integrity")}
    assert outcomes == {
        f"gpu.pcie@{first}": "pass",
        f"gpu.pcie@{second}": "fail",
        f"pcie_bandwidth.h2d@{first}": "pass",
        f"pcie_bandwidth.h2d@{second}": "pass",
        f"pcie_bandwidth.d2h@{first}": "fail",
        f"pcie_bandwidth.d2h@{second}": "fail",
    }
    assert found[f"gpu.pcie@{second}"].measured == "Gen5 x8"
    assert len(list((tmp_path / "run/evidence").glob("*pcie_bandwidth*"))) == 2


MATRIX = """nvbandwidth Version: v0.8
Device 0: NVIDIA H100 80GB HBM3 (0000{first})
Device 1: NVIDIA H100 80GB HBM3 (0000{second})

Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0      0.40      0.20

SUM host_to_device_memcpy_ce 0.60
"""


@pytest.mark.parametrize(
    ("script", "first", "second"),
    [
        (
            "cat <<'END'\n{matrix}\nEND",
            "nvbandwidth on this machine: 0.4 GB/s",
            "advisory: nvbandwidth and accept differ",
        ),
        ("echo '[CUDA_ERROR_NOT_READY] device not ready'; exit 1", "gave no number", "gave no number"),
        ("head -c 300 /dev/urandom", "gave no number", "gave no number"),
        ("sleep 60", "nvbandwidth gave no answer in", "nvbandwidth gave no answer in"),
    ],
    ids=["sound", "failing", "garbage", "hanging"],
)
def test_nvbandwidth_of_the_machine_stands_beside_and_judges_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, first: str, second: str
) -> None:
    monkeypatch.setattr(second_source, "TIMEOUT_S", 1.5)
    node = small().answering(RATES)
    host = deliver(node, tmp_path, monkeypatch)
    a, b = slots(node)
    (tmp_path / "second").mkdir()
    tool = tmp_path / "second" / "nvbandwidth"
    tool.write_text("#!/bin/sh\n" + script.format(matrix=MATRIX.format(first=a[:-2], second=b[:-2])) + "\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    asked = (clause("pcie_bandwidth.h2d", ">= 0.3 GB/s"),)
    found = judge(asked, host)
    for slot, said in ((a, first), (b, second)):
        one = found[f"pcie_bandwidth.h2d@{slot}"]
        assert one.outcome == "pass", "ours is judged"
        assert any(said in str(note) for note in one.notes)
    assert judge(asked, ReplayHost(Store(tmp_path / "run"))) == found


def test_a_slow_way_between_two_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = small(cards=3).answering("2 cuda.rate 0 0 50e6", RATES)
    found = run(node, tmp_path, monkeypatch, bare("p2p_bandwidth", ">= 0.15 GB/s"))
    assert [f.outcome for i, f in found.items() if i.startswith("p2p")] == ["fail", "fail", "pass"]
    assert f"to {slots(node)[2]}" in str(found[f"p2p_bandwidth@{slots(node)[0]}"].reason)


def test_no_driver_breaks_nothing_and_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = small().but(has_libraries=False)
    asked = (*MEMORY, clause("pcie_bandwidth.h2d", "auto"), bare("p2p_bandwidth", "auto"))
    found = run(node, tmp_path, monkeypatch, *asked)
    outcomes = {f.outcome for i, f in found.items() if i.partition("@")[0].partition(".")[0] in ASKED[1:]}
    assert outcomes == {"inconclusive"}
    assert found[f"memory_test@{slots(node)[0]}"].grant is not None
