"""mdstat: members, work in progress, cuts."""

from __future__ import annotations

import pytest

from agent.tools import ParseError, mdstat
from tests.tools.fuzz import FIXTURES


def test_members_and_recovery() -> None:
    (array,) = mdstat.parse((FIXTURES / "mdstat--degraded_recovering.txt").read_text()).arrays
    assert (array.slots, array.working, array.degraded) == (2, 1, True)
    assert (array.action, array.progress_percent) == ("recovery", 26.4)
    assert [(m.name, m.number, m.flags) for m in array.members] == [
        ("nvme3n1p1", 3, "F"),
        ("nvme2n1p1", 2, ""),
        ("nvme1n1p1", 0, ""),
    ]


def test_waiting_work_has_no_progress() -> None:
    array = mdstat.parse((FIXTURES / "mdstat--mixed.txt").read_text()).arrays[1]
    assert (array.state, array.action, array.progress_percent) == ("active (auto-read-only)", "resync", None)


@pytest.mark.parametrize("keep", range(1, 9))
def test_every_cut_at_a_line_is_refused(keep: int) -> None:
    lines = (FIXTURES / "mdstat--mixed.txt").read_text().splitlines(keepends=True)
    with pytest.raises(ParseError) as caught:
        mdstat.parse("".join(lines[:keep]))
    assert caught.value.kind == "truncated"


def test_a_remark_right_behind_the_state() -> None:
    text = (
        "Personalities : [raid1]\nmd0 : active(auto-read-only) raid1 sdb1[1] sda1[0]\n      2000 blocks [2/2] [UU]\n\n"
    )
    (array,) = mdstat.parse(text + "unused devices: <none>\n").arrays
    assert (array.state, array.level, array.devices) == ("active (auto-read-only)", "raid1", ("sdb1", "sda1"))
