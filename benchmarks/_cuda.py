"""The CUDA driver through ctypes: a dozen calls, no torch and no toolkit. Standard library only, Python 3.8+."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from concurrent.futures import ThreadPoolExecutor, wait

from _protocol import Unable

SUCCESS = 0
OUT_OF_MEMORY = 2
ECC_UNCORRECTABLE = 214
PEER_ACCESS_ALREADY_ENABLED = 704
PORTABLE = 1  # CU_MEMHOSTALLOC_PORTABLE: pinned for all contexts
KINDS = {OUT_OF_MEMORY: "out-of-memory", ECC_UNCORRECTABLE: "ecc-error"}

_INT, _UINT, _SIZE, _HANDLE = ctypes.c_int, ctypes.c_uint, ctypes.c_size_t, ctypes.c_void_p
_ADDRESS = ctypes.c_uint64  # CUdeviceptr
_OUT = ctypes.c_void_p
CALLS = {
    "cuDriverGetVersion": [_OUT],
    "cuDeviceGetCount": [_OUT],
    "cuDeviceGet": [_OUT, _INT],
    "cuDeviceGetName": [_OUT, _INT, _INT],
    "cuDeviceGetPCIBusId": [_OUT, _INT, _INT],
    "cuDeviceTotalMem_v2": [_OUT, _INT],
    "cuDeviceGetUuid": [_OUT, _INT],
    "cuDeviceCanAccessPeer": [_OUT, _INT, _INT],
    "cuDevicePrimaryCtxRetain": [_OUT, _INT],
    "cuCtxSetCurrent": [_HANDLE],
    "cuCtxSynchronize": [],
    "cuCtxEnablePeerAccess": [_HANDLE, _UINT],
    "cuMemGetInfo_v2": [_OUT, _OUT],
    "cuMemAlloc_v2": [_OUT, _SIZE],
    "cuMemFree_v2": [_ADDRESS],
    "cuMemHostAlloc": [_OUT, _SIZE, _UINT],
    "cuMemcpyHtoD_v2": [_ADDRESS, _HANDLE, _SIZE],
    "cuMemcpyDtoH_v2": [_HANDLE, _ADDRESS, _SIZE],
    "cuMemcpyHtoDAsync_v2": [_ADDRESS, _HANDLE, _SIZE, _HANDLE],
    "cuMemcpyDtoHAsync_v2": [_HANDLE, _ADDRESS, _SIZE, _HANDLE],
    "cuMemcpyDtoDAsync_v2": [_ADDRESS, _ADDRESS, _SIZE, _HANDLE],
    "cuMemcpyPeerAsync": [_ADDRESS, _HANDLE, _ADDRESS, _HANDLE, _SIZE, _HANDLE],
    "cuMemsetD8_v2": [_ADDRESS, ctypes.c_ubyte, _SIZE],
    "cuStreamCreate": [_OUT, _UINT],
    "cuStreamSynchronize": [_HANDLE],
}
# A libcuda without them (a stand-in, a stub) still has memory and copies.
OPTIONAL = {
    "cuGetErrorName": [_INT, _OUT],
    "cuDeviceGetUuid_v2": [_OUT, _INT],
    "cuModuleLoadData": [_OUT, ctypes.c_char_p],
    "cuModuleGetFunction": [_OUT, _HANDLE, ctypes.c_char_p],
    "cuLaunchKernel": [_HANDLE, *[_UINT] * 7, _HANDLE, _OUT, _OUT],
}


class Driver:
    """libcuda.so.1, initialised. Every call that fails raises :class:`Unable` with the call's and the code's name."""

    def __init__(self):
        try:
            self.lib = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise Unable("no-driver", str(error)) from error
        for name, types in list(CALLS.items()) + list(OPTIONAL.items()):
            function = getattr(self.lib, name, None)
            if function is not None:
                function.argtypes, function.restype = types, ctypes.c_int
            elif name in CALLS:
                raise Unable("no-driver", "libcuda.so.1 has no %s" % name)
        code = self.lib.cuInit(0)
        if code != SUCCESS:
            raise Unable("no-cuda", "cuInit: %s" % self.name_of(code))

    def has(self, name):
        return getattr(self.lib, name, None) is not None

    def name_of(self, code):
        text = ctypes.c_char_p()
        if self.has("cuGetErrorName") and self.lib.cuGetErrorName(code, ctypes.byref(text)) == 0 and text.value:
            return text.value.decode("ascii", "replace")
        return "CUDA error %d" % code

    def call(self, name, *arguments, allow=()):
        code = getattr(self.lib, name)(*arguments)
        if code != SUCCESS and code not in allow:
            raise Unable(KINDS.get(code, "cuda-error"), "%s: %s" % (name, self.name_of(code)))
        return code

    def ask(self, kind, name, *arguments):
        """A call whose first argument is where the answer goes."""
        out = kind()
        self.call(name, ctypes.byref(out), *arguments)
        return out.value

    def devices(self):
        """``[{"index", "name", "uuid", "slot", "memory_bytes"}]`` of all GPUs that can be opened."""
        found = []
        for index in range(self.ask(ctypes.c_int, "cuDeviceGetCount")):
            with contextlib.suppress(Unable):  # a lost card must not hide the others; it is missing in the answer
                found.append(self.device(index))
        return found

    def device(self, index):
        handle = self.ask(ctypes.c_int, "cuDeviceGet", index)
        text = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", text, 256, handle)
        name = text.value.decode("utf-8", "replace")
        self.call("cuDeviceGetPCIBusId", text, 256, handle)
        raw = ctypes.create_string_buffer(16)
        self.call("cuDeviceGetUuid_v2" if self.has("cuDeviceGetUuid_v2") else "cuDeviceGetUuid", raw, handle)
        digits = raw.raw.hex()
        return {
            "index": index,
            "name": name,
            "uuid": "GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])),
            "slot": text.value.decode("ascii", "replace").lower(),
            "memory_bytes": self.ask(ctypes.c_size_t, "cuDeviceTotalMem_v2", handle),
        }

    def version(self):
        """The newest CUDA that this driver runs: ``12.4``."""
        number = self.ask(ctypes.c_int, "cuDriverGetVersion")
        return "%d.%d" % (number // 1000, number % 1000 // 10)


class Gpu:
    """One GPU's primary context. ``use()`` first in every thread. The driver takes all back when the process ends."""

    def __init__(self, driver, found):
        self.driver = driver
        self.index = found["index"]
        self.slot = found["slot"]
        self.total = found["memory_bytes"]
        self.device = driver.ask(ctypes.c_int, "cuDeviceGet", self.index)
        self.context = driver.ask(ctypes.c_void_p, "cuDevicePrimaryCtxRetain", self.device)
        self.use()
        self.stream = driver.ask(ctypes.c_void_p, "cuStreamCreate", 1)  # CU_STREAM_NON_BLOCKING

    def use(self):
        self.driver.call("cuCtxSetCurrent", self.context)

    def available(self):
        """Bytes that the driver says are free."""
        available, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.driver.call("cuMemGetInfo_v2", ctypes.byref(available), ctypes.byref(total))
        return available.value

    def allocate(self, size):
        """Address of device memory; Unable("out-of-memory") where there is none."""
        return self.driver.ask(ctypes.c_uint64, "cuMemAlloc_v2", size)

    def free(self, address):
        self.driver.call("cuMemFree_v2", address)

    def pin(self, size):
        """Address of page-locked host memory."""
        return self.driver.ask(ctypes.c_void_p, "cuMemHostAlloc", size, PORTABLE)

    def write(self, address, host, size):
        self.driver.call("cuMemcpyHtoD_v2", address, host, size)

    def read(self, host, address, size):
        self.driver.call("cuMemcpyDtoH_v2", host, address, size)

    def fill(self, address, byte, size):
        self.driver.call("cuMemsetD8_v2", address, byte, size)
        self.driver.call("cuCtxSynchronize")

    def wait(self):
        self.driver.call("cuStreamSynchronize", self.stream)


class Kernels:
    """Functions of a PTX text, compiled by the driver for this GPU. Unable where the driver cannot."""

    def __init__(self, gpu, ptx, names):
        self.gpu = gpu
        for name in ("cuModuleLoadData", "cuModuleGetFunction", "cuLaunchKernel"):
            if not gpu.driver.has(name):
                raise Unable("needs-hardware", "libcuda.so.1 has no %s" % name)
        ask = gpu.driver.ask
        module = ask(ctypes.c_void_p, "cuModuleLoadData", ptx.encode("ascii"))
        self.functions = {n: ask(ctypes.c_void_p, "cuModuleGetFunction", module, n.encode("ascii")) for n in names}

    def launch(self, name, blocks, threads, *numbers):
        """Run one with these 64-bit arguments, to its end."""
        values = [ctypes.c_uint64(n) for n in numbers]
        pointers = (ctypes.c_void_p * len(values))(*[ctypes.cast(ctypes.byref(v), ctypes.c_void_p) for v in values])
        grid = (blocks, 1, 1, threads, 1, 1, 0)
        self.gpu.driver.call("cuLaunchKernel", self.functions[name], *grid, self.gpu.stream, pointers, None)
        self.gpu.wait()


STUCK = []


def in_time(functions, seconds):
    """Run all at once, each in a thread of its own: their futures, those not done being stuck in the driver.

    The first exception is this call's. What is stuck is left behind until :func:`leave`.
    """
    pool = ThreadPoolExecutor(len(functions))
    futures = [pool.submit(function) for function in functions]
    pool.shutdown(wait=False)
    done, late = wait(futures, max(0.0, seconds))
    STUCK.extend(late)
    for future in done:
        future.result()
    return futures


def bounded(function, seconds):
    """What it returns; Unable("hung") where it does not come back: one lost card must not take the others along."""
    (future,) = in_time([function], seconds)
    if not future.done():
        raise hung(seconds)
    return future.result()


def hung(seconds):
    return Unable("hung", "the CUDA driver did not come back in %.0f s" % seconds)


def leave(status):
    """End the process; a thread that is stuck in the driver is not waited for."""
    sys.stdout.flush()
    sys.stderr.flush()
    if any(not future.done() for future in STUCK):
        os._exit(status)
    sys.exit(status)


@contextlib.contextmanager
def recorded(result):
    """An error of one device is that device's result."""
    try:
        yield
    except Unable as unable:
        result["error"] = unable.as_json()
