from __future__ import annotations

import pytest

from agent.facts import Asked, cpu
from agent.facts.cpu import CpuFacts, engineering_signs
from agent.reading import Missing
from tests.facts.node import HANG, Node, missing, value

V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n"


def cpuinfo(threads: int, model: str = "Intel(R) Xeon(R) Platinum 8468", flags: str = "fpu avx2") -> str:
    blocks = [
        f"processor\t: {n}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: {model}\n"
        f"stepping\t: 8\nmicrocode\t: 0x2b000590\nphysical id\t: {n % 2}\ncore id\t\t: {n // 4}\nflags\t\t: {flags}\n"
        for n in range(threads)
    ]
    return "\n".join(blocks)


def stat(total: int, steal: int) -> str:
    return f"cpu  {total - steal} 0 0 0 0 0 0 {steal} 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n"


def machine(node: Node, threads: int = 8, **info: str) -> Node:
    return node.write(
        {
            "/proc/cpuinfo": cpuinfo(threads, **info),
            "/proc/self/status": f"Name:\tpython\nCpus_allowed_list:\t0-{threads - 1}\n",
            "/proc/self/cgroup": "0::/\n",
            "/proc/self/mountinfo": V2_MOUNT,
            "/proc/stat": stat(1000, 10),
            "/sys/devices/system/cpu/online": f"0-{threads - 1}\n",
        }
    )


def read(node: Node) -> CpuFacts:
    return cpu.collect(node.host(), Asked())


def test_sockets_cores_threads(node: Node) -> None:
    found = read(machine(node))
    assert value(found.sockets) == 2
    assert value(found.cores) == 4
    assert value(found.threads) == 8
    assert value(found.threads_per_core) == 2.0
    assert value(found.model) == "Intel(R) Xeon(R) Platinum 8468"
    assert value(found.stepping) == "6/143/8"
    assert value(found.hypervisor) is False


def test_topology_of_sysfs_wins(node: Node) -> None:
    machine(node)
    for n in range(8):
        at = f"/sys/devices/system/cpu/cpu{n}/topology"
        node.write({f"{at}/physical_package_id": "0\n", f"{at}/core_id": f"{n}\n"})
    found = read(node)
    assert (value(found.sockets), value(found.cores)) == (1, 8)


def test_mixed_processors_show(node: Node) -> None:
    machine(node).write({"/proc/cpuinfo": cpuinfo(1) + "\n" + cpuinfo(1, model="Intel(R) Xeon(R) Gold 6430")})
    assert value(read(node).model) == "Intel(R) Xeon(R) Platinum 8468 + Intel(R) Xeon(R) Gold 6430"


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"/sys/fs/cgroup/cpu.max": "765000 100000\n"}, 7.65),
        ({"/sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        ({}, None),
    ],
)
def test_quota_v2(node: Node, files: dict[str, str], quota: float | None) -> None:
    found = read(machine(node, 96).write(files))
    assert value(found.quota) == quota
    assert value(found.vcpus) == (96.0 if quota is None else quota)


def test_quota_of_a_group_above_holds(node: Node) -> None:
    machine(node).write(
        {
            "/proc/self/cgroup": "0::/pod/box\n",
            "/sys/fs/cgroup/pod/cpu.max": "200000 100000\n",
            "/sys/fs/cgroup/pod/box/cpu.max": "400000 100000\n",
            "/sys/fs/cgroup/pod/box/cpuset.cpus.effective": "0-2\n",
        }
    )
    found = read(node)
    assert value(found.quota) == 2.0
    assert value(found.cpuset) == 3
    assert value(found.vcpus) == 2.0


V1_MOUNTS = (
    "31 23 0:28 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
    "32 23 0:29 /docker/abc /sys/fs/cgroup/cpuset ro - cgroup cgroup rw,cpuset\n"
)


def test_v1_in_a_container_without_its_own_namespace(node: Node) -> None:
    machine(node).write(
        {
            "/proc/self/cgroup": "2:cpu,cpuacct:/docker/abc\n3:cpuset:/docker/abc\n0::/\n",
            "/proc/self/mountinfo": V1_MOUNTS,
            "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "400000\n",
            "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            "/sys/fs/cgroup/cpu,cpuacct/cpu.stat": "nr_periods 4567\nnr_throttled 3115\nthrottled_time 9000000000\n",
            "/sys/fs/cgroup/cpuset/cpuset.cpus": "0-3,6\n",
        }
    )
    found = read(node)
    assert value(found.quota) == 4.0
    assert value(found.cpuset) == 5
    assert value(found.vcpus) == 4.0
    counted = value(found.throttling)
    assert isinstance(counted, cpu.Throttling)
    assert (counted.after.throttled, counted.after.periods, counted.after.seconds) == (3115, 4567, 9.0)


def test_v1_without_a_quota(node: Node) -> None:
    machine(node).write(
        {
            "/proc/self/cgroup": "2:cpu,cpuacct:/\n3:cpuset:/\n",
            "/proc/self/mountinfo": V1_MOUNTS.replace("/docker/abc", "/"),
            "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
            "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        }
    )
    assert value(read(node).quota) is None


def test_groups_that_are_not_mounted_leave_vcpus_unknown(node: Node) -> None:
    found = read(machine(node).write({"/proc/self/mountinfo": "22 1 0:21 / /proc rw - proc proc rw\n"}))
    assert missing(found.vcpus, "not-there").grant is not None


def test_a_kernel_without_groups_limits_nothing(node: Node) -> None:
    machine(node)
    (node.root / "proc/self/cgroup").unlink()
    assert value(read(node).vcpus) == 8.0


def test_quota_that_is_garbage(node: Node) -> None:
    found = read(machine(node).write({"/sys/fs/cgroup/cpu.max": "lots\n"}))
    missing(found.quota, "unparsable")
    missing(found.vcpus, "unparsable")


def test_steal_over_the_window(node: Node) -> None:
    machine(node)
    host = node.host()
    host.meanwhile = lambda: node.write({"/proc/stat": stat(2000, 35)})
    found = value(cpu.collect(host, Asked()).steal)
    assert isinstance(found, cpu.Steal)
    assert (found.percent, found.ticks) == (2.5, 1000)
    assert host.slept >= 5.0


@pytest.mark.parametrize("after", [stat(1000, 10), stat(900, 5)])
def test_times_that_do_not_advance_are_no_steal(node: Node, after: str) -> None:
    machine(node).write({"/proc/stat": after})
    missing(read(node).steal, "void")


def test_stat_without_steal_is_unparsable(node: Node) -> None:
    missing(read(machine(node).write({"/proc/stat": "cpu  1 2 3 4\n"})).steal, "unparsable")


def test_nothing_there_is_missing_not_wrong(node: Node) -> None:
    found = read(node)
    for name in ("model", "sockets", "cores", "threads", "affinity", "vcpus", "steal", "hypervisor", "governor"):
        assert isinstance(getattr(found, name), Missing), name


@pytest.mark.parametrize("text", ["", "garbage\n", "\x00\xff", "processor\n"])
def test_garbage_cpuinfo(node: Node, text: str) -> None:
    found = read(machine(node).write({"/proc/cpuinfo": text}))
    missing(found.model, "unparsable")
    missing(found.hypervisor, "unparsable")


ARM = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\nFeatures\t: fp asimd\n\nHardware\t: x\n"


def test_arm_is_named_by_lscpu(node: Node) -> None:
    machine(node).write({"/proc/cpuinfo": ARM})
    node.tool("lscpu", """echo '{"lscpu": [{"field": "Model name:", "data": "Neoverse-V2"}]}'""")
    found = read(node)
    assert value(found.model) == "Neoverse-V2"
    missing(found.hypervisor, "unsupported")
    missing(found.cores, "unsupported")


@pytest.mark.parametrize(
    ("script", "kind"),
    [("exit 1", "failed"), ("echo nonsense", "unparsable"), (HANG, "timeout")],
)
def test_lscpu_that_does_not_help(node: Node, script: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "TOOL_TIMEOUT_S", 0.5)
    machine(node).write({"/proc/cpuinfo": ARM}).tool("lscpu", script)
    missing(read(node).model, kind)


@pytest.mark.parametrize(
    ("model", "sample"),
    [
        ("Genuine Intel(R) CPU 0000 @ 2.20GHz", True),
        ("Genuine Intel(R) CPU  $0000%@", True),
        ("AMD 100-000000897-03", True),
        ("AMD Eng Sample: 100-000000314-04_34/22_N", True),
        ("Intel(R) Xeon(R) Platinum 8468", False),
        ("AMD EPYC 9654 96-Core Processor", False),
        ("Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz", False),
        ("Intel Xeon Processor (SapphireRapids)", False),
        ("Genuine Intel(R) CPU U7300 @ 1.30GHz", False),
    ],
)
def test_engineering_samples(model: str, sample: bool) -> None:
    assert bool(engineering_signs(model)) is sample


def test_replay_gives_the_same_facts(node: Node) -> None:
    machine(node).write({"/sys/fs/cgroup/cpu.max": "765000 100000\n", "/proc/stat": stat(10, 1)})
    assert cpu.collect(node.replay(), Asked()) != read(node)
    assert cpu.collect(node.replay(), Asked()) == cpu.collect(node.replay(), Asked())
    live = cpu.collect(Node.host(node), Asked())
    assert cpu.collect(node.replay(), Asked()) == live
