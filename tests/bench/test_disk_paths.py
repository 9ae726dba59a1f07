"""Paths of every kind, for real: the right finding and reason each, nothing left behind, nothing else touched."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.bench import disk_rig
from agent.bench.disk import step as disk_step
from agent.bench.disk_rig import Ground
from agent.bench.step import Look
from agent.checks import disk
from agent.evidence import Store
from agent.host import Ran, Scratch
from agent.model import Taken
from agent.probes import files_probe
from tests import media
from tests.bench.driven import clause, judged
from tests.bench.paths import ALL_DEPTHS, Host, looked, shorten
from tests.hooked import Go
from tests.media import MIB, Disk

WHY_NOT = media.unavailable("fio") or media.no_throttle()
pytestmark = [
    pytest.mark.root,
    pytest.mark.fio,
    pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)),
]
RATE = 60 * MIB


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten(monkeypatch)


@pytest.fixture(scope="module")
def slow() -> Iterator[Disk]:
    """60 MiB/s both ways, with a neighbour's files on it."""
    with media.disk(400 * MIB, throttled=RATE) as made:
        for number in range(5):
            (made.path / "theirs" / f"{number}").mkdir(parents=True)
            (made.path / "theirs" / f"{number}" / "data.dat").write_bytes(bytes(range(256)) * 40)
        yield made


def test_a_disk_is_judged_on_both_sides_of_its_limit(slow: Disk, tmp_path: Path) -> None:
    found = looked(tmp_path, slow.path, read=">= 50 MB/s", write=">= 100 MB/s")
    assert found["read"].outcome == "pass"
    assert found["read"].measured == pytest.approx(RATE / 1e6, rel=0.1)
    assert (found["write"].outcome, found["write"].reason_code) == ("fail", "below-limit")
    assert found["write"].measured == pytest.approx(RATE / 1e6, rel=0.1)


def test_random_writes_come_with_a_mix_of_reads_and_writes(slow: Disk, tmp_path: Path) -> None:
    found = looked(tmp_path, slow.path, write_iops=">= 1000 /s", write_p99="<= 10 s")
    assert {f.outcome for f in found.values()} == {"pass"}
    notes = [str(n) for n in found["write_iops"].notes if "30 % writes" in str(n)]
    said = re.search(r"(\d+) reads/s \(p50 .*, p99 .*\), (\d+) writes/s", notes[0])
    assert said is not None, notes
    assert int(said[1]) / int(said[2]) == pytest.approx(7 / 3, rel=0.15)


def test_memory_is_no_disk(tmp_path: Path) -> None:
    for fstype in ("tmpfs", "ramfs"):
        with media.mounted(fstype) as path:
            found = looked(tmp_path / fstype, path, read=">= 1 MB/s", small_files=">= 1 /s", kind="nvme")
        for name in ("read", "small_files"):
            assert (found[name].outcome, found[name].reason_code) == ("inconclusive", "void")
            assert "memory" in str(found[name].reason)
        assert (found["kind"].outcome, found["kind"].measured) == ("fail", "tmpfs")


@pytest.mark.parametrize("fstype", ["tmpfs", "ramfs"])
def test_memory_under_an_overlay_is_no_disk_either(fstype: str, tmp_path: Path) -> None:
    with media.mounted(fstype) as memory, media.overlay(memory) as path:
        found = looked(tmp_path, path, read=">= 1 MB/s", write=">= 1 MB/s", small_files=">= 1 /s")
    for finding in found.values():
        assert (finding.outcome, finding.measured) == ("inconclusive", None), finding


def test_a_loop_device_on_memory_is_no_disk_either(tmp_path: Path) -> None:
    with media.mounted("tmpfs", "size=40m") as memory, media.disk(32 * MIB, where=memory) as made:
        found = looked(tmp_path, made.path, read=">= 1 MB/s", kind="ssd")
    assert found["read"].reason_code == "void"
    assert (found["kind"].outcome, found["kind"].measured) == ("fail", "tmpfs")


def test_an_overlay_on_a_disk_is_measured_and_named(slow: Disk, tmp_path: Path) -> None:
    layers = slow.path / "layers"
    layers.mkdir()
    with media.overlay(layers) as path:
        found = looked(tmp_path, path, write=">= 10 MB/s", kind="nvme")
    assert found["write"].outcome == "pass"
    assert (found["kind"].outcome, found["kind"].reason_code) == ("inconclusive", "unsupported")
    assert "overlay" in str(found["kind"].reason)
    assert found["kind"].grant is not None


def test_a_read_only_disk(tmp_path: Path) -> None:
    with media.disk(16 * MIB, options="ro") as made:
        found = looked(tmp_path, made.path, read=">= 1 MB/s")["read"]
    assert (found.outcome, found.reason_code) == ("inconclusive", "denied")
    assert "read-only" in str(found.reason)
    assert "writable" in str(found.grant)


def test_a_full_disk_and_one_with_100_mb(tmp_path: Path) -> None:
    with media.disk(160 * MIB) as made:
        filler = made.path / "filler"
        _fill(filler, _free(made.path) - 100_000_000)
        little = looked(tmp_path / "little", made.path, read=">= 1 MB/s", checkpoint=">= 1 MB/s")
        _fill(filler, _free(made.path))
        none = looked(tmp_path / "none", made.path, write=">= 1 MB/s")["write"]
    for found in little.values():
        assert (found.outcome, found.reason_code) == ("inconclusive", "failed")
        assert "too little" in str(found.reason)
        assert "free at least 128 MiB" in str(found.grant)
    assert (none.outcome, none.measured) == ("inconclusive", None)
    assert "only 0 B are free" in str(none.reason)


class Filling(Host):
    """A neighbour takes all the space while the file is written."""

    filler: Path

    def around(self, probe: str, argv: Sequence[str], go: Go) -> Ran:
        if probe.endswith(".write.1"):
            _fill(self.filler, _free(self.filler.parent))
        return go(argv)


def test_a_disk_that_fills_up_meanwhile(tmp_path: Path) -> None:
    with media.disk(200 * MIB) as made:
        host = Filling(Store(tmp_path))
        host.filler = made.path / "filler"
        asked = [clause(disk, "write", ">= 1 MB/s", path=str(made.path))]
        found = judged(disk, asked, host, facts=True)[asked[0].key]
        assert sorted(p.name for p in made.path.iterdir()) == ["filler", "lost+found"]
    assert (found.outcome, found.measured) == ("inconclusive", None)
    assert "ran out" in str(found.reason)
    assert found.grant is not None


def _free(path: Path) -> int:
    usage = os.statvfs(path)
    return usage.f_bavail * usage.f_frsize


def _fill(path: Path, size: int) -> None:
    """Take ``size`` more bytes of the disk, as far as there are so many."""
    with path.open("ab") as out:
        for piece in (MIB, 4096):
            while size >= piece:
                try:
                    out.write(bytes(piece))
                    out.flush()
                except OSError:
                    break
                size -= piece


def test_a_missing_path_a_file_and_links(slow: Disk, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    (place / "file").write_text("theirs")
    (place / "data").symlink_to(slow.path)
    (place / "nowhere").symlink_to(place / "missing")
    for name in ("missing", "nowhere", "file", "file/below"):
        found = looked(tmp_path / f"run-{name.replace('/', '-')}", place / name, write=">= 1 MB/s")["write"]
        assert (found.outcome, found.reason_code) == ("inconclusive", "not-there"), found
    before = media.snapshot(place, slow.path)
    found = looked(tmp_path / "linked", place / "data", write=">= 50 MB/s")["write"]
    assert media.snapshot(place, slow.path) == before
    assert found.outcome == "pass"
    assert found.measured == pytest.approx(RATE / 1e6, rel=0.1)


def test_a_file_that_somebody_put_between_ours_stays(slow: Disk, tmp_path: Path) -> None:
    host = Host(Store(tmp_path))
    scratch = host.scratch("x", str(slow.path))
    assert isinstance(scratch, Scratch)
    theirs = Path(scratch.path) / "theirs.txt"
    theirs.write_text("not ours")
    host.clear(scratch)
    assert theirs.read_text() == "not ours"
    shutil.rmtree(scratch.path)


@contextmanager
def reading(path: Path, uid: int) -> Iterator[None]:
    """Somebody reads a file over and over, past the page cache."""
    data = path / "theirs" / "big"
    data.write_bytes(os.urandom(16 * MIB))
    data.chmod(0o644)
    job = ["--rw=read", "--bs=1M", "--iodepth=32", "--ioengine=libaio", "--direct=1", "--time_based", "--runtime=300"]
    switch = ["setpriv", f"--reuid={uid}", "--clear-groups"] if uid else []
    argv = [*switch, "fio", "--name=busy", f"--filename={data}", "--thread", "--output=/dev/null", *job]
    with subprocess.Popen(argv, stderr=subprocess.DEVNULL, cwd="/", start_new_session=True) as other:
        try:
            yield
        finally:
            os.killpg(other.pid, signal.SIGKILL)
            other.wait(10)
            data.unlink()


def test_own_work_on_the_disk_does_not_convict_and_a_strangers_is_named(
    slow: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_rig, "FILE_BYTES", dict.fromkeys(ALL_DEPTHS, 64 * MIB))
    attempts = []
    for uid in (0, 65534):
        step = disk_step(str(slow.path), {"read": "read"}, Ground(Path(slow.device).name, "ext4"))
        with reading(slow.path, uid):
            taken = step.execute(Host(Store(tmp_path / str(uid))), Look())["read"]
        assert isinstance(taken, Taken), taken
        attempts.append(taken.attempt)
    own, foreign = attempts
    assert own.weak is not None
    assert own.weak.code == "disturbed"
    assert "fio (" in str(own.weak.text)
    assert foreign.weak is None
    assert [n for n in foreign.notes if "fio (" in str(n) and "beside us" in str(n)], foreign.notes
    for attempt in attempts:
        assert attempt.void is None
        assert attempt.blocks[0].conditions["foreign"]["disk_bytes_per_s"] > 5e6


def test_what_comes_from_the_page_cache_does_not_pass(
    slow: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system that takes O_DIRECT and caches all the same, played by a fio that drops the flag."""
    (tmp_path / "bin").mkdir()
    fio = tmp_path / "bin" / "fio"
    fio.write_text(f"""#!/bin/sh
for a; do shift; case "$a" in --direct=1) a=--direct=0;; --ioengine=*) a=--ioengine=psync;; esac; set -- "$@" "$a"; done
exec {shutil.which("fio")} --invalidate=0 "$@"
""")
    fio.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fio.parent}:{os.environ['PATH']}")
    found = looked(tmp_path / "run", slow.path, read=">= 1 MB/s", read_iops=">= 1 /s")
    for finding in found.values():
        assert (finding.outcome, finding.reason_code) == ("inconclusive", "page-cache"), finding
        assert "memory" in str(finding.reason)


def test_files_that_stay_in_the_page_cache_do_not_pass(slow: Disk, tmp_path: Path) -> None:
    kept = looked(tmp_path / "kept", slow.path, small_files=">= 1 /s")["small_files"]
    assert kept.outcome == "pass"
    source = Path(files_probe.__file__).read_text()
    cached = source.replace("os.posix_fadvise(out.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)", "pass")
    assert cached != source
    folder = tmp_path / "files"
    folder.mkdir()
    script = tmp_path / "cached.py"
    script.write_text(cached)
    shares = []
    for which in (files_probe.__file__, str(script)):
        command = [sys.executable, which, "small", str(slow.path), "20", "16384", "4"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        shares.append(json.loads(done.stdout)["resident_share"])
    assert shares == [0.0, 1.0]
