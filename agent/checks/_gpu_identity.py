"""Which product a card is, by sources that don't share a library (design rule 6). Pure.

NVML and ``nvidia-smi`` share one library and count as one voice. The others are the PCI ids that the kernel reads
from the bus, the driver's own files in ``/proc``, and what the CUDA driver says of the card's name and its
multiprocessors. Memory alone identifies nothing: it only tells a whole card from a slice or a changed board.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from agent.catalogue import Catalogue, Model
from agent.facts._source import Source
from agent.facts.gpus import Gpu
from agent.reading import Known, Missing, Reading
from agent.text import Text, msg

# "GRID T4-4C", "NVIDIA A100-1-5C", "NVIDIA RTXA6000-24Q": a vGPU guest shows the profile as the product.
PROFILE = re.compile(r".*\S-(?:\d{1,2}-)?\d{1,3}[ABCQ]$")
# Drivers reserve differently: a whole card of the model may show a little less than the catalogue says.
WHOLE = 0.985
LIBRARY = "NVML"


@dataclass(frozen=True)
class Claim:
    """What one source says the card is: ``said`` in words, ``models`` as ids of the catalogue (empty: unknown)."""

    source: str
    models: frozenset[str]
    said: Text
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True)
class Identity:
    """``models``: what the card can be by all sources together; empty where unknown or where they contradict.

    ``against``: independent sources that contradict the library; ``agrees``: those that agree with it;
    ``neutral``: those that know no product by what they see. ``profile``: the name is a virtual GPU's.
    """

    name: Reading[str]
    product: str
    models: tuple[Model, ...]
    library: Optional[Claim] = None
    against: tuple[Claim, ...] = ()
    agrees: tuple[Claim, ...] = ()
    neutral: tuple[Claim, ...] = ()
    profile: bool = False

    @property
    def falsified(self) -> bool:
        """Two sources that share nothing with the library, and nothing with each other, contradict it."""
        return len(self.against) > 1

    @property
    def evidence(self) -> tuple[str, ...]:
        """Of every source that was heard."""
        heard = [c for c in (self.library, *self.agrees, *self.against, *self.neutral) if c is not None]
        return tuple(dict.fromkeys((*self.name.evidence, *(e for c in heard for e in c.evidence))))

    @property
    def model(self) -> Optional[Model]:
        """The product, where it is one."""
        return self.models[0] if len(self.models) == 1 else None


def identify(gpu: Gpu, catalogue: Catalogue, library: Source, sliced: bool) -> Identity:
    """``library``: the trusted one of NVML and nvidia-smi. ``sliced``: fewer multiprocessors are explained already."""
    name = library.get("name")
    said = name.value if isinstance(name, Known) else ""
    profile = bool(PROFILE.match(said))
    claim = _library_claim(name, catalogue)
    others = list(_independent(gpu, catalogue, claim, sliced or profile))
    against = tuple(c for c in others if claim is not None and claim.models and _contradicts(c, claim))
    agrees = tuple(c for c in others if claim is not None and _agrees(c, claim, said, gpu))
    models = () if against else _together(catalogue, [c for c in (claim, *others) if c is not None])
    models = _by_memory(models, library)
    neutral = tuple(c for c in others if c not in against and c not in agrees)
    return Identity(name, said or titles(models), models, claim, against, agrees, neutral, profile)


def _library_claim(name: Reading[Any], catalogue: Catalogue) -> Optional[Claim]:
    if isinstance(name, Missing):
        return None
    models = _ids(catalogue.by_name(name.value))
    return Claim(LIBRARY, models, msg("NVML calls it {name}", name=name.value), name.evidence)


def _independent(gpu: Gpu, catalogue: Catalogue, library: Optional[Claim], sliced: bool) -> Iterable[Claim]:
    device = gpu.pci.get("pci_device_id")
    if isinstance(device, Known):
        yield _pci_claim(device, gpu.pci.get("pci_subsystem_id"), catalogue)
    name = gpu.proc.get("name")
    if isinstance(name, Known):
        said = msg("the kernel driver calls it {name}", name=name.value)
        yield Claim("/proc", _ids(catalogue.by_name(name.value)), said, name.evidence)
    yield from _cuda_claims(gpu.cuda, catalogue, library, sliced)


def _pci_claim(device: Known[str], subsystem: Reading[str], catalogue: Catalogue) -> Claim:
    models = catalogue.by_pci(device.value, subsystem.value if isinstance(subsystem, Known) else "")
    other = catalogue.other(device.value) if not models else None
    if models:
        said = msg("PCI id {id} is {model}", id=device.value, model=titles(models))
    elif other is not None:
        said = msg("PCI id {id} is {model}", id=device.value, model=other.name)
    else:
        said = msg("PCI id {id} is in no table", id=device.value)
    known = _ids(models) or (frozenset({other.name}) if other is not None else frozenset())
    return Claim("PCI", known, said, device.evidence)


def _cuda_claims(cuda: Source, catalogue: Catalogue, library: Optional[Claim], sliced: bool) -> Iterable[Claim]:
    """One voice: the number of multiprocessors where it contradicts or the name is missing, else the name."""
    name, count = cuda.get("name"), cuda.get("sm_count")
    named = _ids(catalogue.by_name(name.value)) if isinstance(name, Known) else frozenset()
    expected = library.models if library is not None and library.models else named
    if isinstance(count, Known) and expected and not sliced:
        rightly = frozenset(i for i in expected if _sm(catalogue, i) == count.value)
        said = msg("CUDA counts {n} multiprocessors", n=count.value)
        if not rightly:
            everybody = frozenset(m.id for m in catalogue.models if m.sm_count == count.value)
            yield Claim("CUDA", everybody or frozenset({"?"}), said, count.evidence)
            return
        if not named or named & rightly:
            yield Claim("CUDA", rightly, said, count.evidence)
            return
    if isinstance(name, Known):
        yield Claim("CUDA", named, msg("the CUDA driver calls it {name}", name=name.value), name.evidence)


def _sm(catalogue: Catalogue, id: str) -> Optional[int]:  # noqa: A002
    model = catalogue.get(id)
    return model.sm_count if model is not None else None


def _contradicts(claim: Claim, library: Claim) -> bool:
    return bool(claim.models) and not claim.models & library.models


def _agrees(claim: Claim, library: Claim, said: str, gpu: Gpu) -> bool:
    if claim.models and library.models:
        return bool(claim.models & library.models)
    # A product that the catalogue doesn't know: the other driver at least calls it the same.
    other = {"/proc": gpu.proc, "CUDA": gpu.cuda}.get(claim.source)
    name = other.get("name") if other is not None else None
    return isinstance(name, Known) and not library.models and _plain(name.value) == _plain(said)


def _plain(name: str) -> str:
    return " ".join(name.replace("NVIDIA", " ").lower().split())


def _together(catalogue: Catalogue, claims: Sequence[Claim]) -> tuple[Model, ...]:
    heard = [c.models for c in claims if c.models]
    if not heard:
        return ()
    both = frozenset.intersection(*heard)
    return tuple(m for m in catalogue.models if m.id in both)


def _by_memory(models: tuple[Model, ...], library: Source) -> tuple[Model, ...]:
    """Between products of one name and one id, the amount of memory decides (a rebuilt 4090 with 48 GB)."""
    total = library.get("memory_total_mib")
    if len(models) < 2 or isinstance(total, Missing):
        return models
    ecc = library.get("ecc_current")
    fits = tuple(m for m in models if is_whole(m, total.value, ecc))
    if fits:
        return fits
    return tuple(m for m in models if not m.modified) or models


def is_whole(model: Model, mib: float, ecc: Reading[bool]) -> bool:
    """Whether a whole card of the model shows this total in this ECC mode."""
    totals = model.memory_mib(ecc.value if isinstance(ecc, Known) else None) or model.memory_mib(None)
    return any(WHOLE * t <= mib <= t / WHOLE for t in totals)


def _ids(models: Iterable[Model]) -> frozenset[str]:
    return frozenset(m.id for m in models)


def titles(models: Iterable[Model]) -> str:
    """Products as a report prints them."""
    return " / ".join(m.title for m in models)
