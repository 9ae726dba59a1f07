"""Servers with something wrong, each made from a healthy one."""

from __future__ import annotations

from tests.fakenode import healthy
from tests.fakenode.node import Node


def lost(node: Node, index: int = 3) -> Node:
    """A card fell off the bus: PCI still lists it, NVML cannot open it."""
    slot = node.cards[index].slot
    xid = (
        f"[91234.567890] NVRM: Xid (PCI:{slot[:-2]}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    )
    log = (*(node.kernel_log or ()), xid)
    return node.card(index, lambda card: card.but(lost=True)).but(kernel_log=log)


ALL = {"one card lost": lambda: lost(healthy.h100())}
