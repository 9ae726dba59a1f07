"""Copies between host and device, inside a device and between devices. See ``device_memory.py``."""

from __future__ import annotations

import ctypes
import threading
import time

import _cuda as cuda
import _link as links
import _pattern as pattern
import _protocol as protocol

WINDOW = 1 << 20  # of the text that copies carry
WAKE_S = 0.1  # an idle link slows down; it takes its time to wake
INSIDE = 0.25  # of the time goes into copies inside the card: they are many times as fast

# ---------------------------------------------------------------- copies between host and device


def copy(driver, found, request, clock):
    """Each GPU alone, block by block in turn; then all at once."""
    size = protocol.asked(request, "bytes", int) // WINDOW * WINDOW
    sysfs = protocol.asked(request, "sysfs", str)
    hang_s = protocol.asked(request, "hang_s", float)
    empty = {"cpus": None, "together": None, "error": None}
    results = {d["index"]: {"index": d["index"], "blocks": [], **empty} for d in found}
    copiers = {}
    for device in found:
        with cuda.recorded(results[device["index"]]):
            copier = cuda.bounded(lambda d=device: Copier(driver, d, size, sysfs, copiers), hang_s)
            copiers[device["index"]] = copier
            results[device["index"]]["cpus"] = copier.cpus

    def one(index, _):
        if results[index]["error"] is None:
            with cuda.recorded(results[index]):
                results[index]["blocks"].append(cuda.bounded(lambda: copiers[index].block(request), hang_s))

    stopped = protocol.interleaved(
        [d["index"] for d in found],
        protocol.asked(request, "blocks", int),
        protocol.asked(request, "pause_s", float),
        clock,
        one,
    )
    seconds = protocol.asked(request, "together_s", float)
    whole = [c for i, c in copiers.items() if results[i]["error"] is None]
    if stopped is None and seconds > 0 and len(whole) > 1:
        for index, rate in together(whole, seconds, hang_s).items():
            results[index]["together"] = rate
    return {"bytes": size, "copies": list(results.values()), "stopped": stopped}


class Copier:
    """One GPU with its buffers. The text is the first one's; ``others`` are those before it."""

    def __init__(self, driver, device, size, sysfs, others):
        self.size = size
        self.sysfs = sysfs
        self.gpu = cuda.Gpu(driver, device)
        self.link = links.Link(self.gpu.slot, sysfs)
        first = next(iter(others.values()), None)
        self.text = first.text if first else pattern.Windows(self.gpu, WINDOW, size // WINDOW, 1)
        with links.near(self.gpu.slot, sysfs) as self.cpus:
            self.host = self.gpu.pin(size)
            ctypes.memset(self.host, 0, size)
        self.memory, self.second = self.gpu.allocate(size), self.gpu.allocate(size)

    def h2d(self):
        self.gpu.driver.call("cuMemcpyHtoDAsync_v2", self.memory, self.host, self.size, self.gpu.stream)

    def d2h(self):
        self.gpu.driver.call("cuMemcpyDtoHAsync_v2", self.host, self.memory, self.size, self.gpu.stream)

    def d2d(self):
        self.gpu.driver.call("cuMemcpyDtoDAsync_v2", self.second, self.memory, self.size, self.gpu.stream)

    def block(self, request):
        """All three ways; what arrives is compared with what was sent."""
        self.gpu.use()
        with links.near(self.gpu.slot, self.sysfs):
            self.text.fill(0, self.host, self.size)
            found = {"h2d": self.timed(self.h2d, request)}
            self.gpu.fill(self.second, 0, self.size)
            ctypes.memset(self.host, 0, self.size)
            found["d2h"] = self.timed(self.d2h, request)
            wrong = self.text.compare_all(0, self.host, self.size).wrong_bytes
            warmup_s, samples, sample_s = effort(request)
            short = (INSIDE * warmup_s, samples, INSIDE * sample_s)
            found["d2d"] = rates(protocol.timed_block(self.d2d, self.gpu.wait, *short), self.size)
            ctypes.memset(self.host, 0, self.size)
            self.gpu.read(self.host, self.second, self.size)
            wrong += self.text.compare_all(0, self.host, self.size).wrong_bytes
        return dict(found, wrong_bytes=wrong)

    def timed(self, call, request):
        """A block with the link watched; the link is awake before the first look at it."""
        self.run_for(call, WAKE_S)
        with links.Sampler(self.link) as sampler:
            block = protocol.timed_block(call, self.gpu.wait, *effort(request))
        return dict(rates(block, self.size), link=sampler.answer())

    def run_for(self, call, seconds):
        """GB/s of copies one after the other for so long."""
        begun = time.perf_counter()
        copies = 0
        while True:
            call()
            self.gpu.wait()
            copies += 1
            taken = time.perf_counter() - begun
            if taken >= seconds:
                return copies * self.size / taken / 1e9


def effort(request):
    return (
        protocol.asked(request, "warmup_s", float),
        protocol.asked(request, "samples", int),
        protocol.asked(request, "sample_s", float),
    )


def rates(block, size):
    """A timed block in GB/s."""
    return {
        "samples": [size / s / 1e9 for s in block["seconds"]],
        "warmup": [size / s / 1e9 for s in block["warmup_s"]],
        "calls": block["calls"],
        "started_at": block["started_at"],
        "ended_at": block["ended_at"],
    }


def together(copiers, seconds, hang_s):
    """Both ways, each on all GPUs for the same time: ``{"h2d", "d2h"}`` in GB/s by index; nothing where one fails."""
    barrier = threading.Barrier(len(copiers), timeout=hang_s)
    rate = {c.gpu.index: {} for c in copiers}

    def run(copier):
        try:
            for name, call in (("h2d", copier.h2d), ("d2h", copier.d2h)):
                with links.near(copier.gpu.slot, copier.sysfs):
                    copier.gpu.use()
                    copier.run_for(call, WAKE_S)
                    barrier.wait()
                    rate[copier.gpu.index][name] = copier.run_for(call, seconds)
        except (protocol.Unable, threading.BrokenBarrierError):
            barrier.abort()

    cuda.in_time([lambda c=c: run(c) for c in copiers], 2 * (WAKE_S + seconds + hang_s))
    whole = all(len(found) == 2 for found in rate.values())
    return {index: dict(found) for index, found in rate.items()} if whole else {}


# ---------------------------------------------------------------- copies between devices


def peer(driver, found, request, clock):
    """Each pair by itself, block by block in turn; what arrives is read back and compared each time."""
    size = protocol.asked(request, "bytes", int) // WINDOW * WINDOW
    hang_s = protocol.asked(request, "hang_s", float)
    by_slot = {d["slot"]: d for d in found}
    wanted = [p for p in protocol.asked(request, "pairs", list) if p[0] in by_slot and p[1] in by_slot]
    ends = {}
    lost = {d["index"]: {"error": None} for d in found}
    for device in found:
        with cuda.recorded(lost[device["index"]]):
            ends[device["index"]] = cuda.bounded(lambda d=device: End(driver, d, size, ends), hang_s)
    results = []
    for source, target in wanted:
        one, other = by_slot[source]["index"], by_slot[target]["index"]
        error = lost[one]["error"] or lost[other]["error"]
        results.append({"from": one, "to": other, "access": None, "blocks": [], "error": error})

    def block(number, _):
        result = results[number]
        if result["error"] is None:
            one, other = ends[result["from"]], ends[result["to"]]
            with cuda.recorded(result):
                if result["access"] is None:
                    result["access"] = cuda.bounded(lambda: one.reach(other), hang_s)
                result["blocks"].append(cuda.bounded(lambda: one.block(other, request), hang_s))

    stopped = protocol.interleaved(
        list(range(len(results))),
        protocol.asked(request, "blocks", int),
        protocol.asked(request, "pause_s", float),
        clock,
        block,
    )
    return {"bytes": size, "pairs": results, "stopped": stopped}


class End:
    """One GPU with what it sends and where it receives."""

    def __init__(self, driver, device, size, others):
        self.size = size
        self.gpu = cuda.Gpu(driver, device)
        first = next(iter(others.values()), None)
        self.text = first.text if first else pattern.Windows(self.gpu, WINDOW, size // WINDOW, 1)
        self.host = first.host if first else self.gpu.pin(size)
        self.text.fill(0, self.host, size)
        self.sent, self.received = self.gpu.allocate(size), self.gpu.allocate(size)
        self.gpu.write(self.sent, self.host, size)

    def reach(self, other):
        """Whether copies go straight to ``other``; if not, the driver takes them through host memory."""
        can = self.gpu.driver.ask(ctypes.c_int, "cuDeviceCanAccessPeer", self.gpu.device, other.gpu.device)
        if not can:
            return False
        for here, there in ((self, other), (other, self)):
            here.gpu.use()
            self.gpu.driver.call(
                "cuCtxEnablePeerAccess", there.gpu.context, 0, allow=(cuda.PEER_ACCESS_ALREADY_ENABLED,)
            )
        return True

    def block(self, other, request):
        other.gpu.use()
        other.gpu.fill(other.received, 0, self.size)
        self.gpu.use()
        block = rates(protocol.timed_block(lambda: self.send(other), self.gpu.wait, *effort(request)), self.size)
        other.gpu.use()
        ctypes.memset(self.host, 0, self.size)
        other.gpu.read(self.host, other.received, self.size)
        return dict(block, wrong_bytes=self.text.compare_all(0, self.host, self.size).wrong_bytes)

    def send(self, other):
        self.gpu.driver.call(
            "cuMemcpyPeerAsync",
            other.received,
            other.gpu.context,
            self.sent,
            self.gpu.context,
            self.size,
            self.gpu.stream,
        )
