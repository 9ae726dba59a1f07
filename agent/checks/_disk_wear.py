"""Judging how worn the devices under a path are, from what they say of themselves (SMART, NVMe log)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from agent.checks._judge import fact, integrity
from agent.facts.disks import DiskFacts, DisksFacts
from agent.model import Clause, Finding
from agent.quantity import format_quantity
from agent.reading import Known, Missing, Reading
from agent.text import Text, msg
from agent.tools.smart import Smart

FIELDS = {"wear": ("percentage_used", "%"), "hours": ("power_on_hours", "h")}


def judge_wear(clause: Clause, disk: DiskFacts, disks: DisksFacts) -> Finding:
    """``wear`` (percent used) and ``hours``: the worst of the devices under the path."""
    field, unit = FIELDS[clause.name]
    return fact(clause, _worst(disk, disks, field), unit=unit, notes=_notes(disk, disks))


def _worst(disk: DiskFacts, disks: DisksFacts, field: str) -> Reading[int]:
    if isinstance(disk.media, Missing):
        return disk.media
    if not disk.media.value:
        return Missing("unsupported", msg("{path} lies on no disk of its own", path=disk.path), disk.media.evidence)
    values: list[int] = []
    evidence: list[str] = []
    for block in disk.media.value:
        said = disks.smart.get(block.name, Missing("not-recorded", msg("SMART was not read")))
        if isinstance(said, Missing):
            return said
        value = getattr(said.value, field)
        if value is None:
            text = msg("{name} does not say this of itself", name=block.name)
            return Missing("unsupported", text, said.evidence)
        values.append(value)
        evidence += said.evidence
    return Known(max(values), tuple(evidence))


def _notes(disk: DiskFacts, disks: DisksFacts) -> tuple[Text, ...]:
    media = disk.media.value if isinstance(disk.media, Known) else ()
    found = [(b.name, disks.smart.get(b.name)) for b in media]
    return tuple(_words(name, said.value) for name, said in found if isinstance(said, Known))


def _words(name: str, said: Smart) -> Text:
    written = format_quantity(float(said.bytes_written), "B") if said.bytes_written is not None else "–"
    return msg(
        "{name}: {model}, {written} written, {errors} media errors, {shutdowns} unsafe shutdowns",
        name=name,
        model=said.model or "–",
        written=written,
        errors=_or_dash(said.media_errors),
        shutdowns=_or_dash(said.unsafe_shutdowns),
    )


def _or_dash(value: Optional[int]) -> str:
    return "–" if value is None else str(value)


def health(disks: DisksFacts) -> Iterator[Finding]:
    """A device under a promised path that reports itself failing, or media errors. Advisory: nobody promised it."""
    for name, said in sorted(disks.smart.items()):
        if isinstance(said, Missing):
            continue
        disk = said.value
        if disk.passed is False:
            reason = msg("{name} reports itself as failing", name=name)
            yield integrity("disk", "fail", "failing", reason, subject=name, evidence=said.evidence)
        elif disk.media_errors:
            reason = msg("{name} reports {n} media errors", name=name, n=disk.media_errors)
            yield integrity("disk", "fail", "media-errors", reason, subject=name, evidence=said.evidence)
        elif disk.passed:
            reason = msg("{name} reports itself as healthy", name=name)
            yield integrity("disk", "pass", "kept", reason, subject=name, evidence=said.evidence)
