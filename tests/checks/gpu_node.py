"""Facts of a healthy machine with GPUs, made by hand, and changes to them. No process, no file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from types import ModuleType
from typing import Any, Callable, Optional

from agent.checks import families
from agent.checks._api import Case
from agent.facts._source import Fabric, NvLink, Source
from agent.facts.gpu_share import GpuShareFacts
from agent.facts.gpus import SOURCES, Gpu, GpusFacts
from agent.facts.kernel_log import KernelLog, KernelLogFacts, LogEvent
from agent.facts.pci import PciFacts
from agent.facts.processes import ProcessesFacts, Running
from agent.facts.rdma import RdmaFacts
from agent.facts.topology import TopologyFacts
from agent.model import Clause, Contract, Finding
from agent.reading import Known, Missing, Reading
from agent.text import msg
from agent.tools.smi_xml import SmiXml

SLOTS = ("0000:1b:00.0", "0000:43:00.0", "0000:9d:00.0", "0000:c3:00.0")
GONE = Missing("unsupported", msg("NVML: NVML_ERROR_NOT_SUPPORTED"), ("evidence/0001-nvml",))

H100: Mapping[str, Any] = {
    "name": "NVIDIA H100 80GB HBM3",
    "vbios": "96.00.99.00.01",
    "board_part": "692-2G520-0200-000",
    "pci_device_id": "10de:2330",
    "memory_total_mib": 81559.0,
    "memory_used_mib": 0.0,
    "memory_free_mib": 81079.0,
    "bus_width_bits": 5120,
    "power_enforced_w": 700.0,
    "power_default_w": 700.0,
    "power_min_w": 200.0,
    "power_max_w": 700.0,
    "clock_sm_mhz": 345.0,
    "clock_sm_max_mhz": 1980.0,
    "app_clock_sm_mhz": 1980.0,
    "app_clock_sm_default_mhz": 1980.0,
    "throttle": 1,
    "ecc_current": True,
    "ecc_pending": True,
    "ecc_uncorrected_aggregate": 0,
    "remapped_correctable": 0,
    "remapped_uncorrectable": 0,
    "remapped_pending": False,
    "remapped_failure": False,
    "mig_current": False,
    "mig_pending": False,
    "virtualization_mode": "none",
    "pcie_gen_current": 1,
    "pcie_gen_max": 5,
    "pcie_gen_device_max": 5,
    "pcie_width_current": 16,
    "pcie_width_max": 16,
    "utilization_gpu": 0,
    "persistence": True,
    "nvlinks": tuple(NvLink(n, True, 6, "switch") for n in range(18)),
    "fabric": Fabric("completed", "NVML_SUCCESS", "healthy"),
    "processes": (),
    "inforom_valid": True,
    "recovery_action": "none",
    "sm_count": 132,
}
# A GeForce: no ECC records, no MIG, no NVLink, no application clocks.
RTX4090: Mapping[str, Any] = {
    **{n: v for n, v in H100.items() if not n.startswith(("ecc", "remapped", "mig", "app_clock", "fabric", "board"))},
    "name": "NVIDIA GeForce RTX 4090",
    "vbios": "95.02.3C.00.01",
    "pci_device_id": "10de:2684",
    "memory_total_mib": 24564.0,
    "memory_free_mib": 24218.0,
    "bus_width_bits": 384,
    "power_enforced_w": 450.0,
    "power_default_w": 450.0,
    "power_max_w": 600.0,
    "pcie_gen_max": 4,
    "pcie_gen_device_max": 4,
    "sm_count": 128,
    "nvlinks": GONE,
}
_OF = {
    "nvml": tuple(n for n in H100 if n != "sm_count"),
    "smi": ("name", "vbios", "board_part", "memory_total_mib", "power_enforced_w", "power_default_w", "processes"),
    "pci": ("pci_device_id", "pcie_gen_max", "pcie_width_max", "pcie_width_current"),
    "proc": ("name", "vbios"),
    "cuda": ("name", "sm_count", "memory_total_mib", "bus_width_bits"),
}


def known(value: Any, probe: str = "nvml") -> Reading[Any]:
    """A value with evidence; what is Missing stays so."""
    return value if isinstance(value, Missing) else Known(value, (f"evidence/0001-{probe}",))


def source(name: str, values: Mapping[str, Any]) -> Source:
    """What one source says of a card: its share of the values."""
    return Source(name, {n: known(values[n], name) for n in _OF[name] if n in values})


def gpu(slot: str, index: int, values: Mapping[str, Any]) -> Gpu:
    """A card of which every source says the same."""
    uuid = known(f"GPU-{index}")
    found = {name: source(name, values) for name in SOURCES}
    sources = {n: Source(n, {**s.values, "uuid": uuid}) if n not in ("pci",) else s for n, s in found.items()}
    node = known(int(index >= 2), "pci")
    sources["pci"] = Source("pci", {**sources["pci"].values, "numa_node": node})
    return Gpu(slot, known(index), uuid, **sources)


def saying(card: Gpu, names: Sequence[str], **values: Any) -> Gpu:
    """The same card with other values by these sources."""
    changed: dict[str, Any] = {}
    for name in names:
        before = card.source(name)
        changed[name] = Source(name, {**before.values, **{n: known(v, name) for n, v in values.items()}}, before.absent)
    return replace(card, **changed)


def gpus(*cards: Gpu, **changes: Any) -> GpusFacts:
    """The machine of these cards, in order."""
    slots = tuple(c.slot for c in cards)
    pairs = [(a, b) for i, a in enumerate(slots) for b in slots[i + 1 :]]
    whole = {
        "gpus": cards,
        "sources": {n: known(slots, n) for n in SOURCES},
        "unopened": (),
        "driver": {n: known("550.54.15", n) for n in ("nvml", "smi", "proc")},
        "cuda_version": {n: known("12.4", n) for n in ("nvml", "smi", "cuda")},
        "smi": known(SmiXml("550.54.15", "12.4", len(cards), (), (), ()), "smi"),
        "nvidia_smi": GONE,
        "smi_is_script": known(False, "env"),
        "library": known("/usr/lib/libnvidia-ml.so.550.54.15"),
        "libraries": (),
        "library_matches": known(True),
        "kernel_module": known("open", "proc"),
        "nodes": known((0, 1), "proc"),
        "environment": known({}, "env"),
        "p2p": {p: {"read": "OK"} for p in pairs},
        "pci": PciFacts(known(slots, "pci"), {}, known((0, 1), "pci"), GONE, GONE),
        "hidden": (),
        **changes,
    }
    return GpusFacts(**{f.name: whole.get(f.name, GONE) for f in fields(GpusFacts)})


LOG = KernelLog("dmesg", 3, (), True, 0.0)


def node(facts: Optional[GpusFacts] = None, **changes: Any) -> dict[str, Any]:
    """All facts that judges of GPUs ask for: four H100 unless told otherwise."""
    cards = [gpu(s, i, H100) for i, s in enumerate(SLOTS)]
    return {
        "gpus": facts if facts is not None else gpus(*cards),
        "kernel_log": KernelLogFacts(known(LOG, "dmesg")),
        "gpu_share": GpuShareFacts(known((), "share"), known({}, "share"), known({}, "ps"), known(True, "share")),
        "processes": ProcessesFacts(known({1: Running(0, "init")}, "ps"), known(1000, "id")),
        "topology": TopologyFacts(GONE, GONE, GONE),
        "rdma": RdmaFacts(known({}, "rdma"), known({}, "rdma"), known(True, "rdma")),
        **changes,
    }


def machine(change: Callable[[Gpu], Gpu], index: int = 0, model: Mapping[str, Any] = H100) -> dict[str, Any]:
    """Four cards of a model, one of them changed."""
    cards = [gpu(s, i, model) for i, s in enumerate(SLOTS)]
    return node(gpus(*(change(c) if i == index else c for i, c in enumerate(cards))))


def valued(index: int = 0, model: Mapping[str, Any] = H100, **values: Any) -> dict[str, Any]:
    """Four cards of a model, one of which every source describes with other values."""
    cards = [gpu(s, i, {**model, **values} if i == index else model) for i, s in enumerate(SLOTS)]
    return node(gpus(*cards))


def events(*found: LogEvent, since_boot: bool = True) -> KernelLogFacts:
    """A kernel log with these events."""
    return KernelLogFacts(known(replace(LOG, events=found, since_boot=since_boot), "dmesg"))


def clause(key: str, text: str, **more: Any) -> Clause:
    """A clause of any family."""
    family, _, name = key.partition(".")
    module: ModuleType = families()[family]
    return Clause(key, family, name, module.GRAMMAR.clauses[name].parse(text), 1, 1, **more)


def judged(facts: Mapping[str, Any], *asked: Clause) -> dict[str, Finding]:
    """Findings by id, of these clauses."""
    case = Case(Contract(asked, b"", ""), facts)
    found: list[Finding] = []
    for family in dict.fromkeys(c.family for c in asked):
        found += families()[family].judge([c for c in asked if c.family == family], case)
    assert len({f.id for f in found}) == len(found)
    return {f.id: f for f in found}


def one(facts: Mapping[str, Any], key: str, text: str, slot: Optional[str] = SLOTS[0], **more: Any) -> Finding:
    """The finding of one clause on one card (or on the machine)."""
    return judged(facts, clause(key, text, **more))[f"{key}@{slot}" if slot else key]
