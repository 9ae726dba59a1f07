"""Readings of what the machine is. One file a subject: ``collect(host, asked)`` returns a frozen dataclass of readings.

Nothing here judges, and nothing here loads the machine.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Optional

from agent.host import Host


@dataclass(frozen=True)
class Asked:
    """What the contract and the options ask about: ``paths`` of disk clauses, ``python`` to use for workers."""

    paths: tuple[str, ...] = ()
    python: Optional[str] = None


def collect(names: Iterable[str], host: Host, asked: Asked) -> dict[str, Any]:
    """The facts modules of these names, each collected once, in alphabetical order."""
    return {n: importlib.import_module(f"{__name__}.{n}").collect(host, asked) for n in sorted(set(names))}


def again(facts: Mapping[str, Any], host: Host) -> dict[str, Any]:
    """The facts that loads can change, read once more after them: modules with ``again(host, before)``."""
    modules = {n: importlib.import_module(f"{__name__}.{n}") for n in sorted(facts)}
    return {n: m.again(host, facts[n]) for n, m in modules.items() if hasattr(m, "again")}
