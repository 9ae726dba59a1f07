"""Judging what a disk is: kind, size, RAID level."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable

from agent.checks._judge import fact, unreadable
from agent.facts.disks import DiskFacts, Raid, Sold
from agent.model import Clause, Finding, Promise
from agent.quantity import convert, format_quantity
from agent.reading import Known, Missing, Reading, fmap
from agent.text import msg

# RAID 10 mirrors everything that RAID 1 does; a promise of RAID 5 is kept by RAID 6, which survives one more.
KEPT_BY = {"1": {"1", "10"}, "5": {"5", "6"}}
# What is at least as good as the kind that is promised.
KIND_KEPT_BY = {"nvme": {"nvme"}, "ssd": {"ssd", "nvme"}, "hdd": {"hdd", "ssd", "nvme"}}


def judge_kind(clause: Clause, disk: DiskFacts) -> Finding:
    """``kind``: memory and network never keep a promise of a disk; an overlay hides what is under it."""
    reading: Reading[Any] = disk.kind
    if _is(reading, "overlay"):
        detail = msg("{path} lies on a container's overlay, which hides the disk under it", path=disk.path)
        grant = msg("name a path on a volume, or let the vendor's root show lsblk of the host")
        reading = Missing("unsupported", detail, reading.evidence, grant)
    return fact(clause, reading, compare=_keeps_kind)


def _is(kind: Reading[Any], what: str) -> bool:
    return isinstance(kind, Known) and bool(kind.value == what)


def _keeps_kind(promise: Promise, kind: Any) -> bool:
    return any(kind in KIND_KEPT_BY.get(w, {w}) for w in _wanted(promise))


def judge_size(clause: Clause, disk: DiskFacts) -> Finding:
    """``size``: bytes of the device, else of the file system + 7 %; the finding says which.

    An overlay shows the size of the disk that all containers of the host share: only what is free of it is there.
    """
    notes = (_sized(disk.size.value),) if isinstance(disk.size, Known) else ()
    if _is(disk.kind, "overlay") and isinstance(disk.size, Known) and isinstance(disk.space, Known):
        notes = (*notes, msg("an overlay's size is that of a disk which others may share"))
        free = disk.space.value.free
        if free < convert(clause.promise.value, clause.promise.unit, "B") <= disk.size.value.size:
            sizes = {
                "size": format_quantity(float(disk.size.value.size), "B"),
                "free": format_quantity(float(free), "B"),
            }
            detail = msg(
                "{path} lies on an overlay: of {size} that others may share {free} are free", path=disk.path, **sizes
            )
            missing = Missing("unsupported", detail, disk.size.evidence, msg("name a path on a volume of your own"))
            return unreadable(clause, missing, notes=notes)
    return fact(clause, fmap(lambda sold: float(sold.size), disk.size), unit="B", notes=notes)


def _sized(sold: Sold) -> Any:
    size = format_quantity(float(sold.size), "B")
    if sold.of == "device":
        return msg("size of the device {name}: {size}", name=sold.name, size=size)
    return msg("size of the file system + 7 %: {size}", size=size)


def judge_raid(clause: Clause, disk: DiskFacts) -> Finding:
    """``raid``: the level; an array that the loss of one disk may end does not keep its promise of redundancy."""
    if isinstance(disk.raid, Known) and not _wanted(clause.promise) & {"0", "none"}:
        raid: Raid = disk.raid.value
        names = ", ".join(raid.arrays)
        reason = None
        if raid.degraded:
            reason = msg("{names} is degraded: a member is missing or failed", names=names)
        elif raid.one_disk:
            one = raid.one_disk
            reason = msg("all members of {names} lie on one disk ({disk}): with it all is lost", names=names, disk=one)
        if reason is not None:
            return fact(clause, disk.raid, compare=lambda p, raid: False, shown=_shown, reason=reason)
    return fact(clause, disk.raid, compare=_keeps_raid, shown=_shown)


def _wanted(promise: Promise) -> set[str]:
    return {str(w) for w in (promise.value if isinstance(promise.value, (tuple, list)) else (promise.value,))}


def _keeps_raid(promise: Promise, raid: Raid) -> bool:
    return any(raid.level in KEPT_BY.get(w, {w}) for w in _wanted(promise))


def _shown(raid: Raid) -> str:
    level = "none" if raid.level == "none" else f"RAID {raid.level}"
    if raid.degraded:
        return f"{level}, degraded"
    return f"{level} on {raid.one_disk}" if raid.one_disk else level


FACT_JUDGES: Mapping[str, Callable[[Clause, DiskFacts], Finding]] = {
    "kind": judge_kind,
    "size": judge_size,
    "raid": judge_raid,
}
