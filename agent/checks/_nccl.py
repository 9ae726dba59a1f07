"""What NCCL can expect of a topology: the derivation as text, never a limit. Pure.

Figures are those of NCCL's own model (NVIDIA/nccl src/graph/topo.h): GB/s of one link one way that a ring can use;
PCIe as width × speed / 80. A ring's bus bandwidth is bounded by its slowest hop.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent.checks._gpu_cards import Card
from agent.facts.topology import Pair
from agent.reading import Known
from agent.text import Text, msg

# By compute capability, major or whole: V100, A100, GA102 and AD102 boards, H100, B200.
PER_LINK = {"7": 20.0, "8.0": 20.0, "8": 12.0, "9": 20.6, "10": 40.1}
PCIE_SPEED = {1: 15, 2: 30, 3: 60, 4: 120, 5: 240, 6: 480}
# With NVSwitch and in-network reduction (NVLS) since Hopper, from five GPUs on, more than the ring was measured.
NVLS_FROM = 5


def expectation(cards: Sequence[Card], pairs: Sequence[Pair]) -> tuple[Text, ...]:
    """What an all-reduce over all these cards can reach, and why; nothing where it can't be told."""
    linked = [p for p in pairs if isinstance(p.nvlinks, Known) and p.nvlinks.value > 0]
    if pairs and len(linked) == len(pairs):
        return _over_nvlink(cards, pairs)
    return (*_mixed(linked, pairs), *_over_pcie(cards, pairs))


def _over_nvlink(cards: Sequence[Card], pairs: Sequence[Pair]) -> tuple[Text, ...]:
    model = cards[0].model
    if model is None:
        return ()
    links = min(p.nvlinks.value for p in pairs if isinstance(p.nvlinks, Known))
    capability = model.compute_capability
    rate = PER_LINK.get(capability) or PER_LINK.get(capability.partition(".")[0])
    if rate is None:
        return ()
    notes = [
        msg(
            "all pairs over {links} NVLinks; NCCL counts {rate} GB/s a link: a ring all-reduce reaches {sum} GB/s",
            links=links,
            rate=f"{rate:g}",
            sum=f"{links * rate:.0f}",
        )
    ]
    if model.nvlink.layout == "switch" and capability >= "9" and len(cards) >= NVLS_FROM:
        notes.append(msg("through NVSwitches that reduce on their way (NVLS), more than the ring is possible"))
    return tuple(notes)


def _mixed(linked: Sequence[Pair], pairs: Sequence[Pair]) -> tuple[Text, ...]:
    if not linked:
        return ()
    return (msg("{n} of {all} pairs have NVLink: a ring over all GPUs crosses PCIe", n=len(linked), all=len(pairs)),)


def _over_pcie(cards: Sequence[Card], pairs: Sequence[Pair]) -> tuple[Text, ...]:
    links = [(c.read("pcie_gen_max"), c.read("pcie_width_max")) for c in cards]
    rates = [
        int(w.value) * PCIE_SPEED.get(int(g.value), 0) / 80
        for g, w in links
        if isinstance(g, Known) and isinstance(w, Known)
    ]
    if len(rates) < len(cards) or not rates or not min(rates) or not pairs:
        return ()
    notes = [
        msg(
            "over PCIe; NCCL counts the slowest link with {rate} GB/s, which bounds a ring all-reduce",
            rate=f"{min(rates):.0f}",
        )
    ]
    if any(p.computed.link == "SYS" for p in pairs):
        notes.append(msg("the ring crosses the CPU interconnect, which NCCL counts with 6 to 40 GB/s by processor"))
    if any(isinstance(p.p2p, Known) and p.p2p.value != "OK" for p in pairs):
        notes.append(msg("without peer access data goes through host memory: CPU and memory decide the rate"))
    return tuple(notes)
