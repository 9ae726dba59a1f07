"""The matrices of ``nvbandwidth -t TEST``: GB/s (10^9) from rows to columns, each byte counted once.

A test that was left out (``WAIVED``) gives no matrix; one that failed raises.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

from agent.tools import ParseError
from agent.tools._text import clean, first_line

HOST_TO_DEVICE = "host_to_device_memcpy_ce"
DEVICE_TO_HOST = "device_to_host_memcpy_ce"
PEER_READ = "device_to_device_memcpy_read_ce"
TIMEOUT_S = 90.0

_RUNNING = re.compile(r"^Running (\w+)\.?$")
_DEVICE = re.compile(r"^Device (\d+): .*\(([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.\d)?)\)$")
_CELL = re.compile(r"N/A|\d{1,9}(?:\.\d{1,9})?")
_FAILED = re.compile(r"\bCUDA_ERROR\w*|\bNVML_ERROR\w*|^ERROR\b|error .*: ", re.IGNORECASE)


@dataclass(frozen=True)
class Bandwidths:
    """``devices``: number → PCI address as printed, empty in versions that do not print it.

    ``tests``: name → {(row, column): GB/s}; N/A cells are left out.
    """

    devices: Mapping[int, str]
    tests: Mapping[str, Mapping[tuple[int, int], float]]


def argv(program: str, *tests: str) -> tuple[str, ...]:
    """The command line for these tests; a test is named by itself, not by a number that differs between versions."""
    return (program, *(word for test in tests for word in ("-t", test)))


def parse(text: str) -> Bandwidths:
    """All matrices of an output. :class:`ParseError` for a failure, a cut table and foreign text."""
    devices: dict[int, str] = {}
    tests: dict[str, dict[tuple[int, int], float]] = {}
    test: Optional[str] = None
    columns: Optional[list[int]] = None
    for line in clean(text).split("\n"):
        words = line.split()
        if found := _DEVICE.match(line.strip()):
            devices[int(found[1])] = found[2]
        elif found := _RUNNING.match(line.strip()):
            test, columns = found[1], None
        elif _FAILED.search(line) and not _is_row(words, columns):
            raise ParseError("tool_failed", "nvbandwidth reports an error", line.strip())
        elif test is not None and words and all(w.isdigit() for w in words) and columns is None:
            columns = [int(w) for w in words]
        elif test is not None and columns is not None and words and words[0].isdigit():
            if not _is_row(words, columns):
                raise ParseError("truncated", "a row of the matrix is cut", line.strip())
            row = {(int(words[0]), c): float(w) for c, w in zip(columns, words[1:]) if w != "N/A"}
            tests.setdefault(test, {}).update(row)
        elif test is not None and words[:1] == ["SUM"]:
            columns = None
    if test is None:
        raise ParseError("unparsable", "not the output of nvbandwidth", first_line(text))
    return Bandwidths(devices, tests)


def _is_row(words: list[str], columns: Optional[list[int]]) -> bool:
    return columns is not None and len(words) == len(columns) + 1 and all(map(_CELL.fullmatch, words[1:]))
