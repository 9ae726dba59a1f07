"""Trials made up on a virtual clock: 18 slots over three days, judged as real runs are."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Optional

from agent import stats
from agent.checks import grammars
from agent.contract import load
from agent.model import Contract
from agent.text import msg
from agent.trial.judge import Trial, judge
from agent.trial.runs import Outcome, Point, TrialRun
from agent.trial.schedule import Schedule, Slot, plan

START = datetime(2026, 11, 30, 2, 0, tzinfo=timezone.utc)  # ten in the morning in Shanghai
SLOTS = ("0000:1b:00.0", "0000:3b:00.0")
TEXT = """version: 1
gpu: {count: 2, condition: new}
gemm: {bf16: ">= 650 TFLOPS"}
network:
  - {name: public, servers: ["203.0.113.9:5201"], download: ">= 500 Mbit/s", evening_drop: "<= 10 %"}
trial: {days: 3, every: 4 h, evening: "19:00-23:00", timezone: Asia/Shanghai}
"""
LIMITS = {"gemm.bf16": 617.5, "network[public].download": 475.0}
LEVELS = {"gemm.bf16": 617.5 * 1.06, "network[public].download": 475.0 * 1.15}
NOISE = {"gemm.bf16": 0.01, "network[public].download": 0.03}  # from run to run
BLOCK_NOISE = 0.005
UNITS = {"gemm.bf16": "TFLOPS", "network[public].download": "Mbit/s"}


@dataclass(frozen=True)
class World:
    """What is wrong with a machine; the default is healthy and noisy."""

    evening_drop: float = 0.0
    drift: float = 0.0
    swap_at: Optional[int] = None
    reboot_at: Optional[int] = None
    errors_from: Optional[int] = None
    weak: Optional[str] = None
    outcomes: Mapping[int, Mapping[str, str]] = field(default_factory=dict)  # run → id → outcome


def contract(folder: Path, text: str = TEXT) -> Contract:
    """The contract of the simulated trials."""
    path = folder / "contract.yaml"
    path.write_text(text, encoding="utf-8")
    return load(path, grammars())


def schedule(of: Contract, seed: int = 0) -> Schedule:
    """18 slots, all of them done."""
    made = plan(of.sha256, START, 4 * 3600, 3 * 86400, "19:00-23:00", "Asia/Shanghai", seed=seed)
    for slot in made.slots:
        made = made.with_slot(
            Slot(slot.number, slot.at, slot.profile, "done", f"{slot.number:04d}-{slot.at:%Y%m%dT%H%M%SZ}")
        )
    return made


def simulate(of: Contract, world: World, seed: int) -> tuple[tuple[TrialRun, ...], Schedule]:
    """All runs of one trial; the same seed gives the same."""
    made = schedule(of, seed)
    dice = random.Random(f"trial:{seed}")
    return tuple(_run(slot, made, world, dice) for slot in made.slots), made


def trial(of: Contract, world: World, seed: int) -> Trial:
    """One simulated trial, judged."""
    runs, made = simulate(of, world, seed)
    return judge(runs, of, made)


def _run(slot: Slot, made: Schedule, world: World, dice: random.Random) -> TrialRun:
    n = slot.number
    evening = made.hours.holds(slot.at.astimezone(made.zone))
    passed = (slot.at - made.started_at).total_seconds() / made.lasts_s
    keys = [f"gemm.bf16@{s}" for s in SLOTS] + ["network[public].download"]
    points: dict[str, Point] = {}
    outcomes = {"gpu.count": _fact("gpu.count", "pass")}
    for key in keys:
        clause = key.partition("@")[0]
        level = LEVELS[clause] * (1 - (world.evening_drop if evening and "network" in key else 0))
        level *= 1 - (world.drift * passed if "gemm" in key else 0)

        def look(clause: str = clause, level: float = level) -> list[float]:
            middle = level * (1 + dice.gauss(0, NOISE[clause]))
            return [middle * (1 + dice.gauss(0, BLOCK_NOISE)) for _ in range(6)]

        values, outcome = _judged(look, LIMITS[clause], slot.profile)
        subject = key.partition("@")[2] or None
        middle = stats.median(values)
        weak = world.weak if "network" in key else None
        points[key] = Point(middle, min(values), max(values), UNITS[clause], slot.profile, weak, None, subject)
        outcomes[key] = Outcome(
            clause, outcome, "breach", outcome, msg("so it is"), "", True, subject, LIMITS[clause], UNITS[clause]
        )
    outcomes["network[public].evening_drop"] = _fact("network[public].evening_drop", "inconclusive", "pending-trial")
    for key, outcome in world.outcomes.get(n, {}).items():
        outcomes[key] = _fact(key, outcome)
    swapped = world.swap_at is not None and n >= world.swap_at
    errors = max(0, n - world.errors_from + 1) if world.errors_from is not None else 0
    return TrialRun(
        folder=str(slot.folder),
        at=slot.at,
        complete=True,
        profile=slot.profile,
        verdict="accepted",
        contract_sha256=made.contract_sha256,
        boot_id="boot-2" if world.reboot_at is not None and n >= world.reboot_at else "boot-1",
        parts={"identity": "aaaa", f"gpu {SLOTS[0]}": "GPU-1", f"gpu {SLOTS[1]}": "GPU-9" if swapped else "GPU-2"},
        counters={SLOTS[0]: {"ecc_uncorrected_aggregate": errors}},
        outcomes=outcomes,
        points=points,
    )


def _fact(key: str, outcome: str, code: str = "kept") -> Outcome:
    return Outcome(key, outcome, "breach", code, msg("so it is"), "", False)


def _judged(look: Callable[[], list[float]], limit: float, profile: str) -> tuple[list[float], str]:
    """As a run does: attempts until the decision is final; a quick run may break a promise and never keeps it."""
    attempts: list[stats.Attempt] = []
    while True:
        values = look()
        attempts.append(stats.median_attempt(values, 1))
        decided = stats.decide(">=", limit, attempts)
        if decided.again != "repeat":
            break
    if decided.outcome == "pass" and profile != "standard":
        return values, "inconclusive"
    return values, decided.outcome
