"""Texts of ``/proc``, ``/sys`` and ``/etc`` that are not a tool's: proc(5), os-release(5), resolv.conf(5).

Every function is pure and raises :class:`ParseError` for a text that is not what it should be.
"""

from __future__ import annotations

import ipaddress
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

from agent.tools import ParseError


@dataclass(frozen=True)
class Processor:
    """One block of ``/proc/cpuinfo``, with its fields as printed."""

    fields: Mapping[str, str]

    def get(self, name: str) -> Optional[str]:
        return self.fields.get(name) or None


@dataclass(frozen=True)
class CpuTimes:
    """The first line of ``/proc/stat``: clock ticks of all CPUs since boot, ``total`` of them stolen or not."""

    total: int
    steal: int


@dataclass(frozen=True)
class Route:
    """A default route: interface and gateway."""

    interface: str
    gateway: str


def cpuinfo(text: str) -> tuple[Processor, ...]:
    """The processors of ``/proc/cpuinfo``; what ARM prints once at the end belongs to none of them."""
    blocks = [_fields(block) for block in re.split(r"\n\s*\n", text)]
    found = tuple(Processor(b) for b in blocks if "processor" in b)
    if not found:
        raise ParseError("unparsable", "/proc/cpuinfo names no processor")
    return found


def _fields(block: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in block.splitlines())
    return {key.strip(): value.strip() for key, colon, value in pairs if colon}


def stat(text: str) -> CpuTimes:
    """``cpu user nice system idle iowait irq softirq steal …``; guest time is already part of user."""
    match = re.match(r"cpu +((?:\d+ ?){8,})", text)
    if match is None:
        raise ParseError("unparsable", "/proc/stat without the eight times of all CPUs", text.partition("\n")[0])
    ticks = [int(n) for n in match[1].split()[:8]]
    return CpuTimes(sum(ticks), ticks[7])


def meminfo(text: str) -> dict[str, int]:
    """Sizes in bytes (the file says kB and means KiB); also of a NUMA node's own meminfo."""
    pairs = re.findall(r"^(?:Node \d+ )?([A-Za-z0-9_()]+):\s+(\d+) kB$", text, re.MULTILINE)
    if not pairs:
        raise ParseError("unparsable", "no sizes in meminfo", text.partition("\n")[0])
    return {name: int(kib) * 1024 for name, kib in pairs}


def key_values(text: str) -> dict[str, int]:
    """``name number`` lines, as in ``cpu.stat``."""
    pairs = re.findall(r"^([a-z_]+) (\d+)$", text, re.MULTILINE)
    if not pairs:
        raise ParseError("unparsable", "no counters", text.partition("\n")[0])
    return {name: int(value) for name, value in pairs}


def status(text: str) -> dict[str, str]:
    """``/proc/self/status``."""
    fields = _fields(text)
    if "Name" not in fields:
        raise ParseError("unparsable", "not a process status", text.partition("\n")[0])
    return fields


def cpu_list(text: str) -> frozenset[int]:
    """``0-3,8,10-11`` as CPU numbers; an empty list is empty."""
    found: set[int] = set()
    for part in filter(None, (p.strip() for p in text.split(","))):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if match is None or int(match[2] or match[1]) > 1 << 16:
            raise ParseError("unparsable", "not a list of CPUs", text)
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(found)


def limits(text: str) -> dict[str, tuple[Optional[int], Optional[int]]]:
    """``/proc/self/limits``: soft and hard limit by name; None is unlimited."""
    rows = re.findall(r"^(Max [a-z ]+?)\s{2,}(\d+|unlimited)\s+(\d+|unlimited)\b", text, re.MULTILINE)
    if not rows:
        raise ParseError("unparsable", "not a list of limits", text.partition("\n")[0])
    return {name: (_limit(soft), _limit(hard)) for name, soft, hard in rows}


def _limit(text: str) -> Optional[int]:
    return None if text == "unlimited" else int(text)


def os_release(text: str) -> dict[str, str]:
    """``/etc/os-release``: names and unquoted values."""
    rows = re.findall(r"^([A-Z_0-9]+)=(.*)$", text, re.MULTILINE)
    if not rows:
        raise ParseError("unparsable", "not an os-release file", text.partition("\n")[0])
    return {name: re.sub(r"\\(.)", r"\1", value.strip().strip("\"'")) for name, value in rows}


def default_routes(text: str) -> tuple[Route, ...]:
    """IPv4 default routes of ``/proc/net/route``, the smallest metric first."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    if not lines or lines[0][:3] != ["Iface", "Destination", "Gateway"]:
        raise ParseError("unparsable", "not a routing table", text.partition("\n")[0])
    rows = [r for r in lines[1:] if len(r) > 7 and int(r[1], 16) == 0 and int(r[7], 16) == 0 and int(r[3], 16) & 1]
    return tuple(Route(r[0], _ipv4(r[2])) for r in sorted(rows, key=lambda r: int(r[6])))


def _ipv4(hexadecimal: str) -> str:
    # The kernel prints the address as a number of this machine's byte order.
    return str(ipaddress.IPv4Address(struct.pack("=I", int(hexadecimal, 16))))


def default_routes6(text: str) -> tuple[Route, ...]:
    """IPv6 default routes of ``/proc/net/ipv6_route``, without those that only reject."""
    rows = [line.split() for line in text.splitlines() if line.strip()]
    if any(len(r) != 10 for r in rows):
        raise ParseError("unparsable", "not an IPv6 routing table", text.partition("\n")[0])
    kept = [r for r in rows if int(r[0], 16) == 0 and r[1] == "00" and r[9] != "lo"]
    return tuple(Route(r[9], str(ipaddress.IPv6Address(int(r[4], 16)))) for r in kept)


def resolv_conf(text: str) -> tuple[str, ...]:
    """Name servers of ``/etc/resolv.conf`` in order; there may be none."""
    return tuple(re.findall(r"^[^\S\n]*nameserver[^\S\n]+(\S+)", text, re.MULTILINE))


def process_cgroups(text: str) -> dict[str, str]:
    """``/proc/self/cgroup``: path by controller; ``""`` is the unified hierarchy (cgroups(7))."""
    found: dict[str, str] = {}
    for line in filter(None, text.splitlines()):
        parts = line.split(":", 2)
        if len(parts) != 3 or not parts[2].startswith("/"):
            raise ParseError("unparsable", "not a cgroup membership", line)
        found.update(dict.fromkeys(parts[1].split(","), parts[2]))
    return found
