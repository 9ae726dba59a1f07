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
