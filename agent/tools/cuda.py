"""What the CUDA driver says of every GPU, from the JSON lines of ``agent/probes/cuda_probe.py``.

It reads other registers and other code than NVML does, so it is a second source of identity. Beside the vocabulary
of :mod:`agent.tools._source`: ``ordinal`` (int), ``l2_bytes`` (int), ``integrated`` (bool).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Callable, Optional

from agent.reading import Known, Missing, MissingKind, Reading
from agent.text import msg
from agent.tools import ParseError
from agent.tools._nvidia import pci_slot, plain
from agent.tools._source import Source
from agent.tools._text import integer, json_documents, mapping, text_or_none

TIMEOUT_S = 60.0
_MODES = {0: "default", 1: "exclusive-thread", 2: "prohibited", 3: "exclusive-process"}
_UNSUPPORTED = ("CUDA_ERROR_NOT_SUPPORTED", "CUDA_ERROR_INVALID_VALUE")


@dataclass(frozen=True)
class CudaGpu:
    """One device by CUDA's ordinal. ``slot`` is None where it could not be opened; ``source.absent`` says why."""

    ordinal: int
    slot: Optional[str]
    source: Source


@dataclass(frozen=True)
class Cuda:
    """``driver_version``: the CUDA version of this libcuda (``12.4``). ``hidden``: CUDA_VISIBLE_DEVICES as it was set;
    the probe looks past it."""

    driver_version: Reading[str]
    library: Reading[str]
    count: Reading[int]
    gpus: tuple[CudaGpu, ...]
    hidden: Optional[str]
    done: bool


def missing(error: str, evidence: tuple[str, ...] = ()) -> Missing:
    """Why there is no value, from CUDA's own name of the error."""
    kind: MissingKind = "failed"
    grant = None
    if error in _UNSUPPORTED:
        kind = "unsupported"
    elif error == "CUDA_ERROR_NO_DEVICE":
        kind = "not-there"
    elif error in ("CUDA_ERROR_NOT_PERMITTED", "CUDA_ERROR_OPERATING_SYSTEM"):
        kind, grant = "denied", msg("root, or access to the GPU's device files")
    elif error.startswith("no libcuda"):
        kind, grant = "no-tool", msg("install the NVIDIA driver's library libcuda.so.1")
    return Missing(kind, msg("CUDA: {error}", error=error), evidence, grant)


def parse(text: str, evidence: tuple[str, ...] = ()) -> Cuda:
    """The probe's lines; a last line that is cut off is left out. Raises :class:`ParseError` without a header."""
    try:
        lines = [dict(d) for d in json_documents(text)[0]]
    except ParseError:
        lines = [dict(d) for d in json_documents(text[: text.rfind("\n") + 1])[0]]
    if not lines or not isinstance(lines[0].get("cuda"), dict):
        raise ParseError("unparsable", "not the lines of cuda_probe", text[:80])
    head = lines[0]["cuda"]
    error = text_or_none(head.get("error"))
    broken = missing(error, evidence) if error else None
    library = text_or_none(head.get("library"))
    unknown = Missing("not-there", msg("CUDA's library is not in the child's memory map"), evidence)
    version = _reading(head["driver_version"], _version, evidence) if "driver_version" in head else broken
    return Cuda(
        driver_version=version or unknown,
        library=Known(library, evidence) if library else broken or unknown,
        count=broken or _reading(lines[0].get("count"), integer, evidence),
        gpus=tuple(_gpu(line, evidence) for line in lines if isinstance(line.get("gpu"), int)),
        hidden=head.get("hidden") if isinstance(head.get("hidden"), str) else None,
        done=any(line.get("done") is True for line in lines),
    )


def _gpu(line: Mapping[str, Any], evidence: tuple[str, ...]) -> CudaGpu:
    ordinal = int(line["gpu"])
    error = text_or_none(line.get("handle_error"))
    if error:
        return CudaGpu(ordinal, None, Source("cuda", {}, missing(error, evidence)))
    values: dict[str, Reading[Any]] = {"ordinal": Known(ordinal, evidence)}
    for raw, (name, convert) in _CONVERT.items():
        if raw in line:
            values[name] = _reading(line[raw], convert, evidence)
    values["compute_capability"] = _capability(line, evidence)
    slot = values.get("slot")
    return CudaGpu(ordinal, slot.value if isinstance(slot, Known) else None, Source("cuda", values))


def _capability(line: Mapping[str, Any], evidence: tuple[str, ...]) -> Reading[str]:
    parts = [_reading(line.get(name), integer, evidence) for name in ("cc_major", "cc_minor")]
    for part in parts:
        if isinstance(part, Missing):
            return part
    return Known(".".join(str(p.value) for p in parts if isinstance(p, Known)), evidence)


def _reading(raw: Any, convert: Callable[[Any], Any], evidence: tuple[str, ...]) -> Reading[Any]:
    error = text_or_none(mapping(raw).get("error"))
    if error:
        return missing(error, evidence)
    value = convert(raw)
    if value is None:
        return Missing("unsupported", msg("CUDA says “{value}”, which is no value", value=str(raw)[:60]), evidence)
    return Known(value, evidence)


def _version(raw: Any) -> Optional[str]:
    """12040 is 12.4 (cuDriverGetVersion)."""
    number = integer(raw)
    return f"{number // 1000}.{number % 1000 // 10}" if number and number > 1000 else None


def _some(raw: Any) -> Optional[int]:
    """A number that cannot be 0 or less."""
    value = integer(raw)
    return value if value is not None and value > 0 else None


def _scaled(unit: int) -> Callable[[Any], Optional[float]]:
    return lambda raw: value / unit if (value := _some(raw)) is not None else None


def _flag(raw: Any) -> Optional[bool]:
    return {0: False, 1: True}.get(raw) if isinstance(raw, int) else None


_CONVERT: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "pci_bus_id": ("slot", lambda raw: pci_slot(text_or_none(raw))),
    "name": ("name", lambda raw: plain(text_or_none(raw))),
    "uuid": ("uuid", text_or_none),
    "memory_total_bytes": ("memory_total_mib", _scaled(1 << 20)),
    "sm_count": ("sm_count", _some),
    "clock_khz": ("clock_sm_max_mhz", _scaled(1000)),
    "memory_clock_khz": ("clock_mem_max_mhz", _scaled(1000)),
    "bus_width_bits": ("bus_width_bits", _some),
    "l2_bytes": ("l2_bytes", _some),
    "ecc": ("ecc_current", _flag),
    "integrated": ("integrated", _flag),
    "compute_mode": ("compute_mode", lambda raw: _MODES.get(raw) if isinstance(raw, int) else None),
}
