"""Disks made for a test: file systems on loop devices, throttled by the kernel. Needs root.

Everything that is made here is taken away by the context manager, whatever happens inside. A disk's backing file lies
on a real disk: one in memory would be found out.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

MIB = 1 << 20
BLKIO = Path("/sys/fs/cgroup/blkio")
VAR = Path("/var/tmp")  # unlike /tmp never in memory
TOOLS = ("losetup", "mkfs.ext4", "mount", "umount")


def unavailable(*more: str) -> Optional[str]:
    """Why disks can't be made here, or None."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [tool for tool in (*TOOLS, *more) if shutil.which(tool, path=_path()) is None]
    if missing:
        return f"needs {', '.join(missing)}"
    tried = subprocess.run(["losetup", "--find"], capture_output=True, text=True, env=_env(), check=False)
    return None if tried.returncode == 0 else f"no loop devices: {tried.stderr.strip()}"


def no_throttle() -> Optional[str]:
    """Why no device's rate can be limited here, or None."""
    if not (BLKIO / "blkio.throttle.write_bps_device").exists():
        return "no blkio throttle (cgroup v1)"
    return None


@dataclass(frozen=True)
class Disk:
    """A file system of its own: where it is mounted, and its device as ``7:0`` and as ``/dev/loop0``."""

    path: Path
    number: str
    device: str

    def throttle(self, bytes_per_s: int, directions: Sequence[str] = ("read", "write")) -> None:
        """Limit the device, also while it is in use; 0 takes the limit away."""
        for direction in directions:
            (BLKIO / f"blkio.throttle.{direction}_bps_device").write_text(f"{self.number} {bytes_per_s}")


@contextmanager
def loop(size: int, where: Optional[Path] = None, *flags: str) -> Iterator[tuple[str, Path]]:
    """A loop device of ``size`` bytes, and a folder beside its file; ``flags`` are losetup's."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="accdisk-", dir=where or VAR)))
        folder.chmod(0o755)
        with (folder / "image").open("wb") as out:
            out.truncate(size)
        device = _run("losetup", *flags, "--find", "--show", str(folder / "image")).strip()
        stack.callback(_run, "losetup", "--detach", device)
        yield device, folder


@contextmanager
def disk(
    size: int, options: str = "", features: Sequence[str] = (), throttled: int = 0, where: Optional[Path] = None
) -> Iterator[Disk]:
    """An ext4 of ``size`` bytes on a loop device; ``options`` are mount's, ``features`` mkfs.ext4's."""
    with loop(size, where) as (device, folder):
        _run("mkfs.ext4", "-q", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0", *features, device)
        with _on(device, folder / "disk", options, throttled) as made:
            yield made


@contextmanager
def btrfs(size: int, options: str = "", profile: str = "", throttled: int = 0) -> Iterator[Disk]:
    """A btrfs of ``size`` bytes; with a ``profile`` such as ``raid1`` on two devices of that size."""
    with ExitStack() as stack:
        # Past the cache of the files' own file system: counters of the disk below must tell of it.
        made = [stack.enter_context(loop(size, None, "--direct-io=on")) for _ in range(2 if profile else 1)]
        devices = [device for device, _ in made]
        ways = ("-d", profile, "-m", profile) if profile else ("-d", "single", "-m", "single")
        _run("mkfs.btrfs", "-q", *ways, *devices)
        together = ",".join([*options.split(","), *(f"device={d}" for d in devices)]).strip(",")
        yield stack.enter_context(_on(devices[0], made[0][1] / "disk", together, throttled))


@contextmanager
def _on(device: str, point: Path, options: str, throttled: int) -> Iterator[Disk]:
    """A device with a file system, mounted."""
    with ExitStack() as stack:
        point.mkdir()
        _run("mount", *(("-o", options) if options else ()), device, str(point))
        stack.callback(_unmount, point)
        made = Disk(point, _run("lsblk", "-dno", "MAJ:MIN", device).strip(), device)
        if throttled:
            stack.callback(made.throttle, 0)
            made.throttle(throttled)
        yield made


def space_quota(point: Path, size: int) -> None:
    """A limit of ``size`` bytes for everything that lies in a btrfs, as project quotas limit a folder."""
    _run("btrfs", "quota", "enable", str(point))
    _run("btrfs", "qgroup", "limit", str(size), str(point))


@contextmanager
def mounted(fstype: str, options: str = "", source: str = "accept-test") -> Iterator[Path]:
    """A file system without a device: tmpfs, ramfs, overlay."""
    with tempfile.TemporaryDirectory(prefix="accmount-", dir=VAR) as folder:
        point = Path(folder) / "mount"
        point.mkdir()
        _run("mount", "-t", fstype, *(("-o", options) if options else ()), source, str(point))
        try:
            yield point
        finally:
            _unmount(point)


@contextmanager
def overlay(upper: Path) -> Iterator[Path]:
    """An overlay whose writable layer lies in a folder."""
    for name in ("lower", "upper", "work"):
        (upper / name).mkdir()
    layers = f"lowerdir={upper / 'lower'},upperdir={upper / 'upper'},workdir={upper / 'work'}"
    with mounted("overlay", layers) as point:
        yield point


@dataclass(frozen=True)
class Snapshot:
    """Every file of a tree with its size, times and content; folders with their names and modes."""

    entries: frozenset[tuple[str, ...]] = field(default_factory=frozenset)


def snapshot(*trees: Path) -> Snapshot:
    """What must not change: names, modes, owners, sizes, times of change, contents. Links are not followed."""
    found: set[tuple[str, ...]] = set()
    for tree in trees:
        for folder, folders, files in os.walk(tree):
            for name in (*folders, *files):
                found.add(_entry(Path(folder) / name))
    return Snapshot(frozenset(found))


def _entry(path: Path) -> tuple[str, ...]:
    status = path.lstat()
    common = (str(path), oct(status.st_mode), f"{status.st_uid}:{status.st_gid}")
    if path.is_symlink():
        return (*common, os.readlink(path))
    if not path.is_file():
        return common
    content = hashlib.sha256(path.read_bytes()).hexdigest()
    return (*common, str(status.st_size), str(status.st_mtime_ns), content)


def _unmount(point: Path) -> None:
    _run("umount", str(point))


def _path() -> str:
    return f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


def _env() -> dict[str, str]:
    return {**os.environ, "PATH": _path(), "LC_ALL": "C"}


def _run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, env=_env(), stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 0, f"{argv}: {done.stderr}"
    return done.stdout
