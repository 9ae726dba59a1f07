"""The ``memory_bandwidth`` clauses: triad in device memory, read and write counted, each GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Optional

from agent.bench.memory_bandwidth import MemoryBandwidthStep
from agent.bench.step import Step
from agent.catalogue import Model
from agent.checks._api import Case
from agent.checks._measured import catalogue_limit, each_gpu, models
from agent.grammar import Section, rate
from agent.model import Clause, Finding, Limit
from agent.tools.worker import Device

GRAMMAR = Section(clauses={"memory_bandwidth": rate(auto=True, such="2.6 TB/s")}, bare="memory_bandwidth")
FACTS = ("gpus", "processes", "pythons")
FLOOR = "memory.triad"


def steps(clauses: Sequence[Clause], case: Case) -> Iterator[Step]:
    """One for all GPUs."""
    if "pythons" in case.facts:
        yield MemoryBandwidthStep(case.facts["pythons"].chosen, bound=partial(_bound, models(case))).step()


def _bound(known: Mapping[str, tuple[Model, ...]], device: Device) -> Optional[float]:
    """GB/s of the fastest memory that the card in this slot can have."""
    specified = [m.memory_spec_gbs.value for m in known.get(device.subject, ()) if m.memory_spec_gbs is not None]
    return max(specified, default=None)


def judge(clauses: Sequence[Clause], case: Case) -> Iterator[Finding]:
    """Each GPU by itself; without any, the clause as a whole with the reason."""
    known = models(case)
    for clause in clauses:
        yield from each_gpu(clause, case, partial(_limit, clause, known))


def _limit(clause: Clause, known: Mapping[str, tuple[Model, ...]], slot: str) -> Limit:
    return catalogue_limit(clause, known.get(slot, ()), FLOOR)
