"""The ``disk`` clauses: one entry a path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional

from agent.bench import disk as bench
from agent.bench import unable
from agent.bench.disk_rig import Ground
from agent.bench.step import Step
from agent.checks._api import Case
from agent.checks._disk_facts import FACT_JUDGES
from agent.checks._disk_wear import FIELDS, judge_wear
from agent.checks._judge import rate as judge_rate
from agent.checks._judge import unreadable, unsupported
from agent.facts.disks import MEMORY_FILESYSTEMS, DiskFacts
from agent.facts.programs import absent
from agent.grammar import Section, duration, one_of, per_second, percent, raid, rate, size, text
from agent.model import Clause, Finding
from agent.quantity import convert
from agent.reading import Known, Missing
from agent.text import msg

GRAMMAR = Section(
    clauses={
        "kind": one_of(
            "nvme",
            "ssd",
            "hdd",
            aliases={"nvme ssd": "nvme", "sata ssd": "ssd", "固态": "ssd", "机械": "hdd"},
            order="one_of",
        ),
        "size": size(such="2 TB"),
        "read": rate(),
        "write": rate(),
        "read_iops": per_second(),
        "write_iops": per_second(),
        "read_p99": duration(),
        "write_p99": duration(),
        "raid": raid(),
        "wear": percent(),
        "hours": duration(unit="h", such="1000 h"),
        "sustained": percent("at_least"),
        "checkpoint": rate(),
        "small_files": per_second(),
    },
    settings={"path": text(msg("a path such as {example}", example="/data"))},
    many="path",
)

BYTE_RATES = frozenset({"read", "write", "checkpoint"})
FACTS = ("disks", "programs")
_SMART = msg("root, or a script for the vendor's root: smartctl reads wear and hours from the device itself")
NEEDS_ROOT = {"wear": _SMART, "hours": _SMART}
_HOST_DISK = msg("lsblk of the host: a container or guest sees what it was given, not the disk under it")
HIDDEN = {
    "container": {"raid": _HOST_DISK, "kind": _HOST_DISK},
    "vm": {"raid": _HOST_DISK, "kind": _HOST_DISK, "wear": _HOST_DISK, "hours": _HOST_DISK},
}


def steps(clauses: Sequence[Clause], case: Case) -> Iterator[Step]:
    """One step a path, for the rates that are promised there."""
    paths = dict.fromkeys(str(c.settings["path"]) for c in clauses)
    for path in paths:
        mine = [c for c in clauses if c.settings["path"] == path and c.name in bench.MEASURED]
        keys = {c.name: c.key for c in mine}
        if keys and _in_memory(case, path) is None:
            space = _facts(case, path).space
            shut = isinstance(space, Missing) and space.kind in ("not-there", "denied")
            without = None if shut else absent(case.facts, "fio")
            lacking = [n for n in keys if n in _needs_fio(case)] if without else []
            if without and lacking:
                yield unable.step(f"disk[{path}].fio", [keys.pop(n) for n in lacking], "disk", without)
            if keys:
                promised = {c.name: _promised(c) for c in mine}
                yield bench.step(path, keys, _ground(_facts(case, path)), shut, promised)


def _needs_fio(case: Case) -> frozenset[str]:
    """What dd cannot stand in for: it keeps one request in flight, and prints no second by second."""
    alone = frozenset({"read_iops", "write_iops", "read_p99", "write_p99", "sustained"})
    return alone if absent(case.facts, "dd") is None else alone | {"read", "write"}


def _promised(clause: Clause) -> float:
    """In B/s, /s, % or ms; 0 where no number is promised."""
    value, unit = clause.promise.value, clause.promise.unit
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0.0
    return convert(float(value), unit, "B/s") if clause.name in BYTE_RATES else float(value)


def _ground(facts: DiskFacts) -> Ground:
    """One whole device where there is only one: its other partitions disturb as well."""
    media = facts.media.value if isinstance(facts.media, Known) else ()
    device = facts.device.value if isinstance(facts.device, Known) else None
    return Ground(
        device=media[0].name if len(media) == 1 else device,
        fstype=facts.fstype.value if isinstance(facts.fstype, Known) else "",
        remote=isinstance(facts.kind, Known) and facts.kind.value == "network",
    )


def judge(clauses: Sequence[Clause], case: Case) -> Iterator[Finding]:
    """Facts of the device under each path, and its measured rates."""
    for clause in clauses:
        path = str(clause.settings["path"])
        if clause.name in bench.MEASURED:
            memory = _in_memory(case, path)
            yield unreadable(clause, memory) if memory else judge_rate(clause, case)
        elif clause.name in FACT_JUDGES:
            yield FACT_JUDGES[clause.name](clause, _facts(case, path))
        elif clause.name in FIELDS:
            yield judge_wear(clause, _facts(case, path), case.facts["disks"])
        else:
            yield unsupported(clause)


def _facts(case: Case, path: str) -> DiskFacts:
    found: DiskFacts = case.facts["disks"].paths[path]
    return found


def _in_memory(case: Case, path: str) -> Optional[Missing]:
    """What lies in memory has rates, but they are no disk's: a tmpfs, an overlay or a loop device on one, zram."""
    facts = _facts(case, path)
    if not isinstance(facts.kind, Known) or facts.kind.value != "tmpfs":
        return None
    fstype = facts.fstype.value if isinstance(facts.fstype, Known) else "?"
    where = fstype if fstype in MEMORY_FILESYSTEMS else msg("{fstype} on memory", fstype=fstype)
    reason = msg("{path} lies in memory ({fstype}): there is no disk to measure", path=path, fstype=where)
    return Missing("void", reason, facts.kind.evidence)
