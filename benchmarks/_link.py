"""The PCIe link of a GPU while something else loads it, and the CPUs next to it. Standard library only."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import threading
import time

EVERY_S = 0.01
GENERATIONS = {"2.5": 1, "5.0": 2, "5": 2, "8.0": 3, "8": 3, "16.0": 4, "16": 4, "32.0": 5, "32": 5, "64.0": 6, "64": 6}


def read(path):
    with open(path, encoding="ascii", errors="replace") as source:
        return source.read().strip()


def device_folder(sysfs, slot):
    return os.path.join(sysfs, "bus", "pci", "devices", slot)


# ---------------------------------------------------------------- NVML, as little as is needed


class Nvml:
    """libnvidia-ml.so.1 for one GPU; OSError where there is none or it does not know the GPU."""

    def __init__(self, slot):
        self.lib = ctypes.CDLL("libnvidia-ml.so.1")
        self.handle = ctypes.c_void_p()
        self._check("nvmlInit_v2")
        self._check("nvmlDeviceGetHandleByPciBusId_v2", slot.encode("ascii"), ctypes.byref(self.handle))

    def _check(self, name, *arguments):
        function = getattr(self.lib, name, None)
        code = function(*arguments) if function is not None else "not there"
        if code != 0:
            raise OSError("%s: %s" % (name, code))

    def link(self):
        """(generation, width) now."""
        generation, width = ctypes.c_uint(), ctypes.c_uint()
        self._check("nvmlDeviceGetCurrPcieLinkGeneration", self.handle, ctypes.byref(generation))
        self._check("nvmlDeviceGetCurrPcieLinkWidth", self.handle, ctypes.byref(width))
        if not generation.value or not width.value:
            raise OSError("NVML tells no link: %dx%d" % (generation.value, width.value))
        return generation.value, width.value

    def used(self):
        """Bytes of memory in use, what the driver reserves among them."""
        numbers = (ctypes.c_ulonglong * 3)()  # total, free, used
        self._check("nvmlDeviceGetMemoryInfo", self.handle, numbers)
        return numbers[2]


def used_before(slot):
    """Bytes in use before any context of ours; None where NVML cannot tell."""
    with contextlib.suppress(OSError):
        return Nvml(slot).used()
    return None


# ---------------------------------------------------------------- link under load


def sysfs_link(sysfs, slot):
    """(generation, width) of the card's own link status register; OSError where the kernel does not tell."""
    folder = device_folder(sysfs, slot)
    speed = read(os.path.join(folder, "current_link_speed"))
    width = read(os.path.join(folder, "current_link_width"))
    found = re.match(r"([0-9.]+) GT/s", speed)
    if found is None or found.group(1) not in GENERATIONS or not width.isdigit() or int(width) == 0:
        raise OSError("link of %s: %r x%r" % (slot, speed, width))
    return GENERATIONS[found.group(1)], int(width)


class Link:
    """The sources that can tell the link of one GPU."""

    def __init__(self, slot, sysfs):
        self.asks = {"sysfs": lambda: sysfs_link(sysfs, slot)}
        self.errors = {}
        try:
            self.asks["nvml"] = Nvml(slot).link
        except OSError as error:
            self.errors["nvml"] = str(error)


class Sampler:
    """Reads a link every 10 ms between ``with`` and its end, from each source in a thread of its own.

    ``answer()``: ``{"sysfs": {"samples": n, "links": {"5x16": n}, "error"}, "nvml": …}``.
    """

    def __init__(self, link):
        self.link = link
        self.errors = dict(link.errors)
        self.seen = {name: {} for name in ("sysfs", "nvml")}
        self.lock = threading.Lock()

    def __enter__(self):
        self.stopping = threading.Event()
        self.threads = [threading.Thread(target=self._watch, args=(name,), daemon=True) for name in self.link.asks]
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        for thread in self.threads:
            thread.join(1.0)  # a source that hangs is left behind

    def _watch(self, name):
        due = time.monotonic()
        while not self.stopping.is_set():
            try:
                link = "%dx%d" % self.link.asks[name]()
            except OSError as error:
                self.errors[name] = str(error)
                return
            if self.stopping.is_set():
                return  # read when the load was over
            with self.lock:
                self.seen[name][link] = self.seen[name].get(link, 0) + 1
            due = max(due + EVERY_S, time.monotonic())
            self.stopping.wait(max(0.0, due - time.monotonic()))

    def answer(self):
        with self.lock:
            return {
                name: {"samples": sum(links.values()), "links": dict(links), "error": self.errors.get(name)}
                for name, links in self.seen.items()
            }


# ---------------------------------------------------------------- CPUs


def cpu_list(text):
    """``0-3,8`` gives {0, 1, 2, 3, 8}."""
    found = set()
    for part in filter(None, text.split(",")):
        low, _, high = part.partition("-")
        found.update(range(int(low), int(high or low) + 1))
    return found


@contextlib.contextmanager
def near(slot, sysfs):
    """Keep this thread on the CPUs of the GPU's own memory node, among those it may use.

    Host memory allocated meanwhile lies there too: a copy through the other socket is another measurement. Gives the
    CPUs, or None where the kernel does not tell or none of them is ours.
    """
    before = os.sched_getaffinity(0)
    try:
        mine = before & cpu_list(read(os.path.join(device_folder(sysfs, slot), "local_cpulist")))
    except (OSError, ValueError):
        mine = set()
    if mine:
        os.sched_setaffinity(0, mine)
    try:
        yield sorted(mine) or None
    finally:
        os.sched_setaffinity(0, before)
