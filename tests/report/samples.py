"""Runs to render: an 8×H100 node rejected, one accepted, one without root, one cut off, and a hostile one.

The numbers are invented; only their shape is that of a real run.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Optional

from agent.model import (
    Attempt,
    Block,
    Finding,
    Limit,
    Measurement,
    Origin,
    Run,
    RunNumber,
    Scope,
    ScopeEntry,
    Session,
    Statistic,
    StepRecord,
    Void,
)
from agent.text import Text, msg
from agent.verdict import headline
from tests.report import evidence

Case = Literal["rejected", "accepted", "inconclusive", "incomplete", "hostile"]
CASES: tuple[Case, ...] = ("rejected", "accepted", "inconclusive", "incomplete", "hostile")

SLOTS = evidence.SLOTS
SLOW = SLOTS[5]
DISK = "disk[/data].read"
PENDING = msg("needs repeated runs over the trial days: one run cannot tell")
STARTED = "2026-11-30T12:04:11Z"
RULE = "min–max of 6 blocks, 96.9 %"
STATISTIC: Statistic = "median of block medians"

HOSTILE = (
    "<script>alert(1)</script>\"'><img src=x onerror=alert(2)> javascript:alert(3) "
    "\x1b[31mred\x1b]0;title\x07 \u202eevil\u202c \x00\x9b1m | `=cmd|' /C calc'!A0` {{ 7*7 }} {% raw %} ]]> </style>"
)


def sample_run(case: Case) -> Run:
    """One run of each kind."""
    if case == "accepted":
        return _node("accepted", _kept(slow=False), slow=False)
    if case == "rejected":
        return _node("rejected", _rejected(), slow=True)
    if case == "inconclusive":
        return _without_root()
    if case == "incomplete":
        return _incomplete()
    return _hostile()


def _rate(slot: str, slow: bool, wave: int) -> Attempt:
    rng = random.Random(f"{slot}{slow}{wave}")
    centre = 512.4 if slow else 702.0
    blocks = tuple(
        Block(
            value=round(v, 1),
            samples=tuple(round(v + rng.gauss(0, 1.2), 2) for _ in range(8)),
            warmup=(round(v * 0.8, 2), round(v * 0.97, 2)),
            conditions={
                "sm_mhz": 1290 if slow else 1755,
                "power_w": 452.0 if slow else 697.0,
                "temp_c": 61 if slow else 68,
                "throttle": {"sw_power_cap": 0.97 if slow else 0.0},
                "foreign": {"cpu_percent": 0.4, "disk_mb_s": 1.2, "network_mb_s": 0.1},
            },
        )
        for v in (rng.gauss(centre, centre * 0.004) for _ in range(6))
    )
    return Attempt(
        blocks,
        "standard",
        f"2026-11-30T12:{8 + 9 * wave:02d}:02Z",
        evidence=(f"evidence/{12 + 10 * wave:04d}-gemm",),
        correct=True,
        reproduce=("python3", "-s", "benchmarks/gemm.py", "--dtype", "bf16", "--device", slot),
    )


def _gemm_measurements(slow: bool) -> tuple[Measurement, ...]:
    def one(slot: str) -> Measurement:
        first = _rate(slot, slow and slot == SLOW, 0)
        again = (_rate(slot, True, 1),) if slow and slot == SLOW else ()
        return Measurement(f"gemm.bf16@{slot}", "TFLOPS", STATISTIC, (first, *again), slot)

    return tuple(one(slot) for slot in SLOTS)


def _disk_measurement(slow: bool) -> Measurement:
    values = (1.38, 1.41, 1.36, 1.44, 1.39, 1.40) if slow else (3.31, 3.36, 3.28, 3.35, 3.33, 3.30)
    void = Attempt(
        (Block(2.9e9),),
        "standard",
        "2026-11-30T12:30:00Z",
        void=Void("disturbed-by-own-work", msg("another program of yours was writing to {path}", path="/data")),
    )
    counted = Attempt(
        tuple(Block(v * 1e9, samples=_seconds(v * 1e9, slow)) for v in values),
        "standard",
        "2026-11-30T12:33:20Z",
        ("evidence/0031-fio-read",),
    )
    return Measurement(DISK, "B/s", "median of repetitions", (void, counted))


def _seconds(rate: float, slow: bool) -> tuple[float, ...]:
    """Sixty seconds of a disk; a slow one whose cache ends after 24 of them."""
    rng = random.Random(rate)
    start, end = (2.1, 0.93) if slow else (1.0, 1.0)
    return tuple(rate * (start if i < 24 else end) * rng.uniform(0.97, 1.03) for i in range(60))


def _pair_measurements(slow: bool) -> tuple[Measurement, ...]:
    """Copies between all pairs; the slow card reaches half."""

    def one(a: str, b: str) -> Measurement:
        rng = random.Random(a + b)
        centre = 171.0 if slow and SLOW in (a, b) else 372.0
        blocks = tuple(Block(round(rng.gauss(centre, 1.5), 1)) for _ in range(6))
        attempt = Attempt(blocks, "standard", "2026-11-30T12:36:00Z", ("evidence/0018-p2p",), correct=True)
        return Measurement(f"p2p_bandwidth@{a}>{b}", "GB/s", STATISTIC, (attempt,), f"{a}>{b}")

    return tuple(one(a, b) for a in SLOTS for b in SLOTS if a != b)


def _allreduce_measurement() -> Measurement:
    values = (476.1, 477.9, 475.2, 478.3, 477.0, 476.6)
    attempt = Attempt(tuple(Block(v) for v in values), "standard", "2026-11-30T12:40:00Z", ("evidence/0020-allreduce",))
    return Measurement("allreduce.busbw", "GB/s", STATISTIC, (attempt,))


def _allreduce_finding() -> Finding:
    return Finding(
        id="allreduce.busbw",
        clause="allreduce.busbw",
        outcome="pass",
        severity="breach",
        promised=">= 360 GB/s",
        measured=476.8,
        unit="GB/s",
        interval=(475.2, 478.3),
        interval_rule=RULE,
        limit=Limit(">=", 342.0, "GB/s", 0.05),
        reason_code="kept",
        reason=msg("kept"),
        ref="Annex A 3.4",
        measurements=("allreduce.busbw",),
        depth="standard",
        evidence=("evidence/0020-allreduce",),
    )


def _pair_findings(measurements: tuple[Measurement, ...]) -> tuple[Finding, ...]:
    def one(m: Measurement) -> Finding:
        values = sorted(b.value for b in m.attempts[0].blocks)
        broken = values[0] < 313.5
        return Finding(
            id=m.key,
            clause="p2p_bandwidth",
            subject=m.subject,
            outcome="fail" if broken else "pass",
            severity="breach",
            promised=">= 330 GB/s",
            measured=round((values[2] + values[3]) / 2, 1),
            unit="GB/s",
            interval=(values[0], values[-1]),
            interval_rule=RULE,
            limit=Limit(">=", 313.5, "GB/s", 0.05),
            reason_code="below-limit" if broken else "kept",
            reason=msg("measured below the limit, twice") if broken else msg("kept"),
            ref="Annex A 3.3",
            measurements=(m.key,),
            depth="standard",
            evidence=("evidence/0018-p2p",),
        )

    return tuple(one(m) for m in measurements)


def _gemm_findings(measurements: tuple[Measurement, ...]) -> tuple[Finding, ...]:
    def one(m: Measurement) -> Finding:
        values = sorted(b.value for b in m.attempts[-1].blocks)
        middle = round((values[2] + values[3]) / 2, 1)
        broken = middle < 617.5
        return Finding(
            id=m.key,
            clause="gemm.bf16",
            subject=m.subject,
            outcome="fail" if broken else "pass",
            severity="breach",
            promised=">= 650 TFLOPS",
            measured=middle,
            unit="TFLOPS",
            interval=(values[0], values[-1]),
            interval_rule=RULE,
            limit=Limit(">=", 617.5, "TFLOPS", 0.05, Origin("contract")),
            reason_code="below-limit" if broken else "within-limit",
            reason=msg("measured below the limit, twice") if broken else msg("promised {value}", value=">= 650 TFLOPS"),
            remedy="Replace the card or lift its power cap, then measure again." if broken else None,
            ref="Annex A 3.2",
            quote="BF16 稠密算力不低于 650 TFLOPS(每卡)",
            measurements=(m.key,),
            depth="standard",
            reproduce=m.attempts[-1].reproduce,
            evidence=tuple(e for a in m.attempts for e in a.evidence),
            notes=(msg("throttled by its power cap for {share} of the time", share="97 %"),) if broken else (),
        )

    return tuple(one(m) for m in measurements)


def _fact(key: str, promised: str, measured: Any, unit: str = "", ref: Optional[str] = None) -> Finding:
    return Finding(
        id=key,
        clause=key,
        outcome="pass",
        severity="breach",
        promised=promised,
        measured=measured,
        unit=unit,
        reason_code="as-promised",
        reason=msg("promised {promised}, found {found}", promised=promised, found=str(measured)),
        ref=ref,
        evidence=("evidence/0003-nvidia-smi",),
    )


def _disk_finding(m: Measurement, slow: bool) -> Finding:
    values = sorted(b.value / 1e9 for b in m.attempts[-1].blocks)
    return Finding(
        id=DISK,
        clause=DISK,
        outcome="fail" if slow else "pass",
        severity="breach",
        promised=">= 2 GB/s",
        measured=1.395 if slow else 3.32,
        unit="GB/s",
        interval=(values[0], values[-1]),
        interval_rule="min–max of 6 repetitions, 96.9 %",
        limit=Limit(">=", 1.9, "GB/s", 0.05),
        reason_code="below-limit" if slow else "within-limit",
        reason=msg("measured below the limit, twice") if slow else msg("promised {value}", value=">= 2 GB/s"),
        ref="Annex A 5.1",
        measurements=(m.key,),
        depth="standard",
        reproduce=("fio", "--name=read", "--rw=read", "--bs=1M", "--direct=1", "--directory=/data", "--runtime=60"),
        evidence=("evidence/0031-fio-read",),
    )


def _kept(slow: bool) -> tuple[Finding, ...]:
    gemm = _gemm_findings(_gemm_measurements(slow))
    pcie = tuple(
        replace(_fact("gpu.pcie", "Gen5 x16", "Gen5 x16"), id=f"gpu.pcie@{s}", subject=s, ref="Annex A 2.4")
        for s in SLOTS
    )
    return (
        _fact("gpu.model", "H100 SXM5 80GB", "NVIDIA H100 80GB HBM3", ref="Annex A 1"),
        _fact("gpu.count", "8", 8, ref="Annex A 1"),
        _fact("gpu.memory", "80 GB", 81559, "MiB", ref="Annex A 1"),
        _fact("gpu.driver", ">= 550.54", "570.133.20"),
        _fact("gpu.ecc", "on", True),
        *pcie,
        *gemm,
        *_pair_findings(_pair_measurements(slow)),
        _allreduce_finding(),
        _disk_finding(_disk_measurement(slow), slow),
        _fact("cpu.vcpus", ">= 192", 192),
        _fact("memory.size", ">= 2 TB", 2.16, "TB"),
        _fact("software.shm", ">= 16 GB", 1024.0, "GB"),
    )


def _rejected() -> tuple[Finding, ...]:
    steal = Finding(
        id="integrity.steal",
        clause="integrity.steal",
        outcome="fail",
        severity="advisory",
        promised="<= 1 %",
        measured=2.4,
        unit="%",
        interval=(1.9, 3.1),
        interval_rule="min–max of 6 repetitions, 96.9 %",
        limit=Limit("<=", 1.0, "%", origin=Origin("agent")),
        reason_code="above-limit",
        reason=msg("the hypervisor gave CPU time to others"),
    )
    latency = Finding(
        id="ping[jinan.example.cn].latency",
        clause="ping[jinan.example.cn].latency",
        outcome="fail",
        severity="breach",
        promised="<= 10 ms",
        measured=14.82,
        unit="ms",
        interval=(14.6, 15.1),
        interval_rule="min–max of 6 repetitions, 96.9 %",
        limit=Limit("<=", 10.0, "ms"),
        reason_code="above-limit",
        reason=msg("measured above the limit, twice"),
        ref="Annex B 2",
        reproduce=("ping", "-n", "-c", "300", "-i", "0.2", "jinan.example.cn"),
        evidence=("evidence/0040-ping-jinan",),
    )
    return (*_kept(slow=True), latency, *_unverified(), steal)


def _unverified() -> tuple[Finding, ...]:
    def one(key: str, promised: str, code: str, reason: Text, grant: Optional[Text], ref: str) -> Finding:
        return Finding(
            id=key,
            clause=key,
            outcome="inconclusive",
            severity="breach",
            promised=promised,
            reason_code=code,
            reason=reason,
            grant=grant,
            ref=ref,
        )

    return (
        one(
            "gpu.xid",
            "none",
            "denied",
            msg("{path} may not be read", path="/dev/kmsg"),
            msg("let this user read {path}", path="/dev/kmsg"),
            "Annex A 2.9",
        ),
        one(
            "disk[/data].raid",
            "1",
            "not-there",
            msg("{names} is shown by a hypervisor or a controller, which hides what it is made of", names="sda"),
            msg("grant {what}", what="storcli /call show J"),
            "Annex A 5.3",
        ),
        one(
            "network[public].download",
            ">= 500 Mbit/s",
            "far-end-not-shown-capable",
            msg("no server could be measured against: {failures}", failures="203.0.113.9:5201: connection refused"),
            msg("name iperf3 servers under “servers”, at best two in different networks"),
            "Annex B 1",
        ),
    )


def _steps() -> tuple[StepRecord, ...]:
    return (
        StepRecord("facts", (), "2026-11-30T12:04:12Z", 8.4, 0, None, ("evidence/0003-nvidia-smi",)),
        StepRecord(
            "gemm", ("python3", "-s", "gemm.py"), "2026-11-30T12:08:02Z", 361.2, 0, None, ("evidence/0012-gemm",)
        ),
        StepRecord(
            "disk-read /data", ("fio", "job.fio"), "2026-11-30T12:33:20Z", 371.0, 0, None, ("evidence/0031-fio-read",)
        ),
        StepRecord("evening", skipped=msg("needs repeated runs over the trial days: one run cannot tell")),
    )


def _node(verdict: Literal["accepted", "rejected", "inconclusive"], findings: tuple[Finding, ...], slow: bool) -> Run:
    gpus = [
        {"slot": s, "uuid": f"GPU-5f3c{i:04d}-8a51-4c9e-b1d2-0c5a9e7f{i:04d}", "index": i, "serial": f"16519230{i:05d}",
         "name": "NVIDIA H100 80GB HBM3"}
        for i, s in enumerate(SLOTS)
    ]  # fmt: skip
    return Run(
        run_id="20261130T120411Z-gpu-node-17",
        agent_version="0.1.0",
        complete=True,
        started_at=STARTED,
        finished_at="2026-11-30T12:49:40Z",
        contract_id="SD-2026-1130-07",
        contract_sha256=evidence.CONTRACT_SHA256,
        contract_header={
            "id": "SD-2026-1130-07",
            "vendor": "济南云算科技有限公司",
            "customer": "Example AI Lab",
            "signed": "2026-11-20",
            "site": "Jinan DC 2",
            "price": {"amount": 24000, "currency": "CNY", "per": "month"},
        },
        attempt=RunNumber(3 if slow else 4, 4, "../ledger.jsonl"),
        sessions=(
            Session("0b6a2f3e-6a53-4a55-9be3-8f0f4a1f0f11", ("accept", "run", "contract.yaml"), 1000, None, 0.012),
        ),
        stack={"driver": "570.133.20", "cuda_driver": "12.8", "torch": "2.6.0+cu124", "cuda": "12.4",
               "cublas": "12.4.5.8",
               "nccl": "2.21.5", "python": "3.10.12"},
        node={
            "hostname": "gpu-node-17",
            "identity": "machine-id 6e1f…9a, 8 GPUs",
            "gpus": gpus,
            "cpu": "2 × Intel Xeon Platinum 8468",
            "memory": "2.16 TB",
            "os": "Ubuntu 22.04.5 LTS, Linux 5.15.0-122",
        },
        scope=Scope(pending_trial=(ScopeEntry("network[public].evening_drop", PENDING),)),
        verdict=verdict,
        headline=headline(findings),
        findings=findings,
        measurements=(
            *_gemm_measurements(slow), *_pair_measurements(slow), _allreduce_measurement(), _disk_measurement(slow),
        ),
        steps=_steps(),
        profile="standard",
        terms=({"text": "故障 30 分钟响应, 4 小时修复", "check_by": "2026-12-20"},),
    )  # fmt: skip


def _without_root() -> Run:
    base = _node("inconclusive", (), slow=False)
    kept = tuple(f for f in _kept(slow=False) if f.clause in ("gpu.model", "gpu.count", "cpu.vcpus", "memory.size"))
    findings = (*kept, *_unverified())
    return replace(
        base,
        findings=findings,
        headline=headline(findings),
        measurements=(),
        profile="quick",
        scope=Scope(
            left_out=(ScopeEntry("burn", msg("left out by --skip")),),
            shortened=(ScopeEntry("memory_test", msg("shortened by --profile {profile}", profile="quick")),),
            pending_trial=base.scope.pending_trial,
        ),
    )


def _incomplete() -> Run:
    base = _node("inconclusive", (), slow=False)
    kept = tuple(f for f in _kept(slow=False) if f.clause in ("gpu.model", "gpu.count"))
    return replace(
        base,
        complete=False,
        verdict=None,
        finished_at=None,
        attempt=None,
        findings=kept,
        headline=headline(kept),
        measurements=(),
        notes=(msg("the run was interrupted by SIGTERM"),),
    )


def _hostile() -> Run:
    base = _node("rejected", (), slow=True)
    bad = Finding(
        id=f"disk[{HOSTILE}].read@{HOSTILE}",
        clause=f"disk[{HOSTILE}].read",
        subject=HOSTILE,
        outcome="fail",
        severity="breach",
        promised=HOSTILE,
        measured=HOSTILE,
        unit=HOSTILE,
        reason_code="below-limit",
        reason=msg("the machine says {what}", what=HOSTILE),
        grant=msg("{what}", what=HOSTILE),
        remedy=HOSTILE,
        ref=HOSTILE,
        quote=HOSTILE + "\n" + "长" * 3000,
        reproduce=("sh", "-c", HOSTILE),
        evidence=("javascript:alert(4)", "../../etc/passwd", f"evidence/{HOSTILE}", "evidence/0001-dmesg"),
        notes=(msg("{x}", x=HOSTILE),),
        limit=Limit(">=", HOSTILE, HOSTILE, 0.05, Origin("catalogue", HOSTILE)),
    )
    unreal = replace(
        _fact("cpu.steal", "<= 1 %", float("nan"), "%"), interval=(float("-inf"), float("nan")), interval_rule=HOSTILE
    )
    unlike = Measurement(
        "cpu.steal",
        HOSTILE,
        "share of time",
        (Attempt((Block(float("nan"), (float("inf"),)), Block(0.5)), "quick", HOSTILE),),
    )
    return replace(
        base,
        run_id=HOSTILE,
        started_at="2026-11-30T12:04:11.123456Z",
        findings=(bad, replace(unreal, measurements=("cpu.steal",))),
        measurements=(unlike,),
        node={"hostname": HOSTILE, "identity": HOSTILE, "gpus": [{"slot": HOSTILE, "name": HOSTILE}], HOSTILE: HOSTILE},
        stack={"driver": HOSTILE, "torch": None},
        contract_id=HOSTILE,
        contract_header={"vendor": HOSTILE, "customer": HOSTILE, "site": HOSTILE, HOSTILE: [HOSTILE]},
        attempt=RunNumber(1, 1, HOSTILE),
        sessions=(Session(HOSTILE, (HOSTILE,), 0, HOSTILE, None, HOSTILE),),
        steps=(StepRecord(HOSTILE, (HOSTILE,), HOSTILE, float("nan"), 1, msg("{x}", x=HOSTILE), (HOSTILE,)),),
        scope=Scope(left_out=(ScopeEntry(HOSTILE, msg("{x}", x=HOSTILE)),)),
        terms=({"text": HOSTILE, "check_by": HOSTILE}, {}),
        notes=(msg("{x}", x=HOSTILE),),
    )


def write_evidence(folder: Path, slow: bool = True) -> None:
    """A run folder's evidence beside :func:`sample_run`, hostile bytes included."""
    evidence.write(folder, SLOTS.index(SLOW) if slow else -1)
    smi = "".join(f"GPU {i}: NVIDIA H100 80GB HBM3 (UUID: GPU-5f3c{i:04d})\n" for i in range(8))
    _probe(folder, "0001-dmesg", ["dmesg"], HOSTILE.encode() + b"\xff\xfe\n" + b"[  12.3] NVRM: Xid 79\n" * 900, b"", 1)
    _probe(folder, "0003-nvidia-smi", ["nvidia-smi", "-L"], smi.encode(), b"", 0)
    _probe(folder, "0012-gemm", ["python3", "-s", "gemm.py"], b"", b"UserWarning: ...\n", 0)
    (folder / "evidence" / "0012-gemm" / "result.json").write_text('{"schema": "accept.worker/1"}\n', encoding="utf-8")
    _probe(folder, "0031-fio-read", ["fio", "job.fio"], b'{"fio version": "fio-3.28"}\n', b"", 0)


def _probe(folder: Path, name: str, argv: list[str], out: bytes, err: bytes, exit_: int) -> None:
    place = folder / "evidence" / name
    place.mkdir(parents=True)
    meta: Mapping[str, Any] = {"probe": name[5:], "argv": argv, "seconds": 1.25, "exit": exit_, "timed_out": False}
    (place / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
    (place / "stdout").write_bytes(out)
    (place / "stderr").write_bytes(err)
