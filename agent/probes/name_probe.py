"""How long this machine takes to resolve a name. Usage: name_probe.py NAME TIMEOUT_S

Prints JSON: ``ms``, ``addresses``, ``error`` (null where it was resolved), ``name_servers`` (of /etc/resolv.conf).
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from typing import Any


def main(name: str, timeout: float) -> dict[str, Any]:
    found: list[Any] = []

    def ask() -> None:
        try:
            found.append(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            found.append(error)

    begun = time.perf_counter()
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(timeout)
    answer: dict[str, Any] = {"ms": round((time.perf_counter() - begun) * 1e3, 3), "addresses": [], "error": None}
    if not found:
        answer["error"] = f"no answer in {timeout:g} s"
    elif isinstance(found[0], Exception):
        answer["error"] = str(found[0])
    else:
        answer["addresses"] = sorted({row[4][0] for row in found[0]})
    answer["name_servers"] = name_servers()
    return answer


def name_servers() -> list[str]:
    try:
        with open("/etc/resolv.conf", encoding="utf-8", errors="replace") as source:
            rows = [line.split() for line in source]
    except OSError:
        return []
    return [row[1] for row in rows if len(row) > 1 and row[0] == "nameserver"]


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], float(sys.argv[2]))), flush=True)
    os._exit(0)  # the thread may still wait for a name server
