"""What NVML says of every GPU, from the JSON lines of ``agent/probes/nvml_probe.py``.

NVML's numbers and error names become the readings of :mod:`agent.tools._source`. A value that NVML refuses is
Missing with the refusal's name: never 0, "" or False.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Callable, Optional

from agent.reading import Known, Missing, MissingKind, Reading
from agent.text import msg
from agent.tools import ParseError
from agent.tools._nvidia import pci_slot, plain
from agent.tools._source import Fabric, NvLink, Process, Source
from agent.tools._text import integer, json_documents, mapping, number, objects, text_or_none

CALL_S = 10.0
"""One call's deadline in the child; the first one, which may wake the driver, has ten times as long."""
TIMEOUT_S = 240.0
CHILDREN = 3
"""How many children may be started: a call that hangs ends one."""

ERRORS = (
    "SUCCESS UNINITIALIZED INVALID_ARGUMENT NOT_SUPPORTED NO_PERMISSION ALREADY_INITIALIZED NOT_FOUND "
    "INSUFFICIENT_SIZE INSUFFICIENT_POWER DRIVER_NOT_LOADED TIMEOUT IRQ_ISSUE LIBRARY_NOT_FOUND FUNCTION_NOT_FOUND "
    "CORRUPTED_INFOROM GPU_IS_LOST RESET_REQUIRED OPERATING_SYSTEM LIB_RM_VERSION_MISMATCH IN_USE MEMORY NO_DATA "
    "VGPU_ECC_NOT_SUPPORTED INSUFFICIENT_RESOURCES FREQ_NOT_SUPPORTED ARGUMENT_VERSION_MISMATCH DEPRECATED NOT_READY "
    "GPU_NOT_FOUND INVALID_STATE RESET_TYPE_NOT_SUPPORTED"
).split()
_UNSUPPORTED = frozenset(
    f"NVML_ERROR_{name}"
    for name in (
        "NOT_SUPPORTED FUNCTION_NOT_FOUND ARGUMENT_VERSION_MISMATCH VGPU_ECC_NOT_SUPPORTED DEPRECATED "
        "FREQ_NOT_SUPPORTED"
    ).split()
)
_ARCHITECTURES = {
    2: "Kepler", 3: "Maxwell", 4: "Pascal", 5: "Volta", 6: "Turing", 7: "Ampere", 8: "Ada", 9: "Hopper",
    10: "Blackwell", 13: "Rubin",
}  # fmt: skip
_BRANDS = {
    1: "quadro", 2: "tesla", 3: "nvs", 4: "grid", 5: "geforce", 6: "titan", 7: "vapps", 8: "vpc", 9: "vcs",
    10: "vws", 11: "vgaming", 12: "quadro-rtx", 13: "rtx", 14: "nvidia", 15: "geforce-rtx", 16: "titan-rtx",
}  # fmt: skip
_VIRTUALISATION = {0: "none", 1: "passthrough", 2: "vgpu", 3: "host-vgpu", 4: "host-vsga"}
_COMPUTE_MODES = {0: "default", 1: "exclusive-thread", 2: "prohibited", 3: "exclusive-process"}
_RECOVERY = {
    0: "none", 1: "reset", 2: "reboot", 3: "drain-p2p", 4: "drain-and-reset", 5: "recover-imex", 6: "bus-reset",
    7: "system-reboot",
}  # fmt: skip
_P2P = {0: "OK", 1: "CNS", 2: "GNS", 3: "TNS", 4: "DR", 5: "NS", 6: "U"}
_REMOTE = {0: "gpu", 1: "cpu", 2: "switch"}
_FABRIC_STATES = {0: "not-supported", 1: "not-started", 2: "in-progress", 3: "completed"}
_HEALTH = {1: "healthy", 2: "unhealthy", 3: "limited"}


@dataclass(frozen=True)
class Hung:
    """The call that gave no answer; ``gpu`` is None where it was about no single GPU."""

    gpu: Optional[int]
    call: str
    seconds: float


@dataclass(frozen=True)
class NvmlGpu:
    """One GPU by NVML's index. ``slot`` is None where it could not be opened; ``source.absent`` then says why."""

    index: int
    slot: Optional[str]
    source: Source


@dataclass(frozen=True)
class Nvml:
    """One child's answer, or several merged.

    ``cuda_driver`` is the newest CUDA version of this driver (``12.4``). ``p2p``: by pair of indices, by capability
    (read, write, nvlink, atomics), ``OK`` or the reason as ``nvidia-smi topo -p2p`` prints it; a refused one is left
    out. ``libraries``: all that was mapped as code in the child. ``hung``, ``ended`` (it was ended from outside) and
    ``done`` say how it ended.
    """

    version: Reading[str]
    driver: Reading[str]
    cuda_driver: Reading[str]
    library: Reading[str]
    libraries: tuple[str, ...]
    count: Reading[int]
    gpus: Mapping[int, NvmlGpu]
    p2p: Mapping[tuple[int, int], Mapping[str, str]] = field(default_factory=dict)
    hung: Optional[Hung] = None
    done: bool = False
    ended: Optional[Missing] = None


def missing(error: str, evidence: tuple[str, ...] = (), detail: Optional[str] = None) -> Missing:
    """Why there is no value, from NVML's own name of the error."""
    kind: MissingKind = "failed"
    grant = None
    if error in _UNSUPPORTED:
        kind = "unsupported"
    elif error in ("NVML_ERROR_NO_PERMISSION", "NVML_ERROR_OPERATING_SYSTEM"):
        kind, grant = "denied", msg("root, or access to the GPU's device files")
    elif error == "NVML_ERROR_LIBRARY_NOT_FOUND":
        kind, grant = "no-tool", msg("install the NVIDIA driver's library libnvidia-ml.so.1")
    elif error.startswith("no pynvml"):
        kind, grant = "no-tool", msg("install {tool}", tool="nvidia-ml-py")
    elif error == "NVML_ERROR_TIMEOUT":
        kind = "timeout"
    elif error.startswith("unreadable"):
        kind = "unparsable"
    said = f"{error} ({detail})" if detail else error
    return Missing(kind, msg("NVML: {error}", error=said), evidence, grant)


def parse(text: str, evidence: tuple[str, ...] = ()) -> Nvml:
    """The lines of one child. A last line that is cut off is left out: the child was ended in the middle of it.

    Raises :class:`ParseError` where the text has neither a header nor the call that hung before it.
    """
    lines = _lines(text)
    hung = next((_hung(line["hung"]) for line in lines if isinstance(line.get("hung"), dict)), None)
    if not lines or (not isinstance(lines[0].get("nvml"), dict) and hung is None):
        raise ParseError("unparsable", "not the lines of nvml_probe", text[:80])
    head = mapping(lines[0].get("nvml"))
    broken = missing(head["error"], evidence, head.get("detail")) if isinstance(head.get("error"), str) else None
    if not head and hung is not None:
        broken = timed_out(hung, evidence)
    gpus = [_gpu(line, evidence) for line in lines if isinstance(line.get("gpu"), int)]
    if hung is not None and hung.gpu is not None:
        gpus = [_with_absent(g, timed_out(hung, evidence)) if g.index == hung.gpu else g for g in gpus]
    library = text_or_none(head.get("library"))
    unknown = Missing("not-there", msg("NVML's library is not in the child's memory map"), evidence)
    return Nvml(
        version=broken or _reading(head.get("version"), _text, evidence),
        driver=broken or _reading(head.get("driver"), _text, evidence),
        cuda_driver=broken or _reading(head.get("cuda_driver"), _cuda, evidence),
        library=Known(library, evidence) if library else broken or unknown,
        libraries=tuple(p for p in head.get("libraries") or () if isinstance(p, str)),
        count=broken or _reading(lines[0].get("count"), integer, evidence),
        gpus={g.index: g for g in gpus},
        p2p=_p2p(mapping(next((line["p2p"] for line in lines if "p2p" in line), {}))),
        hung=hung,
        done=any(line.get("done") is True for line in lines),
    )


def merge(parts: Sequence[Nvml]) -> Nvml:
    """Several children in order: the first header, each GPU from the child that read it, the last child's end."""
    gpus: dict[int, NvmlGpu] = {}
    for part in parts:
        for index, gpu in part.gpus.items():
            gpus.setdefault(index, gpu)
    first, last = parts[0], parts[-1]
    return Nvml(
        first.version, first.driver, first.cuda_driver, first.library, first.libraries, first.count, gpus,
        last.p2p, next((p.hung for p in parts if p.hung), None), last.done, last.ended,
    )  # fmt: skip


def timed_out(hung: Hung, evidence: tuple[str, ...]) -> Missing:
    """That a call of NVML gave no answer."""
    seconds = f"{hung.seconds:.0f}"
    return Missing("timeout", msg("NVML gave no answer to “{call}” in {s} s", call=hung.call, s=seconds), evidence)


def _lines(text: str) -> list[dict[str, Any]]:
    try:
        return [dict(d) for d in json_documents(text)[0]]
    except ParseError:
        whole = text[: text.rfind("\n") + 1]
        if whole == text:
            raise
        return [dict(d) for d in json_documents(whole)[0]]


def _hung(raw: Mapping[str, Any]) -> Hung:
    return Hung(integer(raw.get("gpu")), str(raw.get("call")), number(raw.get("seconds")) or 0.0)


def _with_absent(gpu: NvmlGpu, absent: Missing) -> NvmlGpu:
    return NvmlGpu(gpu.index, gpu.slot, Source(gpu.source.name, gpu.source.values, absent))


def _gpu(line: Mapping[str, Any], evidence: tuple[str, ...]) -> NvmlGpu:
    index = int(line["gpu"])
    error = line.get("handle_error")
    if isinstance(error, str):
        return NvmlGpu(index, None, Source("nvml", {}, missing(error, evidence)))
    values = {name: _reading(line[name], convert, evidence) for name, convert in _CONVERT.items() if name in line}
    values["vgpu_license"] = _license(line.get("vgpu_license"), values.get("virtualization_mode"), evidence)
    slot = values.get("slot")
    return NvmlGpu(index, slot.value if isinstance(slot, Known) else None, Source("nvml", values))


# --- one value -----------------------------------------------------------------------------------------


def _reading(raw: Any, convert: Callable[[Any], Any], evidence: tuple[str, ...]) -> Reading[Any]:
    """A raw value; one that the converter refuses (None) is no value, whatever NVML's return code said."""
    if isinstance(raw, dict) and isinstance(raw.get("error"), str):
        return missing(raw["error"], evidence, text_or_none(raw.get("detail")))
    value = convert(raw)
    if value is None:
        return Missing("unsupported", msg("NVML says “{value}”, which is no value", value=str(raw)[:60]), evidence)
    return Known(value, evidence)


def _text(raw: Any) -> Optional[str]:
    return plain(raw) if isinstance(raw, str) else None


def _cuda(raw: Any) -> Optional[str]:
    """12040 is 12.4 (nvmlSystemGetCudaDriverVersion)."""
    version = integer(raw)
    return f"{version // 1000}.{version % 1000 // 10}" if version and version > 1000 else None


def _count(raw: Any) -> Optional[int]:
    """A counter or number; all bits set is the driver's own "don't know"."""
    value = integer(raw)
    return None if value is None or value < 0 or value in (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF) else value


def _some(raw: Any) -> Optional[int]:
    """A number that cannot be 0."""
    return _count(raw) or None


def _amount(raw: Any) -> Optional[float]:
    """Watts, MiB, MHz that may be 0."""
    value = number(raw)
    return value if value is not None and 0 <= value < 1 << 40 else None


def _limit(raw: Any) -> Optional[float]:
    """Watts, MiB, MHz that cannot be 0."""
    return _amount(raw) or None


def _flag(raw: Any) -> Optional[bool]:
    return {0: False, 1: True}.get(raw) if isinstance(raw, int) else None


def _word(words: Mapping[int, str]) -> Callable[[Any], Optional[str]]:
    return lambda raw: words.get(raw) if isinstance(raw, int) else None


def _ids(raw: Any) -> Optional[str]:
    """NVML's ``0x233010DE`` (device, vendor) as ``10de:2330``."""
    value = _some(raw)
    return f"{value & 0xFFFF:04x}:{value >> 16:04x}" if value else None


def _performance(raw: Any) -> Optional[int]:
    value = integer(raw)
    return value if value is not None and 0 <= value < 32 else None


def _nvlinks(raw: Any) -> Optional[tuple[NvLink, ...]]:
    if not isinstance(raw, list):
        return None
    return tuple(_nvlink(n, row) for row in objects(raw) if (n := integer(row.get("link"))) is not None)


def _nvlink(number: int, row: Mapping[str, Any]) -> NvLink:
    remote = integer(row.get("remote_type"))
    return NvLink(
        link=number,
        active=_flag(row.get("state")),
        version=_some(row.get("version")),
        remote_type=_REMOTE.get(remote) if remote is not None else None,
        remote_slot=pci_slot(text_or_none(row.get("remote_slot"))),
        errors={k: v for k, v in mapping(row.get("errors")).items() if _count(v) is not None and "_error" not in k},
    )


def _fabric(raw: Any) -> Optional[Fabric]:
    row = mapping(raw)
    state = _word(_FABRIC_STATES)(row.get("state"))
    if state is None:
        return None
    status = integer(row.get("status"))
    health = integer(row.get("health"))
    cluster = text_or_none(row.get("cluster"))
    return Fabric(
        state=state,
        status=error_name(status) if status is not None and state == "completed" else None,
        health=_HEALTH.get(health) if health is not None else None,
        health_mask=integer(row.get("health_mask")),
        clique=integer(row.get("clique")),
        cluster=cluster if cluster and cluster.strip("0") else None,
    )


def error_name(number: int) -> str:
    """``NVML_SUCCESS``, ``NVML_ERROR_…`` by nvmlReturn_t."""
    if number == 0:
        return "NVML_SUCCESS"
    return f"NVML_ERROR_{ERRORS[number] if 0 < number < len(ERRORS) else 'UNKNOWN' if number == 999 else number}"


def _processes(raw: Any) -> Optional[tuple[Process, ...]]:
    if not isinstance(raw, list):
        return None
    return tuple(
        Process(pid=_some(row.get("pid")), type=str(row.get("type")), used_mib=_amount(row.get("used_mib")))
        for row in objects(raw)
    )


def _license(raw: Any, mode: Optional[Reading[Any]], evidence: tuple[str, ...]) -> Reading[str]:
    """Only a vGPU guest needs a licence: a card itself lists features that nobody has asked for."""
    known = _reading(raw, lambda found: found if isinstance(found, dict) else None, evidence)
    if isinstance(known, Missing):
        return known
    features = objects(known.value.get("features"))
    if known.value.get("supported") is True and any(f.get("licensed") is True for f in features):
        return Known("Licensed", evidence)
    if isinstance(mode, Known) and mode.value == "vgpu":
        return Known("Unlicensed", evidence)
    return Missing("unsupported", msg("no vGPU: there is nothing to license"), evidence)


def _p2p(raw: Mapping[str, Any]) -> dict[tuple[int, int], dict[str, str]]:
    found: dict[tuple[int, int], dict[str, str]] = {}
    for pair, states in raw.items():
        one, _, other = pair.partition("-")
        told = {name: _P2P[s] for name, s in mapping(states).items() if isinstance(s, int) and s in _P2P}
        if one.isdigit() and other.isdigit() and told:
            found[int(one), int(other)] = told
    return found


_CONVERT: dict[str, Callable[[Any], Any]] = {
    "slot": lambda raw: pci_slot(text_or_none(raw)),
    **dict.fromkeys(("pci_device_id", "pci_subsystem_id"), _ids),
    **dict.fromkeys("name uuid serial board_part vbios inforom_image gsp_version compute_capability".split(), _text),
    **dict.fromkeys(("board_id", "minor", "throttle", "pcie_replay", "numa_node"), _count),
    **dict.fromkeys(("utilization_gpu", "utilization_memory", "retired_pages"), _count),
    **dict.fromkeys((f"ecc_{k}_{s}" for k in ("corrected", "uncorrected") for s in ("volatile", "aggregate")), _count),
    **dict.fromkeys(("remapped_correctable", "remapped_uncorrectable"), _count),
    **dict.fromkeys(("cores", "bus_width_bits", "pcie_gen_current", "pcie_gen_max", "pcie_gen_device_max"), _some),
    **dict.fromkeys(("pcie_width_current", "pcie_width_max"), _some),
    **dict.fromkeys(("memory_free_mib", "memory_used_mib", "memory_reserved_mib", "power_w"), _amount),
    **dict.fromkeys(("clock_sm_mhz", "clock_mem_mhz", "temperature_c"), _amount),
    **dict.fromkeys("memory_total_mib bar1_total_mib temp_memory_c temp_slowdown_c temp_shutdown_c".split(), _limit),
    **dict.fromkeys((f"power_{name}_w" for name in ("enforced", "limit", "default", "min", "max")), _limit),
    **dict.fromkeys(("clock_sm_max_mhz", "clock_mem_max_mhz", "app_clock_sm_mhz", "app_clock_sm_default_mhz"), _limit),
    **dict.fromkeys(("ecc_current", "ecc_pending", "mig_current", "mig_pending", "persistence"), _flag),
    **dict.fromkeys(("remapped_pending", "remapped_failure", "retired_pending", "inforom_valid"), _flag),
    "architecture": _word(_ARCHITECTURES),
    "brand": _word(_BRANDS),
    "virtualization_mode": _word(_VIRTUALISATION),
    "compute_mode": _word(_COMPUTE_MODES),
    "recovery_action": _word(_RECOVERY),
    "perf_state": _performance,
    "nvlinks": _nvlinks,
    "fabric": _fabric,
    "processes": _processes,
}  # fmt: skip
