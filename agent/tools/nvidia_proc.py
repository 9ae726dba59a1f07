"""``/proc/driver/nvidia``: what the loaded kernel driver says without any library."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Callable, Optional

from agent.reading import Known, Missing, Reading
from agent.text import msg
from agent.tools import ParseError
from agent.tools._nvidia import pci_slot, plain


@dataclass(frozen=True)
class KernelModule:
    """Version of the loaded module, and whether it is the ``open`` or the ``proprietary`` one."""

    version: str
    flavour: str


def version(text: str) -> KernelModule:
    """``/proc/driver/nvidia/version``: ``NVRM version: NVIDIA UNIX [Open Kernel Module for] x86_64 …``."""
    line = next((row for row in text.splitlines() if row.startswith("NVRM version:")), "")
    found = re.search(r"\b(\d{3}(?:\.\d+){1,3})\b", line)
    if found is None:
        raise ParseError("unparsable", "not the version of an NVIDIA kernel module", text.partition("\n")[0])
    return KernelModule(found[1], "open" if "Open Kernel Module" in line else "proprietary")


def information(text: str, evidence: tuple[str, ...] = ()) -> Mapping[str, Reading[Any]]:
    """``/proc/driver/nvidia/gpus/*/information``: name, uuid, vbios, slot, minor, gsp_version, excluded.

    The driver prints question marks for what it has not yet read from the card.
    """
    pairs = (line.partition(":") for line in text.splitlines())
    fields = {key.strip(): value.strip() for key, colon, value in pairs if colon}
    if "Model" not in fields:
        raise ParseError("unparsable", "not the information of an NVIDIA GPU", text.partition("\n")[0])
    return {name: _reading(fields.get(key), convert, key, evidence) for name, (key, convert) in _FIELDS.items()}


def _reading(raw: Optional[str], convert: Callable[[str], Any], key: str, evidence: tuple[str, ...]) -> Reading[Any]:
    text = plain(raw)
    value = convert(text) if text is not None and "??" not in text and text != "Unknown" else None
    if value is None:
        said = msg("the kernel driver does not tell “{field}”", field=key)
        return Missing("unsupported", said, evidence)
    return Known(value, evidence)


_FIELDS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "name": ("Model", str),
    "uuid": ("GPU UUID", str),
    "vbios": ("Video BIOS", str),
    "slot": ("Bus Location", pci_slot),
    "minor": ("Device Minor", lambda text: int(text) if text.isdigit() else None),
    "gsp_version": ("GPU Firmware", str),
    "excluded": ("GPU Excluded", {"Yes": True, "No": False}.get),
}
