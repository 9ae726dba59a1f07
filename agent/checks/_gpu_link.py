"""Judging the links of each card: PCIe and NVLink. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Optional

from agent.checks._api import Case
from agent.checks._gpu_cards import Card, each, needs_load
from agent.checks._judge import fact, finding, unreadable
from agent.checks._link_under_load import judge_under_load
from agent.facts._source import Fabric, NvLink, first
from agent.grammar import Link, parse_link
from agent.model import Clause, Finding, Limit
from agent.reading import Known, Missing, Reading
from agent.text import Text, msg

# GB/s of one link, both directions together, by NVML's number of the NVLink version, which is not NVLink's own
# (nvmlNvlinkVersion_t: 1, 2.0, 2.2, 3.0, 3.1, 4.0, 5.0; rates from NVIDIA's datasheets: 900 GB/s of 18 links).
LINK_GBS = {1: 40.0, 2: 50.0, 3: 50.0, 4: 50.0, 5: 50.0, 6: 50.0, 7: 100.0}


GUEST = msg("lspci -vv of the host: a guest sees the hypervisor's slots, not the machine's")


# --- PCIe -------------------------------------------------------------------------------------------------------------


def judge_pcie(clause: Clause, case: Case) -> Iterator[Finding]:
    """Every card that answers."""
    yield from each(clause, case, lambda asked, card: _pcie(asked, card, case))


def _pcie(clause: Clause, card: Card, case: Case) -> Finding:
    """What card or slot can reach at most is a fact; what they run at is judged under load (design rule 7)."""
    wanted = parse_link(str(clause.promise.value))
    assert wanted is not None
    limits = {"generation": _most(card, "pcie_gen_max"), "width": _most(card, "pcie_width_max")}
    asked = {n: r for n, r in limits.items() if getattr(wanted, n) is not None}
    notes = (*_slot_or_card(card), *_now(card))
    known = {n: r for n, r in asked.items() if isinstance(r, Known)}
    short = {n: r for n, r in known.items() if r.value < getattr(wanted, n)}
    most = _link(limits)
    evidence = tuple(dict.fromkeys(e for r in asked.values() for e in r.evidence))
    fields: dict[str, Any] = {"subject": card.slot, "evidence": evidence, "notes": notes}
    guest = is_guest(card)
    if short and guest:
        return _of_the_hypervisor(clause, card, str(most), evidence)
    if short:
        reason = msg("card and slot reach {most} at most, promised {wanted}", most=str(most), wanted=str(wanted))
        limit = Limit(clause.promise.op, str(wanted), "")
        return finding(clause, "fail", "below-limit", reason, measured=str(most), limit=limit, **fields)
    under_load = judge_under_load(clause, case, card.slot, wanted, fields)
    if under_load is not None and under_load.outcome == "fail" and guest:
        return _of_the_hypervisor(clause, card, str(under_load.measured), under_load.evidence)
    if under_load is not None:
        return under_load
    if len(known) < len(asked):
        missing = next(r for r in asked.values() if isinstance(r, Missing))
        return unreadable(clause, missing, card.slot, notes=notes)
    reason = msg("card and slot can reach {most}; what they run at is judged under load", most=str(most))
    return needs_load(clause, card, reason, evidence=evidence, notes=notes)


def is_guest(card: Card) -> bool:
    """Whether the driver says that it runs in a virtual machine, where PCIe is what the hypervisor shows."""
    mode = card.read("virtualization_mode")
    return isinstance(mode, Known) and mode.value in ("passthrough", "vgpu")


def _of_the_hypervisor(clause: Clause, card: Card, found: str, evidence: tuple[str, ...]) -> Finding:
    detail = msg("the link reads {found}, but in a virtual machine that is the hypervisor's slot", found=found)
    return unreadable(clause, Missing("unsupported", detail, evidence, GUEST), card.slot)


def _most(card: Card, name: str) -> Reading[int]:
    """The library knows card and slot together, sysfs the card alone: the smaller one holds."""
    readings = [card.read(name), card.gpu.pci.get(name)]
    known = [r for r in readings if isinstance(r, Known)]
    if not known:
        return readings[0]
    evidence = tuple(dict.fromkeys(e for r in known for e in r.evidence))
    return Known(min(int(r.value) for r in known), evidence)


def _link(limits: dict[str, Reading[int]]) -> Link:
    values = {n: r.value if isinstance(r, Known) else None for n, r in limits.items()}
    return Link(values["generation"], values["width"])


def _slot_or_card(card: Card) -> tuple[Text, ...]:
    together, alone = card.read("pcie_gen_max"), card.read("pcie_gen_device_max")
    if isinstance(together, Known) and isinstance(alone, Known) and together.value < alone.value:
        return (msg("the card alone can do Gen{n}: the slot, riser or host is the limit", n=alone.value),)
    return ()


def _now(card: Card) -> tuple[Text, ...]:
    sources = [*card.library, card.gpu.pci]
    generation, width = first("pcie_gen_current", sources), first("pcie_width_current", sources)
    if not isinstance(generation, Known) or not isinstance(width, Known):
        return ()
    now = Link(generation.value, width.value)
    return (msg("at rest {now}: links slow down to save power, so this is not judged", now=str(now)),)


# --- NVLink -----------------------------------------------------------------------------------------------------------


def judge_nvlink(clause: Clause, card: Card) -> Finding:
    """Active links, as a number or as GB/s of both directions together."""
    links = _links(card)
    if isinstance(links, Missing):
        return unreadable(clause, links, card.slot)
    active = [n for n in links.value if n.active]
    unknown = [n for n in links.value if n.active is None]
    evidence = tuple(dict.fromkeys((*links.evidence, *card.read("fabric").evidence)))
    if unknown:
        detail = msg("the driver does not tell the state of {n} links", n=len(unknown))
        return unreadable(clause, Missing("unsupported", detail, evidence), card.slot)
    if clause.promise.value == "none":
        return _no_link(clause, card, len(active), evidence)
    reason, notes = _short(clause, card, links.value, active), _link_notes(card, links.value)
    if clause.promise.unit == "links":
        reading: Reading[Any] = Known(float(len(active)), evidence)
        return _together(clause, card, fact(clause, reading, subject=card.slot, reason=reason, notes=notes))
    per_link = _per_link(card, links.value)
    if active and per_link is None:
        detail = msg("{n} links are active; how fast one is, neither driver nor catalogue tells", n=len(active))
        return unreadable(clause, Missing("unsupported", detail, evidence), card.slot)
    total = Known(len(active) * (per_link or 0.0), evidence)
    return _together(clause, card, fact(clause, total, subject=card.slot, unit="GB/s", reason=reason, notes=notes))


def _links(card: Card) -> Reading[tuple[NvLink, ...]]:
    """A model that is built without NVLink has none, provided that it is that model beyond doubt."""
    links = card.read("nvlinks")
    built = [m.nvlink.links for m in card.identity.models]
    if (
        isinstance(links, Missing)
        and links.kind == "unsupported"
        and card.identity.agrees
        and built == [0] * len(built)
    ):
        return Known((), card.identity.evidence) if built else links
    return links


def _together(clause: Clause, card: Card, found: Finding) -> Finding:
    """Links that are up and a fabric that is not: the card has no NVLink that a program could use."""
    state = off_fabric(card)
    if found.outcome != "pass" or state is None:
        return found
    fields = {"measured": found.measured, "unit": found.unit, "limit": found.limit, "notes": found.notes}
    return finding(clause, "fail", "off-fabric", state, subject=card.slot, evidence=found.evidence, **fields)


def _no_link(clause: Clause, card: Card, active: int, evidence: tuple[str, ...]) -> Finding:
    if active:
        reason = msg("promised none, {n} links are active", n=active)
        return finding(clause, "fail", "not-equal", reason, subject=card.slot, measured=active, evidence=evidence)
    return finding(clause, "pass", "kept", msg("kept"), subject=card.slot, measured=0, evidence=evidence)


def _per_link(card: Card, links: tuple[NvLink, ...]) -> Optional[float]:
    model = card.model
    if model is not None and model.nvlink.links:
        return model.nvlink.total_gbs / model.nvlink.links
    return next((LINK_GBS[n.version] for n in links if n.version in LINK_GBS), None)


def _short(clause: Clause, card: Card, links: tuple[NvLink, ...], active: list[NvLink]) -> Text:
    promised = clause.promise.written
    if not links:
        return msg("promised {promised}; this card has no NVLink", promised=promised)
    down = [str(n.link) for n in links if not n.active]
    if down:
        return msg(
            "promised {promised}; {n} of {all} links are active, down: {down}",
            promised=promised,
            n=len(active),
            all=len(links),
            down=", ".join(down),
        )
    return msg("promised {promised}; the card has {n} links, all active", promised=promised, n=len(links))


def _link_notes(card: Card, links: tuple[NvLink, ...]) -> tuple[Text, ...]:
    notes = []
    model = card.model
    if model is not None and model.nvlink.links:
        notes.append(msg("{model} has {n} links by design", model=model.title, n=model.nvlink.links))
    errors: dict[str, int] = {}
    for link in links:
        for name, count in link.errors.items():
            errors[name] = errors.get(name, 0) + count
    counted = ", ".join(f"{name} {count}" for name, count in sorted(errors.items()) if count)
    if counted:
        notes.append(msg("error counters of the links: {errors}", errors=counted))
    return tuple(notes)


def off_fabric(card: Card) -> Optional[Text]:
    """Why this card is not on the NVSwitch fabric; None where it is, or has none, or nobody can tell."""
    reading = card.read("fabric")
    if isinstance(reading, Missing):
        return None
    fabric: Fabric = reading.value
    if fabric.state == "not-supported":
        return None
    if fabric.state != "completed":
        return msg("the card has not joined the NVLink fabric: {state}", state=fabric.state)
    if fabric.status not in (None, "NVML_SUCCESS", "Success"):
        return msg("joining the NVLink fabric ended with {status}", status=fabric.status)
    if fabric.health == "unhealthy":
        return msg("the driver calls the NVLink fabric of this card unhealthy")
    return None
