"""The ``topology`` clauses: how GPUs, NICs and NUMA nodes hang together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

from agent.checks._api import Case
from agent.checks._gpu_cards import Card, all_cards
from agent.checks._gpu_link import off_fabric
from agent.checks._judge import finding, unreadable, unsupported
from agent.checks._nccl import expectation
from agent.checks._nearest import HOST, NEAR, Words, found_at, hypervisors_tree, kept_at, nearest, refused_at
from agent.facts.gpus import GpusFacts
from agent.facts.rdma import RdmaFacts
from agent.facts.topology import Pair, TopologyFacts, distances, pairs
from agent.grammar import Section, distance, one_of
from agent.model import Clause, Finding
from agent.reading import Known, Missing, Reading
from agent.text import Text, msg

GRAMMAR = Section(
    clauses={
        "gpu_gpu": distance("NVLink"),
        "gpu_nic": distance(),
        "numa": one_of("balanced", aliases={"均衡": "balanced"}),
    },
)

FACTS = ("gpus", "rdma", "topology")
HIDDEN = {"vm": {"gpu_gpu": HOST, "gpu_nic": HOST, "numa": HOST}}

SHOWN = 6


def judge(clauses: Sequence[Clause], case: Case) -> Iterator[Finding]:
    """Pairs for the machine as a whole; one card's own trouble is that card's."""
    for clause in clauses:
        cards = [c for c in all_cards(case) if c.answers]
        refused = refused_at(clause, case, cards)
        if refused is not None:
            yield refused
        elif clause.name == "gpu_gpu":
            yield from _gpu_gpu(clause, case, cards)
        elif clause.name == "gpu_nic":
            yield from _gpu_nic(clause, case, cards)
        elif clause.name == "numa":
            yield _numa(clause, case, cards)
        else:
            yield unsupported(clause)


# --- GPU to GPU -------------------------------------------------------------------------------------------------------


def _gpu_gpu(clause: Clause, case: Case, cards: Sequence[Card]) -> Iterator[Finding]:
    gpus: GpusFacts = case.facts["gpus"]
    topology: TopologyFacts = case.facts["topology"]
    slots = {c.slot for c in cards}
    found = [p for p in pairs(gpus, topology) if p.one in slots and p.other in slots]
    off = {c.slot: why for c in cards if (why := off_fabric(c)) is not None}
    if not found:
        yield unreadable(clause, Missing("not-there", msg("a single GPU has no other to reach")))
        return
    links = {(p.one, p.other): _link(p, off, gpus) for p in found}
    virtual = hypervisors_tree(cards)
    by_tree = any(isinstance(r, Known) and r.value != "NVLink" for r in links.values())
    if virtual is not None and by_tree and clause.promise.value != "NVLink":
        # NVLinks are the cards' own and real in a guest too; all else is what the hypervisor shows.
        yield unreadable(clause, virtual)
        return
    unknown = [r for r in links.values() if isinstance(r, Missing)]
    far = {pair for pair, r in links.items() if isinstance(r, Known) and not kept_at(clause, r.value)}
    evidence = tuple(dict.fromkeys(e for r in links.values() for e in r.evidence))
    culprits = _culprits(far, slots)
    notes = (*_summary(links), *(expectation(cards, found) if not far and not unknown else ()))
    for slot in culprits:
        own = {p for p in far if slot in p}
        why = off.get(slot)
        reason = _far(clause, own, links) if why is None else msg("{why}; {far}", why=why, far=_far(clause, own, links))
        yield found_at(clause, "fail", reason, slot, _farthest(own, links), evidence, notes)
    rest = {p for p in far if not culprits & set(p)}
    if rest:
        yield found_at(clause, "fail", _far(clause, rest, links), None, _farthest(rest, links), evidence, notes)
    elif unknown:
        yield unreadable(clause, unknown[0], notes=notes)
    elif not culprits:
        yield found_at(clause, "pass", msg("kept"), None, _farthest(set(links), links), evidence, notes)


def _link(pair: Pair, off: Mapping[str, Text], gpus: GpusFacts) -> Reading[str]:
    """NVLink where both ends have it and are on the fabric; else the PCI path, by sysfs before nvidia-smi."""
    evidence = tuple(dict.fromkeys((*pair.nvlinks.evidence, *pair.link.evidence, *gpus.pci.gpus.evidence)))
    joined = pair.one not in off and pair.other not in off
    if isinstance(pair.nvlinks, Known):
        linked = pair.nvlinks.value > 0
    else:
        linked = isinstance(pair.link, Known) and pair.link.value.startswith("NV")
    if linked and joined:
        return Known("NVLink", evidence)
    if isinstance(pair.nvlinks, Missing) and isinstance(pair.link, Missing):
        return pair.nvlinks  # an NVLink that nobody could read may be there
    if pair.computed.link is not None:
        return Known(pair.computed.link, evidence)
    if isinstance(pair.link, Known) and pair.link.value in NEAR:
        return Known(pair.link.value, evidence)
    return Missing("unsupported", pair.computed.why, evidence)


def _culprits(far: set[tuple[str, str]], slots: set[str]) -> set[str]:
    """Cards that reach nobody as promised while the others reach each other: their fault, not the machine's."""
    if len(slots) < 3:
        return set()
    lonely = {s for s in slots if sum(s in p for p in far) == len(slots) - 1}
    return lonely if len(lonely) < len(slots) - 1 else set()


def _far(clause: Clause, some: set[tuple[str, str]], links: Mapping[tuple[str, str], Reading[str]]) -> Text:
    named = [f"{a} – {b} ({r.value})" for a, b in sorted(some) if isinstance(r := links[a, b], Known)]
    shown = ", ".join(named[:SHOWN]) + (f" … ({len(named)})" if len(named) > SHOWN else "")
    return msg("promised {promised}; {pairs}", promised=clause.promise.written, pairs=shown)


def _farthest(some: set[tuple[str, str]], links: Mapping[tuple[str, str], Reading[str]]) -> str:
    known = [r.value for p in some if isinstance(r := links[p], Known)]
    return max(known, key=NEAR.index) if known else "?"


def _summary(links: Mapping[tuple[str, str], Reading[str]]) -> tuple[Text, ...]:
    counted = Counter(r.value for r in links.values() if isinstance(r, Known))
    parts = [f"{counted[word]} × {word}" for word in NEAR if counted[word]]
    return (msg("pairs of GPUs: {pairs}", pairs=", ".join(parts)),) if parts else ()


# --- GPU to NIC -------------------------------------------------------------------------------------------------------


def _gpu_nic(clause: Clause, case: Case, cards: Sequence[Card]) -> Iterator[Finding]:
    """Each card's nearest network card; where there are RDMA devices, only they count."""
    near = [d for d in distances(case.facts["gpus"], case.facts["topology"]) if d.kind == "net"]
    rdma: Optional[RdmaFacts] = case.facts.get("rdma")
    able = {h.slot for h in rdma.devices.value.values()} if rdma and isinstance(rdma.devices, Known) else set()
    words = Words(
        msg("no network card is to be seen whose distance could be told"),
        lambda names, link: msg("the nearest network card is {names}, {link} away", names=names, link=link),
    )
    yield from nearest(clause, case, cards, [d for d in near if d.device in able] or near, words)


# --- NUMA -------------------------------------------------------------------------------------------------------------


def _numa(clause: Clause, case: Case, cards: Sequence[Card]) -> Finding:
    """As many cards on each NUMA node that has any, and not all on one of several."""
    nodes = {c.slot: c.gpu.any("numa_node", "pci", "nvml") for c in cards}
    missing = next((r for r in nodes.values() if isinstance(r, Missing)), None)
    if missing is not None:
        return unreadable(clause, missing)
    counted = Counter(r.value for r in nodes.values() if isinstance(r, Known))
    evidence = tuple(dict.fromkeys(e for r in nodes.values() for e in r.evidence))
    shown = ", ".join(f"node {n}: {k} GPUs" for n, k in sorted(counted.items()))
    even = max(counted.values()) - min(counted.values()) <= len(cards) % len(counted)
    there: Reading[tuple[int, ...]] = case.facts["gpus"].pci.numa_nodes
    alone = isinstance(there, Known) and len(there.value) == 1
    balanced = even and (len(counted) > 1 or len(cards) == 1 or alone)
    reason = msg("{nodes}", nodes=shown)
    fields: dict[str, Any] = {"measured": shown, "evidence": evidence}
    if balanced:
        return finding(clause, "pass", "kept", reason, **fields)
    return finding(clause, "fail", "not-equal", reason, **fields)
