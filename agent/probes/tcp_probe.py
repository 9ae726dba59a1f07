"""Times of TCP handshakes. Usage: tcp_probe.py HOST PORT COUNT INTERVAL_S TIMEOUT_S

Prints JSON: ``address`` (the one address used throughout), ``times_ms`` of the handshakes that were answered,
``refused`` (how many of those by a reset), ``failed`` (no answer), ``error`` (the last failure, or why the name
has no address).
"""

from __future__ import annotations

import errno
import json
import socket
import sys
import time


def main(host: str, port: int, count: int, interval: float, timeout: float) -> None:
    answer: dict[str, object] = {"address": None, "times_ms": [], "refused": 0, "failed": 0, "error": None}
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        answer.update(failed=count, error=f"name: {error}")
        print(json.dumps(answer))
        return
    times: list[float] = []
    refused = failed = 0
    for number in range(count):
        if number:
            time.sleep(interval)
        with socket.socket(family, kind, protocol) as connection:
            connection.settimeout(timeout)
            begun = time.perf_counter()
            try:
                connection.connect(address)
            except OSError as error:
                if error.errno != errno.ECONNREFUSED:
                    failed += 1
                    answer["error"] = str(error)
                    continue
                refused += 1
            times.append((time.perf_counter() - begun) * 1e3)
    answer.update(address=address[0], times_ms=times, refused=refused, failed=failed)
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), float(sys.argv[5]))
