"""What the checks share that measure through the CUDA driver alone: which GPUs, and what their links can carry."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Optional

from agent.bench.device_copies import line_rate
from agent.bench.device_memory import Slots
from agent.bench.pcie_bandwidth import PcieStep
from agent.bench.step import Step
from agent.catalogue import Model
from agent.checks._api import Case
from agent.checks._gpu_cards import nobody
from agent.checks._measured import models, tools
from agent.facts.gpus import GpusFacts

Known = Mapping[str, tuple[Model, ...]]


def slots(case: Case) -> Slots:
    """All GPUs that this environment was given, or why there is none."""
    facts: GpusFacts = case.facts["gpus"]
    return tuple(g.slot for g in facts.gpus) or nobody(case)


def pcie_step(case: Case) -> Step:
    """The same for ``pcie_bandwidth`` and ``gpu.pcie``: whoever asks, both are measured at once."""
    return PcieStep(slots(case), bound=partial(pcie_bound, models(case)), tools=tools(case)).step()


def pcie_bound(known: Known, slot: str) -> Optional[float]:
    """GB/s one way of the fastest link that the card in this slot can have; None where the card is not known."""
    return max((r for m in known.get(slot, ()) if (r := _line(m)) is not None), default=None)


def peer_bound(known: Known, source: str, target: str) -> Optional[float]:
    """GB/s one way of the fastest way between two cards: all NVLinks of one of them, or its PCIe link."""
    rates = [[r for m in known.get(s, ()) if (r := _fastest(m)) is not None] for s in (source, target)]
    return min(max(r) for r in rates) if all(rates) else None


def _line(model: Model) -> Optional[float]:
    if model.pcie_gen is None or model.pcie_width is None:
        return None
    return line_rate(model.pcie_gen, model.pcie_width)


def _fastest(model: Model) -> Optional[float]:
    rates = [r for r in (model.nvlink.total_gbs / 2 or None, _line(model)) if r is not None]
    return max(rates, default=None)
