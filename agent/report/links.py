"""Who reaches whom: the copies between all pairs of GPUs, the links that nvidia-smi names, and the machine drawn."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from agent.model import Finding, Measurement, Run
from agent.report import numbers
from agent.report.clean import one_line, shortened
from agent.report.figures import Box, Cell, Graph, Line, Matrix
from agent.report.places import folders, probe, whole
from agent.report.strips import counted_median
from agent.text import Translate, msg
from agent.tools import ParseError
from agent.tools.topo import Topology, parse

PAIRS = "p2p_bandwidth"
_MOST = 16  # devices across a matrix: more are named only where they are slow
_SLOWEST = 20
_HEATS = 6
_LARGEST = 4 << 20
_NVLINK = re.compile(r"NV\d+\Z")
# Nearest first; anything with NVLink is nearer than all of them.
_NEAR = ("PSB", "PIX", "PXB", "PHB", "NODE", "SOC", "SYS")


def index_of(run: Run) -> Mapping[str, str]:
    """A GPU's slot → ``GPU 5``."""
    gpus = run.node.get("gpus") or ()
    return {str(g["slot"]): f"GPU {one_line(str(g['index']))}" for g in gpus if _numbered(g)}


def _numbered(gpu: object) -> bool:
    return isinstance(gpu, Mapping) and gpu.get("slot") is not None and gpu.get("index") is not None


# ---------------------------------------------------------------- copies between pairs


def copies(run: Run, translate: Translate) -> Optional[Matrix]:
    """The bandwidth from each GPU to each other one; None where no pair was measured."""
    found = {m.subject: v for m in run.measurements if (v := _pair(m)) is not None and m.subject}
    names = index_of(run)
    ends = sorted({end for pair in found for end in pair.split(">")}, key=lambda s: (_number(names.get(s)), s))
    unit = next((m.unit for m in run.measurements if m.key.startswith(f"{PAIRS}@")), "")
    if len(ends) < 2:
        return None
    broken = {f.subject for f in run.findings if f.clause == PAIRS and f.outcome == "fail"}
    heading = msg("Copies between the GPUs, {unit}", unit=one_line(unit)).render(translate)
    if len(ends) > _MOST:
        return _slowest(found, broken, names, heading, translate)
    low, high = min(found.values()), max(found.values())

    def cell(one: str, other: str) -> Cell:
        value = found.get(f"{one}>{other}")
        if value is None:
            return Cell("" if one == other else numbers.NONE, "self")
        heat = "bad" if f"{one}>{other}" in broken else f"heat-{_heat(value, low, high)}"
        return Cell(numbers.number(value, 3), heat)

    rows = tuple((names.get(a, shortened(a, 16)), tuple(cell(a, b) for b in ends)) for a in ends)
    heads = tuple(names.get(b, shortened(b, 16)) for b in ends)
    return Matrix(heading, msg("from \\ to").render(translate), heads, rows)


def _pair(m: Measurement) -> Optional[float]:
    if not m.key.startswith(f"{PAIRS}@") or m.subject is None or m.subject.count(">") != 1:
        return None
    return counted_median(m)


def _number(label: Optional[str]) -> int:
    digits = re.search(r"\d+", label or "")
    return int(digits[0]) if digits else 1 << 30


def _heat(value: float, low: float, high: float) -> int:
    """Against zero and the best: pairs that differ by a hundredth must not look like day and night."""
    del low
    return min(int(_HEATS * value / high), _HEATS - 1) if high > 0 else 0


def _slowest(
    found: Mapping[str, float], broken: set[Optional[str]], names: Mapping[str, str], heading: str, translate: Translate
) -> Matrix:
    worst = sorted(found.items(), key=lambda item: item[1])[:_SLOWEST]
    rows = tuple(
        (
            " → ".join(names.get(end, shortened(end, 16)) for end in pair.split(">")),
            (Cell(numbers.number(value, 3), "bad" if pair in broken else "plain"),),
        )
        for pair, value in worst
    )
    note = msg("{n} pairs were measured; these are the slowest", n=len(found)).render(translate)
    return Matrix(heading, msg("pair").render(translate), ("",), rows, (note,))


# ---------------------------------------------------------------- links by nvidia-smi


def topology(folder: Optional[Path]) -> Optional[Topology]:
    """What ``nvidia-smi topo -m`` printed in this run; None where it did not run or could not be read."""
    for place in folders(folder):
        raw = whole(place / "stdout", _LARGEST) if probe(place) == "topo-m" else None
        if raw is None:
            continue
        try:
            return parse(raw.decode("utf-8", "replace"))
        except ParseError:
            continue  # the finding that rests on it says so
    return None


def matrix(found: Topology, translate: Translate) -> Optional[Matrix]:
    """Every link as nvidia-smi names it."""
    names = [*found.gpus, *found.nics]
    if len(found.gpus) < 1 or len(found.gpus) > _MOST or len(names) > 2 * _MOST or len(names) < 2:
        return None

    def cell(one: str, other: str) -> Cell:
        word = found.links.get(one, {}).get(other, "")
        return Cell(word, f"heat-{_nearness(word)}" if word else "self")

    rows = tuple((a, tuple(cell(a, b) for b in names)) for a in found.gpus)
    cards = ", ".join(f"{nic} {device}" for nic, device in found.nics.items() if device and device != nic)
    heading, corner = (text.render(translate) for text in (msg("Links as nvidia-smi names them"), msg("from \\ to")))
    return Matrix(heading, corner, tuple(names), rows, (shortened(one_line(cards), 400),) if cards else ())


def _nearness(word: str) -> int:
    if _NVLINK.match(word):
        return _HEATS - 1
    near = len(_NEAR) - _NEAR.index(word) - 1 if word in _NEAR else 0
    return round(near * (_HEATS - 2) / (len(_NEAR) - 1))


# ---------------------------------------------------------------- the machine drawn

_TILE, _GAP, _PAD = 78, 10, 12
_TOP, _GPU_Y, _NIC_Y = 26, 66, 156
_APART = 46


@dataclass(frozen=True)
class _Group:
    """GPUs of one NUMA node, with the network cards that are nearest to one of them."""

    name: str
    gpus: tuple[str, ...]
    nics: tuple[tuple[str, str, str], ...]  # name, its GPU, link


def graph(found: Topology, run: Run, translate: Translate) -> Optional[Graph]:
    """NUMA nodes as boxes, in them GPUs above their nearest network cards; NVLink above, the slowest way below."""
    if not 2 <= len(found.gpus) <= _MOST:
        return None
    groups = _groups(found)
    broken = _broken(run)
    boxes: list[Box] = []
    lines: list[Line] = []
    centre: dict[str, int] = {}
    left = 0
    height = _NIC_Y + 68 if any(g.nics for g in groups) else _GPU_Y + 78
    for group in groups:
        width = 2 * _PAD + max(len(group.gpus), len(group.nics)) * (_TILE + _GAP) - _GAP
        boxes.append(Box(left, _GPU_Y - 14, width, height - _GPU_Y + 12, group.name, "", "numa"))
        for i, gpu in enumerate(group.gpus):
            x = left + _PAD + i * (_TILE + _GAP)
            centre[gpu] = x + _TILE // 2
            boxes.append(Box(x, _GPU_Y, _TILE, 40, gpu, "", "gpu bad" if gpu in broken else "gpu"))
        for i, (nic, gpu, link) in enumerate(group.nics):
            x = left + _PAD + i * (_TILE + _GAP)
            boxes.append(Box(x, _NIC_Y, _TILE, 32, shortened(_device(nic, found), 11), "", "nic"))
            lines.append(_down(centre.get(gpu, x), x + _TILE // 2, link))
        left += width + _APART
    width = left - _APART
    lines += _nvlinks(found, centre, width, translate)
    lines += _between(found, groups, boxes, height)
    says = msg("{n} GPUs on {m} NUMA nodes with {k} network cards", n=len(found.gpus), m=len(groups), k=len(found.nics))
    return Graph(
        msg("How the machine hangs together").render(translate),
        says.render(translate), width, height, tuple(boxes), tuple(lines),
    )  # fmt: skip


def _broken(run: Run) -> set[str]:
    slots = {str(g["slot"]): g["index"] for g in run.node.get("gpus") or () if _numbered(g)}
    failed: Iterable[Finding] = (f for f in run.findings if f.outcome == "fail" and f.severity == "breach")
    return {f"GPU{slots[f.subject]}" for f in failed if f.subject in slots}


def _device(nic: str, found: Topology) -> str:
    return one_line(found.nics.get(nic) or nic)


def _groups(found: Topology) -> tuple[_Group, ...]:
    nodes: dict[Optional[str], list[str]] = {}
    for gpu in found.gpus:
        nodes.setdefault(found.numa_affinity.get(gpu), []).append(gpu)
    home: dict[Optional[str], list[tuple[str, str, str]]] = {}
    for nic in found.nics:
        near = _nearest(nic, found)
        if near is not None:
            home.setdefault(found.numa_affinity.get(near[0]), []).append((nic, *near))
    return tuple(
        _Group(f"NUMA {one_line(node)}" if node is not None else "", tuple(gpus), tuple(home.get(node, ())[:_MOST]))
        for node, gpus in sorted(nodes.items(), key=lambda item: (_number(item[0]), item[0] or ""))
    )


def _nearest(nic: str, found: Topology) -> Optional[tuple[str, str]]:
    ways = [(gpu, found.links.get(gpu, {}).get(nic)) for gpu in found.gpus]
    known = [(gpu, link) for gpu, link in ways if link in _NEAR]
    return min(known, key=lambda item: _NEAR.index(item[1])) if known else None


def _down(x1: int, x2: int, link: str) -> Line:
    y1, y2 = _GPU_Y + 40, _NIC_Y
    middle = (y1 + y2) // 2
    d = f"M{x1} {y1}C{x1} {middle} {x2} {middle} {x2} {y2}"
    return Line(d, "near" if link in _NEAR[:3] else "far", link, x2, y2 - 8)


def _nvlinks(found: Topology, centre: Mapping[str, int], width: int, translate: Translate) -> Iterable[Line]:
    """A common bar where every pair has NVLink (a switch, or a full mesh); else an arc for each pair that has it."""
    gpus = list(found.gpus)
    linked = {
        (a, b): word
        for i, a in enumerate(gpus)
        for b in gpus[i + 1 :]
        if _NVLINK.match(word := found.links.get(a, {}).get(b, ""))
    }
    if not linked:
        return
    if len(linked) == len(gpus) * (len(gpus) - 1) // 2 and len(gpus) > 2:
        words = sorted(set(linked.values()), key=_number)
        label = msg("NVLink between all pairs ({links})", links=", ".join(words)).render(translate)
        yield Line(f"M{min(centre.values())} {_TOP}H{max(centre.values())}", "bar", label, width // 2, _TOP - 10)
        yield from (Line(f"M{x} {_TOP}V{_GPU_Y}", "nvlink") for x in centre.values())
        return
    for (a, b), word in linked.items():
        x1, x2 = sorted((centre[a], centre[b]))
        top = max(_TOP - 14, _GPU_Y - 20 - (x2 - x1) // 12)
        yield Line(f"M{x1} {_GPU_Y}C{x1} {top} {x2} {top} {x2} {_GPU_Y}", "nvlink", word, (x1 + x2) // 2, top + 8)


def _between(found: Topology, groups: Sequence[_Group], boxes: Sequence[Box], height: int) -> Iterable[Line]:
    """The way from one NUMA node to the next without NVLink."""
    frames = [b for b in boxes if b.kind == "numa"]
    for one, other, a, b in zip(groups, groups[1:], frames, frames[1:]):
        nics = [n for n, _, _ in other.nics]
        ends = [*other.gpus, *nics]
        words = {found.links.get(g, {}).get(e, "") for g in one.gpus for e in ends}
        word = next((w for w in reversed(_NEAR) if w in words), "")
        if word:
            y = height - 52
            yield Line(f"M{a.x + a.w} {y}H{b.x}", "far", word, (a.x + a.w + b.x) // 2, y - 5)
