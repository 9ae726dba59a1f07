"""PCI devices as sysfs shows them: the GPUs, and the network cards and NVMe drives near them.

The real path of a device is the tree of bridges above it, from which :func:`relation` derives how two devices reach
each other. In a virtual machine the tree is the hypervisor's and says nothing of the machine below.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Callable, Optional

from agent.facts import Asked
from agent.facts._read import answer, parsed, whole
from agent.facts._slot import order, slot
from agent.facts._source import Source
from agent.host import Files, Host
from agent.reading import Known, Missing, Reading, fmap
from agent.text import Text, msg
from agent.tools import ParseError, lspci

NVIDIA = "10de"
_DEVICES = "/sys/bus/pci/devices"
_NODES = "/sys/devices/system/node"
_CLASSES = ("net", "infiniband", "nvme")
_SLOT = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_LINK_FILES = "current_link_speed max_link_speed current_link_width max_link_width".split()
_GPU_FILES = (
    "vendor device subsystem_vendor subsystem_device revision local_cpulist config "
    "aer_dev_correctable aer_dev_nonfatal aer_dev_fatal"
).split()
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}


@dataclass(frozen=True)
class Device:
    """One function. ``kind``: gpu, net, nvme, nvswitch, bridge. ``names``: its interfaces and drives (mlx5_0, nvme0).

    ``host_bridge`` (``pci0000:17``) and ``bridges`` (slots, from the root port down) lie above it. ``source`` has
    ``pcie_gen_current``, ``pcie_gen_max``, ``pcie_width_current``, ``pcie_width_max`` (int: of this function alone),
    ``numa_node`` (int), ``driver`` (str), ``iommu_group`` (int); of a GPU also ``pci_device_id``,
    ``pci_subsystem_id``, ``revision`` (str), ``cpus`` (str, a list such as ``0-31``), ``dead`` (bool: its registers
    read all ones), ``aer_correctable``, ``aer_nonfatal``, ``aer_fatal`` (int, since boot).
    """

    slot: str
    kind: str
    names: tuple[str, ...]
    host_bridge: str
    bridges: tuple[str, ...]
    source: Source


@dataclass(frozen=True)
class Relation:
    """How two devices reach each other, in nvidia-smi's words: PIX, PXB, PHB, NODE, SYS; None where it can't be told.

    ``why`` is the derivation.
    """

    link: Optional[str]
    why: Text


@dataclass(frozen=True)
class PciFacts:
    """``gpus``: slots of NVIDIA's display devices (class 03xx), or why none is shown. ``devices`` by slot.

    ``numa_nodes``: numbers of the machine's nodes. ``iommu``: whether one is active. ``redirecting``: bridges whose
    access control sends traffic between two GPUs up to the root and back (needs root to read).
    """

    gpus: Reading[tuple[str, ...]]
    devices: Mapping[str, Device]
    numa_nodes: Reading[tuple[int, ...]]
    iommu: Reading[bool]
    redirecting: Reading[tuple[str, ...]]

    def of_kind(self, kind: str) -> tuple[Device, ...]:
        """Devices of one kind by slot."""
        return tuple(self.devices[s] for s in sorted(self.devices, key=order) if self.devices[s].kind == kind)

    def between(self, one: str, other: str) -> Relation:
        """:func:`relation` of two slots."""
        nodes = self.numa_nodes.value if isinstance(self.numa_nodes, Known) else ()
        if one not in self.devices or other not in self.devices:
            gone = one if one not in self.devices else other
            return Relation(None, msg("{slot} is not on the PCI bus", slot=gone))
        return relation(self.devices[one], self.devices[other], nodes)


def collect(host: Host, asked: Asked) -> PciFacts:
    """Reads sysfs twice: what is there, then what each of interest says. ``lspci`` tells of access control."""
    listing = host.read(
        "pci",
        [f"{_DEVICES}/*/class", f"{_DEVICES}/*/vendor"],
        links=[f"{_DEVICES}/*", *(f"/sys/class/{name}/*" for name in _CLASSES)],
        names=[f"{_NODES}/node[0-9]*", "/sys/class/iommu/*", "/sys/kernel/iommu_groups"],
    )
    kinds = _kinds(listing)
    chains = {s: chain(link.value) for s in kinds if isinstance(link := listing.link(f"{_DEVICES}/{s}"), Known)}
    above = {b for _, bridges in chains.values() for b in bridges}
    files = host.read("pci-devices", _wanted(kinds, above), links=_wanted_links({*kinds, *above}))
    names = _names(listing)
    devices = {s: _device(files, s, kind, names, chains) for s, kind in kinds.items() if s in chains}
    for bridge in above - set(devices):
        where = listing.link(f"{_DEVICES}/{bridge}")
        if isinstance(where, Known):
            devices[bridge] = _device(files, bridge, "bridge", names, {bridge: chain(where.value)})
    return PciFacts(
        gpus=_gpus(listing, kinds),
        devices=devices,
        numa_nodes=_nodes(listing),
        iommu=_iommu(listing),
        redirecting=_redirecting(host, above),
    )


def chain(real_path: str) -> tuple[str, tuple[str, ...]]:
    """Host bridge and bridges of a device's real path, from the root down, without the device itself."""
    parts = real_path.split("/")
    slots = [p for p in parts if _SLOT.fullmatch(p)]
    root = next((p for p in parts if _HOST_BRIDGE.fullmatch(p)), "")
    return root, tuple(slots[:-1])


def relation(one: Device, other: Device, numa_nodes: tuple[int, ...]) -> Relation:
    """The path between two devices, from the bridges above both (nvidia-smi topo's legend).

    PIX: at most one switch (or one bridge) between them; PXB: several bridges, no host bridge; PHB: one host bridge;
    NODE: two host bridges of one NUMA node; SYS: two NUMA nodes. Two ports of one switch count as one switch.
    """
    shared = 0
    for a, b in zip(one.bridges, other.bridges):
        if a != b:
            break
        shared += 1
    if shared and one.host_bridge == other.host_bridge:
        below = (len(one.bridges) - shared, len(other.bridges) - shared)
        near = one.bridges[shared - 1]
        if max(below) <= 1:
            return Relation("PIX", msg("both below the bridge {slot}", slot=near))
        return Relation("PXB", msg("both below the bridge {slot}, with more bridges between", slot=near))
    if one.host_bridge and one.host_bridge == other.host_bridge:
        return Relation("PHB", msg("both below the host bridge {name}", name=one.host_bridge))
    return _across(one, other, numa_nodes)


def _across(one: Device, other: Device, numa_nodes: tuple[int, ...]) -> Relation:
    nodes = [one.source.get("numa_node"), other.source.get("numa_node")]
    told = [n.value for n in nodes if isinstance(n, Known)]
    if len(told) < 2 and len(numa_nodes) == 1:
        return Relation("NODE", msg("below two host bridges of the only NUMA node"))
    if len(told) < 2:
        return Relation(None, msg("below two host bridges, and the kernel does not tell their NUMA nodes"))
    if told[0] == told[1]:
        return Relation("NODE", msg("below two host bridges of NUMA node {node}", node=told[0]))
    return Relation("SYS", msg("in the NUMA nodes {one} and {other}", one=told[0], other=told[1]))


# --- what is there -------------------------------------------------------------------------------------


def _kinds(listing: Files) -> dict[str, str]:
    """Slot to kind, of the functions that matter."""
    found = {}
    for path in listing.match(f"{_DEVICES}/*/class"):
        where = path.split("/")[-2]
        code, vendor = listing.text(path), listing.text(f"{_DEVICES}/{where}/vendor")
        if isinstance(code, Known) and isinstance(vendor, Known) and (kind := _kind(code.value, vendor.value)):
            found[where] = kind
    return found


def _kind(code: str, vendor: str) -> Optional[str]:
    number = code.strip().lower()[2:]
    nvidia = vendor.strip().lower() == f"0x{NVIDIA}"
    if number.startswith("03"):
        return "gpu" if nvidia else None  # a server's own display chip is none of the promised
    if number.startswith("0680") and nvidia:
        return "nvswitch"
    return {"02": "net", "01": "nvme" if number.startswith("0108") else None}.get(number[:2])


def _gpus(listing: Files, kinds: Mapping[str, str]) -> Reading[tuple[str, ...]]:
    if not listing.recorded:
        return _missing(listing.link(_DEVICES))
    if not listing.match(f"{_DEVICES}/*"):
        return Missing("not-there", msg("{path} shows no PCI devices", path=_DEVICES), listing.cited)
    return Known(tuple(sorted((s for s, kind in kinds.items() if kind == "gpu"), key=order)), listing.cited)


def _missing(reading: Reading[str]) -> Missing:
    assert isinstance(reading, Missing)
    return reading


def _names(listing: Files) -> dict[str, tuple[str, ...]]:
    """By slot: interfaces, RDMA devices and drives; also those behind virtio."""
    found: dict[str, tuple[str, ...]] = {}
    for kind in _CLASSES:
        for path in listing.match(f"/sys/class/{kind}/*"):
            target = listing.link(path)
            slots = _SLOT.findall(target.value) if isinstance(target, Known) else []
            if slots:
                found[slots[-1]] = (*found.get(slots[-1], ()), path.rpartition("/")[2])
    return found


def _nodes(listing: Files) -> Reading[tuple[int, ...]]:
    numbers = [int(p.rpartition("node")[2]) for p in listing.match(f"{_NODES}/node[0-9]*")]
    if numbers:
        return Known(tuple(sorted(numbers)), listing.cited)
    if not listing.recorded:
        return _missing(listing.link(_NODES))
    return Missing("unsupported", msg("the kernel shows no NUMA nodes"), listing.cited)


def _iommu(listing: Files) -> Reading[bool]:
    if not listing.recorded:
        return _missing(listing.link("/sys/class/iommu"))
    if listing.match("/sys/class/iommu/*"):
        return Known(True, listing.cited)
    if listing.exists("/sys/kernel/iommu_groups"):
        return Known(False, listing.cited)
    return Missing("unsupported", msg("the kernel shows no IOMMU"), listing.cited)


def _redirecting(host: Host, bridges: set[str]) -> Reading[tuple[str, ...]]:
    found = answer(host.run("lspci", lspci.argv(), lspci.TIMEOUT_S), lspci.parse)
    if isinstance(found, Missing):
        return found
    ours = {where: d for d in found.value.devices if (where := slot(d.slot)) is not None and where in bridges}
    hidden = [where for where, d in ours.items() if d.access_denied]
    if hidden:
        detail = msg("lspci may not read the access control of {slot}", slot=hidden[0])
        return Missing("denied", detail, found.evidence, msg("grant {what}", what="root"))
    return Known(tuple(s for s, d in ours.items() if d.acs is not None and d.acs.redirects), found.evidence)


# --- what one device says ------------------------------------------------------------------------------


def _wanted(kinds: Mapping[str, str], bridges: Iterable[str]) -> list[str]:
    gpus = [s for s, kind in kinds.items() if kind == "gpu"]
    return [
        *(f"{_DEVICES}/{s}/{name}" for s in sorted({*kinds, *bridges}) for name in (*_LINK_FILES, "numa_node")),
        *(f"{_DEVICES}/{s}/{name}" for s in sorted(gpus) for name in _GPU_FILES),
    ]


def _wanted_links(slots: Iterable[str]) -> list[str]:
    return [f"{_DEVICES}/{s}/{name}" for s in sorted(slots) for name in ("driver", "iommu_group")]


def _device(
    files: Files,
    where: str,
    kind: str,
    names: Mapping[str, tuple[str, ...]],
    chains: Mapping[str, tuple[str, tuple[str, ...]]],
) -> Device:
    at = f"{_DEVICES}/{where}"

    def read(name: str, parse: Callable[[str], Any]) -> Reading[Any]:
        return parsed(files.text(f"{at}/{name}"), parse, name)

    values: dict[str, Reading[Any]] = {
        "slot": Known(where, files.cited),
        "pcie_gen_current": _stated(read("current_link_speed", generation)),
        "pcie_gen_max": _stated(read("max_link_speed", generation)),
        "pcie_width_current": _stated(read("current_link_width", width)),
        "pcie_width_max": _stated(read("max_link_width", width)),
        "numa_node": _node(read("numa_node", whole)),
        "driver": fmap(_last, files.link(f"{at}/driver")),
        "iommu_group": parsed(fmap(_last, files.link(f"{at}/iommu_group")), whole, "iommu_group"),
    }
    if kind == "gpu":
        values.update(_gpu_values(files, at, read))
    root, bridges = chains[where]
    return Device(where, kind, names.get(where, ()), root, bridges, Source("pci", values))


def _gpu_values(files: Files, at: str, read: Callable[..., Reading[Any]]) -> dict[str, Reading[Any]]:
    return {
        "pci_device_id": _pair(files, f"{at}/vendor", f"{at}/device"),
        "pci_subsystem_id": _pair(files, f"{at}/subsystem_vendor", f"{at}/subsystem_device"),
        "revision": read("revision", lambda text: text.strip()[2:].lower()),
        "cpus": read("local_cpulist", str.strip),
        # Bytes that are no text come as replacement characters: four of them are 0xffffffff for vendor and device.
        "dead": read("config", lambda text: text[:4] == "\ufffd" * 4),
        "aer_correctable": read("aer_dev_correctable", aer_total),
        "aer_nonfatal": read("aer_dev_nonfatal", aer_total),
        "aer_fatal": read("aer_dev_fatal", aer_total),
    }


def _last(target: str) -> str:
    return target.rpartition("/")[2]


def _pair(files: Files, vendor: str, device: str) -> Reading[str]:
    """``0x10de`` and ``0x2330`` as ``10de:2330``."""
    one, other = files.text(vendor), files.text(device)
    if isinstance(one, Missing):
        return one
    return fmap(lambda text: f"{one.value.strip()[2:]}:{text.strip()[2:]}".lower(), other)


def generation(text: str) -> Optional[int]:
    """``16.0 GT/s PCIe`` as 4; None where the kernel says Unknown."""
    found = re.match(r"(\d+(?:\.\d+)?) GT/s", text)
    if found is None and not text.startswith("Unknown"):
        raise ParseError("unparsable", "not a PCIe link speed", text)
    return _GENERATIONS.get(float(found[1])) if found else None


def width(text: str) -> Optional[int]:
    """Lanes; None for 0, and for 63 and 255, which registers of all ones show."""
    lanes = whole(text)
    return lanes if 0 < lanes <= 32 else None


def aer_total(text: str) -> int:
    """The ``TOTAL_ERR_…`` line of one of the kernel's AER counters."""
    found = re.search(r"^TOTAL_ERR_\w+ (\d+)$", text, re.MULTILINE)
    if found is None:
        raise ParseError("unparsable", "no total of AER errors", text.partition("\n")[0])
    return int(found[1])


def _stated(reading: Reading[Optional[int]]) -> Reading[int]:
    if isinstance(reading, Missing):
        return reading
    if reading.value is None:
        return Missing("unsupported", msg("this device shows no PCIe link"), reading.evidence)
    return Known(reading.value, reading.evidence)


def _node(reading: Reading[int]) -> Reading[int]:
    """-1 is the kernel's "not stated"."""
    if isinstance(reading, Known) and reading.value < 0:
        return Missing("unsupported", msg("the kernel does not tell this device's NUMA node"), reading.evidence)
    return reading
