"""What real callers see of a fake node: pynvml and libcuda in children of their own, nvidia-smi as a program."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, Optional

from tests.fakenode.node import Built

NVML = """
import json, sys
from ctypes import byref
import pynvml as n

def tried(call, *arguments):
    try:
        return call(*arguments)
    except n.NVMLError as error:
        return {"error": error.value, "text": str(error)}

def plain(value):
    return value.decode() if isinstance(value, bytes) else str(value)

begun = tried(n.nvmlInit)
found = {"init": begun, "gpus": []}
for i in range(n.nvmlDeviceGetCount() if begun is None else 0):
    h = tried(n.nvmlDeviceGetHandleByIndex, i)
    found["gpus"].append(h if isinstance(h, dict) else EXPRESSION)
    print(json.dumps(found["gpus"][-1], default=plain), file=sys.stderr, flush=True)
print(json.dumps(found, default=plain))
"""
CUDA = """
import ctypes, json
c = ctypes.CDLL("libcuda.so.1")
SIZE, PTR = ctypes.c_size_t, ctypes.c_uint64
for name in ("cuMemcpyHtoD_v2", "cuMemcpyDtoD_v2"):
    getattr(c, name).argtypes = [PTR, ctypes.c_void_p if "HtoD" in name else PTR, SIZE]
c.cuMemcpyDtoH_v2.argtypes = [ctypes.c_void_p, PTR, SIZE]
c.cuMemAlloc_v2.argtypes = [ctypes.POINTER(PTR), SIZE]
c.cuMemFree_v2.argtypes = [PTR]
c.cuMemsetD32_v2.argtypes = [PTR, ctypes.c_uint, SIZE]

def context(device=0):
    made = ctypes.c_void_p()
    assert c.cuInit(0) == 0
    assert c.cuCtxCreate_v2(ctypes.byref(made), 0, device) == 0
    return made

def allocate(size):
    address = PTR()
    return c.cuMemAlloc_v2(ctypes.byref(address), SIZE(size)), address.value

def write(address, data):
    return c.cuMemcpyHtoD_v2(address, data, len(data))

def read(address, size):
    buffer = ctypes.create_string_buffer(size)
    assert c.cuMemcpyDtoH_v2(buffer, address, size) == 0
    return buffer.raw

def number(name, *arguments):
    value = ctypes.c_int()
    code = getattr(c, name)(ctypes.byref(value), *arguments)
    return value.value if code == 0 else {"error": code}

print(json.dumps(BODY))
"""


def nvml(built: Built, expression: str, timeout_s: float = 20.0) -> Any:
    """``expression`` of ``n`` (pynvml), ``i`` and ``h`` (a handle), for each GPU: ``{"init": …, "gpus": […]}``."""
    return _answer(built, NVML.replace("EXPRESSION", expression), timeout_s)


def cuda(built: Built, body: str, **environment: str) -> Any:
    """``body`` as an expression over the helpers of :data:`CUDA`."""
    return _answer(built, CUDA.replace("BODY", body), 20.0, environment)


def smi(built: Built, *arguments: str, timeout_s: float = 20.0) -> subprocess.CompletedProcess[str]:
    """nvidia-smi as the PATH finds it."""
    return subprocess.run(
        ["nvidia-smi", *arguments],
        env=built.environment(),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def _answer(built: Built, code: str, timeout_s: float, environment: Optional[dict[str, str]] = None) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**built.environment(), **(environment or {})},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
