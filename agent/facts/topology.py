"""How GPUs reach each other and the network cards: what nvidia-smi says, beside what the PCI tree and NVML say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.facts import Asked, _smi
from agent.facts._source import NvLink
from agent.facts.gpus import Gpu, GpusFacts
from agent.facts.pci import Relation
from agent.host import Host
from agent.reading import Known, Missing, Reading
from agent.text import msg
from agent.tools import nvlink, topo
from agent.tools.nvlink import NvlinkStatus
from agent.tools.topo import P2pStatus, Topology

_P2P_ARGV = ("nvidia-smi", "topo", "-p2p", "r")


@dataclass(frozen=True)
class TopologyFacts:
    """``matrix``: ``nvidia-smi topo -m``; ``p2p``: ``topo -p2p r``; ``nvlink``: ``nvlink -s``.

    nvidia-smi numbers the GPUs as NVML does: ``GPU3`` is the GPU with index 3.
    """

    matrix: Reading[Topology]
    p2p: Reading[P2pStatus]
    nvlink: Reading[NvlinkStatus]


@dataclass(frozen=True)
class Pair:
    """Two GPUs by slot (lower first).

    ``link``: nvidia-smi's word (NV18, PIX, SYS …). ``computed``: the PCI path by the tree. ``nvlinks``: NVLinks
    between them by NVML (through NVSwitches: what both have active). ``p2p``: OK or the reason, NVML's else
    nvidia-smi's.
    """

    one: str
    other: str
    link: Reading[str]
    computed: Relation
    nvlinks: Reading[int]
    p2p: Reading[str]


@dataclass(frozen=True)
class Distance:
    """A GPU and a network card or drive. ``names``: its interfaces; ``link``: nvidia-smi's word for network cards."""

    gpu: str
    device: str
    kind: str
    names: tuple[str, ...]
    link: Reading[str]
    computed: Relation


def collect(host: Host, asked: Asked) -> TopologyFacts:
    """Three calls of nvidia-smi."""
    return TopologyFacts(
        matrix=_smi.ask(host, "topo-m", topo.ARGV, topo.parse),
        nvlink=_smi.ask(host, "nvlink-s", nvlink.ARGV, nvlink.parse),
        p2p=_smi.ask(host, "topo-p2p", _P2P_ARGV, topo.parse_p2p),
    )


def pairs(gpus: GpusFacts, topology: TopologyFacts) -> tuple[Pair, ...]:
    """Every pair of GPUs, in the order of their slots."""
    found = gpus.gpus
    return tuple(_pair(a, b, gpus, topology) for i, a in enumerate(found) for b in found[i + 1 :])


def distances(gpus: GpusFacts, topology: TopologyFacts) -> tuple[Distance, ...]:
    """Every GPU to every network card that has an interface, and to every NVMe drive."""
    near = [d for kind in ("net", "nvme") for d in gpus.pci.of_kind(kind) if d.names]
    return tuple(
        Distance(
            gpu=gpu.slot,
            device=device.slot,
            kind=device.kind,
            names=device.names,
            link=_nic_link(gpu, device.names, topology.matrix),
            computed=gpus.pci.between(gpu.slot, device.slot),
        )
        for gpu in gpus.gpus
        for device in near
    )


def _pair(one: Gpu, other: Gpu, gpus: GpusFacts, topology: TopologyFacts) -> Pair:
    return Pair(
        one=one.slot,
        other=other.slot,
        link=_cell(topology.matrix, one, other),
        computed=gpus.pci.between(one.slot, other.slot),
        nvlinks=between(one, other),
        p2p=_p2p(one, other, gpus, topology.p2p),
    )


def _label(gpu: Gpu) -> Reading[str]:
    if isinstance(gpu.index, Missing):
        return gpu.index
    return Known(f"GPU{gpu.index.value}", gpu.index.evidence)


def _cell(matrix: Reading[Topology], one: Gpu, other: Gpu) -> Reading[str]:
    row, column = _label(one), _label(other)
    for reading in (matrix, row, column):
        if isinstance(reading, Missing):
            return reading
    assert isinstance(matrix, Known)
    assert isinstance(row, Known)
    assert isinstance(column, Known)
    link = matrix.value.links.get(row.value, {}).get(column.value)
    if link is None:
        detail = msg("nvidia-smi topo lists no {one} beside {other}", one=row.value, other=column.value)
        return Missing("not-there", detail, matrix.evidence)
    return Known(link, matrix.evidence)


def _nic_link(gpu: Gpu, names: Sequence[str], matrix: Reading[Topology]) -> Reading[str]:
    row = _label(gpu)
    if isinstance(matrix, Missing):
        return matrix
    if isinstance(row, Missing):
        return row
    columns = [column for column, name in matrix.value.nics.items() if name in names]
    links = [link for c in columns if (link := matrix.value.links.get(row.value, {}).get(c)) is not None]
    if not links:
        return Missing("not-there", msg("nvidia-smi topo does not list this device"), matrix.evidence)
    return Known(links[0], matrix.evidence)


def between(one: Gpu, other: Gpu) -> Reading[int]:
    """NVLinks between two GPUs by NVML: direct ones, or through switches the smaller of the two counts."""
    mine, theirs = one.nvml.get("nvlinks"), other.nvml.get("nvlinks")
    for reading in (mine, theirs):
        if isinstance(reading, Missing):
            return reading
    assert isinstance(mine, Known)
    assert isinstance(theirs, Known)
    evidence = tuple(dict.fromkeys((*mine.evidence, *theirs.evidence)))
    return Known(joined(mine.value, theirs.value, other.slot), evidence)


def joined(mine: Sequence[NvLink], theirs: Sequence[NvLink], where: str) -> int:
    """How many of my active links end at the card in ``where``, or at switches that the other's links reach too."""
    direct = [x for x in mine if x.active and x.remote_slot == where]
    switched = [sum(1 for x in links if x.active and x.remote_type == "switch") for links in (mine, theirs)]
    return len(direct) or min(switched)


def _p2p(one: Gpu, other: Gpu, gpus: GpusFacts, states: Reading[P2pStatus]) -> Reading[str]:
    told = gpus.p2p.get((one.slot, other.slot), {}).get("read")
    if told is not None:
        return Known(told, one.nvml.evidence)
    row, column = _label(one), _label(other)
    if isinstance(states, Missing):
        return states
    if isinstance(row, Missing):
        return row
    if isinstance(column, Missing):
        return column
    state = states.value.states.get(row.value, {}).get(column.value)
    if state is None:
        return Missing("not-there", msg("nvidia-smi topo -p2p does not list this pair"), states.evidence)
    return Known(state, states.evidence)
