"""Evidence for the sample runs: topology, an all-reduce over all sizes, telemetry beside a full load, the contract."""

from __future__ import annotations

import hashlib
import json
import math
import random
from pathlib import Path
from typing import Any

SLOTS = tuple(f"0000:{bus}:00.0" for bus in ("1b", "29", "45", "4e", "9a", "ab", "c9", "db"))
CONTRACT = """\
version: 1
contract: {id: SD-2026-1130-07, vendor: 济南云算科技有限公司, price: {amount: 24000, currency: CNY, per: month}}
tolerance: 5%
gpu: {count: 8, model: H100 SXM5 80GB}
gemm:
  bf16:
    is: ">= 650 TFLOPS"
    ref: Annex A 3.2
    remedy: {text: "Replace the card or lift its power cap, then measure again.", per_percent: 1 %, at_most: 30 %}
disk: [{path: /data, read: ">= 2 GB/s"}]
""".encode()
CONTRACT_SHA256 = hashlib.sha256(CONTRACT).hexdigest()
TELEMETRY_START = "2026-11-30T12:50:00.000Z"


def topology() -> str:
    """``nvidia-smi topo -m`` of eight GPUs behind NVSwitches, each with its own network card."""
    gpus, nics = [f"GPU{i}" for i in range(8)], [f"NIC{i}" for i in range(8)]
    head = "\t" + "\t".join([*gpus, *nics, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])
    lines = [head]
    for i, name in enumerate([*gpus, *nics]):
        cells = [_link(i, j) for j in range(16)]
        tail = ["0-55,112-167" if i % 8 < 4 else "56-111,168-223", str(i % 8 // 4), "N/A"] if i < 8 else []
        lines.append("\t".join([name, *cells, *tail]))
    legend = ["", "Legend:", "", "  X    = Self", "  SYS  = Connection traversing PCIe as well as the SMP interconnect",
              "  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges",
              "  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge",
              "  PXB  = Connection traversing multiple PCIe bridges",
              "  PIX  = Connection traversing at most one bridge",
              "  NV#  = Connection traversing a bonded set of # NVLinks", "", "NIC Legend:", "",
              *(f"  NIC{i}: mlx5_{i}" for i in range(8)), ""]  # fmt: skip
    return "\n".join([*lines, *legend])


def _link(i: int, j: int) -> str:
    if i == j:
        return "X"
    if i < 8 and j < 8:
        return "NV18"
    if i % 8 // 4 != j % 8 // 4:
        return "SYS"
    return "PIX" if i % 8 == j % 8 else "NODE"


def allreduce(top: float = 478.0) -> dict[str, Any]:
    """A worker's result: three numbers of GPUs over sizes from 8 B to 8 GiB, and six judged blocks at 1 GiB."""
    rows = [_row(count, 8 << k, None, top) for count in (2, 4, 8) for k in range(31)]
    rows += [_row(8, 1 << 30, block, top) for block in range(6)]
    return {"rows": rows, "unavailable": {}, "stopped": None, "log": "NCCL version 2.21.5+cuda12.4\n"}


def _row(count: int, size: int, block: Any, top: float) -> dict[str, Any]:
    best = top * (0.72 + 0.035 * count)
    value = round(best / (1 + (9e6 * count / 8) / size), 4)
    at = "2026-11-30T12:40:00.000Z"
    found = {"op": "all_reduce", "count": count, "bytes": size, "block": block, "calls": 20, "wrong": 0}
    return {**found, "busbw": [value] * 3, "algbw": [round(value / 1.75, 4)] * 3, "started_at": at, "ended_at": at}


def telemetry(seconds: int, hertz: int, slow: int = -1, cards: int = 8) -> str:
    """Beside a full load. The card ``slow`` gets hot and is held down by heat from half a minute on."""
    rng = random.Random(7)
    slots = [SLOTS[i] if i < len(SLOTS) else f"0000:{i:02x}:01.0" for i in range(cards)]
    gpus = [{"uuid": None, "slot": s, "clock_sm_max_mhz": 1980, "power_enforced_w": 700.0, "power_default_w": 700.0}
            for s in slots]  # fmt: skip
    lines: list[dict[str, Any]] = [
        {"telemetry": 1, "started_at": TELEMETRY_START, "interval_s": 1 / hertz, "gpus": gpus, "cpus": 192}
    ]
    for i in range(seconds * hertz):
        t = round(i / hertz, 2)
        lines.append({"t": t, "f": [_fast(rng, t, card == slow) for card in range(cards)]})
        if i % hertz == 0:
            lines.append({"t": t, "s": [_slow(rng, t, card, card == slow) for card in range(cards)]})
    lines.append({"t": float(seconds), "done": True})
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)


def _fast(rng: random.Random, t: float, slow: bool) -> list[int]:
    if t < 4:
        return [1980, 0x1]
    if slow and t > 30:
        return [rng.choice((1170, 1230, 1290)), 0x40 | 0x20]
    capped = rng.random() < 0.7
    return [1755 + rng.randrange(-3, 4) * 15, 0x4 if capped else 0]


def _slow(rng: random.Random, t: float, card: int, slow: bool) -> list[Any]:
    top = 91 if slow else 66 + card % 4
    temperature = round(34 + (top - 34) * (1 - math.exp(-t / 25)) + rng.random())
    power = 120.0 if t < 4 else (470.0 if slow and t > 30 else 694.0) + rng.randrange(-40, 40) / 10
    return [power, temperature, temperature + 8, 2619, 100, 62000]


def write(folder: Path, slow: int) -> None:
    """The folders of these probes below ``folder``/evidence, and the contract."""
    (folder / "contract.yaml").write_bytes(CONTRACT)
    _place(folder, "0005-topo-m", "topo-m", ["nvidia-smi", "topo", "-m"], {"stdout": topology()})
    burn = {"result.json": '{"schema": "accept.worker/1"}\n', "telemetry.jsonl": telemetry(120, 2, slow)}
    _place(folder, "0014-burn", "burn/1", ["python3", "-s", "burn.py"], burn)
    swept = {"result.json": json.dumps(allreduce()) + "\n"}
    _place(folder, "0020-allreduce", "allreduce/1", ["python3", "-s", "allreduce.py"], swept)


def _place(folder: Path, name: str, probe: str, argv: list[str], files: dict[str, str]) -> None:
    place = folder / "evidence" / name
    place.mkdir(parents=True)
    meta = {"probe": probe, "argv": argv, "seconds": 1.25, "exit": 0, "timed_out": False}
    (place / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
    for file, text in files.items():
        (place / file).write_text(text, encoding="utf-8")
