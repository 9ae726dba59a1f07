"""Which nvidia-smi would be started, and which settings of the environment touch GPUs. Starts none of them.

Usage: gpu_env_probe.py

Prints JSON: ``programs`` (every nvidia-smi on the PATH: ``path``, ``real``, ``kind`` elf, script or other,
``interpreter`` of a script, ``owner`` uid, ``writable`` by this user or everybody, ``size``) and ``environment``:
for the agent's own process and for process 1 the variables that name GPUs, slices or preloaded libraries, or
``{"error": errno name}``. Other variables are not looked at: they may hold secrets.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from typing import Any

# What slicing libraries, container runtimes and MPS are steered with.
TOLD = re.compile(
    r"LD_PRELOAD|LD_LIBRARY_PATH|LIBCUDA_LOG_LEVEL|(?:CUDA_(?:VISIBLE_DEVICES|DEVICE_|MPS_|OVERSUBSCRIBE|TASK_PRIORITY)"
    r"|NVIDIA_(?:VISIBLE_DEVICES|DRIVER_CAPABILITIES|MIG_)|ALIYUN_COM_GPU_|CGPU_|GPU_CORE_UTILIZATION_POLICY|HAMI_"
    r"|VGPU_|TENCENT_|QGPU_|KAI_|ORION_)\w*"
)
HEAD = 256


def program(path: str) -> dict[str, Any]:
    real = os.path.realpath(path)
    about = os.stat(real)
    with open(real, "rb") as file:
        head = file.read(HEAD)
    kind = "elf" if head.startswith(b"\x7fELF") else "script" if head.startswith(b"#!") else "other"
    line = head[2:].split(b"\n")[0].decode("utf-8", "replace").strip()
    return {
        "path": path,
        "real": real,
        "kind": kind,
        "interpreter": line if kind == "script" else None,
        "owner": about.st_uid,
        "writable": bool(about.st_mode & stat.S_IWOTH) or (os.getuid() != 0 and os.access(real, os.W_OK)),
        "size": about.st_size,
    }


def programs(name: str) -> list[dict[str, Any]]:
    """Those that a shell would find, in its order."""
    folders = dict.fromkeys(os.environ.get("PATH", os.defpath).split(os.pathsep))
    paths = [os.path.join(folder, name) for folder in folders]
    return [looked_at(p) for p in paths if os.path.isfile(p) and os.access(p, os.X_OK)]


def looked_at(path: str) -> dict[str, Any]:
    try:
        return program(path)
    except OSError as error:  # it may be started and not be read
        return {"path": path, "error": errno.errorcode.get(error.errno or 0, "EIO")}


def environment(pid: int) -> dict[str, str]:
    """The told variables of one process."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            pairs = [entry.decode("utf-8", "replace").partition("=") for entry in file.read().split(b"\0")]
    except OSError as error:
        return {"error": errno.errorcode.get(error.errno or 0, "EIO")}
    return {name: value for name, _, value in pairs if TOLD.fullmatch(name)}


if __name__ == "__main__":
    asked = {"agent": os.getppid(), "init": 1}
    answer = {"programs": programs("nvidia-smi"), "environment": {k: environment(pid) for k, pid in asked.items()}}
    print(json.dumps(answer))
