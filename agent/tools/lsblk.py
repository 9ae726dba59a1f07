"""lsblk: block devices, what lies on what, and where it is mounted.

Source command: ``lsblk -b -J -o NAME,…`` (:func:`argv`); ``-P`` pairs and the plain tree are read too. In
lsblk's JSON a RAID or LVM volume hangs below each of its members: here each device is there once, with its parents.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from agent.tools import ParseError, _lsblk_tree, _shell
from agent.tools._text import clean, first_line, integer, objects, one_document, recognise, text_or_none

KIND = "lsblk"
TIMEOUT_S = 15.0
_SIGN = re.compile(r"blockdevices|\bNAME\b")
COLUMNS = (
    "NAME", "KNAME", "PKNAME", "PATH", "MAJ:MIN", "TYPE", "SIZE", "ROTA", "RM", "RO", "MODEL", "SERIAL",
    "TRAN", "FSTYPE", "MOUNTPOINT",
)  # fmt: skip

_DEEPEST = 32
_UNITS = {"B": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_PAIR = re.compile(r'([A-Z][A-Z0-9:_%-]{0,30})="((?:[^"\\]|\\.)*)"')
# Said of single devices beside a whole list.
_WARNING = re.compile(r"^lsblk: \S+: (?:failed to (?:get|initialize)|unknown device name).*\n", re.MULTILINE)
# What holds nothing of its own, or is memory.
_NOT_A_DISK = re.compile(r"^(?:loop|ram|zram|fd|sr|nbd)\d+")


@dataclass(frozen=True)
class Device:
    """One block device; None is "not in the text".

    ``size_bytes`` is exact only where ``size_exact`` is true: without ``-b`` lsblk prints three digits in
    powers of 1024. ``rotational`` of a virtual disk says nothing about the real one.
    """

    name: str
    path: Optional[str]
    type: Optional[str]
    size_bytes: Optional[int]
    size_exact: Optional[bool]
    size_text: Optional[str]
    rotational: Optional[bool]
    removable: Optional[bool]
    read_only: Optional[bool]
    model: Optional[str]
    serial: Optional[str]
    transport: Optional[str]
    fstype: Optional[str]
    mountpoints: Optional[tuple[str, ...]]
    parents: tuple[str, ...]


@dataclass(frozen=True)
class Lsblk:
    """All devices in lsblk's order, each once."""

    devices: tuple[Device, ...]


def argv() -> list[str]:
    """Only columns that util-linux 2.23 (CentOS 7) to today know; ``MOUNTPOINTS`` came with 2.37."""
    known_everywhere = [column for column in COLUMNS if column != "PATH"]
    return ["lsblk", "-b", "-J", "-o", ",".join(known_everywhere)]


def pairs_argv() -> list[str]:
    """For util-linux before 2.27, which has no ``-J``."""
    return ["lsblk", "-b", "-P", "-o", ",".join(column for column in COLUMNS if column != "PATH")]


def parse(text: str) -> Lsblk:
    """All block devices. Raises :class:`ParseError`: ``truncated``, ``empty``, ``option``, ``unparsable``."""
    recognise(text, "lsblk", _SIGN)
    text = _WARNING.sub("", clean(text))
    if not text.strip():
        raise ParseError("empty", "no lsblk output: no block devices, or no permission to see them")
    if _PAIR.search(text) and "{" not in text.split('="', 1)[0]:
        return Lsblk(tuple(_merged(_pair_rows(text))))
    _raise_on_message(text)
    columns = _lsblk_tree.columns(text)
    if columns is not None:
        return Lsblk(tuple(_merged(_lsblk_tree.rows(text, columns))))
    if re.match(r"\s*NAME\s+[A-Z:]+", text):
        raise ParseError("text_output", "a tree with columns that may be empty; run lsblk with -b -J", first_line(text))
    document = one_document(text, "lsblk")
    if not isinstance(document.get("blockdevices"), list):
        raise ParseError("unparsable", "JSON, but not of lsblk: no blockdevices", first_line(text))
    return Lsblk(tuple(_merged(_json_rows(document["blockdevices"], None))))


def disks(result: Lsblk) -> tuple[Device, ...]:
    """Whole disks with a medium: no partitions, loop devices, RAM disks, optical or empty card readers."""
    return tuple(
        device
        for device in result.devices
        if device.type == "disk" and device.size_bytes != 0 and not _NOT_A_DISK.match(_short(device.name))
    )


def size(text: str) -> Optional[tuple[int, bool]]:
    """Bytes of a printed size, and whether it is exact: ``894.3G`` is about 894.3 x 1024^3."""
    match = re.fullmatch(r"(\d+)(?:[.,](\d+))?([BKMGTPE])?(?:iB)?", text.strip())
    if match is None:
        return None
    whole, fraction, unit = match.groups()
    factor = 1024 ** _UNITS[unit or "B"]
    return round(float(f"{whole}.{fraction or 0}") * factor), factor == 1


def _raise_on_message(text: str) -> None:
    line = next((li for li in text.splitlines() if re.match(r"lsblk: ", li)), None)
    shell = _shell.failure(text, "lsblk") if "{" not in text else None
    if shell is not None and (line is None or shell.kind in ("broken_tool", "tool_missing")):
        raise shell
    if line is None or "{" in text:
        return
    for pattern, kind in (
        (r"unknown column|未知列|未知的列|invalid option|unrecognized option", "option"),
        (r"[Pp]ermission denied|not permitted", "denied"),
        (r"not a block device|No such file", "open_failed"),
    ):
        if re.search(pattern, line):
            raise ParseError(kind, f"lsblk failed ({kind})", line)
    raise ParseError("failed", "lsblk failed", line)


def _json_rows(entries: Any, parent: Optional[str], depth: int = 0) -> Iterator[tuple[dict[str, Any], Optional[str]]]:
    if depth > _DEEPEST:
        raise ParseError("unparsable", f"block devices stacked more than {_DEEPEST} deep", parent)
    for entry in objects(entries):
        name = text_or_none(entry.get("name"))
        if name is None:
            raise ParseError("unparsable", "a block device without a name", str(entry)[:200])
        yield entry, parent
        yield from _json_rows(entry.get("children"), name, depth + 1)


def _pair_rows(text: str) -> Iterator[tuple[dict[str, Any], Optional[str]]]:
    for line in text.splitlines():
        if not line.strip():
            continue
        if _PAIR.sub("", line).strip():
            kind = "truncated" if line.count('"') % 2 or line.rstrip().endswith("=") else "unparsable"
            raise ParseError(kind, "not a line of lsblk pairs", line)
        row: dict[str, Any] = {key.lower(): value for key, value in _PAIR.findall(line)}
        if not row.get("name"):
            raise ParseError("unparsable", "a block device without a name", line)
        yield row, text_or_none(row.get("pkname"))
    if not text.endswith("\n") and len({frozenset(_keys(li)) for li in text.splitlines() if li.strip()}) > 1:
        raise ParseError("truncated", "the last line of lsblk pairs is cut off", text.splitlines()[-1])


def _keys(line: str) -> Sequence[str]:
    return [key for key, _ in _PAIR.findall(line)]


def _merged(rows: Iterator[tuple[dict[str, Any], Optional[str]]]) -> Iterator[Device]:
    """Each device once; a volume on several members is listed by lsblk under each of them."""
    entries: dict[str, dict[str, Any]] = {}
    parents: dict[str, list[str]] = {}
    for entry, parent in rows:
        name = str(entry["name"]).strip()
        entries.setdefault(name, entry)
        known = parents.setdefault(name, [])
        if parent is not None and parent not in known:
            known.append(parent)
    for name, entry in entries.items():
        yield _device(name, entry, tuple(parents[name]))


def _device(name: str, entry: dict[str, Any], parents: tuple[str, ...]) -> Device:
    printed = entry.get("size")
    exact = integer(printed)
    parsed = (exact, True) if exact is not None else size(printed) if isinstance(printed, str) else None
    return Device(
        name=name,
        path=text_or_none(entry.get("path")) or (name if name.startswith("/") else None),
        type=text_or_none(entry.get("type")),
        size_bytes=parsed[0] if parsed else None,
        size_exact=parsed[1] if parsed else None,
        size_text=None if parsed and parsed[1] else text_or_none(printed),
        rotational=_flag(entry.get("rota")),
        removable=_flag(entry.get("rm")),
        read_only=_flag(entry.get("ro")),
        model=text_or_none(entry.get("model")),
        serial=text_or_none(entry.get("serial")),
        transport=text_or_none(entry.get("tran")),
        fstype=text_or_none(entry.get("fstype")),
        mountpoints=_mountpoints(entry),
        parents=parents,
    )


def _flag(value: Any) -> Optional[bool]:
    """util-linux prints true, "1" or 1, by version."""
    if isinstance(value, bool):
        return value
    return {"1": True, "0": False, "true": True, "false": False}.get(str(value).strip().lower())


def _mountpoints(entry: dict[str, Any]) -> Optional[tuple[str, ...]]:
    """``mountpoints`` is a list since 2.37 (one string with line breaks in pairs), before it one string."""
    if "mountpoints" in entry:
        listed = entry["mountpoints"]
        values = listed if isinstance(listed, list) else re.split(r"\\x0a|\n", str(listed or ""))
        return tuple(point for point in map(text_or_none, values) if point)
    if "mountpoint" in entry:
        point = text_or_none(entry["mountpoint"])
        return (point,) if point else ()
    return None


def _short(name: str) -> str:
    return name.rsplit("/", 1)[-1]
