"""The operating system, what it runs in, its limits, and the software that a contract names."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, replace
from typing import Any, Optional

from agent import probes
from agent.facts import Asked, _cgroup
from agent.facts._read import answer, first_known, last_line, parsed, refused, unparsable
from agent.host import Files, Host, Ran
from agent.reading import Known, Missing, Reading, fmap
from agent.text import msg
from agent.tools import ParseError, mountinfo, proc
from agent.tools._text import mapping, one_document, text_or_none

TOOL_TIMEOUT_S = 10.0
_SHM = "/dev/shm"  # noqa: S108 - only its size is read
# Docker's client waits long for a daemon that hangs; nvidia-container-cli loads the driver's library.
DOCKER_TIMEOUT_S = 15.0
_DMI = "/sys/class/dmi/id"
_HYPERVISORS = (
    ("kvm", r"\bkvm\b|qemu|openstack|alibaba|tencent|google compute|amazon ec2|digitalocean|hetzner"),
    ("vmware", r"vmware"),
    ("microsoft", r"virtual machine"),
    ("xen", r"\bxen\b|hvm domu"),
    ("oracle", r"virtualbox"),
    ("parallels", r"parallels"),
    ("bhyve", r"bhyve"),
)
_CONTAINERS = (
    ("kubernetes", r"kubepods"),
    ("docker", r"/docker[-/]|docker-[0-9a-f]{64}"),
    ("podman", r"libpod"),
    ("lxc", r"/lxc[./]|lxc\.payload"),
    ("containerd", r"cri-containerd|/containerd/"),
)


@dataclass(frozen=True)
class Os:
    """``id`` as os-release has it (``ubuntu``), its ``name``, and ``version`` (``22.04``), which some lack."""

    id: str
    name: str
    version: Optional[str]
    like: tuple[str, ...]
    pretty: str


@dataclass(frozen=True)
class TimeSync:
    """What the kernel says of its own clock (adjtimex): ``max_error_s`` is its bound on the error."""

    synchronised: bool
    max_error_s: float


@dataclass(frozen=True)
class Rlimit:
    """Soft and hard limit of this process; None is unlimited. Programs get the soft one."""

    soft: Optional[int]
    hard: Optional[int]


@dataclass(frozen=True)
class Docker:
    """Versions of the client, and of the daemon where it answered; else why it did not."""

    client: Optional[str]
    server: Reading[str]


@dataclass(frozen=True)
class SystemFacts:
    """``container`` and ``virtualisation`` are a kind or ``none``. ``machine`` is a hash of the machine id.

    ``docker``, ``container_toolkit``, ``cuda_toolkit``: missing as ``not-there`` where nothing of the kind is
    installed. ``nvidia_driver`` is whether a driver is loaded, ``python`` the version of the ``python3`` on the PATH.
    """

    os: Reading[Os]
    kernel: Reading[str]
    hostname: Reading[str]
    machine: Reading[str]
    boot_id: Reading[str]
    uptime_s: Reading[float]
    container: Reading[str]
    virtualisation: Reading[str]
    product: Reading[str]
    time_sync: Reading[TimeSync]
    uid: Reading[int]
    capabilities: Reading[int]
    shm: Reading[int]
    memlock: Reading[Rlimit]
    nofile: Reading[Rlimit]
    nproc: Reading[Rlimit]
    pids: Reading[Optional[int]]
    docker: Reading[Docker]
    container_toolkit: Reading[str]
    cuda_toolkit: Reading[str]
    nvidia_driver: Reading[bool]
    python: Reading[str]


_FILES = (
    "/etc/os-release",
    "/usr/lib/os-release",
    "/etc/debian_version",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/hostname",
    "/etc/machine-id",
    "/proc/sys/kernel/random/boot_id",
    "/proc/uptime",
    "/proc/self/status",
    "/proc/self/limits",
    "/proc/1/cgroup",
    "/proc/self/cgroup",
    "/proc/self/mountinfo",
    "/proc/cpuinfo",
    "/run/systemd/container",
    "/proc/driver/nvidia/version",
    "/sys/hypervisor/type",
    "/usr/local/cuda/version.json",
    "/usr/local/cuda/version.txt",
    *(f"{_DMI}/{name}" for name in ("sys_vendor", "product_name", "bios_vendor")),
)
_ENGINE_MARKS = {
    "/var/run/secrets/kubernetes.io": "kubernetes",
    "/run/.containerenv": "podman",
    "/.dockerenv": "docker",
}
_MARKS = (*_ENGINE_MARKS, "/proc/self")


def _release(text: str) -> str:
    """``5.15.0-126-generic`` as it stands; anything else is no kernel."""
    if re.match(r"\d+\.\d+", text) is None:
        raise ParseError("unparsable", "not a kernel's release", text)
    return text


def collect(host: Host, asked: Asked) -> SystemFacts:
    """Reads files and asks for versions; the daemon of Docker is asked only through its client."""
    files = host.read("system", _FILES, names=_MARKS)
    status = parsed(files.text("/proc/self/status"), proc.status, "/proc/self/status")
    limits = parsed(files.text("/proc/self/limits"), proc.limits, "/proc/self/limits")
    pids = _cgroup.pids_limit(_cgroup.collect(host, ["pids"], "cgroup-pids"))
    return SystemFacts(
        os=_os(files),
        kernel=parsed(files.text("/proc/sys/kernel/osrelease"), _release, "/proc/sys/kernel/osrelease"),
        hostname=files.text("/proc/sys/kernel/hostname"),
        machine=_machine(files),
        boot_id=files.text("/proc/sys/kernel/random/boot_id"),
        uptime_s=parsed(files.text("/proc/uptime"), lambda text: float(text.split()[0]), "/proc/uptime"),
        container=_container(files, host.run("detect-container", [_DETECT, "--container"], TOOL_TIMEOUT_S)),
        virtualisation=_virtualisation(files, host.run("detect-vm", [_DETECT, "--vm"], TOOL_TIMEOUT_S)),
        product=_product(files),
        time_sync=_time_sync(host),
        uid=parsed(status, lambda s: int(s["Uid"].split()[0]), "/proc/self/status"),
        capabilities=parsed(status, lambda s: int(s["CapEff"], 16), "/proc/self/status"),
        shm=_shm(host),
        memlock=_rlimit(limits, "Max locked memory"),
        nofile=_rlimit(limits, "Max open files"),
        nproc=_rlimit(limits, "Max processes"),
        pids=fmap(lambda found: None if found is None else int(found), pids),
        docker=_docker(host),
        container_toolkit=_container_toolkit(host),
        cuda_toolkit=_cuda_toolkit(host, files),
        nvidia_driver=_nvidia_driver(files),
        python=answer(host.run("python3", ["python3", "--version"], TOOL_TIMEOUT_S), _python),
    )


_DETECT = "systemd-detect-virt"


def _os(files: Files) -> Reading[Os]:
    text = first_known([files.text("/etc/os-release"), files.text("/usr/lib/os-release")])
    debian = files.text("/etc/debian_version")
    return parsed(text, lambda found: release(found, debian.value if isinstance(debian, Known) else ""), "os-release")


def release(text: str, debian_version: str = "") -> Os:
    """The system of an os-release text, with its point release where one of its fields has it."""
    found = proc.os_release(text)
    name = found.get("NAME") or found.get("ID")
    if not name:
        raise ParseError("unparsable", "os-release names no system")
    version = found.get("VERSION_ID") or None
    pretty = found.get("PRETTY_NAME") or f"{name} {version or ''}".strip()
    # VERSION_ID is often the release alone (22.04, 12); the point release stands elsewhere.
    elsewhere = f"{found.get('VERSION', '')} {pretty} {debian_version if found.get('ID') == 'debian' else ''}"
    for point in re.findall(r"\d+(?:\.\d+)+", elsewhere):
        if version and point.startswith(f"{version}."):
            version = point
    return Os(found.get("ID", name).lower(), name, version, tuple(found.get("ID_LIKE", "").split()), pretty)


def _machine(files: Files) -> Reading[str]:
    """machine-id(5): it must not leave the machine, so it is hashed with a word of our own."""
    text = files.text("/etc/machine-id")
    if isinstance(text, Known) and not re.fullmatch(r"[0-9a-f]{32}", text.value.strip()):
        return Missing("not-there", msg("/etc/machine-id holds no machine id"), text.evidence)
    return fmap(lambda found: hashlib.sha256(f"accept:{found.strip()}".encode()).hexdigest()[:32], text)


def _container(files: Files, ran: Ran) -> Reading[str]:
    """By the engine's own marks, else ``systemd-detect-virt``; ``none`` only where something could tell."""
    for path, kind in _ENGINE_MARKS.items():
        if files.exists(path):
            return Known(kind, files.cited)
    texts = [files.text(p) for p in ("/proc/1/cgroup", "/proc/self/cgroup")]
    groups = "\n".join(t.value for t in texts if isinstance(t, Known))
    for kind, pattern in _CONTAINERS:
        if re.search(pattern, groups):
            return Known(kind, files.cited)
    named = files.text("/run/systemd/container")
    if isinstance(named, Known) and named.value.strip():
        return Known(named.value.strip(), files.cited)
    detected = _detected(ran)
    if isinstance(detected, Known) or detected.kind == "not-recorded":
        return detected
    mounts = parsed(files.text("/proc/self/mountinfo"), mountinfo.parse, "/proc/self/mountinfo")
    root = mountinfo.under(mounts.value, "/") if isinstance(mounts, Known) else None
    if root is not None and root.fstype in ("overlay", "aufs"):
        return Known("container", files.cited)
    # Process 1 of a host is systemd in its own scope; a container with its own namespace shows "/".
    return Known("none", files.cited) if "/init.scope" in groups else detected


def _virtualisation(files: Files, ran: Ran) -> Reading[str]:
    detected = _detected(ran)
    if isinstance(detected, Known):
        return detected
    product = _product(files)
    if isinstance(product, Known):
        for kind, pattern in _HYPERVISORS:
            if re.search(pattern, product.value, re.IGNORECASE):
                return Known(kind, product.evidence)
    xen = files.text("/sys/hypervisor/type")
    if isinstance(xen, Known) and xen.value.strip():
        return Known(xen.value.strip(), files.cited)
    cpus = files.text("/proc/cpuinfo")
    if isinstance(cpus, Known) and re.search(r"^flags\s*:.*\bhypervisor\b", cpus.value, re.MULTILINE):
        return Known("unknown hypervisor", files.cited)
    if isinstance(cpus, Known) and re.search(r"^flags\s*:", cpus.value, re.MULTILINE):
        return Known("none", files.cited)  # x86 processors show a hypervisor by that flag
    return detected


def _detected(ran: Ran) -> Reading[str]:
    """``systemd-detect-virt`` prints ``none`` with status 1."""
    missing = ran.missing()
    if missing is not None:
        return missing
    word = last_line(ran.stdout)
    if not re.fullmatch(r"[a-z0-9-]+", word):
        return refused(ran) or unparsable(_DETECT, word, ran.cited)
    return Known(word, ran.cited)


def _product(files: Files) -> Reading[str]:
    texts = [files.text(f"{_DMI}/{name}") for name in ("sys_vendor", "product_name", "bios_vendor")]
    known = [t.value.strip() for t in texts if isinstance(t, Known) and t.value.strip()]
    return Known(" / ".join(dict.fromkeys(known)), files.cited) if known else first_known(texts)


def _time_sync(host: Host) -> Reading[TimeSync]:
    ran = probes.ask(host, "host-system", "host_probe", [probes.psutil_folder()], TOOL_TIMEOUT_S)
    return parsed(answer(ran, lambda text: one_document(text, "host_probe")), _clock, "the kernel's clock")


def _clock(answered: dict[str, Any]) -> TimeSync:
    clock = mapping(answered.get("clock"))
    if not isinstance(clock.get("synchronised"), bool) or not isinstance(clock.get("max_error_s"), (int, float)):
        raise ParseError("unparsable", "the kernel says nothing of its clock")
    return TimeSync(clock["synchronised"], float(clock["max_error_s"]))


def _shm(host: Host) -> Reading[int]:
    """Size of ``/dev/shm`` in bytes."""
    ran = probes.ask(host, "shm", "path_probe", [_SHM], TOOL_TIMEOUT_S)
    found = answer(ran, lambda text: one_document(text, "path_probe"))
    if isinstance(found, Known) and not found.value.get("exists"):
        return Missing("not-there", msg("{path} does not exist", path=_SHM), found.evidence)
    return parsed(found, _total, _SHM)


def _total(found: dict[str, Any]) -> int:
    total = found.get("total_bytes")
    if not isinstance(total, int):
        raise ParseError("unparsable", f"the probe names no size ({found.get('error')})")
    return total


def _rlimit(limits: Reading[dict[str, tuple[Optional[int], Optional[int]]]], name: str) -> Reading[Rlimit]:
    if isinstance(limits, Known) and name not in limits.value:
        return Missing("unsupported", msg("the kernel lists no “{name}”", name=name), limits.evidence)
    return fmap(lambda found: Rlimit(*found[name]), limits)


def _docker(host: Host) -> Reading[Docker]:
    ran = host.run("docker", ["docker", "version", "--format", "{{json .}}"], DOCKER_TIMEOUT_S)
    missing = ran.missing()
    if missing is not None:
        return _absent(missing)
    try:
        document = json.loads(ran.stdout.strip() or "null")
    except (ValueError, RecursionError):
        document = None
    client = text_or_none(mapping(mapping(document).get("Client")).get("Version"))
    if client is None:  # the client itself always answers: whatever this is, it is no word about the daemon
        return refused(ran, "membership of the group docker") or unparsable("docker", ran.stdout[:80], ran.cited)
    server = text_or_none(mapping(mapping(document).get("Server")).get("Version"))
    if server is not None:
        return Known(Docker(client, Known(server, ran.cited)), ran.cited)
    silent = refused(ran, "membership of the group docker")
    detail = msg("docker is installed, but its daemon does not answer")
    return Known(Docker(client, silent or Missing("failed", detail, ran.cited)), ran.cited)


def _absent(missing: Missing) -> Missing:
    """That the promised program itself is not installed is a fact, not a tool of ours that lacks."""
    return replace(missing, kind="not-there") if missing.kind == "no-tool" else missing


def _container_toolkit(host: Host) -> Reading[str]:
    """Version of ``nvidia-ctk``, else of the older ``nvidia-container-cli``."""
    ctk = host.run("nvidia-ctk", ["nvidia-ctk", "--version"], TOOL_TIMEOUT_S)
    newer = answer(ctk, lambda text: _version(text, r"version\s+v?(\d[\w.+~-]*)"))
    if isinstance(newer, Known):
        return newer
    cli = host.run("nvidia-container-cli", ["nvidia-container-cli", "--version"], TOOL_TIMEOUT_S)
    older = answer(cli, lambda text: _version(text, r"(?:cli-)?version:\s*v?(\d[\w.+~-]*)"))
    if isinstance(older, Known):
        return older
    return _absent(older if newer.kind == "no-tool" else newer)


def _cuda_toolkit(host: Host, files: Files) -> Reading[str]:
    """Release of the compiler on the PATH, else in /usr/local/cuda, else what its version file says."""
    readings = [
        answer(host.run(f"nvcc-{name}", [program, "--version"], TOOL_TIMEOUT_S), _nvcc)
        for name, program in (("path", "nvcc"), ("default", "/usr/local/cuda/bin/nvcc"))
    ]
    by_json = parsed(files.text("/usr/local/cuda/version.json"), _version_json, "version.json")
    plain = files.text("/usr/local/cuda/version.txt")
    by_text = parsed(plain, lambda text: _version(text, r"CUDA Version (\S+)"), "version.txt")
    found = first_known([*readings, by_json, by_text])
    if isinstance(found, Missing) and found.kind == "no-tool":
        detail = msg("no nvcc on the PATH and no CUDA toolkit in /usr/local/cuda")
        return Missing("not-there", detail, found.evidence, msg("put the toolkit's nvcc on the PATH"))
    return found


def _nvcc(text: str) -> str:
    """``release 12.4, V12.4.131``: the full version where it is printed."""
    return _version(text, r"release \S+, V(\d+(?:\.\d+)+)|release (\d+(?:\.\d+)+)")


def _python(text: str) -> str:
    return _version(text, r"Python (\d+(?:\.\d+)+\S*)")


def _version(text: str, pattern: str) -> str:
    match = re.search(pattern, text)
    if match is None:
        raise ParseError("unparsable", "no version", text.strip().partition("\n")[0])
    return next(g for g in match.groups() if g)


def _version_json(text: str) -> str:
    version = text_or_none(mapping(one_document(text, "version.json").get("cuda")).get("version"))
    if version is None:
        raise ParseError("unparsable", "names no CUDA version")
    return version


def _nvidia_driver(files: Files) -> Reading[bool]:
    text = files.text("/proc/driver/nvidia/version")
    if isinstance(text, Known):
        return Known(True, text.evidence)
    # Only where /proc can be seen at all does the file's absence mean anything.
    return Known(False, text.evidence) if text.kind == "not-there" and files.exists("/proc/self") else text
