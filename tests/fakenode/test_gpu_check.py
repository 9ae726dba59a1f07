"""``make gpu-check`` where there is no GPU, and its flow on the fake node: what it measures there, what it says."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from agent import contract as contracts
from agent.checks import grammars
from tests.bench.fake_gpus import small
from tests.fakenode.node import build

PACKAGING = Path(__file__).parents[2] / "packaging"
ACCEPT = Path(sys.executable).parent / "accept"


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_check", PACKAGING / "gpu_check.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_without_a_gpu_nothing_is_checked(tmp_path: Path) -> None:
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 'No devices were found'\nexit 6\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    done = subprocess.run(
        ["sh", str(PACKAGING / "gpu_check.sh"), str(ACCEPT)],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 3
    assert "nothing was checked" in done.stderr


@pytest.mark.parametrize("gpus", [1, 8])
def test_its_contract_is_sound(gpus: int, tmp_path: Path) -> None:
    path = tmp_path / "contract.yaml"
    path.write_text(script().contract(gpus), encoding="utf-8")
    keys = {c.key for c in contracts.load(path, grammars()).clauses}
    assert {"burn.temperature", "training.tokens_per_second", "gpu.clocks"} <= keys
    assert ("allreduce.busbw" in keys) == (gpus > 1)


def test_what_is_missing_or_wrong_is_named() -> None:
    check = script()
    keys = [f"{key}@0000:1b:00.0" for key in check.ALONE]
    measured: list[dict[str, Any]] = [{"id": k, "correct": True, "attempts": [{"void": None}]} for k in keys]
    result: dict[str, Any] = {"measurements": measured, "findings": []}
    assert check.unmeasured(result, 1) == []
    measured[0]["correct"] = False
    measured[1]["attempts"] = [{"void": "above-physical-limit"}]
    gone = measured.pop(2)["id"]
    result["findings"] = [{"clause": "memory_bandwidth", "reason": "torch sees no GPU"}]
    assert check.unmeasured(result, 1) == [
        f"{keys[0]}: wrong arithmetic", f"{keys[1]}: void", "memory_bandwidth: not measured: torch sees no GPU"
    ]  # fmt: skip
    assert gone.startswith("memory_bandwidth")
    assert len(check.unmeasured(result, 2)) == 6


def test_the_python_with_torch_is_that_of_the_run() -> None:
    reproduce = ["/opt/conda/bin/python", "-s", "-B", "/x/gemm.py", "--request"]
    findings = [{"clause": "gpu.count"}, {"clause": "gemm.fp16", "reproduce": reproduce}]
    assert script().torch_python({"findings": findings}) == "/opt/conda/bin/python"
    assert script().torch_python({"findings": findings[:1]}) is None


def test_the_flow_on_a_node_without_torch_for_its_cards(tmp_path: Path) -> None:
    """Copies and memory are measured through libcuda; what needs torch is named, and the run is kept."""
    built = build(small(mib=512), tmp_path / "node")
    folder = tmp_path / "kept"
    done = subprocess.run(
        ["sh", str(PACKAGING / "gpu_check.sh"), str(ACCEPT), str(folder), "--root", str(built.root), "--only", "gemm",
         "--only", "memory_test", "--only", "pcie_bandwidth", "--only", "p2p_bandwidth"],
        env=built.environment(), capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    missing = [line for line in done.stderr.splitlines() if "not measured" in line]
    assert any("gemm.fp16: not measured" in line for line in missing), done.stderr
    assert not any("memory_test" in line or "bandwidth.h2d" in line or "p2p" in line for line in missing), missing
    with tarfile.open(folder / "run.tar.gz") as packed:
        names = packed.getnames()
    assert "run/result.json" in names
    assert any(name.endswith("/meta.json") for name in names)
    assert json.loads((folder / "run" / "result.json").read_text())["complete"] is True
    assert "h2d worker / bare" in (folder / "ratios.txt").read_text(), (folder / "ratios.txt").read_text()
