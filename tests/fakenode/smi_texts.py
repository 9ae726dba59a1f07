"""What nvidia-smi prints for the cards of a node, in the form of driver 570: XML, topology, NVLinks, table, fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Optional, Union
from xml.sax.saxutils import escape

from tests.fakenode.card import Card, Process
from tests.fakenode.nvml_answers import nvlinks_between

Tree = Union[str, int, None, Mapping[str, "Tree"], Sequence[Mapping[str, "Tree"]]]
NA = "N/A"
LOST = "GPU is lost"
RULE = "-" * 89

REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x100: "display_clocks_setting",
}


def on(flag: Optional[bool]) -> str:
    return NA if flag is None else "Enabled" if flag else "Disabled"


def yes(flag: object) -> str:
    return "Yes" if flag else "No"


def of(value: Optional[int], unit: str) -> str:
    return NA if value is None else f"{value} {unit}"


def watts(milliwatts: int) -> str:
    return f"{milliwatts / 1000:.2f} W"


def bus_id(card: Card) -> str:
    domain, rest = card.slot.split(":", 1)
    return f"{domain:0>8}:{rest}".upper()


# --- nvidia-smi -q -x ------------------------------------------------------------------------------------


def xml(cards: Sequence[Card], driver: str, cuda: str) -> str:
    """The whole document."""
    head = (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>\n'
        f"\t<timestamp>Mon Nov 30 09:12:41 2026</timestamp>\n\t<driver_version>{driver}</driver_version>\n"
        f"\t<cuda_version>{cuda}</cuda_version>\n\t<attached_gpus>{len(cards)}</attached_gpus>\n"
    )
    return head + "".join(_gpu(card.seen_by("smi"), driver) for card in cards) + "</nvidia_smi_log>\n"


def _gpu(card: Card, driver: str) -> str:
    body = "".join(_element(tag, value, 2) for tag, value in _fields(card, driver).items())
    return f'\t<gpu id="{bus_id(card)}">\n{body}\t</gpu>\n\n'


def _element(tag: str, value: Tree, depth: int) -> str:
    tab = "\t" * depth
    if isinstance(value, Mapping):
        inner = "".join(_element(name, item, depth + 1) for name, item in value.items())
        return f"{tab}<{tag}>\n{inner}{tab}</{tag}>\n"
    if isinstance(value, Sequence) and not isinstance(value, str):
        inner = "".join(_element(name, item, depth + 1) for entry in value for name, item in entry.items())
        return f"{tab}<{tag}>\n{inner}{tab}</{tag}>\n"
    text = NA if value is None else escape(str(value))
    return f"{tab}<{tag}>{text}</{tag}>\n"


def _fields(card: Card, driver: str) -> dict[str, Tree]:
    fields: dict[str, Tree] = {**_who(card, driver), "pci": _pci(card), **_state(card), **_sensors(card), **_end(card)}
    return fields


def _who(card: Card, driver: str) -> dict[str, Tree]:
    who: dict[str, Tree] = {
        "product_name": card.name,
        "product_brand": card.brand,
        "product_architecture": card.architecture,
        "display_mode": "Disabled" if card.geforce else "Enabled",
        "display_active": "Disabled",
        "persistence_mode": on(card.persistence),
        "addressing_mode": "None",
        "mig_mode": {"current_mig": on(card.mig), "pending_mig": on(card.mig)},
        "mig_devices": _mig_devices(card),
        "accounting_mode": "Disabled",
        "accounting_mode_buffer_size": 4000,
        "driver_model": {"current_dm": NA, "pending_dm": NA},
        "serial": card.serial,
        "uuid": card.uuid,
        "minor_number": card.index,
        "vbios_version": card.vbios,
        "multigpu_board": "No",
        "board_id": f"{int(card.slot.split(':')[1], 16) << 8:#x}",
        "board_part_number": card.board_part,
        "gpu_part_number": card.gpu_part,
        "gpu_fru_part_number": NA,
        "inforom_version": {
            "img_version": card.inforom,
            "oem_object": "2.1",
            "ecc_object": "7.16" if card.ecc else NA,
            "pwr_object": NA,
        },
        "gpu_operation_mode": {"current_gom": NA, "pending_gom": NA},
        "c2c_mode": NA,
        "gpu_virtualization_mode": {
            "virtualization_mode": card.virtualization,
            "host_vgpu_mode": NA,
            "vgpu_heterogeneous_mode": NA,
        },
    }
    if card.licence is not None:
        who["vgpu_software_licensed_product"] = {
            "licensed_product_name": "NVIDIA Virtual Compute Server",
            "license_status": card.licence,
        }
    return {**who, "gpu_recovery_action": "None", "gsp_firmware_version": NA if card.geforce else driver}


def _mig_devices(card: Card) -> Tree:
    """Two slices of half the card each, where MIG is on."""
    if not card.mig:
        return "\n\t\t\tNone\n\t\t"
    half = card.memory_mib // 2
    usage: dict[str, Tree] = {"total": f"{half} MiB", "reserved": "0 MiB", "used": "12 MiB", "free": f"{half - 12} MiB"}
    return [
        {"mig_device": {"index": i, "gpu_instance_id": i + 1, "compute_instance_id": 0, "fb_memory_usage": usage}}
        for i in range(2)
    ]


def _pci(card: Card) -> dict[str, Tree]:
    domain, bus, rest = card.slot.split(":")
    guest = card.virtualization == "VGPU"
    host = NA if card.virtualization != "None" else min(card.pcie_gen_slot or 5, 5)
    gens: dict[str, Tree] = {
        "max_link_gen": card.slot_max_gen,
        "current_link_gen": card.gen_now,
        "device_current_link_gen": card.gen_now,
        "max_device_link_gen": card.pcie_gen_device,
        "max_host_link_gen": host,
    }
    widths: dict[str, Tree] = {
        "max_link_width": f"{card.pcie_width_max}x",
        "current_link_width": f"{card.pcie_width}x",
    }
    return {
        "pci_bus": bus.upper(),
        "pci_device": rest.split(".")[0].upper(),
        "pci_domain": domain.upper(),
        "pci_base_class": 3,
        "pci_sub_class": 0 if card.geforce else 2,
        "pci_device_id": f"{card.device_id:04X}10DE",
        "pci_bus_id": bus_id(card),
        "pci_sub_system_id": f"{card.subsystem_id:08X}",
        "pci_gpu_link_info": {
            "pcie_gen": dict.fromkeys(gens, NA) if guest else gens,
            "link_widths": dict.fromkeys(widths, NA) if guest else widths,
        },
        "pci_bridge_chip": {"bridge_chip_type": NA, "bridge_chip_fw": NA},
        "replay_counter": card.replays,
        "replay_rollover_counter": 0,
        "tx_util": "502 KB/s",
        "rx_util": "578 KB/s",
        "atomic_caps_outbound": NA,
        "atomic_caps_inbound": NA,
    }


def _state(card: Card) -> dict[str, Tree]:
    return {
        "fan_speed": "0 %" if card.geforce else NA,
        "performance_state": f"P{card.performance_state}",
        "clocks_event_reasons": {
            f"clocks_event_reason_{name}": "Active" if card.throttle & bit else "Not Active"
            for bit, name in REASONS.items()
        },
        "sparse_operation_mode": NA,
        "fb_memory_usage": _lost(
            card,
            total=f"{card.memory_mib} MiB",
            reserved=f"{card.reserved_mib} MiB",
            used=f"{card.memory_used_mib} MiB",
            free=f"{card.free_mib} MiB",
        ),
        "bar1_memory_usage": {
            "total": f"{card.bar1_mib} MiB",
            "used": "1 MiB",
            "free": f"{card.bar1_mib - 1} MiB",
        },
        "cc_protected_memory_usage": {"total": "0 MiB", "used": "0 MiB", "free": "0 MiB"},
        "compute_mode": "Default",
        "utilization": {
            **_lost(card, gpu_util=f"{card.utilization} %", memory_util=f"{card.utilization // 4} %"),
            "encoder_util": "0 %",
            "decoder_util": "0 %",
            "jpeg_util": "0 %",
            "ofa_util": "0 %",
        },
        "ecc_mode": {"current_ecc": on(card.ecc), "pending_ecc": on(card.ecc)},
        "ecc_errors": _ecc(card),
        "retired_pages": {
            "multiple_single_bit_retirement": {"retired_count": NA, "retired_pagelist": NA},
            "double_bit_retirement": {"retired_count": NA, "retired_pagelist": NA},
            "pending_blacklist": NA,
            "pending_retirement": NA,
        },
        "remapped_rows": LOST if card.lost else _remapped(card),
    }


def _lost(card: Card, **fields: Tree) -> dict[str, Tree]:
    return dict.fromkeys(fields, LOST) if card.lost else fields


def _ecc(card: Card) -> dict[str, Tree]:
    def counts(corrected: int, uncorrected: int) -> dict[str, Tree]:
        names = ("sram_correctable", "sram_uncorrectable_parity", "sram_uncorrectable_secded")
        if not card.ecc or card.virtualization == "VGPU":
            return dict.fromkeys((*names, "dram_correctable", "dram_uncorrectable"), NA)
        dram = _lost(card, dram_correctable=corrected, dram_uncorrectable=uncorrected)
        return {**dict.fromkeys(names, 0), **dram}

    return {
        "volatile": counts(0, card.ecc_volatile_uncorrected),
        "aggregate": {
            **counts(card.ecc_corrected, card.ecc_uncorrected),
            "sram_threshold_exceeded": "No" if card.ecc else NA,
        },
    }


def _remapped(card: Card) -> Tree:
    if card.mig or card.virtualization == "VGPU":
        return NA
    corrected, uncorrected, pending, failed = card.remapped
    bank = "bank(s)"
    return {
        "remapped_row_corr": corrected,
        "remapped_row_unc": uncorrected,
        "remapped_row_pending": yes(pending),
        "remapped_row_failure": yes(failed),
        "row_remapper_histogram": {
            "row_remapper_histogram_max": f"{2560 - bool(uncorrected)} {bank}",
            "row_remapper_histogram_high": f"{int(bool(uncorrected))} {bank}",
            "row_remapper_histogram_partial": f"0 {bank}",
            "row_remapper_histogram_low": f"0 {bank}",
            "row_remapper_histogram_none": f"0 {bank}",
        },
    }


def _sensors(card: Card) -> dict[str, Tree]:
    guest = card.virtualization == "VGPU"
    temperature: dict[str, Tree] = {
        "gpu_temp": LOST if card.lost else f"{card.temperature_c} C",
        "gpu_temp_tlimit": f"{87 - card.temperature_c} C",
        "gpu_temp_max_tlimit_threshold": "-8 C",
        "gpu_temp_slow_tlimit_threshold": "-2 C",
        "gpu_temp_max_gpu_tlimit_threshold": "0 C",
        "gpu_target_temperature": "84 C" if card.geforce else NA,
        "memory_temp": NA if card.geforce else f"{card.temperature_c + 8} C",
        "gpu_temp_max_mem_tlimit_threshold": NA if card.geforce else "0 C",
    }
    power: dict[str, Tree] = {
        "power_state": f"P{card.performance_state}",
        **_lost(card, average_power_draw=watts(card.power_draw_mw), instant_power_draw=watts(card.power_draw_mw)),
        "current_power_limit": watts(card.limit_w * 1000),
        "requested_power_limit": watts(card.limit_w * 1000),
        "default_power_limit": watts(card.power_default_w * 1000),
        "min_power_limit": watts(card.power_min_w * 1000),
        "max_power_limit": watts(card.power_max_w * 1000),
    }
    return {
        "temperature": dict.fromkeys(temperature, NA) if guest else temperature,
        "gpu_power_readings": {**dict.fromkeys(power, NA), "power_state": "P0"} if guest else power,
        "gpu_memory_power_readings": {"average_power_draw": NA, "instant_power_draw": NA},
        "module_power_readings": dict.fromkeys(power, NA),
        **_clocks(card),
    }


def _clocks(card: Card) -> dict[str, Tree]:
    default = None if card.geforce else card.sm_max_mhz
    memory = None if card.geforce else card.memory_max_mhz
    now = {"graphics_clock": f"{card.sm_mhz} MHz", "sm_clock": f"{card.sm_mhz} MHz"}
    return {
        "clocks": {**_lost(card, **now), "mem_clock": f"{card.memory_mhz} MHz", "video_clock": "765 MHz"},
        "applications_clocks": {
            "graphics_clock": of(card.app_clock_mhz or default, "MHz"),
            "mem_clock": of(memory, "MHz"),
        },
        "default_applications_clocks": {"graphics_clock": of(default, "MHz"), "mem_clock": of(memory, "MHz")},
        "deferred_clocks": {"mem_clock": NA},
        "max_clocks": {
            "graphics_clock": f"{card.sm_max_mhz} MHz",
            "sm_clock": f"{card.sm_max_mhz} MHz",
            "mem_clock": f"{card.memory_max_mhz} MHz",
            "video_clock": "1545 MHz",
        },
        "max_customer_boost_clocks": {"graphics_clock": of(default, "MHz")},
        "clock_policy": {"auto_boost": NA, "auto_boost_default": NA},
    }


def _end(card: Card) -> dict[str, Tree]:
    state, status = card.fabric or (NA, NA)
    fabric: dict[str, Tree] = {
        "state": state,
        "status": status,
        "cliqueId": 0 if state == "Completed" else NA,
        "clusterUuid": "00000000-0000-0000-0000-000000000000" if state == "Completed" else NA,
        "health": {"bandwidth": NA, "route_recovery_in_progress": NA, "route_unhealthy": NA},
    }
    return {
        "fabric": LOST if card.lost else fabric,
        "supported_clocks": NA,
        "processes": [{"process_info": _process(process)} for process in card.processes],
        "accounted_processes": "",
    }


def _process(process: Process) -> dict[str, Tree]:
    return {
        "gpu_instance_id": NA,
        "compute_instance_id": NA,
        "pid": process.pid,
        "type": process.type,
        "process_name": process.name,
        "used_memory": of(process.mib, "MiB"),
    }


# --- nvidia-smi topo -m, topo -p2p r, nvlink -s ------------------------------------------------------------

LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
"""
P2P_LEGEND = """
Legend:

  X    = Self
  OK   = Status Ok
  CNS  = Chipset not supported
  GNS  = GPU not supported
  TNS  = Topology not supported
  NS   = Not supported
  DR   = Disabled by regkey
  U    = Unknown
"""

Place = tuple[str, tuple[str, ...], int]
"""Name in the table, the sysfs chain above the device, its NUMA node."""


def path_between(one: Place, other: Place) -> str:
    """The PCIe path as nvidia-smi names it: by what the two chains share."""
    if one[2] != other[2]:
        return "SYS"
    shared = sum(1 for a, b in zip(one[1], other[1]) if a == b)
    if shared == 0:
        return "NODE"
    if shared == 1:
        return "PHB"
    # Each further bridge of one chain that the other lacks is one more to cross.
    beyond = max(len(one[1]), len(other[1])) - shared
    return "PIX" if beyond <= 1 else "PXB"


def topology(cards: Sequence[Card], nics: Sequence[Place], cpus: Sequence[str]) -> str:
    """``topo -m``; ``cpus`` are the CPU lists by NUMA node."""
    told = [card.seen_by("smi") for card in cards]
    gpus: list[Place] = [(f"GPU{i}", card.parents, card.numa) for i, card in enumerate(told)]
    named: list[Place] = [(f"NIC{i}", parents, numa) for i, (_, parents, numa) in enumerate(nics)]
    places = [*gpus, *named]
    rows = ["\t" + "\t".join(p[0] for p in places) + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID"]
    for at, place in enumerate(places):
        cells = [" X " if other is place else _cell(told, at, to, place, other) for to, other in enumerate(places)]
        near = f"{cpus[place[2]]}\t{place[2]}\t\tN/A" if at < len(gpus) else "\t\t"
        rows.append("\t".join([place[0], *cells, near]))
    text = "\n".join(rows) + "\n" + LEGEND
    if nics:
        text += "\nNIC Legend:\n\n" + "".join(f"  NIC{i}: {name}\n" for i, (name, _, _) in enumerate(nics))
    return text + "\n"


def _cell(cards: Sequence[Card], at: int, to: int, place: Place, other: Place) -> str:
    if at < len(cards) and to < len(cards) and (links := nvlinks_between(cards[at], cards[to])):
        return f"NV{links}"
    return path_between(place, other)


def peers(cards: Sequence[Card]) -> str:
    """``topo -p2p r``."""
    told = [card.seen_by("smi") for card in cards]
    rows = [" \t" + "".join(f"GPU{i}\t" for i in range(len(told)))]
    for at, card in enumerate(told):
        cells = ["X" if to == at else _peer(card, peer) for to, peer in enumerate(told)]
        rows.append(f" GPU{at}\t" + "".join(f"{cell}\t" for cell in cells))
    return "\n".join(rows) + "\n" + P2P_LEGEND


def _peer(card: Card, peer: Card) -> str:
    linked = nvlinks_between(card, peer) > 0
    return "OK" if linked or (card.peer_pcie and peer.peer_pcie) else "CNS"


def nvlinks(cards: Sequence[Card]) -> str:
    """``nvlink -s``; nothing at all for cards without NVLink, as the older drivers do."""
    lines = []
    for index, card in enumerate(card.seen_by("smi") for card in cards):
        if not card.links:
            continue
        lines.append(f"GPU {index}: {card.name} (UUID: {card.uuid})")
        for link, active in enumerate(card.links):
            lines.append(f"\t Link {link}: " + (f"{card.link_rate:g} GB/s" if active else "<inactive>"))
    return "".join(f"{line}\n" for line in lines)


# --- the plain texts ---------------------------------------------------------------------------------------


def version(driver: str, cuda: str) -> str:
    """``--version``."""
    library = driver.rpartition(".")[0]
    return (
        f"NVIDIA-SMI version  : {driver}\nNVML version        : {library}\nDRIVER version      : {driver}\n"
        f"CUDA Version        : {cuda}\n"
    )


def listing(cards: Sequence[Card]) -> str:
    """``-L``."""
    told = [card.seen_by("smi") for card in cards]
    return "".join(f"GPU {i}: {card.name} (UUID: {card.uuid})\n" for i, card in enumerate(told))


def table(cards: Sequence[Card], driver: str, cuda: str) -> str:
    """``nvidia-smi`` alone."""
    told = [card.seen_by("smi") for card in cards]
    rows = [row for index, card in enumerate(told) for row in _table_rows(index, card)]
    processes = [row for index, card in enumerate(told) for row in _process_rows(index, card)]
    nobody = "|  No running processes found" + " " * 61 + "|"
    parts = [
        "Mon Nov 30 09:12:41 2026       ",
        f"+{RULE}+",
        f"| NVIDIA-SMI {driver:<23}Driver Version: {driver:<15}CUDA Version: {cuda:<9}|",
        "|-----------------------------------------+------------------------+----------------------+",
        "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |",
        "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |",
        "|                                         |                        |               MIG M. |",
        "|=========================================+========================+======================|",
        *rows,
        " " * 89,
        f"+{RULE}+",
        "| Processes:" + " " * 78 + "|",
        "|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |",
        "|        ID   ID                                                               Usage      |",
        "|" + "=" * 89 + "|",
        *(processes or [nobody]),
        f"+{RULE}+",
    ]
    return "\n".join(parts) + "\n"


def _table_rows(index: int, card: Card) -> Iterator[str]:
    ecc = "0" if card.ecc else "Off" if card.ecc is False else NA
    persistence = "On" if card.persistence else "Off"
    guest = card.virtualization == "VGPU"
    cap = "N/A /  N/A" if guest else f"{card.power_draw_mw // 1000}W / {card.limit_w:>4}W"
    memory = f"{card.memory_used_mib}MiB / {card.memory_mib:>6}MiB"
    yield f"|{index:>4}  {card.name[:25]:<25}{persistence:>8}  |   {bus_id(card)} Off |{ecc:>21} |"
    fan, temp = ("0%" if card.geforce else NA), NA if guest else f"{card.temperature_c}C"
    sensors = f" {fan:>3}  {temp:>4}    P{card.performance_state}"
    yield f"|{sensors:<20}{cap:>20} |{memory:>23} |{card.utilization:>7}%      Default |"
    yield f"|                                         |                        |{on(card.mig):>21} |"
    yield "+-----------------------------------------+------------------------+----------------------+"


def _process_rows(index: int, card: Card) -> Iterator[str]:
    for process in card.processes:
        used = NA if process.mib is None else f"{process.mib}MiB"
        yield f"|{index:>5}   N/A  N/A {process.pid:>16}{process.type:>7}   {process.name[:28]:<28} {used:>16} |"


def fields(cards: Sequence[Card], driver: str) -> Iterator[str]:
    """Answers of ``--query-gpu``: lines for ``answers.txt``."""
    yield f"- smi.gpus {len(cards)}"
    for index, card in enumerate(card.seen_by("smi") for card in cards):
        for name, value in _query(index, card, driver, len(cards)).items():
            text = "[N/A]" if value is None else f"[{LOST}]" if card.lost and name in _SENSORS else value
            yield f"{index} smi.{name} {text}"


_SENSORS = frozenset("memory.used memory.free temperature.gpu power.draw utilization.gpu clocks.sm".split())


def _query(index: int, card: Card, driver: str, count: int) -> dict[str, Union[str, int, None]]:
    return {
        "timestamp": "2026/11/30 09:12:41.518",
        "index": index,
        "count": count,
        "name": card.name,
        "gpu_name": card.name,
        "uuid": card.uuid,
        "gpu_uuid": card.uuid,
        "serial": card.serial,
        "driver_version": driver,
        "vbios_version": card.vbios,
        "pci.bus_id": bus_id(card),
        "gpu_bus_id": bus_id(card),
        "pci.device_id": f"0x{card.device_id:04X}10DE",
        "pci.sub_device_id": f"0x{card.subsystem_id:08X}",
        "pcie.link.gen.current": card.gen_now,
        "pcie.link.gen.gpucurrent": card.gen_now,
        "pcie.link.gen.max": card.slot_max_gen,
        "pcie.link.gen.gpumax": card.pcie_gen_device,
        "pcie.link.width.current": card.pcie_width,
        "pcie.link.width.max": card.pcie_width_max,
        "memory.total": f"{card.memory_mib} MiB",
        "memory.used": f"{card.memory_used_mib} MiB",
        "memory.free": f"{card.free_mib} MiB",
        "memory.reserved": f"{card.reserved_mib} MiB",
        "temperature.gpu": card.temperature_c,
        "temperature.memory": None if card.geforce else card.temperature_c + 8,
        "power.draw": watts(card.power_draw_mw),
        "power.limit": watts(card.limit_w * 1000),
        "enforced.power.limit": watts(card.limit_w * 1000),
        "power.default_limit": watts(card.power_default_w * 1000),
        "power.min_limit": watts(card.power_min_w * 1000),
        "power.max_limit": watts(card.power_max_w * 1000),
        "utilization.gpu": f"{card.utilization} %",
        "utilization.memory": f"{card.utilization // 4} %",
        "clocks.sm": f"{card.sm_mhz} MHz",
        "clocks.current.sm": f"{card.sm_mhz} MHz",
        "clocks.mem": f"{card.memory_mhz} MHz",
        "clocks.max.sm": f"{card.sm_max_mhz} MHz",
        "clocks.max.mem": f"{card.memory_max_mhz} MHz",
        "clocks_event_reasons.active": f"0x{card.throttle:016x}",
        "clocks_throttle_reasons.active": f"0x{card.throttle:016x}",
        "pstate": f"P{card.performance_state}",
        "persistence_mode": on(card.persistence),
        "compute_mode": "Default",
        "compute_cap": "{}.{}".format(*card.compute_capability),
        "mig.mode.current": None if card.mig is None else on(card.mig),
        "ecc.mode.current": None if card.ecc is None else on(card.ecc),
        "ecc.errors.uncorrected.aggregate.total": card.ecc_uncorrected if card.ecc else None,
        "ecc.errors.uncorrected.volatile.total": card.ecc_volatile_uncorrected if card.ecc else None,
    }
