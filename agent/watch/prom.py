"""The latest look as Prometheus text, for the textfile collector of a node exporter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Optional

from agent.bench.telemetry import FAULTS, POWER_CAP
from agent.report.clean import one_line
from agent.tools.telemetry import REASONS
from agent.tools.watch import Card, Look
from agent.watch.events import COUNTED

# metric, its help, the value's name, the factor to the metric's unit
_GAUGES = (
    ("temperature_celsius", "GPU temperature", "temperature_c", 1.0),
    ("memory_temperature_celsius", "GPU memory temperature", "memory_temperature_c", 1.0),
    ("power_watts", "GPU power", "power_w", 1.0),
    ("sm_clock_hertz", "SM clock", "sm_mhz", 1e6),
    ("memory_clock_hertz", "Memory clock", "mem_mhz", 1e6),
    ("utilization_ratio", "Share of the time in which a kernel ran", "utilization", 0.01),
    ("memory_used_bytes", "GPU memory in use", "memory_used_mib", 1 << 20),
    ("pcie_sent_bytes_per_second", "PCIe traffic from the GPU", "pcie_sent_kb_s", 1e3),
    ("pcie_received_bytes_per_second", "PCIe traffic to the GPU", "pcie_received_kb_s", 1e3),
)
_TOTALS = (
    ("nvlink_sent_bytes_total", "Sent over NVLink", "nvlink_sent_kib", 1024.0),
    ("nvlink_received_bytes_total", "Received over NVLink", "nvlink_received_kib", 1024.0),
)
_HOST = (
    ("host_cpu_ratio", "CPU time in use", "cpu", 0.01),
    ("host_steal_ratio", "CPU time stolen by others", "steal", 0.01),
    ("host_iowait_ratio", "CPU time waiting for storage", "iowait", 0.01),
    ("host_memory_available_bytes", "Memory available", "available_mib", 1 << 20),
    ("host_disk_read_bytes_per_second", "Read from disks", "disk_read", 1e6),
    ("host_disk_written_bytes_per_second", "Written to disks", "disk_written", 1e6),
    ("host_network_received_bytes_per_second", "Received from networks", "received", 1e6),
    ("host_network_sent_bytes_per_second", "Sent to networks", "sent", 1e6),
)
_PREFIX = "accept_watch_"


def render(
    cards: Sequence[Card],
    t: float,
    look: Look,
    since: Mapping[tuple[str, str], float],
    xids: Mapping[tuple[str, int], int],
) -> str:
    """``since``: states that go on, by card and name; ``xids``: how often each was seen. What is not told is absent."""
    return "".join(_lines(cards, t, look, since, xids))


def _lines(
    cards: Sequence[Card],
    t: float,
    look: Look,
    since: Mapping[tuple[str, str], float],
    xids: Mapping[tuple[str, int], int],
) -> Iterator[str]:
    yield from _one("look_timestamp_seconds", "When this was read", "gauge", [({}, t)])
    gpus = [({"gpu": c.slot, "uuid": c.uuid, "name": c.name}, values) for c, values in zip(cards, look.gpus)]
    for kind, metrics in (("gauge", _GAUGES), ("counter", _TOTALS)):
        for name, text, key, factor in metrics:
            yield from _one(name, text, kind, [(of, _times(values.get(key), factor)) for of, values in gpus])
    held = [
        ({**of, "cause": cause}, _bit(values.get("reasons"), bit))
        for of, values in gpus
        for bit, cause in REASONS.items()
        if cause in (*FAULTS, POWER_CAP)
    ]
    yield from _one("clock_held_down", "1 while the cause holds the clock down", "gauge", held)
    counts = [({**of, "counter": name}, values.get(name)) for of, values in gpus for name in COUNTED]
    yield from _one("errors_total", "Error counters as the driver keeps them", "counter", counts)
    waits = [(of, float((of["gpu"] or "", "waits") in since)) for of, _ in gpus]
    yield from _one("waits_for_data", "1 while the GPU waits for CPU, disk or network", "gauge", waits)
    seen = [({"gpu": gpu or None, "xid": str(xid)}, float(n)) for (gpu, xid), n in sorted(xids.items())]
    yield from _one("xids_total", "Xids since the watch began", "counter", seen)
    for name, text, key, factor in _HOST:
        yield from _one(name, text, "gauge", [({}, _times(look.host.get(key), factor))])


def _one(
    name: str, text: str, kind: str, rows: Sequence[tuple[Mapping[str, Optional[str]], Optional[float]]]
) -> Iterator[str]:
    known = [(labels, value) for labels, value in rows if value is not None]
    if not known:
        return
    yield f"# HELP {_PREFIX}{name} {text}\n# TYPE {_PREFIX}{name} {kind}\n"
    for labels, value in known:
        inner = ",".join(f'{k}="{_escaped(v)}"' for k, v in labels.items() if v is not None)
        yield f"{_PREFIX}{name}{'{' + inner + '}' if inner else ''} {value:.15g}\n"


def _times(value: Optional[float], factor: float) -> Optional[float]:
    return None if value is None else value * factor


def _bit(bits: Optional[float], bit: int) -> Optional[float]:
    return None if bits is None else float(bool(int(bits) & bit))


def _escaped(text: str) -> str:
    return one_line(text)[:200].replace("\\", "\\\\").replace('"', '\\"')
