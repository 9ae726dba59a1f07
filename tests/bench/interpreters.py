"""Interpreters that are wrong in one way each, without a hook in the product.

A shim starts this very Python with one more folder on its path: a ``sitecustomize`` that changes the real torch, or a
package called torch. The worker's environment is scrubbed, so nothing else would reach it.
"""

from __future__ import annotations

import importlib.util
import sys
import textwrap
import venv
from pathlib import Path

import pytest

from agent.evidence import Store
from agent.facts.pythons import Interpreter
from agent.host import LiveHost
from agent.reading import Known
from agent.tools.worker import Device

HAS_TORCH = importlib.util.find_spec("torch") is not None
needs_torch = [pytest.mark.torch, pytest.mark.skipif(not HAS_TORCH, reason="this Python has no torch")]


def shim(folder: Path, **modules: str) -> str:
    """A python that finds these modules first (``torch__init__`` becomes the package torch)."""
    path = folder / "first"
    for name, source in modules.items():
        package, _, rest = name.partition("__")
        file = path / package / f"__{rest}.py" if rest else path / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(source), encoding="utf-8")
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {sys.executable} "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    return str(script)


def bare(folder: Path) -> str:
    """A virtual environment with nothing in it."""
    venv.create(folder / "bare", with_pip=False, symlinks=True)
    return str(folder / "bare" / "bin" / "python")


def interpreter(path: str = sys.executable, devices: tuple[Device, ...] = ()) -> Known[Interpreter]:
    """An interpreter as the facts give it."""
    return Known(Interpreter(path, "3.11.0", "/", "2.13.0", devices=devices, cuda_error=None), ("evidence/0001-x",))


def live(folder: Path) -> LiveHost:
    """This machine, recording below ``folder``."""
    return LiveHost(Store(folder / "run"))


# Two CUDA devices that are really the CPU, with a driver that knows their ids.
TWO_GPUS = """
    import ctypes, types
    import torch

    class Driver:
        def cuInit(self, flags): return 0
        def cuDeviceGet(self, handle, index):
            handle._obj.value = index
            return 0
        def cuDeviceGetUuid_v2(self, raw, handle):
            raw[:] = [handle.value] * 16
            return 0
        def cuDeviceGetPCIBusId(self, text, size, handle):
            text.value = b"0000:%dB:00.0" % (handle.value + 1)
            return 0

    real_library = ctypes.CDLL
    ctypes.CDLL = lambda name, *a, **k: Driver() if name == "libcuda.so.1" else real_library(name, *a, **k)

    def on_cpu(function):
        return lambda *a, device=None, **k: function(*a, **k)

    real_generator = torch.Generator
    torch.Generator = lambda device="cpu": real_generator()
    torch.randn, torch.ones = on_cpu(torch.randn), on_cpu(torch.ones)
    cuda = torch.cuda
    cuda.is_available = lambda: True
    cuda.device_count = lambda: 2
    cuda.synchronize = lambda index=None: None
    cuda.get_device_name = lambda index: "NVIDIA Test"
    cuda.get_device_capability = lambda index: CAPABILITY
    cuda.get_device_properties = lambda index: types.SimpleNamespace(
        name="NVIDIA Test", multi_processor_count=132, total_memory=80 << 30, major=CAPABILITY[0], minor=CAPABILITY[1]
    )
    CAPABILITY = (8, 0)
"""
GPUS = (Device(0, "NVIDIA Test", slot="0000:1b:00.0"), Device(1, "NVIDIA Test", slot="0000:2b:00.0"))
