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
