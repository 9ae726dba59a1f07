"""Wear and hours of disks, from recorded smartctl answers on a simulated machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Optional

import pytest

from agent.checks import disk, integrity
from agent.checks._api import Case
from agent.checks._disk_wear import health, judge_wear
from agent.facts.disks import Block, DiskFacts, DisksFacts, Sold, Space
from agent.model import Clause, Contract, Promise
from agent.reading import Known, Missing, Reading
from agent.text import msg
from agent.tools import smart

FIXTURES = Path(__file__).parents[1] / "fixtures" / "tools"
NOTHING = Missing("unsupported", msg("not asked here"))


def block(name: str) -> Block:
    return Block(name, 10**12, False, "", "", "nvme", (), None)


def facts(readings: dict[str, Reading[smart.Smart]]) -> tuple[DiskFacts, DisksFacts]:
    media = tuple(block(name) for name in readings)
    path = DiskFacts(
        path="/data",
        real=NOTHING,
        mount=NOTHING,
        fstype=Known("ext4"),
        device=NOTHING,
        media=Known(media, ("evidence/0001-disks",)),
        rotational=NOTHING,
        kind=Known("nvme"),
        raid=NOTHING,
        space=Known(Space(10, 5, True)),
        size=Known(Sold(10, "device", "nvme0n1")),
        read_only=Known(False),
    )
    return path, DisksFacts({"/data": path}, NOTHING, NOTHING, NOTHING, readings)


def said(**values: Any) -> Known[smart.Smart]:
    plain: dict[str, Any] = dict.fromkeys(smart.Smart.__dataclass_fields__)
    return Known(smart.Smart(**{**plain, **values}), ("evidence/0002-smart",))


def clause(name: str, limit: float, unit: str) -> Clause:
    promise = Promise("<=", limit, unit, f"<= {limit:g} {unit}")
    return Clause(f"disk[/data].{name}", "disk", name, promise, 1, 1, {"path": "/data"})


@pytest.mark.parametrize(
    ("used", "outcome"), [((0, 3), "pass"), ((0, 5), "pass"), ((0, 6), "fail"), ((120, 1), "fail")]
)
def test_the_most_worn_device_decides(used: tuple[int, int], outcome: str) -> None:
    readings = {f"nvme{i}n1": said(percentage_used=u) for i, u in enumerate(used)}
    found = judge_wear(clause("wear", 5.0, "%"), *facts(dict(readings)))
    assert (found.outcome, found.measured) == (outcome, max(used))
    assert "evidence/0002-smart" in found.evidence


def test_hours_are_hours() -> None:
    found = judge_wear(clause("hours", 1000.0, "h"), *facts({"nvme0n1": said(power_on_hours=1001)}))
    assert (found.outcome, found.measured, found.unit) == ("fail", 1001, "h")


@pytest.mark.parametrize(
    "reading",
    [
        Missing("denied", msg("no permission"), ("evidence/0003",), msg("root")),
        said(percentage_used=None),
    ],
)
def test_what_a_device_does_not_say_is_no_pass(reading: Reading[smart.Smart]) -> None:
    found = judge_wear(clause("wear", 5.0, "%"), *facts({"nvme0n1": said(percentage_used=0), "nvme1n1": reading}))
    assert found.outcome == "inconclusive"
    assert found.measured is None


def test_no_device_is_no_pass() -> None:
    assert judge_wear(clause("wear", 5.0, "%"), *facts({})).outcome == "inconclusive"


@pytest.mark.parametrize(
    ("values", "code"),
    [({"passed": False}, "failing"), ({"passed": True, "media_errors": 2}, "media-errors"), ({"passed": True}, "kept")],
)
def test_health_is_reported_without_being_asked(values: dict[str, Any], code: str) -> None:
    _, disks = facts({"nvme0n1": said(**values)})
    found = list(health(disks))
    assert [(f.id, f.reason_code, f.severity) for f in found] == [("integrity.disk@nvme0n1", code, "advisory")]


def test_a_silent_device_has_no_health() -> None:
    _, disks = facts({"nvme0n1": said(passed=None)})
    assert list(health(disks)) == []


def recorded() -> list[Path]:
    """Those that are a disk's report, not a failure text."""
    found = sorted(FIXTURES.glob("smart--*.txt"))
    return [p for p in found if "error" not in json.loads(p.with_suffix(".json").read_text())]


@pytest.mark.parametrize("path", recorded(), ids=lambda p: p.stem)
def test_recorded_disks_are_judged_by_what_they_say(path: Path) -> None:
    expected = json.loads(path.with_suffix(".json").read_text())
    reading = Known(smart.parse(path.read_text()), ("evidence/0004",))
    found = judge_wear(clause("hours", 1e9, "h"), *facts({"sda": reading}))
    hours: Optional[int] = expected["power_on_hours"]
    assert found.outcome == ("inconclusive" if hours is None else "pass")
    assert found.measured == hours


def test_the_families_know_the_clauses() -> None:
    _, disks = facts({"nvme0n1": said(percentage_used=1)})
    contract = Contract((clause("wear", 5.0, "%"),), b"", "")
    found = list(disk.judge(contract.clauses, Case(contract, {"disks": disks})))
    assert [f.outcome for f in found] == ["pass"]
    assert integrity.FACTS
