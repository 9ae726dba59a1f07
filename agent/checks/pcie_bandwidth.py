"""The ``pcie_bandwidth`` clauses: copies between host and device, each GPU alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from agent.bench.device_link import LINK
from agent.bench.step import Step
from agent.checks._api import Case
from agent.checks._device_memory import pcie_step
from agent.checks._judge import limit_of
from agent.checks._measured import each_gpu
from agent.grammar import Section, rate
from agent.model import Clause, Finding, Limit, Measurement, Origin

GRAMMAR = Section(clauses={"h2d": rate(auto=True, such="48 GB/s"), "d2h": rate(auto=True, such="48 GB/s")})
FACTS = ("gpus", "processes", "trade_tools")
# Of the line rate: what sound slots reach at the least. Gen3 x16 12 of 15.8 GB/s, Gen4 25 of 31.5, Gen5 55 of 63.
AUTO_SHARE = 0.75


def steps(clauses: Sequence[Clause], case: Case) -> Iterator[Step]:
    """One for all GPUs and both ways."""
    if "gpus" in case.facts:
        yield pcie_step(case)


def judge(clauses: Sequence[Clause], case: Case) -> Iterator[Finding]:
    """Each GPU by itself; without any, the clause as a whole with the reason."""
    for clause in clauses:
        for found in each_gpu(clause, case, partial(_limit, clause, case)):
            # Derived from the link, not measured by anybody: it cannot convict, agreed or not (design rule 9).
            yield replace(found, severity="advisory") if clause.promise.op == "auto" else found


def _limit(clause: Clause, case: Case, slot: str) -> Limit:
    """For ``auto`` a share of what the link carries that was seen while copies ran."""
    link = case.measured.get(f"{LINK}@{slot}")
    if clause.promise.op != "auto" or not isinstance(link, Measurement):
        return limit_of(clause)
    blocks = [b for a in link.attempts if a.void is None for b in a.blocks]
    if not blocks:
        return limit_of(clause)
    best = max(blocks, key=lambda b: b.value)
    shown = f"{AUTO_SHARE:.0%} of Gen{best.conditions['generation']} x{best.conditions['width']}"
    value = AUTO_SHARE * best.value * (1 - clause.tolerance)
    return Limit(">=", value, link.unit, clause.tolerance, Origin("topology", shown))
