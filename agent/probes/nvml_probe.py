"""Every value that NVML tells of every GPU. Changes nothing and creates no CUDA context.

Usage: nvml_probe.py FOLDER_OF_PYNVML CALL_S [READ_INDEX,… [SKIPPED_INDEX,…]]

GPUs that another child has read are not read again; those that are skipped are not touched at all.

Prints JSON lines as it goes, so that what was read before a call that hangs is not lost:

- ``{"nvml": {"version", "driver", "cuda_driver", "library", "libraries"}, "count": n}``: versions, the path of the
  library that answered and all libraries in this process, from its own memory map;
- one line a GPU: ``{"gpu": i, …}`` with each value by name, or ``{"error": "NVML_ERROR_…"}`` in its place; a GPU
  that cannot be opened has ``handle_error`` alone. Units are in the names; enumerations are NVML's own numbers;
- ``{"p2p": {"0-1": {"read": 0, …}}}``: nvmlGpuP2PStatus of each pair;
- ``{"hung": {"gpu": i, "call": name, "seconds": s}}`` and the end, where a call gave no answer in CALL_S (the first
  one, which wakes a driver without persistence mode, has ten times as long);
- ``{"done": true}`` last.

A lost GPU may hang any call, in the kernel even: the clock runs in a thread of its own and ends the process.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from ctypes import byref
from functools import partial
from typing import Any, Optional, Union

MIB = 1 << 20
MAX_LINKS = 36
ECC = {"corrected": 0, "uncorrected": 1}
SPANS = {"volatile": 0, "aggregate": 1}
COUNTERS = {"replay": 0, "recovery": 1, "crc_flit": 2, "crc_data": 3, "ecc": 4}
P2P = {"read": 0, "write": 1, "nvlink": 2, "atomics": 3}
SM, MEMORY = 1, 2  # nvmlClockType_t
FIELD_MEMORY_TEMPERATURE, FIELD_RECOVERY_ACTION = 82, 230


class Watch:
    """Ends the process when one call takes too long, with what is known of its GPU until then."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.lock = threading.Lock()
        self.call = "nvmlInit"
        self.gpu: Optional[int] = None
        self.values: dict[str, Any] = {}
        self.deadline = time.monotonic() + 10 * seconds
        threading.Thread(target=self._guard, daemon=True).start()

    def enter(self, call: str, gpu: Optional[int] = None) -> None:
        self.call, self.gpu = call, gpu
        self.deadline = time.monotonic() + self.seconds

    def leave(self) -> None:
        """This GPU is said."""
        self.gpu, self.values = None, {}

    def say(self, line: dict[str, Any]) -> None:
        with self.lock:
            print(json.dumps(line), flush=True)

    def _guard(self) -> None:
        while (left := self.deadline - time.monotonic()) > 0:
            time.sleep(min(left, 0.2))
        with self.lock:
            if self.gpu is not None:
                print(json.dumps({"gpu": self.gpu, **dict(self.values)}))
            print(json.dumps({"hung": {"gpu": self.gpu, "call": self.call, "seconds": self.seconds}}), flush=True)
            os._exit(3)


class Reader:
    """One GPU's values, each asked for by itself."""

    def __init__(self, nvml: Any, names: dict[int, str], watch: Watch) -> None:
        self.nvml, self.names, self.watch = nvml, names, watch

    def ask(self, name: str, gpu: Optional[int], call: Callable[[], Any]) -> Any:
        """The call's answer, or ``{"error": NAME}``."""
        self.watch.enter(name, gpu)
        return self.tried(call)

    def tried(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except self.nvml.NVMLError as error:
            return {"error": self.names.get(error.value, f"NVML_ERROR_{error.value}")}
        except (self.nvml.NVMLLibraryMismatchError, AttributeError) as error:
            return {"error": "NVML_ERROR_FUNCTION_NOT_FOUND", "detail": str(error)}
        except ValueError as error:  # a text that is no UTF-8
            return {"error": f"unreadable: {error}"}

    def read(self, gpu: int) -> dict[str, Any]:
        """All values of one GPU by name."""
        handle = self.ask("handle", gpu, lambda: self.nvml.nvmlDeviceGetHandleByIndex(gpu))
        if isinstance(handle, dict):
            return {"gpu": gpu, "handle_error": handle["error"]}
        values: dict[str, Any] = {}
        self.watch.values = values
        for name, call in calls(self.nvml, handle):
            names = (name,) if isinstance(name, str) else name
            answer = self.ask(names[0], gpu, call)
            several = len(names) > 1 and not isinstance(answer, dict)
            values.update(zip(names, answer if several else [answer] * len(names)))
        self.watch.leave()
        return {"gpu": gpu, **values}


Calls = Iterator[tuple[Union[str, tuple[str, ...]], Callable[[], Any]]]


def calls(nvml: Any, h: Any) -> Calls:
    """Names and the calls that answer them; identity first. A tuple of names is one call with several answers."""
    yield ("slot", "pci_device_id", "pci_subsystem_id"), lambda: pci(nvml.nvmlDeviceGetPciInfo(h))
    yield "name", lambda: text(nvml.nvmlDeviceGetName(h))
    yield "uuid", lambda: text(nvml.nvmlDeviceGetUUID(h))
    yield "serial", lambda: text(nvml.nvmlDeviceGetSerial(h))
    yield "board_part", lambda: text(nvml.nvmlDeviceGetBoardPartNumber(h))
    yield "board_id", lambda: nvml.nvmlDeviceGetBoardId(h)
    yield "minor", lambda: nvml.nvmlDeviceGetMinorNumber(h)
    yield "vbios", lambda: text(nvml.nvmlDeviceGetVbiosVersion(h))
    yield "inforom_image", lambda: text(nvml.nvmlDeviceGetInforomImageVersion(h))
    yield "gsp_version", lambda: text(nvml.nvmlDeviceGetGspFirmwareVersion(h))
    yield "architecture", lambda: nvml.nvmlDeviceGetArchitecture(h)
    yield "brand", lambda: nvml.nvmlDeviceGetBrand(h)
    yield "compute_capability", lambda: "{}.{}".format(*nvml.nvmlDeviceGetCudaComputeCapability(h))
    yield "cores", lambda: nvml.nvmlDeviceGetNumGpuCores(h)
    yield "bus_width_bits", lambda: nvml.nvmlDeviceGetMemoryBusWidth(h)
    yield MEMORY_NAMES, lambda: memory(nvml, h)
    yield "bar1_total_mib", lambda: nvml.nvmlDeviceGetBAR1MemoryInfo(h).bar1Total / MIB
    yield "processes", lambda: processes(nvml, h)
    yield ("mig_current", "mig_pending"), lambda: nvml.nvmlDeviceGetMigMode(h)
    yield "virtualization_mode", lambda: nvml.nvmlDeviceGetVirtualizationMode(h)
    yield "vgpu_license", lambda: vgpu_license(nvml.nvmlDeviceGetGridLicensableFeatures(h))
    yield "persistence", lambda: nvml.nvmlDeviceGetPersistenceMode(h)
    yield "compute_mode", lambda: nvml.nvmlDeviceGetComputeMode(h)
    yield from condition(nvml, h)
    yield from power(nvml, h)
    yield from links(nvml, h)


def condition(nvml: Any, h: Any) -> Calls:
    """Memory errors, wear, what the driver wants done."""
    yield ("ecc_current", "ecc_pending"), lambda: nvml.nvmlDeviceGetEccMode(h)
    for kind, kind_id in ECC.items():
        for span, span_id in SPANS.items():
            yield f"ecc_{kind}_{span}", partial(nvml.nvmlDeviceGetTotalEccErrors, h, kind_id, span_id)
    yield REMAPPED, lambda: nvml.nvmlDeviceGetRemappedRows(h)
    yield "retired_pages", lambda: sum(len(nvml.nvmlDeviceGetRetiredPages(h, cause)) for cause in (0, 1))
    yield "retired_pending", lambda: nvml.nvmlDeviceGetRetiredPagesPendingStatus(h)
    yield "inforom_valid", lambda: inforom_valid(nvml, h)
    yield "recovery_action", lambda: field(nvml, h, FIELD_RECOVERY_ACTION)


def power(nvml: Any, h: Any) -> Calls:
    """Power, temperature, clocks, load."""
    yield "power_enforced_w", lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(h) / 1000
    yield "power_limit_w", lambda: nvml.nvmlDeviceGetPowerManagementLimit(h) / 1000
    yield "power_default_w", lambda: nvml.nvmlDeviceGetPowerManagementDefaultLimit(h) / 1000
    yield (
        ("power_min_w", "power_max_w"),
        lambda: [mw / 1000 for mw in nvml.nvmlDeviceGetPowerManagementLimitConstraints(h)],
    )
    yield "power_w", lambda: nvml.nvmlDeviceGetPowerUsage(h) / 1000
    yield "temperature_c", lambda: nvml.nvmlDeviceGetTemperature(h, 0)
    yield "temp_memory_c", lambda: field(nvml, h, FIELD_MEMORY_TEMPERATURE)
    yield "temp_shutdown_c", lambda: nvml.nvmlDeviceGetTemperatureThreshold(h, 0)
    yield "temp_slowdown_c", lambda: nvml.nvmlDeviceGetTemperatureThreshold(h, 1)
    yield "clock_sm_mhz", lambda: nvml.nvmlDeviceGetClockInfo(h, SM)
    yield "clock_mem_mhz", lambda: nvml.nvmlDeviceGetClockInfo(h, MEMORY)
    yield "clock_sm_max_mhz", lambda: nvml.nvmlDeviceGetMaxClockInfo(h, SM)
    yield "clock_mem_max_mhz", lambda: nvml.nvmlDeviceGetMaxClockInfo(h, MEMORY)
    yield "app_clock_sm_mhz", lambda: nvml.nvmlDeviceGetApplicationsClock(h, SM)
    yield "app_clock_sm_default_mhz", lambda: nvml.nvmlDeviceGetDefaultApplicationsClock(h, SM)
    yield "throttle", lambda: throttle(nvml, h)
    yield "perf_state", lambda: nvml.nvmlDeviceGetPerformanceState(h)
    yield ("utilization_gpu", "utilization_memory"), lambda: utilization(nvml.nvmlDeviceGetUtilizationRates(h))


def links(nvml: Any, h: Any) -> Calls:
    """PCIe and NVLink."""
    yield "pcie_gen_current", lambda: nvml.nvmlDeviceGetCurrPcieLinkGeneration(h)
    yield "pcie_gen_max", lambda: nvml.nvmlDeviceGetMaxPcieLinkGeneration(h)
    yield "pcie_gen_device_max", lambda: nvml.nvmlDeviceGetGpuMaxPcieLinkGeneration(h)
    yield "pcie_width_current", lambda: nvml.nvmlDeviceGetCurrPcieLinkWidth(h)
    yield "pcie_width_max", lambda: nvml.nvmlDeviceGetMaxPcieLinkWidth(h)
    yield "pcie_replay", lambda: nvml.nvmlDeviceGetPcieReplayCounter(h)
    yield "numa_node", lambda: numa_node(nvml.nvmlDeviceGetMemoryAffinity(h, 4, 0))
    yield "nvlinks", lambda: nvlinks(nvml, h)
    yield "fabric", lambda: fabric(nvml, h)


MEMORY_NAMES = ("memory_total_mib", "memory_free_mib", "memory_used_mib", "memory_reserved_mib")
REMAPPED = ("remapped_correctable", "remapped_uncorrectable", "remapped_pending", "remapped_failure")


def text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def pci(info: Any) -> tuple[str, int, int]:
    return text(info.busId), info.pciDeviceId, info.pciSubSystemId


def memory(nvml: Any, h: Any) -> list[Any]:
    """Version 2 counts the driver's own reserve apart from used; older drivers have version 1 alone."""
    try:
        found = nvml.nvmlDeviceGetMemoryInfo(h, nvml.nvmlMemory_v2)
        reserved: Any = found.reserved / MIB
    except nvml.NVMLError as error:
        if error.value not in too_new(nvml):
            raise
        found = nvml.nvmlDeviceGetMemoryInfo(h)
        reserved = {"error": "NVML_ERROR_FUNCTION_NOT_FOUND"}
    return [found.total / MIB, found.free / MIB, found.used / MIB, reserved]


def too_new(nvml: Any) -> tuple[int, ...]:
    """What an older driver answers to a newer call."""
    return (
        nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        nvml.NVML_ERROR_INVALID_ARGUMENT,
    )


def processes(nvml: Any, h: Any) -> list[dict[str, Any]]:
    """All lists; that a card knows no MPS clients or no graphics is no failure."""
    found = []
    for kind, name in (("compute", "Compute"), ("graphics", "Graphics"), ("mps", "MPSCompute")):
        try:
            rows = running(nvml, h, name)
        except nvml.NVMLError as error:
            absent = (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND)
            if kind == "compute" or error.value not in absent:
                raise
            continue
        for row in rows:
            used = row.usedGpuMemory
            found.append({"pid": row.pid, "type": kind, "used_mib": None if used is None else used / MIB})
    return found


def running(nvml: Any, h: Any, name: str) -> Any:
    """Drivers before 510 have only the second version of the call."""
    try:
        return getattr(nvml, f"nvmlDeviceGet{name}RunningProcesses_v3")(h)
    except nvml.NVMLError as error:
        if error.value != nvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            raise
        return getattr(nvml, f"nvmlDeviceGet{name}RunningProcesses_v2")(h)


def vgpu_license(found: Any) -> dict[str, Any]:
    rows = [found.gridLicensableFeatures[i] for i in range(min(found.licensableFeaturesCount, 3))]
    return {
        "supported": bool(found.isGridLicenseSupported),
        "features": [
            {"product": text(r.productName), "licensed": bool(r.featureState), "enabled": bool(r.featureEnabled)}
            for r in rows
        ],
    }


def inforom_valid(nvml: Any, h: Any) -> bool:
    try:
        nvml.nvmlDeviceValidateInforom(h)
    except nvml.NVMLError as error:
        if error.value == nvml.NVML_ERROR_CORRUPTED_INFOROM:
            return False
        raise
    return True


def field(nvml: Any, h: Any, number: int) -> int:
    found = nvml.nvmlDeviceGetFieldValues(h, [number])[0]
    if found.nvmlReturn != nvml.NVML_SUCCESS:
        raise nvml.NVMLError(found.nvmlReturn)
    return int(found.value.uiVal)


def throttle(nvml: Any, h: Any) -> int:
    """The newer name, then the older: drivers before 535 have only that."""
    try:
        return int(nvml.nvmlDeviceGetCurrentClocksEventReasons(h))
    except (nvml.NVMLError, AttributeError) as error:
        if getattr(error, "value", nvml.NVML_ERROR_FUNCTION_NOT_FOUND) != nvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            raise
        return int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(h))


def utilization(found: Any) -> list[int]:
    return [found.gpu, found.memory]


def numa_node(words: Any) -> Optional[int]:
    """The only NUMA node near this GPU; None where several or none are."""
    nodes = [64 * at + bit for at, word in enumerate(words) for bit in range(64) if int(word) >> bit & 1]
    return nodes[0] if len(nodes) == 1 else None


def nvlinks(nvml: Any, h: Any) -> list[dict[str, Any]]:
    """Links that the card has; their numbers may have gaps. A card that refuses all has said why."""
    found: list[dict[str, Any]] = []
    refused = None
    for link in range(MAX_LINKS):
        try:
            active = nvml.nvmlDeviceGetNvLinkState(h, link)
        except nvml.NVMLError as error:
            if error.value not in (nvml.NVML_ERROR_INVALID_ARGUMENT, nvml.NVML_ERROR_NOT_SUPPORTED):
                raise
            refused = refused or error
        else:
            found.append({"link": link, "state": active, **(one_link(nvml, h, link) if active else {})})
    if refused is not None and not found:
        raise refused
    return found


def one_link(nvml: Any, h: Any, link: int) -> dict[str, Any]:
    """What an active link tells; values that it refuses are left out."""
    told: dict[str, Any] = {}
    asked: dict[str, Callable[[], Any]] = {
        "version": lambda: nvml.nvmlDeviceGetNvLinkVersion(h, link),
        "remote_type": lambda: nvml.nvmlDeviceGetNvLinkRemoteDeviceType(h, link),
        "remote_slot": lambda: text(nvml.nvmlDeviceGetNvLinkRemotePciInfo(h, link).busId),
    }
    for name, call in asked.items():
        put(nvml, told, name, call)
    errors: dict[str, Any] = {}
    for name, number in COUNTERS.items():
        put(nvml, errors, name, partial(nvml.nvmlDeviceGetNvLinkErrorCounter, h, link, number))
    return {**told, "errors": errors}


def put(nvml: Any, into: dict[str, Any], name: str, call: Callable[[], Any]) -> None:
    try:
        into[name] = call()
    except nvml.NVMLError as error:
        into[f"{name}_error"] = error.value


def fabric(nvml: Any, h: Any) -> dict[str, Any]:
    """The newest form that this driver answers."""
    for version in ("v3", "v2"):
        shape = getattr(nvml, f"c_nvmlGpuFabricInfo_{version}_t", None)
        if shape is None:
            continue
        info = shape()
        try:
            nvml.nvmlDeviceGetGpuFabricInfoV(h, byref(info))
        except nvml.NVMLError as error:
            if error.value not in too_new(nvml):
                raise
            continue
        return fabric_values(info)
    info = nvml.c_nvmlGpuFabricInfo_t()
    nvml.nvmlDeviceGetGpuFabricInfo(h, byref(info))
    return fabric_values(info)


def fabric_values(info: Any) -> dict[str, Any]:
    return {
        "state": info.state,
        "status": info.status,
        "clique": info.cliqueId,
        "cluster": bytes(info.clusterUuid).hex(),
        "health_mask": getattr(info, "healthMask", None),
        "health": getattr(info, "healthSummary", None),
    }


def peers(reader: Reader, gpus: list[int]) -> dict[str, dict[str, Any]]:
    """nvmlGpuP2PStatus of each pair of the GPUs that can be opened."""
    nvml = reader.nvml
    opened = {i: reader.ask("handle", i, partial(nvml.nvmlDeviceGetHandleByIndex, i)) for i in gpus}
    handles = {i: handle for i, handle in opened.items() if not isinstance(handle, dict)}
    reader.watch.leave()
    return {
        f"{a}-{b}": {
            name: reader.ask("p2p", None, partial(nvml.nvmlDeviceGetP2PStatus, handles[a], handles[b], number))
            for name, number in P2P.items()
        }
        for a in handles
        for b in handles
        if a < b
    }


def libraries() -> list[str]:
    """Files that this process has mapped as code, without the interpreter's own."""
    own = tuple(f"{prefix}/lib/python" for prefix in (sys.prefix, sys.base_prefix))
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        paths = {line.split(None, 5)[5].strip() for line in maps if line.count("/") and " r-xp " in line}
    return sorted(p for p in paths if p.startswith("/") and not p.startswith(own))


def header(reader: Reader) -> dict[str, Any]:
    nvml = reader.nvml
    mapped = libraries()
    return {
        "version": reader.ask("nvml_version", None, lambda: text(nvml.nvmlSystemGetNVMLVersion())),
        "driver": reader.ask("driver_version", None, lambda: text(nvml.nvmlSystemGetDriverVersion())),
        "cuda_driver": reader.ask("cuda_version", None, nvml.nvmlSystemGetCudaDriverVersion),
        "library": next((p for p in mapped if "libnvidia-ml" in os.path.basename(p)), None),
        "libraries": mapped,
    }


def main(folder: str, call_s: float, read: set[int], skipped: set[int]) -> None:
    sys.path.insert(0, folder)
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError as error:
        print(json.dumps({"nvml": {"error": f"no pynvml: {error}"}, "count": None}))
        return
    names = {v: k for k, v in vars(nvml).items() if k.startswith("NVML_ERROR_") and isinstance(v, int)}
    watch = Watch(call_s)
    reader = Reader(nvml, names, watch)
    begun = reader.tried(nvml.nvmlInit)
    if isinstance(begun, dict):
        watch.say({"nvml": {**begun, "libraries": libraries()}, "count": None})
        return
    count = reader.ask("count", None, nvml.nvmlDeviceGetCount)
    watch.say({"nvml": header(reader), "count": count})
    gpus = [i for i in range(count) if i not in skipped] if isinstance(count, int) else []
    for gpu in gpus:
        if gpu not in read:
            watch.say(reader.read(gpu))
    watch.say({"p2p": peers(reader, gpus)})
    watch.say({"done": True})


def indices(written: str) -> set[int]:
    return {int(i) for i in written.split(",") if i}


if __name__ == "__main__":
    folder, call_s, *lists = sys.argv[1:]
    done, left = [*lists, "", ""][:2]
    main(folder, float(call_s), indices(done), indices(left))
    sys.stdout.flush()
    os._exit(0)  # nvmlShutdown may hang on a lost GPU
