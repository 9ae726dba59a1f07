"""Judging the facts of the host: pure, on readings made here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Callable, Optional, TypeVar, cast

import pytest

from agent.bench import steal
from agent.bench.step import Look
from agent.checks import _disk_facts, _network_facts, cpu, disk, grammars, integrity, memory, network, software
from agent.checks._api import Case
from agent.facts._cgroup import Throttled
from agent.facts.cpu import CpuFacts, Steal, Throttling
from agent.facts.disks import DiskFacts, Raid, Sold, Space
from agent.facts.memory import MemoryFacts
from agent.facts.network import Interface, NetworkFacts
from agent.facts.pythons import Pythons
from agent.facts.system import Docker, Os, Rlimit, SystemFacts
from agent.host import Ran
from agent.model import Clause, Contract, Finding, Taken
from agent.reading import Known, Missing
from agent.text import msg
from agent.tools.proc import Route
from tests.bench.interpreters import interpreter

T = TypeVar("T")
GIB = 1 << 30
LOST = Missing("timeout", msg("no answer"), ("evidence/x",), msg("grant it"))
EMPTY = Contract((), b"", "")


def k(value: Any) -> Known[Any]:
    return Known(value, ("evidence/0001-x",))


def facts(kind: Callable[..., T], /, **known: Any) -> T:
    """Facts of that kind: the named readings, all others missing."""
    whole = {f.name: LOST for f in fields(cast(Any, kind))}
    return kind(**{**whole, **{n: v if isinstance(v, Missing) else k(v) for n, v in known.items()}})


def clause(module: Any, name: str, text: str, settings: Optional[Mapping[str, Any]] = None) -> Clause:
    family = module.__name__.rpartition(".")[2]
    promise = module.GRAMMAR.clauses[name].parse(text)
    return Clause(f"{family}.{name}", family, name, promise, 1, 1, settings or {})


def judge(module: Any, name: str, text: str, **read: Any) -> Finding:
    found: list[Finding] = list(module.judge([clause(module, name, text)], Case(EMPTY, read)))
    assert len(found) == 1
    return found[0]


XEON = "Intel(R) Xeon(R) Platinum 8468"


@pytest.mark.parametrize(
    ("name", "text", "known", "outcome"),
    [
        ("model", "Xeon Platinum 8468", {"model": XEON, "hypervisor": False}, "pass"),
        ("model", "Intel Xeon Platinum 8468", {"model": XEON, "hypervisor": True}, "pass"),
        ("model", "Xeon Platinum 8468V", {"model": XEON, "hypervisor": False}, "fail"),
        ("model", "Xeon Platinum 8468", {"model": XEON + "V", "hypervisor": False}, "fail"),
        ("model", "EPYC 9654", {"model": "AMD EPYC 9654 96-Core Processor", "hypervisor": False}, "pass"),
        ("model", "EPYC 9654", {"model": "AMD EPYC 9554 64-Core Processor", "hypervisor": True}, "fail"),
        ("model", "EPYC 9654", {"model": "AMD EPYC Processor", "hypervisor": True}, "inconclusive"),
        ("model", "Xeon 8468", {"model": "Intel Xeon Processor (SapphireRapids)", "hypervisor": True}, "inconclusive"),
        ("model", "EPYC 9654", {}, "inconclusive"),
        ("sockets", "2", {"sockets": 2}, "pass"),
        ("sockets", "2", {"sockets": 1}, "fail"),
        ("cores", ">= 96", {"cores": 96, "hypervisor": False}, "pass"),
        ("cores", ">= 96", {"cores": 48, "hypervisor": False}, "fail"),
        ("cores", ">= 96", {"cores": 96, "hypervisor": True, "threads_per_core": 1.0}, "inconclusive"),
        ("cores", ">= 96", {"cores": 96, "hypervisor": True, "threads_per_core": 2.0}, "pass"),
        ("vcpus", ">= 8", {"vcpus": 7.65}, "fail"),
        ("vcpus", ">= 8", {"vcpus": 8.0}, "pass"),
        ("vcpus", ">= 8", {}, "inconclusive"),
    ],
)
def test_cpu(name: str, text: str, known: dict[str, Any], outcome: str) -> None:
    found = judge(cpu, name, text, cpu=facts(CpuFacts, **known))
    assert found.outcome == outcome
    assert found.evidence


@pytest.mark.parametrize(
    ("text", "size", "outcome"),
    [
        (">= 64 GiB", 64 * GIB, "pass"),
        (">= 64 GiB", int(62.1 * GIB), "pass"),
        (">= 64 GiB", int(62.0 * GIB), "fail"),
        (">= 2 TB", 16 * GIB, "fail"),
        ("60-70 GiB", 64 * GIB, "pass"),
        ("60-70 GiB", 80 * GIB, "fail"),
    ],
)
def test_memory_size(text: str, size: int, outcome: str) -> None:
    assert judge(memory, "size", text, memory=facts(MemoryFacts, size=size, total=2 * size)).outcome == outcome


def test_memory_that_cannot_be_told() -> None:
    found = judge(memory, "size", ">= 1 GB", memory=facts(MemoryFacts))
    assert (found.outcome, found.reason_code, str(found.grant)) == ("inconclusive", "timeout", "grant it")
    assert judge(memory, "bandwidth", ">= 200 GB/s", memory=facts(MemoryFacts)).outcome == "inconclusive"
    assert judge(memory, "per_vram", ">= 2", memory=facts(MemoryFacts)).outcome == "inconclusive"


def os(id: str, name: str, version: Optional[str]) -> Os:  # noqa: A002 - the field is called that
    return Os(id, name, version, (), f"{name} {version}")


@pytest.mark.parametrize(
    ("text", "found", "outcome"),
    [
        ("Ubuntu 22.04", os("ubuntu", "Ubuntu", "22.04.5"), "pass"),
        ("Ubuntu 22.04 LTS", os("ubuntu", "Ubuntu", "22.04.5"), "pass"),
        ("Ubuntu 22.04.3", os("ubuntu", "Ubuntu", "22.04.5"), "pass"),
        ("Ubuntu 22.04.6", os("ubuntu", "Ubuntu", "22.04.5"), "fail"),
        ("Ubuntu 22.04", os("ubuntu", "Ubuntu", "22.10"), "fail"),
        ("Ubuntu 22.04", os("ubuntu", "Ubuntu", "24.04"), "fail"),
        ("Ubuntu >= 22.04", os("ubuntu", "Ubuntu", "24.04"), "pass"),
        ("Ubuntu 22.04", os("debian", "Debian GNU/Linux", "22.04"), "fail"),
        ("Debian 12", os("debian", "Debian GNU/Linux", "12.5"), "pass"),
        ("RHEL 9.2", os("rhel", "Red Hat Enterprise Linux", "9.4"), "pass"),
        ("RHEL 9.6", os("rhel", "Red Hat Enterprise Linux", "9.4"), "fail"),
        ("Rocky Linux 9", os("rocky", "Rocky Linux", "9.4"), "pass"),
        ("Rocky Linux 9", os("rocky", "Rocky Linux", "8.10"), "fail"),
    ],
)
def test_os(text: str, found: Os, outcome: str) -> None:
    # The grammar takes the comparison in front.
    written = f">= {text.replace('>= ', '')}" if ">=" in text else text
    assert judge(software, "os", written, system=facts(SystemFacts, os=found)).outcome == outcome


NOT_INSTALLED = Missing("not-there", msg("not installed"), ("evidence/x",))
DENIED = Missing("denied", msg("permission denied"), ("evidence/x",), msg("the group docker"))
FAILED = Missing("failed", msg("cannot connect"), ("evidence/x",))


@pytest.mark.parametrize(
    ("name", "text", "known", "outcome"),
    [
        ("kernel", ">= 5.15", {"kernel": "5.15.0-91-generic"}, "pass"),
        ("kernel", ">= 5.15", {"kernel": "5.4.0-150-generic"}, "fail"),
        ("python", ">= 3.10", {"python": "3.10.12"}, "pass"),
        ("python", ">= 3.10", {"python": "3.9.18"}, "fail"),
        ("cuda_toolkit", "12.4", {"cuda_toolkit": "12.4.131"}, "pass"),
        ("cuda_toolkit", "12.4", {"cuda_toolkit": "12.1.66"}, "fail"),
        ("cuda_toolkit", "12.4", {"cuda_toolkit": NOT_INSTALLED}, "inconclusive"),
        ("docker", "true", {"docker": Docker("28", Known("28", ("e",)))}, "pass"),
        ("docker", "true", {"docker": Docker("28", DENIED)}, "inconclusive"),
        ("docker", "true", {"docker": Docker("28", FAILED)}, "fail"),
        ("docker", "true", {"docker": NOT_INSTALLED}, "fail"),
        ("docker", "true", {}, "inconclusive"),
        ("nvidia_container_toolkit", "true", {"container_toolkit": "1.17.8"}, "pass"),
        ("nvidia_container_toolkit", "true", {"container_toolkit": NOT_INSTALLED, "container": "none"}, "fail"),
        (
            "nvidia_container_toolkit",
            "true",
            {"container_toolkit": NOT_INSTALLED, "container": "docker"},
            "inconclusive",
        ),
        ("shm", ">= 16 GB", {"shm": 16 * GIB}, "pass"),
        ("shm", ">= 16 GB", {"shm": 64 << 20}, "fail"),
        ("memlock", "unlimited", {"memlock": Rlimit(None, None)}, "pass"),
        ("memlock", "unlimited", {"memlock": Rlimit(8 << 20, 8 << 20)}, "fail"),
        ("memlock", ">= 64 GB", {"memlock": Rlimit(8 << 20, None)}, "pass"),
        ("nofile", ">= 65536", {"nofile": Rlimit(1024, 1048576)}, "pass"),
        ("nofile", ">= 65536", {"nofile": Rlimit(1024, 4096)}, "fail"),
        ("torch", ">= 2.4", {}, "inconclusive"),
        ("nccl", ">= 2.20", {}, "inconclusive"),
    ],
)
def test_software(name: str, text: str, known: dict[str, Any], outcome: str) -> None:
    found = judge(software, name, text, system=facts(SystemFacts, **known))
    assert found.outcome == outcome


@pytest.mark.parametrize(
    ("nccl", "cuda_error", "outcome", "code"),
    [
        ("2.21.5", None, "pass", "kept"),
        ("2.18.3", None, "fail", "below-limit"),
        (None, None, "inconclusive", "not-there"),
        (None, "no NVIDIA driver", "inconclusive", "unsupported"),
    ],
)
def test_nccl_is_the_one_that_torch_works_with(
    nccl: Optional[str], cuda_error: Optional[str], outcome: str, code: str
) -> None:
    torch = replace(interpreter().value, nccl=nccl, cuda_error=cuda_error)
    found = judge(software, "nccl", ">= 2.20", system=facts(SystemFacts), pythons=Pythons(Known(torch, ("e",))))
    assert (found.outcome, found.reason_code) == (outcome, code)
    assert outcome != "inconclusive" or found.grant is not None


def disk_facts(**known: Any) -> DiskFacts:
    return replace(facts(DiskFacts, **known), path="/data")


SHARED = {"size": Sold(int(7.49 * 10**12), "file system + 7 %", "")}
ROOMY, FULL = ({"space": Space(7 * 10**12, free * 10**12, True)} for free in (3, 1))


@pytest.mark.parametrize(
    ("name", "text", "known", "outcome"),
    [
        ("kind", "nvme", {"kind": "nvme"}, "pass"),
        ("kind", "ssd", {"kind": "nvme"}, "pass"),
        ("kind", "nvme", {"kind": "ssd"}, "fail"),
        ("kind", "nvme", {"kind": "network"}, "fail"),
        ("kind", "hdd", {"kind": "tmpfs"}, "fail"),
        ("kind", "nvme", {"kind": "overlay"}, "inconclusive"),
        ("kind", "nvme", {}, "inconclusive"),
        ("size", ">= 2 TB", {"size": Sold(2 * 10**12, "device", "sda")}, "pass"),
        ("size", ">= 2 TB", {"size": Sold(2 * 10**12 - 2**20, "device", "sda")}, "fail"),
        ("size", ">= 2 TB", {}, "inconclusive"),
        ("raid", "1", {"raid": Raid("1", ("md0",), False)}, "pass"),
        ("raid", "1", {"raid": Raid("10", ("md0",), False)}, "pass"),
        ("raid", "1", {"raid": Raid("0", ("md0",), None)}, "fail"),
        ("raid", "1", {"raid": Raid("none")}, "fail"),
        ("raid", "none", {"raid": Raid("none")}, "pass"),
        ("raid", "1", {"raid": Raid("1", ("md0",), True)}, "fail"),
        ("raid", "1", {"raid": Raid("1", ("md0",), False, "sda")}, "fail"),
        ("raid", "0", {"raid": Raid("0", ("md0",), None, "sda")}, "pass"),
        ("raid", "1", {}, "inconclusive"),
        ("size", ">= 2 TB", {**SHARED, **ROOMY, "kind": "overlay"}, "pass"),
        ("size", ">= 2 TB", {**SHARED, **FULL, "kind": "overlay"}, "inconclusive"),
        ("size", ">= 8 TB", {**SHARED, **FULL, "kind": "overlay"}, "fail"),
        ("size", ">= 2 TB", {**SHARED, **FULL, "kind": "nvme"}, "pass"),
    ],
)
def test_disk(name: str, text: str, known: dict[str, Any], outcome: str) -> None:
    found = _disk_facts.FACT_JUDGES[name](clause(disk, name, text), disk_facts(**known))
    assert found.outcome == outcome
    assert found.evidence


def test_size_says_of_what() -> None:
    sold = Sold(2 * 10**12, "file system + 7 %", "")
    found = _disk_facts.judge_size(clause(disk, "size", ">= 1 TB"), disk_facts(size=sold))
    assert "7 %" in str(found.notes[0])


def interface(name: str = "eth0", driver: str = "mlx5_core", virtual: bool = False, **more: Any) -> Interface:
    whole = {"speed": k(100e9), "mtu": k(9000), "duplex": LOST, "state": LOST, "mac": LOST}
    return Interface(name, driver=k(driver), virtual=k(virtual), **{**whole, **more})


def net(*found: Interface) -> NetworkFacts:
    return facts(NetworkFacts, interfaces={i.name: i for i in found}, route=Route("eth0", "10.0.0.1"))


@pytest.mark.parametrize(
    ("name", "text", "found", "outcome"),
    [
        ("speed", "100 Gbit/s", interface(), "pass"),
        ("speed", "200 Gbit/s", interface(), "fail"),
        ("speed", "100 Gbit/s", interface(speed=LOST), "inconclusive"),
        ("speed", "100 Gbit/s", interface(driver="virtio_net"), "inconclusive"),
        ("speed", "100 Gbit/s", interface(virtual=True), "inconclusive"),
        ("speed", "100 Gbit/s", interface(virtual=True, members=("eth1", "eth2")), "pass"),
        ("speed", "100 Gbit/s", interface("eth9"), "inconclusive"),
        ("mtu", "9000", interface(), "pass"),
        ("mtu", "9000", interface(mtu=k(1500)), "fail"),
    ],
)
def test_network(name: str, text: str, found: Interface, outcome: str) -> None:
    assert _network_facts.FACT_JUDGES[name](clause(network, name, text), net(found)).outcome == outcome


def test_network_by_its_interface() -> None:
    named = clause(network, "mtu", "9000", {"interface": "eth1"})
    assert _network_facts.judge_mtu(named, net(interface(), interface("eth1", mtu=k(1500)))).outcome == "fail"


@pytest.mark.parametrize(("duplex", "said"), [("full", "full duplex"), ("half", "half duplex: a cable")])
def test_duplex_is_told(duplex: str, said: str) -> None:
    found = _network_facts.judge_speed(clause(network, "speed", "100 Gbit/s"), net(interface(duplex=k(duplex))))
    assert said in str(found.notes[-1])


HEALTHY_CPU = {
    "affinity": 96,
    "quota": None,
    "throttling": None,
    "steal": Steal(0.1, 1000),
    "model": XEON,
    "engineering": (),
}
HEALTHY_SYSTEM = {"shm": 16 * GIB, "pids": None, "nproc": Rlimit(None, None)}


def integrity_of(
    cpu_facts: dict[str, Any], system_facts: dict[str, Any], contract: Contract = EMPTY
) -> dict[str, Finding]:
    read = {
        "cpu": facts(CpuFacts, **{**HEALTHY_CPU, **cpu_facts}),
        "system": facts(SystemFacts, **{**HEALTHY_SYSTEM, **system_facts}),
    }
    return {f.id: f for f in integrity.judge((), Case(contract, read))}


def test_integrity_of_a_healthy_machine() -> None:
    assert {f.outcome for f in integrity_of({}, {}).values()} == {"pass"}


@pytest.mark.parametrize(
    ("name", "cpu_facts", "system_facts"),
    [
        ("oversold_cpu", {"quota": 7.65}, {}),
        ("steal", {"steal": Steal(1.5, 1000)}, {}),
        ("engineering_cpu", {"engineering": ("Genuine Intel(R) CPU 0000",)}, {}),
        ("small_shm", {}, {"shm": 64 << 20}),
        ("few_processes", {}, {"pids": 512}),
        ("few_processes", {}, {"nproc": Rlimit(1024, 1024)}),
    ],
)
def test_integrity_finds(name: str, cpu_facts: dict[str, Any], system_facts: dict[str, Any]) -> None:
    found = integrity_of(cpu_facts, system_facts)
    assert {i for i, f in found.items() if f.outcome == "fail"} == {f"integrity.{name}"}
    assert found[f"integrity.{name}"].severity == "advisory"
    assert found[f"integrity.{name}"].evidence


def test_integrity_that_cannot_be_told_is_never_a_pass() -> None:
    lost = integrity_of(dict.fromkeys(HEALTHY_CPU, LOST), dict.fromkeys(HEALTHY_SYSTEM, LOST))
    assert {f.outcome for f in lost.values()} == {"inconclusive"}
    assert {f.severity for f in lost.values()} == {"advisory"}


def test_throttling_is_told() -> None:
    counted = Throttling(Throttled(4000, 3000, 1.0), Throttled(4567, 3115, 2.0))
    found = integrity_of({"quota": 4.0, "throttling": counted}, {})["integrity.oversold_cpu"]
    assert [str(n) for n in found.notes] == [
        "stopped by the quota in 3115 of 4567 periods so far",
        "in 115 of them while accept only looked on",
    ]


def test_quota_as_promised_is_not_oversold() -> None:
    promised = Contract((clause(cpu, "vcpus", ">= 8"),), b"", "")
    assert integrity_of({"quota": 8.0}, {}, promised)["integrity.oversold_cpu"].outcome == "pass"
    assert integrity_of({"quota": 7.0}, {}, promised)["integrity.oversold_cpu"].outcome == "fail"


def test_integrity_is_no_family_of_the_contract() -> None:
    assert "integrity" not in grammars()
    assert "cpu" in grammars()


RAN = Ran("cpu.steal.1", ("python",), "2026-11-30T00:00:00Z", 60.0, exit=0, evidence="evidence/0001-x")


def test_steal_is_a_share_of_time() -> None:
    rows = {"stretches": [{"ticks": 1000, "steal": 25}] * 12}
    taken = steal.attempt(rows, Look(), RAN)
    assert isinstance(taken, Taken)
    assert (taken.unit, taken.statistic, taken.attempt.blocks[0].value) == ("%", "share of time", 2.5)


@pytest.mark.parametrize(
    "rows",
    [{}, {"stretches": []}, {"stretches": [{"ticks": 0, "steal": 0}]}, {"stretches": [{"ticks": 10, "steal": 11}]}],
)
def test_steal_without_an_answer(rows: dict[str, Any]) -> None:
    assert isinstance(steal.attempt(rows, Look(), RAN), Missing)


def test_steal_step_asks_for_a_minute() -> None:
    asked = clause(cpu, "steal", "<= 1 %")
    (step,) = cpu.steps([asked], Case(EMPTY, {"cpu": facts(CpuFacts, vcpus=7.65)}))
    assert step.keys == ("cpu.steal",)
    assert step.cost("standard").seconds >= 60
