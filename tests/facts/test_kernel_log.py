from __future__ import annotations

from typing import Any, Optional

import pytest

from agent.facts import Asked, kernel_log
from agent.facts.kernel_log import KernelLog
from agent.reading import Known, Missing, Reading
from agent.text import msg
from tests.facts.fake import Start
from tests.facts.node import Node, missing, value
from tests.fakenode import healthy, wrong

BOOT = "[    0.000000] Linux version 5.15.0-126-generic"
XID_79 = "[ 9000.100000] NVRM: Xid (PCI:0000:61:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
XID_13 = "[ 9100.200000] NVRM: Xid (PCI:0000:1b:00): 13, pid=4242, name=python3, Graphics Exception"
REFUSED = "echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1"


def says(*lines: str) -> str:
    text = "\n".join(lines)
    return f"exec /bin/cat <<'END'\n{text}\nEND"


def test_an_xid_has_its_slot_and_class(node: Node) -> None:
    node.tool("dmesg", says(BOOT, XID_79, XID_13))
    found = value(kernel_log.collect(node.host(), Asked()).log)
    assert [(e.xid, e.slot, e.class_, e.process) for e in found.events] == [
        (79, "0000:61:00.0", "hardware", None),
        (13, "0000:1b:00.0", "application", "python3"),
    ]
    assert found.since_boot
    assert found.source == "dmesg"
    assert [e.xid for e in kernel_log.of_slot(found, "0000:1b:00.0").events] == [13]


def test_three_answers_are_three(node: Node) -> None:
    """Read without an Xid, denied, and nothing at all."""
    node.tool("dmesg", says(BOOT))
    assert value(kernel_log.read(node.host(), "a")).events == ()
    node.tool("dmesg", REFUSED).tool(
        "journalctl", "echo 'No journal files were opened due to insufficient permissions.' >&2; exit 1"
    )
    denied = missing(kernel_log.read(node.host(), "b"), "denied")
    assert denied.grant is not None
    node.tool("dmesg", "exit 0")
    missing(kernel_log.read(node.host(), "c"), "unsupported")


def test_without_any_tool(node: Node) -> None:
    missing(kernel_log.collect(node.host(), Asked()).log, "no-tool")


def test_the_journal_where_dmesg_is_refused(node: Node) -> None:
    node.tool("dmesg", REFUSED).tool("journalctl", says(BOOT, XID_79))
    found = value(kernel_log.collect(node.host(), Asked()).log)
    assert (found.source, len(found.events)) == ("journalctl", 1)


def test_the_journal_where_the_buffer_has_forgotten_the_beginning(node: Node) -> None:
    node.tool("dmesg", says("[ 9500.000000] usb 1-1: new device")).tool("journalctl", says(BOOT, XID_79))
    assert value(kernel_log.collect(node.host(), Asked()).log).source == "journalctl"
    node.tool("journalctl", "exit 1")
    found = value(kernel_log.collect(node.host(), Asked()).log)
    assert (found.source, found.since_boot, found.first_s) == ("dmesg", False, 9500.0)


def test_garbage_is_unparsable(node: Node) -> None:
    node.tool("dmesg", says("hello", "world"))
    missing(kernel_log.collect(node.host(), Asked()).log, "unparsable")


def read(*lines: str, source: str = "dmesg") -> Reading[KernelLog]:
    return Known(kernel_log.log("".join(f"{line}\n" for line in lines), source), (f"evidence/{len(lines)}",))


def test_only_what_is_new() -> None:
    new = value(kernel_log.since(read(BOOT, XID_79), read(BOOT, XID_79, XID_13)))
    assert [e.xid for e in new.events] == [13]
    assert not new.gap
    assert value(kernel_log.since(read(BOOT, XID_79), read(BOOT, XID_79))).events == ()


def test_the_same_line_twice_is_one_new_event() -> None:
    assert len(value(kernel_log.since(read(BOOT, XID_79), read(BOOT, XID_79, XID_79))).events) == 1


def test_a_buffer_that_lost_lines_between_says_so() -> None:
    before = read("[ 8000.000000] usb 1-1: new device", XID_79)
    kept = value(kernel_log.since(before, read("[ 8500.000000] usb 1-1: gone", XID_79, XID_13)))
    assert not kept.gap
    lost = value(kernel_log.since(before, read(XID_13, "[ 9200.000000] usb 1-2: new device")))
    assert lost.gap
    assert [e.xid for e in lost.events] == [13]


@pytest.mark.parametrize("denied_first", [True, False])
def test_nothing_is_new_against_what_was_not_read(denied_first: bool) -> None:
    denied = Missing("denied", msg("not allowed"))
    first, second = (denied, read(BOOT)) if denied_first else (read(BOOT), denied)
    missing(kernel_log.since(first, second), "denied")
    missing(kernel_log.since(read(BOOT), read(BOOT, XID_79, source="journalctl")), "failed")


def test_on_the_fake_node(start: Start) -> None:
    lost = wrong.lost(healthy.h100(), 3)
    found = kernel_log.collect(start(lost), Asked())
    assert [(e.xid, e.slot) for e in value(found.log).gpu_events] == [(79, lost.cards[3].slot)]


def test_a_card_that_fell_off_without_an_xid(start: Start) -> None:
    dead = wrong.never_came_up(healthy.h100(), 3)
    found = value(kernel_log.collect(start(dead), Asked()).log)
    assert [(e.kind, e.slot) for e in found.gpu_events][:1] == [("fallen_off_bus", dead.cards[3].slot)]


def test_replay(node: Node) -> None:
    node.tool("dmesg", says(BOOT, XID_79))
    first = kernel_log.collect(node.host(), Asked())
    assert kernel_log.collect(node.replay(), Asked()) == first


BROKEN = (
    "echo 'dmesg: error while loading shared libraries: libtinfo.so.6: cannot open shared object file' >&2; exit 127"
)


@pytest.mark.parametrize(
    ("does", "kind", "said", "grant"),
    [
        (BROKEN, "failed", "cannot be loaded", "repair dmesg"),
        ("echo 'Segmentation fault (core dumped)' >&2; exit 139", "failed", "crashed", None),
        ("echo \"dmesg: invalid option -- 'W'\" >&2; exit 1", "unsupported", "refused its command line", None),
        ("echo 'sh: 1: dmesg: not found' >&2; exit 127", "no-tool", "not installed", "install dmesg"),
    ],
)
def test_a_tool_that_does_not_work_is_named(node: Node, does: str, kind: Any, said: str, grant: Optional[str]) -> None:
    node.tool("dmesg", does).tool("journalctl", does.replace("dmesg", "journalctl"))
    found = missing(kernel_log.read(node.host(), "a"), kind)
    assert said in str(found.detail)
    assert (None if found.grant is None else str(found.grant)[: len(grant or "")]) == grant
