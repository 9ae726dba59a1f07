"""What every renter of GPUs wants to know, promised or not: true tools, cards that are what they say. Pure.

A proven falsification is a breach without being asked; everything else is context and advisory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from agent.checks import _gpu_driver, _gpu_sharing
from agent.checks._api import Case
from agent.checks._gpu_cards import Card, all_cards, nobody, script
from agent.checks._gpu_faults import HARD, by_slot, log, said
from agent.checks._gpu_identity import titles
from agent.checks._gpu_link import off_fabric
from agent.checks._gpu_power import HELD, low_default
from agent.checks._gpu_sharing import Sign
from agent.checks._gpu_state import has_patched_peers
from agent.checks._gpu_wear import odd_one, signs
from agent.checks._judge import integrity, version_key
from agent.facts import gpu_share
from agent.facts.gpu_share import GpuShareFacts
from agent.facts.gpus import GpusFacts
from agent.model import Finding, Severity
from agent.reading import Known, Missing
from agent.text import Text, msg

FACTS = ("gpus", "gpu_share", "kernel_log", "processes")
SAMPLE = re.compile(r"graphics device|engineering|qualification|\bNVIDIA (?:PG|GA|GH|GB|AD)\d{3}\b", re.IGNORECASE)
# torch of the package index, by first release: the CUDA that it brings (its wheels' metadata).
TORCH_CUDA = {(2, 4): "12.1", (2, 5): "12.4", (2, 7): "12.6", (2, 8): "12.8", (2, 11): "13.0"}


@dataclass(frozen=True)
class Bad:
    """One thing that is not as it should be; ``slot`` None where it is the machine's."""

    slot: Optional[str]
    code: str
    reason: Text
    evidence: tuple[str, ...] = ()
    severity: Severity = "advisory"
    measured: Any = None


@dataclass(frozen=True)
class Looked:
    """What one look found; ``unknown`` says why it could not look, ``fine`` what is true where nothing is bad."""

    bad: tuple[Bad, ...] = ()
    fine: Optional[Text] = None
    unknown: Optional[Missing] = None
    evidence: tuple[str, ...] = ()


Look = Callable[[Case, Sequence[Card], GpusFacts], Looked]


def judge(case: Case) -> Iterator[Finding]:
    """Nothing at all on a machine that neither has nor promises a GPU."""
    facts: Optional[GpusFacts] = case.facts.get("gpus")
    if facts is None or not (facts.gpus or facts.unopened):
        return
    cards = all_cards(case)
    for name, look in LOOKS.items():
        yield from _findings(name, look(case, cards, facts))


def _findings(name: str, looked: Looked) -> Iterator[Finding]:
    for bad in looked.bad:
        yield integrity(
            name,
            "fail",
            bad.code,
            bad.reason,
            severity=bad.severity,
            subject=bad.slot,
            measured=bad.measured,
            evidence=bad.evidence,
        )
    if looked.bad:
        return
    if looked.unknown is not None:
        gone = looked.unknown
        yield integrity(name, "inconclusive", gone.kind, gone.detail, grant=gone.grant, evidence=gone.evidence)
    elif looked.fine is not None:
        yield integrity(name, "pass", "kept", looked.fine, evidence=looked.evidence)


def _asked(case: Case, key: str) -> bool:
    return any(c.key == key for c in case.contract.clauses)


# --- the tools --------------------------------------------------------------------------------------------------------


def _nvidia_smi(case: Case, cards: Sequence[Card], facts: GpusFacts) -> Looked:
    """NVML and nvidia-smi are one library: what they tell differently, one of them made up."""
    forged = [c for c in cards if c.forged]
    if forged:
        return Looked(tuple(_forged(c) for c in forged))
    if script(facts):
        path = facts.nvidia_smi.value[0].path if isinstance(facts.nvidia_smi, Known) else "nvidia-smi"
        reason = msg("{path} is a script, not NVIDIA's program; what it prints agrees with NVML", path=path)
        if isinstance(facts.smi, Missing):
            reason = msg("{path} is a script, not NVIDIA's program: {why}", path=path, why=facts.smi.detail)
        return Looked((Bad(None, "script", reason, facts.smi_is_script.evidence),))
    if isinstance(facts.smi, Missing):
        if any(c.gpu.nvml.there for c in cards) and facts.smi.kind in ("timeout", "failed", "unparsable"):
            reason = msg("NVML answers and nvidia-smi does not: {why}", why=facts.smi.detail)
            return Looked((Bad(None, facts.smi.kind, reason, facts.smi.evidence),))
        return Looked(unknown=facts.smi)
    return Looked(fine=msg("nvidia-smi says what NVML says"), evidence=facts.smi.evidence)


def _forged(card: Card) -> Bad:
    believed = card.library[0].name if card.library else ""
    evidence = tuple(dict.fromkeys(e for d in card.forged for e in d.evidence))
    told = tuple(d.said for d in card.forged)
    if believed == "nvml":
        reason = msg(
            "nvidia-smi does not say what this card is: {told}; the rest of the machine agrees with NVML", told=told
        )
    elif believed == "smi":
        reason = msg("NVML does not say what this card is: {told}; the rest of the machine contradicts it", told=told)
    else:
        reason = msg("NVML and nvidia-smi, which are one library, contradict each other: {told}", told=told)
    return Bad(card.slot, "falsified", reason, evidence, "breach")


def _driver_library(case: Case, cards: Sequence[Card], facts: GpusFacts) -> Looked:
    for name in ("nvml", "smi"):
        driver = facts.driver.get(name)
        if isinstance(driver, Missing) and "VERSION_MISMATCH" in str(driver.detail).upper().replace(" ", "_"):
            reason = msg("the installed library is not of the loaded driver: {why}", why=driver.detail)
            return Looked((Bad(None, "mismatch", reason, (*driver.evidence, *_cited(facts.driver.get("proc")))),))
    matches = facts.library_matches
    if isinstance(matches, Missing):
        return Looked(unknown=matches)
    path = facts.library.value if isinstance(facts.library, Known) else ""
    if not matches.value:
        reason = msg("{path} answers, which is not of the loaded kernel driver's version", path=path)
        return Looked((Bad(None, "mismatch", reason, matches.evidence, measured=path),))
    return Looked(fine=msg("{path} is of the loaded kernel driver's version", path=path), evidence=matches.evidence)


def _cited(reading: Any) -> tuple[str, ...]:
    return tuple(reading.evidence) if reading is not None else ()


def _driver_age(case: Case, cards: Sequence[Card], facts: GpusFacts) -> Looked:
    """Whether the driver runs the CUDA that the contract's software brings."""
    version = _gpu_driver.driver_version(facts)
    wanted = list(_promised_cuda(case))
    if isinstance(version, Missing) or not wanted:
        return Looked()
    bad = []
    for what, cuda in wanted:
        need = _gpu_driver.needed(cuda)
        if need is not None and version_key(version.value) < version_key(need[0]):
            reason = msg(
                "{what} needs CUDA {cuda} and so a driver of {need} or later; this is {version}",
                what=what,
                cuda=cuda,
                need=need[0],
                version=version.value,
            )
            bad.append(Bad(None, "driver-too-old", reason, version.evidence, measured=version.value))
    return Looked(
        tuple(bad), msg("driver {version} runs what is promised", version=version.value), None, version.evidence
    )


def _promised_cuda(case: Case) -> Iterator[tuple[str, str]]:
    for clause in case.contract.clauses:
        values = clause.promise.value if isinstance(clause.promise.value, tuple) else (clause.promise.value,)
        if clause.key == "software.cuda_toolkit":
            yield f"cuda_toolkit {clause.promise.written}", str(values[0])
        if clause.key == "software.torch":
            release = version_key(str(values[0]))[:2]
            brought = [cuda for first, cuda in TORCH_CUDA.items() if first <= release]
            if brought:
                yield f"torch {clause.promise.written}", brought[-1]


# --- the cards --------------------------------------------------------------------------------------------------------


def _identity(case: Case, cards: Sequence[Card], facts: GpusFacts) -> Looked:
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


def _bus(case: Case, cards: Sequence[Card], facts: GpusFacts) -> Looked:
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


def _mixed(case: Case, cards: Sequence[Card], facts: GpusFacts) -> Looked:
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


def _samples(case: Case, cards: Sequence[Card], facts: GpusFacts) -> Looked:
    bad = []
    for card in cards:
        name = card.identity.name
        if isinstance(name, Known) and SAMPLE.search(name.value):
            reason = msg("the card calls itself “{name}”, as parts that were never sold do", name=name.value)
            bad.append(Bad(card.slot, "engineering-sample", reason, name.evidence, measured=name.value))
        elif any(m.modified for m in card.identity.models):
            found = titles(card.identity.models)
            reason = msg("{found}: a board that somebody else than NVIDIA has changed", found=found)
            bad.append(Bad(card.slot, "modified", reason, card.identity.evidence, measured=found))
    named = any(isinstance(c.identity.name, Known) for c in cards)
    fine = msg("no card calls itself a sample or shows a changed board") if named else None
    evidence = tuple(dict.fromkeys(e for c in cards for e in c.identity.name.evidence))
    return Looked(tuple(bad), fine, None, evidence)


def _wear(case: Case, cards: Sequence[Card], facts: GpusFacts) -> Looked:
    """Used is not broken; where the contract says new, that clause decides."""
    if _asked(case, "gpu.condition"):
        return Looked()
    bad = []
    for card in cards:
        worn = signs(card)
        if worn:
            evidence = tuple(dict.fromkeys(e for s in worn for e in s.evidence))
            bad.append(Bad(card.slot, "worn", msg("{signs}", signs=tuple(s.said for s in worn)), evidence))
    return Looked(tuple(bad))


def _recovery(case: Case, cards: Sequence[Card], facts: GpusFacts) -> Looked:
    bad = []
    for card in cards:
        action = card.read("recovery_action")
        if isinstance(action, Known) and action.value != "none":
            reason = msg("the driver asks for this to get the card right again: {action}", action=action.value)
            bad.append(Bad(card.slot, "needs-recovery", reason, action.evidence, measured=action.value))
    return Looked(tuple(bad))


def _power_default(case: Case, cards: Sequence[Card], facts: GpusFacts) -> Looked:
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


def _pcie_width(case: Case, cards: Sequence[Card], facts: GpusFacts) -> Looked:
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


def _throttled(case: Case, cards: Sequence[Card], facts: GpusFacts) -> Looked:
    bad = []
    for card in cards:
        bits = card.read("throttle")
        if isinstance(bits, Known):
            why = tuple(text for bit, text in HELD.items() if bits.value & bit)
            if why:
                reason = msg("slowed down at rest: {why}", why=why)
                bad.append(Bad(card.slot, "throttled", reason, bits.evidence, measured=hex(bits.value)))
    return Looked(tuple(bad))


def _fabric(case: Case, cards: Sequence[Card], facts: GpusFacts) -> Looked:
    if _asked(case, "gpu.nvlink"):
        return Looked()
    bad = []
    for card in cards:
        state = off_fabric(card)
        if state is not None:
            bad.append(Bad(card.slot, "off-fabric", state, card.read("fabric").evidence))
    return Looked(tuple(bad))


def _patched(case: Case, cards: Sequence[Card], facts: GpusFacts) -> Looked:
    reachable = [pair for pair, states in facts.p2p.items() if states.get("read") == "OK"]
    if not has_patched_peers([c for c in cards if c.answers], bool(reachable)):
        return Looked()
    reason = msg(
        "these cards reach each other's memory, which NVIDIA's own driver does not do for this model: "
        "the driver has been changed by somebody, and updates will not fit it"
    )
    evidence = facts.sources["nvml"].evidence
    return Looked((Bad(None, "patched-driver", reason, evidence),))


def _virtual(case: Case, cards: Sequence[Card], facts: GpusFacts) -> Looked:
    if case.contract.access.kind != "bare-metal":
        return Looked()
    bad = []
    for card in cards:
        mode = card.read("virtualization_mode")
        if isinstance(mode, Known) and mode.value in ("passthrough", "vgpu"):
            reason = msg("promised is bare metal; the driver says that it runs in a guest ({mode})", mode=mode.value)
            bad.append(Bad(card.slot, "virtual", reason, mode.evidence, measured=mode.value))
    return Looked(tuple(bad))


# --- who else, and what the log says ----------------------------------------------------------------------------------


def _sliced(case: Case, cards: Sequence[Card], facts: GpusFacts) -> Looked:
    """A part of a card although nobody asked for one; where a whole card is promised, that clause decides."""
    if _asked(case, "gpu.whole_card"):
        return Looked()
    bad = [
        Bad(c.slot, "not-whole", msg("{signs}", signs=tuple(s.said for s in parts)), _evidence(parts))
        for c in cards
        if (parts := _gpu_sharing.missing_part(c)) and not _agreed_slice(case)
    ]
    return Looked(tuple(bad))


def _agreed_slice(case: Case) -> bool:
    return any(c.key == "gpu.mig" and c.promise.value is True for c in case.contract.clauses)


def _between(case: Case, cards: Sequence[Card], facts: GpusFacts) -> Looked:
    """Libraries and drivers that stand between programs and cards and can change what they see."""
    share: Optional[GpuShareFacts] = case.facts.get("gpu_share")
    if share is None:
        return Looked()
    bad = [
        Bad(None, s.kind, s.what, s.evidence, "breach" if s.kind == "fake" else "advisory")
        for s in _gpu_sharing.software(case)
    ]
    if bad:
        reason = msg("{signs}", signs=tuple(b.reason for b in bad))
        severity: Severity = "breach" if any(b.severity == "breach" for b in bad) else "advisory"
        evidence = tuple(dict.fromkeys(e for b in bad for e in b.evidence))
        return Looked((Bad(None, bad[0].code, reason, evidence, severity),))
    unread = next((r for r in (share.preload, share.marks) if isinstance(r, Missing)), None)
    fine = msg("no library or driver is known to stand between programs and cards")
    return Looked(fine=fine, unknown=unread, evidence=_cited(share.preload) + _cited(share.marks))


def _foreign(case: Case, cards: Sequence[Card], facts: GpusFacts) -> Looked:
    answering = [c for c in cards if c.answers]
    users = {c.slot: _gpu_sharing.on_card(c, case) for c in answering}
    bad = [
        Bad(slot, "foreign-process", msg("{who}", who=tuple(s.said for s in u.foreign)), _evidence(u.foreign))
        for slot, u in users.items()
        if u.foreign
    ]
    unknown = next((u.unknown for u in users.values() if u.unknown is not None), None)
    if unknown is None and not answering:
        unknown = nobody(case)
    return Looked(tuple(bad), msg("the driver lists nobody else on the cards"), unknown, facts.sources["nvml"].evidence)


def _unowned(case: Case, cards: Sequence[Card], facts: GpusFacts) -> Looked:
    answering = [c for c in cards if c.answers]
    found = {c.slot: _gpu_sharing.unowned(c) for c in answering}
    bad = [
        Bad(slot, "without-owner", msg("{signs}", signs=tuple(s.said for s in some)), _evidence(some))
        for slot, some in found.items()
        if some
    ]
    rests = [gpu_share.unowned(c.gpu) for c in answering]
    unknown = next((r for r in rests if isinstance(r, Missing)), None)
    if not answering:
        unknown = nobody(case)
    fine = msg("no more memory is in use than firmware takes")
    return Looked(tuple(bad), fine, unknown, facts.sources["nvml"].evidence)


def _hard_faults(case: Case, cards: Sequence[Card], facts: GpusFacts) -> Looked:
    """Faults of hardware in the log, from before the run too; ``gpu.xid`` decides where it is promised."""
    found = log(case)
    if isinstance(found, Missing):
        return Looked(unknown=found)
    faults = by_slot(found.value, HARD)
    bad = tuple(Bad(where, "xid", said(events), found.evidence) for where, events in faults.items())
    fine = msg("the kernel log holds no hardware fault of a GPU")
    if not found.value.since_boot:
        fine = msg("the kernel log, which does not reach back to the start, holds no hardware fault of a GPU")
    return Looked(bad, fine, None, found.evidence)


def _evidence(found: Sequence[Sign]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(e for s in found for e in s.evidence))


LOOKS: Mapping[str, Look] = {
    "nvidia_smi": _nvidia_smi,
    "driver_library": _driver_library,
    "driver_age": _driver_age,
    "gpu_identity": _identity,
    "gpu_bus": _bus,
    "mixed_gpus": _mixed,
    "gpu_sample": _samples,
    "gpu_wear": _wear,
    "gpu_recovery": _recovery,
    "power_default": _power_default,
    "pcie_width": _pcie_width,
    "gpu_throttled": _throttled,
    "gpu_fabric": _fabric,
    "patched_driver": _patched,
    "virtual_gpu": _virtual,
    "sliced_gpu": _sliced,
    "gpu_interception": _between,
    "foreign_process": _foreign,
    "memory_without_owner": _unowned,
    "hard_faults": _hard_faults,
}
