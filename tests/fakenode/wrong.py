"""Servers with something wrong, each made from a healthy one by one small change; and some that only look wrong.

:data:`CASES` says of each which contract it is held against and what has to come out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.fakenode import card as models
from tests.fakenode import healthy
from tests.fakenode.card import Card, Process
from tests.fakenode.node import Node, fails

CLEAN_LOG = "[    0.000000] Linux version 5.15.0-126-generic"
SENSORS = ("nvml", "smi", "cuda")
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 575.57"
SMI_COMMANDS = """#!/bin/sh
case "$*" in
*-x*) cat {folder}/q-x.xml;;
*nvlink*) cat {folder}/nvlink-s.txt;;
*-p2p*) cat {folder}/topo-p2p.txt;;
*topo*) cat {folder}/topo-m.txt;;
*--version*) cat {folder}/version.txt;;
*) cat {folder}/table.txt;;
esac
"""


def logging(node: Node, *lines: str) -> Node:
    """More lines in the kernel log."""
    return node.but(kernel_log=(*(node.kernel_log or ()), *lines))


def xid(slot: str, number: int, text: str) -> str:
    """A line as the driver writes it."""
    return f"[91234.567890] NVRM: Xid (PCI:{slot[:-2]}): {number}, pid='<unknown>', name=<unknown>, {text}"


# --- a card is gone --------------------------------------------------------------------------------------


def lost(node: Node, index: int = 3) -> Node:
    """A card fell off the bus while the driver ran: PCI still lists it, NVML cannot open it."""
    line = xid(node.cards[index].slot, 79, "GPU has fallen off the bus.")
    return logging(node.card(index, lambda card: card.but(lost=True)), line)


def lost_silently(node: Node, index: int = 3) -> Node:
    """The same, and nvidia-smi prints the failure in the place of everything."""
    name = node.cards[index].slot.upper()
    text = f"Unable to determine the device handle for GPU{index}: {name}: Unknown Error"
    return smi_says(lost(node, index), text, 255)


def never_came_up(node: Node, index: int = 3) -> Node:
    """A card was dead when the driver was loaded: the driver does not count it; there is no Xid."""
    slot = node.cards[index].slot
    dead = node.card(index, lambda card: card.but(lost=True))
    given = tuple(card.index for card in node.cards if card.index != index)
    return logging(
        dead.but(given=given),
        f"[   14.308145] NVRM: The NVIDIA GPU {slot}",
        "               NVRM: (PCI ID: 10de:2330) installed in this system has",
        "               NVRM: fallen off the bus and is not responding to commands.",
        f"[   14.439662] nvidia: probe of {slot} failed with error -1",
    )


def one_too_few(node: Node) -> Node:
    """The last card was never put in."""
    return node.but(cards=node.cards[:-1])


def not_on_the_bus(node: Node, index: int = 3) -> Node:
    """NVML has a card that PCI lacks."""
    return node.but(off_bus=(index,))


# --- a card is worse than promised -------------------------------------------------------------------------


def narrow(node: Node, index: int = 2) -> Node:
    """A slot that is wired x8."""
    return node.card(index, lambda card: card.but(pcie_width=8, pcie_width_max=8))


def narrow_now(node: Node, index: int = 2) -> Node:
    """Slot and card can x16, the link came up x8: proven only under load."""
    return node.card(index, lambda card: card.but(pcie_width=8))


def gen3(node: Node) -> Node:
    """A host that is a generation or two behind its cards."""
    return node.every_card(lambda card: card.but(pcie_gen_slot=3))


def capped(node: Node, watts: int = 450, index: int = 5) -> Node:
    """The vendor set a lower power limit."""
    return node.card(index, lambda card: card.but(power_limit_w=watts))


def low_default(node: Node) -> Node:
    """Every card's own default is below the model's."""
    return node.every_card(lambda card: card.but(power_default_w=card.power_default_w - 90))


def locked_clocks(node: Node, mhz: int = 1200) -> Node:
    """Application clocks under the card's default, and the driver says that they hold it back."""
    return node.every_card(lambda card: card.but(app_clock_mhz=mhz, throttle=0x2))


def remap_failed(node: Node, index: int = 1) -> Node:
    """A memory row could not be remapped; another remap waits for a reset."""
    node = node.card(index, lambda card: card.but(remapped=(0, 9, 1, 1), ecc_uncorrected=9))
    return logging(node, xid(node.cards[index].slot, 64, "Row Remapper: failed to remap row."))


def uncorrectable(node: Node, index: int = 6) -> Node:
    """Uncorrectable memory errors in the card's life."""
    return node.card(index, lambda card: card.but(ecc_uncorrected=3, remapped=(0, 3, 0, 0)))


def ecc_off(node: Node, index: int = 0) -> Node:
    return node.card(index, lambda card: card.but(ecc=False))


def corrupt_inforom(node: Node, index: int = 7) -> Node:
    return node.card(index, lambda card: card.but(inforom_valid=False))


def mixed_vbios(node: Node, index: int = 6) -> Node:
    """One card is from another lot."""
    return node.card(index, lambda card: card.but(vbios="96.00.74.00.0D", board_part="692-2G520-0200-001"))


def xid_48(node: Node, index: int = 4) -> Node:
    """A double-bit error in the log of a card that reads well now."""
    line = xid(node.cards[index].slot, 48, "DBE (double bit error) ECC Error at partition 3, subpartition 1.")
    return logging(node, line)


def braked(node: Node, index: int = 2) -> Node:
    """Held back by its power supply: hardware slowdown, external power brake."""
    return node.card(index, lambda card: card.but(throttle=0x88))


def persistence_off(node: Node) -> Node:
    return node.every_card(lambda card: card.but(persistence=False))


# --- links --------------------------------------------------------------------------------------------------


def links_inactive(node: Node, index: int = 5, count: int = 4) -> Node:
    """The last links of one card do not come up."""
    return node.card(index, lambda card: card.but(links=card.links[:-count] + (False,) * count))


def no_links(node: Node, index: int = 5) -> Node:
    return node.card(index, lambda card: card.but(links=(False,) * len(card.links)))


def off_the_fabric(node: Node, index: int = 5) -> Node:
    """One card did not join; the others are whole."""
    return node.card(index, lambda card: card.but(fabric=("In Progress", "N/A")))


def no_fabric_manager(node: Node) -> Node:
    """Nobody set up the switches: CUDA cannot start."""
    node = node.every_card(lambda card: card.but(fabric=("Not Started", "N/A")))
    return node.but(fabric_manager="inactive").answering("- cuInit error CUDA_ERROR_SYSTEM_NOT_READY")


def one_socket(node: Node) -> Node:
    """All cards hang on the first socket."""
    return node.every_card(lambda card: card.but(numa=0))


def far_nics(node: Node) -> Node:
    """All network cards hang on the second socket, below root ports of their own."""
    buses = (0xE2 + 2 * i for i in range(len(node.nics)))
    return node.but(nics=tuple(nic.moved(bus) for nic, bus in zip(node.nics, buses)))


def rdma_down(node: Node, index: int = 1) -> Node:
    nics = [nic if i != index else nic.down() for i, nic in enumerate(node.nics)]
    return node.but(nics=tuple(nics))


# --- not what it is called ----------------------------------------------------------------------------------


def another_model(node: Node, model: Card) -> Node:
    """The same places with other cards in them, honestly named."""
    return node.every_card(lambda card: _as(card, model))


def _as(card: Card, model: Card) -> Card:
    return model.but(
        index=card.index,
        slot=card.slot,
        parents=card.parents,
        numa=card.numa,
        uuid=card.uuid,
        serial=None if model.geforce else card.serial,
        temperature_c=card.temperature_c,
    )


def called(node: Node, name: str, *sources: str) -> Node:
    """Cards under another model's name, according to these sources."""
    return node.every_card(lambda card: card.lying(*sources, name=name))


def forty_eight_gb(node: Node) -> Node:
    """4090 with twice the memory: third-party boards and a changed VBIOS."""
    return node.every_card(lambda card: card.but(memory_mib=49140, vbios="95.02.3C.00.7F"))


def scripted(node: Node) -> Node:
    """nvidia-smi is a shell script that prints prepared texts."""
    return node.with_tools(nvidia_smi=SMI_COMMANDS.format(folder='"$(dirname "$0")"/../smi'))


# --- shared or sliced ---------------------------------------------------------------------------------------


def mig_on(node: Node, index: int = 2) -> Node:
    return node.card(index, lambda card: card.but(mig=True))


def vgpu(node: Node, *, licensed: bool) -> Node:
    """A guest with half an A100: the profile is the name, and the hypervisor shows no power, heat or PCIe."""
    licence = "Licensed (Expiry: 2027-11-30 0:0:0 GMT)" if licensed else "Unlicensed (Restricted)"
    return node.every_card(
        lambda card: card.but(
            name="NVIDIA A100D-40C",
            memory_mib=40960,
            reserved_mib=0,
            virtualization="VGPU",
            licence=licence,
            serial=None,
        )
    )


def hami(node: Node, mib: int = 12000) -> Node:
    """A slice by preloaded hooks: NVML and CUDA tell the same false total, the free memory is still the card's."""
    free = node.cards[0].memory_mib - node.cards[0].reserved_mib
    sliced = node.every_card(lambda card: card.lying(*SENSORS, memory_mib=mib, memory_free_mib=free, reserved_mib=0))
    preload = {"/etc/ld.so.preload": "/usr/local/vgpu/libvgpu.so\n", "/usr/local/vgpu/libvgpu.so": ""}
    return sliced.with_files({**preload, "/tmp/cudevshr.cache": ""})


def occupied(node: Node, index: int = 4) -> Node:
    """Somebody computes on it."""
    tenant = Process(31415, 60210, "/opt/conda/bin/python3")
    return node.card(
        index, lambda card: card.but(processes=(tenant,), memory_used_mib=60744, utilization=97, throttle=0x4)
    )


def memory_without_owner(node: Node, index: int = 4) -> Node:
    """Memory is taken and no process shows: another container's."""
    return node.card(index, lambda card: card.but(memory_used_mib=23117, utilization=35, throttle=0))


# --- tools and libraries ------------------------------------------------------------------------------------


def smi_says(node: Node, text: str, code: int) -> Node:
    """nvidia-smi prints this, whatever it is asked."""
    return node.but(smi_says=(text, code))


def mismatch(node: Node) -> Node:
    """The library was upgraded under a running driver."""
    broken = smi_says(node, MISMATCH, 18).but(library_version="575.57.08")
    return broken.answering(
        "- nvmlInit error NVML_ERROR_LIB_RM_VERSION_MISMATCH",
        "- cuInit error CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
    )


def smi_hangs(node: Node) -> Node:
    return node.answering("- smi* hang")


def smi_garbage(node: Node) -> Node:
    return smi_says(node, "\x00\x01<<<%%% ok ok ok 4090 81559 {]", 0)


def nvml_hangs(node: Node, index: int = 3) -> Node:
    """One call about one card never comes back."""
    return node.answering(f"{index} nvmlDeviceGetPowerUsage hang")


def nvml_slow(node: Node, milliseconds: int = 40) -> Node:
    """Every NVML call about a card takes its time."""
    return node.answering(*(f"{c.index} nvmlDeviceGetHandleByIndex sleep {milliseconds} ok" for c in node.cards))


def no_driver(node: Node) -> Node:
    """Cards without a driver: no library, no nvidia-smi."""
    return node.but(has_libraries=False).with_tools(nvidia_smi=None)


def old_driver(node: Node) -> Node:
    return node.but(driver="470.82.01", cuda="11.4")


def denied(node: Node) -> Node:
    """A user who may not open the driver's devices."""
    smi = "Failed to initialize NVML: Insufficient Permissions"
    return (
        smi_says(node, smi, 4)
        .but(uid=1000, kernel_log=None)
        .answering("- nvmlInit error NVML_ERROR_NO_PERMISSION", "- cuInit error CUDA_ERROR_NO_DEVICE")
    )


def mute(node: Node, error: str) -> Node:
    """NVML opens every card and answers nothing else; nvidia-smi, CUDA, PCI, /proc and the log are as silent."""
    said = {"NOT_SUPPORTED": "Not Supported", "NO_PERMISSION": "Insufficient Permissions"}.get(error, "Unknown Error")
    quiet = smi_says(node, f"Failed to initialize NVML: {said}", 255).but(
        kernel_log=None, uid=1000, off_bus=tuple(card.index for card in node.cards)
    )
    gone = {f"/proc/driver/nvidia/gpus/{card.slot}/information": None for card in node.cards}
    return (
        quiet.with_files({**gone, "/proc/driver/nvidia/version": None})
        .with_tools(systemctl=fails("Failed to connect to bus", 1), lspci=fails("lspci: Cannot open /sys/bus/pci", 1))
        .answering(
            "* nvmlDeviceGetHandleByIndex ok",
            f"* nvmlDevice* error NVML_ERROR_{error}",
            f"- nvmlSystem* error NVML_ERROR_{error}",
            "- cuInit error CUDA_ERROR_UNKNOWN",
        )
    )


# --- harmless ------------------------------------------------------------------------------------------------


def firmware_memory(node: Node) -> Node:
    """Firmware keeps 256 MiB that no process owns."""
    return node.every_card(lambda card: card.but(memory_used_mib=256))


def idle_gen1(node: Node) -> Node:
    """Links save power at rest."""
    return node.every_card(lambda card: card.but(idle_gen=1, performance_state=8))


def as_other_user(node: Node) -> Node:
    """Nothing wrong, but the renter has no root."""
    return node.but(uid=1000, kernel_log=None)


# --- what has to come out --------------------------------------------------------------------------------------


Make = Callable[[], Node]


@dataclass(frozen=True)
class Case:
    """``contract`` is a file in ``tests/fakenode/contracts``; ``verdict`` what ``accept run --profile facts`` says.

    ``fails`` and ``unknown`` are patterns (fnmatch) of findings that must fail or be inconclusive, each of which must
    hit at least one; a finding that none of them names must pass or be not asked. ``advisory`` are patterns of
    findings that must fail without deciding.
    """

    node: Make
    contract: str
    verdict: str
    fails: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    advisory: tuple[str, ...] = ()


def _h100(change: Callable[[Node], Node]) -> Make:
    return lambda: change(healthy.h100())


H100_SLOTS = tuple(f"0000:{bus:02x}:00.0" for bus in healthy.HGX_BUSES)
HEALTHY: Mapping[str, Case] = {
    "8 H100": Case(healthy.h100, "h100.yaml", "accepted"),
    "8 A100": Case(healthy.a100, "a100.yaml", "accepted"),
    "8 H20": Case(healthy.h20, "h20.yaml", "accepted"),
    "8 A800": Case(healthy.a800, "a800.yaml", "accepted"),
    "8 RTX 4090": Case(healthy.rtx4090, "rtx4090.yaml", "accepted"),
    "4 L40S": Case(healthy.l40s, "l40s.yaml", "accepted"),
    "VM with one A100": Case(healthy.vm, "vm.yaml", "accepted"),
    "container without root": Case(healthy.container, "container.yaml", "accepted"),
    "256 MiB of firmware": Case(_h100(firmware_memory), "h100.yaml", "accepted"),
    "idle at Gen1": Case(_h100(idle_gen1), "h100.yaml", "accepted"),
    "persistence off": Case(_h100(persistence_off), "h100.yaml", "accepted"),
    "no root": Case(_h100(as_other_user), "h100-no-root.yaml", "accepted"),
}


# A card that does not answer leaves its own clauses open, and nobody else's.
def _silent(index: int) -> tuple[str, ...]:
    return (f"gpu.*@{H100_SLOTS[index]}",)


ALL_OPEN = ("gpu.*", "topology.*")
WRONG: Mapping[str, Case] = {
    "card lost": Case(
        _h100(lost),
        "h100.yaml",
        "rejected",
        fails=("gpu.count", f"gpu.xid@{H100_SLOTS[3]}"),
        unknown=_silent(3),
        advisory=(f"integrity.gpu_bus@{H100_SLOTS[3]}", f"integrity.hard_faults@{H100_SLOTS[3]}"),
    ),
    "card lost, nvidia-smi fails": Case(
        _h100(lost_silently),
        "h100.yaml",
        "rejected",
        fails=("gpu.count", f"gpu.xid@{H100_SLOTS[3]}"),
        unknown=_silent(3),
        advisory=(
            f"integrity.gpu_bus@{H100_SLOTS[3]}",
            f"integrity.hard_faults@{H100_SLOTS[3]}",
            "integrity.nvidia_smi",
        ),
    ),
    "card never came up": Case(
        _h100(never_came_up),
        "h100.yaml",
        "rejected",
        fails=("gpu.count", f"gpu.xid@{H100_SLOTS[3]}"),
        unknown=_silent(3),
        advisory=(f"integrity.gpu_bus@{H100_SLOTS[3]}", f"integrity.hard_faults@{H100_SLOTS[3]}"),
    ),
    "seven cards": Case(_h100(one_too_few), "h100.yaml", "rejected", fails=("gpu.count",)),
    "card not on the bus": Case(
        _h100(not_on_the_bus),
        "h100.yaml",
        "inconclusive",
        unknown=(*_silent(3), "gpu.count", "gpu.p2p", "topology.*"),
        advisory=(f"integrity.gpu_bus@{H100_SLOTS[3]}",),
    ),
    "x8": Case(
        _h100(narrow),
        "h100.yaml",
        "rejected",
        fails=(f"gpu.pcie@{H100_SLOTS[2]}",),
        advisory=(f"integrity.pcie_width@{H100_SLOTS[2]}",),
    ),
    "x8 at rest": Case(_h100(narrow_now), "h100.yaml", "accepted", advisory=(f"integrity.pcie_width@{H100_SLOTS[2]}",)),
    "Gen3 host": Case(_h100(gen3), "h100.yaml", "rejected", fails=("gpu.pcie@*",)),
    "450 W cap": Case(_h100(capped), "h100.yaml", "rejected", fails=(f"gpu.power_limit@{H100_SLOTS[5]}",)),
    "default under the model's": Case(
        _h100(low_default), "h100.yaml", "accepted", advisory=("integrity.power_default@*",)
    ),
    "locked clocks": Case(_h100(locked_clocks), "h100.yaml", "rejected", fails=("gpu.clocks@*",)),
    "remap failed": Case(
        _h100(remap_failed),
        "h100.yaml",
        "rejected",
        fails=(f"gpu.condition@{H100_SLOTS[1]}", f"gpu.xid@{H100_SLOTS[1]}"),
        advisory=(f"integrity.hard_faults@{H100_SLOTS[1]}",),
    ),
    "uncorrectable ECC": Case(_h100(uncorrectable), "h100.yaml", "rejected", fails=(f"gpu.condition@{H100_SLOTS[6]}",)),
    "ECC off": Case(
        _h100(ecc_off),
        "h100.yaml",
        "rejected",
        fails=(f"gpu.ecc@{H100_SLOTS[0]}",),
        unknown=(f"gpu.condition@{H100_SLOTS[0]}",),
    ),
    "infoROM corrupt": Case(_h100(corrupt_inforom), "h100.yaml", "rejected", fails=(f"gpu.condition@{H100_SLOTS[7]}",)),
    "mixed VBIOS": Case(
        _h100(mixed_vbios),
        "h100.yaml",
        "rejected",
        fails=(f"gpu.condition@{H100_SLOTS[6]}",),
        advisory=(f"integrity.mixed_gpus@{H100_SLOTS[6]}",),
    ),
    "Xid 48": Case(
        _h100(xid_48),
        "h100.yaml",
        "rejected",
        fails=(f"gpu.xid@{H100_SLOTS[4]}",),
        advisory=(f"integrity.hard_faults@{H100_SLOTS[4]}",),
    ),
    "power brake": Case(
        _h100(braked),
        "h100.yaml",
        "rejected",
        fails=(f"gpu.clocks@{H100_SLOTS[2]}",),
        advisory=(f"integrity.gpu_throttled@{H100_SLOTS[2]}",),
    ),
    "NVLinks inactive": Case(_h100(links_inactive), "h100.yaml", "rejected", fails=(f"gpu.nvlink@{H100_SLOTS[5]}",)),
    "no NVLink on one": Case(
        _h100(no_links),
        "h100.yaml",
        "rejected",
        fails=(f"gpu.nvlink@{H100_SLOTS[5]}", f"topology.gpu_gpu@{H100_SLOTS[5]}"),
    ),
    "off the fabric": Case(
        _h100(off_the_fabric),
        "h100.yaml",
        "rejected",
        fails=(f"gpu.nvlink@{H100_SLOTS[5]}", f"topology.gpu_gpu@{H100_SLOTS[5]}"),
    ),
    "fabric manager down": Case(
        _h100(no_fabric_manager),
        "h100.yaml",
        "rejected",
        fails=("gpu.nvlink@*", "topology.gpu_gpu"),
        unknown=("gpu.whole_card@*",),
    ),
    "all on one socket": Case(_h100(one_socket), "h100.yaml", "rejected", fails=("topology.numa",)),
    "NICs far away": Case(_h100(far_nics), "h100.yaml", "rejected", fails=("topology.gpu_nic@*",)),
    "RDMA port down": Case(_h100(rdma_down), "h100.yaml", "rejected", fails=("rdma.rate@mlx5_1",)),
    "MIG on": Case(
        _h100(mig_on),
        "h100.yaml",
        "rejected",
        fails=(f"gpu.mig@{H100_SLOTS[2]}", f"gpu.whole_card@{H100_SLOTS[2]}"),
        unknown=(f"gpu.condition@{H100_SLOTS[2]}",),
    ),
    "H100 PCIe as SXM": Case(
        lambda: another_model(healthy.h100(), models.H100_PCIE),
        "h100.yaml",
        "rejected",
        fails=("gpu.model@*", "topology.gpu_gpu"),
        unknown=("gpu.nvlink@*",),
    ),
    "H100 PCIe called SXM": Case(
        lambda: called(another_model(healthy.h100(), models.H100_PCIE), models.H100_SXM.name, "nvml", "smi"),
        "h100.yaml",
        "rejected",
        fails=("gpu.model@*", "integrity.gpu_identity@*"),
        unknown=ALL_OPEN,
    ),
    "A800 as A100": Case(healthy.a800, "a100.yaml", "rejected", fails=("gpu.model@*", "gpu.nvlink@*")),
    "A800 called A100": Case(
        lambda: called(healthy.a800(), models.A100_SXM.name, "nvml", "smi"),
        "a100.yaml",
        "rejected",
        fails=("gpu.model@*", "integrity.gpu_identity@*"),
        unknown=ALL_OPEN,
    ),
    "4090 D as 4090": Case(
        lambda: another_model(healthy.rtx4090(), models.RTX_4090_D),
        "rtx4090.yaml",
        "rejected",
        fails=("gpu.model@*", "gpu.power_limit@*"),
    ),
    "4090 D called 4090 in nvidia-smi": Case(
        lambda: called(another_model(healthy.rtx4090(), models.RTX_4090_D), models.RTX_4090.name, "smi"),
        "rtx4090.yaml",
        "rejected",
        fails=("gpu.model@*", "gpu.power_limit@*", "integrity.nvidia_smi@*"),
    ),
    "4090 D called 4090 everywhere": Case(
        lambda: called(
            another_model(healthy.rtx4090(), models.RTX_4090_D), models.RTX_4090.name, "nvml", "smi", "cuda", "proc"
        ),
        "rtx4090.yaml",
        "rejected",
        fails=("gpu.model@*", "integrity.gpu_identity@*"),
        unknown=("gpu.*",),
    ),
    "4090 with 48 GB": Case(
        lambda: forty_eight_gb(healthy.rtx4090()),
        "rtx4090.yaml",
        "rejected",
        fails=("gpu.model@*",),
        advisory=("integrity.gpu_sample@*",),
    ),
    "nvidia-smi is a script": Case(
        lambda: scripted(called(healthy.a800(), models.A100_SXM.name, "smi")),
        "a100.yaml",
        "rejected",
        fails=("gpu.model@*", "gpu.nvlink@*", "integrity.nvidia_smi*"),
    ),
    "vGPU, licensed": Case(
        lambda: vgpu(healthy.vm(), licensed=True),
        "vm.yaml",
        "rejected",
        fails=("gpu.memory@*", "gpu.whole_card@*"),
        unknown=("gpu.model@*", "gpu.power_limit@*", "gpu.condition@*"),
    ),
    "vGPU, unlicensed": Case(
        lambda: vgpu(healthy.vm(), licensed=False),
        "vm.yaml",
        "rejected",
        fails=("gpu.memory@*", "gpu.whole_card@*"),
        unknown=("gpu.model@*", "gpu.power_limit@*", "gpu.condition@*"),
    ),
    "HAMi slice": Case(
        lambda: hami(healthy.container()),
        "container.yaml",
        "rejected",
        fails=("gpu.memory@*", "gpu.whole_card@*"),
        advisory=("integrity.gpu_interception",),
    ),
    "somebody's process": Case(
        _h100(occupied),
        "h100.yaml",
        "rejected",
        fails=(f"gpu.whole_card@{H100_SLOTS[4]}",),
        advisory=(f"integrity.foreign_process@{H100_SLOTS[4]}",),
    ),
    "memory without an owner": Case(
        _h100(memory_without_owner),
        "h100.yaml",
        "rejected",
        fails=(f"gpu.whole_card@{H100_SLOTS[4]}",),
        advisory=(f"integrity.memory_without_owner@{H100_SLOTS[4]}",),
    ),
    "driver mismatch": Case(
        _h100(mismatch),
        "h100.yaml",
        "inconclusive",
        unknown=ALL_OPEN,
        advisory=("integrity.driver_library", "integrity.gpu_bus"),
    ),
    "nvidia-smi hangs": Case(
        _h100(smi_hangs), "h100.yaml", "inconclusive", unknown=("gpu.driver",), advisory=("integrity.nvidia_smi",)
    ),
    "nvidia-smi prints garbage": Case(_h100(smi_garbage), "h100.yaml", "accepted", advisory=("integrity.nvidia_smi",)),
    "an NVML call hangs": Case(_h100(nvml_hangs), "h100.yaml", "inconclusive", unknown=_silent(3)),
    "no driver": Case(_h100(no_driver), "h100.yaml", "inconclusive", unknown=ALL_OPEN, advisory=("integrity.gpu_bus",)),
    "old driver": Case(_h100(old_driver), "h100.yaml", "rejected", fails=("gpu.driver", "gpu.cuda")),
    "no permission": Case(
        _h100(denied), "h100.yaml", "inconclusive", unknown=ALL_OPEN, advisory=("integrity.gpu_bus",)
    ),
    "all NOT_SUPPORTED": Case(
        lambda: mute(healthy.h100(), "NOT_SUPPORTED"), "h100.yaml", "inconclusive", unknown=ALL_OPEN
    ),
    "all NO_PERMISSION": Case(
        lambda: mute(healthy.h100(), "NO_PERMISSION"), "h100.yaml", "inconclusive", unknown=ALL_OPEN
    ),
    "all UNKNOWN": Case(lambda: mute(healthy.h100(), "UNKNOWN"), "h100.yaml", "inconclusive", unknown=ALL_OPEN),
}
CASES: Mapping[str, Case] = {**HEALTHY, **WRONG}
