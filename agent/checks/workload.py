"""The ``workload`` clauses: whether the renter's own training would end in time, projected from what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Optional, Union

from agent.bench.step import Step
from agent.bench.training import DEFAULT, KEY
from agent.checks import training
from agent.checks._api import Case
from agent.checks._judge import finding, rate, unreadable
from agent.checks._measured import models, whose_work
from agent.facts.gpus import GpusFacts
from agent.grammar import Section, count, duration, one_of
from agent.model import Attempt, Block, Clause, Finding, Measurement
from agent.quantity import format_quantity
from agent.reading import Known, Missing
from agent.text import Text, msg

GRAMMAR = Section(
    clauses={"within": duration(such="30 d")},
    settings={
        "params": count(),
        "precision": one_of("fp32", "tf32", "fp16", "bf16", "fp8"),
        "zero": one_of("0", "1", "2", "3"),
        "tokens": count(),
    },
    advisory=frozenset({"within"}),
)
FACTS = ("gpus", "processes", "pythons")

DAY_S = 86400.0
TRAINING = 6.0  # operations for each weight and token: 2 forward, 4 backward; recomputing them is not counted
# Bytes a weight on each GPU, (whole, spread): mixed precision with Adam (ZeRO paper). 2 of fp16 weights, 2 of
# gradients, 12 of fp32 weights and moments; fp32 throughout: 4, 4 and 8.
STATE = {"0": (16.0, 0.0), "1": (4.0, 12.0), "2": (2.0, 14.0), "3": (0.0, 16.0)}
MEASURED_IN = ("bf16", "fp16", "fp8")  # trained no slower than what was measured in bf16
DEFAULT_ZERO = "0"


def steps(clauses: Sequence[Clause], case: Case) -> Iterator[Step]:
    """The training whose rate is projected; the plan takes it once where the contract asks for it too."""
    wanted = [c for c in case.contract.clauses if c.family == "training"]
    if "pythons" in case.facts and clauses:
        yield training.step(case, str(wanted[0].settings.get("model", DEFAULT)) if wanted else DEFAULT)


def judge(clauses: Sequence[Clause], case: Case) -> Iterator[Finding]:
    """Days for the job at the rate of operations that a real training reached here."""
    for clause in clauses:
        yield _judge(clause, case)


def _judge(clause: Clause, case: Case) -> Finding:
    taken = case.measured.get(KEY, Missing("left-out", msg("no training was measured to project from")))
    if isinstance(taken, Missing):
        return unreadable(clause, taken)
    size, tokens = clause.settings.get("params"), clause.settings.get("tokens")
    if size is None or tokens is None:
        why = msg("workload needs params and tokens: without them there is no job to project")
        return unreadable(clause, Missing("unsupported", why))
    slower = _slower(clause, case)
    if isinstance(slower, Missing):
        return unreadable(clause, slower)
    operations = TRAINING * float(size) * float(tokens)
    projected = replace(
        taken,
        key=clause.key,
        unit="d",
        statistic="median of repetitions",
        attempts=tuple(_days(a, operations * slower) for a in taken.attempts),
    )
    seen = replace(case, measured={**case.measured, clause.key: projected})
    found = whose_work(rate(clause, seen), seen)
    notes = (*_arithmetic(found, taken, float(size), float(tokens), slower), *found.notes)
    found = replace(found, measurements=(KEY,), notes=notes)
    return _fits(clause, case, float(size), found)


def _days(attempt: Attempt, operations: float) -> Attempt:
    blocks = tuple(
        Block(operations / (b.value * b.conditions["operations_per_token"]) / DAY_S, (), (), b.conditions)
        for b in attempt.blocks
    )
    return replace(attempt, blocks=blocks)


def _slower(clause: Clause, case: Case) -> Union[float, Missing]:
    """How much longer the same operations take in the job's precision than in bf16."""
    precision = clause.settings.get("precision", "bf16")
    if precision in MEASURED_IN:
        return 1.0
    wanted: Any = precision
    ratios = [
        bf16 / other
        for each in models(case).values()
        for bf16, other in ((m.peak("bf16"), m.peak(wanted)) for m in each)
        if bf16 is not None and other is not None
    ]
    if not ratios:
        why = msg("measured in bf16, and no published peaks tell how much slower {precision} is", precision=precision)
        return Missing("unsupported", why)
    return max(ratios)


def _arithmetic(found: Finding, taken: Measurement, size: float, tokens: float, slower: float) -> tuple[Text, ...]:
    """The whole calculation, for a pocket calculator."""
    if found.measured is None:
        return ()
    conditions = taken.attempts[-1].blocks[0].conditions
    operations = TRAINING * size * tokens
    speed = operations * slower / (float(found.measured) * DAY_S)
    said = msg(
        "6 × {params} parameters × {tokens} tokens = {operations} operations; {gpus} GPUs reached {speed} TFLOPS in "
        "training here: {days} days",
        params=f"{size:.3g}",
        tokens=f"{tokens:.3g}",
        operations=f"{operations:.3g}",
        gpus=conditions["gpus"],
        speed=f"{speed / 1e12:.4g}",
        days=f"{found.measured:.4g}",
    )
    if slower == 1.0:
        return (said,)
    return said, msg("{times} times slower than bf16 by the published peaks", times=f"{slower:.3g}")


def _fits(clause: Clause, case: Case, size: float, found: Finding) -> Finding:
    """A job whose state alone exceeds the memory never ends, whatever the rate."""
    gpus = int(found_gpus(case))
    whole, spread = STATE[clause.settings.get("zero", DEFAULT_ZERO)]
    needed = size * (whole + spread / gpus)
    memory = _memory(case)
    said = msg(
        "weights, gradients and optimizer take {needed} on each of {n} GPUs (ZeRO {stage})",
        needed=format_quantity(needed, "B"),
        n=gpus,
        stage=clause.settings.get("zero", DEFAULT_ZERO),
    )
    if memory is None or needed <= memory:
        return replace(found, notes=(*found.notes, said))
    reason = msg("{said}, which have {memory}: the job does not fit", said=said, memory=format_quantity(memory, "B"))
    code = "does-not-fit"
    return finding(
        clause, "fail", code, reason, measured=found.measured, unit=found.unit, limit=found.limit,
        evidence=found.evidence, notes=found.notes, measurements=found.measurements,
    )  # fmt: skip


def found_gpus(case: Case) -> float:
    """How many GPUs the training ran on."""
    taken = case.measured[KEY]
    assert isinstance(taken, Measurement)
    return float(taken.attempts[-1].blocks[0].conditions["gpus"])


def _memory(case: Case) -> Optional[float]:
    """Bytes of the smallest card; None where one does not tell."""
    facts: Optional[GpusFacts] = case.facts.get("gpus")
    readings = [gpu.any("memory_total_mib") for gpu in facts.gpus] if facts is not None else []
    known = [r.value * float(1 << 20) for r in readings if isinstance(r, Known)]
    return min(known) if known and len(known) == len(readings) else None
