"""dmidecode: maker, board, processors and memory modules as the firmware states them.

Source command: ``dmidecode`` (:func:`argv`), root only. Whole, not ``-t``: only then its last line says
that nothing is missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Optional

from agent.tools import ParseError, _shell
from agent.tools._text import clean, first_line, recognise

KIND = "dmidecode"
TIMEOUT_S = 20.0
_SIGN = re.compile(r"dmidecode|SMBIOS|Handle 0x")

_HANDLE = re.compile(r"^\s*Handle (0x[0-9A-Fa-f]+), DMI type (\d+), \d+ bytes\s*$")
# dmidecode before 2.7 breaks the line and indents what follows.
_OLD_HANDLE = re.compile(
    r"^([^\S\n]*Handle 0x[0-9A-Fa-f]+)[ \t]*\n[ \t]+(DMI type \d+, \d+ bytes)\.?[ \t]*$", re.MULTILINE
)
_SIZE = re.compile(r"^(\d+) ([kMGT]?i?B|bytes)$")
_FACTOR = {"bytes": 1, "B": 1, "k": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SYSTEM, _BOARD, _PROCESSOR, _ARRAY, _MEMORY, _END = 1, 2, 4, 16, 17, 127
# Caches and connectors: beside BIOS and system they are in whole tables only, not in a choice by -t.
_NEVER_ASKED_FOR = frozenset({7, 8})
# What boards print where they have nothing to say.
_EMPTY = re.compile(
    r"^(?:not specified|unknown|none|n/a|not provided|to be filled by o\.?e\.?m\.?|default string"
    r"|no (?:dimm|module installed)|<out of spec>|<bad index>|system (?:product name|manufacturer|serial number)"
    r"|0x0+|0+|0123456789|o\.?e\.?m\.?)$",
    re.IGNORECASE,
)

_FAILURES: tuple[tuple[str, str], ...] = (
    (r"[Pp]ermission denied|not permitted|权限不够|不允许的操作|must be root", "denied"),
    (r"No SMBIOS nor DMI entry point found", "absent"),
    (r"/dev/mem: No such file|sysfs: No such file", "absent"),
    (r"invalid option|unrecognized option|Invalid type|Usage: dmidecode", "option"),
)


@dataclass(frozen=True)
class Module:
    """One populated memory slot; size in bytes, speeds as printed."""

    locator: Optional[str]
    bank: Optional[str]
    size_bytes: int
    type: Optional[str]
    speed: Optional[str]
    configured_speed: Optional[str]
    manufacturer: Optional[str]
    serial: Optional[str]
    part_number: Optional[str]
    rank: Optional[str]


@dataclass(frozen=True)
class Memory:
    """Sections are slots: ``slots`` counts them all, ``modules`` holds the populated ones.

    ``total_bytes`` is None where a populated slot does not state its size, and where every slot claims to be empty:
    a machine that runs has memory, so such a table (some VMs) tells nothing.
    """

    slots: int
    modules: tuple[Module, ...]
    unknown_sizes: int
    total_bytes: Optional[int]


@dataclass(frozen=True)
class Processor:
    """One populated socket."""

    socket: Optional[str]
    manufacturer: Optional[str]
    version: Optional[str]
    enabled: bool
    cores: Optional[int]
    threads: Optional[int]


@dataclass(frozen=True)
class Processors:
    """``sockets`` counts all sections, ``populated`` holds those with a processor."""

    sockets: int
    populated: tuple[Processor, ...]


@dataclass(frozen=True)
class Maker:
    """Who made the system or board; None is blank or a filler such as "To Be Filled By O.E.M."."""

    manufacturer: Optional[str]
    product: Optional[str]
    version: Optional[str]
    serial: Optional[str]
    uuid: Optional[str]


@dataclass(frozen=True)
class Dmidecode:
    """None where the text has no such section (``-t``): unknown, not zero.

    ``complete`` says that the table's end was printed.
    """

    system: Optional[Maker]
    board: Optional[Maker]
    memory: Optional[Memory]
    processors: Optional[Processors]
    sections: int
    complete: bool


@dataclass(frozen=True)
class _Section:
    handle: str
    type: int
    title: str
    values: dict[str, str]


def argv() -> list[str]:
    """All sections; some kilobytes on real servers."""
    return ["dmidecode"]


def parse(text: str) -> Dmidecode:
    """The sections that matter.

    Raises :class:`ParseError`: ``denied``, ``absent`` (no SMBIOS: most containers and some VMs),
    ``truncated`` (the last section is half, or fewer memory slots than the array states), ``unparsable``.
    """
    recognise(text, "dmidecode", _SIGN)
    text = _OLD_HANDLE.sub(r"\1, \2", clean(text))
    sections = list(_sections(text))
    if not sections:
        raise _nothing(text)
    complete = any(section.type == _END for section in sections)
    if not complete:
        _raise_on_cut(text, sections)
    return Dmidecode(
        system=_maker(sections, _SYSTEM),
        board=_maker(sections, _BOARD),
        memory=_memory(sections),
        processors=_processors(sections),
        sections=len(sections),
        complete=complete,
    )


def _sections(text: str) -> Iterator[_Section]:
    """Attribute lines are indented once (tab, or blanks where pasted); deeper ones are lists, left out."""
    lines = text.split("\n")
    starts = [at for at, line in enumerate(lines) if _HANDLE.match(line)]
    for start, stop in zip(starts, [*starts[1:], len(lines)]):
        head = _HANDLE.match(lines[start])
        body = [line for line in lines[start + 1 : stop] if line.strip()]
        values: dict[str, str] = {}
        for line in body[1:]:
            key, colon, value = line.strip().partition(":")
            if colon:
                values.setdefault(key, value.strip())
        if head is not None:
            yield _Section(head[1].lower(), int(head[2]), body[0].strip() if body else "", values)


def _nothing(text: str) -> ParseError:
    if not text.strip():
        return ParseError("empty", "no dmidecode output: the text is empty")
    for pattern, kind in _FAILURES:
        line = next((li for li in text.splitlines() if re.search(pattern, li)), None)
        if line is not None:
            return ParseError(kind, f"dmidecode failed ({kind})", line)
    if re.search(r"^# dmidecode|^SMBIOS [\d.]+ present", text, re.MULTILINE):
        return ParseError("truncated", "dmidecode stops before its first section", first_line(text))
    return _shell.failure(text, "dmidecode") or ParseError("unparsable", "not dmidecode output", first_line(text))


def _raise_on_cut(text: str, sections: list[_Section]) -> None:
    """Without the table's end: the last section must be whole, and the slots as many as stated."""
    last = sections[-1]
    if not last.title or not last.values:
        raise ParseError("truncated", "the last section is cut off", text.splitlines()[-1])
    ends = {_MEMORY: "Locator", _PROCESSOR: "Status", _SYSTEM: "Serial Number", _BOARD: "Serial Number"}
    needed = ends.get(last.type)
    unfinished = not text.endswith("\n") and last.type in ends
    if (needed is not None and needed not in last.values) or (unfinished and not _ends_whole(text)):
        raise ParseError("truncated", f"the last section ({last.title}) is cut off", text.splitlines()[-1])
    types = {section.type for section in sections}
    if {0, 1} <= types and types & _NEVER_ASKED_FOR:
        raise ParseError("truncated", "a whole table without its end", text.splitlines()[-1])
    stated = [s.values.get("Number Of Devices", "") for s in sections if s.type == _ARRAY]
    slots = sum(section.type == _MEMORY for section in sections)
    if slots and stated and all(n.isdigit() for n in stated) and slots < sum(map(int, stated)):
        raise ParseError("truncated", f"{slots} memory slots of {sum(map(int, stated))}", text.splitlines()[-1])


def _ends_whole(text: str) -> bool:
    """A paste without its last line end: only where the last attribute's value cannot be a beginning."""
    key = text.splitlines()[-1].strip().partition(":")[0]
    return key in ("Family", "Rank", "Configured Voltage", "Thread Count")


def _first(sections: list[_Section], kind: int) -> Optional[_Section]:
    return next((section for section in sections if section.type == kind), None)


def _maker(sections: list[_Section], kind: int) -> Optional[Maker]:
    section = _first(sections, kind)
    if section is None:
        return None
    get = section.values.get
    return Maker(
        said(get("Manufacturer")), said(get("Product Name")), said(get("Version")),
        said(get("Serial Number")), said(get("UUID")),
    )  # fmt: skip


def _memory(sections: list[_Section]) -> Optional[Memory]:
    uses = {section.handle: section.values.get("Use") for section in sections if section.type == _ARRAY}
    slots = [section for section in sections if section.type == _MEMORY and _is_main(section, uses)]
    if not slots:
        return None
    modules, unknown = [], 0
    for slot in slots:
        printed = slot.values.get("Size")
        if printed is None:
            raise ParseError("unparsable", "a memory slot without its size", slot.values.get("Locator"))
        if re.match(r"No Module Installed|Not Installed|0 ", printed):
            continue
        size = size_bytes(printed)
        if size is None and said(printed) is not None:
            raise ParseError("unparsable", "a memory size that cannot be read", printed)
        if size is None:
            unknown += 1
        else:
            modules.append(_module(slot.values, size))
    total = None if unknown or not modules else sum(module.size_bytes for module in modules)
    return Memory(len(slots), tuple(modules), unknown, total)


def _is_main(slot: _Section, uses: dict[str, Optional[str]]) -> bool:
    """Boards list the firmware's flash and the video memory among the memory devices too."""
    use = uses.get(slot.values.get("Array Handle", "").lower())
    return use in (None, "System Memory") and slot.values.get("Type") != "Flash"


def _module(values: dict[str, str], size: int) -> Module:
    configured = values.get("Configured Memory Speed", values.get("Configured Clock Speed"))
    return Module(
        locator=said(values.get("Locator")),
        bank=said(values.get("Bank Locator")),
        size_bytes=size,
        type=said(values.get("Type")),
        speed=said(values.get("Speed")),
        configured_speed=said(configured),
        manufacturer=said(values.get("Manufacturer")),
        serial=said(values.get("Serial Number")),
        part_number=said(values.get("Part Number")),
        rank=said(values.get("Rank")),
    )


def _processors(sections: list[_Section]) -> Optional[Processors]:
    sockets = [section.values for section in sections if section.type == _PROCESSOR]
    if not sockets:
        return None
    return Processors(len(sockets), tuple(p for values in sockets if (p := _processor(values)) is not None))


def _processor(values: dict[str, str]) -> Optional[Processor]:
    """A VM lists every socket that could be: those not enabled by the firmware hold nothing."""
    status = values.get("Status", "")
    if not status.startswith("Populated"):
        return None
    return Processor(
        said(values.get("Socket Designation")), said(values.get("Manufacturer")), said(values.get("Version")),
        "Enabled" in status, _count(values.get("Core Count")), _count(values.get("Thread Count")),
    )  # fmt: skip


def _count(value: Optional[str]) -> Optional[int]:
    return int(value) if value is not None and value.isdigit() else None


def size_bytes(text: str) -> Optional[int]:
    """Bytes of a printed size; dmidecode's MB and GB are powers of 1024."""
    match = _SIZE.match(text.strip())
    if match is None:
        return None
    unit = match[2]
    return int(match[1]) * _FACTOR[unit if unit in _FACTOR else unit[0]]


def said(value: Optional[str]) -> Optional[str]:
    """The value where it says something, None for blanks and fillers."""
    if value is None or not value.strip() or _EMPTY.match(value.strip()):
        return None
    return value.strip()
