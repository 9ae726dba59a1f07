"""The kernel log: Xids, SXids, GPUs fallen off the bus and what else matters, before the run and during it.

Three answers that must not be mixed up: *denied* or no tool (Missing), *empty* (Missing: it says nothing about Xids),
and *read*, with or without events.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Optional

from agent.facts import Asked
from agent.facts._read import cited, kind_of, remedy
from agent.facts._slot import slot
from agent.host import Host, Ran
from agent.reading import Known, Missing, MissingKind, Reading
from agent.text import msg
from agent.tools import ParseError, dmesg
from agent.tools._text import clean

_DENIED = msg("let this user read the kernel log (root, or kernel.dmesg_restrict=0)")
_SECONDS = re.compile(r"^(?:<\d+>)?\s*\[\s*(\d+\.\d+)\]")
_SHORT = 10  # lines: a refusal is no longer than this


@dataclass(frozen=True)
class LogEvent:
    """One line that matters.

    ``kind``: xid, sxid, fallen_off_bus, probe_failed, version_mismatch, pcie_error, machine_check, segfault,
    out_of_memory, peermem, unreadable_xid. ``xid`` is the number, ``slot`` the GPU where the line names one,
    ``class_`` the trouble's class (:mod:`agent.tools.xid`), ``raw`` the whole line.
    """

    kind: str
    xid: Optional[int]
    slot: Optional[str]
    class_: Optional[str]
    text: str
    raw: str
    process: Optional[str] = None


@dataclass(frozen=True)
class KernelLog:
    """One reading. ``source``: dmesg or journalctl.

    ``since_boot``: whether the first messages of this boot are in it; the kernel's buffer forgets the oldest.
    ``first_s``: the first line's seconds after boot, None where the lines have other stamps.
    ``tail``: the last lines, which a later reading must still hold if nothing was lost between.
    """

    source: str
    lines: int
    events: tuple[LogEvent, ...]
    since_boot: bool
    first_s: Optional[float]
    tail: tuple[str, ...] = field(default=(), repr=False)

    @property
    def gpu_events(self) -> tuple[LogEvent, ...]:
        """Those about GPUs and NVSwitches."""
        kinds = ("xid", "sxid", "fallen_off_bus", "probe_failed", "unreadable_xid")
        return tuple(e for e in self.events if e.kind in kinds)


@dataclass(frozen=True)
class KernelLogFacts:
    """``log`` as it was before the run; ``after`` the loads it holds what came during them, None without loads."""

    log: Reading[KernelLog]
    after: Optional[Reading[KernelLog]] = None


@dataclass(frozen=True)
class New:
    """What came between two readings; ``gap``: whether lines may have been lost between them."""

    events: tuple[LogEvent, ...]
    gap: bool


def collect(host: Host, asked: Asked) -> KernelLogFacts:
    """The log of this boot until now."""
    return KernelLogFacts(read(host, "kernel-log"))


def again(host: Host, before: KernelLogFacts) -> KernelLogFacts:
    """The log once more, after the loads."""
    return replace(before, after=read(host, "kernel-log-after"))


def read(host: Host, probe: str) -> Reading[KernelLog]:
    """``dmesg``, else the journal; the journal too where the kernel's buffer has forgotten the beginning.

    ``probe`` names the evidence: a reading after the loads needs a name of its own.
    """
    buffer = _read(host.run(probe, dmesg.argv(), dmesg.TIMEOUT_S), "dmesg")
    if isinstance(buffer, Known) and buffer.value.since_boot:
        return buffer
    journal = _read(host.run(f"{probe}-journal", dmesg.journal_argv(), dmesg.TIMEOUT_S), "journalctl")
    if isinstance(journal, Missing):
        return buffer
    if isinstance(buffer, Missing) or journal.value.since_boot:
        return Known(journal.value, cited(buffer, journal))
    return buffer


def since(before: Reading[KernelLog], after: Reading[KernelLog]) -> Reading[New]:
    """The events of the second reading that the first does not have."""
    for reading in (after, before):
        if isinstance(reading, Missing):
            return reading
    assert isinstance(before, Known)
    assert isinstance(after, Known)
    evidence = cited(before, after)
    if before.value.source != after.value.source:
        detail = msg("the kernel log was read by two tools, whose lines cannot be compared")
        return Missing("failed", detail, evidence)
    known = Counter(event.raw for event in before.value.events)
    fresh = []
    for event in after.value.events:
        if known[event.raw] > 0:
            known[event.raw] -= 1
        else:
            fresh.append(event)
    gap = not after.value.since_boot and before.value.first_s != after.value.first_s
    return Known(New(tuple(fresh), gap and not _overlap(before.value, after.value)), evidence)


def _overlap(before: KernelLog, after: KernelLog) -> bool:
    """Whether the buffer still begins before the first reading's end."""
    ended = next((s for line in reversed(before.tail) if (s := _seconds(line)) is not None), None)
    return ended is not None and after.first_s is not None and after.first_s <= ended


def _read(ran: Ran, source: str) -> Reading[KernelLog]:
    missing = ran.missing()
    if missing is not None:
        return missing
    text = ran.stdout
    if text.count("\n") <= _SHORT:
        text = f"{ran.stderr}\n{text}" if ran.stderr.strip() else text
    try:
        found = log(text, source)
    except ParseError as error:
        kind: MissingKind = "unsupported" if error.kind == "empty" else kind_of(error)
        grant = _DENIED if kind == "denied" else remedy(error.kind, source)
        return Missing(kind, msg("{tool}: {why}", tool=source, why=error.why), ran.cited, grant)
    if not found.lines:
        detail = msg("{tool} shows no line at all, which says nothing about Xids", tool=source)
        return Missing("unsupported", detail, ran.cited, _DENIED)
    return Known(found, ran.cited)


def log(text: str, source: str) -> KernelLog:
    """One log as parsed by :mod:`agent.tools.dmesg`, which raises :class:`ParseError`."""
    parsed = dmesg.parse(text)
    rows = [row.rstrip() for row in clean(text).split("\n")]
    xids = [
        (x.line, LogEvent("xid", x.xid, slot(x.pci), x.class_, f"Xid {x.xid}: {x.text}", rows[x.line - 1], x.process))
        for x in parsed.xids
    ]
    others = [(e.line, LogEvent(e.kind, None, slot(e.pci), e.class_, e.text, rows[e.line - 1])) for e in parsed.events]
    filled = [row for row in rows if row.strip()]
    first = _seconds(filled[0]) if filled else None
    return KernelLog(
        source=source,
        lines=parsed.lines,
        events=tuple(event for _, event in sorted([*xids, *others], key=lambda pair: pair[0])),
        since_boot=_from_boot(filled[:20], first),
        first_s=first,
        tail=tuple(filled[-5:]),
    )


def _seconds(line: str) -> Optional[float]:
    found = _SECONDS.match(line)
    return float(found[1]) if found else None


def _from_boot(head: Sequence[str], first: Optional[float]) -> bool:
    """The kernel's first message names its version."""
    return any("Linux version " in line for line in head) or first == 0.0


def of_slot(found: KernelLog, where: str) -> KernelLog:
    """The same log with one GPU's events only; an event without a slot is nobody's."""
    return replace(found, events=tuple(e for e in found.events if e.slot == where))
