"""Main memory: what the host has, what this process may use of it, and what it is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from agent.facts import Asked, _cgroup
from agent.facts._read import answer, cited, parsed
from agent.host import Files, Host
from agent.reading import Known, Missing, Reading, fmap
from agent.text import msg
from agent.tools import ParseError, dmidecode, proc

_NODES = "/sys/devices/system/node/node[0-9]*"


@dataclass(frozen=True)
class Node:
    """A NUMA node: its number, its memory in bytes, the CPUs that are next to it."""

    number: int
    total: int
    cpus: frozenset[int]


@dataclass(frozen=True)
class MemoryFacts:
    """Sizes in bytes.

    ``limit`` None: no control group limits this process. ``size`` is the smaller of ``total`` and ``limit``.
    ``modules`` are the DIMMs as the firmware states them, which takes root.
    """

    total: Reading[int]
    limit: Reading[Optional[int]]
    size: Reading[int]
    swap: Reading[int]
    nodes: Reading[tuple[Node, ...]]
    modules: Reading[dmidecode.Memory]


def collect(host: Host, asked: Asked) -> MemoryFacts:
    """Reads files, and asks ``dmidecode`` for the modules."""
    files = host.read("memory", ["/proc/meminfo", f"{_NODES}/meminfo", f"{_NODES}/cpulist"])
    limit = _cgroup.memory_limit(_cgroup.collect(host, ["memory"], "cgroup-memory"))
    total = _meminfo(files, "MemTotal")
    bytes_limit = fmap(lambda found: None if found is None else int(found), limit)
    firmware = answer(host.run("dmidecode", dmidecode.argv(), dmidecode.TIMEOUT_S), dmidecode.parse)
    return MemoryFacts(
        total=total,
        limit=bytes_limit,
        size=size(total, bytes_limit),
        swap=_meminfo(files, "SwapTotal"),
        nodes=_nodes(files),
        modules=_modules(firmware),
    )


def size(total: Reading[int], limit: Reading[Optional[int]]) -> Reading[int]:
    """The smaller of the host's memory and the control group's limit; unknown when one of them is."""
    if isinstance(total, Missing):
        return total
    if isinstance(limit, Missing):
        return limit
    mine = total.value if limit.value is None else min(total.value, limit.value)
    return Known(mine, cited(total, limit))


def _meminfo(files: Files, name: str) -> Reading[int]:
    sizes = parsed(files.text("/proc/meminfo"), proc.meminfo, "/proc/meminfo")
    if isinstance(sizes, Known) and name not in sizes.value:
        return Missing("unsupported", msg("/proc/meminfo has no {name}", name=name), sizes.evidence)
    return fmap(lambda found: found[name], sizes)


def _nodes(files: Files) -> Reading[tuple[Node, ...]]:
    paths = files.match(f"{_NODES}/meminfo")
    if not paths:
        return Missing("not-there", msg("this kernel shows no NUMA nodes"), files.cited)
    texts = Known([(p, files.text(p), files.text(p.replace("meminfo", "cpulist"))) for p in paths], files.cited)
    return parsed(texts, lambda rows: tuple(sorted((_node(*r) for r in rows), key=lambda n: n.number)), "NUMA nodes")


def _node(path: str, sizes: Reading[str], cpus: Reading[str]) -> Node:
    if isinstance(sizes, Missing) or isinstance(cpus, Missing):
        raise ParseError("unparsable", "a NUMA node without its memory or CPUs", path)
    number = int(path.split("/")[-2][len("node") :])
    return Node(number, proc.meminfo(sizes.value).get("MemTotal", 0), proc.cpu_list(cpus.value))


def _modules(firmware: Reading[dmidecode.Dmidecode]) -> Reading[dmidecode.Memory]:
    if isinstance(firmware, Missing):
        return firmware
    memory = firmware.value.memory
    if memory is None:
        return Missing("unsupported", msg("this firmware describes no memory modules"), firmware.evidence)
    return Known(memory, firmware.evidence)
