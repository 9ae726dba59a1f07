"""Judging what the cards are: model, number, memory. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Optional

from agent import catalogue as catalogues
from agent.catalogue import Catalogue, Model
from agent.checks._api import Case
from agent.checks._gpu_cards import UNCORROBORATED, Card, all_cards, nobody, uncorroborated
from agent.checks._gpu_identity import WHOLE, Identity, titles
from agent.checks._judge import compare_values, fact, finding, unreadable
from agent.facts.gpus import GpusFacts
from agent.model import Clause, Finding, Promise
from agent.quantity import convert
from agent.reading import Known, Missing, Reading
from agent.text import Text, msg

MIB = float(1 << 20)
# "80 GB", "80 GiB" and 81559 MiB are one card's memory; half or twice as much is another's.
NOMINAL = 0.12

PROFILE = "vgpu-profile"
UNKNOWN = "unknown-model"


def judge_model(clause: Clause, case: Case) -> Iterator[Finding]:
    """Every card by itself, those that are in doubt too: what contradicts is what this clause is about."""
    cards = all_cards(case)
    catalogue = catalogues.load()
    if not any(c.answers for c in cards):
        yield unreadable(clause, nobody(case))
        return
    for card in cards:
        yield _model(clause, card, catalogue) if card.answers else unreadable(clause, card.silent, card.slot)


def _model(clause: Clause, card: Card, catalogue: Catalogue) -> Finding:
    wanted = catalogue.match(str(clause.promise.value))
    identity = card.identity
    if isinstance(identity.name, Missing):
        return unreadable(clause, identity.name, card.slot)
    fields: dict[str, Any] = {
        "subject": card.slot,
        "measured": _measured(identity),
        "evidence": identity.evidence,
        "notes": _notes(identity, wanted, str(clause.promise.value)),
    }
    if identity.profile:
        why = msg("{name} is the profile of a virtual GPU: it does not tell the card", name=identity.name.value)
        grant = msg("let the vendor pass the whole card through, or show lspci -nn of the host")
        return finding(clause, "inconclusive", PROFILE, why, grant=grant, **fields)
    if identity.against:
        return _contradicted(clause, card, wanted, fields)
    if card.doubt is not None:
        fields.pop("subject")
        return uncorroborated(clause, card, card.doubt, **fields)
    return _agreed(clause, identity, wanted, fields)


def _contradicted(clause: Clause, card: Card, wanted: Sequence[Model], fields: dict[str, Any]) -> Finding:
    """Sources that share nothing say that the library's name is not true."""
    identity = card.identity
    reason = card.doubt or msg("sources disagree")
    ids = {m.id for m in wanted}
    others = [c.models & ids for c in identity.against]
    library = identity.library.models & ids if identity.library is not None else frozenset()
    nobody_says_it = wanted and not library and not any(others)
    proven = wanted and identity.falsified and not any(others)
    if nobody_says_it or proven:
        return finding(clause, "fail", "falsified" if library else "not-equal", reason, **fields)
    fields.pop("subject")
    return uncorroborated(clause, card, reason, **fields)


def _agreed(clause: Clause, identity: Identity, wanted: Sequence[Model], fields: dict[str, Any]) -> Finding:
    if not wanted:
        return _unlisted(clause, identity, fields)
    ids = {m.id for m in wanted}
    found = {m.id for m in identity.models}
    if found and not found & ids:
        return finding(clause, "fail", "not-equal", _other(clause, identity), **fields)
    if not found or identity.library is None or not identity.library.models:
        return _unnamed(clause, identity, bool(found), fields)
    if not found <= ids:
        reason = msg("the sources do not tell {models} apart", models=titles(identity.models))
        return finding(clause, "inconclusive", "ambiguous", reason, **fields)
    if not identity.agrees:
        reason = msg("only NVIDIA's own library names this card: neither PCI ids nor CUDA could be read")
        return finding(clause, "inconclusive", UNCORROBORATED, reason, grant=_CORROBORATE, **fields)
    return finding(clause, "pass", "kept", msg("kept"), **fields)


_CORROBORATE = msg("show /sys/bus/pci and the CUDA driver to this environment")


def _other(clause: Clause, identity: Identity) -> Text:
    modified = next((m for m in identity.models if m.modified), None)
    found = titles(identity.models)
    if modified is not None:
        return msg(
            "promised {promised}, found {found}: a board changed by somebody else than NVIDIA",
            promised=clause.promise.written,
            found=found,
        )
    return msg("promised {promised}, found {found}", promised=clause.promise.written, found=found)


def _unnamed(clause: Clause, identity: Identity, on_bus: bool, fields: dict[str, Any]) -> Finding:
    """The library's name is in no table; ``on_bus``: the PCI id is the promised product's."""
    pci = any(c.source == "PCI" for c in identity.neutral)
    if on_bus or not pci:
        reason = msg("the driver calls this card “{name}”, which no table knows", name=identity.product)
        return finding(clause, "inconclusive", UNKNOWN, reason, **fields)
    reason = msg("promised {promised}, found {found}", promised=clause.promise.written, found=identity.product)
    return finding(clause, "fail", "not-equal", reason, **fields)


def _unlisted(clause: Clause, identity: Identity, fields: dict[str, Any]) -> Finding:
    """The promised product is not in the catalogue: only names can be compared."""
    promised, name = str(clause.promise.value), identity.product
    if identity.models or not keeps_words(promised, name):
        reason = msg("the catalogue has no “{promised}”; the card is {found}", promised=promised, found=name)
        return finding(clause, "inconclusive", UNKNOWN, reason, **fields)
    if not identity.agrees:
        reason = msg("the driver calls it {name}; no other source names it", name=name)
        return finding(clause, "inconclusive", UNCORROBORATED, reason, **fields)
    return finding(clause, "pass", "kept", msg("kept by name: the catalogue has no such product"), **fields)


def keeps_words(promised: str, name: str) -> bool:
    """Whether the promised words make up the name, whole and in order; only the maker's may be missing."""
    wanted, found = _words(promised), _words(name)
    return wanted == found


def _words(name: str) -> list[str]:
    filler = {"nvidia", "geforce", "tesla", "graphics", "gpu"}
    return [w for w in re.findall(r"[a-z]+|\d+", name.lower()) if w not in filler]


def _measured(identity: Identity) -> str:
    known = titles(identity.models)
    return f"{identity.product} ({known})" if known and known not in identity.product else identity.product


def _notes(identity: Identity, wanted: Sequence[Model], promised: str) -> tuple[Text, ...]:
    notes = [c.said for c in (*identity.agrees, *identity.against, *identity.neutral)]
    if len(wanted) > 1:
        notes.append(msg("“{promised}” can mean {models}", promised=promised, models=titles(wanted)))
    return tuple(notes)


# --- how many ---------------------------------------------------------------------------------------------------------


def judge_count(clause: Clause, case: Case) -> Finding:
    """Cards that answer; those that only NVIDIA's library shows must not decide."""
    facts: GpusFacts = case.facts["gpus"]
    cards = all_cards(case)
    answering = [c for c in cards if c.answers]
    if not answering:
        return _none_answers(clause, case, facts)
    evidence = tuple(dict.fromkeys(e for r in facts.sources.values() for e in r.evidence))
    real = [c for c in answering if not c.off_bus]
    reason, notes = _count_reason(clause, cards, len(real)), _count_notes(cards, facts)
    independent = any(isinstance(facts.sources.get(n), Known) for n in ("pci", "proc", "cuda"))
    kept = {compare_values(clause.promise, len(some)) for some in (answering, real)}
    if independent and len(kept) == 1:
        return fact(clause, Known(len(real), evidence), reason=reason, notes=notes)
    if not independent and not all(kept):
        return fact(clause, Known(len(real), evidence), reason=reason, notes=notes)
    if not independent:
        reason = msg("only NVIDIA's own library counts the cards: neither PCI nor CUDA could be read")
    fields = {"measured": len(answering), "evidence": evidence, "notes": notes, "grant": _CORROBORATE}
    return finding(clause, "inconclusive", UNCORROBORATED, reason, **fields)


def _none_answers(clause: Clause, case: Case, facts: GpusFacts) -> Finding:
    """Fewer on the bus than promised is a fact without a driver too; as many proves nothing."""
    pci = facts.sources.get("pci")
    if isinstance(pci, Known) and pci.value and not compare_values(clause.promise, len(pci.value)):
        said = msg("{n} GPUs on the PCI bus, none of them answers", n=len(pci.value))
        return fact(clause, Known(len(pci.value), pci.evidence), reason=said)
    return unreadable(clause, nobody(case))


def _count_reason(clause: Clause, cards: Sequence[Card], real: int) -> Text:
    silent = [c for c in cards if not c.answers]
    phantom = [c for c in cards if c.off_bus]
    parts = [msg("promised {promised}, {n} answer", promised=clause.promise.written, n=real)]
    parts += [msg("{slot} is on the bus and does not answer ({why})", slot=c.slot, why=c.silent.detail) for c in silent]
    parts += [msg("{slot} is named by NVML and not on the bus", slot=c.slot) for c in phantom]
    return msg("{parts}", parts=tuple(parts))


def _count_notes(cards: Sequence[Card], facts: GpusFacts) -> tuple[Text, ...]:
    notes = [msg("slots: {slots}", slots=", ".join(c.slot for c in cards if c.answers))]
    if facts.hidden:
        hidden = ", ".join(facts.hidden)
        notes.append(msg("on the bus and not given to this container: {slots}", slots=hidden))
    notes += [msg("NVML cannot open GPU {index}: {error}", index=i, error=error) for i, error in facts.unopened]
    return tuple(notes)


# --- memory -----------------------------------------------------------------------------------------------------------


def judge_memory(clause: Clause, card: Card) -> Finding:
    """Against what a whole card of the model shows in its ECC mode, where the promise is that card's size."""
    total: Reading[float] = card.read("memory_total_mib")
    if isinstance(total, Missing):
        return unreadable(clause, total, card.slot)
    whole = _whole(card, clause.promise)
    found = Known(total.value * MIB, total.evidence)
    notes = [msg("{n} MiB", n=f"{total.value:.0f}")]
    if whole is None:
        return fact(clause, found, subject=card.slot, unit="B", notes=tuple(notes))
    notes.append(msg("a whole {model} shows {n} MiB", model=titles(card.identity.models), n=whole))
    reason = msg(
        "{found} MiB; a whole {model} shows {whole} MiB",
        found=f"{total.value:.0f}",
        model=titles(card.identity.models),
        whole=whole,
    )
    return fact(
        clause,
        found,
        subject=card.slot,
        unit="B",
        compare=lambda promise, value: total.value >= whole * WHOLE,
        reason=reason,
        notes=tuple(notes),
    )


def _whole(card: Card, promise: Promise) -> Optional[int]:
    """What a whole card shows (the weakest reading of the model); None where the promise is not its size."""
    ecc = card.read("ecc_current")
    mode = ecc.value if isinstance(ecc, Known) else None
    totals = [t for m in card.identity.models for t in (m.memory_mib(mode) or m.memory_mib(None))]
    if not totals or promise.op not in (">=", "==") or not isinstance(promise.value, (int, float)):
        return None
    bytes_promised = convert(float(promise.value), promise.unit, "B")
    nominal = any(abs(bytes_promised / (t * MIB) - 1) <= NOMINAL for t in totals)
    return min(totals) if nominal else None
