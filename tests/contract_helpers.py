"""What the contract tests share: the families, and a contract's tree as an editor's YAML reader would type it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from agent.checks import grammars
from agent.contract import loads
from agent.model import Contract
from agent.source import Map, Node, Scalar, Seq

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "contracts" / "examples"
FIXTURES = Path(__file__).parent / "fixtures" / "contracts"
FAMILIES = grammars()


def read(text: str) -> Contract:
    """A contract from its text."""
    return loads(text.encode(), "c.yaml", FAMILIES)


def typed(node: Node) -> Any:
    """YAML 1.2 core types: what a JSON Schema validator in an editor is given."""
    if isinstance(node, Map):
        return {key.text: typed(child) for key, child in node.pairs}
    if isinstance(node, Seq):
        return [typed(item) for item in node.items]
    assert isinstance(node, Scalar)
    return _scalar(node.text) if node.plain else node.text


def _scalar(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if text in ("", "~", "null"):
        return None
    if re.fullmatch(r"[-+]?[0-9]+", text):
        return int(text)
    if re.fullmatch(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?", text):
        return float(text)
    return text
