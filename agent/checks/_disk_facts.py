"""Judging what a disk is: kind, size, RAID level."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable

from agent.checks._judge import fact
from agent.facts.disks import DiskFacts, Raid, Sold
from agent.model import Clause, Finding, Promise
from agent.quantity import format_quantity
from agent.reading import Known, Missing, Reading, fmap
from agent.text import msg

# RAID 10 mirrors everything that RAID 1 does; a promise of RAID 5 is kept by RAID 6, which survives one more.
KEPT_BY = {"1": {"1", "10"}, "5": {"5", "6"}}
# What is at least as good as the kind that is promised.
KIND_KEPT_BY = {"nvme": {"nvme"}, "ssd": {"ssd", "nvme"}, "hdd": {"hdd", "ssd", "nvme"}}


def judge_kind(clause: Clause, disk: DiskFacts) -> Finding:
    """``kind``: memory and network never keep a promise of a disk; an overlay hides what is under it."""
    reading: Reading[Any] = disk.kind
    if isinstance(reading, Known) and reading.value == "overlay":
        detail = msg("{path} lies on a container's overlay, which hides the disk under it", path=disk.path)
        grant = msg("name a path on a volume, or let the vendor's root show lsblk of the host")
        reading = Missing("unsupported", detail, reading.evidence, grant)
    return fact(clause, reading, compare=_keeps_kind)


def _keeps_kind(promise: Promise, kind: Any) -> bool:
    wanted = promise.value if isinstance(promise.value, (tuple, list)) else (promise.value,)
    return any(kind in KIND_KEPT_BY.get(str(w), {w}) for w in wanted)


def judge_size(clause: Clause, disk: DiskFacts) -> Finding:
    """``size``: bytes of the device, else of the file system + 7 %; the finding says which."""
    notes = (_sized(disk.size.value),) if isinstance(disk.size, Known) else ()
    return fact(clause, fmap(lambda sold: float(sold.size), disk.size), unit="B", notes=notes)


def _sized(sold: Sold) -> Any:
    size = format_quantity(float(sold.size), "B")
    if sold.of == "device":
        return msg("size of the device {name}: {size}", name=sold.name, size=size)
    return msg("size of the file system + 7 %: {size}", size=size)


def judge_raid(clause: Clause, disk: DiskFacts) -> Finding:
    """``raid``: the level; a degraded array does not keep its promise of redundancy."""
    if isinstance(disk.raid, Known) and disk.raid.value.degraded and clause.promise.value not in ("0", "none"):
        names = ", ".join(disk.raid.value.arrays)
        reason = msg("{names} is degraded: a member is missing or failed", names=names)
        return fact(clause, disk.raid, compare=lambda p, raid: False, shown=_shown, reason=reason)
    return fact(clause, disk.raid, compare=_keeps_raid, shown=_shown)


def _keeps_raid(promise: Promise, raid: Raid) -> bool:
    wanted = promise.value if isinstance(promise.value, (tuple, list)) else (promise.value,)
    return any(raid.level in KEPT_BY.get(str(w), {str(w)}) for w in wanted)


def _shown(raid: Raid) -> str:
    level = "none" if raid.level == "none" else f"RAID {raid.level}"
    return f"{level}, degraded" if raid.degraded else level


FACT_JUDGES: Mapping[str, Callable[[Clause, DiskFacts], Finding]] = {
    "kind": judge_kind,
    "size": judge_size,
    "raid": judge_raid,
}
