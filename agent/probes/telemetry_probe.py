"""Samples of all GPUs and of the host beside a load, until TERM. Changes nothing and creates no CUDA context.

Usage: telemetry_probe.py FOLDER_OF_PYNVML [SECONDS | ticks [ROOT]]

With ``ticks`` it samples when it is asked: see :func:`answer_ticks`. Otherwise it keeps its own
rhythm and prints JSON lines; ``t`` is seconds since the header's ``started_at``, cards are in NVML's order, null is a
value that the card refused. Clocks and clock event reasons ten times a second, the rest once a second:

- ``{"telemetry": 1, "started_at", "interval_s", "gpus": [{"uuid", "slot", "clock_sm_max_mhz", "power_enforced_w",
  "power_default_w"}] | {"error": "NVML_ERROR_…"}, "cpus"}``; a card of which no faults can be heard through NVML's
  events has ``no_events``, the reason;
- ``{"t", "f": [[sm_mhz, reasons]], "late": ms}``: ``late`` only where the sample came more than 20 ms after its slot;
- ``{"t", "s": [[power_w, temperature_c, memory_temperature_c, mem_mhz, utilization_percent, memory_used_mib]]}``;
- ``{"t", "h": {"cpu", "own", "steal" (percent of all CPUs), "available_mib", "disk_read", "disk_written", "received",
  "sent" (MB/s)}}``: ``own`` is our own process session's share, that is the load itself;
- ``{"t", "c": [[ecc_uncorrected, ecc_corrected, remapped_uncorrectable, remapped_pending, remapped_failure,
  pcie_replay, power_ns, thermal_ns, board_ns, reliability_ns]]}``: first, every ten seconds and last. The last four
  are the driver's own counts of how long clocks were held down;
- ``{"t", "x": [[gpu, xid]]}``: faults that the driver reported;
- ``{"t", "done": true}`` last.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from functools import partial
from typing import Any, Optional

SLOT_S = 0.1
SLOW_EVERY = 10  # slots
COUNT_EVERY = 100
FIND_OWN_EVERY = 50
LATE_MS = 20.0
MIB = 1 << 20
SM, MEMORY_CLOCK = 1, 2
FIELD_MEMORY_TEMPERATURE = 82
POLICIES = (0, 1, 3, 5)  # power, thermal, board limit, reliability (nvmlPerfPolicyType_t)
XID_EVENT = 0x8
SECTOR = 512
ALL_LINKS = 0xFFFFFFFF
# NVML_FI_DEV_NVLINK_…: data sent and received (KiB); CRC flit, CRC data, replay and recovery errors, all links in one
FIELDS_NVLINK = ((138, ALL_LINKS), (139, ALL_LINKS), (38, 0), (45, 0), (52, 0), (59, 0))
SEND, RECEIVE = 0, 1  # nvmlPcieUtilCounter_t
SLOWDOWN = 1  # nvmlTemperatureThresholds_t
LOG_LINES = ("NVRM: Xid", "SXid", "fallen off the bus")

stopping = False


def stop(*_: Any) -> None:
    """TERM: the sample that is being taken is finished first."""
    global stopping
    stopping = True


def say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line, separators=(",", ":")) + "\n")
    sys.stdout.flush()


# ---------------------------------------------------------------- GPUs


class Gpus:
    """All that NVML opens; nothing where it cannot be used."""

    def __init__(self, folder: str) -> None:
        self.handles: list[Any] = []
        self.error: Optional[str] = None
        self.refused: set[tuple[int, str]] = set()
        self.events: Any = None
        sys.path.insert(0, folder)
        try:
            self.nvml: Any = importlib.import_module("pynvml")
        except ImportError as error:
            self.error = f"no pynvml: {error}"
            return
        try:
            self.nvml.nvmlInit()
            count = self.nvml.nvmlDeviceGetCount()
        except self.nvml.NVMLError as error:
            self.error = str(error)
            return
        self.handles = [self._opened(i) for i in range(count)]
        self._listen()

    def _opened(self, index: int) -> Any:
        try:
            return self.nvml.nvmlDeviceGetHandleByIndex(index)
        except self.nvml.NVMLError:
            return None

    def _listen(self) -> None:
        """For faults, of each card that lets itself be listened to; why the others do not is kept."""
        self.deaf: dict[int, str] = {}
        try:
            self.events = self.nvml.nvmlEventSetCreate()
        except (self.nvml.NVMLError, AttributeError) as error:
            self.deaf = dict.fromkeys(range(len(self.handles)), str(error))
            return
        for index, handle in enumerate(self.handles):
            if handle is None:
                continue
            try:
                self.nvml.nvmlDeviceRegisterEvents(handle, XID_EVENT, self.events)
            except (self.nvml.NVMLError, AttributeError) as error:
                self.deaf[index] = str(error)
        if len(self.deaf) >= sum(handle is not None for handle in self.handles):
            self.events = None

    def ask(self, index: int, name: str, call: Callable[[Any], Any]) -> Any:
        """The card's answer; null where it refuses. A call that it does not have is not made again."""
        handle = self.handles[index]
        if handle is None or (index, name) in self.refused:
            return None
        try:
            return call(handle)
        except (self.nvml.NVMLError, AttributeError) as error:
            never = (self.nvml.NVML_ERROR_NOT_SUPPORTED, self.nvml.NVML_ERROR_FUNCTION_NOT_FOUND)
            if getattr(error, "value", never[0]) in never:
                self.refused.add((index, name))
            return None

    def each(self, **calls: Callable[[Any], Any]) -> list[list[Any]]:
        """One row a card, in the order of the calls."""
        return [[self.ask(i, name, call) for name, call in calls.items()] for i in range(len(self.handles))]

    def header(self) -> Any:
        if self.error is not None:
            return {"error": self.error}
        n = self.nvml
        rows = self.each(
            uuid=lambda h: text(n.nvmlDeviceGetUUID(h)),
            slot=lambda h: sysfs_slot(text(n.nvmlDeviceGetPciInfo(h).busId)),
            clock_sm_max_mhz=lambda h: n.nvmlDeviceGetMaxClockInfo(h, SM),
            power_enforced_w=lambda h: n.nvmlDeviceGetEnforcedPowerLimit(h) / 1000,
            power_default_w=lambda h: n.nvmlDeviceGetPowerManagementDefaultLimit(h) / 1000,
        )
        names = ("uuid", "slot", "clock_sm_max_mhz", "power_enforced_w", "power_default_w")
        cards: list[dict[str, Any]] = [dict(zip(names, row)) for row in rows]
        for index, why in self.deaf.items():
            cards[index]["no_events"] = why
        return cards

    def described(self) -> Any:
        """The header's cards with what a person wants to see of them."""
        found = self.header()
        if isinstance(found, dict):
            return found
        n = self.nvml
        rows = self.each(
            name=lambda h: text(n.nvmlDeviceGetName(h)),
            memory=lambda h: n.nvmlDeviceGetMemoryInfo(h).total // MIB,
            slowdown=lambda h: n.nvmlDeviceGetTemperatureThreshold(h, SLOWDOWN),
        )
        names = ("name", "memory_total_mib", "slowdown_c")
        return [{**one, **dict(zip(names, row))} for one, row in zip(found, rows)]

    def traffic(self) -> list[list[Any]]:
        """PCIe in kB/s over the last 20 ms, what went over NVLink so far in KiB, NVLink's error counts."""
        n = self.nvml
        rows = self.each(
            memory=lambda h: n.nvmlDeviceGetUtilizationRates(h).memory,
            sent=lambda h: n.nvmlDeviceGetPcieThroughput(h, SEND),
            received=lambda h: n.nvmlDeviceGetPcieThroughput(h, RECEIVE),
            links=self._links,
        )
        return [[*rest, *(links or [None] * len(FIELDS_NVLINK))] for *rest, links in rows]

    def _links(self, handle: Any) -> list[Optional[int]]:
        found = self.nvml.nvmlDeviceGetFieldValues(handle, list(FIELDS_NVLINK))
        answered = [f.nvmlReturn == self.nvml.NVML_SUCCESS for f in found]
        if not any(answered):
            raise self.nvml.NVMLError(self.nvml.NVML_ERROR_NOT_SUPPORTED)
        return [int(f.value.ullVal) if good else None for f, good in zip(found, answered)]

    def fast(self) -> list[list[Any]]:
        n = self.nvml
        return self.each(clock=lambda h: n.nvmlDeviceGetClockInfo(h, SM), reasons=self._reasons)

    def _reasons(self, handle: Any) -> int:
        """The newer name, then the older: drivers before 535 have only that."""
        try:
            return int(self.nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
        except (self.nvml.NVMLError, AttributeError) as error:
            missing = self.nvml.NVML_ERROR_FUNCTION_NOT_FOUND
            if getattr(error, "value", missing) != missing:
                raise
            return int(self.nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))

    def slow(self) -> list[list[Any]]:
        n = self.nvml
        return self.each(
            power=lambda h: n.nvmlDeviceGetPowerUsage(h) / 1000,
            temperature=lambda h: n.nvmlDeviceGetTemperature(h, 0),
            memory_temperature=self._memory_temperature,
            memory_clock=lambda h: n.nvmlDeviceGetClockInfo(h, MEMORY_CLOCK),
            utilization=lambda h: n.nvmlDeviceGetUtilizationRates(h).gpu,
            memory_used=lambda h: n.nvmlDeviceGetMemoryInfo(h).used // MIB,
        )

    def _memory_temperature(self, handle: Any) -> int:
        found = self.nvml.nvmlDeviceGetFieldValues(handle, [FIELD_MEMORY_TEMPERATURE])[0]
        if found.nvmlReturn != self.nvml.NVML_SUCCESS:
            raise self.nvml.NVMLError(found.nvmlReturn)
        return int(found.value.uiVal)

    def counters(self) -> list[list[Any]]:
        n = self.nvml
        rows = self.each(
            ecc_uncorrected=lambda h: n.nvmlDeviceGetTotalEccErrors(h, 1, 0),
            ecc_corrected=lambda h: n.nvmlDeviceGetTotalEccErrors(h, 0, 0),
            remapped=lambda h: list(n.nvmlDeviceGetRemappedRows(h)),
            replay=lambda h: n.nvmlDeviceGetPcieReplayCounter(h),
            **{
                f"violation{p}": partial(lambda policy, h: n.nvmlDeviceGetViolationStatus(h, policy).violationTime, p)
                for p in POLICIES
            },
        )
        return [[u, c, *(remapped[1:] if remapped else [None] * 3), *rest] for u, c, remapped, *rest in rows]

    def faults(self) -> list[list[int]]:
        """Faults since the last time, without waiting."""
        found: list[list[int]] = []
        while self.events is not None:
            try:
                event = self.nvml.nvmlEventSetWait_v2(self.events, 0)
            except (self.nvml.NVMLError, AttributeError) as error:
                if getattr(error, "value", None) != self.nvml.NVML_ERROR_TIMEOUT:
                    self.events = None
                break
            found.append([self._number(event.device), int(event.eventData)])
        return found

    def _number(self, device: Any) -> int:
        return int(self.nvml.nvmlDeviceGetIndex(device))


def sysfs_slot(slot: str) -> str:
    """NVML's ``00000000:1B:00.0`` as ``0000:1b:00.0``."""
    short = slot[4:] if len(slot) == 16 and slot.startswith("0000") else slot
    return short.lower()


def text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


# ---------------------------------------------------------------- the host


class Host:
    """Rates between two readings of /proc. What belongs to our own process session is the load itself."""

    def __init__(self, root: str = "") -> None:
        self.root = root
        self.session = os.getsid(0)
        self.ticks = os.sysconf("SC_CLK_TCK")
        self.own: list[int] = []
        self.find_own()
        self.before = self._read()

    def find_own(self) -> None:
        """Processes of our own process session: read now and then, for a big host has thousands."""
        self.own = [pid for pid in pids() if self._field(pid, 3) == self.session]

    def _field(self, pid: int, place: int) -> Optional[int]:
        fields = stat(pid)
        return int(fields[place]) if fields else None

    def _read(self) -> dict[str, float]:
        cpu = [int(n) for n in first_line(f"{self.root}/proc/stat").split()[1:9]]
        own = sum(int(f[11]) + int(f[12]) for f in map(stat, self.own) if f)
        disks = [line.split() for line in lines(f"{self.root}/proc/diskstats")]
        # Whole disks only: a partition's sectors are its disk's.
        whole = [
            d
            for d in disks
            if os.path.isdir(f"{self.root}/sys/block/{d[2]}") and not d[2].startswith(("loop", "ram", "dm-"))
        ]
        ports = [line.partition(":") for line in lines(f"{self.root}/proc/net/dev")[2:]]
        net = [values.split() for name, _, values in ports if name.strip() != "lo"]
        self.disk_ms: dict[str, int] = {d[2]: int(d[12]) for d in whole if len(d) > 12}
        self.net_bytes = {n.strip(): (int(v.split()[0]), int(v.split()[8])) for n, _, v in ports if n.strip() != "lo"}
        return {
            "at": time.monotonic(),
            "total": sum(cpu),
            "idle": cpu[3] + cpu[4],
            "iowait": cpu[4],
            "steal": cpu[7],
            "own": own,
            "disk_read": SECTOR * sum(int(d[5]) for d in whole),
            "disk_written": SECTOR * sum(int(d[9]) for d in whole),
            "received": sum(int(n[0]) for n in net),
            "sent": sum(int(n[8]) for n in net),
        }

    def rates(self, seconds: Optional[float] = None) -> dict[str, Any]:
        """Since the last call; ``seconds`` have passed, by the monotonic clock where they are not given."""
        now, before = self._read(), self.before
        self.before = now
        seconds = max(now["at"] - before["at"], 1e-3) if seconds is None else seconds
        ticks = max(now["total"] - before["total"], 1.0)

        def percent(value: float) -> float:
            return round(100 * max(0.0, value) / ticks, 2)

        found: dict[str, Any] = {
            "cpu": percent(ticks - (now["idle"] - before["idle"])),
            "own": percent(now["own"] - before["own"]),
            "steal": percent(now["steal"] - before["steal"]),
            "available_mib": available_mib(self.root),
        }
        for name in ("disk_read", "disk_written", "received", "sent"):
            found[name] = round(max(0.0, now[name] - before[name]) / seconds / 1e6, 3)
        self.waited = percent(now["iowait"] - before["iowait"])
        return found

    def busiest(self, seconds: float) -> dict[str, Any]:
        """:meth:`rates` and what was busy: the disk with the most time at work, the port nearest to its line rate."""
        disks, ports = self.disk_ms, self.net_bytes
        rates = self.rates(seconds)
        busy = [(100 * (ms - disks[n]) / 1000 / seconds, n) for n, ms in self.disk_ms.items() if n in disks]
        shares = []
        for name, (received, sent) in self.net_bytes.items():
            speed = self._speed(name)
            if speed is not None and name in ports:
                most = max(received - ports[name][0], sent - ports[name][1])
                shares.append((100 * most * 8 / 1e6 / speed / seconds, name))
        return {
            "h": rates,
            "iowait": self.waited,
            "disk": most_of(busy),
            "port": most_of(shares),
        }

    def _speed(self, name: str) -> Optional[int]:
        """Mbit/s; None for a port that states none (virtual ones say -1 or nothing)."""
        said = first_line(f"{self.root}/sys/class/net/{name}/speed")
        return int(said) if said.isdigit() and int(said) > 0 else None


def most_of(found: list[tuple[float, str]]) -> Optional[list[Any]]:
    """[name, percent] of the greatest; null where there is none."""
    if not found:
        return None
    percent, name = max(found)
    return [name, round(min(max(percent, 0.0), 100.0), 1)]


class KernelLog:
    """Messages about GPUs from /dev/kmsg that come from now on; ``open`` is false where it may not be read.

    ``after``: also those behind the message of that number, which came while nobody read. ``at``: the last one read.
    """

    def __init__(self, root: str, after: Optional[int] = None) -> None:
        self.rest = b""
        self.at: Optional[int] = None
        self.missed: list[str] = []
        try:
            self.file: Optional[int] = os.open(f"{root}/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            self.file = None
        old = self.new()
        if after is not None:
            self.missed = [line for line in old if (number_of(line) or 0) > after]

    @property
    def open(self) -> bool:
        return self.file is not None

    def new(self) -> list[str]:
        """Whole lines that came since the last time."""
        while self.file is not None:
            try:
                record = os.read(self.file, 8192)
            except BlockingIOError:
                break
            except BrokenPipeError:  # the oldest were overwritten; reading goes on behind them
                continue
            except OSError:
                self.file = None
                break
            if not record:
                break
            self.rest += record
        whole, _, self.rest = self.rest.rpartition(b"\n")
        said = whole.decode("utf-8", "replace").split("\n")
        self.at = next((n for n in map(number_of, reversed(said)) if n is not None), self.at)
        missed, self.missed = self.missed, []
        return [*missed, *(line for line in said if any(mark in line for mark in LOG_LINES))]


def number_of(line: str) -> Optional[int]:
    """The second field of ``priority,number,microseconds,flags;text``; None for a line that goes on with another."""
    fields = line.partition(";")[0].split(",")
    return int(fields[1]) if len(fields) > 2 and fields[1].isdigit() else None


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on; empty where the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as source:
            return source.read().rpartition(")")[2].split()
    except OSError:
        return []


def lines(path: str) -> list[str]:
    try:
        with open(path, encoding="ascii", errors="replace") as source:
            return source.read().splitlines()
    except OSError:
        return []


def first_line(path: str) -> str:
    return (lines(path) or [""])[0]


def available_mib(root: str = "") -> Optional[int]:
    found = next((line for line in lines(f"{root}/proc/meminfo") if line.startswith("MemAvailable:")), None)
    return int(found.split()[1]) >> 10 if found else None


# ---------------------------------------------------------------- the rhythm


def main(folder: str, seconds: float) -> None:
    signal.signal(signal.SIGTERM, stop)
    parent = os.getppid()
    gpus, host = Gpus(folder), Host()
    start = time.monotonic()
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    say({"telemetry": 1, "started_at": now, "interval_s": SLOT_S, "gpus": gpus.header(), "cpus": os.cpu_count()})
    slot = 0
    while not stopping and slot * SLOT_S < seconds and os.getppid() == parent:
        wait(start + slot * SLOT_S)
        one_slot(gpus, host, start, slot)
        # A slot that has passed meanwhile is left out, not taken late.
        slot = max(slot + 1, int((time.monotonic() - start) / SLOT_S) + 1)
    if gpus.handles:
        say({"t": since(start), "c": gpus.counters()})
        report_faults(gpus, start)
    say({"t": since(start), "done": True})


def answer_ticks(folder: str, root: str, after: Optional[int] = None) -> None:
    """One line out for each line in, until stdin ends: the asker keeps the clock.

    First ``{"watch": 1, "gpus": [{…header, "name", "memory_total_mib", "slowdown_c"}] | {"error"}, "cpus",
    "kernel_log", "log_at", "events"}``. A line in is seconds since the line before it (of the first, since the start);
    the answer is one object with ``f``, ``s``, ``c``, ``h`` and ``x`` as above, ``w`` (memory utilization, PCIe sent
    and received in kB/s, NVLink sent and received in KiB so far, CRC flit, CRC data, replay and recovery errors),
    ``iowait`` (percent), ``disk`` and ``port`` ([name, percent busy]), ``k`` (lines of the kernel log about GPUs),
    ``log_at`` (number of the log's last message). ``after`` is that number of a child before this one.
    """
    log = KernelLog(root, after)  # first: the driver may take its time, and messages come meanwhile
    gpus, host = Gpus(folder), Host(root)
    say(
        {
            "watch": 1,
            "gpus": gpus.described(),
            "cpus": os.cpu_count(),
            "kernel_log": log.open,
            "log_at": log.at,
            "events": gpus.events is not None,
        }
    )
    for line in sys.stdin:
        found = host.busiest(max(float(line), 1e-3))
        if gpus.handles:
            found.update(f=gpus.fast(), s=gpus.slow(), w=gpus.traffic(), c=gpus.counters())
            # The kernel log holds every Xid, the events only the critical ones: never both.
            found["x"] = [] if log.open else gpus.faults()
        found["k"] = log.new()
        found["log_at"] = log.at
        say(found)


def wait(until: float) -> None:
    left = until - time.monotonic()
    if left > 0 and not stopping:
        time.sleep(left)


def since(start: float) -> float:
    return round(time.monotonic() - start, 4)


def one_slot(gpus: Gpus, host: Host, start: float, slot: int) -> None:
    t = since(start)
    if gpus.handles:
        late = round(1000 * (t - slot * SLOT_S), 1)
        say({"t": t, "f": gpus.fast(), **({"late": late} if late > LATE_MS else {})})
    if slot % SLOW_EVERY == 0:
        if gpus.handles:
            say({"t": t, "s": gpus.slow()})
            report_faults(gpus, start)
        say({"t": t, "h": host.rates()})
    if slot % COUNT_EVERY == 0 and gpus.handles:
        say({"t": t, "c": gpus.counters()})
    if slot % FIND_OWN_EVERY == 0:
        host.find_own()


def report_faults(gpus: Gpus, start: float) -> None:
    faults = gpus.faults()
    if faults:
        say({"t": since(start), "x": faults})


def arguments(argv: Iterable[str]) -> tuple[str, float]:
    folder, *limit = argv
    return folder, float(limit[0]) if limit else float("inf")


if __name__ == "__main__":
    if sys.argv[2:3] == ["ticks"]:
        answer_ticks(
            sys.argv[1],
            sys.argv[3].rstrip("/") if len(sys.argv) > 3 else "",
            int(sys.argv[4]) if len(sys.argv) > 4 else None,
        )
    else:
        main(*arguments(sys.argv[1:]))
    os._exit(0)  # nvmlShutdown may hang on a lost GPU
