"""Is all there that a contract may need? Tools, permissions and devices of this machine, and how to get what lacks.

Judges nothing and loads nothing. What this machine cannot use (the driver's tools where there is no GPU) is
``not-here``, which is no lack.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Optional

from agent.facts import Asked, pythons, system
from agent.facts._read import refused
from agent.facts.system import SystemFacts
from agent.host import Host, Ran
from agent.reading import Known, Missing
from agent.text import Text, msg
from agent.tools import dmesg

State = Literal["there", "missing", "not-here"]
TIMEOUT_S = 10.0
NVIDIA = "0x10de"
DISPLAY = ("0x0300", "0x0302")  # PCI classes VGA and 3D controller, without the programming interface
_PCI = "/sys/bus/pci/devices"
_DNF = frozenset("rhel fedora centos rocky almalinux anolis openeuler opencloudos tencentos".split())
_APT = frozenset("debian ubuntu".split())


@dataclass(frozen=True)
class Item:
    """One thing: what was found (a version, a count, or why not), which clauses need it, and how to get it."""

    name: Text
    state: State
    found: Text
    serves: Text
    get: Optional[Text] = None


@dataclass(frozen=True)
class Section:
    """Items of one kind under a heading."""

    title: Text
    items: tuple[Item, ...]


@dataclass(frozen=True)
class _Tool:
    """A program by its version command; ``apt`` and ``dnf`` are the packages that bring it; ``of`` what it serves."""

    name: str
    version: str
    serves: str
    apt: str
    dnf: str
    of: Literal["", "gpu", "rdma"] = ""


_TOOLS = (
    _Tool("fio", "--version", "disk[…].read, disk[…].write", "fio", "fio"),
    _Tool("dd", "--version", "disk[…].read, disk[…].write", "coreutils", "coreutils"),
    _Tool("iperf3", "--version", "network[…].download, network[…].upload", "iperf3", "iperf3"),
    _Tool("ping", "-V", "ping[…]", "iputils-ping", "iputils"),
    _Tool("lsblk", "--version", "disk[…].kind, disk[…].raid", "util-linux", "util-linux"),
    _Tool("lscpu", "--version", "cpu.model", "util-linux", "util-linux"),
    _Tool("dmidecode", "--version", "DIMM", "dmidecode", "dmidecode"),
    _Tool("smartctl", "--version", "disk[…].wear, disk[…].hours", "smartmontools", "smartmontools"),
    _Tool("lspci", "--version", "gpu, rdma", "pciutils", "pciutils", "gpu"),
    _Tool("ib_write_bw", "--version", "rdma.write_bandwidth", "perftest", "perftest", "rdma"),
)


def word(text: str) -> Text:
    """What is the same in every language: names of programs, keys, versions. Braces stay as they are."""
    return Text(text)


def examine(host: Host) -> tuple[Section, ...]:
    """Everything, in the order of the report."""
    facts = system.collect(host, Asked())
    gpus = _nvidia_devices(host)
    return (
        Section(
            msg("tools"), (*_tools(host, facts, gpus), _nvidia_smi(host, gpus), _torch(host, gpus), _docker(facts))
        ),
        Section(msg("permissions"), (_root(facts), _kernel_log(host), _echo(host))),
        Section(msg("devices"), tuple(_devices(host, facts, gpus))),
    )


def lacks(sections: Sequence[Section]) -> bool:
    """Whether anything is missing that this machine could have."""
    return any(item.state == "missing" for section in sections for item in section.items)


def _tools(host: Host, facts: SystemFacts, gpus: int) -> Iterator[Item]:
    cards = host.read("doctor-rdma", names=["/sys/class/infiniband/*"]).match("/sys/class/infiniband/*")
    here = {"": True, "gpu": gpus > 0, "rdma": bool(cards)}
    for tool in _TOOLS:
        ran = host.run(f"doctor-{tool.name}", [tool.name, tool.version], TIMEOUT_S)
        absent = ran.missing()
        if absent is None:
            yield Item(word(tool.name), "there", _version(ran), word(tool.serves))
        else:
            state: State = "missing" if here[tool.of] else "not-here"
            yield Item(word(tool.name), state, absent.detail, word(tool.serves), _install(facts, tool.apt, tool.dnf))


def _version(ran: Ran) -> Text:
    """The first number with a point that a version command prints, else its first line."""
    text = f"{ran.stdout}\n{ran.stderr}".strip()
    first = text.splitlines()[0] if text else ""
    number = re.search(r"\d+(?:[.-]\d+)+[a-z]?|\bs?\d{8}\b", first)
    return word(number.group(0) if number else first[:60])


def _install(facts: SystemFacts, apt: str, dnf: str) -> Text:
    """The command of this distribution; both where it is another."""
    names = {facts.os.value.id, *facts.os.value.like} if isinstance(facts.os, Known) else set()
    with_apt = word(f"apt-get install {apt}")
    with_dnf = word(f"dnf install {dnf}")
    if names & _APT:
        return with_apt
    if names & _DNF:
        return with_dnf
    return msg("{a} or {b}", a=with_apt, b=with_dnf)


def _nvidia_devices(host: Host) -> int:
    """How many NVIDIA display devices PCI shows."""
    files = host.read("doctor-pci", [f"{_PCI}/*/vendor", f"{_PCI}/*/class"])
    vendors = {p.rpartition("/")[0] for p in files.match(f"{_PCI}/*/vendor") if _is(files.texts[p], NVIDIA)}
    return sum(any(_is(files.texts.get(f"{device}/class", ""), c) for c in DISPLAY) for device in vendors)


def _is(text: str, wanted: str) -> bool:
    return text.strip().lower().startswith(wanted)


def _nvidia_smi(host: Host, gpus: int) -> Item:
    name, serves = word("nvidia-smi"), word("gpu")
    if not gpus:
        return Item(name, "not-here", msg("no NVIDIA GPU on the PCI bus"), serves)
    ran = host.run("doctor-nvidia-smi", ["nvidia-smi", "--list-gpus"], 30.0)
    problem = ran.missing() or refused(ran)
    if problem is None:
        listed = sum(line.startswith("GPU ") for line in ran.stdout.splitlines())
        return Item(name, "there", msg("lists {n} GPUs", n=listed), serves)
    return Item(name, "missing", problem.detail, serves, msg("the NVIDIA driver, from the vendor of the machine"))


def _torch(host: Host, gpus: int) -> Item:
    name, serves = msg("Python with torch"), word("gemm, memory_bandwidth, allreduce, collectives, training")
    if not gpus:
        return Item(name, "not-here", msg("not asked for: no NVIDIA GPU on the PCI bus"), serves)
    chosen = pythons.collect(host, Asked()).chosen
    if isinstance(chosen, Known):
        found = msg("torch {version} in {path}", version=chosen.value.torch, path=chosen.value.path)
        return Item(name, "there", found, serves)
    return Item(name, "missing", chosen.detail, serves, chosen.grant)


def _docker(facts: SystemFacts) -> Item:
    name, serves = word("docker"), word("software.docker, software.nvidia_container_toolkit")
    if isinstance(facts.docker, Missing):
        state: State = "not-here" if facts.docker.kind == "not-there" else "missing"
        return Item(name, state, facts.docker.detail, serves, facts.docker.grant)
    server = facts.docker.value.server
    if isinstance(server, Known):
        return Item(name, "there", word(server.value), serves)
    return Item(name, "missing", server.detail, serves, server.grant or msg("start its daemon"))


def _root(facts: SystemFacts) -> Item:
    name, serves = word("root"), msg("memory modules, disk[…].wear, disk[…].hours, the kernel log")
    if isinstance(facts.uid, Missing):
        return Item(name, "missing", facts.uid.detail, serves, facts.uid.grant)
    if facts.uid.value == 0:
        return Item(name, "there", msg("running as root"), serves)
    get = msg("run accept with sudo, or ask for root; without it these clauses are left undecided")
    return Item(name, "missing", msg("running as user {uid}", uid=facts.uid.value), serves, get)


def _kernel_log(host: Host) -> Item:
    name, serves = msg("kernel log"), msg("gpu.xid, hard faults of the machine")
    ran = host.run("doctor-dmesg", dmesg.argv(), TIMEOUT_S)
    problem = ran.missing() or refused(ran)
    if problem is None:
        return Item(name, "there", msg("{n} lines", n=len(ran.stdout.splitlines())), serves)
    get = msg("root, or sysctl kernel.dmesg_restrict=0, or membership of the group adm for journalctl -k")
    return Item(name, "missing", problem.detail, serves, get)


def _echo(host: Host) -> Item:
    name, serves = msg("sending pings"), word("ping[…]")
    ran = host.run("doctor-echo", ["ping", "-n", "-c", "1", "-W", "2", "127.0.0.1"], TIMEOUT_S)
    problem = ran.missing() or refused(ran)
    if problem is None:
        return Item(name, "there", msg("loopback answers"), serves)
    # Where there is no ping, its own line says how to get it.
    get = msg("the capability CAP_NET_RAW for ping, or a wider sysctl net.ipv4.ping_group_range")
    return Item(name, "missing", problem.detail, serves, None if problem.kind == "no-tool" else get)


def _devices(host: Host, facts: SystemFacts, gpus: int) -> Iterator[Item]:
    yield _gpus(facts, gpus)
    files = host.read("doctor-devices", links=["/sys/block/*", "/sys/class/net/*"], names=["/sys/class/infiniband/*"])
    disks = _names(files.match("/sys/block/*"), r"(?:loop|ram|zram|sr|fd)\d+")
    yield _listed(msg("disks"), disks, word("disk"))
    yield _listed(msg("network interfaces"), _names(files.match("/sys/class/net/*"), r"lo|ifb\d+"), word("network"))
    yield _listed(msg("RDMA devices"), _names(files.match("/sys/class/infiniband/*"), r""), word("rdma"))


def _gpus(facts: SystemFacts, gpus: int) -> Item:
    name, serves = msg("NVIDIA GPUs"), msg("gpu and all GPU loads")
    if not gpus:
        return Item(name, "not-here", msg("none on the PCI bus"), serves)
    if isinstance(facts.nvidia_driver, Known) and facts.nvidia_driver.value:
        return Item(name, "there", msg("{n} on the PCI bus", n=gpus), serves)
    found = msg("{n} on the PCI bus, but no driver is loaded", n=gpus)
    return Item(name, "missing", found, serves, msg("the NVIDIA driver, from the vendor of the machine"))


def _names(paths: Sequence[str], ignored: str) -> list[str]:
    names = [path.rpartition("/")[2] for path in paths]
    return [n for n in names if not re.fullmatch(ignored, n)]


def _listed(name: Text, found: Sequence[str], serves: Text) -> Item:
    if not found:
        return Item(name, "not-here", msg("none"), serves)
    return Item(name, "there", word(", ".join(found)), serves)
