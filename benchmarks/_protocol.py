"""What all workers share: request in, result out, typed errors, timed blocks. Python 3.8+, torch 2.0+.

A worker is started as ``python -s WORKER.py --request REQUEST.json --result RESULT.json``. The result is written
under a temporary name and renamed last: no file, no result, whatever the exit status. What a worker cannot do is
a result too: ``{"error": {"kind", "detail", "needs"}}`` for the whole, ``{"unavailable": {...}}`` for a part.
Anything else that goes wrong is a traceback on stderr and no file. A worker knows no limits and judges nothing.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import re
import sys
import time
from datetime import datetime, timezone

SCHEMA = "accept.worker/1"
OLDEST_TORCH = (2, 0)
OLDEST_PYTHON = (3, 8)


class Unable(Exception):
    """Why this cannot be done here.

    ``kind``: no-torch, torch-broken, needs-torch, needs-python, needs-hardware, no-driver, no-cuda, refused (the call
    is there and fails), out-of-memory, cuda-error, ecc-error (the card itself reports an uncorrectable memory error),
    bad-request. ``needs`` is the version or the hardware that would do.
    """

    def __init__(self, kind, detail, needs=None):
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.needs = needs

    def as_json(self):
        return {"kind": self.kind, "detail": self.detail, "needs": self.needs}


def main(worker, measure, argv=None):
    """Run ``measure(request) -> dict`` between request and result; the exit status is 0 once a result is there."""
    parser = argparse.ArgumentParser(prog=worker)
    parser.add_argument("--request", required=True)
    parser.add_argument("--result", required=True)
    options = parser.parse_args(argv)
    result = {"schema": SCHEMA, "worker": worker, "pid": os.getpid(), "started_at": utc_now()}
    try:
        if sys.version_info < OLDEST_PYTHON:
            raise Unable("needs-python", "Python %s is too old" % platform.python_version(), "3.8")
        with open(options.request, encoding="utf-8") as source:
            request = json.load(source)
        result.update(measure(request))
    except Unable as unable:
        result["error"] = unable.as_json()
    result["finished_at"] = utc_now()
    write(options.result, result)
    return 0


def write(path, value):
    """Whole or not at all."""
    temporary = path + ".tmp"
    with open(temporary, "w", encoding="utf-8") as out:
        json.dump(value, out, allow_nan=False, indent=1)
        out.flush()
        os.fsync(out.fileno())
    os.replace(temporary, path)


def utc_now():
    """Now, as the agent writes it: ``2026-11-30T08:15:02.123Z``."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def asked(request, name, kind):
    """A field of the request, of that type (an int is a float too); Unable where it is not."""
    value = request.get(name)
    wanted = (int, float) if kind is float else kind
    if not isinstance(value, wanted) or (isinstance(value, bool) and kind is not bool):
        raise Unable("bad-request", "%s: %r is not %s" % (name, value, kind.__name__))
    return value


# ---------------------------------------------------------------- torch and its devices


def import_torch():
    """torch, or Unable: not there, older than 2.0, or there and broken."""
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name == "torch":
            raise Unable("no-torch", "%s has no torch" % sys.executable, "2.0") from error
        raise Unable("torch-broken", "import torch: %s" % error) from error
    except (ImportError, OSError) as error:
        raise Unable("torch-broken", "import torch: %s" % error) from error
    if not hasattr(torch, "__version__"):
        raise Unable("torch-broken", "the torch that Python finds is an empty folder: %s" % list(torch.__path__))
    found = str(torch.__version__)
    if version_key(found) < OLDEST_TORCH:
        raise Unable("needs-torch", "torch %s is too old" % found, "2.0")
    return torch


def version_key(text):
    """The first two numbers of a version: ``2.4.1+cu121`` gives (2, 4)."""
    numbers = re.findall(r"\d+", text.split("+")[0])
    return tuple(int(n) for n in numbers[:2])


def devices(torch, kind):
    """The devices to measure, in torch's order: ``{"index", "name", "uuid", "slot", ...}``.

    ``slot`` is the PCI address as sysfs writes it, ``0000:1b:00.0``; null where the driver does not tell.
    """
    if kind == "cpu":
        return [{"index": 0, "name": cpu_name(), "uuid": None, "slot": None}]
    if kind != "cuda":
        raise Unable("bad-request", "device: %r is neither cpu nor cuda" % (kind,))
    if not torch.cuda.is_available():
        raise Unable("no-cuda", why_no_cuda(torch))
    return [cuda_device(torch, index) for index in range(torch.cuda.device_count())]


def chosen(found, request):
    """Those of ``found`` that ``indexes`` of the request names; all without it."""
    if request.get("indexes") is None:
        return found
    wanted = asked(request, "indexes", list)
    picked = [d for d in found if d["index"] in wanted]
    if not picked:
        raise Unable("bad-request", "indexes: %r are no devices here" % (wanted,))
    return picked


def why_no_cuda(torch):
    """In torch's own words."""
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        return str(error).strip().splitlines()[0]
    return "torch finds no CUDA device"


def cuda_device(torch, index):
    found = torch.cuda.get_device_properties(index)
    uuid, slot = driver_ids(index)
    return {
        "index": index,
        "name": found.name,
        "uuid": uuid,
        "slot": slot,
        "multiprocessors": found.multi_processor_count,
        "memory_bytes": found.total_memory,
        "capability": "%d.%d" % (found.major, found.minor),
    }


def driver_ids(index):
    """(UUID, PCI slot) from the driver itself: torch tells them only in late versions."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None, None
    handle = ctypes.c_int()
    if cuda.cuInit(0) != 0 or cuda.cuDeviceGet(ctypes.byref(handle), index) != 0:
        return None, None
    raw = (ctypes.c_ubyte * 16)()
    ask_uuid = getattr(cuda, "cuDeviceGetUuid_v2", None) or cuda.cuDeviceGetUuid
    uuid = None
    if ask_uuid(raw, handle) == 0:
        digits = bytes(raw).hex()
        uuid = "GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    text = ctypes.create_string_buffer(32)
    slot = None
    if cuda.cuDeviceGetPCIBusId(text, 32, handle) == 0:
        slot = text.value.decode().lower()
    return uuid, slot


def cpu_name():
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as source:
            found = re.search(r"^model name\s*:\s*(.+)$", source.read(), re.MULTILINE)
    except OSError:
        return platform.processor() or platform.machine()
    return found.group(1).strip() if found else platform.machine()


def synchronise(torch, kind, index):
    """A function that returns once the device has finished all it was given."""
    if kind == "cuda":
        return lambda: torch.cuda.synchronize(index)
    return lambda: None


def versions(torch, kind):
    """Of everything that makes the number; null where there is none or it does not tell."""
    cuda = kind == "cuda"
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "cublas": told(cublas_version) if cuda else None,
        "cudnn": told(cudnn_version, torch) if cuda else None,
        "nccl": told(nccl_version, torch) if cuda else None,
    }


def told(ask, *arguments):
    """A version, or null from a build that has no such question: no number is lost for want of it."""
    try:
        return ask(*arguments)
    except (AttributeError, OSError, RuntimeError):
        return None


def cublas_version():
    """Asked of the library that is loaded in this process (cublasGetProperty)."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as source:
        found = re.search(r"(/\S*libcublas\.so\S*)", source.read())
    if not found:
        return None
    library = ctypes.CDLL(found.group(1))
    parts = []
    for which in range(3):
        value = ctypes.c_int()
        if library.cublasGetProperty(which, ctypes.byref(value)) != 0:
            return None
        parts.append(str(value.value))
    return ".".join(parts)


def cudnn_version(torch):
    found = torch.backends.cudnn.version()
    return None if found is None else str(found)


def nccl_version(torch):
    if not torch.distributed.is_available() or not torch.distributed.is_nccl_available():
        return None
    found = torch.cuda.nccl.version()
    return ".".join(str(n) for n in found) if isinstance(found, tuple) else str(found)


class Guard:
    """Turns what a device says in a RuntimeError into Unable; a mistake of ours stays a traceback."""

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if error is None or not isinstance(error, (RuntimeError, MemoryError)):
            return
        if isinstance(error, NotImplementedError):
            return  # a RuntimeError of Python's: the type is not implemented, which the callers report
        if is_out_of_memory(error):
            raise Unable("out-of-memory", first_line(error)) from error
        if "CUDA" in str(error) or "CUBLAS" in str(error):
            raise Unable("cuda-error", first_line(error)) from error


def first_line(error):
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:400]


def is_out_of_memory(error):
    """torch says it in words on the CPU and with a type of its own on CUDA."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or "out of memory" in text or "can't allocate memory" in text


def available_memory():
    """Bytes that the kernel could give, within the control group; null where neither tells."""
    meminfo = re.search(r"^MemAvailable:\s*(\d+) kB", text_of("/proc/meminfo"), re.MULTILINE)
    free = [int(meminfo.group(1)) << 10] if meminfo else []
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        most, now = text_of(limit).strip(), text_of(used).strip()
        if most.isdigit() and now.isdigit():
            free.append(int(most) - int(now))
    return min(free) if free else None


def text_of(path):
    try:
        with open(path, encoding="ascii", errors="replace") as source:
            return source.read()
    except OSError:
        return ""  # this kernel or container does not tell; the callers have a rule for that


# ---------------------------------------------------------------- blocks


class Clock:
    """The worker's own time limit: it stops before the agent has to kill it."""

    def __init__(self, limit_s):
        self.end = time.monotonic() + limit_s

    def left(self):
        """Seconds, negative when the time is up."""
        return self.end - time.monotonic()


def timed_block(call, sync, warmup_s, samples, sample_s):
    """Warm-up, then ``samples`` timings; each covers as many calls as fill ``sample_s`` and ends synchronised.

    Times are seconds per call. The warm-up is kept apart; its first entry holds what the first call costs.
    """
    begun = utc_now()
    warmup = [timed(call, sync, 1)]
    end = time.perf_counter() + warmup_s
    while len(warmup) < 2 or time.perf_counter() < end:
        # Batches as long as a sample, so that a fast device is warmed by work and not by waiting for it.
        warmup.append(timed(call, sync, calls_for(sample_s, warmup[-1])))
    calls = calls_for(sample_s, min(warmup))
    seconds = [timed(call, sync, calls) for _ in range(samples)]
    return {"started_at": begun, "ended_at": utc_now(), "calls": calls, "warmup_s": warmup, "seconds": seconds}


def calls_for(sample_s, one_s):
    return max(1, int(sample_s / max(one_s, 1e-9)))


def timed(call, sync, calls):
    sync()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    sync()
    return (time.perf_counter() - start) / calls


def interleaved(indexes, blocks, pause_s, clock, one):
    """``one(index, block)`` for each block of each device, round by round; a time limit ends it early.

    Two blocks of one device lie at least ``pause_s`` apart; the blocks of the other devices count as pause.
    Returns "time-limit" where not all blocks fitted, else null.
    """
    ended = {}
    longest = 0.0
    for block in range(blocks):
        for index in indexes:
            wait = max(0.0, ended.get(index, float("-inf")) + pause_s - time.monotonic())
            if wait + longest > clock.left():
                return "time-limit"
            time.sleep(wait)
            begun = time.monotonic()
            one(index, block)
            ended[index] = time.monotonic()
            longest = max(longest, ended[index] - begun)
    return None
