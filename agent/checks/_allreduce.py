"""What an all-reduce over NVLink should reach, from the links and the number of GPUs. Pure.

NCCL's bus bandwidth of a ring is what one GPU's links carry one way, less protocol. NCCL plans with a rate per link
(``src/graph/topo.h``: Volta and Ampere 20 GB/s, GA102 12, Hopper 20.6, Blackwell 40.1); what was measured and
published lies 1 to 6 % below. Where the switch reduces (NVLS, from Hopper on), less crosses the wires than the
definition counts, so the figure exceeds the links; it does so from five or six GPUs on.

Without NVLink the path is host memory, "determined by the bandwidth your CPU and memory can deliver"
(NCCL issue 1639): nothing absolute can be expected of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Optional

from agent import stats
from agent.catalogue import Figure, Model
from agent.text import Text, msg

Layout = Literal["none", "bridge", "mesh", "switch"]
MODEL_NAMES: Mapping[str, str] = {"7.0": "Volta", "8.0": "Ampere", "8.6": "GA102", "9.0": "Hopper", "10": "Blackwell"}
PLANNED: Mapping[str, float] = {"7.0": 20.0, "8.0": 20.0, "8.6": 12.0, "9.0": 20.6, "10": 40.1}
# Measured over planned, median of what is published: A100 8 GPUs 231.6 to 234.9 of 240, H100 and H200 363 to 370 of
# 371, B200 673 to 682 of 722. Nothing independent is published of Volta and of GA102 bridges.
REACHED: Mapping[str, float] = {"8.0": 0.97, "9.0": 0.99, "10": 0.94}
# Measured with NVLS over the ring of the same GPUs: H100 and H200 (NCCL issue 1455 and others), B200.
NVLS: Mapping[str, Mapping[int, float]] = {
    "9.0": {5: 1.14, 6: 1.20, 7: 1.25, 8: 1.31},
    "10": {6: 1.15, 7: 1.20, 8: 1.24},
}


@dataclass(frozen=True)
class Expected:
    """GB/s of bus bandwidth for one number of GPUs.

    ``ring`` None: nothing can be expected, ``derivation`` says why. ``nvls`` None: not faster than the ring, or not
    known. ``line``: what the links carry one way by their line rate; nothing without NVLS can exceed it.
    """

    ring: Optional[float]
    nvls: Optional[float]
    line: Optional[float]
    derivation: Text


def expected(model: Model, count: int) -> Expected:
    """Of ``count`` GPUs of one model with all the links that it has by design."""
    link = model.nvlink
    seen = model.seen.get("allreduce", ())
    line = link.total_gbs / 2 if link.links else None
    if not link.links:
        return Expected(None, None, None, msg("without NVLink the host's CPU and memory decide, nothing absolute"))
    if link.layout == "bridge" and count > 2:
        why = msg("bridges join GPUs two by two: among {n} the host's CPU and memory decide", n=count)
        return Expected(None, None, None, why)
    if link.layout == "mesh" and count < 8:
        return Expected(None, None, line, msg("{n} GPUs of a mesh share some of their links only", n=count))
    derived = ring(model.compute_capability, link.links)
    measured = _measured(seen, count, "ring")
    if measured is None and derived is None:
        return Expected(None, None, line, msg("nothing is published of this generation's links"))
    found = measured if measured is not None else derived
    return Expected(found, _nvls(model, count, found), line, _derivation(model, count, derived, measured))


def ring(capability: str, links: int) -> Optional[float]:
    """GB/s of a ring over so many links of a generation; None where NCCL's rate of a link is not known."""
    generation = _generation(capability)
    if generation not in PLANNED:
        return None
    return links * PLANNED[generation] * REACHED.get(generation, 1.0)


def _generation(capability: str) -> str:
    return "10" if capability.startswith("10.") else capability


def _nvls(model: Model, count: int, over: Optional[float]) -> Optional[float]:
    measured = _measured(model.seen.get("allreduce", ()), count, "nvls")
    factor = NVLS.get(_generation(model.compute_capability), {}).get(count)
    if measured is not None or over is None or factor is None or model.nvlink.layout != "switch":
        return measured
    return over * factor


def _measured(seen: Sequence[Figure], count: int, by: str) -> Optional[float]:
    values = [f.value for f in seen if (f.count, f.by) == (count, by)]
    return stats.median(values) if values else None


def _derivation(model: Model, count: int, derived: Optional[float], measured: Optional[float]) -> Text:
    generation = _generation(model.compute_capability)
    if derived is None:
        return msg("published measurements of {n} × {model}", n=count, model=model.title)
    arithmetic = msg(
        "{links} links × {rate} GB/s of a {generation} link in NCCL's model × {reached} reached = {derived} GB/s",
        links=model.nvlink.links,
        rate=f"{PLANNED[generation]:g}",
        generation=MODEL_NAMES[generation],
        reached=f"{REACHED.get(generation, 1.0):g}",
        derived=f"{derived:.0f}",
    )
    if measured is None:
        return arithmetic
    return msg(
        "published measurements of {n} × {model} in a ring: {measured} GB/s ({arithmetic})",
        n=count,
        model=model.title,
        measured=f"{measured:.0f}",
        arithmetic=arithmetic,
    )
