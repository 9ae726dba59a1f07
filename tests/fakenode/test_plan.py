"""What a run would cost on eight H100 that are not there: the minutes that README and ``accept plan`` promise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent import contract as contracts
from agent.bench.second_source import SECONDS
from agent.checks import families, grammars
from agent.course import Course
from agent.evidence import Store
from agent.host import LiveHost
from agent.model import Profile
from agent.plan import Options, Plan
from tests.bench.interpreters import shim
from tests.fakenode import healthy
from tests.fakenode.node import Built, build

EXAMPLE = Path(__file__).parents[2] / "contracts" / "examples" / "h100-sxm-8.yaml"
# A torch that sees the node's eight cards and can do nothing with them.
TORCH = """
    import types
    __version__ = "2.6.0+cu124"
    class version:
        cuda, hip = "12.4", None
    seen = types.SimpleNamespace(
        name="NVIDIA H100 80GB HBM3", multi_processor_count=132, total_memory=80 << 30, major=9, minor=0
    )
    class cuda:
        init = staticmethod(lambda: None)
        is_available = staticmethod(lambda: True)
        device_count = staticmethod(lambda: 8)
        get_device_name = staticmethod(lambda index: seen.name)
        get_device_capability = staticmethod(lambda index: (9, 0))
        get_device_properties = staticmethod(lambda index: seen)
"""


def example(folder: Path) -> Path:
    """The example, its disk in a folder that is there: what is not there is not counted."""
    data = folder / "data"
    data.mkdir(exist_ok=True)
    path = folder / EXAMPLE.name
    path.write_text(EXAMPLE.read_text(encoding="utf-8").replace("path: /data", f"path: {data}"), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(healthy.h100(), tmp_path_factory.mktemp("h100") / "node")


@pytest.fixture
def course(node: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Course:
    """The example's facts, read on the node."""
    for name, value in node.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(LiveHost, "sleep", lambda host, seconds: None)
    options = Options(python=shim(tmp_path, torch__init__=TORCH))
    host = LiveHost(Store(tmp_path / "run"), node.root)
    course = Course(contracts.load(example(tmp_path), grammars()), options, families(), host)
    course.read_facts()
    return course


def planned(course: Course, profile: Profile = "standard", budget_s: float | None = None) -> Plan:
    course.options = Options(profile, budget_s, python=course.options.python)
    return course.make_plan()


def kinds(plan: Plan) -> set[str]:
    """Clauses that are measured, by their keys without the subject."""
    return {key.partition("@")[0] for p in plan.steps for key in p.step.keys}


def test_minutes_of_the_example(course: Course) -> None:
    whole = planned(course)
    quick = planned(course, "quick")
    assert all(p.can_run for p in whole.steps), "every load of the example can run on this node"
    assert quick.seconds <= 5 * 60
    assert whole.seconds <= 30 * 60
    assert kinds(quick) == kinds(whole)
    assert len(whole.steps) == 14
    assert not quick.left_out
    assert {e.key.partition("@")[0] for e in quick.shortened} == kinds(quick)


def test_ten_minutes_touch_every_kind_and_say_what_is_shallow(course: Course) -> None:
    whole, short = planned(course), planned(course, budget_s=600)
    assert short.seconds <= 600
    assert kinds(short) == kinds(whole)
    assert not short.left_out
    shallow = {k.partition("@")[0] for p in short.steps if p.depth == "quick" for k in p.step.keys}
    assert {e.key.partition("@")[0] for e in short.shortened} == shallow
    assert "burn.temperature" in shallow
    # What the ten minutes still have room for stays as deep as it was.
    assert any(p.depth == "standard" for p in short.steps)


def test_with_too_little_time_second_of_a_kind_go_first(course: Course) -> None:
    whole, short = planned(course), planned(course, budget_s=260)
    assert short.seconds <= 260
    gone = {e.key.partition("@")[0] for e in short.left_out}
    assert gone == {"gemm.fp8"}
    assert {k.partition(".")[0].partition("[")[0] for k in kinds(whole)} == {
        k.partition(".")[0].partition("[")[0] for k in kinds(short)
    }


def test_the_trades_own_tools_are_counted_where_they_are_and_cut_first(
    course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, short = planned(course).seconds, planned(course, "quick").seconds
    (tmp_path / "bin").mkdir()
    for name in ("all_reduce_perf", "nvbandwidth", "gpu_burn", "dcgmi"):
        (tmp_path / "bin" / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    course.host = LiveHost(Store(tmp_path / "second"), course.host.root)  # type: ignore[attr-defined]
    course.facts.clear()
    course.read_facts()
    whole = planned(course)
    # nvbandwidth for the copies with the host and for those between GPUs.
    everything = planned(course, budget_s=40 * 60)
    assert everything.seconds == pytest.approx(alone + sum(SECONDS.values()) - 3 * 15 + 15)
    assert {p.step.name: set(p.tools) for p in everything.steps if p.tools} == {
        "allreduce.busbw": {"all_reduce_perf"},
        "burn": {"gpu_burn", "dcgmi"},
        "p2p_bandwidth": {"nvbandwidth"},
        "pcie_bandwidth": {"nvbandwidth"},
    }
    # They make no announced half hour longer, and a short run has no time for them.
    assert whole.seconds <= 30 * 60
    assert not whole.shortened
    assert planned(course, "quick").seconds == short
    assert planned(course, "quick").no_time_for == ("all_reduce_perf", "dcgmi", "gpu_burn", "nvbandwidth")
    # A budget for our own measurements and a little more: all stay whole, and the quickest tools take what is left.
    tight = planned(course, budget_s=alone + 30)
    assert not tight.shortened
    assert (set(tight.tools) & {"dcgmi", "gpu_burn"}, "gpu_burn" in tight.no_time_for) == ({"dcgmi"}, True)
    assert alone + 10 <= tight.seconds <= alone + 30
    assert next(p.look.tools for p in tight.steps if p.step.name == "burn") == frozenset({"dcgmi"})
    ten = planned(course, budget_s=600)
    assert ten.seconds <= 600
    assert not ten.left_out


def test_the_command_names_what_runs_and_blames_nothing_that_waits(node: Built, tmp_path: Path) -> None:
    python = shim(tmp_path, torch__init__=TORCH)
    argv = [
        sys.executable,
        "-m",
        "agent.cli.main",
        "plan",
        str(example(tmp_path)),
        "--lang",
        "en",
        "--profile",
        "quick",
    ]
    argv += ["--root", str(node.root), "--python", python]
    (tmp_path / "gpu_burn").write_text("#!/bin/sh\n")
    (tmp_path / "gpu_burn").chmod(0o755)
    env = node.environment()
    env["PATH"] = f"{tmp_path}:{env['PATH']}"
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "plan: 14 measurements" in done.stdout
    assert "beside the loads of the GPUs: network[public], ping[jinan.example.cn]" in done.stdout
    assert "on this machine, but no time for: gpu_burn" in done.stdout
    assert "not measured yet" not in done.stdout


def test_loads_that_cannot_run_are_not_counted(node: Built, tmp_path: Path) -> None:
    python = shim(tmp_path, torch__init__=TORCH.replace("is_available = staticmethod(lambda: True)",
                                                        "is_available = staticmethod(lambda: False)"))  # fmt: skip
    argv = [
        sys.executable,
        "-m",
        "agent.cli.main",
        "plan",
        str(example(tmp_path)),
        "--lang",
        "en",
        "--root",
        str(node.root),
    ]
    done = subprocess.run(
        [*argv, "--python", python], env=node.environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    # What needs torch on the GPUs falls away: all-reduce, burn, two GEMMs, clocks, memory bandwidth.
    assert "plan: 8 measurements" in done.stdout
    listed, _, blind = done.stdout.partition("cannot be verified here:")
    assert "gemm.bf16" not in listed
    assert " 0 s " not in listed
    assert "gemm.bf16" in blind
    # One reason stands behind many promises: it is said once.
    assert blind.count("sees no GPU:") == 1
