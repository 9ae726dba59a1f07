"""GPU models: what NVIDIA publishes and what others measured, each number with its sources. Pure but for loading.

The data is ``contracts/gpus.yaml``, JSON but for lines of comment so that it loads in milliseconds; its form is
``contracts/gpus.schema.json``. GB is 10⁹ bytes, MiB is 2²⁰ bytes, TFLOPS are dense (NVIDIA's sparse figures are
twice these), GB/s of NVLink are both directions together. A number that nobody published is None, never 0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Optional

from agent import resources
from agent.gpu_names import Wanted, read_name

Dtype = Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8"]
Confidence = Literal["datasheet", "measured", "inferred"]
EccState = Literal["on", "off", "any"]  # any: the total does not depend on ECC, or the card has none
Form = Literal["pcie", "sxm", "nvl", "superchip"]

DTYPES: tuple[Dtype, ...] = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")


@dataclass(frozen=True)
class Cite:
    """Where a number comes from (keys of :attr:`Catalogue.sources`), how sure it is, how it was measured."""

    sources: tuple[str, ...]
    confidence: Confidence
    method: str = ""
    note: str = ""


@dataclass(frozen=True)
class Figure:
    """A number with its origin. ``count`` and ``by`` are of all-reduce: number of GPUs, and "nvls" or "ring"."""

    value: float
    cite: Cite
    count: int = 1
    by: str = ""


@dataclass(frozen=True)
class MemoryTotal:
    """A ``memory.total`` in MiB that a whole card of the model shows, with ECC on or off."""

    mib: int
    ecc: EccState
    cite: Cite


@dataclass(frozen=True)
class PciId:
    """A PCI device id (four lower-case hexadecimal digits) and subsystem device ids that are known with it.

    Makers of servers and boards use others too: a subsystem that is not listed is no fault.
    """

    device: str
    subsystems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rate:
    """Arithmetic of one type of number.

    ``per_clock``: operations that one SM finishes a clock as libraries use it (fp32 accumulate; after the cap where
    ``rate_cap`` says that the model is capped). ``fastest``: the most that any instruction for the type can do.
    ``peak``: published dense peak in TFLOPS (TOPS for int8). ``reference_clock_mhz``: the clock that it was computed
    with. ``exception``: why peak differs from SMs × per_clock × reference clock by more than 1 %.
    """

    per_clock: float
    fastest: float
    reference_clock_mhz: float
    peak: Optional[Figure] = None
    rate_cap: bool = False
    exception: str = ""


@dataclass(frozen=True)
class NvLink:
    """NVLink by design. ``links`` 0: none. ``optional``: only with a bridge, so that no link is no fault.

    ``total_gbs``: both directions of all links together. ``layout``: a bridge joins two cards (or four), a mesh is
    wired without a switch, a switch joins all.
    """

    links: int
    total_gbs: float
    optional: bool
    layout: Literal["none", "bridge", "mesh", "switch"]
    cite: Cite


@dataclass(frozen=True)
class Sibling:
    """Another product that is sold or mistaken for this one, and what tells them apart.

    ``tell``: of "nvlink-links", "sm-count", "memory", "bus-width", "fp64", "int8", "fp8", "tensor-rate",
    "memory-rate", "power", "form".
    """

    id: str
    tell: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True, eq=False)
class Model:
    """One product. Two are the same where they are the same entry of one catalogue."""

    id: str
    title: str
    family: str  # "A100": what stands on every variant
    form: Form
    edition: str  # of the RTX PRO 6000: "server", "workstation", "max-q"
    marketed_gb: tuple[int, ...]  # 80 of "A100 80GB"; several where it is sold under several
    modified: bool  # no product of NVIDIA: a board changed by somebody else
    nvml_names: tuple[str, ...]
    pci_ids: tuple[PciId, ...]
    pci_sources: tuple[str, ...]
    memory: tuple[MemoryTotal, ...]
    memory_type: str
    sm_count: int
    cores: int
    bus_width_bits: Optional[int]
    compute_capability: str
    max_clock_mhz: Figure  # highest SM clock that the driver offers; the physical bound is computed with it
    rates: Mapping[Dtype, Rate]
    memory_spec_gbs: Figure
    power_default_w: Figure
    power_seen_w: tuple[int, ...]  # other defaults and limits seen: variants of boards, vendors' caps
    pcie_gen: Optional[int]  # None: the host link is not PCIe
    pcie_width: Optional[int]
    pcie_widths_seen: tuple[int, ...]  # narrower by design of some machines
    nvlink: NvLink
    p2p_pcie: bool  # peer to peer over PCIe in NVIDIA's own driver; cites["p2p_pcie"] says how sure
    ecc: Literal["default-on", "default-off", "none"]
    mig: bool  # can be partitioned
    siblings: tuple[Sibling, ...]
    seen: Mapping[str, tuple[Figure, ...]]  # "gemm.bf16", "memory.triad", "allreduce": measured, never a limit
    floors: Mapping[str, tuple[Figure, ...]]  # same keys: the lowest of two or more sources by the same method
    cites: Mapping[str, Cite]  # field name → where its number comes from
    note: str = ""

    def memory_mib(self, ecc: Optional[bool]) -> frozenset[int]:
        """The totals in MiB that a whole card shows with ECC on, off, or unknown (all). Empty: not known.

        Drivers reserve differently: a total within 1.5 % of one of these is the same card, slices are far lower.
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
        """SMs × fastest instruction × maximum clock, in TFLOPS, without margin; never less than the published peak.

        None where nothing is known of the type's unit, and where the card has none (a library then emulates it).
        """
        rate = self.rates.get(dtype)
        if rate is None:
            return None
        bound = self.sm_count * rate.fastest * self.max_clock_mhz.value / 1e6
        peak = self.peak(dtype)
        return bound if peak is None else max(bound, peak)

    def floor(self, key: str, count: int = 1, by: str = "") -> Optional[Figure]:
        """The floor of ``key`` for exactly ``count`` GPUs; ``by`` "nvls" or "ring" for all-reduce."""
        return next((f for f in self.floors.get(key, ()) if f.count == count and f.by == by), None)


@dataclass(frozen=True)
class Other:
    """A product that the catalogue only knows by name, so that a card can be called what it is."""

    name: str
    pci_ids: tuple[str, ...]  # "2237", or with a subsystem "20b2:1625"
    note: str = ""


@dataclass(frozen=True)
class Source:
    """Where numbers come from."""

    label: str
    title: str
    address: str = ""


@dataclass(frozen=True)
class HostCopies:
    """Copies between pinned host memory and a card over a link of ``gen`` and ``width``, GB/s one way."""

    gen: int
    width: int
    h2d: tuple[Figure, ...]
    d2h: tuple[Figure, ...]
    h2d_floor: Optional[Figure]
    d2h_floor: Optional[Figure]


@dataclass(frozen=True)
class Catalogue:
    """All models, in the order of the file."""

    models: tuple[Model, ...]
    others: tuple[Other, ...]
    sources: Mapping[str, Source]
    host_copies: tuple[HostCopies, ...]

    def get(self, model_id: str) -> Optional[Model]:
        """The model of an id."""
        return next((m for m in self.models if m.id == model_id), None)

    def match(self, text: str) -> tuple[Model, ...]:
        """What a contract's product name (or an id) can mean: "A100 80G" is PCIe and SXM. Empty: unknown.

        A modified board is meant only where the name says its memory or that it was modified.
        """
        exact = self.get(text.strip().lower())
        if exact is not None:
            return (exact,)
        wanted = read_name(text)
        found = tuple(m for m in self.models if _is(m, wanted))
        if wanted.form == "pcie":  # NVL cards are PCIe cards: meant where the family has no plain one
            found = tuple(m for m in found if m.form == "pcie") or found
        return found or self.by_name(text) or self.by_name(f"NVIDIA {text}")

    def by_pci(self, device: str, subsystem: str = "") -> tuple[Model, ...]:
        """Models with a PCI device id, written "0x2330", "2330", NVML's "0x233010de" or "10de:2330".

        More than one where a modified board keeps the id (RTX 4090 with 48 GB): NVIDIA's own comes first. None
        where the subsystem, written the same ways, makes it another product (see :meth:`other`).
        """
        if self.other(device, subsystem) is not None:
            return ()
        wanted = device_id(device)
        return _own_first(m for m in self.models if any(p.device == wanted for p in m.pci_ids))

    def by_name(self, name: str) -> tuple[Model, ...]:
        """Models whose driver prints this name; a name cut off by nvidia-smi ("NVIDIA A800-SXM...") can be several."""
        wanted = " ".join(name.lower().split())
        if wanted.endswith("..."):
            start = wanted[:-3].rstrip()
            return _own_first(m for m in self.models if any(n.lower().startswith(start) for n in m.nvml_names))
        return _own_first(m for m in self.models if any(n.lower() == wanted for n in m.nvml_names))

    def other(self, device: str, subsystem: str = "") -> Optional[Other]:
        """The product outside the catalogue with this PCI device id (A10G, H20 NVL16)."""
        plain = device_id(device)
        ids = {plain, f"{plain}:{device_id(subsystem)}"}
        return next((o for o in self.others if ids.intersection(o.pci_ids)), None)

    def host_copy(self, gen: int, width: int) -> Optional[HostCopies]:
        """What was measured over a PCIe link of this generation and width."""
        return next((h for h in self.host_copies if (h.gen, h.width) == (gen, width)), None)

    @property
    def ambiguous(self) -> Mapping[str, tuple[Model, ...]]:
        """Families whose bare name means several products."""
        named = {m.family: self.match(m.family) for m in self.models}
        return {family: models for family, models in named.items() if len(models) > 1}


def device_id(written: str) -> str:
    """Four lower-case digits of a device or subsystem id in any of the usual forms; "" where it is none.

    NVML prints device and vendor in one number, device first: "0x233010DE".
    """
    text = written.strip().lower()
    match = re.fullmatch(r"(?:10de:|0x)?([0-9a-f]{4})(?:10de|[0-9a-f]{4})?", text)
    return match.group(1) if match else ""


def _is(model: Model, wanted: Wanted) -> bool:
    if model.family != wanted.family:
        return False
    if model.modified and not (wanted.modified or wanted.memory_gb is not None):
        return False
    if wanted.modified and not model.modified:
        return False
    return (
        wanted.form in ("", model.form, {"nvl": "pcie"}.get(model.form))
        and (wanted.memory_gb is None or wanted.memory_gb in model.marketed_gb)
        and wanted.memory_type in ("", model.memory_type)
        and wanted.edition in ("", model.edition)
    )


def _own_first(models: Iterable[Model]) -> tuple[Model, ...]:
    return tuple(sorted(models, key=lambda m: m.modified))


# --- loading -----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def load() -> Catalogue:
    """The catalogue that ships; read once."""
    return parse(shipped())


def shipped() -> str:
    """The text of the catalogue that ships."""
    return resources.path("contracts", "gpus.yaml").read_text(encoding="utf-8")


def tree(text: str) -> dict[str, Any]:
    """The catalogue's text as plain values: YAML would say the same, a hundred times slower."""
    loaded = json.loads("\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#")))
    if not isinstance(loaded, dict):
        raise TypeError("the catalogue is not a mapping")
    return loaded


def parse(text: str) -> Catalogue:
    """A catalogue's text. ValueError, KeyError or TypeError where it is not of the form of its schema."""
    top = tree(text)
    return Catalogue(
        models=tuple(_model(g) for g in top["gpus"]),
        others=tuple(Other(o["name"], tuple(o["pci_ids"]), o.get("note", "")) for o in top["others"]),
        sources={k: Source(k, s["title"], s.get("address", "")) for k, s in top["sources"].items()},
        host_copies=tuple(_host_copies(h) for h in top["host_copies"]),
    )


def _cite(raw: Mapping[str, Any]) -> Cite:
    return Cite(tuple(raw["sources"]), raw["confidence"], raw.get("method", ""), raw.get("note", ""))


def _figure(raw: Mapping[str, Any]) -> Figure:
    return Figure(raw["value"], _cite(raw), raw.get("count", 1), raw.get("by", ""))


def _maybe(raw: Optional[Mapping[str, Any]]) -> Optional[Figure]:
    return None if raw is None else _figure(raw)


def _figures(raw: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, tuple[Figure, ...]]:
    return {key: tuple(_figure(f) for f in figures) for key, figures in raw.items()}


def _host_copies(raw: Mapping[str, Any]) -> HostCopies:
    seen = _figures({way: raw[f"{way}_gbs"] for way in ("h2d", "d2h")})
    floors = (_maybe(raw.get(f"{way}_floor_gbs")) for way in ("h2d", "d2h"))
    return HostCopies(raw["gen"], raw["width"], seen["h2d"], seen["d2h"], *floors)


def _rate(raw: Mapping[str, Any]) -> Rate:
    return Rate(
        per_clock=raw["per_clock"],
        fastest=raw.get("fastest", raw["per_clock"]),
        reference_clock_mhz=raw["reference_clock_mhz"],
        peak=_maybe(raw.get("peak")),
        rate_cap=raw.get("rate_cap", False),
        exception=raw.get("exception", ""),
    )


def _nvlink(raw: Mapping[str, Any]) -> NvLink:
    return NvLink(raw["links"], raw["total_gbs"], raw["optional"], raw["layout"], _cite(raw))


def _model(raw: Mapping[str, Any]) -> Model:
    pcie: Mapping[str, Any] = raw["pcie"] or {}
    bus: Mapping[str, Any] = raw["bus_width_bits"] or {}
    return Model(
        id=raw["id"],
        title=raw["title"],
        family=raw["family"],
        form=raw["form"],
        edition=raw.get("edition", ""),
        marketed_gb=tuple(raw["marketed_gb"]),
        modified=raw.get("modified", False),
        nvml_names=tuple(raw["nvml_names"]),
        pci_ids=tuple(PciId(p["device"], tuple(p.get("subsystems", ()))) for p in raw["pci_ids"]),
        pci_sources=tuple(raw["pci_sources"]),
        memory=tuple(MemoryTotal(m["value"], m["ecc"], _cite(m)) for m in raw["memory_mib"]),
        memory_type=raw["memory_type"],
        sm_count=raw["sm_count"]["value"],
        cores=raw["cores"]["value"],
        bus_width_bits=bus.get("value"),
        compute_capability=raw["compute_capability"],
        max_clock_mhz=_figure(raw["max_clock_mhz"]),
        rates={dtype: _rate(r) for dtype, r in raw["rates"].items()},
        memory_spec_gbs=_figure(raw["memory_spec_gbs"]),
        power_default_w=_figure(raw["power_default_w"]),
        power_seen_w=tuple(raw.get("power_seen_w", {}).get("value", ())),
        pcie_gen=pcie.get("gen"),
        pcie_width=pcie.get("width"),
        pcie_widths_seen=tuple(pcie.get("widths_seen", ())),
        nvlink=_nvlink(raw["nvlink"]),
        p2p_pcie=raw["p2p_pcie"]["value"],
        ecc=raw["ecc"],
        mig=raw["mig"],
        siblings=tuple(Sibling(s["id"], tuple(s["tell"]), s.get("note", "")) for s in raw["siblings"]),
        seen=_figures(raw["seen"]),
        floors=_figures(raw["floors"]),
        cites={key: _cite(value) for key, value in raw.items() if isinstance(value, dict) and "sources" in value},
        note=raw.get("note", ""),
    )
