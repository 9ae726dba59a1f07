from __future__ import annotations

import pytest

from agent.facts import Asked, memory
from agent.facts.memory import MemoryFacts
from agent.reading import Missing
from agent.tools import dmidecode
from tests.facts.node import HANG, Node, missing, value

GIB = 1 << 30
V1 = "33 23 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"


def machine(node: Node) -> Node:
    return node.write(
        {
            "/proc/meminfo": "MemTotal:       67108864 kB\nMemFree:        1 kB\nSwapTotal:       0 kB\n",
            "/proc/self/cgroup": "0::/\n",
            "/proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
        }
    )


def read(node: Node) -> MemoryFacts:
    return memory.collect(node.host(), Asked())


def test_the_host_without_a_limit(node: Node) -> None:
    found = read(machine(node))
    assert value(found.total) == value(found.size) == 64 * GIB
    assert value(found.limit) is None
    assert value(found.swap) == 0
    missing(found.nodes, "not-there")
    assert missing(found.modules, "no-tool").grant is not None


@pytest.mark.parametrize(("text", "size"), [("17179869184\n", 16 * GIB), ("max\n", 64 * GIB)])
def test_limit_v2(node: Node, text: str, size: int) -> None:
    assert value(read(machine(node).write({"/sys/fs/cgroup/memory.max": text})).size) == size


@pytest.mark.parametrize(
    ("text", "limit"),
    [("9223372036854771712\n", None), ("17179869184\n", 16 * GIB), ("-1\n", None), ("9223372036854710272\n", None)],
)
def test_limit_v1(node: Node, text: str, limit: int | None) -> None:
    machine(node).write({"/proc/self/cgroup": "4:memory:/\n", "/proc/self/mountinfo": V1})
    found = read(node.write({"/sys/fs/cgroup/memory/memory.limit_in_bytes": text}))
    assert value(found.limit) == limit
    assert value(found.size) == limit or 64 * GIB


def test_limit_above_the_host(node: Node) -> None:
    found = read(machine(node).write({"/sys/fs/cgroup/memory.max": str(1 << 40)}))
    assert value(found.size) == 64 * GIB


def test_limit_that_is_garbage_leaves_the_size_unknown(node: Node) -> None:
    missing(read(machine(node).write({"/sys/fs/cgroup/memory.max": "much\n"})).size, "unparsable")


def test_numa_nodes(node: Node) -> None:
    for n in range(2):
        at = f"/sys/devices/system/node/node{n}"
        node.write({f"{at}/meminfo": f"Node {n} MemTotal:  1048576 kB\n", f"{at}/cpulist": f"{n * 4}-{n * 4 + 3}\n"})
    nodes = value(read(machine(node)).nodes)
    assert [(n.number, n.total, len(n.cpus)) for n in nodes] == [(0, GIB, 4), (1, GIB, 4)]


def test_nothing_there(node: Node) -> None:
    found = read(node)
    for name in ("total", "size", "swap", "nodes", "modules"):
        assert isinstance(getattr(found, name), Missing), name


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ("echo '/dev/mem: Permission denied' >&2; exit 1", "denied"),
        ("echo '# dmidecode 3.4'; echo '# No SMBIOS nor DMI entry point found, sorry.'", "not-there"),
        ("echo garbage", "unparsable"),
        ("exit 3", "failed"),
        ("kill -9 $$", "failed"),
        (HANG, "timeout"),
    ],
)
def test_dmidecode_that_does_not_help(node: Node, script: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dmidecode, "TIMEOUT_S", 0.5)
    found = missing(read(machine(node).tool("dmidecode", script)).modules, kind)
    assert (found.grant is not None) is (kind == "denied")


def test_replay_gives_the_same_facts(node: Node) -> None:
    live = read(machine(node).write({"/sys/fs/cgroup/memory.max": "17179869184\n"}))
    assert memory.collect(node.replay(), Asked()) == live
