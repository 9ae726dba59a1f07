"""What happens, from one look to the next: each event once, at the time of the look that first showed it. Pure.

A state (hot, held down, waiting, lost) is told when it begins and when it ends. A counter that grew is told at once;
what it grows within the ten minutes after that is told together at their end. A counter that fell was set back with
the driver and tells nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Callable, Optional

from agent.bench.telemetry import FAULTS
from agent.facts._slot import slot
from agent.text import Text, msg
from agent.tools.telemetry import REASONS
from agent.tools.watch import Card, Look
from agent.tools.xid import CLASSES, MEANING, xid_class

HOT_WITHOUT_LIMIT_C = 90.0  # where the driver names no temperature at which it slows down
HOT_BELOW_C = 3.0  # so much below that temperature it is hot, and twice that below it no longer
GATHER_S = 600.0
STOLEN_PERCENT = 5.0
IDLE_UTILIZATION = 40.0  # percent: a card that works less, with memory in use, may be waiting
WORKING_MIB = 1024.0
BUSY_CPU, BUSY_DISK, BUSY_PORT, BUSY_WAIT = 85.0, 80.0, 70.0, 20.0  # percent
LOOKS = 3  # in a row, before waiting or stolen time is told: one look is a coincidence
FAULT_BITS = {bit: name for bit, name in REASONS.items() if name in FAULTS}
COUNTED = (
    "ecc_uncorrected",
    "ecc_corrected",
    "remapped_uncorrectable",
    "remapped_failure",
    "pcie_replay",
    "nvlink_crc_flit",
    "nvlink_crc_data",
    "nvlink_replay",
    "nvlink_recovery",
)

COUNTERS: Mapping[str, Text] = {
    "ecc_uncorrected": msg("uncorrected ECC errors"),
    "ecc_corrected": msg("corrected ECC errors"),
    "remapped_uncorrectable": msg("memory rows remapped"),
    "remapped_failure": msg("failed row remappings"),
    "pcie_replay": msg("PCIe replays"),
    "nvlink_crc_flit": msg("NVLink CRC errors (flits)"),
    "nvlink_crc_data": msg("NVLink CRC errors (data)"),
    "nvlink_replay": msg("NVLink replays"),
    "nvlink_recovery": msg("NVLink recoveries"),
}
CAUSES: Mapping[str, Text] = {
    "hw_slowdown": msg("hardware slowdown"),
    "sw_thermal": msg("temperature, by the driver"),
    "hw_thermal": msg("temperature, by the hardware"),
    "power_brake": msg("power brake: the server's power supply asked for it"),
}
WAITED_FOR: Mapping[str, Text] = {
    "cpu": msg("the CPUs ({busy} % busy)"),
    "disk": msg("disk {name} ({busy} % busy)"),
    "port": msg("network port {name} ({busy} % of its line rate)"),
    "iowait": msg("storage that is no local disk (CPUs wait {busy} % of the time)"),
}


@dataclass(frozen=True)
class Event:
    """``t``: seconds since 1970, UTC. ``subject``: the card's slot, None for the host. ``values``: by kind."""

    t: float
    kind: str
    subject: Optional[str] = None
    values: Mapping[str, Any] = field(default_factory=dict)


def words(event: Event) -> Text:
    """The event as a sentence, without time and subject."""
    v = event.values
    kind = event.kind
    if kind == "hot":
        return msg("hot: {c} °C; the driver slows it down at {limit} °C", c=_n(v["c"]), limit=_n(v["limit"]))
    if kind == "cooled":
        return msg("no longer hot, after {s}", s=lasted(v["seconds"]))
    if kind == "held":
        return msg("clock held down: {cause}", cause=CAUSES[v["cause"]])
    if kind == "released":
        return msg("clock free again after {s}: {cause}", s=lasted(v["seconds"]), cause=CAUSES[v["cause"]])
    if kind == "xid":
        return _xid_words(v)
    if kind == "sxid":
        return msg("NVSwitch error SXid {text}", text=v["text"])
    if kind == "fallen_off_bus":
        return msg("the GPU has fallen off the bus")
    if kind == "grew":
        return msg("{counter}: {by} more, {to} now", counter=COUNTERS[v["counter"]], by=_n(v["by"]), to=_n(v["to"]))
    if kind == "waits":
        return msg("GPU waits for data: {cause}; {n} % utilized", cause=_waits_for(v), n=_n(v["utilization"]))
    return _PLAIN[kind](v)


_PLAIN: Mapping[str, Callable[[Mapping[str, Any]], Text]] = {
    "fed": lambda v: msg("no longer waits for data, after {s}", s=lasted(v["seconds"])),
    "lost": lambda _: msg("the GPU answers nothing any more"),
    "back": lambda v: msg("the GPU answers again after {s}", s=lasted(v["seconds"])),
    "stolen": lambda v: msg("{n} % of the CPU time is stolen by others", n=_n(v["steal"])),
    "given": lambda v: msg("no more CPU time stolen, after {s}", s=lasted(v["seconds"])),
    "silent": lambda v: msg("no answer in {s}: not watched until it is started again", s=lasted(v["seconds"])),
    "heard": lambda v: msg("watched again; {s} are missing", s=lasted(v["seconds"])),
}
KINDS = (
    "hot", "cooled", "held", "released", "xid", "sxid", "fallen_off_bus", "grew", "waits", *_PLAIN,
)  # fmt: skip
GRAVE = ("xid", "sxid", "fallen_off_bus", "lost", "held", "hot", "silent")


def _xid_words(v: Mapping[str, Any]) -> Text:
    if v.get("xid") is None:
        return msg("an Xid that cannot be read: {text}", text=v["text"])
    meaning, class_ = MEANING.get(v["xid"]), CLASSES[xid_class(v["xid"])]
    if meaning is None:
        return msg("Xid {n} ({class_}): {text}", n=v["xid"], class_=class_, text=v["text"])
    return msg(
        "Xid {n}, {meaning} ({class_}): {text}",
        n=v["xid"],
        meaning=meaning,
        class_=class_,
        text=v["text"] or "-",
    )


def _waits_for(v: Mapping[str, Any]) -> Text:
    return msg(WAITED_FOR[v["cause"]].template, name=v.get("name", ""), busy=_n(v["busy"]))


def _n(value: float) -> str:
    return f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def lasted(seconds: float) -> str:
    """``45 s``, ``12 min``, ``3.5 h``: the same in every language."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


@dataclass
class _Growth:
    told_at: Optional[float] = None  # the time of the last event
    told: float = 0.0  # the counter's value then
    seen: float = 0.0


@dataclass
class Watcher:
    """Remembers what is going on. ``cards`` are those of the looks, in their order."""

    cards: Sequence[Card]
    since: dict[tuple[str, str], float] = field(default_factory=dict)
    row: dict[tuple[str, str], int] = field(default_factory=dict)
    growth: dict[tuple[str, str], _Growth] = field(default_factory=dict)

    def see(self, t: float, look: Look) -> list[Event]:
        """What this look shows that none before it did."""
        found = [*self._faults(t, look), *self._host(t, look)]
        for number, (card, values) in enumerate(zip(self.cards, look.gpus)):
            name = card.slot or f"GPU {number}"
            found += self._card(t, name, card, values, look)
        return found

    def _state(self, t: float, key: tuple[str, str], on: Optional[bool]) -> Optional[float]:
        """0 when it begins now, its length when it ends now, None for no change (or nothing known)."""
        begun = self.since.get(key)
        if on and begun is None:
            self.since[key] = t
            return 0.0
        if on is False and begun is not None:
            return t - self.since.pop(key)
        return None

    def _lasting(self, key: tuple[str, str], on: Optional[bool]) -> Optional[bool]:
        """True only after :data:`LOOKS` in a row."""
        if on is None:
            return None
        self.row[key] = self.row.get(key, 0) + 1 if on else 0
        return self.row[key] >= LOOKS if on else False

    def _card(
        self, t: float, name: str, card: Card, values: Mapping[str, Optional[float]], look: Look
    ) -> Iterator[Event]:
        silent = all(v is None for v in values.values())
        change = self._state(t, (name, "lost"), silent)
        if change is not None:
            yield Event(t, "lost", name) if silent else Event(t, "back", name, {"seconds": change})
        if silent:
            return
        yield from self._temperature(t, name, card, values)
        yield from self._causes(t, name, values)
        yield from self._counters(t, name, values)
        yield from self._waiting(t, name, values, look)

    def _temperature(self, t: float, name: str, card: Card, values: Mapping[str, Optional[float]]) -> Iterator[Event]:
        limit = card.slowdown_c or HOT_WITHOUT_LIMIT_C
        c = values["temperature_c"]
        if c is None:
            return
        below = HOT_BELOW_C * (2 if (name, "hot") in self.since else 1)
        change = self._state(t, (name, "hot"), c >= limit - below)
        if change is not None:
            hot = (name, "hot") in self.since
            yield (
                Event(t, "hot", name, {"c": c, "limit": limit})
                if hot
                else Event(t, "cooled", name, {"seconds": change})
            )

    def _causes(self, t: float, name: str, values: Mapping[str, Optional[float]]) -> Iterator[Event]:
        bits = values["reasons"]
        if bits is None:
            return
        for bit, cause in FAULT_BITS.items():
            on = bool(int(bits) & bit)
            change = self._state(t, (name, cause), on)
            if change is not None:
                kind = "held" if on else "released"
                yield Event(t, kind, name, {"cause": cause, **({} if on else {"seconds": change})})

    def _counters(self, t: float, name: str, values: Mapping[str, Optional[float]]) -> Iterator[Event]:
        for counter in COUNTED:
            value = values[counter]
            if value is None:
                continue
            known = self.growth.get((name, counter))
            if known is None or value < known.seen:
                self.growth[name, counter] = _Growth(None, value, value)
                continue
            known.seen = value
            if value > known.told and (known.told_at is None or t - known.told_at >= GATHER_S):
                yield Event(t, "grew", name, {"counter": counter, "by": value - known.told, "to": value})
                known.told_at, known.told = t, value

    def _waiting(self, t: float, name: str, values: Mapping[str, Optional[float]], look: Look) -> Iterator[Event]:
        utilization, used = values["utilization"], values["memory_used_mib"]
        if utilization is None or used is None:
            return
        cause = _busy(look) if utilization < IDLE_UTILIZATION and used >= WORKING_MIB else None
        on = self._lasting((name, "waits"), cause is not None)
        change = self._state(t, (name, "waits"), on)
        if change is None:
            return
        if cause is not None:
            yield Event(t, "waits", name, {**cause, "utilization": utilization})
        else:
            yield Event(t, "fed", name, {"seconds": change})

    def _host(self, t: float, look: Look) -> Iterator[Event]:
        steal = look.host["steal"]
        on = self._lasting(("", "stolen"), None if steal is None else steal >= STOLEN_PERCENT)
        change = self._state(t, ("", "stolen"), on)
        if change is not None:
            yield Event(t, "stolen", None, {"steal": steal}) if on else Event(t, "given", None, {"seconds": change})

    def _faults(self, t: float, look: Look) -> Iterator[Event]:
        for fault in look.faults:
            values: dict[str, Any] = {"text": fault.text}
            if fault.kind == "xid":
                values["xid"] = fault.xid
            yield Event(t, fault.kind, slot(fault.slot) or fault.slot, values)


def _busy(look: Look) -> Optional[dict[str, Any]]:
    """What is at its limit while a card does little: what the card waits for."""
    disk, port = look.busy.get("disk"), look.busy.get("port")
    cpu, iowait = look.host["cpu"], look.host["iowait"]
    if disk is not None and disk[1] >= BUSY_DISK:
        return {"cause": "disk", "name": disk[0], "busy": disk[1]}
    if port is not None and port[1] >= BUSY_PORT:
        return {"cause": "port", "name": port[0], "busy": port[1]}
    if cpu is not None and cpu >= BUSY_CPU:
        return {"cause": "cpu", "busy": cpu}
    if iowait is not None and iowait >= BUSY_WAIT:
        return {"cause": "iowait", "busy": iowait}
    return None
