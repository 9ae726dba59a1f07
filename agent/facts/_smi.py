"""nvidia-smi's answers as readings: what it printed counts, whatever its exit status."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable, Optional, TypeVar

from agent.facts._read import refused
from agent.facts._slot import slot
from agent.facts._source import Process, Source
from agent.host import Host, Ran
from agent.reading import Known, Missing, MissingKind, Reading
from agent.text import msg
from agent.tools import ParseError
from agent.tools._nvidia import is_error
from agent.tools.smi_xml import Gpu, SmiXml

T = TypeVar("T")
_KINDS: dict[str, MissingKind] = {
    "no_permission": "denied",
    "access_blocked": "denied",
    "denied": "denied",
    "not_found": "no-tool",
    "not_supported": "unsupported",
    "mig_mode": "unsupported",
    "invalid_field": "unsupported",
    "usage": "unsupported",
    "timeout": "timeout",
    "unparsable": "unparsable",
    "truncated": "unparsable",
    "several_results": "unparsable",
    "no_devices": "not-there",
}


# After NVML has woken the driver. With TERM's and KILL's grace a hung one costs a run less than 30 s, and that once.
TIMEOUT_S = 20.0


def ask(host: Host, probe: str, argv: Sequence[str], parse: Callable[[str], T]) -> Reading[T]:
    """One call of nvidia-smi. After one that gave no answer no other is tried: it would hang too."""
    hung = next((r for r in host.log if r.argv[:1] == ("nvidia-smi",) and (r.timed_out or r.abandoned)), None)
    if hung is not None and (why := hung.missing()) is not None:
        detail = msg("not asked: nvidia-smi already gave no answer ({why})", why=why.detail)
        return Missing("timeout", detail, hung.cited)
    return said(host.run(probe, list(argv), TIMEOUT_S), parse, "nvidia-smi")


def said(ran: Ran, parse: Callable[[str], T], tool: str) -> Reading[T]:
    """The parsed output; a failure text gives the kind of failure, also where the exit status is 0."""
    missing = ran.missing()
    if missing is not None:
        return missing
    out, err = ran.stdout, ran.stderr
    try:
        return Known(parse(out if out.strip() else err), ran.cited)
    except ParseError as error:
        if error.kind == "empty" and (failed := refused(ran)) is not None:
            return failed
        kind = _KINDS.get(error.kind, "failed")
        grant = msg("grant {what}", what="root") if kind == "denied" else None
        return Missing(kind, msg("{tool}: {why}", tool=tool, why=error.why), ran.cited, grant)


def slots(smi: SmiXml) -> dict[str, Optional[Gpu]]:
    """The GPUs that nvidia-smi lists, and those that it only names as lost (None)."""
    listed = {where: gpu for gpu in smi.gpus if (where := slot(gpu.pci_bus_id))}
    lost = {where: None for gone in smi.lost if (where := slot(gone.pci_bus_id)) and where not in listed}
    return {**listed, **lost}


def source(gpu: Optional[Gpu], evidence: tuple[str, ...]) -> Source:
    """One GPU in the vocabulary of the sources; one that is only named as lost says nothing but that."""
    if gpu is None:
        gone = Missing("failed", msg("nvidia-smi cannot reach this GPU: it is lost"), evidence)
        return Source("smi", {"lost": Known(True, evidence)}, gone)
    values = {name: _reading(value, evidence) for name, value in _values(gpu).items()}
    return Source("smi", {**values, "lost": Known(gpu.lost, evidence)})


def _reading(value: Any, evidence: tuple[str, ...]) -> Reading[Any]:
    if value is None:
        return Missing("unsupported", msg("nvidia-smi says N/A"), evidence)
    if is_error(value):
        text = str(value)[len("error: ") :]
        denied = "permission" in text.lower()
        grant = msg("grant {what}", what="root") if denied else None
        return Missing("denied" if denied else "failed", msg("nvidia-smi: {error}", error=text), evidence, grant)
    return Known(value, evidence)


def _values(gpu: Gpu) -> dict[str, Any]:
    """Values of one GPU; None where nvidia-smi has none, ``error: …`` where it failed to read it."""
    more = gpu.more
    return {
        "slot": slot(gpu.pci_bus_id),
        "name": gpu.product_name,
        "uuid": gpu.uuid,
        "serial": gpu.serial,
        "board_part": more.board_part_number,
        "minor": more.minor_number,
        "vbios": gpu.vbios_version,
        "architecture": more.architecture,
        "pci_device_id": _ids(more.pci_device_id),
        "pci_subsystem_id": _ids(more.pci_sub_system_id),
        "memory_total_mib": gpu.memory_total_mib,
        "memory_used_mib": gpu.memory_used_mib,
        "memory_free_mib": more.memory_free_mib,
        "memory_reserved_mib": more.memory_reserved_mib,
        "bar1_total_mib": more.bar1_total_mib,
        "power_limit_w": gpu.power_limit_w,
        "power_default_w": gpu.power_default_limit_w,
        "power_max_w": gpu.power_max_limit_w,
        "power_min_w": more.power_min_limit_w,
        "power_w": gpu.power_draw_w,
        "power_average_w": more.power_draw_average_w,
        "temperature_c": gpu.temperature_c,
        "temp_memory_c": more.memory_temperature_c,
        "fan_percent": more.fan_percent,
        "clock_sm_mhz": more.sm_clock_mhz,
        "clock_sm_max_mhz": more.sm_clock_max_mhz,
        "clock_mem_mhz": more.memory_clock_mhz,
        "clock_mem_max_mhz": more.memory_clock_max_mhz,
        "throttle_reasons": more.throttle_reasons,
        "perf_state": _performance(more.performance_state),
        "ecc_current": _enabled(gpu.ecc_mode),
        "ecc_pending": _enabled(more.ecc_mode_pending),
        "ecc_uncorrected_aggregate": gpu.ecc_uncorrected_aggregate,
        "ecc_uncorrected_volatile": more.ecc_uncorrected_volatile,
        "ecc_corrected_aggregate": more.ecc_corrected_aggregate,
        "remapped_pending": gpu.remapped_rows_pending,
        "remapped_failure": gpu.remapped_rows_failure,
        "remapped_uncorrectable": more.remapped_rows_uncorrectable,
        "remapped_correctable": more.remapped_rows_correctable,
        "retired_pages": gpu.retired_pages,
        "retired_pending": more.retirement_pending,
        "mig_current": _enabled(gpu.mig_mode),
        "mig_pending": _enabled(more.mig_mode_pending),
        "mig_devices": more.mig_devices,
        "virtualization_mode": _virtualisation(gpu.virtualization_mode),
        "persistence": _enabled(more.persistence_mode),
        "compute_mode": more.compute_mode.lower().replace("_", "-") if more.compute_mode else None,
        "pcie_gen_current": gpu.pcie_gen_current,
        "pcie_gen_max": gpu.pcie_gen_max,
        "pcie_gen_device_max": more.pcie_gen_device_max,
        "pcie_width_current": gpu.pcie_width_current,
        "pcie_width_max": gpu.pcie_width_max,
        "pcie_replay": more.pcie_replays,
        "utilization_gpu": more.gpu_util_percent,
        "utilization_memory": more.memory_util_percent,
        "fabric_state": more.fabric_state,
        "fabric_status": more.fabric_status,
        "fabric_health": more.fabric_health,
        "vgpu_license": more.license_status,
        "processes": None if gpu.processes is None else tuple(map(_process, gpu.processes)),
    }


def _process(found: Any) -> Process:
    kind = {"C": "compute", "G": "graphics", "M": "mps", "M+C": "mps", "C+G": "compute"}.get(
        found.type or "", "compute"
    )
    used = float(found.used_mib) if isinstance(found.used_mib, (int, float)) else None
    return Process(pid=found.pid, type=kind, used_mib=used, name=found.name)


def _ids(raw: Optional[str]) -> Optional[str]:
    """``233010DE`` (device, vendor) as ``10de:2330``."""
    text = (raw or "").lower()
    text = text[2:] if text.startswith("0x") else text
    return f"{text[4:]}:{text[:4]}" if len(text) == 8 and not is_error(raw) else raw


def _enabled(raw: Optional[str]) -> Any:
    """Enabled and Disabled; a failure text stays as it is, other words are no answer."""
    if raw is None or is_error(raw):
        return raw
    return {"enabled": True, "disabled": False, "on": True, "off": False}.get(raw.lower())


def _virtualisation(raw: Optional[str]) -> Optional[str]:
    if raw is None or is_error(raw):
        return raw
    words = {"none": "none", "pass-through": "passthrough", "passthrough": "passthrough", "vgpu": "vgpu"}
    return {**words, "host vgpu": "host-vgpu", "host vsga": "host-vsga"}.get(raw.lower())


def _performance(raw: Optional[str]) -> Any:
    """``P0`` as 0."""
    if raw is None or is_error(raw):
        return raw
    return int(raw[1:]) if raw[:1] == "P" and raw[1:].isdigit() else None
