"""lsblk: what counts as a disk, sizes, and the real tool."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from agent.tools import ParseError, lsblk
from tests.tools.fuzz import FIXTURES


def test_a_volume_on_two_disks_is_one_device_with_two_parents() -> None:
    result = lsblk.parse((FIXTURES / "lsblk--bytes_lvm_raid.txt").read_text())
    assert [device.name for device in result.devices] == ["loop0", "nvme0n1", "md0", "nvme1n1"]
    assert result.devices[2].parents == ("nvme0n1", "nvme1n1")
    assert [disk.name for disk in lsblk.disks(result)] == ["nvme0n1", "nvme1n1"]


def test_a_reader_without_medium_is_no_disk() -> None:
    result = lsblk.parse((FIXTURES / "lsblk--old_strings.txt").read_text())
    assert [disk.name for disk in lsblk.disks(result)] == ["vda", "vdb"]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("128G", (128 << 30, False)),
        ("7,5T", (8246337208320, False)),
        ("512B", (512, True)),
        ("512", (512, True)),
        ("many", None),
    ],
)
def test_size(text: str, want: object) -> None:
    assert lsblk.size(text) == want


def test_endless_nesting_is_refused() -> None:
    text = '{"blockdevices": [' + '{"name": "a", "children": [' * 60 + "]}" * 60 + "]}"
    with pytest.raises(ParseError) as caught:
        lsblk.parse(text)
    assert caught.value.kind == "unparsable"


@pytest.mark.skipif(shutil.which("lsblk") is None, reason="lsblk is not installed")
def test_real_lsblk_in_both_forms() -> None:
    texts = [
        subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout
        for command in (lsblk.argv(), lsblk.pairs_argv())
    ]
    if not all(text.strip() for text in texts):
        pytest.skip("no block devices can be seen here")
    from_json, from_pairs = (lsblk.parse(text) for text in texts)
    names = {entry["name"] for entry in json.loads(texts[0])["blockdevices"]}
    assert names <= {device.name for device in from_json.devices}
    for one, other in zip(from_json.devices, from_pairs.devices):
        assert (one.name, one.size_bytes, one.rotational) == (other.name, other.size_bytes, other.rotational)


TREE = """\
NAME            MAJ:MIN RM   SIZE RO TYPE  MOUNTPOINTS
sda               8:0    0 447.1G  0 disk
├─sda1            8:1    0     1G  0 part  /boot/efi
└─sda2            8:2    0 446.1G  0 part
  └─vg0-root    253:0    0   100G  0 lvm   /var/lib/containers/overlay
                                           /
nvme0n1         259:0    0     7T  0 disk
└─md0             9:0    0    14T  0 raid0 /data
nvme1n1         259:1    0     7T  0 disk
└─md0             9:0    0    14T  0 raid0 /data
"""


def test_a_tree_is_read_with_its_parents_and_all_mount_points() -> None:
    devices = {device.name: device for device in lsblk.parse(TREE).devices}
    assert list(devices) == ["sda", "sda1", "sda2", "vg0-root", "nvme0n1", "md0", "nvme1n1"]
    assert devices["md0"].parents == ("nvme0n1", "nvme1n1")
    assert devices["vg0-root"].parents == ("sda2",)
    assert devices["vg0-root"].mountpoints == ("/var/lib/containers/overlay", "/")
    assert (devices["sda1"].parents, devices["sda1"].mountpoints) == (("sda",), ("/boot/efi",))
    assert (devices["sda"].size_text, devices["sda"].size_exact) == ("447.1G", False)
    assert devices["sda"].rotational is None


def test_an_old_tree_in_ascii_with_bytes() -> None:
    text = (
        "NAME                       MAJ:MIN RM         SIZE RO TYPE MOUNTPOINT\n"
        "sda                          8:0    0 500107862016  0 disk \n"
        "|-sda1                       8:1    0    524288000  0 part /boot\n"
        "`-sda2                       8:2    0 499582525440  0 part \n"
        "  `-vg_a-lv_root (dm-0)    253:0    0 499000000000  0 lvm  /\n"
    )
    devices = {device.name: device for device in lsblk.parse(text).devices}
    assert (devices["sda"].size_bytes, devices["sda"].size_exact) == (500107862016, True)
    assert devices["vg_a-lv_root"].parents == ("sda2",)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (TREE.partition("└─sda2")[0], "truncated"),
        (TREE[:-9], "truncated"),
        (TREE.rstrip("\n"), "truncated"),
        (TREE.splitlines()[0] + "\n", "truncated"),
        (TREE.replace("└─sda2            8:2    0 446.1G", "└─sda2            446.1G"), "unparsable"),
        ("NAME FSTYPE LABEL UUID MOUNTPOINT\nsda\n", "text_output"),
        ("NAME MODEL SIZE\nsda  ACME   1T\n", "text_output"),
    ],
)
def test_a_tree_that_is_cut_or_cannot_be_told_apart(text: str, kind: str) -> None:
    with pytest.raises(ParseError) as caught:
        lsblk.parse(text)
    assert caught.value.kind == kind


def test_warnings_about_single_devices_are_left_out() -> None:
    text = 'lsblk: dm-0: failed to get device path\nNAME="sda" SIZE="931.5G" TYPE="disk"\n'
    assert [device.name for device in lsblk.parse(text).devices] == ["sda"]
