from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

import pytest

from agent.facts import Asked, disks
from agent.facts.disks import DiskFacts, Raid, Sold
from agent.tools import lsblk
from tests.facts.node import HANG, Node, missing, value

TB = 10**12
MD = "Personalities : [raid1]\nmd0 : active raid1 sdb1[1] sda1[0]\n      976630464 blocks super 1.2 [2/{n}] [{u}]\n"
NO_MD = "Personalities : \nunused devices: <none>\n"


def probe(node: Node, **answer: object) -> Node:
    """What the child says of the path."""
    full = {"realpath": "/data", "exists": True, "total_bytes": int(0.93 * TB), "free_bytes": TB // 2, **answer}
    return node.tool("probe", f"echo '{json.dumps({'writable': True, 'read_only': False, **full})}'")


def mount(node: Node, device: str, fstype: str = "ext4", source: str = "/dev/x", options: str = "rw") -> Node:
    root = "27 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
    return node.write(
        {
            "/proc/self/mountinfo": f"{root}40 27 {device} / /data {options} - {fstype} {source} rw\n",
            "/proc/mdstat": NO_MD,
        }
    )


def block(
    node: Node,
    name: str,
    number: str,
    size: int = TB,
    *,
    rotational: str = "0",
    at: str = "pci0000:00/0000:00:1d.0",
    below: Sequence[str] = (),
    files: Optional[Mapping[str, str]] = None,
) -> Node:
    """A device in ``/sys/devices`` and its link in ``/sys/class/block``; with further files."""
    place = f"devices/{at}/block/{name}"
    texts = {"dev": number, "size": str(size // 512), "queue/rotational": rotational}
    texts.update(files or {})
    node.write({f"/sys/{place}/{key}": f"{text}\n" for key, text in texts.items()})
    for member in below:
        node.write({f"/sys/{place}/slaves/{member}": ""})
    return node.link(f"/sys/class/block/{name}", f"../../{place}")


def partition(node: Node, disk: str, name: str, number: str, size: int) -> Node:
    place = f"devices/pci0000:00/0000:00:1d.0/block/{disk}/{name}"
    texts = {"dev": number, "size": str(size // 512), "partition": "1"}
    node.write({f"/sys/{place}/{key}": f"{text}\n" for key, text in texts.items()})
    return node.link(f"/sys/class/block/{name}", f"../../{place}")


def read(node: Node, path: str = "/data") -> DiskFacts:
    if not (node.tools / "probe").exists():
        probe(node)
    return disks.collect(node.host(), Asked(paths=(path,))).paths[path]


def test_nvme_partition(node: Node) -> None:
    mount(block(node, "nvme0n1", "259:0"), "259:1")
    found = read(partition(node, "nvme0n1", "nvme0n1p1", "259:1", int(0.999 * TB)))
    assert value(found.device) == "nvme0n1p1"
    assert [b.name for b in value(found.media)] == ["nvme0n1"]
    assert value(found.kind) == "nvme"
    assert value(found.rotational) is False
    assert value(found.raid) == Raid("none")
    assert value(found.size) == Sold(TB // 512 * 512, "device", "nvme0n1")
    assert value(found.fstype) == "ext4"
    assert value(found.space).free == TB // 2


def test_small_partition_of_a_large_disk_is_all_that_was_sold(node: Node) -> None:
    mount(block(node, "nvme0n1", "259:0", size=4 * TB), "259:1")
    found = value(read(partition(node, "nvme0n1", "nvme0n1p1", "259:1", TB)).size)
    assert found == Sold(TB // 512 * 512, "device", "nvme0n1p1")


def test_quota_smaller_than_its_device(node: Node) -> None:
    probe(mount(block(node, "nvme0n1", "259:0"), "259:0"), total_bytes=TB // 10)
    assert value(read(node).size) == Sold(round(TB // 10 * 1.07), "file system + 7 %", "")


@pytest.mark.parametrize(("rotational", "kind"), [("0", "ssd"), ("1", "hdd")])
def test_sata(node: Node, rotational: str, kind: str) -> None:
    assert value(read(mount(block(node, "sdb", "8:16", rotational=rotational), "8:16")).kind) == kind


@pytest.mark.parametrize(
    ("name", "at", "files"),
    [
        ("vda", "pci0000:00/0000:00:02.0/virtio1", {}),
        ("sdb", "pci0000:00/0000:00:02.0/virtio2/host0", {"device/vendor": "QEMU"}),
        ("nvme0n1", "pci0000:00/nvme", {"device/model": "QEMU NVMe Ctrl"}),
        ("sdb", "pci0000:00/host0", {"device/vendor": "DELL", "device/model": "PERC H755"}),
    ],
)
def test_disks_of_hypervisors_and_controllers_prove_nothing(
    node: Node, name: str, at: str, files: dict[str, str]
) -> None:
    found = read(mount(block(node, name, "8:16", rotational="1", at=at, files=files), "8:16"))
    missing(found.kind, "unsupported")
    missing(found.rotational, "unsupported")
    missing(found.raid, "unsupported")
    assert value(found.size).of == "device"


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("nvme1n1", {"device/model": "Amazon Elastic Block Store"}),
        ("nvme1n1", {"device/transport": "tcp"}),
        ("rbd0", {}),
    ],
)
def test_network_block_devices(node: Node, name: str, files: dict[str, str]) -> None:
    assert value(read(mount(block(node, name, "259:9", files=files), "259:9")).kind) == "network"


@pytest.mark.parametrize(
    ("fstype", "kind"),
    [("nfs4", "network"), ("ceph", "network"), ("fuse.juicefs", "network"), ("tmpfs", "tmpfs"), ("overlay", "overlay")],
)
def test_filesystems_without_a_device(node: Node, fstype: str, kind: str) -> None:
    found = read(mount(block(node, "sda", "8:0"), "0:55", fstype, source="server:/x"))
    assert value(found.kind) == kind
    missing(found.device, "unsupported")
    missing(found.raid, "unsupported")
    assert value(found.size).of == "file system + 7 %"


def raid1(node: Node) -> Node:
    for name, number in (("sda", "8:0"), ("sdb", "8:16")):
        block(node, name, number)
    partition(node, "sda", "sda1", "8:1", TB)
    partition(node, "sdb", "sdb1", "8:17", TB)
    return block(node, "md0", "9:0", at="virtual", below=["sda1", "sdb1"], files={"md/level": "raid1"})


@pytest.mark.parametrize(("working", "marks", "degraded"), [("2", "UU", False), ("1", "U_", True)])
def test_software_raid(node: Node, working: str, marks: str, degraded: bool) -> None:
    mount(raid1(node), "9:0").write({"/proc/mdstat": MD.format(n=working, u=marks) + "\nunused devices: <none>\n"})
    found = read(node)
    assert value(found.raid) == Raid("1", ("md0",), degraded)
    assert value(found.kind) == "ssd"
    assert {b.name for b in value(found.media)} == {"sda", "sdb"}
    assert value(found.size).name == "md0"


def test_raid_whose_state_cannot_be_read(node: Node) -> None:
    mount(raid1(node), "9:0").write({"/proc/mdstat": "Personalities : [raid1]\nmd0 : act"})
    missing(read(node).raid, "unparsable")


def test_kernel_without_md_has_no_raid(node: Node) -> None:
    mount(block(node, "sdb", "8:16"), "8:16")
    (node.root / "proc/mdstat").unlink()
    assert value(read(node).raid) == Raid("none")


def test_lvm_on_one_disk(node: Node) -> None:
    block(node, "nvme0n1", "259:0")
    block(node, "dm-0", "253:0", at="virtual", below=["nvme0n1"], files={"dm/name": "vg-data"})
    found = read(mount(node, "253:0", source="/dev/mapper/vg-data"))
    assert value(found.kind) == "nvme"
    assert value(found.raid) == Raid("none")
    assert value(found.size).name == "nvme0n1"


def test_volume_over_several_disks_may_be_anything(node: Node) -> None:
    for name, number in (("sda", "8:0"), ("sdb", "8:16")):
        block(node, name, number)
    block(node, "dm-0", "253:0", size=2 * TB, at="virtual", below=["sda", "sdb"], files={"dm/name": "vg-data"})
    missing(read(mount(node, "253:0")).raid, "unsupported")


def test_btrfs_is_found_by_its_source(node: Node) -> None:
    found = read(mount(block(node, "nvme0n1", "259:0"), "0:41", "btrfs", source="/dev/nvme0n1"))
    assert value(found.device) == "nvme0n1"
    assert value(found.kind) == "nvme"
    missing(found.raid, "unsupported")


def pool(node: Node, devices: Mapping[str, str], data: str, metadata: str, lost: int = 0) -> Node:
    """A btrfs as ``/sys/fs/btrfs`` shows it; ``devices`` are links to those of ``/sys/devices``."""
    place = "/sys/fs/btrfs/2b4f3c1e-0000-4000-8000-5f3a7c1d9e00"
    for name, target in devices.items():
        node.link(f"{place}/devices/{name}", target)
    for what, profile in (("data", data), ("metadata", metadata), ("system", metadata)):
        node.write(
            {f"{place}/allocation/{what}/{profile}/total_bytes": "1\n", f"{place}/allocation/{what}/flags": "1\n"}
        )
    return node.write({f"{place}/devinfo/{n + 1}/missing": f"{int(n < lost)}\n" for n in range(2)})


def two_devices(node: Node, data: str, metadata: str, lost: int = 0) -> DiskFacts:
    for name, number in (("nvme0n1", "259:0"), ("nvme1n1", "259:1")):
        block(node, name, number)
    links = {name: f"../../../../devices/pci0000:00/0000:00:1d.0/block/{name}" for name in ("nvme0n1", "nvme1n1")}
    if lost:
        links.pop("nvme1n1")
    pool(mount(node, "0:41", "btrfs", source="/dev/nvme0n1"), links, data, metadata, lost)
    return read(probe(node, total_bytes=int(1.9 * TB)))


@pytest.mark.parametrize(
    ("data", "metadata", "lost", "raid"),
    [
        ("raid1", "raid1", 0, Raid("1", ("btrfs",), False)),
        ("raid1", "raid1c3", 0, Raid("1", ("btrfs",), False)),
        ("raid10", "raid10", 0, Raid("10", ("btrfs",), False)),
        ("raid0", "raid1", 0, Raid("0", ("btrfs",), False)),
        ("single", "raid1", 0, Raid("none", ("btrfs",), False)),
        ("raid1", "raid1", 1, Raid("1", ("btrfs",), True)),
    ],
)
def test_btrfs_over_several_devices(node: Node, data: str, metadata: str, lost: int, raid: Raid) -> None:
    found = two_devices(node, data, metadata, lost)
    assert value(found.raid) == raid
    assert value(found.kind) == "nvme"
    assert len(value(found.media)) == 2 - lost
    missing(found.device, "unsupported")
    assert value(found.size).of == "file system + 7 %"


@pytest.mark.parametrize(("data", "metadata"), [("raid1", "single"), ("raid1", "dup"), ("raid5", "raid1")])
def test_a_btrfs_of_mixed_ways_is_no_raid_that_can_be_told(node: Node, data: str, metadata: str) -> None:
    missing(two_devices(node, data, metadata).raid, "unsupported")


def test_a_mirror_within_one_disk_is_seen(node: Node) -> None:
    block(node, "sda", "8:0")
    partition(node, "sda", "sda1", "8:1", TB // 2)
    partition(node, "sda", "sda2", "8:2", TB // 2)
    block(node, "md0", "9:0", at="virtual", below=["sda1", "sda2"], files={"md/level": "raid1"})
    mount(node, "9:0").write({"/proc/mdstat": MD.format(n="2", u="UU") + "\nunused devices: <none>\n"})
    assert value(read(node).raid) == Raid("1", ("md0",), False, "sda")


def test_a_mirror_of_files_on_one_disk_is_seen(node: Node) -> None:
    block(node, "sda", "8:0")
    partition(node, "sda", "sda1", "8:1", TB)
    for name, number in (("loop0", "7:0"), ("loop1", "7:1")):
        block(node, name, number, at="virtual", files={"loop/backing_file": f"/images/{name}"})
    block(node, "md0", "9:0", at="virtual", below=["loop0", "loop1"], files={"md/level": "raid1"})
    mount(node, "9:0").write({"/proc/mdstat": MD.format(n="2", u="UU") + "\nunused devices: <none>\n"})
    assert value(read(node).raid) == Raid("1", ("md0",), False, "sda")


def test_a_mirror_whose_state_is_not_told(node: Node) -> None:
    missing(read(mount(raid1(node), "9:0")).raid, "unsupported")


def test_dead_mount_costs_its_deadline(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disks, "PATH_TIMEOUT_S", 0.5)
    mount(block(node, "sda", "8:0"), "0:55", "nfs4", source="server:/x").tool("probe", HANG)
    found = read(node)
    assert value(found.kind) == "network"
    missing(found.space, "timeout")
    missing(found.size, "timeout")


def test_path_that_is_not_there(node: Node) -> None:
    probe(mount(block(node, "sda", "8:0"), "8:0"), exists=False, realpath="/data")
    found = read(node)
    assert missing(found.space, "not-there").grant is not None
    missing(found.kind, "not-there")
    missing(found.size, "not-there")


@pytest.mark.parametrize(("error", "kind"), [("EACCES", "denied"), ("EIO", "failed"), ("ESTALE", "failed")])
def test_path_that_cannot_be_looked_at(node: Node, error: str, kind: str) -> None:
    probe(mount(block(node, "sda", "8:0"), "8:0"), error=error)
    missing(read(node).space, kind)


def probed(*command: str) -> dict[str, Any]:
    script = str(Path(disks.__file__).parents[1] / "probes" / "path_probe.py")
    run = subprocess.run([*command[:-1], sys.executable, "-I", script, command[-1]], stdout=subprocess.PIPE, check=True)
    answer: dict[str, Any] = json.loads(run.stdout)
    return answer


def test_probe_of_real_paths(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    here = probed(str(tmp_path / "link"))
    space = os.statvfs(tmp_path)
    assert here["exists"] is True
    assert here["realpath"] == str(tmp_path.resolve())
    assert here["total_bytes"] == space.f_blocks * space.f_frsize
    assert here["writable"] is True
    gone = probed(str(tmp_path / "no" / "such"))
    assert gone["exists"] is False
    assert gone["asked_above"] == str(tmp_path.resolve())


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv")
def test_probe_tells_hidden_from_absent(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o700)
    script = tmp_path / "probe.py"
    shutil.copy(Path(disks.__file__).parents[1] / "probes" / "path_probe.py", script)
    for folder in (tmp_path, *tmp_path.parents[:-2]):
        folder.chmod(folder.stat().st_mode | 0o055)
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3", "-I", str(script)]
    run = subprocess.run([*nobody, str(tmp_path / "closed" / "x")], stdout=subprocess.PIPE, check=True)
    assert json.loads(run.stdout)["error"] == "EACCES"


@pytest.mark.parametrize("said", ["", "garbage", '{"exists": true}', '{"exists": true, "realpath": 3}'])
def test_probe_that_says_garbage(node: Node, said: str) -> None:
    mount(block(node, "sda", "8:0"), "8:0").tool("probe", f"echo '{said}'")
    missing(read(node).size, "unparsable")


def test_read_only(node: Node) -> None:
    found = read(probe(mount(block(node, "sda", "8:0"), "8:0", options="ro,relatime"), read_only=True))
    assert value(found.read_only) is True
    assert value(found.space).writable is False


def test_lsblk_that_hangs_leaves_the_kind_open(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lsblk, "TIMEOUT_S", 0.5)
    mount(block(node, "nvme0n1", "259:0"), "259:0").tool("lsblk", HANG)
    found = read(node)
    missing(found.kind, "timeout")
    assert value(found.size).of == "device"


@pytest.mark.parametrize("script", ["echo garbage", "exit 1", "echo '{'"])
def test_lsblk_that_is_broken_does_not_matter_to_the_kind(node: Node, script: str) -> None:
    mount(block(node, "nvme0n1", "259:0"), "259:0").tool("lsblk", script)
    assert value(read(node).kind) == "nvme"


def test_nothing_there(node: Node) -> None:
    found = read(node)
    for name in ("mount", "device", "media", "kind", "raid", "read_only"):
        missing(getattr(found, name), "not-there")


def test_replay_gives_the_same_facts(node: Node) -> None:
    mount(raid1(node), "9:0")
    pool(node, {"sda": "../../../../devices/pci0000:00/0000:00:1d.0/block/sda"}, "raid1", "raid1")
    live = disks.collect(probe(node).host(), Asked(paths=("/data", "/")))
    assert disks.collect(node.replay(), Asked(paths=("/data", "/"))) == live
