"""A step that is known not to run here: it costs nothing, and it says why."""

from __future__ import annotations

from collections.abc import Sequence

from agent.bench.step import Cost, Load, Step
from agent.reading import Missing


def step(name: str, keys: Sequence[str], load: Load, why: Missing) -> Step:
    """In the place of a measurement whose program is not on this machine."""
    return Step(name, tuple(keys), load, lambda depth: Cost(0.0), lambda host, look: dict.fromkeys(keys, why))
