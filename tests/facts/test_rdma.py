from __future__ import annotations

import pytest

from agent.facts import Asked, rdma
from agent.tools import ParseError
from tests.facts.fake import Start
from tests.facts.node import Node, missing, value
from tests.fakenode import healthy, wrong

CLASS = "/sys/class/infiniband"


@pytest.mark.parametrize(
    ("text", "expected"), [("400 Gb/sec (4X NDR)", 4e11), ("200 Gb/sec (4X HDR)", 2e11), ("2.5 Gb/sec (1X SDR)", 2.5e9)]
)
def test_rate(text: str, expected: float) -> None:
    assert rdma.rate(text) == expected


def test_what_is_no_rate_is_refused() -> None:
    with pytest.raises(ParseError):
        rdma.rate("fast")


def test_devices_of_a_node(start: Start) -> None:
    facts = rdma.collect(start(healthy.h100()), Asked())
    first = value(facts.devices)["mlx5_0"]
    assert first.slot == "0000:1c:00.0"
    assert not first.virtual
    port = first.ports[0]
    assert (value(port.state), value(port.physical), value(port.rate)) == ("ACTIVE", "LinkUp", 4e11)
    assert value(port.speed) == "4X NDR"
    assert value(port.link_layer) == "InfiniBand"
    assert value(facts.modules)["nvidia_peermem"] is True


def test_a_port_that_is_down(start: Start) -> None:
    facts = rdma.collect(start(wrong.rdma_down(healthy.h100(), 1)), Asked())
    states = {name: value(d.ports[0].state) for name, d in value(facts.devices).items()}
    assert [name for name, state in states.items() if state != "ACTIVE"] == ["mlx5_1"]


def test_a_software_device_has_no_slot(node: Node) -> None:
    at = f"{CLASS}/rxe0/ports/1"
    node.write({f"{at}/state": "4: ACTIVE\n", f"{at}/rate": "strange\n", f"{at}/counters/link_downed": "3\n"})
    (node.root / "sys/devices/virtual/infiniband").mkdir(parents=True)
    (node.root / f"{CLASS}/rxe0".lstrip("/")).rename(node.root / "sys/devices/virtual/infiniband/rxe0")
    node.link(f"{CLASS}/rxe0", "../../devices/virtual/infiniband/rxe0")
    host = node.host()
    facts = rdma.collect(host, Asked())
    device = value(facts.devices)["rxe0"]
    assert device.slot is None
    missing(device.ports[0].rate, "unparsable")
    missing(device.ports[0].physical, "not-there")
    assert {name: value(r) for name, r in device.ports[0].counters.items()} == {"link_downed": 3}
    assert value(facts.verbs) is False
    assert rdma.collect(node.replay(), Asked()) == facts


def test_none_and_not_recorded_are_two_things(node: Node) -> None:
    missing(rdma.collect(node.replay(), Asked()).devices, "not-recorded")
    facts = rdma.collect(node.host(), Asked())
    hidden = missing(facts.devices, "denied")
    assert hidden.grant is not None
    missing(facts.modules, "not-there")
    (node.root / "sys/module").mkdir(parents=True)
    missing(rdma.collect(node.host(), Asked()).devices, "not-there")
