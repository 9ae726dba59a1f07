"""What others do beside a measurement: differences of counters, and what they mean for the verdict."""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from agent.bench import neighbours
from agent.bench.neighbours import Counters
from agent.evidence import Store
from agent.host import LiveHost
from agent.model import Attempt, Block, Void
from agent.probes import neighbours_probe
from agent.reading import Known, Missing, Reading
from agent.text import msg

MB = 1_000_000
ATTEMPT = Attempt((Block(1.0, conditions={"tool": "fio"}),), "standard", "2026-11-30T08:00:00Z")


def counters(at_s: float = 0.0, **said: Any) -> Reading[Counters]:
    base = {
        "disks": {"sda": [0, 0], "sda1": [0, 0], "dm-0": [0, 0]},
        "physical": ["sda"],
        "net": {"lo": [0, 0], "eth0": [0, 0]},
        "cpu": [0, 0],
        "agent": [0, 0],
        "uid": 1000,
        "processes": [],
    }
    return Known(Counters({**base, **said, "at_s": at_s}), ("evidence/1",))


def disk(device: Any = "sda", journal: bool = False, **said: Any) -> neighbours.Aside:
    return neighbours.on_disk(neighbours.between(counters(), counters(10.0, **said)), device, journal)


def test_a_quiet_machine_leaves_the_attempt_as_it_is() -> None:
    aside = disk(disks={"sda": [100 * MB, 51 * MB]}, agent=[100 * MB, 50 * MB], cpu=[0, 1000])
    assert (aside.notes, aside.disturbed) == ((), None)
    told = neighbours.told(ATTEMPT, aside)
    assert told.weak is None
    assert told.blocks[0].conditions["foreign"] == {
        "steal_percent": 0.0,
        "disk_bytes_per_s": 0.1 * MB,
        "own_bytes_per_s": 0.0,
    }


def test_load_of_nobody_visible_is_named_and_convicts() -> None:
    aside = disk(disks={"sda": [300 * MB, 0]}, agent=[100 * MB, 0])
    assert aside.disturbed is None
    assert [str(n) for n in aside.notes] == ["meanwhile sda moved 20 MB/s beside ours, of nobody visible from here"]


def test_load_of_another_user_and_of_a_service_is_named() -> None:
    rows = [[7, 1, "backup", 0, True, 200 * MB, 0], [8, 1, "other", 1001, False, 50 * MB, 0]]
    aside = disk(disks={"sda": [350 * MB, 0]}, agent=[100 * MB, 0], processes=rows)
    assert aside.disturbed is None
    assert "backup (7), other (8) moved 25 MB/s on sda" in str(aside.notes[0])


def test_own_work_makes_the_attempt_weak_whatever_it_was() -> None:
    rows = [[9, 1, "train.py", 1000, False, 0, 80 * MB]]
    aside = disk(disks={"sda": [0, 180 * MB]}, agent=[0, 100 * MB], processes=rows)
    assert aside.disturbed is not None
    other = Attempt(ATTEMPT.blocks, "standard", "x", weak=Void("tool-too-weak", msg("dd")))
    told = neighbours.told(other, aside)
    assert told.weak is not None
    assert told.weak.code == "disturbed"
    assert "train.py (9)" in str(told.weak.text)


def test_what_a_process_did_before_does_not_count() -> None:
    rows = [[9, 1, "train.py", 1000, False, 800 * MB, 0]]
    old = counters(processes=rows)
    same = counters(10.0, disks={"sda": [300 * MB, 0]}, agent=[100 * MB, 0], processes=rows)
    assert neighbours.on_disk(neighbours.between(old, same), "sda").disturbed is None
    reused = [[9, 2, "train.py", 1000, False, 200 * MB, 0]]
    again = counters(10.0, disks={"sda": [300 * MB, 0]}, agent=[100 * MB, 0], processes=reused)
    assert neighbours.on_disk(neighbours.between(old, again), "sda").disturbed is not None


def test_own_work_on_another_disk_does_not_disturb() -> None:
    rows = [[9, 1, "train.py", 1000, False, 0, 800 * MB]]
    assert disk(disks={"sda": [0, 101 * MB]}, agent=[0, 100 * MB], processes=rows).disturbed is None
    assert disk(device=None, disks={"sda": [0, 101 * MB]}, agent=[0, 100 * MB], processes=rows).disturbed is not None


def test_journals_of_our_own_small_writes_are_not_strangers() -> None:
    moved: dict[str, Any] = {"disks": {"sda": [0, 400 * MB]}, "agent": [0, 100 * MB]}
    assert disk(**moved).notes
    assert disk(journal=True, **moved).notes == ()


def test_steal_is_named() -> None:
    aside = disk(cpu=[30, 1000])
    assert [str(n) for n in aside.notes] == ["meanwhile 3.0 % of the CPUs' time was stolen"]
    assert aside.foreign["steal_percent"] == 3.0


def test_traffic_beside_the_test_counts_from_a_share_of_it() -> None:
    for others, disturbed in ((12 * MB, False), (40 * MB, True)):
        window = neighbours.between(counters(), counters(10.0, net={"eth0": [100 * MB + others, 5 * MB]}))
        aside = neighbours.on_net(window, "download", 100 * MB)
        assert (aside.disturbed is not None) == disturbed
        assert neighbours.on_net(window, "download", None).disturbed is None


def test_counters_that_are_missing_or_went_back_say_nothing() -> None:
    gone = Missing("denied", msg("no"))
    assert neighbours.between(counters(), gone) is gone
    assert neighbours.on_disk(gone, "sda") == neighbours.Aside()
    back = neighbours.between(counters(disks={"sda": [9, 9]}, net=None), counters(1.0, disks={"sda": [1, 9]}))
    assert isinstance(back, Known)
    assert (back.value.disks, back.value.net, back.value.physical) == ({}, {}, None)


def test_the_probe_sees_disks_interfaces_and_another_process(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    host = LiveHost(Store(tmp_path / "run"))
    folder = tempfile.TemporaryDirectory(prefix="accept-test-", dir="/var/tmp")  # unlike /tmp never in memory
    request.addfinalizer(folder.cleanup)
    target = Path(folder.name) / "written"
    loop = f"dd if=/dev/zero of={target} bs=1M count=8 conv=fsync; sleep 30"
    before = neighbours.look(host, "x.neighbours.before")
    with subprocess.Popen(["sh", "-c", loop], stderr=subprocess.DEVNULL) as other:
        deadline = time.monotonic() + 20
        while not (target.exists() and target.stat().st_size == 8 << 20) and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(0.5)
        window = neighbours.between(before, neighbours.look(host, "x.neighbours.after"))
        other.kill()
    assert isinstance(window, Known), window
    found = window.value
    assert "lo" in found.net
    assert found.agent is not None
    mine = [p for p in found.processes if p.pid == other.pid]
    assert mine, found.processes
    assert mine[0].own
    assert mine[0].moved[1] >= 8 << 20


@pytest.mark.parametrize(
    ("counted", "expected"),
    [
        # Linux before 6.4: the drive itself counts nothing, its paths do.
        ({"nvme0n1": [0, 0], "nvme0n1p1": [0, 0], "nvme0c0n1": [5, 7]}, {"nvme0n1": [5, 7]}),
        ({"nvme0n1": [0, 0], "nvme0c0n1": [5, 7], "nvme0c1n1": [1, 1]}, {"nvme0n1": [6, 8]}),
        ({"nvme0n1": [5, 7], "nvme0n1p1": [5, 7], "nvme0c0n1": [5, 7]}, {"nvme0n1": [5, 7], "nvme0n1p1": [5, 7]}),
        ({"nvme0n1": [3, 4], "nvme1n1": [0, 0]}, {"nvme0n1": [3, 4], "nvme1n1": [0, 0]}),
    ],
)
def test_a_drive_of_several_ports_counts_by_its_paths(
    counted: dict[str, list[int]], expected: dict[str, list[int]]
) -> None:
    found = neighbours_probe.with_paths(counted)
    assert {n: p for n, p in found.items() if "c" not in n} == expected
