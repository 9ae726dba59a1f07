"""The kernel log: what the NVIDIA driver and the kernel said about the GPUs.

Source commands: ``dmesg`` or ``journalctl -k -b`` (:func:`argv`). Any time format and prefix of dmesg,
journalctl, syslog, ``/dev/kmsg`` and pstore.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Optional

from agent.text import msg
from agent.tools import ParseError, _shell
from agent.tools._text import clean, first_line, recognise
from agent.tools.xid import sxid_class, xid_class

KIND = "dmesg"
TIMEOUT_S = 20.0
_SIGN = re.compile(r"NVRM|kern|\[[ \d.+<>]+\]|\d\d:\d\d:\d\d|\d,\d+,\d{4,},")

_ADDRESS = r"[0-9a-fA-F]{2,8}:[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2})?(?:\.[0-7])?"
_XID = re.compile(rf"NVRM: Xid(?: \((?:PCI:)?({_ADDRESS})([^)]*)\))?:\s*(\d{{1,9}}),\s*(.*)$")
_SXID = re.compile(rf"\bSXid(?: \((?:PCI:)?({_ADDRESS})[^)]*\))?:\s*(\d+),\s*(.*)$")
_MARK = re.compile(r"NVRM: Xid\b|\bSXid\b")
_FALLEN = re.compile(r"fallen off the bus", re.IGNORECASE)
_GPU_ADDRESS = re.compile(r"(?:PCI:|^|\s)([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?![:\d])")
_PREFIX = re.compile(
    r"^(?:>\s*|(?:/\S{1,200}:)?(?:\d{1,7}[:-])?)?(?:<\d+>(?:1 )?)?\s{0,40}(?:"
    r"\[[ \d.]+\s*(?:[<+][^\]]*)?\]"  # [ 12.345678] [ 12.3 < 0.1>]
    r"|\[\w{3} \w{3} +\d+ [\d:]+ \d{4}\]"  # dmesg -T
    r"|\[\w{3} *\d+ \d\d:\d\d\]|\[\s*\+\d+\.\d+\]"  # dmesg -e
    r"|\d+,\d+,\d+,[-\w,=]*;"  # /dev/kmsg
    r"|(?:kern|user|daemon|syslog|auth\w*|local\d)\s*:\s*\w+\s*:"  # dmesg --decode
    r"|\d{4}-\d\d-\d\dT[\d:.,]+"  # ISO
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"  # journalctl -o short-full and its like
    r"|\w{3} +\d+ [\d:.]+ \S+ \S+"  # syslog, journalctl
    r"|\[[^\]\s][^\]]{0,40}\d\d:\d\d(?::\d\d \d{4})?(?: < *[\d.]+>)?\]"  # dmesg -T and -e in any language
    r"|[^\[]{0,120}\bkernel(?:\[\d+\])?: "  # journalctl in any language, containers
    r"|\S{1,120} kern: +\w+: +\["  # talosctl
    r"|NVRM:|nvidia"
    r")"
)
# dmesg --color=always, and what journalctl prints into a terminal.
_ANSI = re.compile(r"\x1b\[[\d;]*[mK]")
_OTHER: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("segfault", re.compile(r"\]: segfault at |: segfault at ")),
    ("out_of_memory", re.compile(r"Out of memory:|oom-kill:|Memory cgroup out of memory|invoked oom-killer")),
    ("probe_failed", re.compile(r"NVRM: The NVIDIA probe routine failed|RmInitAdapter failed|rm_init_adapter failed")),
    ("peermem", re.compile(r"nvidia[-_]peermem.{0,300}(?:ERROR|error)")),
    ("pcie_error", re.compile(r"AER: .{0,300}(?:error|Error)|PCIe Bus Error")),
    ("machine_check", re.compile(r"\[Hardware Error\]|mce: .{0,300}Machine check")),
    ("version_mismatch", re.compile(r"NVRM: API mismatch")),
)
_DENIED = re.compile(
    r"read kernel buffer failed|klogctl: (?:Operation not|Permission)|not seeing messages from"
    r"|insufficient permissions|dmesg: .{0,300}(?:not permitted|[Pp]ermission denied|不允许的操作|权限不够)"
)
_EMPTY_JOURNAL = re.compile(r"^-- No entries --|No journal files were found", re.MULTILINE)


@dataclass(frozen=True)
class Xid:
    """One Xid. ``pci`` as printed without ``PCI:`` and ``.0`` (``0000:a1:00``), None in the oldest form.

    ``text`` is everything behind the number; ``pid`` and ``process`` are in it too where the driver knew.
    """

    xid: int
    pci: Optional[str]
    text: str
    class_: str
    line: int
    pid: Optional[int]
    process: Optional[str]


@dataclass(frozen=True)
class Event:
    """Another line that matters: ``fallen_off_bus`` (no Xid said it), ``sxid``, ``segfault`` and so on.

    ``class_`` is one of the Xid classes, None where none applies; ``line`` counts from 1.
    """

    kind: str
    pci: Optional[str]
    text: str
    class_: Optional[str]
    line: int


@dataclass(frozen=True)
class Dmesg:
    """``lines`` 0 means that nothing is known, not that there was no Xid."""

    xids: tuple[Xid, ...]
    events: tuple[Event, ...]
    lines: int


def argv() -> list[str]:
    """Monotonic stamps: they need no clock that may jump."""
    return ["dmesg"]


def journal_argv() -> list[str]:
    """This boot's kernel messages where dmesg is refused; also survives the ring buffer's end."""
    return ["journalctl", "-k", "-b", "--no-pager", "-o", "short-monotonic"]


def parse(text: str) -> Dmesg:
    """Xids and what else matters in a kernel log.

    Raises :class:`ParseError`: ``denied``, ``truncated`` (the last line breaks off inside an Xid),
    ``unparsable`` (no line looks like a kernel log).
    """
    recognise(text, "kernel log", _SIGN, whole=False)
    text = _ANSI.sub("", clean(text))
    lines = [line.rstrip() for line in text.split("\n")]
    filled = [line for line in lines if line.strip()]
    _raise_on_message(text, filled)
    _raise_on_cut(text, lines)
    xids = tuple(_xids(lines))
    events = [*_fallen(lines, xids), *_sxids(lines), *_others(lines)]
    return Dmesg(xids, tuple(sorted(events, key=lambda event: event.line)), len(filled))


def to_json(result: Dmesg) -> dict[str, object]:
    """The fixed shape of ``accept parse dmesg``, and ``events``."""
    return {
        "xids": [{"xid": x.xid, "pci": x.pci, "text": x.text, "class": x.class_} for x in result.xids],
        "lines": result.lines,
        "events": [{"kind": e.kind, "pci": e.pci, "text": e.text, "class": e.class_} for e in result.events],
    }


def _raise_on_message(text: str, filled: list[str]) -> None:
    denied = next((line for line in filled if _DENIED.search(line)), None)
    if denied is not None and len(filled) <= 10:
        raise ParseError("denied", msg("no permission to read the kernel log"), denied)
    if _EMPTY_JOURNAL.search(text) and len(filled) <= 3:
        raise ParseError("empty", msg("the journal holds nothing that this user may see"), filled[0])
    if filled and not any(_PREFIX.match(line) or _MARK.search(line) for line in filled):
        shell = _shell.failure(text, "kernel log")
        if shell is not None:
            raise shell
        wrong = next((line for line in filled if re.search(r"(?:invalid|unrecognized) option", line)), None)
        if wrong is not None:
            raise ParseError("option", "dmesg refused its command line", wrong)
        raise ParseError("unparsable", "no line looks like a kernel log", first_line(text))


def _raise_on_cut(text: str, lines: list[str]) -> None:
    last = lines[-1]
    if last and not text.endswith("\n") and _MARK.search(last) and not (_XID.search(last) or _SXID.search(last)):
        raise ParseError("truncated", "the last line breaks off inside an Xid", last)


def _xids(lines: list[str]) -> Iterator[Xid]:
    for at, line in enumerate(lines, start=1):
        match = _XID.search(line)
        if match is None:
            continue
        number = int(match[3])
        pid = re.search(r"\bpid='?(\d{1,10})\b", match[4])
        process = re.search(r"\bname='?([^,'<]+)", match[4])
        yield Xid(
            number, _pci(match[1]), match[4].strip(), xid_class(number), at,
            int(pid[1]) if pid else None, process[1].strip() if process else None,
        )  # fmt: skip


def _sxids(lines: list[str]) -> Iterator[Event]:
    for at, line in enumerate(lines, start=1):
        match = _SXID.search(line)
        if match is not None:
            yield Event("sxid", _pci(match[1]), f"{match[2]}, {match[3]}".strip(), sxid_class(match[3]), at)


def _fallen(lines: list[str], xids: tuple[Xid, ...]) -> Iterator[Event]:
    """GPUs that are gone without Xid 79: at boot the driver says it in a text over three lines."""
    told = {xid.pci for xid in xids if xid.xid == 79}
    for at, line in enumerate(lines, start=1):
        if not _FALLEN.search(line) or _XID.search(line):
            continue
        pci = next((found for back in range(at, max(0, at - 4), -1) if (found := _address(lines[back - 1]))), None)
        if pci in told or (pci is None and told):
            continue
        told.add(pci)
        yield Event("fallen_off_bus", pci, _message(line), "hardware", at)


def _others(lines: list[str]) -> Iterator[Event]:
    for at, line in enumerate(lines, start=1):
        if _MARK.search(line):
            if not (_XID.search(line) or _SXID.search(line)):
                yield Event("unreadable_xid", _address(line), _message(line), "unknown", at)
            continue
        kind = next((kind for kind, pattern in _OTHER if pattern.search(line)), None)
        if kind is not None:
            yield Event(kind, None, _message(line), None, at)


def _address(line: str) -> Optional[str]:
    match = _GPU_ADDRESS.search(line)
    return match[1].lower() if match else None


def _pci(address: Optional[str]) -> Optional[str]:
    return re.sub(r"\.[0-7]$", "", address).lower() if address else None


def _message(line: str) -> str:
    """The line without its stamp."""
    return re.sub(r"^(?:<\d+>)?\s*(?:\[[^\]]*\]|\d+,\d+,\d+,[^;]*;)\s*", "", line).strip()
