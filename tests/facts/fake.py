"""Facts of a fake node: its own libraries and tools through the environment, its files through the root."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agent.evidence import Store
from agent.host import LiveHost, ReplayHost
from tests.fakenode.node import Node, build

Start = Callable[[Node], LiveHost]


def start(node: Node, folder: Path, monkeypatch: pytest.MonkeyPatch) -> LiveHost:
    """A host on this node; its evidence lies in ``folder/run``."""
    built = build(node, folder / "node")
    for name, value in built.env.items():
        monkeypatch.setenv(name, value)
    (folder / "run").mkdir()
    return LiveHost(Store(folder / "run"), built.root)


def replay(folder: Path) -> ReplayHost:
    """The recording of :func:`start`'s host."""
    return ReplayHost(Store(folder / "run"))
