"""lspci: PCI devices, their link's capability and state, access control, drivers.

Source command: ``lspci -D -nn -vv`` (:func:`argv`). Read with or without domain, ids, and the
``(ok)``/``(downgraded)`` marks of pciutils 3.6 and later.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Optional

from agent.tools import ParseError, _lspci_mm, _shell
from agent.tools._text import clean, first_line, recognise

KIND = "lspci"
TIMEOUT_S = 20.0
_SIGN = re.compile(r"[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]\b")

_HEAD = re.compile(r"^\s*((?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]) (\S.*)$")
_IDS = re.compile(r"\[([0-9a-fA-F]{4}):([0-9a-fA-F]{4})\]")
_NUMERIC = re.compile(r"^([0-9a-fA-F]{4}): ([0-9a-fA-F]{4}):([0-9a-fA-F]{4})(.*)$")
_LINK = re.compile(
    r"Speed (?:(?P<speed>\d+(?:\.\d+)?)\s?GT/s|unknown)(?: \((?P<speed_mark>\w+)\))?,"
    r" Width x(?P<width>\d+)(?: \((?P<width_mark>\w+)\))?(?P<end>,|\s*$)"
)
_ACS = re.compile(r"([A-Z][A-Za-z]+)([+-])")
# How a last line without its line end may end: at a bracket, or with the last flag of its list.
_WHOLE_END = re.compile(r"[)\]>]$|\b(?:DirectTrans|ABWMgmt|<PERR|INTx)[+-]$")
# The version is printed by -vv only, and these types have a link.
_LINKED = re.compile(r"Express \(v\d\) (?:Legacy Endpoint|Endpoint|Root Port|Upstream Port|Downstream Port)")
# With these on, traffic between two GPUs below the port goes up to the root complex and back.
_REDIRECTION = ("ReqRedir", "CmpltRedir")

_FAILURES: tuple[tuple[str, str], ...] = (
    (r"[Pp]ermission denied|not permitted", "denied"),
    (r"Cannot (?:open|find|read)|Unable to", "no_access"),
    (r"invalid option|unrecognized option|Usage: lspci", "option"),
)


@dataclass(frozen=True)
class Link:
    """Gigatransfers a second and lanes; None is unknown. Marks as printed (``ok``, ``downgraded``)."""

    speed_gts: Optional[float]
    width: Optional[int]
    speed_mark: Optional[str] = None
    width_mark: Optional[str] = None


@dataclass(frozen=True)
class Acs:
    """Access control of a port: which flags are on; ``redirects`` sends peer traffic to the root."""

    enabled: tuple[str, ...]
    redirects: bool


@dataclass(frozen=True)
class Device:
    """One function. ``downgraded`` compares state with capability: normal on a port with a slower partner,
    on a card idle at low speed, and in a board wired so; None where either is unknown.

    ``dead`` is a device whose registers read all ones (revision or header ff): fallen off the bus.
    ``access_denied`` says that the capabilities need root.
    """

    slot: str
    class_name: Optional[str]
    class_id: Optional[str]
    name: str
    vendor_id: Optional[str]
    device_id: Optional[str]
    subsystem: Optional[str]
    revision: Optional[str]
    numa_node: Optional[int]
    link_cap: Optional[Link]
    link_sta: Optional[Link]
    downgraded: Optional[bool]
    acs: Optional[Acs]
    driver: Optional[str]
    modules: Optional[tuple[str, ...]]
    dead: bool
    access_denied: bool


@dataclass(frozen=True)
class Lspci:
    """All devices in the text's order."""

    devices: tuple[Device, ...]


def argv() -> list[str]:
    """Link states need root for the capabilities beyond the first 64 bytes."""
    return ["lspci", "-D", "-nn", "-vv"]


def parse(text: str) -> Lspci:
    """The devices of ``lspci`` with or without ``-v``, ``-n``, ``-D``, ``-mm``.

    Raises :class:`ParseError`: ``truncated`` where the last line or the last device's link breaks off,
    ``no_access``, ``tool_missing``, ``empty``, ``unparsable``.
    """
    recognise(text, "lspci", _SIGN)
    text = clean(text)
    records = _lspci_mm.records(text)
    if records is not None:
        return Lspci(tuple(_of_record(record) for record in records))
    blocks = list(_blocks(text))
    if not blocks:
        raise _nothing(text)
    devices = tuple(_device(block) for block in blocks)
    _raise_on_cut(text, blocks[-1])
    return Lspci(devices)


def _of_record(record: _lspci_mm.Record) -> Device:
    """A device of the machine-readable forms, which hold no links and no capabilities."""

    def value(label: str) -> Optional[str]:
        return record[label][0] if record.get(label) else None

    class_name, class_id = _lspci_mm.split_id(record["Class"][0])
    vendor, vendor_id = _lspci_mm.split_id(record["Vendor"][0])
    name, device_id = _lspci_mm.split_id(record["Device"][0])
    subsystem = [part for label in ("SVendor", "SDevice") if (part := value(label))]
    named = [part for part in (vendor, name) if part]
    revision, numa = value("Rev"), value("NUMANode")
    return Device(
        slot=record["Slot"][0].lower(),
        class_name=class_name,
        class_id=class_id,
        name=" ".join(named) or f"{vendor_id}:{device_id}",
        vendor_id=vendor_id,
        device_id=device_id,
        subsystem=" ".join(subsystem) or None,
        revision=revision.lower() if revision else None,
        numa_node=int(numa) if numa is not None and numa.isdigit() else None,
        link_cap=None,
        link_sta=None,
        downgraded=None,
        acs=None,
        driver=value("Driver"),
        modules=tuple(record["Module"]) if record.get("Module") else None,
        dead=(revision or "").lower() == "ff",
        access_denied=False,
    )


def _blocks(text: str) -> Iterator[list[str]]:
    """The lines of one device each; a shell prompt or notes before the first are left out."""
    block: list[str] = []
    for line in text.split("\n"):
        if _HEAD.match(line):
            if block:
                yield block
            block = [line]
        elif block and line.strip():
            block.append(line.rstrip())
    if block:
        yield block


def _nothing(text: str) -> ParseError:
    if not text.strip():
        return ParseError("empty", "no lspci output: no PCI bus, or none that may be seen here")
    for line in text.splitlines():
        kind = next((kind for pattern, kind in _FAILURES if re.search(pattern, line)), None)
        if kind is not None and re.search(r"lspci|pcilib", line):
            return ParseError(kind, f"lspci failed ({kind})", line)
    return _shell.failure(text, "lspci") or ParseError("unparsable", "not lspci output", first_line(text))


def _raise_on_cut(text: str, last: list[str]) -> None:
    """An unfinished last line must not pass: ``Width x1`` is the beginning of ``Width x16``."""
    line = last[-1]
    if not text.endswith("\n") and not _WHOLE_END.search(line):
        raise ParseError("truncated", "the last line may be cut off", line)
    body = "\n".join(last)
    begun = "LnkCap:" in body or _LINKED.search(body)
    if begun and "LnkSta:" not in body:
        raise ParseError("truncated", "the last device breaks off before its link's state", line)


def _device(block: list[str]) -> Device:
    head = _HEAD.match(block[0])
    if head is None:
        raise ParseError("unparsable", "not the first line of a device", block[0])
    slot, rest = head[1].lower(), head[2].strip()
    class_name, class_id, name, vendor_id, device_id = _names(rest)
    cap, sta = _link(block, "LnkCap"), _link(block, "LnkSta")
    revision = re.search(r"\(rev ([0-9a-fA-F]{2})\)", rest)
    numa = _value(block, "NUMA node")
    modules = _value(block, "Kernel modules")
    return Device(
        slot=slot,
        class_name=class_name,
        class_id=class_id,
        name=name,
        vendor_id=vendor_id,
        device_id=device_id,
        subsystem=_value(block, "Subsystem"),
        revision=revision[1].lower() if revision else None,
        numa_node=int(numa) if numa is not None and numa.isdigit() else None,
        link_cap=cap,
        link_sta=sta,
        downgraded=_downgraded(cap, sta),
        acs=_acs(block),
        driver=_value(block, "Kernel driver in use"),
        modules=tuple(part.strip() for part in modules.split(",")) if modules else None,
        dead=_dead(block, revision[1] if revision else None),
        access_denied=any("<access denied>" in line for line in block),
    )


def _names(rest: str) -> tuple[Optional[str], Optional[str], str, Optional[str], Optional[str]]:
    """Class name and id, device name, vendor and device id, from the three forms (names, -nn, -n)."""
    numeric = _NUMERIC.match(rest)
    if numeric is not None:
        return None, numeric[1].lower(), f"{numeric[2]}:{numeric[3]}".lower(), numeric[2].lower(), numeric[3].lower()
    class_part, _, name = rest.partition(": ")
    class_id = re.search(r"(?<!\s)\s*\[([0-9a-fA-F]{4})\]$", class_part)
    ids = _IDS.search(name)
    bare = re.sub(r"(?<!\s)\s*\((?:rev|prog-if) [^)]*\)", "", _IDS.sub("", name)).strip()
    if not name:
        raise ParseError("unparsable", "a PCI device without a name", rest)
    unnamed = re.search(r"\bDevice ([0-9a-f]{4})$", bare)
    return (
        class_part[: class_id.start()] if class_id else class_part,
        class_id[1].lower() if class_id else None,
        bare,
        ids[1].lower() if ids else None,
        ids[2].lower() if ids else unnamed[1] if unnamed else None,
    )


def _value(block: list[str], label: str) -> Optional[str]:
    for line in block[1:]:
        key, _, value = line.strip().partition(":")
        if key == label:
            return value.strip() or None
    return None


def _link(block: list[str], label: str) -> Optional[Link]:
    """An unknown speed and a width of 0 come from a hypervisor that shows no link."""
    line = next((line for line in block if line.strip().startswith(f"{label}:")), None)
    if line is None:
        return None
    match = _LINK.search(line)
    if match is None:
        kind = "truncated" if line is block[-1] else "unparsable"
        raise ParseError(kind, f"{label} that cannot be read", line)
    speed = float(match["speed"]) if match["speed"] else None
    width = int(match["width"]) or None
    if speed is None or width is None:
        return Link(speed, width)
    return Link(speed, width, match["speed_mark"], match["width_mark"])


def _downgraded(cap: Optional[Link], sta: Optional[Link]) -> Optional[bool]:
    if cap is None or sta is None:
        return None
    if cap.speed_gts is None or sta.speed_gts is None or cap.width is None or sta.width is None:
        return None
    return sta.speed_gts < cap.speed_gts or sta.width < cap.width


def _acs(block: list[str]) -> Optional[Acs]:
    line = next((line for line in block if line.strip().startswith("ACSCtl:")), None)
    if line is None:
        return None
    flags = dict(_ACS.findall(line.partition(":")[2]))
    on = tuple(name for name, sign in flags.items() if sign == "+")
    return Acs(on, any(name in on for name in _REDIRECTION))


def _dead(block: list[str], revision: Optional[str]) -> bool:
    return (revision or "").lower() == "ff" or any("Unknown header type 7f" in line for line in block)
