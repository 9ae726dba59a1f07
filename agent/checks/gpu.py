"""The ``gpu`` clauses: identity, state and condition of the cards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from agent.bench.clocks import ClocksStep
from agent.bench.step import Step
from agent.checks._api import Case
from agent.checks._device_memory import pcie_step
from agent.checks._gpu_cards import JudgeCard, each
from agent.checks._gpu_driver import judge_cuda, judge_driver
from agent.checks._gpu_faults import judge_xid
from agent.checks._gpu_link import GUEST, judge_nvlink, judge_pcie
from agent.checks._gpu_model import judge_count, judge_memory, judge_model
from agent.checks._gpu_power import judge_clocks, judge_power
from agent.checks._gpu_sharing import judge_whole
from agent.checks._gpu_state import judge_ecc, judge_mig, judge_p2p
from agent.checks._gpu_wear import judge_condition
from agent.checks._judge import unsupported
from agent.checks._measured import load_dtype
from agent.grammar import Section, count, flag, link, model_name, one_of, power, rate, size, version
from agent.model import Clause, Finding
from agent.text import msg

GRAMMAR = Section(
    clauses={
        "model": model_name(),
        "count": count(),
        "memory": size(),
        "driver": version(),
        "cuda": version(),
        "ecc": flag(),
        "mig": flag(),
        "whole_card": flag(),
        "power_limit": power(words={"default": "default", "默认": "default"}),
        "clocks": one_of("unlocked", aliases={"未锁": "unlocked", "不锁频": "unlocked"}),
        "pcie": link(),
        "nvlink": rate(measured=False, such="900 GB/s", also=("links",), words={"none": "none", "无": "none"}),
        "p2p": flag(),
        "condition": one_of("new", aliases={"全新": "new"}),
        "xid": one_of("none", aliases={"无": "none", "0": "none"}),
    },
)

FACTS = ("gpus", "gpu_share", "kernel_log", "processes", "topology")
_LOG = msg("root, or the output of dmesg from the vendor's root: the kernel log holds the cards' faults")
FACTS_OF = {"clocks": ("pythons",), "pcie": ("trade_tools",)}
NEEDS_ROOT = {"xid": _LOG}
HIDDEN = {
    "container": {"xid": _LOG},
    "vm": {"pcie": GUEST},
}

# Clauses about each card by itself, about the machine, and about each card but in its own way.
OF_CARD: Mapping[str, JudgeCard] = {
    "memory": judge_memory,
    "ecc": judge_ecc,
    "mig": judge_mig,
    "power_limit": judge_power,
    "nvlink": judge_nvlink,
}
OF_MACHINE: Mapping[str, Callable[[Clause, Case], Finding]] = {
    "count": judge_count,
    "driver": judge_driver,
    "cuda": judge_cuda,
    "p2p": judge_p2p,
}
OF_CARDS: Mapping[str, Callable[[Clause, Case], Iterator[Finding]]] = {
    "model": judge_model,
    "condition": judge_condition,
    "pcie": judge_pcie,
    "clocks": judge_clocks,
    "whole_card": judge_whole,
    "xid": judge_xid,
}


def steps(clauses: Sequence[Clause], case: Case) -> Iterator[Step]:
    """The link and what holds clocks down show under load only; all else is read."""
    if "gpus" in case.facts and any(c.name == "pcie" for c in clauses):
        yield pcie_step(case)
    if "pythons" in case.facts and any(c.name == "clocks" for c in clauses):
        yield ClocksStep(case.facts["pythons"].chosen, load_dtype(case)).step()


def judge(clauses: Sequence[Clause], case: Case) -> Iterator[Finding]:
    """Findings a card, under its PCI slot; one finding for what the machine has as a whole."""
    for clause in clauses:
        if clause.name in OF_CARD:
            yield from each(clause, case, OF_CARD[clause.name])
        elif clause.name in OF_MACHINE:
            yield OF_MACHINE[clause.name](clause, case)
        elif clause.name in OF_CARDS:
            yield from OF_CARDS[clause.name](clause, case)
        else:
            yield unsupported(clause)
