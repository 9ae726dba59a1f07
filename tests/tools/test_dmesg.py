"""The kernel log and the table of Xid classes."""

from __future__ import annotations

import pytest

from agent.tools import dmesg
from agent.tools.xid import CLASSES as WORDS
from agent.tools.xid import MEANING, XID_CLASS, sxid_class, xid_class, xid_words
from tests.tools.fuzz import FIXTURES

CLASSES = {"application", "hardware", "nvlink", "driver", "side-effect", "wear", "info"}


def test_every_class_is_documented() -> None:
    assert set(XID_CLASS.values()) == CLASSES
    assert set(MEANING) <= set(XID_CLASS)
    assert set(WORDS) == {*CLASSES, "unknown"}


def test_whatever_is_blamed_on_a_card_is_explained() -> None:
    blamed = {number for number, name in XID_CLASS.items() if name != "application"}
    assert blamed <= set(MEANING)
    assert str(xid_words(79)) == "Xid 79: GPU fell off the bus"
    assert str(xid_words(14)) == "Xid 14"


@pytest.mark.parametrize(
    ("number", "want"),
    [
        (13, "application"),
        (31, "application"),
        (43, "application"),
        (45, "side-effect"),
        (48, "hardware"),
        (62, "hardware"),
        (63, "wear"),
        (64, "hardware"),
        (74, "nvlink"),
        (79, "hardware"),
        (92, "wear"),
        (94, "wear"),
        (95, "hardware"),
        (119, "driver"),
        (149, "nvlink"),
        (154, "info"),
        (14, "unknown"),
        (9999, "unknown"),
    ],
)
def test_xid_class(number: int, want: str) -> None:
    assert xid_class(number) == want


def test_sxid_class() -> None:
    assert sxid_class("Fatal, Link 30 LTSSM Fault Up") == "nvlink"
    assert sxid_class("Non-fatal, Link 12 ingress invalid ACL") == "info"


def test_process_of_an_xid() -> None:
    xids = dmesg.parse((FIXTURES / "dmesg--wall_clock.txt").read_text()).xids
    assert [(xid.pid, xid.process) for xid in xids] == [(None, None), (7421, "python3")]


def test_an_unreadable_xid_is_reported_not_dropped() -> None:
    result = dmesg.parse("[ 1.0] NVRM: Xid (PCI:0000:18:00): garbled\n[ 2.0] usb 1-1: new device\n")
    assert result.xids == ()
    assert [(event.kind, event.pci) for event in result.events] == [("unreadable_xid", "0000:18:00")]


def test_a_gpu_gone_at_boot_is_named_over_three_lines() -> None:
    events = dmesg.parse((FIXTURES / "dmesg--fallen_no_xid.txt").read_text()).events
    assert [(e.kind, e.pci) for e in events] == [("fallen_off_bus", "0000:b3:00"), ("probe_failed", None)]


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "[12345.678901] ",
        "[12345.678901][  T123] ",
        "\x1b[32m[12345.678901] \x1b[0m\x1b[33mnvidia: \x1b[0m",
        "\x1b[32m[Mon Mar  4 05:06:07 2024] \x1b[0m",
        "[一 3月  4 05:06:07 2024] ",
        "[Mo Mär  4 05:06:07 2024] ",
        "3月 04 05:06:07 gpu-3 kernel: ",
        "Mär 04 05:06:07 gpu-3 kernel: ",
        "2024-03-04 05:06:07 gpu-3 kernel: ",
        "2024-03-04T05:06:07+0800 gpu-3 kernel: ",
        "<4>1 2024-03-04T05:06:07Z gpu-3 kernel - - - ",
        "4,1234,5678901,-,caller=T12;",
        "[Mar 4 05:06] ",
        "[Mar 4 05:06 <    1.234>] ",
        "123:[12345.678901] ",
        "/var/log/kern.log:Mar  4 05:06:07 gpu-3 kernel: [1.0] ",
        "> [123.4] ",
        "192.0.2.9: kern: warning: [2026-04-22T21:27:51.291660856Z]: ",
        "gpu-3 kernel: ",
    ],
)
def test_no_prefix_hides_an_xid_or_makes_a_quiet_log_foreign(prefix: str) -> None:
    quiet = f"{prefix}usb 1-1: new high-speed USB device number 2\n"
    loud = f"{prefix}NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.\n"
    (xid,) = dmesg.parse(quiet + loud).xids
    assert (xid.xid, xid.pci, xid.pid, xid.class_) == (79, "0000:3b:00", 1234, "hardware")
    if prefix:
        assert dmesg.parse(quiet).xids == ()
