"""Judging how GPUs, network cards, CPUs and memory fit together: pure, on facts made here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Optional

import pytest

from agent.facts._source import Fabric, NvLink, Source
from agent.facts.cpu import CpuFacts
from agent.facts.gpus import GpusFacts
from agent.facts.memory import MemoryFacts
from agent.facts.pci import Device, PciFacts
from agent.facts.rdma import Hca, Port, RdmaFacts
from agent.facts.topology import TopologyFacts
from agent.reading import Missing
from agent.text import msg
from agent.tools.topo import Topology
from tests.checks.gpu_node import GONE, H100, SLOTS, clause, gpu, gpus, judged, known, machine, node, one, valued
from tests.checks.test_gpu import lost
from tests.checks.test_host_facts import facts as host_facts


def device(slot: str, kind: str, root: str, bridges: tuple[str, ...], numa: int, names: tuple[str, ...] = ()) -> Device:
    return Device(slot, kind, names, root, bridges, Source("pci", {"numa_node": known(numa, "pci")}))


def tree(nics: bool = True) -> PciFacts:
    """Two cards a socket, each below a switch with a network card."""
    found = {}
    for i, slot in enumerate(SLOTS):
        numa, root = i // 2, f"pci0000:{i:02x}"
        switch = (f"0000:{i:02x}:01.0", f"0000:{i:02x}:02.0")
        found[slot] = device(slot, "gpu", root, (*switch, f"0000:{i:02x}:03.0"), numa)
        if nics:
            nic = f"0000:{i:02x}:05.0"
            found[nic] = device(nic, "net", root, (*switch, f"0000:{i:02x}:04.0"), numa, (f"mlx5_{i}",))
    return PciFacts(known(SLOTS, "pci"), found, known((0, 1), "pci"), GONE, GONE)


def wired(facts: Optional[GpusFacts] = None, nics: bool = True, **more: Any) -> dict[str, Any]:
    return node(replace(facts or node()["gpus"], pci=tree(nics)), **more)


# --- GPU to GPU -------------------------------------------------------------------------------------------------------


def test_nvlink_everywhere() -> None:
    found = one(wired(), "topology.gpu_gpu", "NVLink", None)
    assert (found.outcome, found.measured) == ("pass", "NVLink")
    said = " ".join(map(str, found.notes))
    assert "371 GB/s" in said  # 18 links × 20.6 GB/s, NCCL's own model


def test_one_card_off_the_fabric_is_its_own_fault() -> None:
    cards = [gpu(s, i, {**H100, "fabric": Fabric("in-progress")} if i == 2 else H100) for i, s in enumerate(SLOTS)]
    found = judged(wired(gpus(*cards)), clause("topology.gpu_gpu", "NVLink"))
    assert set(found) == {f"topology.gpu_gpu@{SLOTS[2]}"}
    failed = found[f"topology.gpu_gpu@{SLOTS[2]}"]
    assert failed.outcome == "fail"
    assert "in-progress" in str(failed.reason)
    assert f"{SLOTS[0]} – {SLOTS[2]} (SYS)" in str(failed.reason)


def test_no_nvlink_at_all_is_the_machine() -> None:
    cards = [gpu(s, i, {**H100, "nvlinks": ()}) for i, s in enumerate(SLOTS)]
    found = judged(wired(gpus(*cards)), clause("topology.gpu_gpu", "NVLink"))
    assert {i: f.outcome for i, f in found.items()} == {"topology.gpu_gpu": "fail"}


def test_unreadable_nvlink_is_not_absent() -> None:
    cards = [gpu(s, i, {**H100, "nvlinks": GONE}) for i, s in enumerate(SLOTS)]
    assert one(wired(gpus(*cards)), "topology.gpu_gpu", "NVLink", None).outcome == "inconclusive"
    # nvidia-smi's own matrix tells: no pair prints NV.
    links = {f"GPU{i}": {f"GPU{k}": "SYS" for k in range(4) if k != i} for i in range(4)}
    matrix = Topology(tuple(links), {}, links, {}, {}, {}, True)
    told = wired(gpus(*cards), topology=TopologyFacts(known(matrix, "topo"), GONE, GONE))
    assert one(told, "topology.gpu_gpu", "NVLink", None).outcome == "fail"


def test_bridged_pairs() -> None:
    """Two pairs over bridges, and PCIe between the pairs."""
    cards = []
    for i, s in enumerate(SLOTS):
        mate = SLOTS[i ^ 1]
        cards.append(gpu(s, i, {**H100, "fabric": GONE, "nvlinks": (NvLink(0, True, 6, "gpu", mate),)}))
    facts = wired(gpus(*cards))
    found = one(facts, "topology.gpu_gpu", "NVLink", None)
    assert found.outcome == "fail"
    assert f"{SLOTS[0]} – {SLOTS[1]}" not in str(found.reason)
    assert one(facts, "topology.gpu_gpu", "<= SYS", None).outcome == "pass"
    assert any("2 of 6 pairs" in str(n) for n in one(facts, "topology.gpu_gpu", "<= SYS", None).notes)


def test_single_gpu_has_no_topology() -> None:
    alone = node(gpus(gpu(SLOTS[0], 0, H100)))
    assert one(alone, "topology.gpu_gpu", "NVLink", None).outcome == "inconclusive"


# --- GPU to NIC, NUMA -------------------------------------------------------------------------------------------------


def test_nearest_nic() -> None:
    found = one(wired(), "topology.gpu_nic", "<= PXB")
    assert (found.outcome, found.measured) == ("pass", "PIX")
    far = replace(tree(), devices={s: d for s, d in tree().devices.items() if d.names != ("mlx5_0",)})
    facts = node(replace(node()["gpus"], pci=far))
    failed = judged(facts, clause("topology.gpu_nic", "<= PXB"))
    assert {i for i, f in failed.items() if f.outcome == "fail"} == {f"topology.gpu_nic@{SLOTS[0]}"}
    assert failed[f"topology.gpu_nic@{SLOTS[0]}"].measured == "NODE"
    assert one(wired(nics=False), "topology.gpu_nic", "<= PXB").outcome == "inconclusive"


def test_numa() -> None:
    assert one(wired(), "topology.numa", "balanced", None).outcome == "pass"

    def placed(*nodes: int) -> dict[str, Any]:
        cards = []
        for i, s in enumerate(SLOTS):
            card = gpu(s, i, H100)
            pci = replace(card.pci, values={**card.pci.values, "numa_node": known(nodes[i], "pci")})
            cards.append(replace(card, pci=pci))
        return wired(gpus(*cards))

    assert one(placed(0, 0, 0, 0), "topology.numa", "balanced", None).outcome == "fail"
    assert one(placed(0, 0, 0, 1), "topology.numa", "balanced", None).outcome == "fail"
    assert one(placed(0, 1, 0, 1), "topology.numa", "balanced", None).outcome == "pass"


def test_guest_cannot_tell_its_place() -> None:
    cards = [gpu(s, i, {**H100, "virtualization_mode": "passthrough"}) for i, s in enumerate(SLOTS)]
    facts = wired(gpus(*cards))
    for key, text in (("topology.gpu_nic", "<= PXB"), ("topology.numa", "balanced")):
        found = one(facts, key, text, None)
        assert (found.outcome, bool(found.grant)) == ("inconclusive", True)
    assert one(facts, "topology.gpu_gpu", "NVLink", None).outcome == "pass"  # NVML names the links in a guest too


# --- RDMA -------------------------------------------------------------------------------------------------------------


def hca(name: str, rate: float = 400e9, state: str = "ACTIVE", slot: Optional[str] = "0000:00:05.0") -> Hca:
    port = Port(1, known(state), known("LinkUp"), known(rate), known("4X NDR"), known("InfiniBand"), {})
    return Hca(name, slot, False, known("MT4129"), known("28"), known("x"), (), (port,))


def rdma(*devices: Hca, modules: Optional[dict[str, bool]] = None) -> dict[str, Any]:
    found = RdmaFacts(
        known({d.name: d for d in devices}, "rdma"),
        known(modules or {"nvidia_peermem": True}, "rdma"),
        known(True, "rdma"),
    )
    return node(rdma=found)


@pytest.mark.parametrize(
    ("devices", "outcomes"),
    [
        ((hca("mlx5_0"), hca("mlx5_1")), {}),
        ((hca("mlx5_0"),), {"rdma.devices": "fail"}),
        ((hca("mlx5_0"), hca("mlx5_1", 200e9)), {"rdma.rate@mlx5_1": "fail"}),
        ((hca("mlx5_0"), hca("mlx5_1", state="DOWN")), {"rdma.rate@mlx5_1": "fail"}),
        # A slower third card is for storage: nobody promised it.
        ((hca("mlx5_0"), hca("mlx5_1"), hca("mlx5_2", 100e9)), {}),
        ((hca("mlx5_0"), hca("mlx5_1"), hca("mlx5_2")), {"rdma.devices": "fail"}),
        ((hca("mlx5_0"), hca("rxe0", slot=None)), {"rdma.devices": "fail"}),
    ],
)
def test_rdma(devices: tuple[Hca, ...], outcomes: dict[str, str]) -> None:
    found = judged(rdma(*devices), clause("rdma.devices", "2"), clause("rdma.rate", "400 Gbit/s"))
    assert {i: f.outcome for i, f in found.items() if f.outcome != "pass"} == outcomes
    assert all(f.evidence for f in found.values())


def test_no_rdma_is_a_fact_and_unreadable_is_none() -> None:
    none = Missing("not-there", msg("the kernel shows no RDMA devices"), ("evidence/x",))
    facts = node(rdma=RdmaFacts(none, known({}), known(False)))
    found = judged(facts, clause("rdma.devices", "8"), clause("rdma.rate", "400 Gbit/s"))
    assert {f.outcome for f in found.values()} == {"fail"}
    # Where not even the PCI bus shows, nothing was looked at.
    gpus = node()["gpus"]
    blind = node(replace(gpus, pci=replace(gpus.pci, gpus=replace(none, kind="not-there"))), rdma=facts["rdma"])
    for found_one in judged(blind, clause("rdma.devices", "8"), clause("rdma.rate", "400 Gbit/s")).values():
        assert found_one.outcome == "inconclusive"
        assert found_one.grant is not None
    facts = node(rdma=RdmaFacts(replace(none, kind="not-recorded"), GONE, GONE))
    found = judged(
        facts, clause("rdma.devices", "8"), clause("rdma.rate", "400 Gbit/s"), clause("rdma.gpudirect", "on")
    )
    assert {f.outcome for f in found.values()} == {"inconclusive"}


def test_gpudirect() -> None:
    assert one(rdma(), "rdma.gpudirect", "true", None).outcome == "pass"
    without = rdma(modules={"nvidia_peermem": False})
    assert one(without, "rdma.gpudirect", "true", None).outcome == "inconclusive"  # the open driver has dma-buf
    proprietary = {**without, "gpus": replace(without["gpus"], kernel_module=known("proprietary"))}
    assert one(proprietary, "rdma.gpudirect", "true", None).outcome == "fail"
    unmeasured = one(rdma(hca("mlx5_0")), "rdma.write_bandwidth", ">= 380 Gbit/s", "mlx5_0")
    assert (unmeasured.outcome, unmeasured.reason_code) == ("inconclusive", "left-out")


# --- per GPU ----------------------------------------------------------------------------------------------------------


def test_shares_of_cpu_and_memory() -> None:
    host = {"cpu": host_facts(CpuFacts, vcpus=48.0), "memory": host_facts(MemoryFacts, size=1 << 40)}
    facts = {**node(), **host}
    assert one(facts, "cpu.per_gpu", "12", None).outcome == "pass"
    assert one(facts, "cpu.per_gpu", "16", None).outcome == "fail"
    assert one(facts, "memory.per_vram", "3", None).outcome == "pass"  # 1 TiB over 4 × 81559 MiB is 3.2
    assert one(facts, "memory.per_vram", "4", None).outcome == "fail"
    no_gpus = {**facts, "gpus": gpus(sources=dict.fromkeys(("nvml", "smi", "pci", "proc", "cuda"), GONE))}
    assert one(no_gpus, "cpu.per_gpu", "12", None).outcome == "inconclusive"
    assert one(no_gpus, "memory.per_vram", "3", None).outcome == "inconclusive"
    unread = {**valued(memory_total_mib=GONE), **host}
    assert one(unread, "memory.per_vram", "3", None).outcome == "inconclusive"


def test_lost_card_leaves_the_topology_of_the_others() -> None:
    facts = machine(lost, 3)
    facts = node(replace(facts["gpus"], pci=tree()))
    assert one(facts, "topology.gpu_gpu", "NVLink", None).outcome == "pass"


def test_without_a_card_on_the_bus_no_driver_is_asked_for() -> None:
    no_library = Missing("not-there", msg("no libnvidia-ml.so.1"), (), msg("install the library"))
    bare = gpus(sources={"nvml": no_library, "smi": GONE, "pci": known((), "pci")})
    found = one(node(bare), "gpu.count", "8", slot=None)
    assert found.outcome == "inconclusive"
    assert found.reason.render(str) == "no GPU answers: no NVIDIA GPU on the PCI bus"
    assert found.grant is not None
    assert "attach" in found.grant.render(str)
    unread = gpus(sources={"nvml": no_library, "smi": GONE, "pci": GONE})
    assert "libnvidia-ml" in one(node(unread), "gpu.count", "8", slot=None).reason.render(str)
