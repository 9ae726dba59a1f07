"""What only system calls tell about this host. Usage: host_probe.py [FOLDER_OF_PSUTIL]

Prints JSON: ``uname``, ``affinity`` (CPU numbers), ``limits`` (soft, hard; -1 unlimited), ``clock`` (adjtimex:
``synchronised``, ``max_error_s``, ``now``), ``interfaces`` (addresses, psutil) and ``cores`` (psutil), null
where psutil is not there.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import resource
import socket
import sys
import time
from typing import Any, Optional

TIME_ERROR = 5
STA_UNSYNC = 0x40


def clock() -> Optional[dict[str, Any]]:
    """adjtimex(2) with modes 0 only reads; fields of struct timex as longs: 3 is maxerror, 5 begins with status."""
    timex = (ctypes.c_long * 64)()
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    if state < 0:
        return None
    status = timex[5] & 0xFFFFFFFF
    return {
        "synchronised": state != TIME_ERROR and not status & STA_UNSYNC,
        "max_error_s": timex[3] / 1e6,
        "now": time.time(),
        "timezone": time.strftime("%z"),
    }


def limits() -> dict[str, tuple[int, int]]:
    wanted = {"memlock": resource.RLIMIT_MEMLOCK, "nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}
    return {name: resource.getrlimit(number) for name, number in wanted.items()}


def interfaces(psutil: Any) -> dict[str, list[dict[str, str]]]:
    families = {socket.AF_INET: "ipv4", socket.AF_INET6: "ipv6"}
    return {
        name: [{"family": families[a.family], "address": a.address} for a in found if a.family in families]
        for name, found in psutil.net_if_addrs().items()
    }


def main(folder: str) -> None:
    sys.path.append(folder)
    try:
        psutil: Any = importlib.import_module("psutil")
    except ImportError:
        psutil = None  # said as null in the answer
    answer = {
        "uname": list(os.uname()),
        "affinity": sorted(os.sched_getaffinity(0)),
        "limits": limits(),
        "clock": clock(),
        "interfaces": interfaces(psutil) if psutil else None,
        "cores": psutil.cpu_count(logical=False) if psutil else None,
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
