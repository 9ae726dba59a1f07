"""What ``agent/probes/telemetry_probe.py … ticks`` answered: one look at all GPUs and the host."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from agent.tools import ParseError, dmesg
from agent.tools.telemetry import COUNTERS, SLOW
from agent.tools.worker import mapping, number, sequence, text, whole

TRAFFIC = (
    "memory_utilization",
    "pcie_sent_kb_s",
    "pcie_received_kb_s",
    "nvlink_sent_kib",
    "nvlink_received_kib",
    "nvlink_crc_flit",
    "nvlink_crc_data",
    "nvlink_replay",
    "nvlink_recovery",
)
FAST = ("sm_mhz", "reasons")
VALUES = (*FAST, *SLOW, *TRAFFIC, *COUNTERS)
HOST = ("cpu", "own", "steal", "iowait", "available_mib", "disk_read", "disk_written", "received", "sent")


@dataclass(frozen=True)
class Card:
    """A GPU as it introduced itself. ``slowdown_c``: where the driver slows it down; None is what it did not tell."""

    slot: Optional[str]
    uuid: Optional[str]
    name: Optional[str]
    memory_total_mib: Optional[float]
    slowdown_c: Optional[float]


@dataclass(frozen=True)
class Head:
    """``error``: why there are no GPUs. ``kernel_log``, ``events``: where Xids can be seen.

    ``log_at``: number of the kernel log's last message.
    """

    cards: tuple[Card, ...]
    error: Optional[str]
    cpus: Optional[int]
    kernel_log: bool
    events: bool
    log_at: Optional[int] = None


@dataclass(frozen=True)
class Fault:
    """``kind``: xid, sxid or fallen_off_bus. ``slot`` as it was printed, None where nothing names a card."""

    kind: str
    slot: Optional[str]
    xid: Optional[int]
    text: str


@dataclass(frozen=True)
class Look:
    """``gpus``: :data:`VALUES` by name for each card, None for what it refused; ``host``: :data:`HOST` by name.

    ``busy``: of ``disk`` and ``port`` the busiest one with its percent. ``log_at`` as in :class:`Head`.
    """

    gpus: tuple[Mapping[str, Optional[float]], ...]
    host: Mapping[str, Optional[float]]
    busy: Mapping[str, tuple[str, float]]
    faults: tuple[Fault, ...] = ()
    log_at: Optional[int] = None


def parse_head(line: str) -> Head:
    """The first line. Raises :class:`ParseError`."""
    found = _object(line)
    if found.get("watch") != 1:
        raise ParseError("unparsable", "the watching child does not introduce itself", line[:200])
    gpus = found.get("gpus")
    error = text(mapping(gpus, "gpus").get("error"), "gpus.error") if isinstance(gpus, Mapping) else None
    cards = () if error is not None else tuple(_card(mapping(g, "gpus")) for g in sequence(gpus, "gpus"))
    cpus = found.get("cpus")
    return Head(
        cards, error, None if cpus is None else whole(cpus, "cpus"), found.get("kernel_log") is True,
        found.get("events") is True, _place(found),
    )  # fmt: skip


def parse_look(line: str, head: Head) -> Look:
    """One answer. Raises :class:`ParseError`."""
    found = _object(line)
    rows = {"f": FAST, "s": SLOW, "w": TRAFFIC, "c": COUNTERS}
    gpus: list[dict[str, Optional[float]]] = [{} for _ in head.cards]
    for key, names in rows.items() if head.cards else ():
        for one, row in zip(gpus, _rows(found.get(key), key, len(head.cards))):
            if len(row) != len(names):
                raise ParseError("unparsable", f"{key}: {len(row)} values instead of {len(names)}")
            one.update({n: _maybe(v, n) for n, v in zip(names, row)})
    host = {**mapping(found.get("h"), "h"), "iowait": found.get("iowait")}
    busy = {}
    for kind in ("disk", "port"):
        if found.get(kind) is not None:
            name, percent = sequence(found[kind], kind)
            busy[kind] = (text(name, kind), number(percent, kind))
    told = {name: _maybe(host.get(name), name) for name in HOST}
    return Look(tuple(gpus), told, busy, (*_events(found, head), *_logged(found)), _place(found))


def _place(found: Mapping[str, Any]) -> Optional[int]:
    return None if found.get("log_at") is None else whole(found["log_at"], "log_at")


def _object(line: str) -> Mapping[str, Any]:
    try:
        return mapping(json.loads(line), "a line of the watching child")
    except (ValueError, RecursionError) as error:
        raise ParseError("unparsable", f"a line of the watching child is no JSON: {error}"[:200]) from error


def _card(found: Mapping[str, Any]) -> Card:
    slot, uuid, name = (None if found.get(k) is None else text(found[k], k) for k in ("slot", "uuid", "name"))
    memory, slowdown = (_maybe(found.get(k), k) for k in ("memory_total_mib", "slowdown_c"))
    return Card(slot, uuid, name, memory, slowdown)


def _maybe(value: Any, where: str) -> Optional[float]:
    if isinstance(value, bool):
        return float(value)
    return None if value is None else number(value, where)


def _rows(value: Any, key: str, cards: int) -> Sequence[Sequence[Any]]:
    rows = [sequence(row, key) for row in sequence(value, key)]
    if len(rows) != cards:
        raise ParseError("unparsable", f"{key}: {len(rows)} cards instead of {cards}")
    return rows


def _events(found: Mapping[str, Any], head: Head) -> list[Fault]:
    """Xids from NVML: a number and nothing more."""
    faults = []
    for pair in sequence(found.get("x", []), "x"):
        card, xid = (whole(n, "x") for n in sequence(pair, "x"))
        faults.append(Fault("xid", head.cards[card].slot if card < len(head.cards) else None, xid, ""))
    return faults


def _logged(found: Mapping[str, Any]) -> list[Fault]:
    lines = [text(line, "k") for line in sequence(found.get("k", []), "k")]
    if not lines:
        return []
    try:
        log = dmesg.parse("\n".join(lines) + "\n")
    except ParseError as error:
        return [Fault("xid", None, None, str(error))]
    faults = [(x.line, Fault("xid", x.pci, x.xid, x.text)) for x in log.xids]
    faults += [(e.line, Fault(e.kind, e.pci, None, e.text)) for e in log.events if e.kind in ("sxid", "fallen_off_bus")]
    return [fault for _, fault in sorted(faults, key=lambda pair: pair[0])]
