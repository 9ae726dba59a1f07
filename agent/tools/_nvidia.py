"""How NVIDIA's tools say a value, that they have none, and that they could not read it."""

from __future__ import annotations

import re
from typing import Optional, Union

Value = Union[float, int, str, None]
"""A number; None where the tool has none; ``"error: <text>"`` where the tool failed to read it."""

_NO_VALUE = frozenset(
    {
        "",
        "n/a",
        "-",
        "not supported",
        "not available",
        "not found",
        "requested functionality has been deprecated",
        "redacted",
    }
)
# nvmlErrorString() texts as they stand in the place of a value.
_FAILED = frozenset(
    {
        "err!",
        "error",
        "unknown error",
        "unknown",
        "gpu is lost",
        "gpu requires reset",
        "gpu access blocked by the operating system",
        "insufficient permissions",
        "insufficient external power",
        "no permission",
        "timeout",
        "uninitialized",
        "driver not loaded",
        "corrupted inforom",
        "in use by another client",
        "interrupt request issue",
        "function not found",
        "invalid argument",
        "memory error",
        "no data",
        "reset required",
    }
)
_NUMBER = re.compile(r"(-?\d{1,18}(?:\.\d{1,9})?)\s*([A-Za-z%/]*)")
_VERSION = re.compile(r"\d+(?:\.\d+)+")
_BUS_ID = re.compile(r"(?:([0-9A-Fa-f]{4,8}):)?([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})\.([0-7])")

# An unsigned -1 of bytes shown in MiB (2**44 and its neighbour): the driver's own "don't know".
_IMPOSSIBLE_MIB = 2**40


def plain(raw: Optional[str]) -> Optional[str]:
    """A value's text without padding and brackets; None where the tool says that it has none."""
    text = " ".join((raw or "").split())
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1].strip()
    return None if text.lower() in _NO_VALUE else text


def word(raw: Optional[str]) -> Optional[str]:
    """A textual value: itself, None, or ``"error: <text>"`` for one of the driver's failure texts."""
    text = plain(raw)
    if text is not None and (text.lower().rstrip(".") in _FAILED or is_error(text)):
        return text if is_error(text) else f"error: {text}"
    return text


def quantity(raw: Optional[str], unit: str = "") -> Value:
    """A number in ``unit`` (``MiB``, ``W``, ``C``, ``%`` ...); whole numbers stay whole.

    A text that is no number in that unit comes back as ``"error: <text>"``: it was said and could not be read.
    """
    text = plain(raw)
    if text is None:
        return None
    match = _NUMBER.fullmatch(text)
    if match is None or match[2] not in (unit, ""):
        return text if is_error(text) else f"error: {text}"
    value = float(match[1]) if "." in match[1] else int(match[1])
    if unit == "MiB" and (value >= _IMPOSSIBLE_MIB or value < 0):
        return f"error: {text}"
    return value


def is_error(value: object) -> bool:
    """Whether a value is the tool's failure to read it."""
    return isinstance(value, str) and value.startswith("error: ")


def version(raw: Optional[str]) -> Optional[str]:
    """The version number of a field; None for prose such as ``Deprecated, see "KMD version" instead``."""
    match = _VERSION.match((raw or "").strip())
    return match[0] if match else None


def pci_slot(bus_id: Optional[str]) -> Optional[str]:
    """``00000000:1B:00.0`` as sysfs writes it (``0000:1b:00.0``); None for what is no bus id."""
    match = _BUS_ID.fullmatch((bus_id or "").strip())
    if match is None:
        return None
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{bus.lower()}:{device.lower()}.{function}"


def complete(text: str) -> bool:
    """Whether the last line has its line end: a number at an open end may have lost digits."""
    return text.endswith("\n") or not text
