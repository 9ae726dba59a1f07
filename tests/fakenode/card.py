"""A card of a fake node, and the models it can be.

Figures: ``contracts/gpus.yaml`` and its sources for names, PCI ids, memory, SMs, power and links; outputs of real
nvidia-smi for VBIOS, board parts, subsystems, BAR1 and reserved memory. Where no output of the real card was at
hand the value is of the sibling's form (marked "form").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Optional

SOURCES = ("nvml", "smi", "cuda", "pci", "proc")


@dataclass(frozen=True)
class Process:
    """Somebody on a card; ``mib`` None where the driver does not know."""

    pid: int
    mib: Optional[int]
    name: str
    type: str = "C"


@dataclass(frozen=True)
class Card:
    """Everything that any source says about one card. MiB, W, MHz, degrees C; None: not supported by this card.

    ``lies`` holds what single sources say instead: ``{"smi": {"name": "NVIDIA A100-SXM4-80GB"}}``.
    """

    # the model
    name: str
    brand: str
    brand_code: int
    architecture: str
    architecture_code: int
    compute_capability: tuple[int, int]
    device_id: int
    subsystem_id: int
    sm: int
    cores: int
    bus_bits: int
    l2_bytes: int
    memory_mib: int
    reserved_mib: int
    bar1_mib: int
    vbios: str
    inforom: str
    board_part: Optional[str]
    gpu_part: str
    power_default_w: int
    power_min_w: int
    power_max_w: int
    sm_max_mhz: int
    memory_max_mhz: int
    pcie_gen_device: int
    ecc: Optional[bool]
    mig: Optional[bool]
    nvlink_version: Optional[int] = None
    links: tuple[bool, ...] = ()
    """Which NVLinks are active."""
    link_rate: float = 0.0
    """GB/s of one link one way, as nvidia-smi prints it."""
    fabric: Optional[tuple[str, str]] = None
    """State and status as nvidia-smi prints them; None where the card has no fabric."""
    peer_pcie: bool = False
    """Whether the stock driver lets this model reach its peers over PCIe."""
    geforce: bool = False
    """Without serial number, board part, application clocks and PCIe peer access."""
    idle_gen: Optional[int] = None
    """The PCIe generation at rest; None: it stays at its full speed."""

    # this one
    index: int = 0
    slot: str = "0000:01:00.0"
    parents: tuple[str, ...] = ("pci0000:00", "0000:00:01.0")
    """Root complex, then bridges, above the card in sysfs."""
    numa: int = 0
    uuid: str = ""
    serial: Optional[str] = None
    power_limit_w: Optional[int] = None
    """What is enforced; None: the default."""
    memory_used_mib: int = 0
    memory_free_mib: Optional[int] = None
    """What is free; None: what total, reserved and used leave."""
    utilization: int = 0
    temperature_c: int = 31
    throttle: int = 0x1
    app_clock_mhz: Optional[int] = None
    performance_state: int = 0
    ecc_corrected: int = 0
    ecc_uncorrected: int = 0
    """Uncorrected errors over the card's life."""
    ecc_volatile_uncorrected: int = 0
    remapped: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Correctable, uncorrectable, pending, failed."""
    inforom_valid: bool = True
    virtualization: str = "None"
    persistence: bool = True
    pcie_gen_slot: Optional[int] = None
    """What slot and card agree on at most; None: what the card can."""
    pcie_width: int = 16
    pcie_width_max: int = 16
    replays: int = 0
    processes: tuple[Process, ...] = ()
    licence: Optional[str] = None
    """A vGPU guest's licence state as nvidia-smi prints it."""
    lost: bool = False
    lies: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def seen_by(self, source: str) -> Card:
        """The card as that source tells it."""
        return replace(self, **self.lies.get(source, {}), lies={})

    def but(self, **changes: Any) -> Card:
        return replace(self, **changes)

    def lying(self, *sources: str, **changes: Any) -> Card:
        """The same card, with other words from these sources."""
        return replace(self, lies={**self.lies, **{s: {**self.lies.get(s, {}), **changes} for s in sources}})

    @property
    def slot_max_gen(self) -> int:
        return min(self.pcie_gen_slot or self.pcie_gen_device, self.pcie_gen_device)

    @property
    def gen_now(self) -> int:
        return min(self.idle_gen or self.slot_max_gen, self.slot_max_gen)

    @property
    def limit_w(self) -> int:
        return self.power_limit_w or self.power_default_w

    @property
    def power_draw_mw(self) -> int:
        """At rest, a tenth of the card's default; the same figure as text is ``power_draw_w``."""
        return self.power_default_w * 100 + 120 * self.index

    @property
    def free_mib(self) -> int:
        rest = self.memory_mib - self.reserved_mib - self.memory_used_mib
        return rest if self.memory_free_mib is None else self.memory_free_mib

    @property
    def sm_mhz(self) -> int:
        """At rest."""
        return 210 if self.performance_state >= 5 else 345

    @property
    def memory_mhz(self) -> int:
        return 405 if self.performance_state >= 5 else self.memory_max_mhz


_NVIDIA = 0x10DE

H100_SXM = Card(
    name="NVIDIA H100 80GB HBM3",
    brand="NVIDIA",
    brand_code=14,
    architecture="Hopper",
    architecture_code=9,
    compute_capability=(9, 0),
    device_id=0x2330,
    subsystem_id=0x16C1_10DE,
    sm=132,
    cores=16896,
    bus_bits=5120,
    l2_bytes=50 << 20,
    memory_mib=81559,
    reserved_mib=480,
    bar1_mib=131072,
    vbios="96.00.99.00.01",
    inforom="G520.0200.00.05",
    board_part="692-2G520-0200-000",
    gpu_part="2330-885-A1",
    power_default_w=700,
    power_min_w=200,
    power_max_w=700,
    sm_max_mhz=1980,
    memory_max_mhz=2619,
    pcie_gen_device=5,
    ecc=True,
    mig=False,
    nvlink_version=6,  # NVML's number for NVLink 4
    links=(True,) * 18,
    link_rate=26.562,
    fabric=("Completed", "Success"),
    peer_pcie=True,
)
H100_PCIE = H100_SXM.but(
    name="NVIDIA H100 PCIe",
    device_id=0x2331,
    subsystem_id=0x1626_10DE,
    sm=114,
    cores=14592,
    vbios="96.00.30.00.01",  # form
    inforom="1010.0200.00.02",  # form
    board_part="900-21010-0000-000",
    gpu_part="2331-883-A1",  # form
    power_default_w=350,
    power_max_w=350,
    sm_max_mhz=1755,
    memory_max_mhz=1593,
    links=(),
    nvlink_version=None,
    fabric=None,
)
H20 = H100_SXM.but(
    name="NVIDIA H20",
    device_id=0x2329,
    subsystem_id=0x198B_10DE,
    sm=78,
    cores=9984,
    bus_bits=6144,
    l2_bytes=60 << 20,
    memory_mib=97871,
    vbios="96.00.CC.00.01",  # form
    board_part="692-2G520-0280-001",  # form
    gpu_part="2329-895-A1",  # form
    power_default_w=500,
    power_max_w=500,
)
A100_SXM = Card(
    name="NVIDIA A100-SXM4-80GB",
    brand="NVIDIA",
    brand_code=14,
    architecture="Ampere",
    architecture_code=7,
    compute_capability=(8, 0),
    device_id=0x20B2,
    subsystem_id=0x1463_10DE,
    sm=108,
    cores=6912,
    bus_bits=5120,
    l2_bytes=40 << 20,
    memory_mib=81920,
    reserved_mib=666,
    bar1_mib=131072,
    vbios="92.00.45.00.03",
    inforom="G506.0212.00.02",
    board_part="692-2G506-0212-002",
    gpu_part="20B2-895-A1",  # form
    power_default_w=400,
    power_min_w=100,
    power_max_w=400,
    sm_max_mhz=1410,
    memory_max_mhz=1593,
    pcie_gen_device=4,
    ecc=True,
    mig=False,
    nvlink_version=4,  # NVML's number for NVLink 3
    links=(True,) * 12,
    link_rate=25.0,
    peer_pcie=True,
)
A800_SXM = A100_SXM.but(
    name="NVIDIA A800-SXM4-80GB",
    device_id=0x20F3,
    subsystem_id=0x179B_10DE,
    board_part="692-2G506-0250-002",  # form
    gpu_part="20F3-895-A1",  # form
    links=(True,) * 8,
)
A100_PCIE = A100_SXM.but(
    name="NVIDIA A100 80GB PCIe",
    device_id=0x20B5,
    subsystem_id=0x1533_10DE,
    memory_max_mhz=1512,
    power_default_w=300,
    power_min_w=150,
    power_max_w=300,
    inforom="1001.0230.00.03",  # form
    board_part="900-21001-0020-100",
    gpu_part="20B5-895-A1",  # form
    links=(),
    nvlink_version=None,
)
RTX_4090 = Card(
    name="NVIDIA GeForce RTX 4090",
    brand="GeForce",
    brand_code=5,
    architecture="Ada Lovelace",
    architecture_code=8,
    compute_capability=(8, 9),
    device_id=0x2684,
    subsystem_id=0x40BF_1458,
    sm=128,
    cores=16384,
    bus_bits=384,
    l2_bytes=72 << 20,
    memory_mib=24564,
    reserved_mib=346,
    bar1_mib=32768,
    vbios="95.02.18.80.5F",
    inforom="G002.0000.00.03",
    board_part=None,
    geforce=True,
    gpu_part="2684-300-A1",
    power_default_w=450,
    power_min_w=10,
    power_max_w=600,
    sm_max_mhz=3120,
    memory_max_mhz=10501,
    pcie_gen_device=4,
    ecc=False,
    mig=None,
    idle_gen=1,
    performance_state=8,
)
RTX_4090_D = RTX_4090.but(
    name="NVIDIA GeForce RTX 4090 D",
    device_id=0x2685,
    gpu_part="2685-250-A1",
    sm=114,
    cores=14592,
    power_default_w=425,
)
L40S = Card(
    name="NVIDIA L40S",
    brand="NVIDIA",
    brand_code=14,
    architecture="Ada Lovelace",
    architecture_code=8,
    compute_capability=(8, 9),
    device_id=0x26B9,
    subsystem_id=0x1851_10DE,
    sm=142,
    cores=18176,
    bus_bits=384,
    l2_bytes=96 << 20,
    memory_mib=46068,
    reserved_mib=609,
    bar1_mib=65536,
    vbios="95.02.66.00.15",
    inforom="G133.0242.00.03",
    board_part="900-2G133-A880-000",
    gpu_part="26B9-896-A1",
    power_default_w=350,
    power_min_w=100,
    power_max_w=350,
    sm_max_mhz=2520,
    memory_max_mhz=9001,
    pcie_gen_device=4,
    ecc=True,
    mig=None,
    peer_pcie=True,
    idle_gen=1,
    performance_state=8,
)
