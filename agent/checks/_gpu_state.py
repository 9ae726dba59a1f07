"""Judging modes: ECC, MIG, and whether cards reach each other's memory. Pure."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from agent.checks._api import Case
from agent.checks._gpu_cards import UNCORROBORATED, Card, all_cards, nobody
from agent.checks._judge import compare_values, fact, finding, unreadable
from agent.facts.gpus import GpusFacts
from agent.model import Clause, Finding
from agent.reading import Known, Missing, Reading
from agent.text import Text, msg

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
    pairs = [(a.slot, b.slot) for a, b in combinations(cards, 2)]
    if not pairs:
        return unreadable(clause, Missing("not-there", msg("a single GPU has nobody to reach"), _evidence(facts)))
    states = {p: facts.p2p.get(p, {}).get("read") for p in pairs}
    untold = [p for p, state in states.items() if state is None or state == "U"]
    refused = {p: s for p, s in states.items() if s is not None and s not in ("OK", "U")}
    if not refused and untold:
        detail = msg("the driver does not say whether {pairs} reach each other", pairs=_names(untold))
        return unreadable(clause, Missing("unsupported", detail, _evidence(facts)))
    reachable = not refused
    return fact(
        clause,
        Known(reachable, _evidence(facts)),
        compare=compare_values,
        shown=lambda value: "all pairs" if value else f"{len(pairs) - len(refused)} of {len(pairs)} pairs",
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
