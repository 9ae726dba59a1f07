"""Control groups of this process, version 1 and 2: which folders limit it, and the limits in them.

Membership and mounts come first (``/proc/self/cgroup``, ``/proc/self/mountinfo``), then the limit files of this
group and of every group above it that is visible: the tightest one holds (cgroups(7), kernel docs cgroup-v2).
Limits set above a container's own namespace cannot be seen from inside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Callable, Optional

from agent.facts._read import parsed
from agent.host import Files, Host
from agent.reading import Known, Missing, Reading
from agent.text import msg
from agent.tools import ParseError, mountinfo, proc
from agent.tools.mountinfo import Mount

# Kernels print "no limit" of version 1 as the largest page-aligned number, or -1.
V1_NO_LIMIT = 1 << 60
V1_FILES = {
    "cpu": ("cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.stat"),
    "cpuset": ("cpuset.effective_cpus", "cpuset.cpus"),
    "memory": ("memory.limit_in_bytes",),
    "pids": ("pids.max",),
}
V2_FILES = {
    "cpu": ("cpu.max", "cpu.stat"),
    "cpuset": ("cpuset.cpus.effective",),
    "memory": ("memory.max",),
    "pids": ("pids.max",),
}
Level = Callable[[Files, str], Reading[Optional[float]]]


@dataclass(frozen=True)
class Place:
    """Where one controller limits this process: its version and its folders, from its own upwards."""

    version: int
    folders: tuple[str, ...]


@dataclass(frozen=True)
class Groups:
    """The folders of each controller; None: this kernel has no such controller, so there is no limit."""

    places: Mapping[str, Reading[Optional[Place]]]
    files: Files
    evidence: tuple[str, ...] = field(default=())


def collect(host: Host, controllers: Sequence[str], probe: str) -> Groups:
    """Find the groups and read the limit files of these controllers, in two probes."""
    self = host.read(f"{probe}-self", ["/proc/self/cgroup", "/proc/self/mountinfo"])
    places = {c: place(self, c) for c in controllers}
    wanted = [f for c, p in places.items() if isinstance(p, Known) for f in _wanted(c, p.value)]
    files = host.read(f"{probe}-limits", wanted)
    return Groups(places, files, (*self.cited, *files.cited))


def _wanted(controller: str, found: Optional[Place]) -> list[str]:
    if found is None:
        return []
    names = (V1_FILES if found.version == 1 else V2_FILES)[controller]
    return [f"{folder}/{name}" for folder in found.folders for name in names]


def place(self: Files, controller: str) -> Reading[Optional[Place]]:
    """Where ``controller`` limits this process; no line in ``/proc/self/cgroup`` means that nothing does."""
    text = self.text("/proc/self/cgroup")
    if isinstance(text, Missing) and text.kind == "not-there":
        return Known(None, self.cited)  # a kernel without control groups
    member = parsed(text, proc.process_cgroups, "/proc/self/cgroup")
    mounts = parsed(self.text("/proc/self/mountinfo"), mountinfo.parse, "/proc/self/mountinfo")
    if isinstance(member, Missing):
        return member
    if isinstance(mounts, Missing):
        return mounts
    version = 1 if controller in member.value else 2
    path = member.value.get(controller, member.value.get(""))
    if path is None:
        return Known(None, self.cited)
    mount = _mount(mounts.value, controller, version)
    if mount is None:
        detail = msg("the control groups of “{name}” are not mounted: its limit cannot be seen", name=controller)
        return Missing("not-there", detail, self.cited, msg("mount /sys/fs/cgroup here, read-only is enough"))
    return Known(Place(version, _upwards(mount, path)), self.cited)


def _mount(mounts: Sequence[Mount], controller: str, version: int) -> Optional[Mount]:
    if version == 2:
        return next((m for m in mounts if m.fstype == "cgroup2"), None)
    return next((m for m in mounts if m.fstype == "cgroup" and controller in m.super_options), None)


def _upwards(mount: Mount, path: str) -> tuple[str, ...]:
    """This group's folder and all above it up to the mount point.

    A container that sees only its own part of the tree has it as the mount's root; then, and where the path
    leads outside (``/..``), the mount point is the group itself.
    """
    root = mount.root.rstrip("/")
    inside = path[len(root) :] if (path + "/").startswith(root + "/") else ""
    parts = [p for p in inside.split("/") if p]
    if ".." in parts:
        parts = []
    return tuple("/".join([mount.point.rstrip("/"), *parts[:n]]) for n in range(len(parts), -1, -1))


def tightest(groups: Groups, controller: str, level: Level) -> Reading[Optional[float]]:
    """The smallest limit of this group and those above; None when nothing limits.

    A file that is not there sets no limit (the root group has none); one that may not be read leaves the limit
    unknown.
    """
    found = groups.places[controller]
    if isinstance(found, Missing):
        return found
    if found.value is None:
        return Known(None, found.evidence)
    readings = [level(groups.files, f) for f in found.value.folders]
    broken = next((r for r in readings if isinstance(r, Missing)), None)
    if broken is not None:
        return broken
    limits = [r.value for r in readings if isinstance(r, Known) and r.value is not None]
    return Known(min(limits) if limits else None, groups.evidence)


def cpu_quota(groups: Groups) -> Reading[Optional[float]]:
    """CPUs' worth of time that the group may use: quota / period."""
    return tightest(groups, "cpu", _cpu_level)


def memory_limit(groups: Groups) -> Reading[Optional[float]]:
    """Bytes that the group may use."""
    return tightest(groups, "memory", lambda files, folder: _single(files, folder, "memory"))


def pids_limit(groups: Groups) -> Reading[Optional[float]]:
    """Processes and threads that the group may have."""
    return tightest(groups, "pids", lambda files, folder: _single(files, folder, "pids"))


def _cpu_level(files: Files, folder: str) -> Reading[Optional[float]]:
    if f"{folder}/cpu.max" in files.texts:
        return parsed(files.text(f"{folder}/cpu.max"), _cpu_max, "cpu.max")
    quota, period = files.text(f"{folder}/cpu.cfs_quota_us"), files.text(f"{folder}/cpu.cfs_period_us")
    for reading in (quota, period, files.text(f"{folder}/cpu.max")):
        if isinstance(reading, Missing) and reading.kind != "not-there":
            return reading
    if isinstance(quota, Missing) or isinstance(period, Missing):
        return Known(None, files.cited)
    return parsed(Known(f"{quota.value} {period.value}", files.cited), _cpu_max, "cpu.cfs_quota_us")


def _cpu_max(text: str) -> Optional[float]:
    """``quota period`` in microseconds; ``max`` (version 2) and -1 (version 1) are no quota."""
    parts = text.split()
    if len(parts) != 2:
        raise ParseError("unparsable", "not a CPU quota", text)
    if parts[0] in ("max", "-1"):
        return None
    if int(parts[0]) <= 0 or int(parts[1]) <= 0:
        raise ParseError("unparsable", "not a CPU quota", text)
    return int(parts[0]) / int(parts[1])


def _single(files: Files, folder: str, controller: str) -> Reading[Optional[float]]:
    names = dict.fromkeys((*V2_FILES[controller], *V1_FILES[controller]))
    for name in names:
        reading = files.text(f"{folder}/{name}")
        if isinstance(reading, Known) or reading.kind != "not-there":
            return parsed(reading, _bytes_or_none, name)
    return Known(None, files.cited)


def _bytes_or_none(text: str) -> Optional[float]:
    if text.strip() == "max":
        return None
    value = int(text)
    return None if value < 0 or value >= V1_NO_LIMIT else float(value)


def cpuset(groups: Groups) -> Reading[Optional[frozenset[int]]]:
    """CPUs that the group may use; None where no cpuset is set."""
    found = groups.places["cpuset"]
    if isinstance(found, Missing):
        return found
    if found.value is None:
        return Known(None, found.evidence)
    for folder in found.value.folders:
        for name in ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"):
            reading = groups.files.text(f"{folder}/{name}")
            if isinstance(reading, Known) and reading.value.strip():
                return parsed(reading, proc.cpu_list, name)
            if isinstance(reading, Missing) and reading.kind != "not-there":
                return reading
    return Known(None, groups.evidence)


@dataclass(frozen=True)
class Throttled:
    """Of ``periods`` in which the group ran, those in which it was stopped by its quota, since it was made."""

    periods: int
    throttled: int
    seconds: float


def stat_files(groups: Groups) -> list[str]:
    """The ``cpu.stat`` files to read again later."""
    found = groups.places["cpu"]
    folders = found.value.folders if isinstance(found, Known) and found.value else ()
    return [f"{folder}/cpu.stat" for folder in folders]


def throttled(files: Files, paths: Sequence[str]) -> Reading[Optional[Throttled]]:
    """The counters of the lowest group that has a quota's counters; None: nothing here counts them."""
    for path in paths:
        reading = files.text(path)
        if isinstance(reading, Missing) and reading.kind == "not-there":
            continue
        counters = parsed(reading, proc.key_values, path)
        if isinstance(counters, Missing):
            return counters
        if counters.value.get("nr_periods"):
            return Known(_throttled(counters.value), files.cited)
    return Known(None, files.cited)


def _throttled(counters: Mapping[str, int]) -> Throttled:
    seconds = counters.get("throttled_usec", 0) / 1e6 or counters.get("throttled_time", 0) / 1e9
    return Throttled(counters["nr_periods"], counters.get("nr_throttled", 0), seconds)
