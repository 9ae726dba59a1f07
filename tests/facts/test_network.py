from __future__ import annotations

import pytest

from agent.facts import Asked, network
from agent.facts.network import NetworkFacts
from agent.reading import Known
from tests.facts.node import HANG, Node, missing, value

ROUTES = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
DEFAULT = "eth1\t00000000\t{gateway}\t0003\t0\t0\t{metric}\t00000000\t0\t0\t0\n"


def interface(
    node: Node, name: str, at: str = "pci0000:00/0000:3b:00.0", driver: str = "mlx5_core", **files: str
) -> Node:
    place = f"devices/{at}/net/{name}"
    texts = {"speed": "100000", "duplex": "full", "mtu": "9000", "operstate": "up", "address": "02:00:00:00:00:01"}
    texts.update(files)
    node.write({f"/sys/{place}/{key}": f"{text}\n" for key, text in texts.items()})
    if driver:
        node.link(f"/sys/{place}/device/driver", f"../../../bus/pci/drivers/{driver}")
    return node.link(f"/sys/class/net/{name}", f"../../{place}")


def read(node: Node) -> NetworkFacts:
    return network.collect(node.host(), Asked())


def test_a_real_interface(node: Node) -> None:
    found = value(read(interface(node, "eth1")).interfaces)["eth1"]
    assert value(found.speed) == 100e9
    assert value(found.mtu) == 9000
    assert value(found.duplex) == "full"
    assert value(found.state) == "up"
    assert value(found.driver) == "mlx5_core"
    assert value(found.virtual) is False


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({"speed": "-1"}, "unsupported"),
        ({"speed": "4294967295"}, "unsupported"),
        ({"speed": "-1", "operstate": "down"}, "not-there"),
        ({"speed": "fast"}, "unparsable"),
        ({"speed": "0"}, "unsupported"),
    ],
)
def test_speed_that_nobody_knows(node: Node, files: dict[str, str], kind: str) -> None:
    missing(value(read(interface(node, "eth1", "virtual", "", **files)).interfaces)["eth1"].speed, kind)


def test_bond(node: Node) -> None:
    found = read(interface(node, "bond0", "virtual", "", **{"bonding/slaves": "eth1 eth2"}))
    assert value(found.interfaces)["bond0"].members == ("eth1", "eth2")


def test_default_route_with_the_smallest_metric(node: Node) -> None:
    lines = DEFAULT.format(gateway="0100A8C0", metric=200) + DEFAULT.format(gateway="FE00A8C0", metric=100)
    route = value(read(node.write({"/proc/net/route": ROUTES + lines})).route)
    assert (route.interface, route.gateway) == ("eth1", "192.168.0.254")


def test_no_default_route(node: Node) -> None:
    missing(read(node.write({"/proc/net/route": ROUTES})).route, "not-there")


def test_ipv6_only(node: Node) -> None:
    zeros = "0" * 32
    line = f"{zeros} 00 {zeros} 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003 eth1\n"
    route = value(read(node.write({"/proc/net/route": ROUTES, "/proc/net/ipv6_route": line})).route)
    assert (route.interface, route.gateway) == ("eth1", "fe80::1")


@pytest.mark.parametrize("text", ["garbage\n", ROUTES + "eth1\tzz\t0\t0003\t0\t0\t1\t0\t0\t0\t0\n"])
def test_routes_that_are_garbage(node: Node, text: str) -> None:
    missing(read(node.write({"/proc/net/route": text})).route, "unparsable")


def test_name_servers(node: Node) -> None:
    found = read(node.write({"/etc/resolv.conf": "# x\nnameserver 10.0.0.2\nsearch a\nnameserver ::1\n"}))
    assert value(found.name_servers) == ("10.0.0.2", "::1")


def test_nothing_there(node: Node) -> None:
    found = read(node)
    missing(found.interfaces, "not-there")
    missing(found.route, "not-there")
    missing(found.name_servers, "not-there")


@pytest.mark.parametrize(
    ("script", "kind"),
    [("echo '{\"interfaces\": null}'", "no-tool"), ("echo x", "unparsable"), ("exit 1", "failed"), (HANG, "timeout")],
)
def test_addresses_without_an_answer(node: Node, script: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "PROBE_TIMEOUT_S", 0.5)
    missing(read(node.tool("probe", script)).addresses, kind)


def test_addresses_of_this_machine(node: Node) -> None:
    assert any(a.startswith("127.") for found in value(read(node).addresses).values() for a in found)


def test_replay_gives_the_same_facts(node: Node) -> None:
    live = read(interface(node, "eth1"))
    assert isinstance(live.interfaces, Known)
    assert network.collect(node.replay(), Asked()) == live
