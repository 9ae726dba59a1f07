"""The ``storage_path`` clauses: the way between GPUs and NVMe drives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agent.checks._api import Case
from agent.checks._gpu_cards import all_cards
from agent.checks._judge import fact, unreadable, unsupported
from agent.checks._nearest import HOST, Words, nearest, refused_at
from agent.facts.gds import GdsFacts
from agent.facts.gpus import GpusFacts
from agent.facts.topology import distances
from agent.grammar import Section, distance, flag
from agent.model import Clause, Finding
from agent.reading import Known, Missing
from agent.text import msg

GRAMMAR = Section(clauses={"gpudirect": flag(), "gpu_nvme": distance()})
FACTS = ("gds", "gpus", "topology")
HIDDEN = {"vm": {"gpu_nvme": HOST}}
DRIVES = Words(
    msg("no NVMe drive is to be seen whose distance could be told"),
    lambda names, link: msg("the nearest NVMe drive is {names}, {link} away", names=names, link=link),
)


def judge(clauses: Sequence[Clause], case: Case) -> Iterator[Finding]:
    """GPUDirect Storage by its kernel module; each card's nearest drive by the PCI tree."""
    for clause in clauses:
        if clause.name == "gpudirect":
            yield _gpudirect(clause, case)
        elif clause.name == "gpu_nvme":
            yield from _gpu_nvme(clause, case)
        else:
            yield unsupported(clause)


def _gpu_nvme(clause: Clause, case: Case) -> Iterator[Finding]:
    cards = [c for c in all_cards(case) if c.answers]
    refused = refused_at(clause, case, cards)
    if refused is not None:
        yield refused
        return
    near = [d for d in distances(case.facts["gpus"], case.facts["topology"]) if d.kind == "nvme"]
    yield from nearest(clause, case, cards, near, DRIVES)


def _gpudirect(clause: Clause, case: Case) -> Finding:
    """Without the module a recent open driver may do it by PCI peer-to-peer of the kernel, which only a read shows."""
    gds: GdsFacts = case.facts["gds"]
    if isinstance(gds.loaded, Known) and gds.loaded.value:
        version = gds.version.value if isinstance(gds.version, Known) else "?"
        return fact(clause, gds.loaded, notes=(msg("nvidia_fs {version} is loaded", version=version),))
    if isinstance(gds.loaded, Missing):
        return unreadable(clause, gds.loaded)
    gpus: GpusFacts = case.facts["gpus"]
    if isinstance(gpus.kernel_module, Known) and gpus.kernel_module.value == "open":
        evidence = (*gds.loaded.evidence, *gpus.kernel_module.evidence)
        detail = msg("nvidia_fs is not loaded; the open driver may do without it, which “gdscheck -p” and a read show")
        return unreadable(clause, Missing("unsupported", detail, evidence, msg("load nvidia_fs")))
    reason = msg("nvidia_fs is not loaded: reads into GPU memory go through the host's")
    return fact(clause, gds.loaded, reason=reason)
