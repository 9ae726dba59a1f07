"""GPU models: what NVIDIA publishes and what others measured, each number with its sources. Pure but for loading.

The data is ``contracts/gpus.yaml``; its form is ``contracts/gpus.schema.json``. GB is 10⁹ bytes, MiB is 2²⁰ bytes,
TFLOPS are dense (NVIDIA's sparse figures are twice these), GB/s of a link are both directions together unless it
says otherwise. A number that nobody published is None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Optional

Dtype = Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8"]
Confidence = Literal["datasheet", "measured", "inferred"]
EccState = Literal["on", "off", "any"]  # any: the total does not depend on ECC, or the card has none

DTYPES: tuple[Dtype, ...] = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")


@dataclass(frozen=True)
class Figure:
    """A number, the labels of its sources (keys of :attr:`Catalogue.sources`), how sure it is, how it was measured."""

    value: float
    sources: tuple[str, ...]
    confidence: Confidence
    method: str = ""
    note: str = ""


@dataclass(frozen=True)
class MemoryTotal:
    """A ``memory.total`` in MiB that a whole card of the model shows, with ECC on or off."""

    mib: int
    ecc: EccState
    figure: Figure


@dataclass(frozen=True)
class PciId:
    """A PCI device id (four lower-case hexadecimal digits) and the subsystem ids seen with it, of vendor 10de."""

    device: str
    subsystems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rate:
    """Arithmetic of one type of number.

    ``per_clock``: operations that one SM finishes a clock, as libraries use the unit (fp32 accumulate; capped where
    the model is capped). ``fastest``: the most that any instruction for this type can do, for the physical bound.
    ``peak``: published dense peak in TFLOPS (TOPS for int8). ``reference_clock_mhz``: the clock that the published
    peak was computed with. ``exception``: why peak differs from SMs × per_clock × reference clock by more than 1 %.
    """

    per_clock: float
    fastest: float
    reference_clock_mhz: float
    peak: Optional[Figure] = None
    exception: str = ""


@dataclass(frozen=True)
class NvLink:
    """NVLink by design. ``links`` 0: none. ``optional``: only with a bridge, so that no link is no fault.

    ``total_gbs``: both directions of all links together. ``pairs``: a bridge joins cards two by two (or up to
    four), a fabric joins all.
    """

    links: int
    total_gbs: float
    optional: bool
    layout: Literal["none", "bridge", "mesh", "switch"]


@dataclass(frozen=True)
class Sibling:
    """Another product that is sold or mistaken for this one, and what tells them apart."""

    id: str  # of a model in the catalogue
    tell: tuple[str, ...]  # of: "nvlink-links", "sm-count", "memory", "bus-width", "fp64", "int8", "fp8", "power", "form"
    note: str = ""


@dataclass(frozen=True)
class Floor:
    """The lowest number that two or more independent sources measured by the same method.

    ``figure.value`` is in GB/s or TFLOPS. ``count``: number of GPUs (1 but for all-reduce). ``by``: "" or, for
    all-reduce, "nvls" or "ring".
    """

    figure: Figure
    count: int = 1
    by: str = ""


@dataclass(frozen=True)
class Model:
    """One product."""

    id: str
    title: str
    family: str  # "A100": what stands on every variant
    form: Literal["pcie", "sxm", "nvl", "superchip"]
    marketed_gb: int  # "80" of "A100 80GB"
    modified: bool  # not a product of NVIDIA: a board changed by somebody else
    nvml_names: tuple[str, ...]
    pci_ids: tuple[PciId, ...]
    memory: tuple[MemoryTotal, ...]
    memory_type: str
    sm_count: int
    cores: int
    bus_width_bits: Optional[int]
    compute_capability: str
    max_clock_mhz: Figure  # highest SM clock that the driver offers; what the physical bound is computed with
    rates: Mapping[Dtype, Rate]
    memory_spec_gbs: Optional[Figure]
    power_default_w: Figure
    power_seen_w: tuple[int, ...]  # other default limits seen: board variants and vendors' caps
    pcie_gen: Optional[int]  # None: the host link is not PCIe
    pcie_width: Optional[int]
    nvlink: NvLink
    p2p_pcie: Optional[bool]  # peer to peer over PCIe in NVIDIA's own driver; None: not known
    ecc: Literal["default-on", "default-off", "none"]
    mig: bool  # can be partitioned
    siblings: tuple[Sibling, ...]
    typical: Mapping[str, Figure]  # "gemm.bf16", "memory.triad", "pcie.h2d", …: seen, never a limit
    floors: Mapping[str, tuple[Floor, ...]]  # same keys and "allreduce"
    note: str = ""

    def memory_mib(self, ecc: Optional[bool]) -> frozenset[int]:
        """The totals in MiB that a whole card shows with ECC on, off, or unknown (all). Empty: not known.

        Drivers reserve differently: totals within 1.5 % below are the same card, slices are far lower.
        """
        states = {None: ("on", "off", "any"), True: ("on", "any"), False: ("off", "any")}[ecc]
        return frozenset(m.mib for m in self.memory if m.ecc in states)

    def peak(self, dtype: Dtype) -> Optional[float]:
        """Published dense TFLOPS (int8: TOPS); None where nothing is published or the card cannot."""
        rate = self.rates.get(dtype)
        return rate.peak.value if rate is not None and rate.peak is not None else None

    def formula_peak(self, dtype: Dtype) -> Optional[float]:
        """SMs × operations per clock × reference clock, in TFLOPS; None where the card cannot."""
        rate = self.rates.get(dtype)
        return self.sm_count * rate.per_clock * rate.reference_clock_mhz / 1e6 if rate is not None else None

    def physical_bound(self, dtype: Dtype) -> Optional[float]:
        """SMs × fastest instruction × maximum clock, in TFLOPS, without margin: nothing true lies 5 % above it.

        None where the card has no unit for the type (a library may emulate it, slower than fp32).
        """
        rate = self.rates.get(dtype)
        return self.sm_count * rate.fastest * self.max_clock_mhz.value / 1e6 if rate is not None else None

    def floor(self, key: str, count: int = 1, by: str = "") -> Optional[Floor]:
        """The floor of ``key`` for exactly ``count`` GPUs."""
        return next((f for f in self.floors.get(key, ()) if f.count == count and f.by in ("", by)), None)


@dataclass(frozen=True)
class Other:
    """A product that the catalogue only knows by name, so that a card can be called what it is."""

    name: str
    pci_ids: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True)
class Source:
    """Where numbers come from."""

    label: str
    title: str
    address: str = ""


@dataclass(frozen=True)
class Catalogue:
    """All models, in the order of the file."""

    models: tuple[Model, ...]
    others: tuple[Other, ...]
    sources: Mapping[str, Source]

    def get(self, id: str) -> Optional[Model]:  # noqa: A002
        """The model of an id."""
        raise NotImplementedError

    def match(self, text: str) -> tuple[Model, ...]:
        """What a contract's product name (or an id) can mean: "A100 80G" is PCIe and SXM. Empty: unknown."""
        raise NotImplementedError

    def by_pci(self, device: str, subsystem: str = "") -> tuple[Model, ...]:
        """Models with a PCI device id, written "0x2330", "2330", NVML's "0x233010de" or "10de:2330".

        More than one where a modified board keeps the id (RTX 4090 with 48 GB): NVIDIA's own comes first.
        """
        raise NotImplementedError

    def by_name(self, name: str) -> tuple[Model, ...]:
        """Models whose driver prints this name ("NVIDIA H100 80GB HBM3"); NVIDIA's own before modified ones."""
        raise NotImplementedError

    def other(self, device: str) -> Optional[Other]:
        """The product outside the catalogue with this PCI device id (A10G, H20 NVL16)."""
        raise NotImplementedError


def load() -> Catalogue:
    """The catalogue that ships; read once."""
    raise NotImplementedError
