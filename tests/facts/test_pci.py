from __future__ import annotations

import pytest

from agent.facts import Asked, pci
from agent.facts._source import Source
from agent.facts.pci import Device
from agent.reading import Known, Missing
from agent.text import msg
from agent.tools import ParseError
from tests.facts.fake import Start
from tests.facts.node import Node, missing, value
from tests.fakenode import healthy

DEVICES = "/sys/bus/pci/devices"
GPU, OTHER, DISPLAY = "0000:1b:00.0", "0000:1c:00.0", "0000:03:00.0"


def device(root: str, bridges: str, node: int = -1) -> Device:
    numa = Known(node) if node >= 0 else Missing("unsupported", msg("not told"))
    return Device("0000:01:00.0", "gpu", (), root, tuple(bridges.split()), Source("pci", {"numa_node": numa}))


@pytest.mark.parametrize(
    ("one", "other", "nodes", "link"),
    [
        # two ports of one switch: root port, upstream port, a downstream port each
        (
            device("pci0000:17", "17:01.0 18:00.0 19:00.0", 0),
            device("pci0000:17", "17:01.0 18:00.0 19:01.0", 0),
            (0,),
            "PIX",
        ),
        # two functions of one card
        (device("pci0000:17", "17:01.0"), device("pci0000:17", "17:01.0"), (), "PIX"),
        # a switch below a switch
        (
            device("pci0000:17", "17:01.0 18:00.0 19:00.0 1a:00.0 1b:00.0"),
            device("pci0000:17", "17:01.0 18:00.0 19:01.0"),
            (0, 1),
            "PXB",
        ),
        # two root ports of one host bridge; virtual machines without ports of their own
        (device("pci0000:17", "17:01.0 18:00.0"), device("pci0000:17", "17:03.0 1c:00.0"), (0, 1), "PHB"),
        (device("pci0000:00", ""), device("pci0000:00", ""), (), "PHB"),
        # two host bridges
        (device("pci0000:17", "17:01.0", 0), device("pci0000:3a", "3a:01.0", 0), (0, 1), "NODE"),
        (device("pci0000:17", "17:01.0", 0), device("pci0000:9a", "9a:01.0", 1), (0, 1), "SYS"),
        # a machine of one node does not number its devices
        (device("pci0000:17", "17:01.0"), device("pci0000:3a", "3a:01.0"), (0,), "NODE"),
        (device("pci0000:17", "17:01.0"), device("pci0000:3a", "3a:01.0"), (0, 1), None),
        (device("pci0000:17", "17:01.0", 0), device("pci0000:3a", "3a:01.0"), (), None),
        # the same numbers below two host bridges are no common bridge
        (device("pci0000:17", "01:00.0", 0), device("pci0001:17", "01:00.0", 1), (0, 1), "SYS"),
    ],
)
def test_relation(one: Device, other: Device, nodes: tuple[int, ...], link: str) -> None:
    for a, b in ((one, other), (other, one)):
        found = pci.relation(a, b, nodes)
        assert found.link == link
        assert str(found.why)


def test_chain_of_a_real_path() -> None:
    path = "../../../devices/pci0000:17/0000:17:01.0/0000:18:00.0/0000:19:00.0/0000:1b:00.0"
    assert pci.chain(path) == ("pci0000:17", ("0000:17:01.0", "0000:18:00.0", "0000:19:00.0"))
    assert pci.chain("../../../devices/pci0000:00/0000:00:05.0") == ("pci0000:00", ())


@pytest.mark.parametrize(
    ("text", "expected"), [("32.0 GT/s PCIe", 5), ("2.5 GT/s", 1), ("8 GT/s", 3), ("Unknown", None)]
)
def test_generation(text: str, expected: int) -> None:
    assert pci.generation(text) == expected


def test_what_is_no_speed_is_no_generation() -> None:
    with pytest.raises(ParseError):
        pci.generation("fast")


@pytest.mark.parametrize(("text", "expected"), [("16", 16), ("1", 1), ("0", None), ("63", None), ("255", None)])
def test_width(text: str, expected: int) -> None:
    assert pci.width(text) == expected


def test_aer_total() -> None:
    assert pci.aer_total("RxErr 3\nBadTLP 1\nTOTAL_ERR_COR 4\n") == 4
    with pytest.raises(ParseError):
        pci.aer_total("RxErr 3\n")


def one_gpu(node: Node) -> Node:
    at = f"{DEVICES}/{GPU}"
    node.write({f"{at}/{name}": text for name, text in {
        "class": "0x030200\n", "vendor": "0x10de\n", "device": "0x2330\n", "subsystem_vendor": "0x10de\n",
        "subsystem_device": "0x16c1\n", "current_link_speed": "16.0 GT/s PCIe\n", "max_link_speed": "32.0 GT/s PCIe\n",
        "current_link_width": "8\n", "max_link_width": "16\n", "numa_node": "-1\n", "revision": "0xa1\n",
        "aer_dev_correctable": "RxErr 0\nTOTAL_ERR_COR 7\n",
    }.items()})  # fmt: skip
    return node


def real(node: Node, where: str, path: str) -> None:
    """sysfs has a folder below /sys/devices and a link to it."""
    target = node.root / f"sys/devices/{path}/{where}"
    target.parent.mkdir(parents=True, exist_ok=True)
    (node.root / f"{DEVICES}/{where}".lstrip("/")).rename(target)
    node.link(f"{DEVICES}/{where}", f"../../../devices/{path}/{where}")


def test_one_card(node: Node) -> None:
    real(one_gpu(node), GPU, "pci0000:17/0000:17:01.0")
    found = pci.collect(node.host(), Asked())
    assert value(found.gpus) == (GPU,)
    source = found.devices[GPU].source
    wanted = {"pci_device_id": "10de:2330", "pci_subsystem_id": "10de:16c1", "pcie_gen_current": 4, "pcie_gen_max": 5}
    more = {"pcie_width_current": 8, "pcie_width_max": 16, "aer_correctable": 7, "revision": "a1"}
    assert {name: value(source.get(name)) for name in {**wanted, **more}} == {**wanted, **more}
    missing(source.get("numa_node"), "unsupported")
    missing(source.get("aer_fatal"), "not-there")
    missing(source.get("driver"), "not-there")
    assert found.devices[GPU].bridges == ("0000:17:01.0",)
    assert pci.collect(node.replay(), Asked()) == found


def test_registers_of_all_ones_are_a_dead_card(node: Node) -> None:
    one_gpu(node).write(
        {f"{DEVICES}/{GPU}/current_link_width": "63\n", f"{DEVICES}/{GPU}/current_link_speed": "Unknown\n"}
    )
    config = node.root / f"{DEVICES}/{GPU}/config".lstrip("/")
    config.write_bytes(b"\xff" * 64)
    real(node, GPU, "pci0000:17/0000:17:01.0")
    source = pci.collect(node.host(), Asked()).devices[GPU].source
    assert value(source.get("dead")) is True
    missing(source.get("pcie_width_current"), "unsupported")
    missing(source.get("pcie_gen_current"), "unsupported")


def test_the_servers_own_display_chip_is_no_gpu(node: Node) -> None:
    node.write({f"{DEVICES}/{DISPLAY}/class": "0x030000\n", f"{DEVICES}/{DISPLAY}/vendor": "0x1a03\n"})
    real(node, DISPLAY, "pci0000:00")
    assert value(pci.collect(node.host(), Asked()).gpus) == ()


@pytest.mark.parametrize(("vendor", "kinds"), [("0x10de", ["nvswitch"]), ("0x8086", [])])
def test_an_nvswitch_is_nvidias_bridge_of_no_kind(vendor: str, kinds: list[str], node: Node) -> None:
    node.write({f"{DEVICES}/{OTHER}/class": "0x068000\n", f"{DEVICES}/{OTHER}/vendor": f"{vendor}\n"})
    real(node, OTHER, "pci0000:17")
    assert [d.kind for d in pci.collect(node.host(), Asked()).devices.values()] == kinds


def test_no_bus_is_not_no_gpu(node: Node) -> None:
    found = pci.collect(node.host(), Asked())
    missing(found.gpus, "not-there")
    missing(found.numa_nodes, "unsupported")
    missing(found.iommu, "unsupported")
    missing(found.redirecting, "no-tool")


def test_network_cards_and_drives_are_named(start: Start) -> None:
    found = pci.collect(start(healthy.h100()), Asked())
    assert {d.kind for d in found.devices.values()} >= {"gpu", "net", "nvme", "bridge"}
    nics = found.of_kind("net")
    assert any("mlx5_0" in d.names and "ib0" in d.names for d in nics)
    assert all("nvme" in d.names[0] for d in found.of_kind("nvme"))
    near = next(d for d in nics if "mlx5_0" in d.names)
    assert found.between(value(found.gpus)[0], near.slot).link == "PIX"
    assert found.between("0000:00:1f.7", near.slot).link is None
    assert value(found.redirecting) == ()
    assert value(found.numa_nodes) == (0, 1)
