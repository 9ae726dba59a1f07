"""A container-like place to run in: an ordinary user without capabilities, io_uring forbidden, limited CPU.

Needs root to be made. io_uring is forbidden as container engines do it, by a seccomp filter on ``io_uring_setup``.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

CHECKOUT = Path(__file__).parents[1]
PARTS = ("agent", "benchmarks", "contracts", "reports")
PACKAGES = "click jinja2 markupsafe psutil pynvml ruamel.yaml rich pygments markdown_it mdurl".split()
NOBODY = 65534
CPU = Path("/sys/fs/cgroup/cpu")
PYTHON = "/usr/bin/python3"

# struct sock_filter: code, jump if true, jump if false, value. io_uring_setup has number 425 on all architectures.
FORBID = """
import ctypes, os, struct, sys
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, 425), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
code = b"".join(struct.pack("HBBI", *rule) for rule in rules)
buffer = ctypes.create_string_buffer(code)
program = struct.pack("HxxxxxxP", len(rules), ctypes.addressof(buffer))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.create_string_buffer(program), 0, 0):
    sys.exit(f"no seccomp: {os.strerror(ctypes.get_errno())}")
os.execvp(sys.argv[1], sys.argv[1:])
"""


def unavailable() -> Optional[str]:
    """Why no such place can be made here, or None."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [tool for tool in ("setpriv", PYTHON) if shutil.which(tool) is None]
    if missing:
        return f"needs {', '.join(missing)}"
    tried = subprocess.run([PYTHON, "-c", FORBID, "true"], capture_output=True, text=True, check=False)
    return tried.stderr.strip() or None


def deliver(folder: Path) -> Path:
    """A copy of the agent and of what it imports that everybody may read: checkouts often lie in a private home."""
    for part in PARTS:
        shutil.copytree(CHECKOUT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    for name in PACKAGES:
        found = importlib.util.find_spec(name)
        assert found is not None, f"{name} is not installed"
        assert found.submodule_search_locations or found.origin, name
        target = folder.joinpath(*name.split("."))
        if found.submodule_search_locations:
            shutil.copytree(next(iter(found.submodule_search_locations)), target)
        else:
            shutil.copy(str(found.origin), target.with_suffix(".py"))
    return folder


@dataclass(frozen=True)
class Sandbox:
    """Commands run in it as nobody, whose folder is ``home``; ``cpu`` is its control group, if there is one."""

    delivered: Path
    home: Path
    cpu: Optional[Path]

    def accept(self, *args: str, timeout: float = 240) -> subprocess.CompletedProcess[str]:
        """The agent's command, to its end."""
        user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        bare = ["--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"]
        inside = [PYTHON, "-c", FORBID, PYTHON, "-m", "agent.cli.main", *args]
        entered = f'echo $$ > "{self.cpu}/cgroup.procs" && ' if self.cpu else ""
        argv = ["sh", "-c", f'{entered}exec "$@"', "sh", *user, *bare, *inside]
        env = {"PATH": "/usr/bin:/bin", "HOME": str(self.home), "LANG": "C.UTF-8", "PYTHONPATH": str(self.delivered)}
        env["PYTHONDONTWRITEBYTECODE"] = "1"
        return subprocess.run(
            argv,
            cwd=self.home,
            env=env,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            stdin=subprocess.DEVNULL,
        )


@contextmanager
def sandbox(cpus: float) -> Iterator[Sandbox]:
    """A place with this many CPUs where control groups of version 1 are there."""
    with tempfile.TemporaryDirectory(prefix="accsandbox-", dir="/var/tmp") as name:
        folder, home = Path(name), Path(name) / "home"
        folder.chmod(0o755)
        home.mkdir()
        os.chown(home, NOBODY, NOBODY)
        with limited(cpus) as group:
            yield Sandbox(deliver(folder / "delivered"), home, group)


@contextmanager
def limited(cpus: float) -> Iterator[Optional[Path]]:
    """A control group that gets so much of the CPUs; None where there is none of version 1."""
    if not (CPU / "cgroup.procs").exists():
        yield None
        return
    group = CPU / f"accept-test-{os.getpid()}"
    group.mkdir()
    try:
        (group / "cpu.cfs_period_us").write_text("100000")
        (group / "cpu.cfs_quota_us").write_text(str(int(cpus * 100000)))
        yield group
    finally:
        group.rmdir()
