"""The files of a fake node: ``/sys``, ``/proc``, ``/dev`` and ``/etc`` below a root of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.fakenode.card import Card

GT_S = {1: "2.5", 2: "5.0", 3: "8.0", 4: "16.0", 5: "32.0"}
DEVICES = "/sys/bus/pci/devices"
GIB_KIB = 1 << 20
BRIDGE = (0x060400, 0x1000, 0xC030, 0x1000_100B)  # a Broadcom PCIe switch
ROOT_PORT = (0x060400, 0x8086, 0x352A, 0x8086_0000)
NVSWITCH = (0x068000, 0x10DE, 0x22A3, 0x10DE_1796)
SWITCHES = tuple((f"0000:{bus:02x}:00.0", ("pci0000:06", f"0000:06:{bus:02x}.0")) for bus in (0x07, 0x08, 0x09, 0x0A))
"""The four NVSwitches of an HGX H100 board: slot and what lies above."""

Tree = Mapping[str, str]


@dataclass(frozen=True)
class Nic:
    """A network card: ``rdma`` devices show under ``/sys/class/infiniband``, others under ``/sys/class/net``."""

    name: str
    slot: str
    parents: tuple[str, ...]
    numa: int
    rate: str = "400 Gb/sec (4X NDR)"
    state: str = "4: ACTIVE"
    physical: str = "5: LinkUp"
    layer: str = "InfiniBand"
    rdma: bool = True
    mbit: int = 400000

    def moved(self, bus: int) -> Nic:
        """This card on a root port of the second socket."""
        parents = (f"pci0000:{bus - 1:02x}", f"0000:{bus - 1:02x}:01.0")
        return replace(self, slot=f"0000:{bus:02x}:00.0", parents=parents, numa=1)

    def down(self) -> Nic:
        """Without a cable."""
        return replace(self, state="1: DOWN", physical="2: Polling")


@dataclass(frozen=True)
class Drive:
    """An NVMe drive."""

    name: str
    slot: str
    parents: tuple[str, ...]
    numa: int
    gib: int = 3576
    model: str = "SAMSUNG MZQL23T8HCLS-00A07"


@dataclass(frozen=True)
class Cpus:
    """What ``/proc/cpuinfo`` shows. Threads are numbered as Linux does: first all cores, then their siblings."""

    model: str = "Intel(R) Xeon(R) Platinum 8480+"
    sockets: int = 2
    cores: int = 56
    """Of one socket."""
    hypervisor: bool = False

    @property
    def lists(self) -> tuple[str, ...]:
        """The CPU list of each NUMA node: one node a socket."""
        total = self.sockets * self.cores
        return tuple(
            f"{s * self.cores}-{(s + 1) * self.cores - 1},{total + s * self.cores}-{total + (s + 1) * self.cores - 1}"
            for s in range(self.sockets)
        )


def write(root: Path, files: Tree, links: Tree) -> None:
    """Files by path; links with their targets, which lie inside the root too."""
    for path, text in files.items():
        real = root / path.lstrip("/")
        real.parent.mkdir(parents=True, exist_ok=True)
        real.write_text(text, encoding="utf-8")
    for path, target in links.items():
        real = root / path.lstrip("/")
        real.parent.mkdir(parents=True, exist_ok=True)
        real.symlink_to(target)


# --- PCI -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Function:
    """One PCI function in sysfs."""

    slot: str
    parents: tuple[str, ...]
    ids: tuple[int, int, int, int]
    """Class, vendor, device, subsystem device and vendor as one number (0x16c110de)."""
    numa: int
    gen: int
    gen_max: int
    width: int
    width_max: int
    driver: str
    cpus: str = ""
    dead: bool = False

    @property
    def path(self) -> str:
        return "/".join(("/sys/devices", *self.parents, self.slot))


def of_card(card: Card, cpus: Sequence[str]) -> Function:
    """The card as sysfs shows it: of a dead one the kernel's own record, and registers that read all ones."""
    told = card.seen_by("pci")
    ids = (0x030000 if told.geforce else 0x030200, 0x10DE, told.device_id, told.subsystem_id)
    return Function(
        told.slot,
        told.parents,
        ids,
        told.numa,
        told.gen_now,
        told.pcie_gen_device,
        told.pcie_width,
        16,
        "nvidia",
        cpus[told.numa],
        told.lost,
    )


def pci(functions: Sequence[Function]) -> tuple[dict[str, str], dict[str, str]]:
    """Files and links of the functions and of the bridges above them."""
    files: dict[str, str] = {}
    links: dict[str, str] = {}
    for number, function in enumerate((*_bridges(functions), *functions)):
        files.update({f"{function.path}/{name}": f"{text}\n" for name, text in _attributes(function).items()})
        links[f"{DEVICES}/{function.slot}"] = "../../.." + function.path[len("/sys") :]
        if function.driver:
            links[f"{function.path}/driver"] = f"/sys/bus/pci/drivers/{function.driver}"
        links[f"{function.path}/iommu_group"] = f"/sys/kernel/iommu_groups/{number}"
    return files, links


def _bridges(functions: Sequence[Function]) -> list[Function]:
    """Each bridge once, as fast as the fastest function below it."""
    found: dict[str, Function] = {}
    for function in functions:
        for depth, slot in enumerate(function.parents[1:], start=1):
            ids = ROOT_PORT if depth == 1 else BRIDGE
            above = function.parents[:depth]
            found[slot] = Function(slot, above, ids, function.numa, 5, 5, 16, 16, "pcieport", function.cpus)
    return list(found.values())


def _attributes(function: Function) -> dict[str, str]:
    code, vendor, device, subsystem = function.ids
    return {
        "class": f"0x{code:06x}",
        "vendor": f"0x{vendor:04x}",
        "device": f"0x{device:04x}",
        "subsystem_vendor": f"0x{subsystem & 0xFFFF:04x}",
        "subsystem_device": f"0x{subsystem >> 16:04x}",
        "revision": "0xff" if function.dead else "0xa1",
        "current_link_speed": "Unknown" if function.dead else f"{GT_S[function.gen]} GT/s PCIe",
        "max_link_speed": "Unknown" if function.dead else f"{GT_S[function.gen_max]} GT/s PCIe",
        "current_link_width": "63" if function.dead else str(function.width),
        "max_link_width": "255" if function.dead else str(function.width_max),
        "numa_node": str(function.numa),
        "local_cpulist": function.cpus,
        "enable": "1",
        "config": ("\ufffd" if function.dead else "\x10") * 64,
        **{
            f"aer_dev_{kind}": f"{counters}\nTOTAL_ERR_{total} 0"
            for kind, counters, total in (
                ("correctable", "RxErr 0\nBadTLP 0\nBadDLLP 0\nRollover 0\nTimeout 0\nNonFatalErr 0", "COR"),
                ("nonfatal", "Undefined 0\nDLP 0\nTLP 0\nCmpltTO 0", "NONFATAL"),
                ("fatal", "Undefined 0\nDLP 0\nTLP 0\nCmpltTO 0", "FATAL"),
            )
        },
    }


# --- what hangs on it ------------------------------------------------------------------------------------


def rdma(nics: Sequence[Nic]) -> tuple[dict[str, str], dict[str, str]]:
    """``/sys/class/infiniband`` and ``/sys/class/net``."""
    files, links = _loopback()
    for number, nic in enumerate(nics):
        device = "/".join(("/sys/devices", *nic.parents, nic.slot))
        network = f"ib{number}" if nic.layer == "InfiniBand" else f"eth{number}"
        if nic.rdma:
            own = f"{device}/infiniband/{nic.name}"
            port = f"{own}/ports/1"
            files.update(
                {
                    f"{own}/node_type": "1: CA\n",
                    f"{own}/fw_ver": "28.41.1000\n",
                    f"{own}/hca_type": "MT4129\n",
                    f"{own}/board_id": "MT_0000000838\n",
                    f"{port}/rate": f"{nic.rate}\n",
                    f"{port}/state": f"{nic.state}\n",
                    f"{port}/phys_state": f"{nic.physical}\n",
                    f"{port}/link_layer": f"{nic.layer}\n",
                    f"{port}/counters/symbol_error": "0\n",
                    f"{port}/counters/link_downed": "0\n",
                    f"{port}/hw_counters/out_of_sequence": "0\n",
                }
            )
            links[f"{own}/device"] = "../.."
            links[f"/sys/class/infiniband/{nic.name}"] = "../.." + own[len("/sys") :]
        files.update(
            {
                f"{device}/net/{network}/{name}": f"{text}\n"
                for name, text in {
                    "speed": str(nic.mbit),
                    "duplex": "full",
                    "mtu": "4092" if nic.layer == "InfiniBand" else "1500",
                    "operstate": "up" if nic.state.endswith("ACTIVE") else "down",
                    "address": f"02:00:00:00:00:{number:02x}",
                }.items()
            }
        )
        links[f"{device}/net/{network}/device"] = "../.."
        links[f"/sys/class/net/{network}"] = f"../..{device[len('/sys') :]}/net/{network}"
    return files, links


def _loopback() -> tuple[dict[str, str], dict[str, str]]:
    values = {"mtu": "65536", "operstate": "unknown", "address": "00:00:00:00:00:00"}
    files = {f"/sys/devices/virtual/net/lo/{name}": f"{text}\n" for name, text in values.items()}
    return files, {"/sys/class/net/lo": "../../devices/virtual/net/lo"}


def drives(found: Sequence[Drive]) -> tuple[dict[str, str], dict[str, str]]:
    """``/sys/class/nvme`` and ``/sys/class/block``."""
    files: dict[str, str] = {}
    links: dict[str, str] = {}
    for number, drive in enumerate(found):
        device = "/".join(("/sys/devices", *drive.parents, drive.slot))
        own, block = f"{device}/nvme/{drive.name}", f"{drive.name}n1"
        files[f"{own}/model"] = f"{drive.model}\n"
        files[f"{own}/{block}/dev"] = f"259:{number}\n"
        files[f"{own}/{block}/size"] = f"{drive.gib << 21}\n"
        files[f"{own}/{block}/queue/rotational"] = "0\n"
        files[f"{own}/{block}/device/model"] = f"{drive.model}\n"
        files[f"{own}/{block}/device/transport"] = "pcie\n"
        links[f"{own}/device"] = "../.."
        links[f"/sys/class/nvme/{drive.name}"] = "../.." + own[len("/sys") :]
        links[f"/sys/class/block/{block}"] = f"../..{own[len('/sys') :]}/{block}"
    return files, links


# --- the rest of the machine -------------------------------------------------------------------------------


def processors(cpus: Cpus) -> Iterator[tuple[str, str]]:
    """``/proc/cpuinfo``, ``/sys/devices/system``."""
    cores, flags = cpus.sockets * cpus.cores, "fpu vme sse2 ht avx2 avx512f" + " hypervisor" * cpus.hypervisor
    blocks = []
    for thread in range(2 * cores):
        socket, core = divmod(thread % cores, cpus.cores)
        blocks.append(
            f"processor\t: {thread}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n"
            f"model name\t: {cpus.model}\nstepping\t: 8\nmicrocode\t: 0x2b000603\nphysical id\t: {socket}\n"
            f"siblings\t: {2 * cpus.cores}\ncore id\t\t: {core}\ncpu cores\t: {cpus.cores}\nflags\t\t: {flags}\n"
        )
        place = f"/sys/devices/system/cpu/cpu{thread}/topology"
        yield f"{place}/physical_package_id", f"{socket}\n"
        yield f"{place}/core_id", f"{core}\n"
    yield "/proc/cpuinfo", "\n".join(blocks) + "\n"
    yield "/sys/devices/system/cpu/online", f"0-{2 * cores - 1}\n"
    yield "/proc/stat", "cpu  84016 110 60012 90123456 1200 0 800 0 0 0\n"
    for node, cpulist in enumerate(cpus.lists):
        yield f"/sys/devices/system/node/node{node}/cpulist", f"{cpulist}\n"


def memory(gib: int, nodes: int) -> Iterator[tuple[str, str]]:
    """``/proc/meminfo`` and each node's own."""
    total, free = gib * GIB_KIB, gib * GIB_KIB * 9 // 10
    yield (
        "/proc/meminfo",
        f"MemTotal:       {total} kB\nMemFree:        {free} kB\nMemAvailable:   {free} kB\n"
        "Cached:          2345678 kB\nSwapTotal:             0 kB\nSwapFree:              0 kB\n",
    )
    for node in range(nodes):
        part = f"Node {node} MemTotal:       {total // nodes} kB\nNode {node} MemFree:        {free // nodes} kB\n"
        yield f"/sys/devices/system/node/node{node}/meminfo", part


def system(name: str, *, uid: int, container: bool, vm: bool, cpus: str) -> Iterator[tuple[str, str]]:
    """Names, limits, marks of containers and machines."""
    capabilities = "000001ffffffffff" if uid == 0 and not container else "00000000a80425fb" if uid == 0 else "0" * 16
    yield "/etc/os-release", 'NAME="Ubuntu"\nVERSION_ID="22.04"\nID=ubuntu\nPRETTY_NAME="Ubuntu 22.04.5 LTS"\n'
    yield "/etc/machine-id", "6f0f1a2b3c4d5e6f708192a3b4c5d6e7\n"
    yield "/etc/resolv.conf", "nameserver 192.0.2.53\n"
    yield "/proc/sys/kernel/osrelease", "5.15.0-126-generic\n"
    yield "/proc/sys/kernel/hostname", f"{name}\n"
    yield "/proc/sys/kernel/random/boot_id", "0c9dd1a4-3b52-4a0b-9a5e-1d2f6a7b8c9d\n"
    yield "/proc/uptime", "86400.12 9000000.00\n"
    yield (
        "/proc/self/status",
        f"Name:\tpython3\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nCapEff:\t{capabilities}\nCpus_allowed_list:\t{cpus}\n",
    )
    yield (
        "/proc/self/limits",
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max processes             unlimited            unlimited            processes \n"
        "Max open files            1048576              1048576              files     \n"
        "Max locked memory         unlimited            unlimited            bytes     \n",
    )
    root = "overlay" if container else "/dev/nvme0n1p2"
    kind = "overlay" if container else "ext4"
    yield (
        "/proc/self/mountinfo",
        f"22 1 259:2 / / rw,relatime - {kind} {root} rw\n23 22 0:21 / /proc rw - proc proc rw\n"
        "24 22 0:22 / /sys rw - sysfs sysfs rw\n25 22 0:23 / /dev/shm rw - tmpfs tmpfs rw\n"
        "26 24 0:24 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw\n",
    )
    yield "/proc/self/cgroup", "0::/\n" if container else "0::/user.slice/user-0.slice/session-1.scope\n"
    yield "/proc/1/cgroup", "0::/\n" if container else "0::/init.scope\n"
    vendor, product = ("QEMU", "Standard PC (Q35 + ICH9, 2009)") if vm else ("Supermicro", "SYS-821GE-TNHR")
    yield "/sys/class/dmi/id/sys_vendor", f"{vendor}\n"
    yield "/sys/class/dmi/id/product_name", f"{product}\n"
    yield "/proc/net/route", "Iface\tDestination\tGateway \tFlags\nib0\t00000000\t010200C0\t0003\n"
    if container:
        yield "/.dockerenv", ""


# --- the driver --------------------------------------------------------------------------------------------


def driver(cards: Sequence[Card], version: str, *, peermem: bool, nvswitches: bool) -> Iterator[tuple[str, str]]:
    """``/proc/driver/nvidia``, ``/proc/modules``, device nodes."""
    yield (
        "/proc/driver/nvidia/version",
        f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build  "
        "(dvs-builder@U22-I3-AF03-25-3)  Mon Mar  3 11:42:16 UTC 2025\n"
        "GCC version:  gcc version 11.4.0 (Ubuntu 11.4.0-1ubuntu1~22.04) \n",
    )
    modules = [
        "nvidia_uvm 4956160 2 - Live 0x0000000000000000",
        "nvidia 11415552 30 nvidia_uvm, Live 0x0000000000000000",
    ]
    modules += ["nvidia_peermem 16384 0 - Live 0x0000000000000000"] * peermem
    yield "/proc/modules", "".join(f"{line}\n" for line in modules)
    yield "/sys/module/nvidia/version", f"{version}\n"
    if peermem:
        yield "/sys/module/nvidia_peermem/refcnt", "0\n"
    for card in cards:
        told = card.seen_by("proc")
        yield f"/proc/driver/nvidia/gpus/{told.slot}/information", _information(told, version)
        yield f"/dev/nvidia{card.index}", ""
    names = ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"] + ["nvidia-nvswitchctl"] * nvswitches
    for name in names:
        yield f"/dev/{name}", ""


def _information(card: Card, version: str) -> str:
    firmware = "N/A" if card.geforce else version
    return (
        f"Model: \t\t {card.name}\nIRQ:   \t\t {18 + card.index}\nGPU UUID: \t {card.uuid}\n"
        f"Video BIOS: \t {card.vbios}\nBus Type: \t PCIe\nDMA Size: \t 52 bits\nDMA Mask: \t 0xfffffffffffff\n"
        f"Bus Location: \t {card.slot}\nDevice Minor: \t {card.index}\nGPU Firmware: \t {firmware}\n"
        "GPU Excluded:\t No\n"
    )


# --- lspci ---------------------------------------------------------------------------------------------------


def lspci(functions: Sequence[Function], *, root: bool) -> str:
    """``lspci -D -nn -vv``; only root sees capabilities."""
    every = sorted((*_bridges(functions), *functions), key=lambda f: f.slot)
    return "\n".join(_lspci(function, root) for function in every)


_CLASSES = {0x06: "PCI bridge [0604]", 0x03: "3D controller [0302]", 0x02: "Infiniband controller [0207]",
            0x01: "Non-Volatile memory controller [0108]"}  # fmt: skip


def _lspci(function: Function, root: bool) -> str:
    code, vendor, device, subsystem = function.ids
    what = {0x030000: "VGA compatible controller [0300]", 0x068000: "Bridge [0680]"}.get(code) or _CLASSES[code >> 16]
    maker = {0x10DE: "NVIDIA Corporation", 0x15B3: "Mellanox Technologies", 0x8086: "Intel Corporation"}.get(
        vendor, "Device"
    )
    revision = "ff" if function.dead else "a1"
    head = f"{function.slot} {what}: {maker} Device [{vendor:04x}:{device:04x}] (rev {revision})"
    if function.dead:
        used = f"\tKernel driver in use: {function.driver}\n" if function.driver else ""
        return f"{head} (prog-if ff)\n\t!!! Unknown header type 7f\n{used}"
    lines = [head]
    if code != 0x060400:
        lines.append(f"\tSubsystem: {maker} Device [{subsystem & 0xFFFF:04x}:{subsystem >> 16:04x}]")
    lines.append(
        "\tControl: I/O- Mem+ BusMaster+ SpecCycle- MemWINV- VGASnoop- ParErr- Stepping- SERR- FastB2B- DisINTx+"
    )
    lines.append(f"\tNUMA node: {function.numa}")
    if not root:
        return "\n".join([*lines, "\tCapabilities: <access denied>", f"\tKernel driver in use: {function.driver}", ""])
    return "\n".join([*lines, *_capabilities(function), f"\tKernel driver in use: {function.driver}", ""])


def _capabilities(function: Function) -> list[str]:
    port = "Downstream Port (Slot+)" if function.ids[0] == 0x060400 else "Endpoint"
    speed = "ok" if function.gen >= function.gen_max else "downgraded"
    width = "ok" if function.width >= function.width_max else "downgraded"
    lines = [
        f"\tCapabilities: [60] Express (v2) {port}, MSI 00",
        f"\t\tLnkCap:\tPort #0, Speed {_short(function.gen_max)}, Width x{function.width_max}, ASPM not supported",
        f"\t\tLnkSta:\tSpeed {_short(function.gen)} ({speed}), Width x{function.width} ({width})",
        "\t\t\tTrErr- Train- SlotClk+ DLActive- BWMgmt- ABWMgmt-",
    ]
    if port != "Endpoint":
        lines.append("\tCapabilities: [148 v1] Access Control Services")
        flags = "SrcValid{0} TransBlk{0} ReqRedir{0} CmpltRedir{0} UpstreamFwd{0} EgressCtrl{0} DirectTrans{0}"
        lines.append(f"\t\tACSCap:\t{flags.format('+')}")
        lines.append(f"\t\tACSCtl:\t{flags.format('-')}")
    return lines


def _short(gen: int) -> str:
    return f"{float(GT_S[gen]):g}GT/s"
