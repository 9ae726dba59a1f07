"""What every renter of GPUs wants to know, promised or not: true tools, cards that are what they say. Pure.

A proven falsification is a breach without being asked; everything else is context and advisory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Optional

from agent.checks import _integrity_cards, _integrity_tools, _integrity_users
from agent.checks._api import Case
from agent.checks._gpu_cards import Card, all_cards
from agent.checks._judge import integrity
from agent.checks._looked import Looked
from agent.facts.gpus import GpusFacts
from agent.model import Finding

FACTS = ("gpus", "gpu_share", "kernel_log", "processes")

Look = Callable[[Case, Sequence[Card], GpusFacts], Looked]


def judge(case: Case) -> Iterator[Finding]:
    """Nothing at all on a machine that neither has nor promises a GPU."""
    facts: Optional[GpusFacts] = case.facts.get("gpus")
    if facts is None or not (facts.gpus or facts.unopened):
        return
    cards = all_cards(case)
    for name, look in LOOKS.items():
        yield from _findings(name, look(case, cards, facts))


def _findings(name: str, looked: Looked) -> Iterator[Finding]:
    for bad in looked.bad:
        yield integrity(
            name,
            "fail",
            bad.code,
            bad.reason,
            severity=bad.severity,
            subject=bad.slot,
            measured=bad.measured,
            evidence=bad.evidence,
        )
    if looked.bad:
        return
    if looked.unknown is not None:
        gone = looked.unknown
        yield integrity(name, "inconclusive", gone.kind, gone.detail, grant=gone.grant, evidence=gone.evidence)
    elif looked.fine is not None:
        yield integrity(name, "pass", "kept", looked.fine, evidence=looked.evidence)


LOOKS: Mapping[str, Look] = {
    "nvidia_smi": _integrity_tools.nvidia_smi,
    "driver_library": _integrity_tools.driver_library,
    "driver_age": _integrity_tools.driver_age,
    "gpu_identity": _integrity_cards.identity,
    "gpu_bus": _integrity_cards.bus,
    "mixed_gpus": _integrity_cards.mixed,
    "gpu_sample": _integrity_cards.samples,
    "gpu_wear": _integrity_cards.wear,
    "gpu_recovery": _integrity_cards.recovery,
    "power_default": _integrity_cards.power_default,
    "pcie_width": _integrity_cards.pcie_width,
    "gpu_throttled": _integrity_cards.throttled,
    "gpu_fabric": _integrity_cards.fabric,
    "patched_driver": _integrity_cards.patched,
    "virtual_gpu": _integrity_cards.virtual,
    "sliced_gpu": _integrity_users.sliced,
    "gpu_interception": _integrity_users.between,
    "foreign_process": _integrity_users.foreign,
    "memory_without_owner": _integrity_users.unowned,
    "hard_faults": _integrity_users.hard_faults,
}
