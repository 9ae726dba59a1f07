"""A whole 8-GPU run and a 72-GPU one, each with a ten-minute load at ten samples a second: for size, time, reading."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

from agent.model import Attempt, Block, Finding, Limit, Measurement, Run
from agent.text import msg
from agent.verdict import headline
from tests.report import evidence
from tests.report.samples import STATISTIC, sample_run, write_evidence

RATES = {
    "gemm.bf16": ("TFLOPS", 702.0), "gemm.fp8": ("TFLOPS", 1300.0), "memory_bandwidth": ("GB/s", 2900.0),
    "pcie_bandwidth.h2d": ("GB/s", 54.0), "pcie_bandwidth.d2h": ("GB/s", 53.0), "burn.temperature": ("C", 68.0),
    "burn.sag": ("%", 1.0), "burn.power": ("%", 99.0),
}  # fmt: skip
_CENTRES = {**{name: centre for name, (_, centre) in RATES.items()}, "p2p_bandwidth": 372.0}
DISKS = ("read", "write", "checkpoint")


def slots(cards: int) -> tuple[str, ...]:
    return tuple(evidence.SLOTS[i] if i < 8 else f"0000:{i:02x}:01.0" for i in range(cards))


def large_run(cards: int) -> Run:
    """Every measurement that a full run of such a node takes; pairs for up to 16 GPUs."""
    base = sample_run("rejected")
    rng = random.Random(cards)
    measured = [
        _measurement(rng, f"{name}@{slot}", slot, unit, centre)
        for name, (unit, centre) in RATES.items()
        for slot in slots(cards)
    ]
    if cards <= 16:
        pairs = [f"{a}>{b}" for a in slots(cards) for b in slots(cards) if a != b]
        measured += [_measurement(rng, f"p2p_bandwidth@{p}", p, "GB/s", 372.0) for p in pairs]
    measured += [_disk(rng, f"disk[/data].{name}") for name in DISKS]
    rates = tuple(_finding(m) for m in measured)
    kept = tuple(f for f in base.findings if f.subject is None and not f.measurements)
    findings = (*kept, *rates)
    gpus = [
        {"slot": s, "uuid": f"GPU-{i:08d}", "index": i, "serial": str(i), "name": "NVIDIA H100 80GB HBM3"}
        for i, s in enumerate(slots(cards))
    ]
    return replace(
        base, findings=findings, measurements=tuple(measured), headline=headline(findings),
        node={**base.node, "gpus": gpus},
    )  # fmt: skip


def _measurement(rng: random.Random, key: str, subject: str, unit: str, centre: float) -> Measurement:
    def block() -> Block:
        value = round(rng.gauss(centre, centre * 0.004), 3)
        conditions = {"sm_mhz": 1755, "power_w": 697.0, "temp_c": 68, "throttle": {"sw_power_cap": 0.7}, "foreign": {}}
        return Block(value, tuple(round(rng.gauss(value, 1), 3) for _ in range(8)), (value,), conditions)

    attempt = Attempt(
        tuple(block() for _ in range(6)), "standard", "2026-11-30T12:50:00Z", ("evidence/0014-burn",), correct=True
    )
    return Measurement(key, unit, STATISTIC, (attempt,), subject)


def _disk(rng: random.Random, key: str) -> Measurement:
    blocks = tuple(
        Block(3.3e9, tuple(rng.gauss(3.3e9, 5e7) for _ in range(60)), (), {"bytes": 2e11, "seconds": 60.0})
        for _ in range(6)
    )
    attempt = Attempt(blocks, "standard", "2026-11-30T12:33:20Z", ("evidence/0031-fio-read",))
    return Measurement(key, "B/s", "median of repetitions", (attempt,))


def _finding(m: Measurement) -> Finding:
    value, unit = m.attempts[0].blocks[0].value, m.unit
    promised = _CENTRES.get(m.key.partition("@")[0], value) * 0.9
    return Finding(
        id=m.key,
        clause=m.key.partition("@")[0],
        subject=m.subject,
        outcome="pass",
        severity="breach",
        promised=f">= {promised:.4g} {unit}",
        measured=value,
        unit=unit,
        interval=(value * 0.99, value * 1.01),
        interval_rule="min–max of 6 blocks, 96.9 %",
        limit=Limit(">=", promised * 0.95, unit, 0.05),
        reason_code="kept",
        reason=msg("kept"),
        measurements=(m.key,),
        depth="standard",
        reproduce=("python3", "-s", "worker.py"),
        evidence=m.attempts[0].evidence,
    )


def write_large(folder: Path, cards: int) -> None:
    """The evidence of such a run: 6,000 samples of every card, and eighty outputs of tools, full of quotes."""
    write_evidence(folder, slow=True)
    long = evidence.telemetry(600, 10, slow=5, cards=cards)
    (folder / "evidence" / "0014-burn" / "telemetry.jsonl").write_text(long, encoding="utf-8")
    for i in range(80):
        place = folder / "evidence" / f"{100 + i:04d}-tool"
        place.mkdir()
        (place / "meta.json").write_text(json.dumps({"probe": f"tool{i}", "argv": ["tool"], "exit": 0}))
        (place / "stdout").write_text('{"a": "<&>"}\n' * 2000)
