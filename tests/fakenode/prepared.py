"""A Python whose torch sees the node's cards and whose loads end with prepared numbers: what a renter is then told.

It answers in the place of the workers, through the same files; telemetry beside it is the agent's own, of the node.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.fakenode.node import Node

LASTS_S = {"allreduce": 0.3, "gemm": 2.4, "burn": 2.4}  # long enough for telemetry where that is judged
_PROGRAM = '''
import json, os, sys, time
from datetime import datetime, timezone

HERE = os.path.dirname(os.path.abspath(__file__))


def now():
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def timed(value, spans):
    """Each "block": n gets the n-th part of the time that this took."""
    if isinstance(value, list):
        return [timed(v, spans) for v in value]
    if not isinstance(value, dict):
        return value
    found = {k: timed(v, spans) for k, v in value.items()}
    if "at" in found:
        found["started_at"], found["ended_at"] = spans[found.pop("at")]
    return found


words = dict(zip(sys.argv, sys.argv[1:]))
name = os.path.basename(next(a for a in sys.argv[1:] if a.endswith(".py")))[:-3]
with open(os.path.join(HERE, name + ".json")) as prepared:
    answer = json.load(prepared)
spans = []
if "--request" in words:
    for _ in range(12):
        begun = now()
        time.sleep(LASTS[name] / 12)
        spans.append((begun, now()))
with open(words["--result"] + ".tmp", "w") as out:
    json.dump(timed(answer, spans), out)
os.rename(words["--result"] + ".tmp", words["--result"])
'''


def python(folder: Path, node: Node, **workers: Mapping[str, Any]) -> str:
    """The path of an interpreter; ``workers``: what each leaves, beside what all of them say."""
    folder.mkdir(parents=True)
    (folder / "prepared.py").write_text(_PROGRAM.replace("LASTS", repr(LASTS_S)), encoding="utf-8")
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -I {folder / "prepared.py"} "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    torch = {
        "version": "2.6.0", "cuda": "12.4", "hip": None, "cublas": "12.4.5.8", "nccl": "2.21.5",
        "devices": devices(node), "cuda_error": None,
    }  # fmt: skip
    answers: dict[str, Mapping[str, Any]] = {
        "ask_torch": {
            "schema": "accept.torch/1", "python": "3.10.12", "prefix": "/usr", "torch": torch, "error": None
        },
        **{name: {**_common(name, node), **answer} for name, answer in workers.items()},
    }  # fmt: skip
    for name, answer in answers.items():
        (folder / f"{name}.json").write_text(json.dumps(answer), encoding="utf-8")
    return str(script)


def devices(node: Node) -> list[dict[str, Any]]:
    return [{"index": c.index, "name": c.name, "uuid": c.uuid, "slot": c.slot} for c in node.cards]


def _common(name: str, node: Node) -> dict[str, Any]:
    versions = {"torch": "2.6.0", "cuda": "12.4", "cublas": "12.4.5.8", "nccl": "2.21.5"}
    return {"schema": "accept.worker/1", "worker": name, "device": "cuda", "devices": devices(node),
            "versions": versions, "stopped": None}  # fmt: skip


def allreduce(node: Node, busbw: float, log: str = "") -> dict[str, Any]:
    """Six blocks of 1 GiB over all cards, about ``busbw`` GB/s."""
    count = len(node.cards)
    rows = []
    for block in range(6):
        rate = busbw * (1 + 0.001 * (block - 2.5))
        rows.append({
            "op": "all_reduce", "count": count, "bytes": 1 << 30, "block": block, "calls": 20, "seconds": [0.1],
            "busbw": [rate], "algbw": [rate * count / (2 * (count - 1))], "wrong": 0, "at": block,
        })  # fmt: skip
    return {"rows": rows, "unavailable": {}, "log": log}


def gemm(rates: Mapping[int, float], dtype: str = "bf16") -> dict[str, Any]:
    """Six blocks of each card at its rate in TFLOPS."""
    cards = [
        {
            "index": index,
            "blocks": [
                {"samples": [rate * (1 + 0.001 * n) for n in range(4)], "warmup": [rate * 0.9], "calls": 4,
                 "max_error": 0.01, "row_error": 0.01, "correct": True, "at": block}
                for block in range(6)
            ],
            "error": None, "together": rate, "bits": {"inputs": "a", "product": "b"},
        }
        for index, rate in rates.items()
    ]  # fmt: skip
    shape = [8192, 8192, 8192]
    found = {"shape": shape, "search": [{"shape": shape, "tflops": max(rates.values())}], "api": "torch.mm",
             "stopped": None, "devices": cards}  # fmt: skip
    return {"dtypes": {dtype: found}}


def burn(node: Node, rate: float = 700.0) -> dict[str, Any]:
    """Twelve stretches of the same rate on all cards."""
    lasted = [LASTS_S["burn"] / 48] * 4
    stretches = [
        {"rates": [rate] * 4, "seconds": lasted, "max_error": 0.01, "row_error": 0.01, "correct": True, "at": block}
        for block in range(12)
    ]
    cards = [{"index": c.index, "light": {"at": 0}, "blocks": stretches} for c in node.cards]
    return {"dtype": "bf16", "shape": [8192, 8192, 8192], "burn": cards}
