"""Judging modes: ECC, MIG, and whether cards reach each other's memory. Pure."""

from __future__ import annotations

from typing import Any

from agent.checks._api import Case
from agent.checks._gpu_cards import UNCORROBORATED, Card, all_cards, nobody
from agent.checks._judge import compare_values, fact, finding, unreadable
from agent.facts.gpus import GpusFacts
from agent.facts.topology import pairs
from agent.model import Clause, Finding
from agent.reading import Known, Missing, Reading
from agent.text import Text, msg

OPEN = ("OK", "U")
# What nvidia-smi topo -p2p prints, in words.
STATES = {
    "CNS": msg("the chipset does not support it"),
    "GNS": msg("the GPU does not support it"),
    "TNS": msg("the topology does not support it"),
    "DR": msg("disabled by a driver setting"),
    "NS": msg("not supported"),
    "U": msg("unknown"),
}


def judge_ecc(clause: Clause, card: Card) -> Finding:
    """The mode in force now; a pending change takes effect at the next reset."""
    return fact(clause, card.read("ecc_current"), subject=card.slot, shown=_on, notes=_pending(card, "ecc"))


def judge_mig(clause: Clause, card: Card) -> Finding:
    """A model that cannot be partitioned keeps a promise of no partition."""
    mode = whole(card)
    notes = _pending(card, "mig")
    if isinstance(mode, Known) and isinstance(card.read("mig_current"), Missing):
        notes = (msg("this model cannot be partitioned"),)
    return fact(clause, mode, subject=card.slot, shown=_on, notes=notes)


def whole(card: Card) -> Reading[bool]:
    """Whether MIG is on. A model without MIG is never partitioned, provided that it is that model beyond doubt."""
    mode = card.read("mig_current")
    sure = card.identity.agrees and card.identity.models and not any(m.mig for m in card.identity.models)
    if isinstance(mode, Missing) and mode.kind == "unsupported" and sure:
        return Known(False, card.identity.evidence)
    return mode


def _on(value: Any) -> str:
    return "on" if value else "off"


def _pending(card: Card, name: str) -> tuple[Text, ...]:
    now, later = card.read(f"{name}_current"), card.read(f"{name}_pending")
    if isinstance(now, Known) and isinstance(later, Known) and now.value != later.value:
        return (msg("{mode} after the next reset", mode=_on(later.value)),)
    return ()


def judge_p2p(clause: Clause, case: Case) -> Finding:
    """Every pair of cards that answer, reading each other's memory, as the driver says; the copies come later."""
    facts: GpusFacts = case.facts["gpus"]
    cards = [c for c in all_cards(case) if c.answers]
    if not cards:
        return unreadable(clause, nobody(case))
    doubt = next((c for c in cards if c.doubt is not None), None)
    if doubt is not None and doubt.doubt is not None:
        return finding(clause, "inconclusive", UNCORROBORATED, doubt.doubt, evidence=doubt.doubt_evidence)
    slots = {c.slot for c in cards}
    found = [p for p in pairs(facts, case.facts["topology"]) if p.one in slots and p.other in slots]
    if not found:
        return unreadable(clause, Missing("not-there", msg("a single GPU has nobody to reach"), _evidence(facts)))
    untold = [p for p in found if isinstance(p.p2p, Missing) or p.p2p.value == "U"]
    refused = {(p.one, p.other): p.p2p.value for p in found if isinstance(p.p2p, Known) and p.p2p.value not in OPEN}
    evidence = tuple(dict.fromkeys(e for p in found for e in p.p2p.evidence))
    if not refused and untold:
        named = _names([(p.one, p.other) for p in untold])
        detail = msg("the driver does not say whether {pairs} reach each other", pairs=named)
        return unreadable(clause, Missing("unsupported", detail, evidence))
    reachable = not refused
    return fact(
        clause,
        Known(reachable, evidence),
        compare=compare_values,
        shown=lambda value: "all pairs" if value else f"{len(found) - len(refused)} of {len(found)} pairs",
        reason=_refusals(refused) if refused else None,
        notes=_patched(cards, reachable),
    )


def _refusals(refused: dict[tuple[str, str], str]) -> Text:
    why = tuple(STATES.get(s, msg("{state}", state=s)) for s in dict.fromkeys(refused.values()))
    return msg("no peer access between {pairs}: {why}", pairs=_names(list(refused)), why=why)


def _names(pairs: list[tuple[str, str]]) -> str:
    shown = ", ".join(f"{a} – {b}" for a, b in pairs[:6])
    return shown if len(pairs) <= 6 else f"{shown} … ({len(pairs)})"


def _patched(cards: list[Card], reachable: bool) -> tuple[Text, ...]:
    if not has_patched_peers(cards, reachable):
        return ()
    return (msg("NVIDIA's own driver has no peer access for this model: this driver has been changed"),)


def has_patched_peers(cards: list[Card], reachable: bool) -> bool:
    """Whether cards reach each other that NVIDIA's own driver keeps apart."""
    unlinked = all(c.model is not None and c.model.p2p_pcie is False and not c.model.nvlink.links for c in cards)
    return reachable and len(cards) > 1 and unlinked


def _evidence(facts: GpusFacts) -> tuple[str, ...]:
    listed = facts.sources.get("nvml")
    return listed.evidence if listed is not None else ()
