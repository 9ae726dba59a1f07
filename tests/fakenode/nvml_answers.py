"""What our libnvidia-ml and libcuda answer for the cards of a node: the lines of ``answers.txt``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional, Union

from tests.fakenode.card import Card

MIB = 1 << 20
VIRTUALIZATION = {"None": 0, "Pass-Through": 1, "VGPU": 2}
FABRIC_STATES = {"N/A": 0, "Not Started": 1, "In Progress": 2, "Completed": 3}
FABRIC_STATUSES = {"Success": 0}
SLOWDOWN_C, SHUTDOWN_C = 87, 92
SWITCH, GPU = 2, 0  # nvmlNvLinkDeviceType_t
P2P_OK, P2P_CHIPSET, P2P_NOT_SUPPORTED = 0, 1, 5  # nvmlGpuP2PStatus_t

Value = Union[int, str, None]
NOT_SUPPORTED = "error NVML_ERROR_NOT_SUPPORTED"


def nvml_lines(cards: Sequence[Card], driver: str, cuda: str) -> Iterator[str]:
    """The whole library: versions, count, and every card by its index."""
    major, minor = cuda.split(".")
    yield f"- nvmlSystemGetDriverVersion {driver}"
    yield f"- nvmlSystemGetNVMLVersion {major}.{driver}"
    yield f"- nvmlSystemGetCudaDriverVersion {int(major) * 1000 + int(minor) * 10}"
    yield f"- nvmlDeviceGetCount {len(cards)}"
    told = [card.seen_by("nvml") for card in cards]
    for index, card in enumerate(told):
        if card.lost:
            yield f"{index} nvmlDeviceGetHandleByIndex error NVML_ERROR_GPU_IS_LOST"
        yield f"{index} nvmlDeviceGetIndex {index}"
        for call, value in _one(card, driver):
            yield f"{index} nvmlDevice{call} {NOT_SUPPORTED if value is None else value}"
        for other, peer in enumerate(told):
            if index != other:
                yield from _pair(index, card, other, peer)
        for process in card.processes:
            yield f"- nvmlSystemGetProcessName.{process.pid} {process.name}"


def _one(card: Card, driver: str) -> Iterator[tuple[str, Value]]:
    guest = card.virtualization == "VGPU"
    yield from _identity(card)
    yield from _memory(card)
    yield from _nothing(_health(card)) if guest else _health(card)
    yield from _mode(card)
    yield "GetGspFirmwareVersion", None if card.geforce else driver
    yield from _clocks(card)
    yield from _nothing(_power(card)) if guest else _power(card)
    yield from _nothing(_pcie(card)) if guest else _pcie(card)
    yield from _links(card)


def _nothing(values: Iterator[tuple[str, Value]]) -> Iterator[tuple[str, Value]]:
    return ((call, None) for call, _ in values)


def _identity(card: Card) -> Iterator[tuple[str, Value]]:
    yield "GetName", card.name
    yield "GetUUID", card.uuid
    yield "GetSerial", card.serial
    yield "GetBoardPartNumber", card.board_part
    yield "GetVbiosVersion", card.vbios
    yield "GetInforomImageVersion", card.inforom
    yield "GetMinorNumber", card.index
    yield "GetBoardId", _bus(card) << 8
    yield "GetPciInfo", f"{card.slot} {card.device_id << 16 | 0x10DE:#x} {card.subsystem_id:#x}"
    yield "GetBrand", card.brand_code
    yield "GetArchitecture", card.architecture_code
    yield "GetCudaComputeCapability", "{} {}".format(*card.compute_capability)
    yield "GetNumGpuCores", card.cores
    yield "GetMemoryBusWidth", card.bus_bits


def _bus(card: Card) -> int:
    return int(card.slot.split(":")[1], 16)


def _memory(card: Card) -> Iterator[tuple[str, Value]]:
    sizes = (card.memory_mib, card.reserved_mib, card.free_mib, card.memory_used_mib)
    yield "GetMemoryInfo", " ".join(str(size * MIB) for size in sizes)
    yield "GetBAR1MemoryInfo", f"{card.bar1_mib * MIB} {(card.bar1_mib - 1) * MIB} {MIB}"
    yield "GetUtilizationRates", f"{card.utilization} {card.utilization // 4}"
    yield "GetComputeRunningProcesses", _processes(card, "C")
    yield "GetGraphicsRunningProcesses", _processes(card, "G")
    yield "GetMPSComputeRunningProcesses", _processes(card, "M+C")


def _processes(card: Card, kind: str) -> str:
    rows = [f"{p.pid}:{'-' if p.mib is None else p.mib}" for p in card.processes if p.type == kind]
    return " ".join(rows) or "none"


def _health(card: Card) -> Iterator[tuple[str, Value]]:
    yield "GetEccMode", None if card.ecc is None else f"{int(card.ecc)} {int(card.ecc)}"
    counts = {
        (0, 0): 0,
        (0, 1): card.ecc_corrected,
        (1, 0): card.ecc_volatile_uncorrected,
        (1, 1): card.ecc_uncorrected,
    }
    for (kind, span), count in counts.items():
        yield f"GetTotalEccErrors.{kind}.{span}", count if card.ecc else None
    yield "ValidateInforom", "" if card.inforom_valid else "error NVML_ERROR_CORRUPTED_INFOROM"
    yield "GetRemappedRows", None if card.mig else " ".join(map(str, card.remapped))
    yield "GetRetiredPages.*", None
    yield "GetRetiredPagesPendingStatus", None
    yield "GetFieldValues.230.0", 0  # NVML_FI_DEV_GET_GPU_RECOVERY_ACTION: none
    yield "GetSramEccErrorStatus", "error NVML_ERROR_NO_PERMISSION"


def _mode(card: Card) -> Iterator[tuple[str, Value]]:
    yield "GetEccMode", None if card.ecc is None else f"{int(card.ecc)} {int(card.ecc)}"
    yield "GetMigMode", None if card.mig is None else f"{int(card.mig)} {int(card.mig)}"
    yield "GetVirtualizationMode", VIRTUALIZATION[card.virtualization]
    yield "GetPersistenceMode", int(card.persistence)
    yield "GetComputeMode", 0
    yield "GetMemoryAffinity", hex(1 << card.numa)
    licensed = card.licence is not None and card.licence.startswith("Licensed")
    yield "GetGridLicensableFeatures", card.licence and f"{int(licensed)} NVIDIA Virtual Compute Server"


def _clocks(card: Card) -> Iterator[tuple[str, Value]]:
    yield "GetCurrentClocksEventReasons", card.throttle
    yield "GetCurrentClocksThrottleReasons", card.throttle
    yield "GetPerformanceState", card.performance_state
    for key, now, most in (
        (0, card.sm_mhz, card.sm_max_mhz),
        (1, card.sm_mhz, card.sm_max_mhz),
        (2, card.memory_mhz, card.memory_max_mhz),
    ):
        yield f"GetClockInfo.{key}", now
        yield f"GetMaxClockInfo.{key}", most
        default = None if card.geforce else most
        yield f"GetDefaultApplicationsClock.{key}", default
        yield f"GetApplicationsClock.{key}", default if key == 2 else card.app_clock_mhz or default


def _power(card: Card) -> Iterator[tuple[str, Value]]:
    yield "GetPowerManagementMode", 1
    yield "GetEnforcedPowerLimit", card.limit_w * 1000
    yield "GetPowerManagementLimit", card.limit_w * 1000
    yield "GetPowerManagementDefaultLimit", card.power_default_w * 1000
    yield "GetPowerManagementLimitConstraints", f"{card.power_min_w * 1000} {card.power_max_w * 1000}"
    yield "GetPowerUsage", card.power_draw_mw
    yield "GetTemperature.0", card.temperature_c
    yield "GetTemperatureThreshold.0", SHUTDOWN_C
    yield "GetTemperatureThreshold.1", SLOWDOWN_C
    yield "GetFieldValues.82.0", None if card.geforce else card.temperature_c + 8  # NVML_FI_DEV_MEMORY_TEMP


def _pcie(card: Card) -> Iterator[tuple[str, Value]]:
    yield "GetCurrPcieLinkGeneration", card.gen_now
    yield "GetMaxPcieLinkGeneration", card.slot_max_gen
    yield "GetGpuMaxPcieLinkGeneration", card.pcie_gen_device
    yield "GetCurrPcieLinkWidth", card.pcie_width
    yield "GetMaxPcieLinkWidth", card.pcie_width_max
    yield "GetPcieReplayCounter", card.replays


def _links(card: Card) -> Iterator[tuple[str, Value]]:
    for link, active in enumerate(card.links):
        yield f"GetNvLinkState.{link}", int(active)
        if not active:
            yield f"GetNvLinkRemoteDeviceType.{link}", None
            yield f"GetNvLinkRemotePciInfo.{link}", None
    if card.links:
        yield "GetNvLinkState.*", "error NVML_ERROR_INVALID_ARGUMENT"
        yield "GetNvLinkVersion.*", card.nvlink_version
        yield "GetNvLinkRemoteDeviceType.*", SWITCH
        for link in range(len(card.links)):
            # Four NVSwitches share the links of every GPU.
            yield f"GetNvLinkRemotePciInfo.{link}", f"0000:{0x07 + link % 4:02x}:00.0 0x22a310de 0x179610de"
        yield "GetNvLinkErrorCounter.*", 0
        yield "GetNvLinkCapability.*", 1
    yield "GetGpuFabricInfo", _fabric(card)


def _fabric(card: Card) -> Optional[str]:
    if card.fabric is None:
        return None
    state, status = card.fabric
    code = FABRIC_STATUSES.get(status, 999)
    healthy = (state, status) == ("Completed", "Success")
    return f"{FABRIC_STATES[state]} {code} 0 0 {1 if healthy else 2 if state == 'Completed' else 0}"


def _pair(index: int, card: Card, other: int, peer: Card) -> Iterator[str]:
    linked = nvlinks_between(card, peer) > 0
    bus = P2P_OK if linked or (card.peer_pcie and peer.peer_pcie) else P2P_CHIPSET
    for what, status in ((0, bus), (1, bus), (2, P2P_OK if linked else P2P_NOT_SUPPORTED), (3, bus)):
        yield f"{index} nvmlDeviceGetP2PStatus.{other}.{what} {status}"


def nvlinks_between(card: Card, peer: Card) -> int:
    """Bonded links between two cards on switches: what the poorer of the two has, none off the fabric."""
    for one in (card, peer):
        if one.fabric is not None and one.fabric != ("Completed", "Success"):
            return 0
    return min(sum(card.links), sum(peer.links))


# --- CUDA ------------------------------------------------------------------------------------------------


def cuda_lines(cards: Sequence[Card], cuda: str) -> Iterator[str]:
    """The cards that CUDA can use, in its own order: a lost one is not among them."""
    major, minor = cuda.split(".")
    alive = [card.seen_by("cuda") for card in cards if not card.lost]
    yield f"- cuDriverGetVersion {int(major) * 1000 + int(minor) * 10}"
    yield f"- cuDeviceGetCount {len(alive)}"
    for ordinal, card in enumerate(alive):
        yield f"{ordinal} cuDeviceGetName {card.name}"
        yield f"{ordinal} cuDeviceGetUuid {card.uuid}"
        yield f"{ordinal} cuDeviceGetPCIBusId {card.slot.upper()}"
        yield f"{ordinal} cuDeviceTotalMem {(card.memory_mib - card.reserved_mib) * MIB}"
        for attribute, value in _attributes(card).items():
            yield f"{ordinal} cuDeviceGetAttribute.{attribute} {value}"
        for other, peer in enumerate(alive):
            if other != ordinal:
                can = nvlinks_between(card, peer) > 0 or (card.peer_pcie and peer.peer_pcie)
                yield f"{ordinal} cuDeviceCanAccessPeer.{other} {int(can)}"


def _attributes(card: Card) -> dict[int, int]:
    """CUdevice_attribute by number."""
    domain, bus, rest = card.slot.split(":")
    return {
        1: 1024,  # threads a block
        10: 32,  # warp size
        13: card.sm_max_mhz * 1000,
        16: card.sm,
        18: 0,  # integrated
        20: 0,  # compute mode
        31: 1,  # concurrent kernels
        32: int(bool(card.ecc)),
        33: int(bus, 16),
        34: int(rest.split(".")[0], 16),
        36: card.memory_max_mhz * 1000,
        37: card.bus_bits,
        38: card.l2_bytes,
        39: 2048,  # threads an SM
        41: 1,  # unified addressing
        50: int(domain, 16),
        75: card.compute_capability[0],
        76: card.compute_capability[1],
        83: 1,  # managed memory
    }
