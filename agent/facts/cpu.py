"""The processors: what they are, how many there are, and how much of them this process really gets."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

from agent.facts import Asked, _cgroup
from agent.facts._cgroup import Throttled
from agent.facts._read import answer, cited, first_known, parsed, whole
from agent.host import Files, Host
from agent.reading import Known, Missing, Reading, fmap
from agent.text import msg
from agent.tools import ParseError, proc
from agent.tools._text import objects, one_document, text_or_none
from agent.tools.proc import CpuTimes, Processor

# Steal is a share of clock ticks: below five seconds a single tick weighs too much.
STEAL_WINDOW_S = 5.0
TOOL_TIMEOUT_S = 10.0
_TOPOLOGY = "/sys/devices/system/cpu/cpu[0-9]*/topology"

# How pre-production parts name themselves (facts 9.11): Intel "Genuine Intel(R) CPU 0000", AMD an OPN in the
# place of a name, or plain words.
_ENGINEERING = re.compile(
    r"genuine intel\(r\) cpu\s+(?:0000|\$)|\$0000|^amd \d{3}-\d{6,}|\beng(?:ineering)? sample\b|intel confidential",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Core:
    """A logical CPU's place: its package and its core within it."""

    package: int
    core: int


@dataclass(frozen=True)
class Throttling:
    """Counters of the CPU quota at both ends of the window."""

    before: Throttled
    after: Throttled


@dataclass(frozen=True)
class Steal:
    """``percent`` of all CPU time in ``seconds`` that the hypervisor gave to somebody else, here at idle."""

    percent: float
    ticks: int


@dataclass(frozen=True)
class CpuFacts:
    """``cores`` are physical, ``threads`` are logical CPUs online, ``vcpus`` what this process may use.

    ``quota`` None means no quota; ``throttling`` None that no quota counts. ``engineering`` holds the signs of a
    pre-production part, none for a retail one.
    """

    model: Reading[str]
    vendor: Reading[str]
    stepping: Reading[str]
    microcode: Reading[str]
    sockets: Reading[int]
    cores: Reading[int]
    threads: Reading[int]
    threads_per_core: Reading[float]
    affinity: Reading[int]
    cpuset: Reading[Optional[int]]
    quota: Reading[Optional[float]]
    vcpus: Reading[float]
    throttling: Reading[Optional[Throttling]]
    steal: Reading[Steal]
    hypervisor: Reading[bool]
    governor: Reading[str]
    engineering: Reading[tuple[str, ...]]
    flags: Reading[frozenset[str]]


def collect(host: Host, asked: Asked) -> CpuFacts:
    """Reads files for ``STEAL_WINDOW_S`` seconds; asks ``lscpu`` only where ``/proc/cpuinfo`` names no model."""
    files = host.read(
        "cpu",
        [
            "/proc/cpuinfo",
            "/proc/self/status",
            "/sys/devices/system/cpu/online",
            f"{_TOPOLOGY}/physical_package_id",
            f"{_TOPOLOGY}/core_id",
            "/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor",
        ],
    )
    groups = _cgroup.collect(host, ["cpu", "cpuset"], "cgroup-cpu")
    stats = _cgroup.stat_files(groups)
    before = host.read("cpu-stat-before", ["/proc/stat", *stats])
    host.sleep(STEAL_WINDOW_S)
    after = host.read("cpu-stat-after", ["/proc/stat", *stats])

    processors = parsed(files.text("/proc/cpuinfo"), proc.cpuinfo, "/proc/cpuinfo")
    model = _model(host, processors)
    places = first_known([_places(files), _places_of(processors)])
    threads = _threads(files, processors)
    cores = fmap(lambda cores: len(set(cores)), places)
    affinity = _affinity(files)
    cpus = _cgroup.cpuset(groups)
    quota = _cgroup.cpu_quota(groups)
    return CpuFacts(
        model=model,
        vendor=_field(processors, "vendor_id"),
        stepping=_signature(processors),
        microcode=_field(processors, "microcode"),
        sockets=fmap(lambda cores: len({c.package for c in cores}), places),
        cores=cores,
        threads=threads,
        threads_per_core=_ratio(threads, cores),
        affinity=affinity,
        cpuset=fmap(lambda found: None if found is None else len(found), cpus),
        quota=quota,
        vcpus=vcpus(affinity, cpus, quota),
        throttling=_throttling(before, after, stats),
        steal=_steal(before, after),
        hypervisor=_hypervisor(processors),
        governor=_governor(files),
        engineering=fmap(engineering_signs, model),
        flags=fmap(lambda text: frozenset(text.split()), _field(processors, "flags", "Features")),
    )


def engineering_signs(model: str) -> tuple[str, ...]:
    """Parts of a model's name that retail processors do not have."""
    return tuple(m.group(0) for m in _ENGINEERING.finditer(model))


def vcpus(
    affinity: Reading[int], cpuset: Reading[Optional[frozenset[int]]], quota: Reading[Optional[float]]
) -> Reading[float]:
    """The smallest of scheduler affinity, cpuset and quota, in CPUs; unknown when one of them is."""
    if isinstance(affinity, Missing):
        return affinity
    if isinstance(cpuset, Missing):
        return cpuset
    if isinstance(quota, Missing):
        return quota
    limits = [affinity.value, None if cpuset.value is None else len(cpuset.value), quota.value]
    return Known(float(min(n for n in limits if n is not None)), cited(affinity, cpuset, quota))


def _model(host: Host, processors: Reading[tuple[Processor, ...]]) -> Reading[str]:
    named = _field(processors, "model name")
    if isinstance(named, Known):
        return named
    # ARM prints part numbers only; lscpu has their names.
    asked = answer(host.run("lscpu", ["lscpu", "-J"], TOOL_TIMEOUT_S), _lscpu_model)
    return asked if isinstance(asked, Known) or named.kind == "unsupported" else named


def _lscpu_model(text: str) -> str:
    for entry in objects(one_document(text, "lscpu").get("lscpu")):
        if str(entry.get("field", "")).strip() == "Model name:":
            name = text_or_none(entry.get("data"))
            if name is not None and name != "-":
                return name
    raise ParseError("unparsable", "lscpu names no model")


def _field(processors: Reading[tuple[Processor, ...]], *names: str) -> Reading[str]:
    """A field that all processors share; several values are joined: a machine of mixed parts must show."""
    if isinstance(processors, Missing):
        return processors
    values = [p.get(n) for p in processors.value for n in names if p.get(n)]
    different = list(dict.fromkeys(v for v in values if v))
    if not different:
        detail = msg("/proc/cpuinfo has no “{name}” on this architecture", name=names[0])
        return Missing("unsupported", detail, processors.evidence)
    return Known(" + ".join(different), processors.evidence)


def _signature(processors: Reading[tuple[Processor, ...]]) -> Reading[str]:
    parts = [_field(processors, n) for n in ("cpu family", "model", "stepping")]
    for part in parts:
        if isinstance(part, Missing):
            return part
    return Known("/".join(p.value for p in parts if isinstance(p, Known)), cited(*parts))


def _places(files: Files) -> Reading[tuple[Core, ...]]:
    packages = files.match(f"{_TOPOLOGY}/physical_package_id")
    found = []
    for path in packages:
        package = parsed(files.text(path), whole, path)
        core = parsed(files.text(path.replace("physical_package_id", "core_id")), whole, path)
        if isinstance(package, Missing):
            return package
        if isinstance(core, Missing):
            return core
        found.append(Core(package.value, core.value))
    # -1: a firmware that says nothing of packages.
    if not found or any(c.package < 0 for c in found):
        return Missing("unsupported", msg("the kernel shows no CPU topology"), files.cited)
    return Known(tuple(found), files.cited)


def _places_of(processors: Reading[tuple[Processor, ...]]) -> Reading[tuple[Core, ...]]:
    if isinstance(processors, Missing):
        return processors
    pairs = [(p.get("physical id"), p.get("core id")) for p in processors.value]
    cores = tuple(Core(int(a), int(b)) for a, b in pairs if a and b and a.isdigit() and b.isdigit())
    if len(cores) != len(pairs):
        return Missing("unsupported", msg("the kernel shows no CPU topology"), processors.evidence)
    return Known(cores, processors.evidence)


def _threads(files: Files, processors: Reading[tuple[Processor, ...]]) -> Reading[int]:
    online = parsed(files.text("/sys/devices/system/cpu/online"), proc.cpu_list, "the list of CPUs online")
    return first_known([fmap(len, online), fmap(len, processors)])


def _ratio(threads: Reading[int], cores: Reading[int]) -> Reading[float]:
    if isinstance(threads, Missing):
        return threads
    return fmap(lambda n: threads.value / n, cores)


def _affinity(files: Files) -> Reading[int]:
    status = parsed(files.text("/proc/self/status"), proc.status, "/proc/self/status")
    return parsed(status, _allowed, "/proc/self/status")


def _allowed(status: dict[str, str]) -> int:
    allowed = proc.cpu_list(status.get("Cpus_allowed_list", ""))
    if not allowed:
        raise ParseError("unparsable", "no Cpus_allowed_list")
    return len(allowed)


def _throttling(before: Files, after: Files, paths: list[str]) -> Reading[Optional[Throttling]]:
    first, last = _cgroup.throttled(before, paths), _cgroup.throttled(after, paths)
    if isinstance(first, Missing):
        return first
    if isinstance(last, Missing):
        return last
    if last.value is None:
        return Known(None, cited(first, last))
    return Known(Throttling(first.value or Throttled(0, 0, 0.0), last.value), cited(first, last))


def _steal(before: Files, after: Files) -> Reading[Steal]:
    first = parsed(before.text("/proc/stat"), proc.stat, "/proc/stat")
    last = parsed(after.text("/proc/stat"), proc.stat, "/proc/stat")
    if isinstance(first, Missing):
        return first
    if isinstance(last, Missing):
        return last
    return _share(first.value, last.value, cited(first, last))


def _share(first: CpuTimes, last: CpuTimes, evidence: tuple[str, ...]) -> Reading[Steal]:
    ticks = last.total - first.total
    stolen = last.steal - first.steal
    if ticks <= 0 or stolen < 0:
        return Missing("void", msg("the kernel's CPU times did not advance"), evidence)
    return Known(Steal(100.0 * stolen / ticks, ticks), evidence)


def _hypervisor(processors: Reading[tuple[Processor, ...]]) -> Reading[bool]:
    flags = _field(processors, "flags")  # x86 only: ARM's Features say nothing of it
    return fmap(lambda text: "hypervisor" in text.split(), flags)


def _governor(files: Files) -> Reading[str]:
    paths = files.match("/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor")
    named = sorted({r.value for r in map(files.text, paths) if isinstance(r, Known)})
    if not named:
        return Missing("not-there", msg("no CPU frequency governor is visible here"), files.cited)
    return Known(", ".join(named), files.cited)
