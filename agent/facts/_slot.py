"""The PCI slot as the key of a GPU, in sysfs's own form ``0000:1b:00.0``."""

from __future__ import annotations

import re
from typing import Optional

_SLOT = re.compile(
    r"(?:GPU|PCI:)?\s*(?:(?P<domain>[0-9a-f]{4,8}):)?(?P<bus>[0-9a-f]{2}):(?P<device>[0-9a-f]{2})(?:\.(?P<function>[0-7]))?",
    re.IGNORECASE,
)


def slot(text: Optional[str]) -> Optional[str]:
    """The slot that a text names, lower case, the domain in four digits unless it is larger; None where it names none.

    Reads what nvidia-smi (``00000000:1B:00.0``, ``GPU0000:A1:00.0``), the kernel log (``PCI:0000:1b:00``), lspci
    (``1b:00.0``) and sysfs print. A missing domain is 0, a missing function 0.
    """
    match = _SLOT.fullmatch((text or "").strip())
    if match is None:
        return None
    domain = int(match["domain"] or "0", 16)
    return f"{domain:04x}:{match['bus']}:{match['device']}.{match['function'] or 0}".lower()


def order(text: str) -> tuple[int, str]:
    """A key that sorts slots by domain, bus, device and function."""
    return len(text), text
