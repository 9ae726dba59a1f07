"""The GPUs of this machine, each as every source shows it: NVML, nvidia-smi, PCI, /proc and the CUDA driver.

The sources share as little as can be: NVML and nvidia-smi use one library, CUDA another, sysfs and /proc none.
Nothing here decides who is right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

from agent.facts import Asked
from agent.facts._source import Source, first
from agent.host import Host
from agent.reading import Reading
from agent.tools.smi_xml import SmiXml

SOURCES = ("nvml", "smi", "pci", "proc", "cuda")


@dataclass(frozen=True)
class Gpu:
    """One GPU. ``index`` and ``uuid`` are NVML's, else nvidia-smi's.

    The values of all five sources are named in :mod:`agent.tools._source`. Beside them:

    - ``smi`` has ``throttle_reasons`` (tuple of words such as ``sw_power_cap``), ``fabric_state``, ``fabric_status``,
      ``fabric_health`` (str), ``power_average_w``, ``fan_percent``, ``mig_devices`` (tuple of ``smi_xml.MigDevice``),
      ``lost`` (bool: nvidia-smi lists the card and cannot read it, or names it as unreachable);
    - ``pci`` has what :class:`agent.facts.pci.Device` has: ``pcie_gen_current``, ``pcie_gen_max`` (card and port
      together are not known to sysfs: this is the card's own), ``pcie_width_current``, ``pcie_width_max``,
      ``pci_device_id``, ``pci_subsystem_id``, ``numa_node``, ``driver`` (str: nvidia, vfio-pci, nouveau),
      ``dead`` (bool: its registers read all ones), ``iommu_group`` (int), ``aer_correctable``, ``aer_nonfatal``,
      ``aer_fatal`` (int, totals since boot);
    - ``proc`` (``/proc/driver/nvidia/gpus/*/information``) has ``name``, ``uuid``, ``vbios``, ``minor``, ``slot``,
      ``excluded`` (bool: the driver was told to leave it alone), ``gsp_version``;
    - ``cuda`` has ``ordinal``, ``name``, ``uuid``, ``slot``, ``sm_count``, ``memory_total_mib``, ``clock_sm_max_mhz``,
      ``clock_mem_max_mhz``, ``bus_width_bits``, ``l2_bytes`` (int), ``compute_capability``, ``ecc_current``,
      ``integrated`` (bool), ``compute_mode``.
    """

    slot: str
    index: Reading[int]
    uuid: Reading[str]
    nvml: Source
    smi: Source
    pci: Source
    proc: Source
    cuda: Source

    def source(self, name: str) -> Source:
        """One of :data:`SOURCES`."""
        return {s.name: s for s in (self.nvml, self.smi, self.pci, self.proc, self.cuda)}[name]

    def any(self, name: str, *order: str) -> Reading[Any]:
        """The first known value of that name, with the evidence of every source asked; else the first reason.

        ``order`` names sources; without it: nvml, smi, cuda, pci, proc.
        """
        return first(name, [self.source(s) for s in order or ("nvml", "smi", "cuda", "pci", "proc")])

    @property
    def seen_by(self) -> tuple[str, ...]:
        """The sources that could read anything of this GPU."""
        return tuple(name for name in SOURCES if self.source(name).there)


@dataclass(frozen=True)
class Program:
    """A program file: ``path`` as found on the PATH, ``real`` behind its links.

    ``kind``: elf, script (begins with ``#!``), other. ``owner`` is the uid; ``writable``: by this user or everybody.
    """

    path: str
    real: str
    kind: str
    interpreter: Optional[str]
    owner: int
    writable: bool
    size: int


@dataclass(frozen=True)
class GpusFacts:
    """``gpus`` is the union over all sources, ordered by slot.

    - ``sources``: by source, the slots it lists, or why it lists none. A GPU that NVML counts and cannot open has no
      slot there; see ``unopened``.
    - ``unopened``: index and NVML's error of each such GPU.
    - ``driver``: kernel and library versions by source: ``nvml``, ``smi``, ``proc`` (the loaded kernel module).
    - ``cuda_version``: the newest CUDA that the driver can run, by source: ``nvml``, ``smi``, ``cuda`` (``12.4``).
    - ``smi``: the parsed ``nvidia-smi -q -x``; ``nvidia_smi``: all of that name on the PATH, first one first;
      ``smi_is_script``: whether the first is a script, or not the ELF program that NVIDIA delivers.
    - ``library``: path of the NVML library that answered, from the child's own memory map; ``library_matches``:
      whether the version in its file name is that of the loaded kernel driver.
    - ``kernel_module``: ``open`` or ``proprietary``.
    - ``nodes``: minors of ``/dev/nvidia<minor>``.
    - ``container_hides``: slots that PCI shows and neither the driver nor any device node gives to this environment.
    """

    gpus: tuple[Gpu, ...]
    sources: Mapping[str, Reading[tuple[str, ...]]]
    unopened: tuple[tuple[int, str], ...]
    driver: Mapping[str, Reading[str]]
    cuda_version: Mapping[str, Reading[str]]
    smi: Reading[SmiXml]
    nvidia_smi: Reading[tuple[Program, ...]]
    smi_is_script: Reading[bool]
    library: Reading[str]
    library_matches: Reading[bool]
    kernel_module: Reading[str]
    nodes: Reading[tuple[int, ...]]
    container_hides: tuple[str, ...]

    def of(self, slot: str) -> Optional[Gpu]:
        """The GPU in that slot."""
        return next((gpu for gpu in self.gpus if gpu.slot == slot), None)


def collect(host: Host, asked: Asked) -> GpusFacts:
    """Asks every source; none of them is needed."""
    raise NotImplementedError
