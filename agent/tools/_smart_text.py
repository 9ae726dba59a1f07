"""smartctl's report for people, for disks whose report came without ``-j``.

It has no last line of its own. What says that nothing is missing: the information section ends with the local time,
the NVMe health log with its count of error entries, and the ATA attribute table with a blank line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from agent.tools import ParseError

BANNER = re.compile(r"^smartctl (?:version )?\d+\.\d+", re.MULTILINE)
_REPORT = re.compile(
    r"^(?:=== START OF .* ===|smartctl (?:version )?\d+\.\d+.*|SMART (?:overall-health|Health Status).*)$", re.MULTILINE
)
_PAIR = re.compile(r"^([A-Za-z][\w /().+-]{1,60}?):\s+(\S.*)$")
_SCSI_HOURS = re.compile(
    r"^\s*(?:Accumulated power on time, hours:minutes|number of hours powered up =)\s*(\d{1,9})[:.]\d"
)
_ATTRIBUTE = re.compile(
    r"^\s*(\d{1,3}) (\S+)\s+(?:0x[0-9a-f]{4}|[A-Z-]{6})\s+(?:\d{3}|---)\s+(?:\d{3}|---)\s+(?:\d{3}|---)\s+(.*)$"
)
_ATTRIBUTES = re.compile(r"^ID#\s+ATTRIBUTE_NAME\s")
_STATISTIC = re.compile(r"^0x[0-9a-f]{2}\s+0x[0-9a-f]{3}\s+\d\s+(\d{1,20})\s+\S+\s+(\S.*?)\s*$")
# How a pasted text without its last line end may end: in a sentence or a bracket, not in a number or a word.
_WHOLE_END = re.compile(r"[.)\]!]$")
_GROUPS = re.compile(r"[,.'\u2019 ]")


@dataclass(frozen=True)
class Report:
    """Labels in lower case with their first value, attributes by number and name, device statistics by name."""

    values: Mapping[str, str]
    attributes: Mapping[tuple[int, str], str]
    statistics: Mapping[str, int]
    protocol: Optional[str]

    def text(self, *labels: str) -> Optional[str]:
        """The first of the labels' values that is there."""
        return next((self.values[label] for label in labels if label in self.values), None)

    def count(self, *labels: str) -> Optional[int]:
        """A whole number, with the thousands separators of any language; None for anything else."""
        text = self.text(*labels)
        match = re.match(r"(\d{1,3}(?:[,.'\u2019 ]\d{3})+|\d{1,20})(?=$|[ %[])", text or "")
        return int(_GROUPS.sub("", match[1])) if match else None

    def raw(self, number: int, name: str) -> Optional[str]:
        """The raw value of an attribute whose name begins so: drives give one number different meanings."""
        found = (raw for (n, label), raw in self.attributes.items() if n == number and label.startswith(name))
        return next(found, None)


def is_report(text: str) -> bool:
    """Whether the text is smartctl's report for people, or the beginning of one."""
    return _REPORT.search(text) is not None


def read(text: str) -> Report:
    """The report of one disk. Raises :class:`ParseError`: ``truncated``, ``several_results``."""
    lines = [line.rstrip() for line in text.split("\n")]
    if len(BANNER.findall(text)) > 1:
        raise ParseError("several_results", "more than one smartctl report; give one at a time")
    values: dict[str, str] = {}
    attributes: dict[tuple[int, str], str] = {}
    statistics: dict[str, int] = {}
    for line in lines:
        attribute, statistic, pair = _ATTRIBUTE.match(line), _STATISTIC.match(line), _PAIR.match(line)
        scsi = _SCSI_HOURS.match(line)
        if attribute:
            attributes.setdefault((int(attribute[1]), attribute[2]), attribute[3].split("  ")[-1].strip())
        elif statistic:
            statistics.setdefault(statistic[2], int(statistic[1]))
        elif scsi:
            values.setdefault("power on hours", scsi[1])
        elif pair:
            values.setdefault(pair[1].strip().lower(), pair[2].strip())
    _raise_on_cut(text, lines, values)
    return Report(values, attributes, statistics, _protocol(text, values))


def _raise_on_cut(text: str, lines: Sequence[str], values: Mapping[str, str]) -> None:
    last = next((line for line in reversed(lines) if line), "")
    if not text.endswith("\n") and not _WHOLE_END.search(last):
        raise ParseError("truncated", "the last line may be cut off", last)
    if last.startswith("=== "):
        raise ParseError("truncated", "the text ends where a section begins", last)
    if {"device model", "model number", "product"} & values.keys() and "local time is" not in values:
        raise ParseError("truncated", "the information section is cut off", last)
    if text.count("=== START OF ") == 1 and "=== START OF INFO" in text and not text.endswith("\n\n"):
        raise ParseError("truncated", "no blank line ends the information section", last)
    if "firmware updates" in {key.partition(" (")[0] for key in values} and "(NVMe Log 0x02" not in text:
        raise ParseError("truncated", "the NVMe health log is missing", last)
    if "(NVMe Log 0x02" in text and "error information log entries" not in values:
        raise ParseError("truncated", "the NVMe health log is cut off", last)
    table = next((at for at, line in enumerate(lines) if _ATTRIBUTES.match(line)), None)
    if table is None and "General SMART Values:" in text:
        raise ParseError("truncated", "the attribute table is missing", last)
    if table is not None and not _has_end(lines[table + 1 :]):
        raise ParseError("truncated", "the attribute table is cut off", last)


def _has_end(rows: Sequence[str]) -> bool:
    """Rows, then a blank line (the text's own last line end is none) or the legend of ``-f brief``."""
    end = next((at for at, row in enumerate(rows) if not _ATTRIBUTE.match(row)), len(rows))
    return end < len(rows) - 1


def _protocol(text: str, values: Mapping[str, str]) -> Optional[str]:
    if "(NVMe Log 0x0" in text or {"nvme version", "model number"} & values.keys():
        return "NVMe"
    if {"ata version is", "sata version is", "device model"} & values.keys() or "ID# ATTRIBUTE_NAME" in text:
        return "ATA"
    return "SCSI" if {"vendor", "product", "transport protocol", "smart health status"} & values.keys() else None
