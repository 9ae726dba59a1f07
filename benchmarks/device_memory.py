"""Device memory written and verified; copies between host and device, inside a device and between devices.

Needs a driver and nothing else. See ``_protocol.py`` for request and result, ``_pattern.py`` for what is written.

Request: ``{"task": "memory_test"|"copy"|"peer", "slots": ["0000:1b:00.0", …] (null: all), "bytes", "limit_s", …}``.

- ``memory_test``: ``bytes`` of each GPU in ``passes`` passes; ``chunk`` bytes at a time; ``window`` bytes at a time
  where the host compares; ``method`` "auto" (a kernel of ours where the driver compiles it) or "host". Result:
  ``tests``: ``[{"index", "total_bytes", "used_before_bytes", "free_bytes", "asked_bytes", "allocated_bytes", "method",
  "why_host", "passes": [{"wrong_bytes", "write_s", "verify_s", "started_at"}], "errors": [{"pass", "offset", "address",
  "expected", "found", "again"}], "stopped", "error"}]``. ``offset`` counts in the tested memory; words are 8 bytes,
  in hexadecimal. Up to 4096 wrong words are counted as words; beyond, the host counts pages of 4 KiB.
- ``copy``: page-locked host memory of ``bytes`` on the GPU's own memory node; ``blocks``, ``samples``, ``sample_s``,
  ``warmup_s``, ``pause_s``, ``together_s``, ``hang_s`` (then a GPU is given up), ``sysfs``. Result: ``copies``:
  ``[{"index", "cpus", "blocks": [{"h2d": {"samples", "warmup", "calls", "started_at", "ended_at", "link"}, "d2h": …,
  "d2d": …, "wrong_bytes"}], "together": {"h2d", "d2h"}, "error"}]``, ``stopped``. Rates in GB/s
  (10⁹) of bytes copied, each counted once; ``link`` as in ``_link.Sampler``.
- ``peer``: ``pairs`` ``[[from, to], …]`` of slots. Result: ``pairs``: ``[{"from", "to", "access", "blocks":
  [{"samples", …, "wrong_bytes"}], "error"}]`` by index, ``stopped``.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # `python -I` leaves the script's folder out

import _copies as copies
import _cuda as cuda
import _link as links
import _pattern as pattern
import _protocol as protocol

GRAIN = 2 << 20  # the driver rounds allocations up to this
NVML_S = 15.0
GRACE_S = 5.0  # of a test that ends at its time limit


def measure(request):
    clock = protocol.Clock(protocol.asked(request, "limit_s", float))
    task = protocol.asked(request, "task", str)
    if task not in TASKS:
        raise protocol.Unable("bad-request", "task: %r is none of %s" % (task, ", ".join(TASKS)))
    driver = cuda.Driver()
    found = driver.devices()
    if request.get("slots") is not None:
        wanted = protocol.asked(request, "slots", list)
        found = [d for d in found if d["slot"] in wanted]
    if not found:
        raise protocol.Unable("no-cuda", "the CUDA driver opens none of the GPUs to be measured")
    versions = {"python": platform.python_version(), "cuda_driver": driver.version()}
    return dict(TASKS[task](driver, found, request, clock), devices=found, versions=versions)


# ---------------------------------------------------------------- memory test


def memory_test(driver, found, request, clock):
    """All GPUs at once: this is about right and wrong, not about speed."""
    used = used_before([d["slot"] for d in found])  # before the first context of ours
    texts = Texts(protocol.asked(request, "window", int), protocol.asked(request, "bytes", int), request)
    results = [
        {"index": d["index"], "total_bytes": d["memory_bytes"], "used_before_bytes": used.get(d["slot"])} for d in found
    ]
    begun = clock.left()
    futures = cuda.in_time(
        [lambda d=d, r=r: test_one(driver, d, request, clock, texts, r) for d, r in zip(found, results)],
        begun + GRACE_S,
    )
    return {
        "tests": [
            result if future.done() else dict(result, error=cuda.hung(begun + GRACE_S).as_json())
            for future, result in zip(futures, results)
        ]
    }


def used_before(slots):
    """Bytes in use by slot; those that NVML does not tell, or not in time, are left out."""
    futures = cuda.in_time([lambda s=s: links.used_before(s) for s in slots], NVML_S)
    return {slot: future.result() for slot, future in zip(slots, futures) if future.done()}


class Texts:
    """The windows, made by the first GPU that needs them."""

    def __init__(self, window, size, request):
        self.settings = (window, -(-size // window), protocol.asked(request, "passes", int))
        self.lock = threading.Lock()
        self.windows = None

    def get(self, gpu):
        with self.lock:
            if self.windows is None:
                self.windows = pattern.Windows(gpu, *self.settings)
            return self.windows


def test_one(driver, device, request, clock, texts, result):
    result.update(
        free_bytes=None,
        asked_bytes=protocol.asked(request, "bytes", int) // GRAIN * GRAIN,
        allocated_bytes=0,
        method=None,
        why_host=None,
        passes=[],
        errors=[],
        stopped=None,
        error=None,
    )
    with cuda.recorded(result):
        gpu = cuda.Gpu(driver, device)
        result["free_bytes"] = gpu.available()
        method, result["why_host"] = choose(gpu, request, texts)
        result["method"] = method.name
        chunks = allocate(gpu, result["asked_bytes"], protocol.asked(request, "chunk", int))
        result["allocated_bytes"] = sum(size for _, size in chunks)
        for number in range(protocol.asked(request, "passes", int)):
            if not one_pass(gpu, method, chunks, number, clock, result):
                result["stopped"] = "time-limit"
                break


def choose(gpu, request, texts):
    """The method, and why it is not the kernel."""
    why = "asked for"
    if protocol.asked(request, "method", str) == "auto":
        try:
            return ByKernel(pattern.Mixer(gpu)), None
        except protocol.Unable as unable:
            why = unable.detail
    return ByHost(gpu, texts.get(gpu)), why


def allocate(gpu, wanted, chunk):
    """[(address, bytes)] in pieces, smaller ones where a large one no longer fits, until ``wanted`` or no more."""
    chunks = []
    left = wanted
    size = max(GRAIN, chunk // GRAIN * GRAIN)
    while left >= GRAIN and size >= GRAIN:
        try:
            piece = min(size, left)
            chunks.append((gpu.allocate(piece), piece))
            left -= piece
        except protocol.Unable as unable:
            if unable.kind != "out-of-memory":
                raise
            size = size // 2 // GRAIN * GRAIN
    return chunks


def one_pass(gpu, method, chunks, number, clock, result):
    """Write everything, then verify everything; False where the time was up before the end."""
    found = pattern.Found()
    begun, start = protocol.utc_now(), time.perf_counter()
    for address, size, offset in places(chunks):
        if clock.left() < 0:
            return False
        method.write(address, size, offset, number)
    written = time.perf_counter()
    for address, size, offset in places(chunks):
        if clock.left() < 0:
            return False
        method.verify(address, size, offset, number, found)
    verified = time.perf_counter()
    result["passes"].append(
        {
            "wrong_bytes": found.wrong_bytes,
            "write_s": written - start,
            "verify_s": verified - written,
            "started_at": begun,
        }
    )
    room = pattern.MOST_ERRORS - len(result["errors"])
    result["errors"] += [one_error(gpu, chunks, number, *error) for error in found.errors[:room]]
    return True


def places(chunks):
    offset = 0
    for address, size in chunks:
        yield address, size, offset
        offset += size


def one_error(gpu, chunks, number, offset, expected, have):
    address = next(a + offset - o for a, size, o in places(chunks) if o <= offset < o + size)
    again = ctypes.c_uint64()
    gpu.read(ctypes.byref(again), address, pattern.WORD)
    return {
        "pass": number,
        "offset": offset,
        "address": "%#x" % address,
        "expected": "%016x" % expected,
        "found": "%016x" % have,
        "again": "%016x" % again.value,
    }


class ByKernel:
    name = "kernel"

    def __init__(self, mixer):
        self.mixer = mixer

    def write(self, address, size, offset, number):
        self.mixer.write(address, size, offset, number)

    def verify(self, address, size, offset, number, found):
        before = found.wrong_bytes
        self.mixer.verify(address, size, offset, number, found)
        if found.wrong_bytes == before and not self.mixer.spot(address, size, offset, number):
            raise protocol.Unable("refused", "the kernel calls right what the host reads as wrong")


class ByHost:
    """Windows never cross the end of a chunk, so that their number is their place in the tested memory."""

    name = "host"

    def __init__(self, gpu, windows):
        self.gpu = gpu
        self.windows = windows
        self.buffer = gpu.pin(windows.size)

    def pieces(self, address, size, offset):
        done = 0
        while done < size:
            window, inside = divmod(offset + done, self.windows.size)
            length = min(size - done, self.windows.size - inside)
            yield address + done, window, inside, length
            done += length

    def write(self, address, size, offset, number):
        for place, window, inside, length in self.pieces(address, size, offset):
            self.gpu.write(place, self.windows.at(number, window) + inside, length)

    def verify(self, address, size, offset, number, found):
        for place, window, inside, length in self.pieces(address, size, offset):
            self.gpu.read(self.buffer, place, length)
            at = window * self.windows.size + inside
            self.windows.compare(number, window, self.buffer, length, at, found, inside)


TASKS = {"memory_test": memory_test, "copy": copies.copy, "peer": copies.peer}

if __name__ == "__main__":
    cuda.leave(protocol.main("device_memory", measure))
