"""NCCL's own log (``NCCL_DEBUG=INFO``): version, rings, whether the switch reduces, how the ranks are connected."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

_VERSION = re.compile(r"NCCL version (\d+(?:\.\d+)+)")
_RING = re.compile(r"NCCL INFO Channel \d+/(\d+) :(?:\s+\d+)+\s*$", re.MULTILINE)
_VIA = re.compile(r"NCCL INFO Channel \d+(?:/\d+)? : .* via ([A-Za-z0-9]+(?:/[A-Za-z]+)*)")
_CHANNELS = re.compile(r"NCCL INFO \d+ coll channels,.*?(\d+) nvls channels")
_SETTING = re.compile(r"NCCL INFO (NCCL_\w+) set by (?:environment|user|plugin) to (\S+?)\.?\s*$", re.MULTILINE)
_WARN = re.compile(r"NCCL WARN (.+)")
OURS = frozenset({"NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS", "NCCL_NVLS_ENABLE"})


@dataclass(frozen=True)
class NcclLog:
    """One rank's log; several communicators leave theirs one after the other, and the last one counts.

    ``rings``: channels of the ring. ``nvls``: whether reduction in the NVSwitch is in use; None where the log does
    not tell. ``transports``: number of connections of each kind (``P2P/CUMEM``, ``SHM/direct``, ``NET/IB``).
    ``settings``: variables that somebody else than this program has set. ``warnings``: each once.
    """

    version: Optional[str]
    rings: Optional[int]
    nvls: Optional[bool]
    transports: Mapping[str, int]
    settings: Mapping[str, str]
    warnings: tuple[str, ...]


def parse(text: str) -> NcclLog:
    """Any text: a log without the lines that are looked for tells nothing, which is no error."""
    version = _VERSION.search(text)
    rings = _RING.findall(text)
    settings = dict(_SETTING.findall(text))
    return NcclLog(
        version=version.group(1) if version else None,
        rings=int(rings[-1]) if rings else None,
        nvls=_nvls(text, settings),
        transports=dict(Counter(_kind(via) for via in _VIA.findall(text))),
        settings={k: v for k, v in settings.items() if k not in OURS},
        warnings=tuple(dict.fromkeys(w.strip() for w in _WARN.findall(text))),
    )


def _kind(via: str) -> str:
    return "/".join(via.split("/")[:2])


def _nvls(text: str, settings: Mapping[str, str]) -> Optional[bool]:
    channels = _CHANNELS.findall(text)
    if channels:
        return int(channels[-1]) > 0
    if settings.get("NCCL_NVLS_ENABLE") == "0" or "NVLS multicast support is not available" in text:
        return False
    return True if "NVLS multicast support is available" in text else None
