"""``gpu_check.py ACCEPT FOLDER GPUS [ARGUMENT…]``: one run with every worker, what it measured, and the bare loops.

FOLDER gets ``contract.yaml``, ``run`` (the recorded run), ``run.tar.gz`` (the same, to become a fixture) and what the
ratios printed. Limits are such that any card of the last ten years keeps them: what is checked is the path.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any, Optional

BUDGET = "6m"
RATIOS_S = 120
# By a measurement's key before its subject; those of several GPUs only where there are several.
ALONE = ("gemm.fp32", "gemm.fp16", "memory_bandwidth", "memory_test", "pcie_bandwidth.h2d", "pcie_bandwidth.d2h",
         "burn.temperature", "burn.throttled", "burn.power", "burn.sag", "training.tokens_per_second", "gpu.clocks",
         "memory.bandwidth")  # fmt: skip
TOGETHER = ("gemm.spread", "p2p_bandwidth", "allreduce.busbw")
CONTRACT = """version: 1
contract: {id: gpu-check, language: en}
gpu: {clocks: unlocked, pcie: Gen1 x1}
gemm: {fp32: ">= 1 TFLOPS", fp16: ">= 1 TFLOPS"%s}
memory_bandwidth: ">= 50 GB/s"
memory_test: 50%%
pcie_bandwidth: {h2d: ">= 0.1 GB/s", d2h: ">= 0.1 GB/s"}
burn: {duration: 1 min, temperature: "<= 100 C", throttled: "<= 100 %%", power: ">= 1 %%", sag: "<= 90 %%"}
training: {model: gpt-125m, tokens_per_second: ">= 1"}
memory: {bandwidth: ">= 1 GB/s"}
%s"""
MORE = 'p2p_bandwidth: ">= 0.1 GB/s"\nallreduce: {busbw: ">= 0.1 GB/s", gpus: all, size: 1 GiB}\n'


def contract(gpus: int) -> str:
    """For so many GPUs."""
    return CONTRACT % ((', spread: "<= 90 %"', MORE) if gpus > 1 else ("", ""))


def unmeasured(result: dict[str, Any], gpus: int) -> list[str]:
    """A line for each measurement that is not there or not right, with the reason that the findings give."""
    found: dict[str, list[dict[str, Any]]] = {}
    for measurement in result["measurements"]:
        found.setdefault(measurement["id"].partition("@")[0].partition("/")[0], []).append(measurement)
    lines = []
    for key in (*ALONE, *(TOGETHER if gpus > 1 else ())):
        if key not in found:
            lines.append(f"{key}: not measured: {_why(result, key)}")
        wrong = [m["id"] for m in found.get(key, ()) if m.get("correct") is False]
        void = [m["id"] for m in found.get(key, ()) if any(a.get("void") for a in m["attempts"])]
        lines += [f"{name}: wrong arithmetic" for name in wrong]
        lines += [f"{name}: void" for name in void if name not in wrong]
    return lines


def _why(result: dict[str, Any], key: str) -> str:
    clauses = [f for f in result["findings"] if f["clause"] == key or f["clause"] == key.partition(".")[0]]
    return str(clauses[0]["reason"]) if clauses else "no finding speaks of it"


def torch_python(result: dict[str, Any]) -> Optional[str]:
    """The interpreter that measured with torch, from the command lines kept with the findings."""
    for finding in result["findings"]:
        command = finding.get("reproduce") or ()
        if finding["clause"].startswith("gemm.") and any(str(w).endswith("gemm.py") for w in command):
            return str(command[0])
    return None


def main(accept: str, folder: Path, gpus: int, more: list[str]) -> int:
    begun = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "contract.yaml").write_text(contract(gpus), encoding="utf-8")
    argv = [accept, "run", str(folder / "contract.yaml"), "--profile", "quick", "--budget", BUDGET, "--yes"]
    status = subprocess.run([*argv, "--out", str(folder / "run"), *more], check=False).returncode
    path = folder / "run" / "result.json"
    if not path.exists():
        print(f"gpu-check: accept run left no result (status {status})", file=sys.stderr)
        return 1
    result = json.loads(path.read_text(encoding="utf-8"))
    lines = unmeasured(result, gpus)
    if status not in (0, 3):  # kept, or kept and shortened
        lines.append(f"accept run ended with status {status}")
    with tarfile.open(folder / "run.tar.gz", "w:gz") as packed:
        packed.add(folder / "run", "run")
    python = torch_python(result) or sys.executable
    ratios = Path(__file__).with_name("gpu_ratios.py")
    try:
        done = subprocess.run([python, str(ratios)], capture_output=True, text=True, timeout=RATIOS_S, check=False)
        said, code = done.stdout + done.stderr, done.returncode
    except subprocess.TimeoutExpired:
        said, code = f"no answer in {RATIOS_S} s\n", 1
    (folder / "ratios.txt").write_text(said, encoding="utf-8")
    print(said, end="")
    if code:
        lines.append("the bare loops: a target is missed, or they could not be run")
    for line in lines:
        print(f"gpu-check: {line}", file=sys.stderr)
    print(f"gpu-check: {'all measured' if not lines else 'not all measured'} in {time.monotonic() - begun:.0f} s; "
          f"recorded run: {folder / 'run.tar.gz'}")  # fmt: skip
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]))
