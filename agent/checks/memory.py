"""The ``memory`` clauses: ``size`` is the smaller of host and cgroup, ``per_vram`` host over device memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from agent.checks._api import Case
from agent.checks._judge import compare_values, fact, unreadable, unsupported
from agent.facts.memory import MemoryFacts
from agent.grammar import Section, rate, ratio, size
from agent.model import Clause, Finding, Promise
from agent.quantity import format_quantity
from agent.reading import Known, Missing
from agent.text import Text, msg

GRAMMAR = Section(clauses={"size": size(), "per_vram": ratio(), "bandwidth": rate()})

FACTS = ("memory",)

# Firmware, the kernel and a crash kernel keep a part of what is plugged in.
FIRMWARE_SHARE = 0.03


def judge(clauses: Sequence[Clause], case: Case) -> Iterator[Finding]:
    """Facts of the host's memory."""
    for clause in clauses:
        yield _judge(clause, case.facts["memory"])


def _judge(clause: Clause, memory: MemoryFacts) -> Finding:
    if clause.name == "size":
        return fact(clause, memory.size, unit="B", compare=keeps_size, notes=_notes(memory))
    if clause.name == "per_vram":
        return unreadable(clause, Missing("unsupported", msg("GPU memory is not read in this version of accept")))
    return unsupported(clause)


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
