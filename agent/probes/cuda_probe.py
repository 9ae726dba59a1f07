"""What the CUDA driver itself says of every GPU, through libcuda.so.1. Creates no context and allocates nothing.

Usage: cuda_probe.py

Prints JSON lines: ``{"cuda": {"driver_version": 12040, "library": path, "hidden": CUDA_VISIBLE_DEVICES as it was},
"count": n}``, then one line a GPU: ``{"gpu": ordinal, "name", "uuid", "pci_bus_id", "sm_count",
"memory_total_bytes", …}``, each value or ``{"error": "CUDA_ERROR_…"}``; ``{"done": true}`` last.
"""

from __future__ import annotations

import ctypes
import json
import os
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any, Optional

# CUdevice_attribute
ATTRIBUTES = {
    "sm_count": 16,
    "clock_khz": 13,
    "memory_clock_khz": 36,
    "bus_width_bits": 37,
    "l2_bytes": 38,
    "cc_major": 75,
    "cc_minor": 76,
    "ecc": 32,
    "integrated": 18,
    "compute_mode": 20,
}
ERRORS = {
    1: "INVALID_VALUE",
    2: "OUT_OF_MEMORY",
    3: "NOT_INITIALIZED",
    34: "STUB_LIBRARY",
    46: "DEVICE_UNAVAILABLE",
    100: "NO_DEVICE",
    101: "INVALID_DEVICE",
    304: "OPERATING_SYSTEM",
    800: "NOT_PERMITTED",
    801: "NOT_SUPPORTED",
    802: "SYSTEM_NOT_READY",
    803: "SYSTEM_DRIVER_MISMATCH",
    804: "COMPAT_NOT_SUPPORTED_ON_DEVICE",
    999: "UNKNOWN",
}


class CudaError(Exception):
    """A call's return code by name."""

    def __init__(self, code: int) -> None:
        super().__init__(f"CUDA_ERROR_{ERRORS.get(code, code)}")


def check(code: int) -> None:
    if code:
        raise CudaError(code)


def ask(call: Callable[[], Any]) -> Any:
    """The call's answer, or ``{"error": NAME}``; a symbol that the library lacks is one too."""
    try:
        return call()
    except CudaError as error:
        return {"error": str(error)}
    except AttributeError as error:
        return {"error": "CUDA_ERROR_NOT_SUPPORTED", "detail": str(error)}


def number(lib: Any, function: str, *arguments: Any) -> int:
    """A call that answers with one int."""
    value = ctypes.c_int()
    check(getattr(lib, function)(ctypes.byref(value), *arguments))
    return value.value


def name(lib: Any, device: int) -> str:
    buffer = ctypes.create_string_buffer(256)
    check(lib.cuDeviceGetName(buffer, 256, device))
    return buffer.value.decode("utf-8", "replace")


def bus_id(lib: Any, device: int) -> str:
    buffer = ctypes.create_string_buffer(64)
    check(lib.cuDeviceGetPCIBusId(buffer, 64, device))
    return buffer.value.decode("ascii", "replace")


def memory(lib: Any, device: int) -> int:
    size = ctypes.c_size_t()
    check(lib.cuDeviceTotalMem_v2(ctypes.byref(size), device))
    return size.value


def identity(lib: Any, device: int) -> str:
    """The second version tells a MIG slice by its own UUID."""
    buffer = ctypes.create_string_buffer(16)
    call = getattr(lib, "cuDeviceGetUuid_v2", None) or lib.cuDeviceGetUuid
    check(call(buffer, device))
    return f"GPU-{uuid.UUID(bytes=buffer.raw)}"


def mapped() -> Optional[str]:
    """Path of the libcuda that was loaded."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        paths = [line.split(None, 5)[5].strip() for line in maps if "libcuda.so" in line]
    return paths[0] if paths else None


def say(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


def main() -> None:
    hidden = os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # the facts are about all GPUs
    try:
        lib: Any = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        say({"cuda": {"error": f"no libcuda: {error}", "hidden": hidden}, "count": None})
        return
    head: dict[str, Any] = {"library": mapped(), "hidden": hidden}
    head["driver_version"] = ask(lambda: number(lib, "cuDriverGetVersion"))
    begun = ask(lambda: check(lib.cuInit(0)))
    if isinstance(begun, dict):
        say({"cuda": {**head, **begun}, "count": None})
        return
    count = ask(lambda: number(lib, "cuDeviceGetCount"))
    say({"cuda": head, "count": count})
    for ordinal in range(count) if isinstance(count, int) else ():
        say({"gpu": ordinal, **values(lib, ordinal)})
    say({"done": True})


def values(lib: Any, ordinal: int) -> dict[str, Any]:
    device = ask(lambda: number(lib, "cuDeviceGet", ordinal))
    if isinstance(device, dict):
        return {"handle_error": device["error"]}
    found = {
        "pci_bus_id": ask(lambda: bus_id(lib, device)),
        "name": ask(lambda: name(lib, device)),
        "uuid": ask(lambda: identity(lib, device)),
        "memory_total_bytes": ask(lambda: memory(lib, device)),
    }
    for label, attribute in ATTRIBUTES.items():
        found[label] = ask(partial(number, lib, "cuDeviceGetAttribute", attribute, device))
    return found


if __name__ == "__main__":
    main()
