"""Whether a GPU is whole and one's own: MIG, vGPU, MPS, slicing libraries, other people's processes and memory.

Only signs are gathered here. That a card is whole shows in what it can do; that it is sliced shows here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from agent.facts import Asked
from agent.facts._read import answer, cited
from agent.facts.gpus import Gpu, GpusFacts
from agent.host import Files, Host
from agent.reading import Known, Missing, Reading, fmap
from agent.text import Text, msg
from agent.tools import ParseError

PS_TIMEOUT_S = 10.0
# MPS has a control daemon and a server; the kernel cuts both names to the same 15 characters.
DAEMONS = "nv-fabricmanager nvidia-persistenced nvidia-cuda-mps nv-hostengine nvidia-gridd nvidia-imex".split()
_PRELOAD = "/etc/ld.so.preload"
_MARKS = {
    "hami": ("/usr/local/vgpu/libvgpu.so", "/usr/local/vgpu", "/tmp/vgpulock", "/tmp/cudevshr.cache"),  # noqa: S108
    "cgpu": ("/proc/cgpu_km", "/dev/cgpu0"),
    "qgpu": ("/proc/qgpu", "/dev/qgpuctl"),
    "mps": ("/tmp/nvidia-mps/control",),  # noqa: S108
}
_SETTINGS = {
    "hami": re.compile(r"CUDA_DEVICE_(?:MEMORY_LIMIT\w*|SM_LIMIT|MEMORY_SHARED_CACHE)|CUDA_OVERSUBSCRIBE|HAMI_\w+"),
    "cgpu": re.compile(r"ALIYUN_COM_GPU_MEM_\w+|CGPU_\w+"),
    "qgpu": re.compile(r"QGPU_\w+|TENCENT_\w*GPU\w*"),
    "mps": re.compile(r"CUDA_MPS_(?:ACTIVE_THREAD_PERCENTAGE|PINNED_DEVICE_MEM_LIMIT|PIPE_DIRECTORY)"),
}
_LIBRARY = {
    "hami": re.compile(r"libvgpu\.so|/vgpu/"),
    "cgpu": re.compile(r"libcgpu|cgpu"),
    "fake": re.compile(r"fake[-_]?gpu|mock[-_]?nvml|nvml[-_]?mock", re.IGNORECASE),
}
FIRMWARE_MIB = 0.6 * 1024
"""What a card's own firmware may take; less than this without an owner is nobody's."""


@dataclass(frozen=True)
class Sign:
    """One sign that a GPU is sliced, shared or faked. ``kind``: hami, cgpu, qgpu, mps, preload, fake."""

    kind: str
    what: Text
    evidence: tuple[str, ...]


@dataclass(frozen=True)
class GpuShareFacts:
    """``preload``: libraries that ``/etc/ld.so.preload`` puts into every program; empty where there is none.

    ``marks``: files of slicing software that are there, by kind. ``daemons``: which of :data:`DAEMONS` run (in a
    container only its own processes are seen). ``persistenced``: whether its socket is there.
    """

    preload: Reading[tuple[str, ...]]
    marks: Reading[Mapping[str, tuple[str, ...]]]
    daemons: Reading[Mapping[str, bool]]
    persistenced: Reading[bool]


_SOCKET = "/run/nvidia-persistenced/socket"


def collect(host: Host, asked: Asked) -> GpuShareFacts:
    """Reads files and the names of running programs; MIG, vGPU and processes are among the GPU facts."""
    files = host.read("gpu-share", [_PRELOAD], names=[*(p for paths in _MARKS.values() for p in paths), _SOCKET])
    ran = host.run("ps", ["ps", "-e", "-o", "pid=,comm="], PS_TIMEOUT_S)
    return GpuShareFacts(
        preload=_preload(files),
        marks=_if_recorded(files, {k: t for k, ps in _MARKS.items() if (t := tuple(filter(files.exists, ps)))}),
        daemons=answer(ran, daemons),
        persistenced=fmap(lambda _: files.exists(_SOCKET), _if_recorded(files, {})),
    )


def daemons(text: str) -> Mapping[str, bool]:
    """Which of :data:`DAEMONS` a list of ``pid command`` holds; the kernel cuts names to 15 characters."""
    rows = [line.split(None, 1) for line in text.splitlines() if line.strip()]
    if not rows or not all(row[0].isdigit() for row in rows):
        raise ParseError("unparsable", "not a list of processes", text.partition("\n")[0])
    names = {row[1].strip()[:15] for row in rows if len(row) > 1}
    return {name: name[:15] in names for name in DAEMONS}


def _preload(files: Files) -> Reading[tuple[str, ...]]:
    """No such file means none."""
    text = files.text(_PRELOAD)
    if isinstance(text, Missing) and text.kind == "not-there":
        return Known((), files.cited)
    return fmap(lambda found: tuple(re.split(r"[\s:]+", re.sub(r"#.*", "", found).strip())) if found else (), text)


def _if_recorded(files: Files, found: Mapping[str, tuple[str, ...]]) -> Reading[Mapping[str, tuple[str, ...]]]:
    if not files.recorded:
        return Missing("not-recorded", msg("the recording holds no “{probe}”", probe=files.probe))
    return Known(found, files.cited)


# --- what follows from them ----------------------------------------------------------------------------


def signs(share: GpuShareFacts, gpus: GpusFacts) -> tuple[Sign, ...]:
    """Every sign of slicing or sharing that this environment shows."""
    found: list[Sign] = []
    if isinstance(share.preload, Known):
        found += [_preloaded(path, share.preload.evidence) for path in share.preload.value if path]
    if isinstance(share.marks, Known):
        found += [
            Sign(kind, msg("{path} is there", path=path), share.marks.evidence)
            for kind, paths in share.marks.value.items()
            for path in paths
        ]
    if isinstance(share.daemons, Known) and share.daemons.value.get("nvidia-cuda-mps"):
        found.append(Sign("mps", msg("a daemon of MPS is running"), share.daemons.evidence))
    if isinstance(gpus.environment, Known):
        found += _settings(gpus.environment.value, gpus.environment.evidence)
    return (*found, *_mapped(gpus))


def _preloaded(path: str, evidence: tuple[str, ...]) -> Sign:
    kind = next((k for k, pattern in _LIBRARY.items() if pattern.search(path)), "preload")
    return Sign(kind, msg("{file} puts {library} into every program", file=_PRELOAD, library=path), evidence)


def _settings(environment: Mapping[str, str], evidence: tuple[str, ...]) -> list[Sign]:
    found = [
        Sign(kind, msg("the environment sets {name}={value}", name=name, value=value), evidence)
        for name, value in environment.items()
        for kind, pattern in _SETTINGS.items()
        if pattern.fullmatch(name)
    ]
    for path in re.split(r"[\s:]+", environment.get("LD_PRELOAD", "")):
        kind = next((k for k, pattern in _LIBRARY.items() if pattern.search(path)), None)
        if kind is not None:
            found.append(Sign(kind, msg("LD_PRELOAD names {library}", library=path), evidence))
    return found


def _mapped(gpus: GpusFacts) -> list[Sign]:
    evidence = gpus.library.evidence
    return [
        Sign(kind, msg("{library} came into the process that asked NVML", library=path), evidence)
        for path in gpus.libraries
        for kind, pattern in _LIBRARY.items()
        if pattern.search(path)
    ]


def unowned(gpu: Gpu) -> Reading[float]:
    """MiB in use that no listed process owns; the driver's own reserve does not count where NVML tells it apart.

    Read before our own first context. Missing where a process does not say how much it has.
    """
    used, listed = gpu.nvml.get("memory_used_mib"), gpu.nvml.get("processes")
    if isinstance(used, Missing) or isinstance(listed, Missing):
        used, listed = gpu.smi.get("memory_used_mib"), gpu.smi.get("processes")
    if isinstance(used, Missing):
        return used
    if isinstance(listed, Missing):
        return listed
    evidence = cited(used, listed)
    owned: Sequence[Optional[float]] = [process.used_mib for process in listed.value]
    known = [mib for mib in owned if mib is not None]
    if len(known) < len(owned):
        return Missing("unsupported", msg("a process does not tell how much memory it has"), evidence)
    return Known(max(0.0, used.value - sum(known)), evidence)
