"""lspci's machine-readable forms: ``-vmm`` (labels, one blank line behind each device) and ``-mm`` (quoted columns)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Optional

from agent.tools import ParseError

_SLOT = r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"
_LABEL = re.compile(
    r"^(Slot|Class|Vendor|Device|SVendor|SDevice|PhySlot|Rev|ProgIf|Driver|Module|NUMANode|[A-Z]\w+):\s+(\S.*)$"
)
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ROW = re.compile(rf'^({_SLOT})\s+((?:"(?:[^"\\]|\\.)*"|-[rp][0-9a-f]{{2}}|\s+)+)$')
_ROW_START = re.compile(rf'^{_SLOT}\s+"')

Record = Mapping[str, Sequence[str]]


def records(text: str) -> Optional[list[Record]]:
    """The devices by label, each with its values; None where the text is in neither form.

    Raises :class:`ParseError` ``truncated`` where the end of the last device is missing, ``unparsable``.
    """
    lines = [line.rstrip() for line in text.split("\n")]
    if any(re.match(rf"^Slot:\s+{_SLOT}$", line) for line in lines):
        return _labelled(text, lines)
    if any(_ROW_START.match(line) for line in lines):
        return [_columns(line, text) for line in lines if line and not line.startswith(("lspci:", "pcilib:"))]
    return None


def split_id(value: str) -> tuple[Optional[str], Optional[str]]:
    """Name and id of ``NVIDIA Corporation [10de]``, ``Device 2330``, ``10de``; either may be missing."""
    match = re.fullmatch(
        r"(?:(.*?)\s*)\[([0-9a-fA-F]{4})\]|([0-9a-fA-F]{4})|((?:Device|Class) ([0-9a-fA-F]{4}))|(.*)", value
    )
    if match is None:
        return value, None
    name = match[1] or match[4] or match[6]
    number = match[2] or match[3] or match[5]
    return name or None, number.lower() if number else None


def _labelled(text: str, lines: Sequence[str]) -> list[Record]:
    if not text.endswith("\n\n"):
        last = next(line for line in reversed(lines) if line)
        raise ParseError("truncated", "no blank line behind the last device", last)
    found: list[dict[str, list[str]]] = []
    for line in lines:
        match = _LABEL.match(line)
        if match is None:
            if line and not line.startswith(("lspci:", "pcilib:")) and found:
                raise ParseError("unparsable", "not a line of lspci -vmm", line)
        elif match[1] == "Slot":
            found.append({"Slot": [match[2]]})
        elif found:
            found[-1].setdefault(match[1], []).append(match[2])
    for record in found:
        if not {"Class", "Vendor", "Device"} <= record.keys():
            raise ParseError("unparsable", "a device without class, vendor or name", record["Slot"][0])
    return list(found)


def _columns(line: str, text: str) -> Record:
    match = _ROW.match(line)
    cells = _QUOTED.findall(match[2]) if match else []
    if match is None or len(cells) != 5:
        kind = "truncated" if text.rstrip("\n").endswith(line) else "unparsable"
        raise ParseError(kind, "not a row of lspci -mm", line)
    revision = re.search(r"\s-r([0-9a-f]{2})(?=\s)", match[2])
    record = {"Slot": [match[1]], "Class": [cells[0]], "Vendor": [cells[1]], "Device": [cells[2]]}
    record.update({"SVendor": [cells[3]]} if cells[3] else {})
    record.update({"SDevice": [cells[4]]} if cells[4] else {})
    record.update({"Rev": [revision[1]]} if revision else {})
    return record
