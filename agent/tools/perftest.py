"""ib_write_bw of perftest: RDMA write bandwidth.

Source command: ``ib_write_bw -d DEVICE -D SECONDS -f MARGIN --report_gbits -F [SERVER]`` (:func:`argv`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from agent.tools import ParseError
from agent.tools._text import clean, first_line

TIMEOUT_S = 30.0  # beyond the test's own seconds: memory is registered, queue pairs are connected

_UNITS = {"Gb/sec": 1e9, "MB/sec": 8 * 2.0**20, "MiB/sec": 8 * 2.0**20}
_HEADER = re.compile(r"#bytes\s+#iterations\s+BW peak\[([A-Za-z/]+)\]\s+BW average\[([A-Za-z/]+)\]")
_ROW = re.compile(r"^\s*(\d+)\s+(\d+)\s+(\d+(?:\.\d+)?)\s+(\d+(?:\.\d+)?)(?:\s+\d+(?:\.\d+)?)*\s*$")
_FAILURES: tuple[tuple[str, str], ...] = (
    (r"command not found|No such file or directory: .?ib_write_bw", "tool_missing"),
    (r"not found|No IB devices|Unable to find", "no_device"),
    (r"Couldn't connect|Unable to init the socket|Failed to exchange|Connection refused|timed out", "not_connected"),
    (r"Couldn't allocate MR|Cannot allocate memory|ibv_reg_mr|memlock", "memory_locked"),
    (r"Permission denied|Operation not permitted|Failed to open", "denied"),
    (r"Port number \d+ state is|not active|link.* down", "link_down"),
    (r"Completion with error|Failed status|Failed to modify QP|Unable to (?:Connect|connect)", "transfer"),
    (r"Unsupported|invalid option|unrecognized option|Invalid", "parameter"),
)


@dataclass(frozen=True)
class WriteBandwidth:
    """One client's result: message size in bytes, the average in bit/s, and what its head says of the link."""

    message_bytes: int
    bits_per_s: float
    device: Optional[str] = None
    link_type: Optional[str] = None
    mtu: Optional[int] = None


def argv(device: str, port: int, seconds: int, margin: int, server: Optional[str] = None) -> list[str]:
    """The server's command, or with ``server`` the client's. ``margin`` seconds at both ends do not count."""
    command = ["ib_write_bw", "-d", device, "-p", str(port), "-D", str(seconds), "-f", str(margin)]
    return [*command, "--report_gbits", "-F", *([server] if server else [])]


def parse(text: str) -> WriteBandwidth:
    """The largest message's row.

    Raises :class:`ParseError` where there is none: ``no_device``, ``not_connected``, ``memory_locked``, ``denied``,
    ``link_down``, ``transfer``, ``parameter``, ``tool_missing``, ``empty``, ``unparsable``.
    """
    text = clean(text)
    if not text.strip():
        raise ParseError("empty", "ib_write_bw printed nothing")
    header = _HEADER.search(text)
    rows = [found for line in text[header.end() :].splitlines() if (found := _ROW.match(line))] if header else []
    if header is None or not rows:
        raise _failure(text.splitlines())
    unit = _UNITS.get(header[2])
    if unit is None:
        raise ParseError("unparsable", "a unit that is not known", header[0])
    last = max(rows, key=lambda row: int(row[1]))
    mtu = _said(text, "Mtu")
    return WriteBandwidth(
        message_bytes=int(last[1]),
        bits_per_s=float(last[4]) * unit,
        device=_said(text, "Device"),
        link_type=_said(text, "Link type"),
        mtu=int(found[0]) if mtu and (found := re.match(r"\d+", mtu)) else None,
    )


def _said(text: str, name: str) -> Optional[str]:
    found = re.search(rf"\b{name}\s*:\s*(\S+)", text)
    return found[1] if found else None


def _failure(lines: Sequence[str]) -> ParseError:
    for pattern, kind in _FAILURES:
        line = next((li.strip() for li in lines if re.search(pattern, li)), None)
        if line is not None:
            return ParseError(kind, "ib_write_bw has no result", line)
    return ParseError("unparsable", "not a result of ib_write_bw", first_line("\n".join(lines)))
