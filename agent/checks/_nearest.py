"""How far apart two devices are on the PCI bus, against a promised distance."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from agent.checks._api import Case
from agent.checks._gpu_cards import UNCORROBORATED, Card, nobody
from agent.checks._judge import finding, unreadable
from agent.facts.gpus import GpusFacts
from agent.facts.topology import Distance
from agent.model import Clause, Finding, Limit
from agent.reading import Known, Missing
from agent.text import Text, msg

HOST = msg("nvidia-smi topo -m and lspci -tv of the host: a guest sees the hypervisor's tree, not the machine's")
NEAR = ("NVLink", "PIX", "PXB", "PHB", "NODE", "SYS")  # nearest first


@dataclass(frozen=True)
class Words:
    """Sentences about one kind of device: that there is none, and which is the nearest (its names, the distance)."""

    none: Text
    nearest: Callable[[str, str], Text]


def refused_at(clause: Clause, case: Case, cards: Sequence[Card]) -> Optional[Finding]:
    """Why nothing can be said of this machine's PCI tree at all."""
    if not cards:
        return unreadable(clause, nobody(case))
    doubted = next((c for c in cards if c.doubt is not None), None)
    if doubted is not None and doubted.doubt is not None:
        return finding(clause, "inconclusive", UNCORROBORATED, doubted.doubt, evidence=doubted.doubt_evidence)
    virtual = hypervisors_tree(cards)
    return unreadable(clause, virtual) if virtual is not None and clause.name != "gpu_gpu" else None


def hypervisors_tree(cards: Sequence[Card]) -> Optional[Missing]:
    """Why the PCI tree says nothing of the machine below; None where the driver does not run in a guest."""
    guests = [m for c in cards if isinstance(m := c.read("virtualization_mode"), Known) and m.value != "none"]
    if not guests:
        return None
    detail = msg("in a virtual machine the PCI tree and the NUMA nodes are the hypervisor's")
    return Missing("unsupported", detail, guests[0].evidence, HOST)


def nearest(
    clause: Clause, case: Case, cards: Sequence[Card], near: Sequence[Distance], words: Words
) -> Iterator[Finding]:
    """Each card's nearest device among ``near``."""
    gpus: GpusFacts = case.facts["gpus"]
    for card in cards:
        mine = {d: link for d in near if d.gpu == card.slot and (link := _distance(d)) is not None}
        evidence = tuple(dict.fromkeys((*gpus.pci.gpus.evidence, *(e for d in mine for e in d.link.evidence))))
        if not mine:
            yield unreadable(clause, Missing("not-there", words.none, evidence), card.slot)
            continue
        device, link = min(mine.items(), key=lambda item: NEAR.index(item[1]))
        names = ", ".join(device.names)
        reason = words.nearest(names, link)
        notes = (msg("{names}: {link}, {why}", names=names, link=link, why=device.computed.why),)
        outcome = "pass" if kept_at(clause, link) else "fail"
        yield found_at(clause, outcome, reason, card.slot, link, evidence, notes)


def _distance(found: Distance) -> Optional[str]:
    if found.computed.link is not None:
        return found.computed.link
    return found.link.value if isinstance(found.link, Known) and found.link.value in NEAR else None


def kept_at(clause: Clause, link: str) -> bool:
    """Whether a distance is the promised one, or as near."""
    wanted = str(clause.promise.value)
    return link == wanted if clause.promise.op == "==" else NEAR.index(link) <= NEAR.index(wanted)


def found_at(
    clause: Clause,
    outcome: Any,
    reason: Text,
    slot: Optional[str],
    measured: Any,
    evidence: tuple[str, ...],
    notes: tuple[Text, ...],
) -> Finding:
    """A finding on a distance in nvidia-smi's words."""
    code = "kept" if outcome == "pass" else "above-limit"
    limit = Limit(clause.promise.op, clause.promise.value, "")
    fields = {"subject": slot, "measured": measured, "limit": limit, "evidence": evidence, "notes": notes}
    return finding(clause, outcome, code, reason, **fields)
