"""What happened to the machine between runs: parts exchanged, reboots, counters that grew, faults that came back. Pure.

Every event names the run in which it was first seen; that it happened is exact, so no statistics is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Optional

from agent.inventory import KERNEL_LOG
from agent.text import Text, msg
from agent.tools.xid import MEANING, xid_class
from agent.trial.presence import Span
from agent.trial.runs import TrialRun

Kind = Literal["exchanged", "gone", "reboot", "growth", "cleared", "came-back", "repaired", "clock"]
COUNTERS: Mapping[str, Text] = {
    "ecc_corrected_aggregate": msg("corrected ECC errors"),
    "ecc_uncorrected_aggregate": msg("uncorrected ECC errors"),
    "remapped_correctable": msg("memory rows remapped for correctable errors"),
    "remapped_uncorrectable": msg("memory rows remapped for uncorrectable errors"),
    "remapped_failure": msg("failed row remappings"),
    "retired_pages": msg("retired memory pages"),
    "pcie_replay": msg("PCIe replays"),
    "aer_nonfatal": msg("non-fatal PCIe errors"),
    "aer_fatal": msg("fatal PCIe errors"),
    "nvlink_replay": msg("NVLink replays"),
    "nvlink_recovery": msg("NVLink recoveries"),
    "nvlink_crc_flit": msg("NVLink CRC errors (flits)"),
    "nvlink_crc_data": msg("NVLink CRC errors (data)"),
    "nvlink_ecc": msg("NVLink ECC errors"),
    "media_errors": msg("media errors of the disk"),
    "unsafe_shutdowns": msg("unsafe shutdowns of the disk"),
    "percentage_used": msg("wear of the disk in %"),
    "sxid": msg("NVSwitch errors (SXid) in the kernel log"),
    "fallen_off_bus": msg("messages that the GPU has fallen off the bus"),
    "probe_failed": msg("messages that the driver cannot start the GPU"),
}
# Begin anew with the driver or the machine; the others are kept by the part itself and never fall.
VOLATILE = ("xid ", "nvlink_", "pcie_", "aer_", "sxid", "fallen_off_bus", "probe_failed", "unreadable_xid")
LOGGED = ("xid ", "sxid", "fallen_off_bus", "probe_failed")  # not there: none, where the log was read
NO_FAULT = ("application", "side-effect", "info")  # classes of Xids: a program's own, or what follows another one


@dataclass(frozen=True)
class Event:
    """``run`` is the number of the run, from 1; ``subject`` a part (``gpu 0000:1b:00.0``), counter owner or clause."""

    kind: Kind
    run: int
    subject: str
    said: Text
    name: str = ""


def exchanged(runs: Sequence[TrialRun]) -> Iterator[Event]:
    """A part whose own name is another one than when it was last seen, and cards that are no longer there."""
    last: dict[str, str] = {}
    missed: set[str] = set()
    for number, run in enumerate(runs, 1):
        for part, name in run.parts.items():
            before = last.get(part)
            missed.discard(part)
            if before is not None and before != name:
                yield Event("exchanged", number, part, _other(part, before, name))
            last[part] = name
        for part in [p for p in last if p.startswith("gpu ") and p not in run.parts and p not in missed]:
            missed.add(part)
            yield Event("gone", number, part, msg("{part} does not answer or is gone", part=part))


def _other(part: str, before: str, after: str) -> Text:
    if part == "identity":
        return msg("another machine answers behind the same name")
    first, second = set(before.split(", ")), set(after.split(", "))
    if part in ("disks", "network cards"):
        gone, new = ", ".join(sorted(first - second)) or "–", ", ".join(sorted(second - first)) or "–"
        return msg("{part}: gone {gone}, new {new}", part=part, gone=gone, new=new)
    return msg("{part} was exchanged: {before} → {after}", part=part, before=before, after=after)


def reboots(runs: Sequence[TrialRun]) -> Iterator[Event]:
    """The kernel's boot id is another one, on the same machine."""
    last: Optional[TrialRun] = None
    for number, run in enumerate(runs, 1):
        if run.boot_id is None:
            continue
        same = last is not None and last.parts.get("identity") == run.parts.get("identity")
        if last is not None and same and last.boot_id != run.boot_id:
            when = f"{last.at:%Y-%m-%d %H:%M} – {run.at:%Y-%m-%d %H:%M} UTC"
            yield Event("reboot", number, "machine", msg("the machine was started again ({when})", when=when))
        last = run


def clock_steps(runs: Sequence[TrialRun], known: Sequence[Span] = ()) -> Iterator[Event]:
    """The machine's clock was set, as the boot's age shows; without that, a run earlier than the one before it."""
    steps = [step for span in known for step in span.steps]
    for step in steps:
        number = next((n for n, run in enumerate(runs, 1) if run.at >= step.at), len(runs))
        when = f"{step.at:%Y-%m-%d %H:%M} UTC"
        if step.by_s > 0:
            said = msg("the clock was set forward by {time} ({when})", time=_lasted(step.by_s), when=when)
        else:
            said = msg("the clock was set back by {time} ({when})", time=_lasted(-step.by_s), when=when)
        yield Event("clock", number, "clock", said)
    for number, (before, run) in enumerate(zip(runs, runs[1:]) if not steps else (), 2):
        if run.at < before.at:
            back = _lasted((before.at - run.at).total_seconds())
            yield Event("clock", number, "clock", msg("the clock was set back by at least {time}", time=back))


def _lasted(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@dataclass(frozen=True)
class _Count:
    """A counter as it was last seen: of which part, in which boot."""

    value: int
    part: str
    boot: Optional[str]


def growth(runs: Sequence[TrialRun]) -> Iterator[Event]:
    """Counters of errors that are higher than when they were last seen, or that were set back.

    A card that was exchanged starts anew; what the driver counts starts anew with every boot.
    """
    last: dict[tuple[str, str], _Count] = {}
    log_read = False
    for number, run in enumerate(runs, 1):
        for owner, counters in run.counters.items():
            part = run.parts.get(f"gpu {owner}", "")
            for name, count in counters.items():
                if not _counts(name):
                    continue
                before = last.get((owner, name))
                if before is None and log_read and name.startswith(LOGGED):
                    before = _Count(0, part, run.boot_id)
                if before is not None:
                    yield from _change(number, owner, name, before, _Count(count, part, run.boot_id))
                last[(owner, name)] = _Count(count, part, run.boot_id)
        log_read = log_read or KERNEL_LOG in run.counters


def _counts(name: str) -> bool:
    if name.startswith("xid "):
        number = name[4:]
        return number.isdigit() and xid_class(int(number)) not in NO_FAULT
    return name in COUNTERS


def _change(number: int, owner: str, name: str, before: _Count, now: _Count) -> Iterator[Event]:
    if before.part != now.part and not name.startswith(LOGGED):
        return
    volatile = name.startswith(VOLATILE)
    start = 0 if volatile and before.boot != now.boot else before.value
    if now.value > start:
        said = msg("{counter} rose from {before} to {after}", counter=counter(name), before=start, after=now.value)
        yield Event("growth", number, owner, said, name)
    elif now.value < start and not volatile:
        said = msg("{counter} fell from {before} to {after}: it was set back", counter=counter(name), before=start,
                   after=now.value)  # fmt: skip
        yield Event("cleared", number, owner, said, name)


def counter(name: str) -> Text:
    """The counter's name for people."""
    if not name.startswith("xid "):
        return COUNTERS.get(name) or msg("{name}", name=name)
    meaning = MEANING.get(int(name[4:]))
    if meaning is None:
        return msg("Xid {n} in the kernel log", n=name[4:])
    return msg("Xid {n} ({meaning}) in the kernel log", n=name[4:], meaning=meaning)


def recurrence(runs: Sequence[TrialRun]) -> Iterator[Event]:
    """A promise that was broken, then kept, then broken again; and how long until a run saw it kept."""
    for key in dict.fromkeys(k for run in runs for k in run.outcomes):
        since: Optional[int] = None
        repaired: Optional[int] = None
        for number, run in enumerate(runs, 1):
            outcome = run.outcomes[key].outcome if key in run.outcomes else None
            if outcome == "fail":
                if repaired is not None:
                    said = msg("{id} is broken again; in run {n} it was kept", id=key, n=repaired)
                    yield Event("came-back", number, key, said)
                since, repaired = since or number, None
            elif outcome == "pass" and since is not None:
                hours = f"{(run.at - runs[since - 1].at).total_seconds() / 3600:.1f}"
                said = msg("{id} is kept again, {hours} h after run {n} saw it broken", id=key, hours=hours, n=since)
                yield Event("repaired", number, key, said)
                since, repaired = None, number


def all_events(runs: Sequence[TrialRun], known: Sequence[Span] = ()) -> tuple[Event, ...]:
    """Everything, in the order of the runs."""
    found = [e for source in (exchanged, reboots, growth, recurrence) for e in source(runs)]
    found += clock_steps(runs, known)
    return tuple(sorted(found, key=lambda e: e.run))
