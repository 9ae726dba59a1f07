from __future__ import annotations

from pathlib import Path

import pytest

from tests.facts import fake
from tests.facts.fake import Start
from tests.facts.node import Node


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    return lambda made: fake.start(made, tmp_path, monkeypatch)
