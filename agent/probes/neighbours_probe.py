"""What this machine's disks, interfaces, CPUs and processes have done so far. Usage: neighbours_probe.py

Prints one JSON object: ``at_s`` (monotonic clock), ``disks`` (name → bytes read and written, of every device and
partition that counts), ``physical`` (names of the devices that are no partition and made of no other), ``net`` (name
→ bytes received and sent), ``udp_overflow`` (packets that found a program's UDP receive buffer full), ``cpu`` (ticks
stolen, ticks in all), ``agent`` (bytes that the process which started this one, with its ended children, read from
and wrote to storage), ``uid``, and ``processes``: the others whose I/O this user may see, each with pid, start time,
name, uid, whether it is a service of the system, and bytes read and written. What cannot be read is null.
"""

from __future__ import annotations

import json
import os
import re
import time
from typing import Any, Optional

SECTOR = 512  # of /proc/diskstats, whatever the device's own is


def text_of(path: str) -> Optional[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as source:
            return source.read()
    except OSError:
        return None


def disks() -> Optional[dict[str, list[int]]]:
    text = text_of("/proc/diskstats")
    if text is None:
        return None
    rows = [line.split() for line in text.splitlines()]
    found = {row[2]: [int(row[5]) * SECTOR, int(row[9]) * SECTOR] for row in rows if len(row) > 9}
    for name in list(found):
        if not counting(name):
            del found[name]
    return with_paths(found)


def counting(name: str) -> bool:
    """Whether the kernel counts what a device or its partition moves: administrators switch it off for speed."""
    here = f"/sys/class/block/{name}"
    flags = [text_of(f"{here}/queue/iostats"), text_of(f"{here}/../queue/iostats")]
    return not any(flag is not None and flag.strip() == "0" for flag in flags)


def with_paths(found: dict[str, list[int]]) -> dict[str, list[int]]:
    """An NVMe drive with several ports is ``nvme0n1`` over paths such as ``nvme0c0n1``.

    Before Linux 6.4 only the paths counted, and a partition of such a drive counts nothing.
    """
    sums: dict[str, list[int]] = {}
    for name, pair in found.items():
        path = re.match(r"(nvme\d+)c\d+(n\d+)$", name)
        if path is not None:
            before = sums.get(path[1] + path[2], [0, 0])
            sums[path[1] + path[2]] = [before[0] + pair[0], before[1] + pair[1]]
    for name, pair in sums.items():
        own = found.get(name)
        if own is None or not any(own):
            found[name] = pair
            found = {n: p for n, p in found.items() if any(p) or not n.startswith(f"{name}p")}
    return found


def physical() -> list[str]:
    """Whole devices with hardware behind them: loop, device mapper and RAID pass on what these do, and a drive of
    several ports what its hidden paths do.
    """
    try:
        names = os.listdir("/sys/block")
    except OSError:
        return []
    behind = [name for name in names if os.path.exists(f"/sys/block/{name}/device")]
    return sorted(name for name in behind if (text_of(f"/sys/block/{name}/hidden") or "0").strip() == "0")


def net() -> Optional[dict[str, list[int]]]:
    text = text_of("/proc/net/dev")
    if text is None:
        return None
    found = {}
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        numbers = rest.split()
        if colon and len(numbers) > 8:
            found[name.strip()] = [int(numbers[0]), int(numbers[8])]
    return found


def udp_overflow() -> Optional[int]:
    """Of IPv4, whose numbers stand in the second line below their names, and of IPv6."""
    rows = [line.split() for line in (text_of("/proc/net/snmp") or "").splitlines() if line.startswith("Udp:")]
    if len(rows) < 2 or "RcvbufErrors" not in rows[0]:
        return None
    six = re.search(r"^Udp6RcvbufErrors\s+(\d+)", text_of("/proc/net/snmp6") or "", re.MULTILINE)
    return int(rows[1][rows[0].index("RcvbufErrors")]) + (int(six[1]) if six else 0)


def cpu() -> Optional[list[int]]:
    """Guest time, the ninth and tenth number, is part of the first two."""
    numbers = [int(n) for n in (text_of("/proc/stat") or "").partition("\n")[0].split()[1:9]]
    return [numbers[7], sum(numbers)] if len(numbers) == 8 else None


def moved(pid: object) -> Optional[list[int]]:
    """Bytes that a process and its ended children had storage read and write (proc_pid_io(5))."""
    found = dict(re.findall(r"^(\w+): (\d+)$", text_of(f"/proc/{pid}/io") or "", re.MULTILINE))
    if "read_bytes" not in found or "write_bytes" not in found:
        return None
    return [int(found["read_bytes"]), int(found["write_bytes"])]


def processes(agent: int) -> list[list[Any]]:
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) in (agent, os.getpid()):
            continue
        io = moved(entry)
        stat = text_of(f"/proc/{entry}/stat")
        if io is None or not any(io) or stat is None:
            continue
        name, _, fields = stat.partition("(")[2].rpartition(")")
        uid = re.search(r"^Uid:\s+(\d+)", text_of(f"/proc/{entry}/status") or "", re.MULTILINE)
        groups = text_of(f"/proc/{entry}/cgroup") or ""
        rest = fields.split()
        # Threads of the kernel (children of kthreadd) move what others asked for: it is nobody's own work.
        kernel = "2" in (entry, rest[1])
        service = bool(re.search(r"/system\.slice/|/init\.scope", groups)) or entry == "1" or kernel
        started = int(rest[19])
        found.append([int(entry), started, name, int(uid[1]) if uid else None, service, *io])
    return found


def main() -> None:
    agent = os.getppid()
    answer = {
        "at_s": time.monotonic(),
        "disks": disks(),
        "physical": physical(),
        "net": net(),
        "udp_overflow": udp_overflow(),
        "cpu": cpu(),
        "agent": moved(agent),
        "uid": os.getuid(),
        "processes": processes(agent),
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
