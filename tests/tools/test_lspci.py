"""lspci: text around the devices, unknown links, the real tool."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from agent.tools import ParseError, lspci
from tests.tools.fuzz import FIXTURES


def test_prompt_before_is_left_out() -> None:
    text = (FIXTURES / "lspci--domain_ids.txt").read_text()
    assert lspci.parse("root@host:~# lspci -Dnnvv\n" + text) == lspci.parse(text)


def test_idle_speed_is_below_the_capability() -> None:
    device = lspci.parse((FIXTURES / "lspci--domain_ids.txt").read_text()).devices[0]
    assert device.downgraded is True
    assert device.link_sta == lspci.Link(2.5, 16, "downgraded", "ok")
    assert (device.vendor_id, device.device_id, device.class_id) == ("10de", "2330", "0302")


def test_unreadable_link_is_refused() -> None:
    text = (FIXTURES / "lspci--no_marks.txt").read_text().replace("Width x8", "Width")
    with pytest.raises(ParseError) as caught:
        lspci.parse(text)
    assert caught.value.kind in {"unparsable", "truncated"}


@pytest.mark.skipif(shutil.which("lspci") is None, reason="lspci is not installed")
def test_real_lspci() -> None:
    done = subprocess.run(lspci.argv(), capture_output=True, text=True, timeout=30, check=False)
    if not done.stdout.strip():
        pytest.skip("no PCI devices can be seen here")
    devices = lspci.parse(done.stdout).devices
    listed = subprocess.run(["lspci", "-D"], capture_output=True, text=True, timeout=30, check=True).stdout
    assert [device.slot for device in devices] == [line.split()[0] for line in listed.splitlines()]


LABELLED = """\
Slot:\t0000:1b:00.0
Class:\t3D controller [0302]
Vendor:\tNVIDIA Corporation [10de]
Device:\tGH100 [H100 SXM5 80GB] [2330]
SVendor:\tNVIDIA Corporation [10de]
SDevice:\tDevice [16c1]
Rev:\ta1
Driver:\tnvidia
Module:\tnvidiafb
Module:\tnvidia
NUMANode:\t0

Slot:\t0000:5f:00.0
Class:\t3D controller [0302]
Vendor:\tNVIDIA Corporation [10de]
Device:\tGH100 [H100 SXM5 80GB] [2330]
Rev:\tff

"""


def test_machine_readable_labels() -> None:
    first, second = lspci.parse(LABELLED).devices
    assert (first.slot, first.class_id, first.vendor_id, first.device_id) == ("0000:1b:00.0", "0302", "10de", "2330")
    assert (first.name, first.class_name) == ("NVIDIA Corporation GH100 [H100 SXM5 80GB]", "3D controller")
    assert (first.driver, first.modules, first.numa_node, first.dead) == ("nvidia", ("nvidiafb", "nvidia"), 0, False)
    assert (second.driver, second.numa_node, second.link_sta, second.dead) == (None, None, None, True)


@pytest.mark.parametrize("end", [len(LABELLED) - 1, len(LABELLED) - 6, LABELLED.index("NUMANode"), 30])
def test_machine_readable_labels_cut(end: int) -> None:
    with pytest.raises(ParseError) as caught:
        lspci.parse(LABELLED[:end])
    assert caught.value.kind == "truncated"


def test_machine_readable_columns() -> None:
    text = (
        '1b:00.0 "3D controller" "NVIDIA Corporation" "Device 2330" -ra1 -p00 "NVIDIA Corporation" "Device 16c1"\n'
        '00:00.0 "0600" "8086" "09a2" "" ""\n'
    )
    gpu, host = lspci.parse(text).devices
    assert (gpu.vendor_id, gpu.device_id, gpu.revision) == (None, "2330", "a1")
    assert gpu.subsystem == "NVIDIA Corporation Device 16c1"
    assert (host.class_name, host.class_id, host.vendor_id, host.subsystem) == (None, "0600", "8086", None)
    for cut in (text[:-2], text[:-5], text[:-12]):
        with pytest.raises(ParseError) as caught:
            lspci.parse(cut)
        assert caught.value.kind == "truncated"


@pytest.mark.parametrize("option", ["-mm", "-mmnn", "-mmn", "-vmm", "-vmmnn", "-vmmn", "-nn", "-n", "-D"])
def test_the_real_tool_in_all_forms_lists_the_same_slots(option: str) -> None:
    if shutil.which("lspci") is None:
        pytest.skip("no lspci here")
    said = subprocess.run(["lspci", option], capture_output=True, text=True, timeout=30, check=False).stdout
    if not said:
        pytest.skip("no PCI bus here")
    plain = subprocess.run(["lspci"], capture_output=True, text=True, timeout=30, check=False).stdout
    slots = [device.slot.removeprefix("0000:") for device in lspci.parse(said).devices]
    assert slots == [device.slot for device in lspci.parse(plain).devices]
