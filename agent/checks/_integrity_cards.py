"""Whether the cards are what they say, alike, and in order. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent.checks._api import Case
from agent.checks._gpu_cards import Card, nobody
from agent.checks._gpu_identity import titles
from agent.checks._gpu_link import off_fabric
from agent.checks._gpu_power import HELD, low_default
from agent.checks._gpu_state import has_patched_peers
from agent.checks._gpu_wear import odd_one, signs
from agent.checks._looked import Bad, Looked, asked
from agent.facts.gpus import GpusFacts
from agent.model import Severity
from agent.reading import Known, Missing
from agent.text import Text, msg

# Names of boards and chips in the place of a product's; GH200, GB200 and GB300 are products.
SAMPLE = re.compile(
    r"engineering|qualification|\bNVIDIA (?:PG|GA|AD|GH(?!200)|GB(?!200|300))\d{3}\b(?! Laptop)", re.IGNORECASE
)
NAMELESS = re.compile(r"\bgraphics device\b", re.IGNORECASE)


def identity(case: Case, cards: Sequence[Card], facts: GpusFacts) -> Looked:
    """Independent sources on what each card is."""
    bad = []
    for card in cards:
        identity = card.identity
        if identity.against and card.doubt is not None:
            severity: Severity = "breach" if identity.falsified else "advisory"
            code = "falsified" if identity.falsified else "not-corroborated"
            bad.append(Bad(card.slot, code, card.doubt, identity.evidence, severity, identity.product))
        elif card.disagreements and card.doubt is not None:
            bad.append(Bad(card.slot, "not-corroborated", card.doubt, card.doubt_evidence))
    agreeing = sorted({c.source for card in cards for c in card.identity.agrees})
    if not bad and not agreeing:
        if not any(c.answers for c in cards):
            return Looked(unknown=nobody(case))
        return Looked(unknown=Missing("unsupported", msg("no source besides NVIDIA's own library names the cards")))
    evidence = tuple(dict.fromkeys(e for c in cards for e in c.identity.evidence))
    return Looked(
        tuple(bad), msg("{sources} agree with NVML on every card", sources=", ".join(agreeing)), None, evidence
    )


def bus(case: Case, cards: Sequence[Card], facts: GpusFacts) -> Looked:
    """What the PCI bus lists and what NVML lists are the same cards."""
    listed = facts.sources["pci"]
    if isinstance(listed, Missing):
        return Looked(unknown=listed)
    if cards and not any(c.answers for c in cards):
        reason = msg("{n} GPUs on the PCI bus: {why}", n=len(listed.value), why=nobody(case).detail)
        evidence = tuple(dict.fromkeys((*listed.evidence, *nobody(case).evidence)))
        return Looked((Bad(None, "does-not-answer", reason, evidence, measured=0),) if listed.value else ())
    bad = []
    for card in cards:
        if card.off_bus:
            reason = msg("NVML has a GPU in {slot}, the PCI bus has none there", slot=card.slot)
            alone = (
                not card.gpu.proc.there and not card.gpu.cuda.there and _lists(facts, "proc") and _lists(facts, "cuda")
            )
            severity: Severity = "breach" if alone else "advisory"
            bad.append(Bad(card.slot, "not-on-bus", reason, listed.evidence, severity))
        elif not card.answers:
            dead = card.gpu.pci.get("dead")
            gone = isinstance(dead, Known) and dead.value
            why = msg("its registers read all ones") if gone else card.silent.detail
            reason = msg("{slot} is on the PCI bus and does not answer: {why}", slot=card.slot, why=why)
            evidence = tuple(dict.fromkeys((*listed.evidence, *card.silent.evidence)))
            bad.append(Bad(card.slot, "does-not-answer", reason, evidence))
    fine = msg("{n} GPUs on the PCI bus, all of them answer", n=len(listed.value) - len(facts.hidden))
    return Looked(tuple(bad), fine, None, listed.evidence)


def _lists(facts: GpusFacts, source: str) -> bool:
    listed = facts.sources.get(source)
    return isinstance(listed, Known) and bool(listed.value)


def mixed(case: Case, cards: Sequence[Card], facts: GpusFacts) -> Looked:
    """Cards of one machine that are not of one lot."""
    answering = [c for c in cards if c.answers]
    if len(answering) < 2:
        return Looked()
    bad = [
        Bad(c.slot, "differs", msg("{signs}", signs=tuple(s.said for s in odd)), odd[0].evidence)
        for c in answering
        if (odd := odd_one(c, answering))
    ]
    names = {n.value for c in answering for n in (c.identity.name,) if isinstance(n, Known)}
    evidence = tuple(dict.fromkeys(e for c in answering for e in c.identity.name.evidence))
    if len(names) > 1:
        reason = msg("the cards of this machine are of several models: {names}", names=", ".join(sorted(names)))
        bad.append(Bad(None, "differs", reason, evidence))
    return Looked(tuple(bad), msg("all cards are of one model, with one VBIOS and one board part"), None, evidence)


def samples(case: Case, cards: Sequence[Card], facts: GpusFacts) -> Looked:
    """Parts that were never sold, and boards changed after they were."""
    bad = []
    for card in cards:
        name = card.identity.name
        if isinstance(name, Known) and SAMPLE.search(name.value):
            reason = msg("the card calls itself “{name}”, as parts that were never sold do", name=name.value)
            bad.append(Bad(card.slot, "engineering-sample", reason, name.evidence, measured=name.value))
        elif isinstance(name, Known) and NAMELESS.search(name.value):
            reason = msg(
                "the driver has no name for this card (“{name}”): it is older than the card, or that was never sold",
                name=name.value,
            )
            bad.append(Bad(card.slot, "nameless", reason, name.evidence, measured=name.value))
        elif any(m.modified for m in card.identity.models):
            found = titles(card.identity.models)
            reason = msg("{found}: a board that somebody else than NVIDIA has changed", found=found)
            bad.append(Bad(card.slot, "modified", reason, card.identity.evidence, measured=found))
    named = any(isinstance(c.identity.name, Known) for c in cards)
    fine = msg("no card calls itself a sample or shows a changed board") if named else None
    evidence = tuple(dict.fromkeys(e for c in cards for e in c.identity.name.evidence))
    return Looked(tuple(bad), fine, None, evidence)


def wear(case: Case, cards: Sequence[Card], facts: GpusFacts) -> Looked:
    """Used is not broken; where the contract says new, that clause decides."""
    if asked(case, "gpu.condition"):
        return Looked()
    bad = []
    for card in cards:
        worn = signs(card)
        if worn:
            evidence = tuple(dict.fromkeys(e for s in worn for e in s.evidence))
            bad.append(Bad(card.slot, "worn", msg("{signs}", signs=tuple(s.said for s in worn)), evidence))
    return Looked(tuple(bad))


def recovery(case: Case, cards: Sequence[Card], facts: GpusFacts) -> Looked:
    """The driver asks for a reset or a reboot."""
    bad = []
    for card in cards:
        action = card.read("recovery_action")
        if isinstance(action, Known) and action.value != "none":
            reason = msg("the driver asks for this to get the card right again: {action}", action=action.value)
            bad.append(Bad(card.slot, "needs-recovery", reason, action.evidence, measured=action.value))
    return Looked(tuple(bad))


def power_default(case: Case, cards: Sequence[Card], facts: GpusFacts) -> Looked:
    """Default limits below what the model ships with."""
    bad = []
    for card in cards:
        low = low_default(card)
        if low is not None:
            default, model, why = low
            reason = msg(
                "the default power limit is {found} W; {model} has {usual} W: {why}",
                found=f"{default.value:g}",
                model=model.title,
                usual=f"{model.power_default_w.value:g}",
                why=why,
            )
            bad.append(Bad(card.slot, "below-catalogue", reason, default.evidence, measured=default.value))
    return Looked(tuple(bad))


def pcie_width(case: Case, cards: Sequence[Card], facts: GpusFacts) -> Looked:
    """Width does not change at rest as the generation does; x8 by design is the same for every card."""
    found: dict[str, tuple[int, tuple[str, ...]]] = {}
    for card in cards:
        width = card.gpu.any("pcie_width_current", "nvml", "smi", "pci")
        if isinstance(width, Known):
            found[card.slot] = (int(width.value), width.evidence)
    most = max((w for w, _ in found.values()), default=0)
    bad = [
        Bad(slot, "narrower", _narrow(width, most), evidence, measured=f"x{width}")
        for slot, (width, evidence) in found.items()
        if width < most
    ]
    return Looked(tuple(bad))


def _narrow(width: int, most: int) -> Text:
    return msg("the PCIe link runs with x{width}, those of its siblings with x{most}", width=width, most=most)


def throttled(case: Case, cards: Sequence[Card], facts: GpusFacts) -> Looked:
    """Slowed down before any load of ours."""
    bad = []
    for card in cards:
        bits = card.read("throttle")
        if isinstance(bits, Known):
            why = tuple(text for bit, text in HELD.items() if bits.value & bit)
            if why:
                reason = msg("slowed down at rest: {why}", why=why)
                bad.append(Bad(card.slot, "throttled", reason, bits.evidence, measured=hex(bits.value)))
    return Looked(tuple(bad))


def fabric(case: Case, cards: Sequence[Card], facts: GpusFacts) -> Looked:
    """Cards off the NVSwitch fabric; where NVLink is promised, that clause decides."""
    if asked(case, "gpu.nvlink"):
        return Looked()
    bad = []
    for card in cards:
        state = off_fabric(card)
        if state is not None:
            bad.append(Bad(card.slot, "off-fabric", state, card.read("fabric").evidence))
    return Looked(tuple(bad))


def patched(case: Case, cards: Sequence[Card], facts: GpusFacts) -> Looked:
    """Peer access that NVIDIA's own driver does not have."""
    reachable = [pair for pair, states in facts.p2p.items() if states.get("read") == "OK"]
    if not has_patched_peers([c for c in cards if c.answers], bool(reachable)):
        return Looked()
    reason = msg(
        "these cards reach each other's memory, which NVIDIA's own driver does not do for this model: "
        "the driver has been changed by somebody, and updates will not fit it"
    )
    evidence = facts.sources["nvml"].evidence
    return Looked((Bad(None, "patched-driver", reason, evidence),))


def virtual(case: Case, cards: Sequence[Card], facts: GpusFacts) -> Looked:
    """A guest where bare metal is promised."""
    if case.contract.access.kind != "bare-metal":
        return Looked()
    bad = []
    for card in cards:
        mode = card.read("virtualization_mode")
        if isinstance(mode, Known) and mode.value in ("passthrough", "vgpu"):
            reason = msg("promised is bare metal; the driver says that it runs in a guest ({mode})", mode=mode.value)
            bad.append(Bad(card.slot, "virtual", reason, mode.evidence, measured=mode.value))
    return Looked(tuple(bad))
