"""Two small GPUs of the fake node, and a host that records what workers do on them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agent.evidence import Store
from agent.host import LiveHost
from tests.fakenode import healthy
from tests.fakenode.card import Card
from tests.fakenode.node import Node, build

MIB = 1 << 20
CARD_MIB = 64


def small(cards: int = 2, mib: int = CARD_MIB, change: Callable[[Card], Card] = lambda card: card) -> Node:
    """H100s with so little memory that a test can write all of it."""
    node = healthy.h100()
    return node.but(cards=node.cards[:cards]).every_card(lambda c: change(c.but(memory_mib=mib, reserved_mib=0)))


def slots(node: Node) -> tuple[str, ...]:
    return tuple(card.slot for card in node.cards)


def deliver(node: Node, folder: Path, monkeypatch: pytest.MonkeyPatch) -> LiveHost:
    """Build it and be on it."""
    built = build(node, folder / "node")
    for name, value in built.env.items():
        monkeypatch.setenv(name, value)
    return LiveHost(Store(folder / "run"), root=built.root)
