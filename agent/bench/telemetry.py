"""Telemetry as conditions of a block: what clocks, power, temperature and everybody else did meanwhile. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from agent import stats
from agent.bench.worker import WorkerResult
from agent.reading import Missing, Reading
from agent.tools.telemetry import REASONS, Telemetry, epoch
from agent.tools.worker import Device

# Clocks that are held down by a fault: what a healthy card in a healthy server shows under no load.
FAULTS = ("hw_slowdown", "sw_thermal", "hw_thermal", "power_brake")
POWER_CAP = "sw_power_cap"  # normal in a full load, unless the limit was lowered
FEWEST = 0.5  # of the samples that a window should hold; with fewer it says nothing
NS = 1e-9
BUSY_PERCENT = 10.0  # before our own load: somebody works there


@dataclass(frozen=True)
class Watched:
    """One card's telemetry; times in UTC seconds since 1970."""

    telemetry: Telemetry
    card: int

    @property
    def capped(self) -> bool:
        """Whether less power is enforced than the card boots with."""
        gpu = self.telemetry.gpus[self.card]
        enforced, default = gpu.power_enforced_w, gpu.power_default_w
        return enforced is not None and default is not None and enforced < default - 1

    @property
    def busy(self) -> Optional[float]:
        """How busy the card still was in % when our load began; None where nobody looked."""
        busy = self.telemetry.busy
        return busy[self.card] if self.card < len(busy) else None

    def span(self, started_at: str, ended_at: str) -> tuple[float, float]:
        """A block's start and end in the telemetry's own time."""
        return epoch(started_at) - self.telemetry.started_at, epoch(ended_at) - self.telemetry.started_at

    def reasons(self, span: tuple[float, float]) -> Optional[list[int]]:
        """The bits of each sample in a window; None where too few were taken."""
        found = [f.reasons[self.card] for f in self.telemetry.fast if span[0] <= f.t <= span[1]]
        known = [bits for bits in found if bits is not None]
        expected = (span[1] - span[0]) / self.telemetry.interval_s
        return known if known and len(known) >= FEWEST * expected else None

    def clocks(self, span: tuple[float, float]) -> list[float]:
        """SM clocks in MHz in a window."""
        found = (f.clocks[self.card] for f in self.telemetry.fast if span[0] <= f.t <= span[1])
        return [clock for clock in found if clock is not None]

    def slow(self, name: str, span: tuple[float, float]) -> list[float]:
        """Values of :data:`agent.tools.telemetry.SLOW` in a window."""
        found = (s.gpus[self.card][name] for s in self.telemetry.slow if span[0] <= s.t <= span[1])
        return [value for value in found if value is not None]

    def growth(self, name: str, span: Optional[tuple[float, float]] = None) -> Optional[float]:
        """By how much a counter grew between the readings around a window (all of them without one).

        None where it was not read twice, or fell: the driver was loaded anew.
        """
        rows = [(r.t, r.gpus[self.card][name]) for r in self.telemetry.counters]
        known = [(t, value) for t, value in rows if value is not None]
        if span is not None:
            known = _around(known, span)
        if len(known) < 2 or known[-1][1] < known[0][1]:
            return None
        return known[-1][1] - known[0][1]

    def held_down(self, name: str, span: tuple[float, float]) -> Optional[float]:
        """Share of the time by the driver's own counter (``thermal_ns``), where it has one."""
        rows = [(r.t, r.gpus[self.card][name]) for r in self.telemetry.counters]
        known = _around([(t, value) for t, value in rows if value is not None], span)
        if len(known) < 2 or known[-1][1] < known[0][1]:
            return None
        return min(1.0, (known[-1][1] - known[0][1]) * NS / (known[-1][0] - known[0][0]))


def _around(rows: list[tuple[float, float]], span: tuple[float, float]) -> list[tuple[float, float]]:
    """From the last reading before a window to the first after it."""
    before = [i for i, (t, _) in enumerate(rows) if t <= span[0]]
    after = [i for i, (t, _) in enumerate(rows) if t >= span[1]]
    first = before[-1] if before else 0
    last = after[0] if after else len(rows) - 1
    return [rows[first], rows[last]] if last > first else []


def watched(telemetry: Reading[Telemetry], device: Device) -> Optional[Watched]:
    """The card's part, joined by UUID; None where there is no telemetry of this card."""
    if isinstance(telemetry, Missing):
        return None
    for index, gpu in enumerate(telemetry.value.gpus):
        same = gpu.uuid == device.uuid if device.uuid is not None else gpu.slot == device.slot
        if same and (device.uuid or device.slot) is not None:
            return Watched(telemetry.value, index)
    return None


def seen_as(ran: WorkerResult, device: Device) -> Device:
    """The device as the worker saw it, with its UUID: the facts may know it by its slot alone."""
    return next((d for d in ran.devices if d.subject == device.subject), device)


def shares(reasons: Sequence[int]) -> dict[str, float]:
    """Share of the samples (0 to 1) in which each reason was set, without those that never were."""
    found = {name: sum(bool(bits & bit) for bits in reasons) / len(reasons) for bit, name in REASONS.items()}
    return {name: round(share, 5) for name, share in found.items() if share > 0}


def fault_share(reasons: Sequence[int], capped: bool) -> float:
    """Share of the samples in which any fault held the clocks down; a power cap counts where the limit was lowered."""
    names = (*FAULTS, POWER_CAP) if capped else FAULTS
    bits = sum(bit for bit, name in REASONS.items() if name in names)
    return sum(bool(r & bits) for r in reasons) / len(reasons)


def conditions(telemetry: Reading[Telemetry], device: Device, started_at: str, ended_at: str) -> dict[str, Any]:
    """What a block's conditions hold of its time; empty without telemetry."""
    if isinstance(telemetry, Missing):
        return {}
    found: dict[str, Any] = {"foreign": foreign(telemetry.value, started_at, ended_at)}
    card = watched(telemetry, device)
    if card is None:
        return found
    if card.busy is not None and card.busy > BUSY_PERCENT:
        found["foreign"]["gpu_busy_percent"] = card.busy
    span = card.span(started_at, ended_at)
    reasons, clocks = card.reasons(span), card.clocks(span)
    late = sum(f.late_ms > 0 for f in telemetry.value.fast if span[0] <= f.t <= span[1])
    return {
        **found,
        "sm_mhz": stats.median(clocks) if clocks else None,
        "power_w": _mean(card.slow("power_w", span)),
        "temp_c": max(card.slow("temperature_c", span), default=None),
        "throttle": shares(reasons) if reasons else None,
        "samples": len(reasons) if reasons else 0,
        "late": late,
    }


def foreign(telemetry: Telemetry, started_at: str, ended_at: str) -> dict[str, float]:
    """Means of what the host did for others: CPU and steal in %, disk and network in MB/s."""
    start, end = epoch(started_at) - telemetry.started_at, epoch(ended_at) - telemetry.started_at
    # A sample speaks of the second before it.
    rows = [s.values for s in telemetry.host if start <= s.t <= end + 1]
    found = {
        "cpu_percent": _mean(_differences(rows)),
        "steal_percent": _mean(_known(rows, "steal")),
        "disk_mb_s": _mean([a + b for a, b in zip(_known(rows, "disk_read"), _known(rows, "disk_written"))]),
        "network_mb_s": _mean([a + b for a, b in zip(_known(rows, "received"), _known(rows, "sent"))]),
    }
    return {name: value for name, value in found.items() if value is not None}


def _known(rows: Iterable[Any], name: str) -> list[float]:
    return [row[name] for row in rows if row.get(name) is not None]


def _differences(rows: Iterable[Any]) -> list[float]:
    both = ((row.get("cpu"), row.get("own")) for row in rows)
    return [max(0.0, cpu - own) for cpu, own in both if cpu is not None and own is not None]


def _mean(values: Sequence[float]) -> Optional[float]:
    return round(sum(values) / len(values), 3) if values else None
