"""The latency that is promised is the disk's own, not the wait behind a queue of ours; what a plan counts for it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from agent.bench import disk, disk_random
from agent.bench.disk_rig import repetitions
from agent.quantity import parse_quantity
from tests import media
from tests.bench.paths import looked, shorten
from tests.media import MIB

GIB = 1 << 30
WHY_NOT = media.unavailable("fio") or media.no_throttle()


@pytest.mark.root
@pytest.mark.fio
@pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
def test_a_full_queue_of_ours_is_not_the_latency_of_the_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """At 60 MiB/s one request of a hundred waits behind the others; alone it is served at once."""
    shorten(monkeypatch)
    with media.disk(400 * MIB, throttled=60 * MIB) as slow:
        found = looked(tmp_path, slow.path, read_iops=">= 10k", read_p99="<= 8 ms")
    assert found["read_p99"].outcome == found["read_iops"].outcome == "pass"
    assert "one request in flight" in str(found["read_p99"].notes[0])
    (queued,) = [
        re.search(r"p50 .*, p99 (.*)", str(n)) for n in found["read_iops"].notes if "under this load" in str(n)
    ]
    assert queued is not None
    assert _ms(queued[1]) > 12
    depths = {name: _depth(tmp_path, name) for name in ("randread.1", "randread.single.1")}
    assert depths == {"randread.1": (64, 4), "randread.single.1": (1, 1)}


def _ms(text: str) -> float:
    return parse_quantity(text, "time").to("ms").value


def _depth(run: Path, name: str) -> tuple[int, int]:
    """Requests in flight and threads of a job that ran."""
    (meta,) = [m for m in run.glob("evidence/*/meta.json") if json.loads(m.read_text())["probe"].endswith(f".1.{name}")]
    words = dict(re.findall(r"--(iodepth|numjobs)=(\d+)", " ".join(json.loads(meta.read_text())["argv"])))
    return int(words["iodepth"]), int(words.get("numjobs", 1))


@pytest.mark.parametrize("engine", ["io_uring", "libaio", "psync"])
def test_no_engine_writes_more_than_was_announced(engine: str) -> None:
    rig = type("Rig", (), {"engine": engine})()
    queue = disk_random._full(rig)
    (size,) = [w for w in disk_random._written(GIB, queue) if w.startswith("--io_size=")]
    assert int(size.partition("=")[2]) * queue.jobs == GIB


def _seconds(promised: dict[str, float], depth: str = "standard") -> float:
    return disk.step("/data", {n: f"disk[/data].{n}" for n in promised}, promised=promised).cost(depth).seconds  # type: ignore[arg-type]


def test_a_write_is_counted_until_its_bytes_are_through_at_the_promised_rate() -> None:
    slow, fast = _seconds({"write": 0.1e9}), _seconds({"write": 10e9})
    assert slow > 6 * 8
    assert fast == pytest.approx(disk.ENGINE_S + 6 * disk.FIO_S + 32 * GIB / 10e9)
    assert _seconds({"write": 0.0}) == slow


def test_each_promise_of_random_access_has_runs_of_its_own() -> None:
    one, two = _seconds({"read_iops": 1e5}), _seconds({"read_iops": 1e5, "read_p99": 2.0})
    assert two - one == pytest.approx(repetitions("standard") * (disk_random.SECONDS["standard"] + disk.FIO_S))


def test_the_bytes_of_both_kinds_of_random_writes_are_announced() -> None:
    keys = {n: f"disk[/data].{n}" for n in ("write", "write_iops", "write_p99")}
    written = disk.step("/data", keys).cost("standard").written
    assert written == (32 + 2 * 8) * GIB + disk_random.MIXED_CAP
