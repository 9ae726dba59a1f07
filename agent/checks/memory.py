"""The ``memory`` clauses: ``size`` is the smaller of host and cgroup, ``per_vram`` host over device memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from agent.bench.cpu_memory_bandwidth import CpuMemoryBandwidthStep
from agent.bench.step import Step
from agent.checks._api import Case
from agent.checks._gpu_cards import UNCORROBORATED, all_cards, nobody
from agent.checks._judge import compare_values, fact, finding, rate, unreadable
from agent.checks._measured import wrong_result
from agent.facts.memory import MemoryFacts
from agent.grammar import Section, ratio, size
from agent.grammar import rate as rate_kind
from agent.model import Clause, Finding, Promise
from agent.quantity import format_quantity
from agent.reading import Known, Missing
from agent.text import Text, msg

GRAMMAR = Section(clauses={"size": size(such="512 GB"), "per_vram": ratio(), "bandwidth": rate_kind(such="200 GB/s")})

FACTS = ("gpus", "memory")
FACTS_OF = {"bandwidth": ("pythons",)}

# Firmware, the kernel and a crash kernel keep a part of what is plugged in.
FIRMWARE_SHARE = 0.03


def steps(clauses: Sequence[Clause], case: Case) -> Iterator[Step]:
    """The triad, where the bandwidth is promised."""
    if any(c.name == "bandwidth" for c in clauses) and "pythons" in case.facts:
        yield CpuMemoryBandwidthStep(case.facts["pythons"].chosen).step()


def judge(clauses: Sequence[Clause], case: Case) -> Iterator[Finding]:
    """Facts of the host's memory, and its measured rate."""
    for clause in clauses:
        if clause.name == "bandwidth":
            yield wrong_result(rate(clause, case), case)
        else:
            yield _judge(clause, case.facts["memory"], case)


def _judge(clause: Clause, memory: MemoryFacts, case: Case) -> Finding:
    if clause.name == "size":
        return fact(clause, memory.size, unit="B", compare=keeps_size, notes=_notes(memory))
    return _per_vram(clause, memory, case)


def _per_vram(clause: Clause, memory: MemoryFacts, case: Case) -> Finding:
    """Bytes of the host's memory for each byte of the memory of all GPUs that answer."""
    cards = [c for c in all_cards(case) if c.answers]
    if not cards:
        return unreadable(clause, nobody(case))
    doubted = next((c for c in cards if c.doubt is not None), None)
    if doubted is not None and doubted.doubt is not None:
        return finding(clause, "inconclusive", UNCORROBORATED, doubted.doubt, evidence=doubted.doubt_evidence)
    totals = [c.read("memory_total_mib") for c in cards]
    missing = next((r for r in (memory.size, *totals) if isinstance(r, Missing)), None)
    if missing is not None:
        return unreadable(clause, missing)
    known = [r for r in totals if isinstance(r, Known)]
    of_gpus = sum(r.value for r in known) * float(1 << 20)
    size = memory.size.value if isinstance(memory.size, Known) else 0
    evidence = tuple(dict.fromkeys((*memory.size.evidence, *(e for r in known for e in r.evidence))))
    notes = (
        *_notes(memory),
        msg("{n} GPUs have {size} together", n=len(cards), size=format_quantity(of_gpus, "B")),
    )
    return fact(clause, Known(size / of_gpus, evidence), compare=keeps_size, notes=notes)


def keeps_size(promise: Promise, value: Any) -> bool:
    """Whether what this process may use, and what firmware keeps of it, come to the promise."""
    if promise.op == "<=":
        return compare_values(promise, value)
    return bool(value >= _lowest(promise) * (1 - FIRMWARE_SHARE)) and not _above_range(promise, value)


def _lowest(promise: Promise) -> float:
    return float(min(promise.value)) if isinstance(promise.value, (tuple, list)) else float(promise.value)


def _above_range(promise: Promise, value: float) -> bool:
    return promise.op == "range" and value > max(promise.value)


def _notes(memory: MemoryFacts) -> tuple[Text, ...]:
    notes = [msg("3 % less than promised is accepted: firmware and kernel keep a part")]
    if isinstance(memory.total, Known):
        notes.append(msg("the host has {size}", size=format_quantity(float(memory.total.value), "B")))
    if isinstance(memory.limit, Known) and memory.limit.value is not None:
        notes.append(msg("the control group allows {size}", size=format_quantity(float(memory.limit.value), "B")))
    return tuple(notes)
