"""What the fake nvidia-smi and lspci print: the agent's parsers read it, and read what the card is."""

from __future__ import annotations

import pytest

from agent.tools import dmesg, lspci, nvlink, smi_table, smi_xml, topo
from tests.fakenode import machine, smi_texts, wrong
from tests.fakenode.card import Card
from tests.fakenode.node import Node, functions
from tests.fakenode.nvml_answers import nvlinks_between

NODES = [pytest.param(case.node, id=name) for name, case in wrong.CASES.items()]
pytestmark = pytest.mark.parametrize("make", NODES)


def told(node: Node) -> list[Card]:
    return [card.seen_by("smi") for card in node.listed]


def test_xml(make: wrong.Make) -> None:
    node = make()
    found = smi_xml.parse(smi_texts.xml(node.listed, node.driver, node.cuda))
    assert (found.driver_version, found.cuda_version, found.attached_gpus) == (node.driver, node.cuda, len(node.listed))
    for gpu, card in zip(found.gpus, told(node)):
        guest = card.virtualization == "VGPU"
        assert (gpu.product_name, gpu.uuid, gpu.serial) == (card.name, card.uuid, card.serial)
        assert gpu.pci_bus_id == smi_texts.bus_id(card)
        assert gpu.lost == card.lost
        assert gpu.memory_total_mib == ("error: GPU is lost" if card.lost else card.memory_mib)
        assert gpu.power_limit_w == (None if guest else card.limit_w)
        assert gpu.power_default_limit_w == (None if guest else card.power_default_w)
        assert gpu.pcie_gen_current == (None if guest else card.gen_now)
        assert gpu.pcie_gen_max == (None if guest else card.slot_max_gen)
        assert gpu.pcie_width_current == (None if guest else card.pcie_width)
        assert gpu.ecc_mode == (None if card.ecc is None else smi_texts.on(card.ecc))
        assert gpu.mig_mode == (None if card.mig is None else smi_texts.on(card.mig))
        assert gpu.virtualization_mode == card.virtualization
        assert len(gpu.more.mig_devices) == (2 if card.mig else 0)
        assert gpu.more.license_status == card.licence
        fabric = card.fabric[0] if card.fabric else None
        assert gpu.more.fabric_state == ("error: GPU is lost" if card.lost else fabric)
        if not card.lost:
            assert gpu.memory_used_mib == card.memory_used_mib
            assert gpu.more.memory_free_mib == card.free_mib
            assert gpu.ecc_uncorrected_aggregate == (card.ecc_uncorrected if card.ecc and not guest else None)
            assert gpu.remapped_rows_failure == (None if card.mig or guest else bool(card.remapped[3]))
            assert [p.pid for p in gpu.processes or ()] == [p.pid for p in card.processes]


def test_topology(make: wrong.Make) -> None:
    node = make()
    nics: list[smi_texts.Place] = [(nic.name, nic.parents, nic.numa) for nic in node.nics if nic.rdma]
    found = topo.parse(smi_texts.topology(node.listed, nics, node.cpus.lists))
    cards = told(node)
    assert len(found.gpus) == len(cards)
    assert list(found.nics.values()) == [name for name, _, _ in nics]
    for at, card in enumerate(cards):
        assert found.cpu_affinity[f"GPU{at}"] == node.cpus.lists[card.numa]
        assert found.numa_affinity[f"GPU{at}"] == str(card.numa)
        for to, peer in enumerate(cards):
            if at != to:
                links = nvlinks_between(card, peer)
                cell = found.links[f"GPU{at}"][f"GPU{to}"]
                assert cell == f"NV{links}" if links else cell in topo.LINKS


def test_peers(make: wrong.Make) -> None:
    node = make()
    if len(node.listed) < 2:
        return  # a table of one says nothing of peers
    found = topo.parse_p2p(smi_texts.peers(node.listed))
    assert len(found.gpus) == len(node.listed)


def test_links(make: wrong.Make) -> None:
    node = make()
    text = smi_texts.nvlinks(node.listed)
    with_links = [card for card in told(node) if card.links]
    if not with_links:
        assert text == ""
        return
    found = nvlink.parse(text)
    assert [gpu.active for gpu in found.gpus] == [sum(card.links) for card in with_links]


def test_table(make: wrong.Make) -> None:
    node = make()
    found = smi_table.parse(smi_texts.table(node.listed, node.driver, node.cuda))
    assert [gpu.memory_total_mib for gpu in found.gpus] == [card.memory_mib for card in told(node)]
    assert [gpu.pci_bus_id for gpu in found.gpus] == [smi_texts.bus_id(card) for card in told(node)]
    assert (
        max(map(len, smi_texts.table(node.listed, node.driver, node.cuda).splitlines())) <= 91
    )  # as wide as its frame


def test_lspci(make: wrong.Make) -> None:
    node = make()
    found = lspci.parse(machine.lspci(functions(node), root=True))
    slots = {device.slot for device in found.devices}
    assert slots >= {card.slot for card in node.cards if card.index not in node.off_bus}


def test_kernel_log(make: wrong.Make) -> None:
    node = make()
    if node.kernel_log is None:
        return
    found = dmesg.parse("\n".join(node.kernel_log) + "\n")
    assert len(found.xids) == sum("Xid" in line for line in node.kernel_log)


def test_cards_are_one_machine(make: wrong.Make) -> None:
    node = make()
    assert len({card.slot for card in node.cards}) == len({card.uuid for card in node.cards}) == len(node.cards)
    places = [f.slot for f in functions(node)]
    assert len(places) == len(set(places))
    bridges = {bridge for f in functions(node) for bridge in f.parents[1:]}
    assert not bridges & set(places)
