"""Our own libnvidia-ml, libcuda and nvidia-smi, built with cc once and kept in a cache folder."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
FLAGS = ("-std=c11", "-O1", "-Wall", "-Wextra", "-Werror")
SHARED = ("-shared", "-fPIC")
PRODUCTS = {"libnvidia-ml.so": "libnvidia_ml.c", "libcuda.so": "libcuda.c", "nvidia-smi": "nvidia_smi.c"}


def built() -> Path:
    """The folder with all three; builds what the sources' hash does not name yet. Raises if cc finds fault."""
    sources = b"".join((HERE / name).read_bytes() for name in ("answers.h", *sorted(PRODUCTS.values())))
    digest = hashlib.sha256(sources + " ".join(FLAGS).encode()).hexdigest()[:16]
    user = os.getuid()  # a folder of another user's would be his to fill
    folder = Path(tempfile.gettempdir()) / f"accept-fakenode-{user}" / digest
    if not folder.is_dir():
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as work:
            for product, source in PRODUCTS.items():
                compile_one(HERE / source, Path(work) / product)
            _keep(Path(work), folder)
    return folder


def compile_one(source: Path, product: Path) -> None:
    """One ``cc`` call, every warning an error."""
    shared = SHARED if product.suffix == ".so" else ()
    argv = ["cc", *FLAGS, *shared, str(source), "-o", str(product), "-ldl", "-lpthread"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)}\n{done.stderr}")


def _keep(work: Path, folder: Path) -> None:
    """Another process may have been faster; its folder is as good."""
    staged = folder.with_name(f"{folder.name}.{os.getpid()}")
    staged.mkdir()
    for product in PRODUCTS:
        (work / product).rename(staged / product)
    try:
        staged.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
        for product in PRODUCTS:
            (staged / product).unlink()
        staged.rmdir()
