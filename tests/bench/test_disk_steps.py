"""A disk that drops to a third after ten seconds, for real: named as a step with its time and both levels."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Optional

import pytest

from agent.bench import disk_rig, disk_sustained
from agent.bench.disk_rig import Ground, Rig
from agent.bench.step import Look
from agent.checks import disk
from agent.evidence import Store
from agent.host import Ran, ReplayHost, Scratch
from tests import media
from tests.bench.driven import clause, judged
from tests.bench.paths import ALL_DEPTHS, Host
from tests.hooked import Go
from tests.media import MIB, Disk

WHY_NOT = media.unavailable("fio") or media.no_throttle()
pytestmark = [
    pytest.mark.root,
    pytest.mark.fio,
    pytest.mark.slow,
    pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)),
]
FAST, SLOW = 24 * MIB, 8 * MIB
# Two levels of ten seconds are the least that show a step.
DROP_S, SECONDS = 10, 21


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in (
        (disk_sustained, "SECONDS", SECONDS),
        (disk_rig, "FILE_BYTES", 560 * MIB),
    ):
        monkeypatch.setattr(module, name, dict.fromkeys(ALL_DEPTHS, value))


@pytest.fixture(scope="module")
def throttled() -> Iterator[Disk]:
    with media.disk(1200 * MIB, throttled=FAST) as made:
        yield made


class Dropping(Host):
    """The disk drops ten seconds into the load, and is as fast as before for the next one."""

    def __init__(self, store: Store, made: Disk, load: str) -> None:
        super().__init__(store)
        self.made, self.load = made, load
        self.timer: Optional[threading.Timer] = None

    def around(self, probe: str, argv: Sequence[str], go: Go) -> Ran:
        if probe.endswith(self.load):
            self.restore()
            self.timer = threading.Timer(DROP_S, self.made.throttle, [SLOW])
            self.timer.start()
        return go(argv)

    def restore(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.made.throttle(FAST)


def test_a_drop_to_a_third_is_named_with_time_and_levels(throttled: Disk, tmp_path: Path) -> None:
    asked = [clause(disk, "sustained", ">= 60 %", path=str(throttled.path))]
    host = Dropping(Store(tmp_path), throttled, ".sustained")
    try:
        found = judged(disk, asked, host, facts=True)[asked[0].key]
    finally:
        host.restore()
    assert (found.outcome, found.reason_code) == ("fail", "below-limit")
    assert found.measured == pytest.approx(33, abs=6)
    said = [str(n) for n in found.notes if "step at" in str(n)]
    named = re.fullmatch(r"step at (\d+) s: from ([\d.]+) MB/s to ([\d.]+) MB/s", said[0])
    assert named is not None, said
    assert int(named[1]) == pytest.approx(DROP_S, abs=2)
    assert float(named[2]) == pytest.approx(FAST / 1e6, rel=0.15)
    assert float(named[3]) == pytest.approx(SLOW / 1e6, rel=0.15)
    assert judged(disk, asked, ReplayHost(host.store), facts=True)[found.id] == found


def test_a_steady_disk_has_no_step(throttled: Disk, tmp_path: Path) -> None:
    asked = [clause(disk, "sustained", ">= 60 %", path=str(throttled.path))]
    found = judged(disk, asked, Host(Store(tmp_path)), facts=True)[asked[0].key]
    assert found.outcome == "pass", found
    assert not [n for n in found.notes if "step at" in str(n) or "falls" in str(n)]


def test_a_volume_over_the_network_may_have_credits_left(tmp_path: Path) -> None:
    local = Rig(Host(Store(tmp_path)), Look(), "x", Scratch("/data", 0, "evidence/1"), "libaio", 0)
    assert disk_sustained.burst_credits(local, 120) == ()
    (note,) = disk_sustained.burst_credits(replace(local, ground=Ground(remote=True)), 120)
    assert "burst credits" in str(note)
    assert "120 s" in str(note)
