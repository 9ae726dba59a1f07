from __future__ import annotations

from pathlib import Path

import pytest

from agent.facts import Asked, _smi, gpus, topology
from agent.facts._source import NvLink
from agent.facts.topology import Pair
from agent.host import KILL_GRACE_S, TERM_GRACE_S
from tests.facts.fake import Start, replay
from tests.facts.node import HANG, missing, value
from tests.fakenode import healthy, wrong
from tests.fakenode.node import Node


def pairs(start: Start, node: Node) -> tuple[Pair, ...]:
    host = start(node)
    return topology.pairs(gpus.collect(host, Asked()), topology.collect(host, Asked()))


def test_every_pair_of_an_hgx_board(start: Start) -> None:
    found = pairs(start, healthy.h100())
    assert len(found) == 28
    assert {value(p.link) for p in found} == {"NV18"}
    assert {value(p.nvlinks) for p in found} == {18}
    assert {value(p.p2p) for p in found} == {"OK"}
    assert {p.computed.link for p in found} == {"NODE", "SYS"}


def test_the_tree_says_what_nvidia_smi_says_of_cards_without_nvlink(start: Start) -> None:
    found = pairs(start, healthy.rtx4090())
    assert [p.computed.link for p in found] == [value(p.link) for p in found]
    assert {value(p.p2p) for p in found} == {"CNS"}
    missing(found[0].nvlinks, "unsupported")


def test_distances_to_network_cards_and_drives(start: Start) -> None:
    host = start(healthy.h100())
    found = topology.distances(gpus.collect(host, Asked()), topology.collect(host, Asked()))
    cards = [d for d in found if d.kind == "net" and any(n.startswith("mlx5") for n in d.names)]
    assert [d.computed.link for d in cards] == [value(d.link) for d in cards]
    assert {d.computed.link for d in cards} == {"PIX", "NODE", "SYS"}
    drives = [d for d in found if d.kind == "nvme"]
    assert drives
    missing(drives[0].link, "not-there")


def test_one_card_off_the_fabric_is_that_cards_pairs(start: Start) -> None:
    node = wrong.off_the_fabric(healthy.h100(), 5)
    slot = node.cards[5].slot
    found = pairs(start, node)
    without = [p for p in found if not value(p.link).startswith("NV")]
    assert len(without) == 7
    assert all(slot in (p.one, p.other) for p in without)


def test_a_lost_card_leaves_the_pairs_of_the_others(start: Start) -> None:
    node = wrong.lost(healthy.h100(), 3)
    slot = node.cards[3].slot
    for pair in pairs(start, node):
        if slot in (pair.one, pair.other):
            missing(pair.nvlinks, "failed")
        else:
            assert value(pair.nvlinks) == 18
            assert value(pair.p2p) == "OK"


def test_after_a_call_that_hangs_the_others_are_not_tried(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_smi, "TIMEOUT_S", 0.3)
    host = start(healthy.vm().with_tools(nvidia_smi=f"#!/bin/sh\n{HANG}\n"))
    found = topology.collect(host, Asked())
    assert [ran.probe for ran in host.log] == ["topo-m"]
    for reading in (found.matrix, found.nvlink, found.p2p):
        missing(reading, "timeout")


def test_a_hung_nvidia_smi_costs_one_deadline(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for the cards first, it is not asked for the topology again."""
    monkeypatch.setattr(_smi, "TIMEOUT_S", 0.3)
    host = start(wrong.smi_hangs(healthy.vm()))
    facts = gpus.collect(host, Asked())
    found = topology.collect(host, Asked())
    assert [ran.probe for ran in host.log if ran.argv[0] == "nvidia-smi"] == ["nvidia-smi-xml"]
    for reading in (facts.smi, found.matrix, found.nvlink, found.p2p):
        assert missing(reading, "timeout").evidence == missing(facts.smi, "timeout").evidence


def test_a_hung_nvidia_smi_costs_less_than_half_a_minute() -> None:
    assert _smi.TIMEOUT_S + TERM_GRACE_S + KILL_GRACE_S < 30.0


def test_links_by_nvml() -> None:
    """Direct links count where they end at the other card, switched ones where both have them."""
    direct = [NvLink(0, True, 4, "gpu", "0000:02:00.0"), NvLink(1, True, 4, "gpu", "0000:03:00.0"), NvLink(2, False)]
    assert topology.joined(direct, [], "0000:02:00.0") == 1
    switched = [NvLink(n, n < 3, 4, "switch") for n in range(4)]
    assert topology.joined(switched, switched[:2], "0000:02:00.0") == 2
    assert topology.joined([NvLink(0, False)], switched, "0000:02:00.0") == 0


def test_replay(start: Start, tmp_path: Path) -> None:
    first = topology.collect(start(healthy.h100()), Asked())
    assert value(first.matrix).gpus == tuple(f"GPU{n}" for n in range(8))
    assert value(first.nvlink).gpus[0].active == 18
    assert value(first.p2p).states["GPU0"]["GPU1"] == "OK"
    assert topology.collect(replay(tmp_path), Asked()) == first
