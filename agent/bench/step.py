"""One thing to measure: what it costs, what it disturbs, and how to do it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Optional

from agent.host import Host
from agent.model import Depth, Result

# Loads of one kind disturb each other and never overlap; "none" may run at any time.
Load = Literal["none", "disk", "network", "cpu", "gpu"]


@dataclass(frozen=True)
class Look:
    """One execution of a step: ``number`` counts from 1; ``depth`` says how hard to look.

    ``quick`` is the shortened form, which may fail a clause but never pass it; ``deeper`` is the second look at a
    value too close to its limit. ``tools``: the trade's own for which there is time (None: all).
    """

    number: int = 1
    depth: Depth = "standard"
    keys: frozenset[str] = frozenset()
    tools: Optional[frozenset[str]] = None

    def wants(self, key: str) -> bool:
        """Whether this execution shall measure ``key``; a repetition measures only what needs repeating."""
        return not self.keys or key in self.keys


# Bytes of one attempt in one direction over an address that may be paid by the byte: 20 GB, some 16 CNY.
TRAFFIC_CAP = 20_000_000_000


@dataclass(frozen=True)
class Cost:
    """What one execution takes: ``seconds`` of wall clock, ``written`` bytes to disk, ``sent`` bytes of traffic."""

    seconds: float
    written: int = 0
    sent: int = 0


@dataclass(frozen=True)
class Step:
    """A measurement that the plan can order, leave out or repeat.

    ``execute`` runs it through the host and returns, for each of ``keys``, an attempt or the reason why there is
    none. Probe names must contain the look's number, so that a replay finds each attempt. ``tools``: the
    trade's own that are on the machine and are asked beside its first whole look, with the seconds of each; the first
    that a budget cuts.
    """

    name: str
    keys: tuple[str, ...]
    load: Load
    cost: Callable[[Depth], Cost]
    execute: Callable[[Host, Look], Mapping[str, Result]]
    settle_s: float = 0.0
    tools: Mapping[str, float] = field(default_factory=dict)
