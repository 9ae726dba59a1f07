"""The cards as judges see them: which source of each may be believed, and why not. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Optional

from agent import catalogue as catalogues
from agent.catalogue import Catalogue, Model
from agent.checks._api import Case
from agent.checks._gpu_identity import Identity, identify
from agent.checks._judge import finding, unreadable
from agent.facts._source import Source, first
from agent.facts.gpus import Gpu, GpusFacts
from agent.model import Clause, Finding, Severity
from agent.reading import Known, Missing, Reading
from agent.text import Text, msg

UNCORROBORATED = "not-corroborated"
NEEDS_LOAD = "needs-load"
# The CUDA driver's total is a little less than NVML's: its own context, firmware.
MEMORY_APART = 0.06
# What nvidia-smi and NVML, one library, must say alike of one card.
SAME_LIBRARY = ("name", "uuid", "serial", "vbios", "board_part", "memory_total_mib", "pci_device_id")
# What the library and an independent source must say alike: name of the value, the source.
SAME_CARD = (
    ("uuid", "proc"),
    ("uuid", "cuda"),
    ("vbios", "proc"),
    ("pci_device_id", "pci"),
    ("bus_width_bits", "cuda"),
)


@dataclass(frozen=True)
class Disagreement:
    """Two sources that tell different things of one card."""

    value: str
    left: str
    right: str
    said: Text
    evidence: tuple[str, ...]


@dataclass(frozen=True)
class Card:
    """A GPU with what may be believed of it.

    ``library``: the value sources on NVIDIA's library, those that contradict the rest of the machine left out.
    ``answers``: whether NVML could read anything of it; where NVML answers for no card at all, nvidia-smi.
    ``doubt``: why nothing that rests on this library counts for this card. ``forged``: what shows that nvidia-smi
    says something else than the rest of the machine.
    """

    gpu: Gpu
    identity: Identity
    library: tuple[Source, ...]
    answers: bool = False
    doubt: Optional[Text] = None
    doubt_evidence: tuple[str, ...] = ()
    disagreements: tuple[Disagreement, ...] = ()
    forged: tuple[Disagreement, ...] = ()
    off_bus: bool = False

    @property
    def slot(self) -> str:
        """The subject of its findings."""
        return self.gpu.slot

    @property
    def model(self) -> Optional[Model]:
        """The product, where it is one of the catalogue's."""
        return self.identity.model

    def read(self, name: str) -> Reading[Any]:
        """The library's value: NVML's, else that of an nvidia-smi which is to be believed."""
        if not self.library:
            return Missing("void", self.doubt or msg("no source of this GPU is to be believed"), self.doubt_evidence)
        return first(name, self.library)

    @property
    def silent(self) -> Missing:
        """Why nothing can be read of a card that does not answer."""
        absent = self.gpu.nvml.absent or self.gpu.smi.absent
        why = absent.detail if absent is not None else msg("no reason given")
        evidence = absent.evidence if absent is not None else ()
        return Missing("failed", msg("this GPU does not answer: {why}", why=why), evidence)


def all_cards(case: Case) -> tuple[Card, ...]:
    """Every GPU that this environment was given; none where the GPUs were not read."""
    facts: Optional[GpusFacts] = case.facts.get("gpus")
    if facts is None:
        return ()
    catalogue = catalogues.load()
    return tuple(_card(g, facts, catalogue) for g in facts.gpus)


def _card(gpu: Gpu, facts: GpusFacts, catalogue: Catalogue) -> Card:
    apart = tuple(_apart(gpu.nvml, gpu.smi, SAME_LIBRARY))
    identity = identify(gpu, catalogue, gpu.nvml if gpu.nvml.there else gpu.smi, is_sliced(gpu.nvml, gpu.smi))
    library: tuple[Source, ...] = (gpu.nvml, gpu.smi)
    forged: tuple[Disagreement, ...] = ()
    if apart:
        # Two tongues of one library: whoever contradicts the rest of the machine is not that library.
        library, identity, forged = _sides(gpu, catalogue, identity, apart)
    elif script(facts):
        library = (gpu.nvml,)
    card = Card(gpu, identity, library, facts.answers(gpu), forged=forged, off_bus=_off_bus(gpu, facts))
    different = tuple(_independent(card))
    doubt, evidence = _doubt(card, different, facts)
    return replace(card, doubt=doubt, doubt_evidence=evidence, disagreements=different)


def script(facts: GpusFacts) -> bool:
    """Whether what is called nvidia-smi is a script."""
    return isinstance(facts.smi_is_script, Known) and facts.smi_is_script.value


def is_sliced(*library: Source) -> bool:
    """Whether the library itself says that this is a part of a card."""
    mig, mode = first("mig_current", library), first("virtualization_mode", library)
    return (isinstance(mig, Known) and mig.value) or (isinstance(mode, Known) and mode.value == "vgpu")


def _apart(left: Source, right: Source, names: tuple[str, ...]) -> Iterator[Disagreement]:
    for name in names:
        a, b = left.get(name), right.get(name)
        if isinstance(a, Known) and isinstance(b, Known) and not same(name, a.value, b.value):
            said = msg(
                "{value}: {a} by {left}, {b} by {right}",
                value=name,
                a=str(a.value),
                b=str(b.value),
                left=TITLES.get(left.name, left.name),
                right=TITLES.get(right.name, right.name),
            )
            yield Disagreement(name, left.name, right.name, said, tuple(dict.fromkeys((*a.evidence, *b.evidence))))


TITLES = {"nvml": "NVML", "smi": "nvidia-smi", "pci": "PCI", "proc": "/proc/driver/nvidia", "cuda": "CUDA"}


def same(name: str, a: Any, b: Any) -> bool:
    """Whether two sources mean the same: MiB are rounded, a leading NVIDIA and capitals mean nothing."""
    if name == "memory_total_mib":
        return abs(float(a) - float(b)) <= 1.0
    if isinstance(a, str) and isinstance(b, str):
        return _plain(a) == _plain(b)
    return bool(a == b)


def _plain(text: str) -> str:
    plain = " ".join(text.lower().split())
    return plain[len("nvidia ") :] if plain.startswith("nvidia ") else plain


def _sides(
    gpu: Gpu, catalogue: Catalogue, by_nvml: Identity, apart: tuple[Disagreement, ...]
) -> tuple[tuple[Source, ...], Identity, tuple[Disagreement, ...]]:
    """The sources that hold with the rest of the machine; none where nothing else can tell."""
    by_smi = identify(gpu, catalogue, gpu.smi, is_sliced(gpu.smi))
    against_nvml = _score(gpu.nvml, gpu, by_nvml)
    against_smi = _score(gpu.smi, gpu, by_smi)
    if against_nvml < against_smi:
        return (gpu.nvml,), by_nvml, apart
    if against_smi < against_nvml:
        return (gpu.smi,), by_smi, apart
    return (), by_nvml, apart


def _score(source: Source, gpu: Gpu, identity: Identity) -> int:
    """How much of the machine contradicts this source."""
    return len(identity.against) + sum(1 for _ in _with_others(source, gpu))


def _with_others(library: Source, gpu: Gpu) -> Iterator[Disagreement]:
    for name, other in SAME_CARD:
        yield from _apart(library, gpu.source(other), (name,))
    a, b = library.get("memory_total_mib"), gpu.cuda.get("memory_total_mib")
    if isinstance(a, Known) and isinstance(b, Known) and not _memory_alike(a.value, b.value):
        said = msg("memory: {a} MiB by NVML, {b} MiB by CUDA", a=f"{a.value:.0f}", b=f"{b.value:.0f}")
        yield Disagreement("memory_total_mib", library.name, "cuda", said, (*a.evidence, *b.evidence))


def _memory_alike(library: float, cuda: float) -> bool:
    return library * (1 - MEMORY_APART) <= cuda <= library * 1.01


def _independent(card: Card) -> Iterator[Disagreement]:
    if not is_sliced(*card.library):
        for source in card.library[:1]:
            yield from _with_others(source, card.gpu)


def _off_bus(gpu: Gpu, facts: GpusFacts) -> bool:
    """NVML has it, and the bus, which lists others, does not."""
    listed = facts.sources.get("pci")
    return isinstance(listed, Known) and bool(listed.value) and gpu.slot not in listed.value and gpu.nvml.there


def _doubt(card: Card, different: tuple[Disagreement, ...], facts: GpusFacts) -> tuple[Optional[Text], tuple[str, ...]]:
    """Why the library is not believed on this card, and the evidence."""
    if script(facts) and not card.gpu.nvml.there:
        why = msg("what is called nvidia-smi is a script, and nothing else speaks for this card")
        return why, facts.smi_is_script.evidence
    if not card.library:
        why = msg("NVML and nvidia-smi disagree ({said}), and no other source decides", said=_all(card.forged))
        return why, _evidence(card.forged)
    identity = card.identity
    if identity.against and identity.library is not None:
        voices = [c.said for c in identity.against]
        return msg("{said}, but {others}", said=identity.library.said, others=tuple(voices)), identity.evidence
    if different:
        return msg("sources disagree: {said}", said=_all(different)), _evidence(different)
    if card.off_bus:
        listed = facts.sources["pci"].evidence
        return msg("NVML has a GPU in {slot}, the PCI bus has none there", slot=card.slot), listed
    if isinstance(facts.library_matches, Known) and not facts.library_matches.value and card.gpu.nvml.there:
        why = msg("the NVML library is not the one of the loaded kernel driver")
        return why, facts.library_matches.evidence
    return None, ()


def _all(disagreements: tuple[Disagreement, ...]) -> tuple[Text, ...]:
    return tuple(d.said for d in disagreements)


def _evidence(disagreements: tuple[Disagreement, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(e for d in disagreements for e in d.evidence))


# --- findings a card -------------------------------------------------------------------------------------------------


def uncorroborated(clause: Clause, card: Card, reason: Text, **fields: Any) -> Finding:
    """A clause that rests on a source which another contradicts."""
    return finding(clause, "inconclusive", UNCORROBORATED, reason, subject=card.slot, grant=GRANT, **fields)


def needs_load(clause: Clause, card: Card, reason: Text, **fields: Any) -> Finding:
    """A clause that facts at rest can break but not keep (design rule 7)."""
    severity: Severity = "advisory" if clause.if_unreadable == "advisory" else clause.severity
    return finding(clause, "inconclusive", NEEDS_LOAD, reason, subject=card.slot, severity=severity, **fields)


GRANT = msg("let the vendor explain the disagreement, and show lspci -nn and /proc/driver/nvidia of the host")

JudgeCard = Callable[[Clause, Card], Finding]


def each(clause: Clause, case: Case, judge: JudgeCard) -> Iterator[Finding]:
    """``judge`` on every card that answers and is believed; the others are inconclusive with the reason."""
    cards = all_cards(case)
    if not any(c.answers for c in cards):
        yield unreadable(clause, nobody(case))
        return
    for card in cards:
        if not card.answers:
            yield unreadable(clause, card.silent, card.slot)
        elif card.doubt is not None:
            yield uncorroborated(clause, card, card.doubt, evidence=card.doubt_evidence)
        else:
            yield judge(clause, card)


def nobody(case: Case) -> Missing:
    """Why no GPU answers at all."""
    facts: Optional[GpusFacts] = case.facts.get("gpus")
    if facts is None:
        return Missing("left-out", msg("the GPUs were not read"))
    bus = facts.sources.get("pci")
    if isinstance(bus, Known) and not bus.value and not facts.gpus and not facts.unopened:
        # A driver would not help: to ask for one would send the reader the wrong way.
        why = msg("no GPU answers: {why}", why=msg("no NVIDIA GPU on the PCI bus"))
        return Missing("not-there", why, bus.evidence, msg("let the vendor attach the promised GPUs"))
    for name in ("nvml", "smi"):
        listed = facts.sources.get(name)
        if isinstance(listed, Missing):
            grant = listed.grant or msg("install or repair the NVIDIA driver")
            why = msg("no GPU answers: {why}", why=listed.detail)
            return Missing(listed.kind, why, listed.evidence, grant)
    evidence = tuple(e for r in facts.sources.values() for e in r.evidence)
    absent = next((g.nvml.absent for g in facts.gpus if g.nvml.absent is not None), None)
    if absent is not None:
        return Missing(absent.kind, msg("no GPU answers: {why}", why=absent.detail), absent.evidence, absent.grant)
    if facts.gpus:
        unread = next((r for g in facts.gpus for r in (g.nvml.get("name"),) if isinstance(r, Missing)), None)
        if unread is not None:
            return Missing(unread.kind, msg("no GPU answers: {why}", why=unread.detail), evidence, unread.grant)
    return Missing("not-there", msg("no NVIDIA GPU is to be seen"), evidence)
