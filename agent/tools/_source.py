"""What one source says of one GPU: named readings, all in one vocabulary, so that sources can be compared.

==================================== ======================================================================
name                                 value
==================================== ======================================================================
name                                 str, as the driver markets it (``NVIDIA H100 80GB HBM3``)
uuid, serial, board_part, vbios      str
board_id, minor                      int (``/dev/nvidia<minor>``)
inforom_image                        str
inforom_valid                        bool
slot                                 str, see :mod:`agent.facts._slot`
pci_device_id, pci_subsystem_id      str ``vendor:device``, lower case (``10de:2330``)
memory_total_mib …used …free …reserved, bar1_total_mib  float MiB (1 MiB = 2**20 bytes)
bus_width_bits, cores, sm_count      int
compute_capability                   str ``9.0``
architecture                         str ``Hopper``
brand                                str ``tesla``, ``geforce`` …
power_enforced_w                     float W: the smallest limit in force, whoever set it
power_limit_w                        float W: the limit that was asked for
power_default_w power_min_w power_max_w float W
power_w                              float W: draw (an average over 1 s since Ampere)
temperature_c temp_slowdown_c temp_shutdown_c temp_memory_c  float °C
clock_sm_mhz clock_mem_mhz clock_sm_max_mhz clock_mem_max_mhz  float MHz
app_clock_sm_mhz app_clock_sm_default_mhz  float MHz
throttle                             int, bits of nvmlClocksEventReasons
perf_state                           int, 0 is P0
ecc_current ecc_pending              bool
ecc_corrected_volatile ecc_uncorrected_volatile  int, since the driver was loaded
ecc_corrected_aggregate ecc_uncorrected_aggregate  int, over the card's life
remapped_correctable remapped_uncorrectable  int, rows
remapped_pending remapped_failure    bool
retired_pages                        int (before Ampere)
retired_pending                      bool
mig_current mig_pending              bool
virtualization_mode                  str: none, passthrough, vgpu, host-vgpu, host-vsga
persistence                          bool
compute_mode                         str: default, exclusive-thread, prohibited, exclusive-process
pcie_gen_current pcie_gen_max pcie_gen_device_max  int; max is card and slot together, device_max the card alone
pcie_width_current pcie_width_max    int lanes
pcie_replay                          int, counter; only its growth means something
utilization_gpu utilization_memory   int %
nvlinks                              tuple of :class:`NvLink`; empty where the card has none
fabric                               :class:`Fabric`
processes                            tuple of :class:`Process`
recovery_action                      str: none, reset, reboot, drain-p2p, drain-and-reset
numa_node                            int; sysfs's -1 (none stated) is Missing
gsp_version                          str
vgpu_license                         str ``Licensed``, ``Unlicensed (Restricted)`` …
==================================== ======================================================================

What only one source has is described where it is built: ``agent.tools.nvml``, ``agent.tools.cuda``,
``agent.facts.pci``, ``agent.facts.gpus``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from agent.reading import Known, Missing, Reading
from agent.text import msg


@dataclass(frozen=True)
class Source:
    """One source's readings of one GPU. ``absent`` says why the source says nothing of this GPU at all."""

    name: str
    values: Mapping[str, Reading[Any]] = field(default_factory=dict)
    absent: Optional[Missing] = None

    def get(self, name: str) -> Reading[Any]:
        """The reading of that name; Missing where the source as a whole or this value is not there."""
        if name in self.values:
            return self.values[name]
        if self.absent is not None:
            return self.absent
        return Missing("unsupported", msg("{source} does not tell {name}", source=self.name, name=name))

    @property
    def evidence(self) -> tuple[str, ...]:
        """The evidence of all its readings."""
        readings = [*self.values.values(), *([self.absent] if self.absent is not None else [])]
        return tuple(dict.fromkeys(e for r in readings for e in r.evidence))

    @property
    def there(self) -> bool:
        """Whether the source knows this GPU and could read anything of it."""
        return any(isinstance(reading, Known) for reading in self.values.values())


def first(name: str, sources: Sequence[Source]) -> Reading[Any]:
    """The first known reading of that name, with the evidence of all that were asked; else the first reason."""
    readings = [source.get(name) for source in sources]
    evidence = tuple(dict.fromkeys(e for r in readings for e in r.evidence))
    for reading in readings:
        if isinstance(reading, Known):
            return Known(reading.value, evidence)
    if readings:
        return readings[0]
    return Missing("unsupported", msg("no source tells {name}", name=name))


@dataclass(frozen=True)
class NvLink:
    """One NVLink of one GPU. ``active`` is None where the driver does not say; ``remote_type``: gpu, switch, cpu."""

    link: int
    active: Optional[bool]
    version: Optional[int] = None
    remote_type: Optional[str] = None
    remote_slot: Optional[str] = None
    errors: Mapping[str, int] = field(default_factory=dict)
    """Counters by name: replay, recovery, crc_flit, crc_data, ecc."""


@dataclass(frozen=True)
class Fabric:
    """The NVSwitch fabric as this GPU sees it.

    ``state``: not-supported, not-started, in-progress, completed; only then ``status`` (an NVML error name, or
    ``NVML_SUCCESS``) means something. ``health``: healthy, unhealthy, limited; None where the driver is too old.
    ``health_mask`` is the driver's bit field of degradations.
    """

    state: str
    status: Optional[str] = None
    health: Optional[str] = None
    health_mask: Optional[int] = None
    clique: Optional[int] = None
    cluster: Optional[str] = None


@dataclass(frozen=True)
class Process:
    """A process on a GPU: in a container the pid is the host's. ``type``: compute, graphics, mps."""

    pid: Optional[int]
    type: str
    used_mib: Optional[float] = None
    name: Optional[str] = None
