"""Build ``dist/accept.pyz``: one file for Python 3.9 to 3.13 on x86_64 and aarch64 Linux.

    python packaging/pyz.py dist/gpu_accept-0.1.0-py3-none-any.whl

Wheels are fetched with the user's own pip settings and laid side by side under the launcher. psutil's stable-ABI
wheels, one an architecture, are the only compiled code: MarkupSafe is built without its C speedups. The same wheels
give the same file, byte for byte.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
OUT = ROOT / "dist" / "accept.pyz"
REQUIREMENTS = HERE / "pyz-requirements.txt"
MACHINES = ("x86_64", "aarch64")
MANYLINUX = ("manylinux2014", "manylinux_2_17", "manylinux2010", "manylinux_2_12")
LIMIT = 8 << 20  # bytes
PURE = "markupsafe"
COMPILED = "psutil"
EPOCH = (1980, 1, 1, 0, 0, 0)  # the first that a zip can say


def main(wheel: Path) -> None:
    """Fetch, lay out, check, write."""
    with tempfile.TemporaryDirectory() as folder:
        wheels = Path(folder)
        fetch(wheels)
        files = dict(unpack(wheel, "lib"))
        for found in sorted(wheels.glob("*.whl")):
            files.update(unpack(found, place(found)))
    check(files)
    write(files)
    print(f"{OUT.relative_to(ROOT)}: {OUT.stat().st_size / 1e6:.1f} MB")


def fetch(wheels: Path) -> None:
    """All requirements as wheels, and what is compiled once for each architecture."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    lines = [line for line in REQUIREMENTS.read_text(encoding="utf-8").splitlines() if line[:1] not in ("", "#")]
    pure, compiled = (next(line for line in lines if line.startswith(f"{n}==")) for n in (PURE, COMPILED))
    rest = [line for line in lines if line not in (pure, compiled)]
    download = [*pip, "download", "--no-deps", "--only-binary=:all:", "--python-version=3.9", f"--dest={wheels}"]
    run([*download, *rest])
    for machine in MACHINES:
        platforms = [f"--platform={name}_{machine}" for name in MANYLINUX]
        run([*download, "--implementation=cp", "--abi=abi3", *platforms, compiled])
    # Where its C compiler fails, MarkupSafe leaves the speedups out, and the wheel is for any Python.
    build = [*pip, "wheel", "--no-deps", "--no-cache-dir", f"--no-binary={PURE}", f"--wheel-dir={wheels}", pure]
    run(build, CC="false")


def place(wheel: Path) -> str:
    """The folder for a wheel: by architecture where it is compiled."""
    return next((f"native/{m}" for m in MACHINES if wheel.stem.endswith(m)), "lib")


def unpack(wheel: Path, folder: str) -> list[tuple[str, bytes]]:
    """The files of a wheel by their path in the archive; its licence and metadata stay beside it."""
    with zipfile.ZipFile(wheel) as source:
        return [(f"{folder}/{name}", source.read(name)) for name in source.namelist() if not name.endswith("/")]


def check(files: dict[str, bytes]) -> None:
    """Compiled code from psutil alone, one copy an architecture."""
    compiled = [name for name in files if name.endswith(".so")]
    foreign = [name for name in compiled if f"/{COMPILED}/" not in name]
    if foreign:
        sys.exit(f"compiled code besides {COMPILED}: {foreign}")
    missing = [m for m in MACHINES if not any(name.startswith(f"native/{m}/") for name in compiled)]
    if missing:
        sys.exit(f"no {COMPILED} for {missing}")


def write(files: dict[str, bytes]) -> None:
    """The archive behind a shebang, with the digest of its content in the launcher."""
    digest = hashlib.sha256()
    for name, data in sorted(files.items()):
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    launcher = (HERE / "launcher.py").read_text(encoding="utf-8").replace("@DIGEST@", digest.hexdigest()[:20])
    OUT.parent.mkdir(exist_ok=True)
    with OUT.open("wb") as out:
        out.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as target:
            for name, data in [("__main__.py", launcher.encode()), *sorted(files.items())]:
                info = zipfile.ZipInfo(name, EPOCH)
                info.external_attr = 0o644 << 16
                info.compress_type = zipfile.ZIP_DEFLATED
                target.writestr(info, data)
    OUT.chmod(0o755)
    if OUT.stat().st_size > LIMIT:
        sys.exit(f"{OUT.name} is {OUT.stat().st_size} bytes, more than {LIMIT}")


def run(command: list[str], **env: str) -> None:
    """Run to the end, or end with its failure."""
    done = subprocess.run(command, env={**os.environ, **env}, check=False)
    if done.returncode:
        sys.exit(f"failed with status {done.returncode}: {' '.join(command)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
