"""What a machine is made of, as ``result.json`` keeps it under ``node``: to be recognised by, and compared with.

Only what was read: a part that could not be read is left out, never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

from agent.quantity import format_quantity
from agent.reading import Known, Reading
from agent.tools import lsblk

GPU_COUNTERS = (
    "ecc_corrected_aggregate", "ecc_uncorrected_aggregate", "remapped_correctable", "remapped_uncorrectable",
    "remapped_failure", "retired_pages", "pcie_replay",
)  # fmt: skip
PCI_COUNTERS = ("aer_nonfatal", "aer_fatal")
DISK_COUNTERS = ("media_errors", "unsafe_shutdowns", "percentage_used")
KERNEL_LOG = "kernel log"  # owner of the number of all GPU messages: where it is there, the log was read


def node(identity: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """``hostname``, ``identity``, ``gpus`` always; ``cpu``, ``memory``, ``os``, ``disks`` … where they were read."""
    system, cpu = facts.get("system"), facts.get("cpu")
    gpus = getattr(facts.get("gpus"), "inventory", None)
    found: dict[str, Any] = {
        "hostname": _value(system, "hostname"),
        "identity": identity,
        "gpus": gpus() if gpus is not None else [],
        "product": _value(system, "product"),
        "virtualization": _value(system, "virtualisation"),
        "container": _value(system, "container"),
        "os": _os(system),
        "kernel": _value(system, "kernel"),
        "cpu": _cpu(cpu),
        "memory": _memory(facts.get("memory")),
        "disks": _disks(facts.get("disks")),
        "network": _network(facts.get("network")),
        "counters": _counters(facts.get("gpus"), facts.get("disks"), facts.get("kernel_log")),
    }
    always = ("hostname", "identity", "gpus")
    return {k: v for k, v in found.items() if k in always or v not in (None, [], "", {})}


def unread(identity: str) -> dict[str, Any]:
    """A machine of which nothing more could be told."""
    return {"hostname": None, "identity": identity, "gpus": []}


def _counters(gpus: Any, disks: Any, log: Any) -> dict[str, dict[str, int]]:
    """Counts of errors that only grow on a healthy part, by GPU slot and disk name: a trial holds them side by side."""
    smart = getattr(disks, "smart", {})
    media = {name: {n: getattr(_known(s), n, None) for n in DISK_COUNTERS} for name, s in smart.items()}
    cards = {g.slot: _of_card(g) for g in getattr(gpus, "gpus", ())}
    counts = {name: {k: int(v) for k, v in c.items() if v is not None} for name, c in {**cards, **media}.items()}
    for owner, messages in _messages(log).items():
        counts.setdefault(owner, {}).update(messages)
    return {name: known for name, known in counts.items() if known}


def _of_card(gpu: Any) -> dict[str, Optional[int]]:
    found = {n: _known(gpu.any(n, "nvml", "smi")) for n in GPU_COUNTERS}
    found.update({n: _known(gpu.any(n, "pci")) for n in PCI_COUNTERS})
    links = _known(gpu.any("nvlinks", "nvml"))
    for link in links or ():
        for name, count in link.errors.items():
            found[f"nvlink_{name}"] = (found.get(f"nvlink_{name}") or 0) + count
    return found


def _messages(log: Any) -> dict[str, dict[str, int]]:
    """Messages about GPUs since the machine was started, by slot and kind: ``{"0000:1b:00.0": {"xid 79": 1}}``."""
    read = _known(getattr(log, "after", None)) or _known(getattr(log, "log", None))
    if read is None:
        return {}
    found: dict[str, dict[str, int]] = {KERNEL_LOG: {"messages": len(read.gpu_events)}}
    for event in read.gpu_events:
        kind = event.kind if event.xid is None else f"xid {event.xid}"
        of = found.setdefault(event.slot or KERNEL_LOG, {})
        of[kind] = of.get(kind, 0) + 1
    return found


def _known(reading: Optional[Reading[Any]]) -> Any:
    return reading.value if isinstance(reading, Known) else None


def _value(facts: Any, name: str) -> Any:
    return _known(getattr(facts, name, None))


def _os(system: Any) -> Optional[str]:
    found = _value(system, "os")
    return found.pretty or found.name if found is not None else None


def _cpu(cpu: Any) -> Optional[str]:
    model = _value(cpu, "model")
    if model is None:
        return None
    sockets, threads = _value(cpu, "sockets"), _value(cpu, "threads")
    return f"{model}" + (f", {sockets} × socket" if sockets else "") + (f", {threads} threads" if threads else "")


def _memory(memory: Any) -> Optional[str]:
    total = _value(memory, "total")
    return format_quantity(float(total), "B") if total is not None else None


def _disks(disks: Any) -> list[dict[str, Any]]:
    tree = _value(disks, "tree")
    if tree is None:
        return []
    whole = [d for d in lsblk.disks(tree) if d.type == "disk" and d.size_bytes]
    return [
        {k: v for k, v in (("name", d.name), ("model", d.model), ("serial", d.serial), ("bytes", d.size_bytes)) if v}
        for d in whole
    ]


def _network(network: Any) -> list[dict[str, Any]]:
    interfaces = _value(network, "interfaces")
    if interfaces is None:
        return []
    real = [i for i in interfaces.values() if _known(i.virtual) is False]
    parts = [(("name", i.name), ("mac", _known(i.mac)), ("speed", _known(i.speed))) for i in real]
    return [{k: v for k, v in part if v} for part in parts]
