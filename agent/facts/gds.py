"""GPUDirect Storage: the kernel module that lets drives and network file systems read into GPU memory."""

from __future__ import annotations

import re
from dataclasses import dataclass

from agent.facts import Asked
from agent.host import Files, Host
from agent.reading import Known, Missing, Reading
from agent.text import msg

MODULE = "/sys/module/nvidia_fs"
STATS = "/proc/driver/nvidia-fs/stats"


@dataclass(frozen=True)
class GdsFacts:
    """``loaded``: whether nvidia_fs is in the kernel; ``version`` as its statistics name it (``2.7.49``)."""

    loaded: Reading[bool]
    version: Reading[str]


def collect(host: Host, asked: Asked) -> GdsFacts:
    """Reads sysfs and the module's statistics."""
    files = host.read("gds", [STATS, f"{MODULE}/version"], names=["/sys/module", MODULE, STATS])
    return GdsFacts(loaded=_loaded(files), version=_version(files))


def _loaded(files: Files) -> Reading[bool]:
    if not files.recorded:
        return Missing("not-recorded", msg("the recording holds no “{probe}”", probe=files.probe))
    if files.exists(MODULE) or files.exists(STATS):
        return Known(True, files.cited)
    if not files.exists("/sys/module"):
        return Missing("not-there", msg("{path} does not exist", path="/sys/module"), files.cited)
    return Known(False, files.cited)


def _version(files: Files) -> Reading[str]:
    stats = files.text(STATS)
    if isinstance(stats, Missing):
        return files.text(f"{MODULE}/version")
    found = re.search(r"NVFS Driver\(version:\s*(\d+)[:.](\d+)[:.](\d+)\)", stats.value)
    if found is None:
        return Missing("unparsable", msg("{path} names no version", path=STATS), stats.evidence)
    return Known(".".join(found.groups()), stats.evidence)
