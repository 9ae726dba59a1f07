"""The PCIe link of a GPU as it was seen while copies ran: ``gpu.pcie@0000:1b:00.0``, in GB/s of line rate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional

from agent import stats
from agent.bench.device_copies import STATISTIC, UNIT, WAYS, line_rate
from agent.bench.device_memory import Answer
from agent.bench.step import Look
from agent.model import Attempt, Block, Result, Taken, Void
from agent.reading import Missing
from agent.text import Text, msg
from agent.tools.device_memory import SOURCES, Copies, Seen, Timing

LINK = "gpu.pcie"
UNCORROBORATED = "not-corroborated"
LEAST_SAMPLES = 20


def link_taken(answer: Answer, look: Look, where: str, one: Copies) -> Result:
    """The link while copies ran. Void where its sources disagree, or where the copies were faster than it."""
    seen = [_seen_in(b.ways[w] for w in WAYS) for b in one.blocks]
    sources = [name for name in SOURCES if any(block.get(name) for block in seen)]
    if not sources:
        said = "; ".join(
            sorted({s.error for b in one.blocks for w in WAYS for s in b.ways[w].link.values() if s.error})
        )
        detail = msg("neither the kernel nor the driver tells the link under load: {said}", said=said or "—")
        return Missing("unsupported", detail, answer.ran.evidence)
    blocks = tuple(_link_block(block) for block in seen if any(block.values()))
    fastest = max(stats.median(b.ways[w].samples) for b in one.blocks for w in WAYS)
    attempt = Attempt(
        blocks=blocks,
        depth=look.depth,
        started_at=answer.ran.started_at,
        evidence=answer.ran.evidence,
        void=_doubt(seen, blocks, sources, fastest),
        notes=(*_link_notes(seen, sources), *_replays(answer, where)),
        reproduce=answer.ran.argv,
    )
    return Taken(attempt, UNIT, STATISTIC, where)


LinkCounts = Mapping[tuple[int, int], int]


def _seen_in(timings: Iterable[Timing]) -> dict[str, LinkCounts]:
    """By source, the samples of both ways together."""
    found: dict[str, dict[tuple[int, int], int]] = {}
    for timing in timings:
        for name, seen in timing.link.items():
            _add(found.setdefault(name, {}), seen)
    return dict(found)


def _add(into: dict[tuple[int, int], int], seen: Seen) -> None:
    for link, count in seen.links.items():
        into[link] = into.get(link, 0) + count


def usual(links: LinkCounts) -> tuple[int, int]:
    """The link of most samples; of two as frequent the slower one."""
    return min(links, key=lambda link: (-links[link], link[0] * link[1]))


def _link_block(block: Mapping[str, LinkCounts]) -> Block:
    """The register of the card itself goes before the library that reads it."""
    name = next(s for s in SOURCES if block.get(s))
    generation, width = usual(block[name])
    conditions: dict[str, Any] = {"generation": generation, "width": width, "source": name}
    conditions.update({s: {f"Gen{g} x{w}": n for (g, w), n in links.items()} for s, links in block.items()})
    return Block(line_rate(generation, width), conditions=conditions)


def _doubt(
    seen: Sequence[Mapping[str, LinkCounts]], blocks: tuple[Block, ...], sources: Sequence[str], fastest: float
) -> Optional[Void]:
    least = max(sum(sum(b.get(s, {}).values()) for b in seen) for s in sources)
    if least < LEAST_SAMPLES:
        return Void(
            "too-few-samples", msg("{n} samples of the link under load, {m} are needed", n=least, m=LEAST_SAMPLES)
        )
    for block in seen:
        told = {usual(block[s]) for s in sources if block.get(s)}
        if len(told) > 1:
            both = " / ".join(f"{s} Gen{usual(block[s])[0]} x{usual(block[s])[1]}" for s in sources if block.get(s))
            return Void(
                UNCORROBORATED, msg("the kernel and the driver tell different links under load: {both}", both=both)
            )
    line = stats.median([b.value for b in blocks])
    if fastest > stats.PHYSICAL_MARGIN * line:
        link = blocks[0].conditions
        detail = msg(
            "copies ran at {rate} GB/s, more than the Gen{generation} x{width} that is shown can carry",
            rate=f"{fastest:.1f}",
            generation=link["generation"],
            width=link["width"],
        )
        return Void(UNCORROBORATED, detail)
    return None


def _link_notes(seen: Sequence[Mapping[str, LinkCounts]], sources: Sequence[str]) -> tuple[Text, ...]:
    whole: dict[str, dict[tuple[int, int], int]] = {s: {} for s in sources}
    for block in seen:
        for name in sources:
            _add(whole[name], Seen(block.get(name, {}), None))
    counted = ", ".join(
        f"{name}: " + " ".join(f"Gen{g} x{w} × {n}" for (g, w), n in sorted(links.items()))
        for name, links in whole.items()
    )
    return (msg("samples of the link under load: {counted}", counted=counted),)


def _replays(answer: Answer, where: str) -> tuple[Text, ...]:
    """Packets sent again are the sign of a bad contact; how many there were before says nothing."""
    grown = answer.grown(where, "pcie_replay")
    return (msg("{n} packets had to be sent again meanwhile", n=grown),) if grown else ()
