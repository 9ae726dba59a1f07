"""``nvidia-smi nvlink -s``: the state and raw rate of each NVLink of each GPU.

The rate is per link and one way, as the tool prints it (26.562 GB/s on H100: times 0.9412 it is the
25 GB/s of the data sheet).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional

from agent.tools import ParseError
from agent.tools._text import clean, recognise
from agent.tools.smi_errors import LostGpu, find_failure, lost_gpu, refuse

KIND = "nvlink"
ARGV = ("nvidia-smi", "nvlink", "-s")
TIMEOUT_S = 60.0
_SIGN = re.compile(r"GPU ?\d")


@dataclass(frozen=True)
class Link:
    """One link; ``gb_per_s`` is None where it is inactive."""

    index: int
    active: bool
    gb_per_s: Optional[float]


@dataclass(frozen=True)
class GpuLinks:
    """One GPU. ``links`` is None where none is listed, ``state`` then says why.

    ``state``: ``listed``; ``all_inactive``; ``not_supported`` (no NVLink on this device); ``mig_mode``;
    another failure kind; ``not_shown`` where the tool printed nothing about it, which is not "none".
    """

    index: int
    name: str
    uuid: Optional[str]
    state: str
    reason: Optional[str]
    links: Optional[tuple[Link, ...]]

    @property
    def active(self) -> Optional[int]:
        """How many links are active; None where the text does not say."""
        if self.state == "all_inactive":
            return 0
        return None if self.links is None else sum(link.active for link in self.links)


@dataclass(frozen=True)
class NvlinkStatus:
    """All GPUs in the order printed, and those that the text reports lost."""

    gpus: tuple[GpuLinks, ...]
    lost: tuple[LostGpu, ...]


_GPU = re.compile(r"GPU (\d{1,3}): (.+?)(?: \(UUID: ((?:GPU|MIG)-[0-9a-fA-F-]{36})\))?")
_LINK = re.compile(r"Link (\d{1,3}): (?:(\d{1,5}(?:\.\d{1,6})?) GB/s|<?(inactive)>?)", re.I)
# How many links the tool lists at least, active or not, on boards of one kind: fewer is a text cut off.
_LISTED = (
    (re.compile(r"\b(?:H100 80GB HBM3|H20|H200|GH200|B200|B300|GB200|GB300)\b(?! NVL)"), 18),
    (re.compile(r"\bA100-SXM"), 12),
    (re.compile(r"\bA800-SXM"), 8),
    (re.compile(r"\bV100-SXM"), 6),
)
_INACTIVE = re.compile(r"all links are inactive", re.I)


def parse(text: str) -> NvlinkStatus:
    """The status of every GPU. No output at all raises ``empty``: it says nothing about links."""
    recognise(text, "nvidia-smi nvlink", _SIGN)
    lines = [line.strip() for line in clean(text).split("\n")]
    blocks: list[tuple[str, list[str]]] = []
    lost: list[LostGpu] = []
    for at, line in enumerate(lines):
        gone = lost_gpu(line)
        if gone is not None:
            lost.append(gone)
        elif line.startswith("GPU ") and _GPU.fullmatch(line):
            blocks.append((line, []))
        elif blocks and line:
            blocks[-1][1].append(line)
        elif line.startswith("GPU ") and not any(lines[at + 1 :]):
            raise ParseError("truncated", "the text ends inside a GPU's line", line)
    if not blocks:
        raise refuse(text, "nvidia-smi nvlink -s")
    last_line = next(line for line in reversed(lines) if line)
    open_end = "" if text.endswith("\n") else last_line
    gpus = tuple(_gpu(header, body, open_end) for header, body in blocks)
    _check_whole(gpus, last_line, text)
    return NvlinkStatus(gpus, tuple(lost))


def to_json(result: NvlinkStatus) -> dict[str, Any]:
    """GPUs with their links, counts beside them; a count that is not known is null."""
    return {
        "gpus": [_gpu_json(gpu) for gpu in result.gpus],
        "lost": [{"index": g.index, "pci_bus_id": g.pci_bus_id, "text": g.text} for g in result.lost],
    }


def _gpu_json(gpu: GpuLinks) -> dict[str, Any]:
    links = None
    if gpu.links is not None:
        links = [{"link": x.index, "active": x.active, "gb_per_s": x.gb_per_s} for x in gpu.links]
    return {
        "index": gpu.index,
        "name": gpu.name,
        "uuid": gpu.uuid,
        "state": gpu.state,
        "reason": gpu.reason,
        "active_links": gpu.active,
        "total_links": None if gpu.links is None else len(gpu.links),
        "links": links,
    }


def _gpu(header: str, body: Sequence[str], open_end: str) -> GpuLinks:
    match = _GPU.fullmatch(header)
    assert match is not None
    links = []
    state, reason = "not_shown", None
    for line in body:
        found = _LINK.fullmatch(line)
        if found:
            rate = float(found[2]) if found[2] else None
            links.append(Link(int(found[1]), rate is not None, rate))
        else:
            state, reason = _state(line, open_end), line
    numbers = [link.index for link in links]
    if len(set(numbers)) != len(numbers) or (links and reason):
        raise ParseError("unparsable", f"contradicting lines for GPU {match[1]}", reason or body[-1])
    return GpuLinks(int(match[1]), match[2], match[3], "listed" if links else state, reason, tuple(links) or None)


def _state(line: str, open_end: str) -> str:
    """What a line that lists no link says instead."""
    if _INACTIVE.search(line):
        return "all_inactive"
    failure = find_failure(line)
    if failure is not None and failure.kind != "nvml_error":
        return failure.kind
    if line == open_end:
        raise ParseError("truncated", "the text ends inside a line", line)
    if failure is not None:
        return failure.kind
    raise ParseError("unparsable", "not a line of nvidia-smi nvlink -s", line)


def _check_whole(gpus: Sequence[GpuLinks], last_line: str, text: str) -> None:
    """A text that ends early: the last GPU lists less than one of the same name above it."""
    numbers = [gpu.index for gpu in gpus]
    if len(set(numbers)) != len(numbers):
        raise ParseError("several_results", "one GPU is listed twice; give one output at a time")
    last = gpus[-1]
    if last.uuid is None and not text.endswith("\n") and last.links is None and last.reason is None:
        raise ParseError("truncated", "the text ends inside a GPU's line", last_line)
    most = max((len(gpu.links or ()) for gpu in gpus[:-1] if gpu.name == last.name), default=0)
    known = next((count for pattern, count in _LISTED if pattern.search(last.name)), 0)
    # A card that goes by another's name (an A800 by an A100's) lists what it has, as every GPU above it does.
    if last.links and len(last.links) < known and len(last.links) != most:
        raise ParseError("truncated", f"GPU {last.index} lists {len(last.links)} of its {known} links", last_line)
    if not most and last.links and not text.endswith("\n"):
        raise ParseError("truncated", "the last line has no line end: links may be missing", last_line)
    if last.state in ("listed", "not_shown") and len(last.links or ()) < most:
        raise ParseError("truncated", f"GPU {last.index} lists fewer links than the GPUs above", last_line)
