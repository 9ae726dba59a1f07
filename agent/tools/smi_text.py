"""The plain-text forms of nvidia-smi: ``--version`` and ``-q``.

Since 610 the old keys carry prose (``Deprecated, see "KMD version" instead``): the new keys come first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from agent.tools import ParseError
from agent.tools._nvidia import Value, complete, quantity, version, word
from agent.tools._text import clean
from agent.tools.smi_errors import LostGpu, lost_gpus, refuse

VERSION_ARGV = ("nvidia-smi", "--version")
Q_ARGV = ("nvidia-smi", "-q")
TIMEOUT_S = 60.0


@dataclass(frozen=True)
class SmiVersion:
    """``nvidia-smi --version``; None is what the text does not say."""

    smi_version: Optional[str]
    nvml_version: Optional[str]
    driver_version: Optional[str]
    cuda_version: Optional[str]


@dataclass(frozen=True)
class QGpu:
    """One GPU of ``nvidia-smi -q``; ``fields`` holds every line as ``Section/Key`` to its text."""

    pci_bus_id: str
    fields: Mapping[str, str]

    def text(self, path: str) -> Optional[str]:
        """A textual value such as ``Product Name``; None where absent or ``N/A``."""
        return word(self.fields.get(path))

    def amount(self, path: str, unit: str) -> Value:
        """A number such as ``amount("FB Memory Usage/Total", "MiB")``."""
        return quantity(self.fields.get(path), unit)

    def power(self, name: str) -> Value:
        """A value of the card's own power readings in W (``Current Power Limit``), wherever this version has it."""
        for section in _POWER_SECTIONS:
            value = self.amount(f"{section}/{name}", "W")
            if value is not None:
                return value
        return None

    @property
    def power_draw_w(self) -> Value:
        """The momentary draw, or the average where that is all there is."""
        names = ("Instantaneous Power Draw", "Power Draw", "Average Power Draw")
        values = [value for value in map(self.power, names) if value is not None]
        return next((value for value in values if isinstance(value, (int, float))), values[0] if values else None)


@dataclass(frozen=True)
class SmiQ:
    """``nvidia-smi -q``: the head and every GPU."""

    driver_version: Optional[str]
    cuda_version: Optional[str]
    attached_gpus: Optional[int]
    gpus: tuple[QGpu, ...]
    lost: tuple[LostGpu, ...]


_POWER_SECTIONS = ("GPU Power Readings", "GPU Power Readings/GPU Ceiling Power Limit", "Power Readings")
_KEY = re.compile(r"(\s*)(\S[^:]*?)\s*:(?: (.*)|)")
_GPU = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])")


def parse_version(text: str) -> SmiVersion:
    """The four versions of ``nvidia-smi --version``."""
    pairs = [(match[2].lower(), match[3] or "") for match in map(_KEY.fullmatch, clean(text).split("\n")) if match]
    found = dict(pairs)
    if "nvidia-smi version" not in found:
        raise refuse(text, "nvidia-smi --version")
    if not complete(text):
        raise ParseError("truncated", "the last line has no line end: it may be cut", text.splitlines()[-1])
    return SmiVersion(
        smi_version=version(found.get("nvidia-smi version")),
        nvml_version=version(found.get("nvml version")),
        driver_version=version(found.get("kmd version")) or version(found.get("driver version")),
        cuda_version=version(found.get("cuda umd version")) or version(found.get("cuda version")),
    )


def parse_q(text: str) -> SmiQ:
    """The head and the GPUs of ``nvidia-smi -q`` (or ``-q -d ...``)."""
    lines = clean(text).split("\n")
    if not any("NVSMI LOG" in line for line in lines):
        raise refuse(text, "nvidia-smi -q")
    starts = [i for i, line in enumerate(lines) if _GPU.fullmatch(line.rstrip())]
    head = _fields(lines[: starts[0]] if starts else lines)
    ends = [*starts[1:], len(lines)]
    gpus = tuple(_q_gpu(lines[start:end]) for start, end in zip(starts, ends))
    attached = quantity(head.get("Attached GPUs"))
    _check_whole(gpus, attached, text, lines)
    return SmiQ(
        driver_version=version(head.get("KMD Version")) or version(head.get("Driver Version")),
        cuda_version=version(head.get("CUDA UMD Version")) or version(head.get("CUDA Version")),
        attached_gpus=attached if isinstance(attached, int) else None,
        gpus=gpus,
        lost=lost_gpus(text),
    )


def _q_gpu(lines: Sequence[str]) -> QGpu:
    match = _GPU.fullmatch(lines[0].rstrip())
    assert match is not None
    return QGpu(match[1], _fields(lines[1:]))


def _fields(lines: Sequence[str]) -> dict[str, str]:
    """Every ``key : value`` under its sections, which are told by indentation alone."""
    fields: dict[str, str] = {}
    open_sections: list[tuple[int, str]] = []
    for line in lines:
        if not line.strip() or "NVSMI LOG" in line:
            continue
        depth = len(line) - len(line.lstrip())
        while open_sections and open_sections[-1][0] >= depth:
            open_sections.pop()
        match = _KEY.fullmatch(line)
        key = match[2] if match else line.strip()
        path = "/".join([name for _, name in open_sections] + [key])
        if match and (match[3] or "").strip():
            fields.setdefault(path, (match[3] or "").strip())
        open_sections.append((depth, key))
    return fields


def _check_whole(gpus: Sequence[QGpu], attached: Value, text: str, lines: Sequence[str]) -> None:
    """As many GPUs as the head says, the last as long as the others, and a line end behind it all."""
    last = next((line for line in reversed(lines) if line.strip()), "")
    if isinstance(attached, int) and len(gpus) < attached:
        raise ParseError("truncated", f"{len(gpus)} of {attached} GPUs", last)
    if not complete(text) or attached is None:
        raise ParseError("truncated", "the text ends early", last)
    sections = [{path.split("/")[0] for path in gpu.fields} - {"Processes"} for gpu in gpus]
    if sections and any(section - sections[-1] for section in sections[:-1]):
        raise ParseError("truncated", "the last GPU lacks sections that the others have", last)
