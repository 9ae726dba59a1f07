"""Steal while the CPUs are busy. Usage: steal_probe.py PROCESSES STRETCHES SECONDS

Keeps PROCESSES busy for STRETCHES of SECONDS each and prints JSON: ``stretches``, each with ``ticks`` (all CPU
time that passed on the CPUs this process may use) and ``steal`` (what of it the hypervisor gave to others), in
clock ticks of ``/proc/stat``.
"""

from __future__ import annotations

import json
import os
import sys
import time


def times(cpus: set[int]) -> tuple[int, int]:
    """(all ticks, stolen ticks) of these CPUs since boot."""
    total = stolen = 0
    with open("/proc/stat", encoding="ascii") as lines:
        for line in lines:
            name, *fields = line.split()
            if name[:3] == "cpu" and name[3:].isdigit() and int(name[3:]) in cpus:
                ticks = [int(f) for f in fields[:8]]
                total += sum(ticks)
                stolen += ticks[7]
    return total, stolen


def busy(parent: int, end: float) -> None:
    """Spin until ``end``, or until the parent is gone."""
    while time.monotonic() < end and os.getppid() == parent:
        for _ in range(200_000):
            pass


def main(processes: int, stretches: int, seconds: float) -> None:
    cpus = os.sched_getaffinity(0)
    parent, end = os.getpid(), time.monotonic() + stretches * seconds + 1
    for _ in range(processes):
        if os.fork() == 0:
            busy(parent, end)
            os._exit(0)
    time.sleep(0.5)  # until all of them spin
    edges = [times(cpus)]
    for _ in range(stretches):
        time.sleep(seconds)
        edges.append(times(cpus))
    pairs = zip(edges, edges[1:])
    print(json.dumps({"stretches": [{"ticks": b[0] - a[0], "steal": b[1] - a[1]} for a, b in pairs]}))
    for _ in range(processes):
        os.wait()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
