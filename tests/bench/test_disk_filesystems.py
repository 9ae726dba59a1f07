"""File systems that make a disk look like more than it is, for real: what they do is seen, and nothing passes by it."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from agent import probes, stats
from agent.bench import disk_random, disk_rig, disk_sequential
from agent.bench.disk import step as disk_step
from agent.bench.step import Look
from agent.evidence import Store
from agent.facts import Asked, disks
from agent.host import Ran, Scratch
from agent.model import Taken
from agent.probes import files_probe
from agent.reading import Known
from tests import media
from tests.bench.paths import ALL_DEPTHS, Host, NoFio, looked, shorten
from tests.hooked import Go, without_fio
from tests.media import MIB, Disk

WHY_NOT = media.unavailable("fio", "mkfs.btrfs", "btrfs") or media.no_throttle()
pytestmark = [pytest.mark.root, pytest.mark.fio, pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))]
RATE = 40 * MIB
SECTOR = 4096


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten(monkeypatch)
    for module, name, value in (
        (disk_sequential, "WRITE_CAP", 6 * 10 * MIB),
        (disk_random, "WRITE_CAP", 6 * 4 * MIB),
        (disk_rig, "FILE_BYTES", disk_rig.FILE_MIN),
    ):
        monkeypatch.setattr(module, name, dict.fromkeys(ALL_DEPTHS, value))


class Keeping(Host):
    """Leaves the test files where they are."""

    def clear(self, scratch: Scratch) -> None:
        """Nothing is removed."""


class KeepingNoFio(Keeping, NoFio):
    """The same on a machine without fio."""


def incompressible(data: bytes) -> bool:
    """Little to gain by compressing (fio marks random blocks with offset and time), and no two sectors are equal."""
    sectors = {data[at : at + SECTOR] for at in range(0, len(data), SECTOR)}
    return len(zlib.compress(data, 1)) > 0.9 * len(data) and len(sectors) == len(data) // SECTOR


def written(host: Host, where: Path, *names: str) -> bytes:
    taken = disk_step(str(where), {n: n for n in names}).execute(host, Look())
    assert all(isinstance(t, Taken) for t in taken.values()), taken
    (file,) = where.glob(".accept-test-*/seq.dat")
    return file.read_bytes()


@pytest.mark.parametrize("name", ["write", "write_iops", "read"])
def test_what_fio_writes_cannot_be_shrunk(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats, "REPETITIONS", 1)
    with media.disk(300 * MIB, throttled=RATE) as made:
        data = written(Keeping(Store(tmp_path)), made.path, name)
    assert len(data) >= 32 * MIB
    assert incompressible(data)


def test_what_dd_writes_cannot_be_shrunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats, "REPETITIONS", 1)
    with media.disk(300 * MIB, throttled=RATE) as made:
        data = written(KeepingNoFio(Store(tmp_path)), made.path, "write")
    assert len(data) == 60 * MIB
    assert incompressible(data)


def test_what_files_are_made_of_cannot_be_shrunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "unlink", lambda path: None)
    files_probe.checkpoint(str(tmp_path), 24 * MIB)
    assert incompressible((tmp_path / "checkpoint.dat").read_bytes())
    files_probe.small(str(tmp_path), 50, 16384, 4)
    assert incompressible(b"".join(p.read_bytes() for p in sorted(tmp_path.glob("small-*.dat"))))


def rate_of_zeros(folder: Path) -> float:
    """What people try first; bytes a second."""
    file = folder / "zeros"
    command = ["dd", "if=/dev/zero", f"of={file}", "bs=1M", "count=100", "oflag=direct", "conv=fsync"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "LC_ALL": "C"})
    file.unlink()
    return 100 * MIB / float(done.stderr.split("copied, ")[1].split(" s")[0])


def test_a_compressing_file_system_does_not_make_a_disk_fast(tmp_path: Path) -> None:
    with media.btrfs(600 * MIB, "compress-force=zstd:1", throttled=RATE) as made:
        assert rate_of_zeros(made.path) > 2 * RATE
        by_fio = looked(tmp_path / "fio", made.path, write=">= 25 MB/s", checkpoint=">= 25 MB/s")
        by_dd = looked(tmp_path / "dd", made.path, NoFio, write=">= 25 MB/s")
    for finding in (*by_fio.values(), *by_dd.values()):
        assert finding.outcome == "pass", finding
        # A throttle lets the first bytes of a short write pass; still far from what zeros seem to reach.
        assert finding.measured == pytest.approx(RATE / 1e6, rel=0.5)


def test_what_was_compressed_away_does_not_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Should our data ever be shrunk, by whatever lies below: what did not reach the disk does not count."""
    zeros, source = b"import os\nos.write(1, b'\\n')\nwhile True: os.write(1, bytes(1 << 20))\n", probes.source
    monkeypatch.setattr(probes, "source", lambda script: zeros if script == "feed_probe" else source(script))
    with media.btrfs(600 * MIB, "compress-force=zstd:1") as made:
        found = looked(tmp_path, made.path, NoFio, write=">= 1 MB/s")["write"]
    assert (found.outcome, found.reason_code) == ("inconclusive", "page-cache"), found
    assert "shrunk" in str(found.reason)


@contextmanager
def uncounted(made: Disk) -> Iterator[None]:
    """The kernel does not count what the device moves, as some tune their drives."""
    switch = Path(f"/sys/class/block/{Path(made.device).name}/queue/iostats")
    switch.write_text("0")
    try:
        yield
    finally:
        switch.write_text("1")


@pytest.mark.parametrize("counting", [True, False])
def test_a_journal_for_data_reads_from_memory(counting: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ext4 with data=journal takes O_DIRECT and uses the page cache all the same: the file is read several times."""
    with media.disk(300 * MIB, options="data=journal", throttled=4 * RATE) as made, ExitStack() as stack:
        if not counting:
            stack.enter_context(uncounted(made))
        found = looked(tmp_path, made.path, read=">= 1 MB/s", read_iops=">= 1 /s")
    for finding in found.values():
        assert (finding.outcome, finding.reason_code) == ("inconclusive", "page-cache"), finding
        assert "memory" in str(finding.reason)


def test_a_mirror_of_two_devices_on_one_disk(tmp_path: Path) -> None:
    with media.btrfs(300 * MIB, profile="raid1", throttled=2 * RATE) as made:
        found = looked(tmp_path, made.path, raid="1", write=">= 1 MB/s", read=">= 1 MB/s", size=">= 250 MB")
        facts = disks.collect(Host(Store(tmp_path / "facts")), Asked(paths=(str(made.path),))).paths[str(made.path)]
    assert isinstance(facts.raid, Known), facts.raid
    assert (facts.raid.value.level, facts.raid.value.degraded) == ("1", False)
    assert isinstance(facts.media, Known)
    assert len(facts.media.value) == 2
    assert (found["raid"].outcome, found["raid"].measured) == ("fail", f"RAID 1 on {facts.raid.value.one_disk}")
    assert "with it all is lost" in str(found["raid"].reason)
    # btrfs reads a part through its cache, now and then more than a tenth: then the rate is none of the disk.
    for name in ("write", "size") if found["read"].reason_code == "page-cache" else ("write", "read", "size"):
        assert found[name].outcome == "pass", f"{found[name].reason_code}: {found[name].reason}"


def test_a_stripe_is_as_large_as_both(tmp_path: Path) -> None:
    with media.btrfs(300 * MIB, profile="raid0") as made:
        found = looked(tmp_path, made.path, raid="0", size=">= 550 MB")
    assert [f.outcome for f in found.values()] == ["pass", "pass"], found


def test_a_device_whose_counters_are_off_is_measured(tmp_path: Path) -> None:
    with media.disk(300 * MIB, throttled=2 * RATE) as made, uncounted(made):
        found = looked(tmp_path, made.path, read=">= 1 MB/s", write=">= 1 MB/s")
    assert [f.outcome for f in found.values()] == ["pass", "pass"], found


def test_a_path_that_leads_into_an_overlay(tmp_path: Path) -> None:
    with media.disk(300 * MIB) as made, media.overlay(made.path) as layered:
        (layered / "inner").mkdir()
        (tmp_path / "link").symlink_to(layered / "inner")
        (tmp_path / "bound").mkdir()
        subprocess.run(["mount", "--bind", str(layered / "inner"), str(tmp_path / "bound")], check=True)
        try:
            for name in ("link", "bound"):
                found = looked(tmp_path / f"run-{name}", tmp_path / name, kind="nvme", size=">= 100 MB")
                assert (found["kind"].outcome, found["kind"].reason_code) == ("inconclusive", "unsupported")
                assert "overlay" in str(found["kind"].reason)
                assert found["size"].outcome == "pass"
                assert any("share" in str(note) for note in found["size"].notes)
        finally:
            subprocess.run(["umount", str(tmp_path / "bound")], check=True)


def test_an_overlay_on_a_disk_that_others_fill(tmp_path: Path) -> None:
    with media.disk(300 * MIB) as made, media.overlay(made.path) as layered:
        (made.path / "of-somebody-else").write_bytes(os.urandom(150 * MIB))
        found = looked(tmp_path, layered, size=">= 250 MB")["size"]
    assert (found.outcome, found.reason_code) == ("inconclusive", "unsupported"), found
    assert "are free" in str(found.reason)
    assert found.grant is not None


# The kernel answers every open(2) with O_DIRECT as a file system does that cannot: EINVAL, by a seccomp filter.
REFUSE = """
import ctypes, os, platform, struct, sys
openat = {"x86_64": 257, "aarch64": 56}[platform.machine()]
rules = [(0x20, 0, 0, 0), (0x15, 0, 3, openat), (0x20, 0, 0, 32), (0x45, 0, 1, os.O_DIRECT), (0x06, 0, 0, 0x00050016)]
code = b"".join(struct.pack("HBBI", *rule) for rule in [*rules, (0x06, 0, 0, 0x7FFF0000)])
buffer = ctypes.create_string_buffer(code)
program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.create_string_buffer(program), 0, 0):
    sys.exit(f"no seccomp: {os.strerror(ctypes.get_errno())}")
os.execvp(sys.argv[1], sys.argv[1:])
"""


class Refusing(Host):
    """No file of this machine can be opened past the page cache."""

    def around(self, probe: str, argv: Sequence[str], go: Go) -> Ran:
        return go([sys.executable, "-c", REFUSE, *argv] if argv[0] in ("fio", "dd", "sh") else argv)


class RefusingNoFio(Refusing):
    """Nor is there fio."""

    def around(self, probe: str, argv: Sequence[str], go: Go) -> Ran:
        return super().around(probe, without_fio(argv), go)


@pytest.mark.parametrize("machine", [Refusing, RefusingNoFio])
def test_a_file_system_that_refuses_direct_access(machine: type[Host], tmp_path: Path) -> None:
    with media.disk(300 * MIB) as made:
        found = looked(tmp_path, made.path, machine, read=">= 1 MB/s", write=">= 1 MB/s")
    for finding in found.values():
        assert (finding.outcome, finding.reason_code) == ("inconclusive", "unsupported"), finding
        assert str(finding.reason) == "the file system refuses O_DIRECT"
        assert finding.grant is not None
