"""Servers with nothing wrong."""

from __future__ import annotations

from tests.fakenode import card as models
from tests.fakenode.card import Card
from tests.fakenode.machine import Cpus, Drive, Nic
from tests.fakenode.node import Node, identity

# Buses of the eight GPUs of an HGX board; below 0x80 they hang on the first socket.
HGX_BUSES = (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF)
RISER_BUSES = (0x16, 0x34, 0x40, 0x4F, 0x9A, 0xB3, 0xC0, 0xCE)


def _switch(bus: int, port: int) -> tuple[str, ...]:
    """Root complex, root port, the switch's upstream and one of its downstream ports."""
    up = bus - 4
    return (f"pci0000:{up:02x}", f"0000:{up:02x}:01.0", f"0000:{up + 1:02x}:00.0", f"0000:{up + 2:02x}:{port:02x}.0")


def _numa(bus: int) -> int:
    return int(bus >= 0x80)


def _cards(model: Card, name: str, buses: tuple[int, ...], *, switched: bool) -> tuple[Card, ...]:
    found = []
    for index, bus in enumerate(buses):
        parents = _switch(bus, 0) if switched else (f"pci0000:{bus - 1:02x}", f"0000:{bus - 1:02x}:01.0")
        placed = model.but(
            index=index,
            slot=f"0000:{bus:02x}:00.0",
            parents=parents,
            numa=_numa(bus),
            temperature_c=30 + index % 4,
        )
        found.append(identity(placed, name))
    return tuple(found)


def _hgx(model: Card, name: str, rate: str, mbit: int) -> Node:
    nics = tuple(
        Nic(f"mlx5_{i}", f"0000:{bus + 1:02x}:00.0", _switch(bus, 1), _numa(bus), rate=rate, mbit=mbit)
        for i, bus in enumerate(HGX_BUSES)
    )
    drives = tuple(
        Drive(f"nvme{i}", f"0000:{bus + 2:02x}:00.0", _switch(bus, 2), _numa(bus))
        for i, bus in enumerate(HGX_BUSES[::2])
    )
    cards = _cards(model, name, HGX_BUSES, switched=True)
    return Node(name, cards, nics=nics, drives=drives, fabric_manager="active")


def h100() -> Node:
    """Eight H100 SXM5 80 GB, InfiniBand NDR beside each."""
    return _hgx(models.H100_SXM, "h100-8", "400 Gb/sec (4X NDR)", 400000)


def a100() -> Node:
    """Eight A100 SXM4 80 GB, HDR."""
    return _hgx(models.A100_SXM, "a100-8", "200 Gb/sec (4X HDR)", 200000)


def h20() -> Node:
    """Eight H20 96 GB."""
    return _hgx(models.H20, "h20-8", "400 Gb/sec (4X NDR)", 400000)


def a800() -> Node:
    """Eight A800 SXM4 80 GB that are sold as such: eight links each."""
    return _hgx(models.A800_SXM, "a800-8", "200 Gb/sec (4X HDR)", 200000)


def rtx4090() -> Node:
    """Eight RTX 4090 on risers, no NVLink, no peer access, at rest Gen1."""
    ethernet = Nic(
        "mlx5_0", "0000:05:00.0", ("pci0000:04", "0000:04:01.0"), 0, layer="Ethernet", rdma=False, mbit=25000
    )
    drive = Drive("nvme0", "0000:06:00.0", ("pci0000:04", "0000:04:03.0"), 0)
    cards = _cards(models.RTX_4090, "rtx4090-8", RISER_BUSES, switched=False)
    return Node("rtx4090-8", cards, nics=(ethernet,), drives=(drive,), cpus=Cpus(cores=32), memory_gib=1024)


def l40s() -> Node:
    """Four L40S."""
    ethernet = Nic(
        "mlx5_0", "0000:05:00.0", ("pci0000:04", "0000:04:01.0"), 0, layer="Ethernet", rdma=False, mbit=25000
    )
    cards = _cards(models.L40S, "l40s-4", RISER_BUSES[:2] + RISER_BUSES[4:6], switched=False)
    return Node("l40s-4", cards, nics=(ethernet,), cpus=Cpus(cores=32), memory_gib=512)


def vm() -> Node:
    """A virtual machine with one A100 PCIe 80 GB passed through."""
    card = models.A100_PCIE.but(
        index=0,
        slot="0000:06:00.0",
        parents=("pci0000:00", "0000:00:02.5"),
        virtualization="Pass-Through",
    )
    cpus = Cpus(sockets=1, cores=16, hypervisor=True)
    return Node("vm-1", (identity(card, "vm-1"),), cpus=cpus, memory_gib=240, vm=True)


def container() -> Node:
    """Two of eight RTX 4090 in a container without root: no kernel log, no service manager."""
    cards = _cards(models.RTX_4090, "container-2", RISER_BUSES, switched=False)
    return Node(
        "container-2",
        cards,
        given=(0, 1),
        cpus=Cpus(cores=32),
        memory_gib=512,
        container=True,
        uid=1000,
        kernel_log=None,
    )


ALL = {
    "h100": h100,
    "a100": a100,
    "h20": h20,
    "a800": a800,
    "rtx4090": rtx4090,
    "l40s": l40s,
    "vm": vm,
    "container": container,
}
