"""The only door to the machine: ``run(probe, argv, timeout_s)`` and ``read(probe, files)``.

:class:`LiveHost` executes and records in one: streams go straight into evidence files, so what is judged is what
lies on disk. :class:`ReplayHost` answers from a recording and starts nothing. Answers are keyed by the probe's
logical name, not by argv, so that old recordings stay readable.
"""

from __future__ import annotations

import copy
import ctypes
import errno
import glob
import json
import os
import select
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Optional, Union

from agent.evidence import Store, read_json, write_json
from agent.reading import Known, Missing, Reading
from agent.text import Text, msg

OUTPUT_LIMIT = 64 << 20  # bytes of one stream; more is a runaway tool, not an answer
FILE_LIMIT = 1 << 20  # bytes kept of one file of /proc or /sys
TERM_GRACE_S = 3.0
KILL_GRACE_S = 5.0
TOKEN = "ACCEPT_PROBE"  # marks every process of ours, so that leftovers can be told from other people's
PR_SET_PDEATHSIG = 1
SCRATCH = ".accept-test-"  # folders of test files; the rest of the name is the agent's token
OWNER = "owner.json"
TEST_FILE = ".dat"  # how the names of all test files end

# Tools see the machine as delivered, but in one language. LD_PRELOAD stays: a slicing library that the vendor
# put there is part of what was delivered.
TOOL_ENV = (
    "PATH HOME USER LOGNAME TMPDIR LD_LIBRARY_PATH LD_PRELOAD CUDA_VISIBLE_DEVICES NVIDIA_VISIBLE_DEVICES "
    "http_proxy https_proxy no_proxy all_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY SSL_CERT_FILE "
    "SSL_CERT_DIR CONDA_PREFIX VIRTUAL_ENV XDG_RUNTIME_DIR DBUS_SESSION_BUS_ADDRESS"
).split()
# Workers get no more than they need: a forgotten NCCL_P2P_DISABLE or OMP_NUM_THREADS must not convict anybody.
WORKER_ENV = "PATH HOME TMPDIR LD_LIBRARY_PATH LD_PRELOAD CUDA_VISIBLE_DEVICES CUDA_HOME".split()


# Given to the one probe that uploads, and never recorded.
SECRET_ENV = frozenset("AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN ACCEPT_UPLOAD_AUTHORIZATION".split())
UPLOAD_ENV = (*SECRET_ENV, "AWS_REGION", "AWS_DEFAULT_REGION")
_UNRECORDED = SECRET_ENV | {"PATH", "HOME", "USER", "LOGNAME", TOKEN}


def credentials() -> dict[str, str]:
    """What this process was given to upload with, for the probe that does."""
    return {name: os.environ[name] for name in UPLOAD_ENV if name in os.environ}


@dataclass(frozen=True)
class Ran:
    """One answered or unanswered command. ``exit`` is None when the process gave no exit status."""

    probe: str
    argv: tuple[str, ...]
    started_at: str
    seconds: float
    exit: Optional[int] = None
    signal: Optional[int] = None
    timed_out: bool = False
    abandoned: bool = False
    start_error: Optional[str] = None  # ENOENT, EACCES …: the program could not be started
    over_limit: bool = False
    recorded: bool = True
    evidence: str = ""
    folder: Optional[Path] = None
    leftover: tuple[int, ...] = ()

    def bytes(self, name: str = "stdout") -> bytes:
        """A stream or result file of this probe; empty where the probe left none."""
        path = self.folder / name if self.folder else None
        return path.read_bytes() if path and path.is_file() else b""

    def has(self, name: str) -> bool:
        """Whether the probe left a file of that name."""
        return self.folder is not None and (self.folder / name).is_file()

    @property
    def stdout(self) -> str:
        return self.bytes("stdout").decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        return self.bytes("stderr").decode("utf-8", "replace")

    @property
    def cited(self) -> tuple[str, ...]:
        """The evidence as a reading keeps it."""
        return (self.evidence,) if self.evidence else ()

    def missing(self) -> Optional[Missing]:
        """Why there is no answer at all; None when the process ended by itself, with whatever status."""
        program = os.path.basename(self.argv[0]) if self.argv else self.probe
        if not self.recorded:
            return Missing("not-recorded", msg("the recording holds no “{probe}”", probe=self.probe))
        if self.start_error == "ENOENT":
            return Missing(
                "no-tool", msg("{tool} is not installed", tool=program), self.cited, msg("install {tool}", tool=program)
            )
        if self.start_error:
            detail = msg("{tool} could not be started: {error}", tool=program, error=self.start_error)
            return Missing("denied", detail, self.cited, msg("let this user execute {tool}", tool=program))
        if self.abandoned:
            return Missing("timeout", msg("{tool} hangs in the kernel and cannot be killed", tool=program), self.cited)
        if self.timed_out:
            seconds = f"{self.seconds:.0f}"
            return Missing("timeout", msg("{tool} gave no answer in {s} s", tool=program, s=seconds), self.cited)
        if self.over_limit:
            return Missing("unparsable", msg("{tool} printed more than 64 MiB", tool=program), self.cited)
        if self.signal is not None:
            detail = msg("{tool} was ended by signal {signal}", tool=program, signal=self.signal)
            return Missing("failed", detail, self.cited)
        return None


@dataclass(frozen=True)
class Files:
    """Files, links and names read in one probe."""

    probe: str
    texts: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    names: frozenset[str] = frozenset()
    errors: Mapping[str, str] = field(default_factory=dict)
    evidence: str = ""
    recorded: bool = True

    @property
    def cited(self) -> tuple[str, ...]:
        return (self.evidence,) if self.evidence else ()

    def text(self, path: str) -> Reading[str]:
        """The content of one file, without the trailing newline."""
        if path in self.texts:
            return Known(self.texts[path].rstrip("\n"), self.cited)
        return self._missing(path)

    def link(self, path: str) -> Reading[str]:
        """Where a symbolic link points."""
        if path in self.links:
            return Known(self.links[path], self.cited)
        return self._missing(path)

    def match(self, pattern: str) -> list[str]:
        """Recorded paths (files, links, names) that match a glob pattern, sorted."""
        known = {*self.texts, *self.links, *self.names}
        depth = pattern.count("/")
        return sorted(p for p in known if p.count("/") == depth and fnmatchcase(p, pattern))

    def exists(self, path: str) -> bool:
        """Whether the path was there when it was read."""
        return path in self.texts or path in self.links or path in self.names

    def _missing(self, path: str) -> Missing:
        if not self.recorded:
            return Missing("not-recorded", msg("the recording holds no “{probe}”", probe=self.probe))
        error = self.errors.get(path, "ENOENT")
        if error in ("EACCES", "EPERM"):
            return Missing("denied", msg("{path} may not be read", path=path), self.cited, _let_read(path))
        if error == "ENOENT":
            return Missing("not-there", msg("{path} does not exist", path=path), self.cited)
        return Missing("failed", msg("{path} cannot be read: {error}", path=path, error=error), self.cited)


def _let_read(path: str) -> Text:
    return msg("let this user read {path}", path=path)


@dataclass(frozen=True)
class Scratch:
    """A folder of ours for test files: its absolute path and the free bytes there (what this user may use)."""

    path: str
    free: int
    evidence: str = ""


class Host(ABC):
    """What checks, facts and benches may ask of a machine."""

    live: bool

    def __init__(self) -> None:
        # Every answer so far, in order: the runner cuts them into the records of its steps.
        self.log: list[Ran] = []
        self.cited: list[str] = []

    @abstractmethod
    def run(
        self,
        probe: str,
        argv: Sequence[str],
        timeout_s: float,
        *,
        worker: bool = False,
        extra_env: Optional[Mapping[str, str]] = None,
        cwd: Optional[str] = None,
        inputs: Optional[Mapping[str, bytes]] = None,
    ) -> Ran:
        """Run one program to its end or its deadline.

        ``{evidence}`` in an argument stands for the probe's own evidence folder, into which ``inputs`` are
        written first; result files that the program leaves there become part of the evidence.
        """

    @abstractmethod
    def read(
        self, probe: str, files: Sequence[str] = (), links: Sequence[str] = (), names: Sequence[str] = ()
    ) -> Files:
        """Contents of files, targets of links, mere existence of names; glob patterns allowed."""

    @abstractmethod
    def scratch(self, probe: str, where: str) -> Union[Scratch, Missing]:
        """A new folder for test files below ``where``, swept of what killed runs left there; see :meth:`clear`."""

    @abstractmethod
    def clear(self, scratch: Scratch) -> None:
        """Remove the folder's files and the folder."""

    @abstractmethod
    def sleep(self, seconds: float) -> None:
        """Wait; a replay does not."""

    def beside(self) -> Host:
        """The same machine and run folder for a second course of programs at the same time, with a log of its own."""
        other = copy.copy(self)
        other.log, other.cited = [], []
        return other

    @abstractmethod
    def stop_all(self) -> None:
        """End all programs that this host has running, from another thread."""

    def _logged(self, ran: Ran) -> Ran:
        self.log.append(ran)
        self.cited += ran.cited
        return ran

    def _noted(self, files: Files) -> Files:
        self.cited += files.cited
        return files

    def _swept(self, scratch: Union[Scratch, Missing]) -> Union[Scratch, Missing]:
        self.cited += [scratch.evidence] if isinstance(scratch, Scratch) else scratch.evidence
        return scratch

    def python(self) -> str:
        """The agent's own interpreter, for probes of its own."""
        return sys.executable


def utc_now() -> str:
    """Now, as every record writes it: ``2026-11-30T08:15:02.123Z``."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class LiveHost(Host):
    """This machine. ``root`` replaces ``/`` for :meth:`read`, for tests on a simulated node."""

    live = True

    def __init__(self, store: Store, root: Path = Path("/"), finished: Optional[Mapping[str, Path]] = None) -> None:
        super().__init__()
        self.store = store
        self.root = root
        self.token = f"{os.getpid()}-{time.time_ns()}"
        # Probes that a broken run already holds: answered from its evidence when it is resumed.
        self._finished = ReplayHost(store, finished) if finished else None

    def beside(self) -> Host:
        """With a token of its own: whoever ends one course's programs leaves the other's alone."""
        other = super().beside()
        assert isinstance(other, LiveHost)
        other.token = beside_token(self.token)
        return other

    def stop_all(self) -> None:
        end_marked(self.token)

    def run(
        self,
        probe: str,
        argv: Sequence[str],
        timeout_s: float,
        *,
        worker: bool = False,
        extra_env: Optional[Mapping[str, str]] = None,
        cwd: Optional[str] = None,
        inputs: Optional[Mapping[str, bytes]] = None,
    ) -> Ran:
        if self._finished is not None and self._finished.holds(probe):
            return self._logged(self._finished.run(probe, argv, timeout_s))
        folder = self.store.begin(probe)
        for name, data in (inputs or {}).items():
            (folder / name).write_bytes(data)
        command = [a.replace("{evidence}", str(folder.resolve())) for a in argv]
        env = self._environment(WORKER_ENV if worker else TOOL_ENV, extra_env)
        meta: dict[str, Any] = {
            "probe": probe,
            "kind": "run",
            "argv": command,
            "cwd": cwd,
            "timeout_s": timeout_s,
            "env": {k: env[k] for k in sorted(env) if k not in _UNRECORDED},
            "path": env.get("PATH"),
            "started_at": utc_now(),
        }
        begun = time.monotonic()
        try:
            outcome = _execute(command, env, cwd, folder, timeout_s)
        except BaseException:
            # Interrupted: no meta.json is left, so that a resumed run does not take this for an answer.
            write_json(folder / "interrupted.json", meta)
            raise
        meta.update(outcome, seconds=round(time.monotonic() - begun, 4))
        write_json(folder / "meta.json", meta)
        return self._logged(_ran(meta, self.store.name(folder), folder))

    def _environment(self, allowed: Sequence[str], extra: Optional[Mapping[str, str]]) -> dict[str, str]:
        env = {k: os.environ[k] for k in allowed if k in os.environ}
        env.update({"LC_ALL": "C.UTF-8", "LANG": "C.UTF-8", TOKEN: self.token})
        env.setdefault("PATH", os.defpath)
        # Administrative tools (lspci, dmidecode, smartctl) lie outside the PATH of ordinary users.
        have = env["PATH"].split(os.pathsep)
        env["PATH"] = os.pathsep.join([*have, *(d for d in ("/usr/sbin", "/sbin") if d not in have)])
        env.update(extra or {})
        return env

    def read(
        self, probe: str, files: Sequence[str] = (), links: Sequence[str] = (), names: Sequence[str] = ()
    ) -> Files:
        if self._finished is not None and self._finished.holds(probe):
            return self._noted(self._finished.read(probe))
        folder = self.store.begin(probe)
        meta: dict[str, Any] = {"probe": probe, "kind": "read", "started_at": utc_now()}
        errors: dict[str, str] = {}
        stored: dict[str, str] = {}
        for path in self._expand(files):
            content, error = _read_file(self._real(path))
            if error:
                errors[path] = error
            else:
                if not stored:
                    (folder / "files").mkdir(exist_ok=True)
                name = f"files/{path.strip('/').replace('/', '__')}"[:200]
                with open(f"{folder}/{name}", "wb") as kept:  # a Path for each of a thousand files takes its time
                    kept.write(content)
                stored[path] = name
        targets: dict[str, str] = {}
        for path in self._expand(links):
            try:
                targets[path] = os.readlink(self._real(path))
            except OSError as error_:
                errors[path] = errno.errorcode.get(error_.errno or 0, "EIO")
        present = [p for p in self._expand(names) if os.path.lexists(self._real(p))]
        meta.update(files=stored, links=targets, names=present, errors=errors)
        write_json(folder / "meta.json", meta)
        return self._noted(_files(meta, self.store.name(folder), folder))

    def scratch(self, probe: str, where: str) -> Union[Scratch, Missing]:
        if self._finished is not None and self._finished.holds(probe):
            return self._swept(self._finished.scratch(probe, where))
        folder = self.store.begin(probe)
        meta: dict[str, Any] = {"probe": probe, "kind": "scratch", "where": where, "started_at": utc_now()}
        sweep_scratch(Path(where))
        path = Path(where).resolve() / f"{SCRATCH}{self.token}"
        try:
            path.mkdir(mode=0o700)
            (path / OWNER).write_text(json.dumps({"pid": os.getpid(), "start": _start_time(os.getpid())}))
            usage = os.statvfs(path)
            meta.update(path=str(path), free=usage.f_bavail * usage.f_frsize)
        except OSError as error:
            meta["error"] = errno.errorcode.get(error.errno or 0, "EIO")
            with suppress(OSError):
                _remove_scratch(path)
        write_json(folder / "meta.json", meta)
        return self._swept(_scratch(meta, self.store.name(folder)))

    def clear(self, scratch: Scratch) -> None:
        _remove_scratch(Path(scratch.path))

    def _real(self, path: str) -> str:
        return path if self.root == Path("/") else str(self.root / path.lstrip("/"))

    def _expand(self, patterns: Sequence[str]) -> list[str]:
        found: dict[str, None] = {}
        prefix = len(str(self.root)) if self.root != Path("/") else 0
        for pattern in patterns:
            if glob.has_magic(pattern):
                found.update(dict.fromkeys(p[prefix:] for p in sorted(glob.glob(self._real(pattern)))))
            else:
                found[pattern] = None
        return list(found)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class ReplayHost(Host):
    """A recording. Starts no process, waits for nothing; what was not recorded is missing."""

    live = False

    def __init__(self, store: Store, recorded: Optional[Mapping[str, Path]] = None) -> None:
        super().__init__()
        self.store = store
        self._recorded = dict(store.recorded() if recorded is None else recorded)

    def holds(self, probe: str) -> bool:
        """Whether the recording answers this probe."""
        return probe in self._recorded

    def run(
        self,
        probe: str,
        argv: Sequence[str],
        timeout_s: float,
        *,
        worker: bool = False,
        extra_env: Optional[Mapping[str, str]] = None,
        cwd: Optional[str] = None,
        inputs: Optional[Mapping[str, bytes]] = None,
    ) -> Ran:
        folder = self._recorded.get(probe)
        if folder is None:
            return Ran(probe, tuple(argv), "", 0.0, recorded=False)
        return self._logged(_ran(read_json(folder / "meta.json"), self.store.name(folder), folder))

    def read(
        self, probe: str, files: Sequence[str] = (), links: Sequence[str] = (), names: Sequence[str] = ()
    ) -> Files:
        folder = self._recorded.get(probe)
        if folder is None:
            return Files(probe, recorded=False)
        return self._noted(_files(read_json(folder / "meta.json"), self.store.name(folder), folder))

    def scratch(self, probe: str, where: str) -> Union[Scratch, Missing]:
        folder = self._recorded.get(probe)
        if folder is None:
            return Missing("not-recorded", msg("the recording holds no “{probe}”", probe=probe))
        return self._swept(_scratch(read_json(folder / "meta.json"), self.store.name(folder)))

    def clear(self, scratch: Scratch) -> None:
        return

    def stop_all(self) -> None:
        """A replay has none."""

    def sleep(self, seconds: float) -> None:
        return


def _scratch(meta: Mapping[str, Any], evidence: str) -> Union[Scratch, Missing]:
    error, where = meta.get("error"), meta["where"]
    if error is None:
        return Scratch(meta["path"], meta["free"], evidence)
    if error in ("EACCES", "EPERM"):
        grant = msg("let this user write to {path}", path=where)
        return Missing("denied", msg("no test file may be written to {path}", path=where), (evidence,), grant)
    if error in ("ENOENT", "ENOTDIR"):
        return Missing("not-there", msg("{path} is no folder of this machine", path=where), (evidence,))
    if error == "EROFS":
        grant = msg("mount {path} writable", path=where)
        return Missing("denied", msg("{path} is mounted read-only", path=where), (evidence,), grant)
    if error in ("ENOSPC", "EDQUOT"):
        full = msg("{path} is full", path=where)
        spent = msg("this user's quota on {path} is used up", path=where)
        grant = msg("free space on {path}", path=where)
        return Missing("failed", spent if error == "EDQUOT" else full, (evidence,), grant)
    return Missing(
        "failed", msg("no test file can be written to {path}: {error}", path=where, error=error), (evidence,)
    )


def sweep_scratch(where: Path) -> None:
    """Remove test folders of agents that died here, and end what they left running. Others' files stay."""
    try:
        candidates = [p for p in where.glob(f"{SCRATCH}*") if p.is_dir() and not p.is_symlink()]
    except OSError:
        return  # where nothing can be listed, nothing of ours can be removed; creating will say why
    for path in candidates:
        try:
            owner = json.loads((path / OWNER).read_text())
            alive = _start_time(int(owner["pid"])) == owner["start"]
        except (OSError, ValueError, KeyError, TypeError):
            continue  # not readable as ours: not ours to remove
        if not alive:
            end_marked(path.name[len(SCRATCH) :])
            with suppress(OSError):
                _remove_scratch(path)


def _remove_scratch(path: Path) -> None:
    """Our own files, then the folder; a file that somebody else put there keeps the folder alive."""
    if not path.is_dir():
        return
    for file in [*path.glob(f"*{TEST_FILE}"), path / OWNER]:
        with suppress(FileNotFoundError):
            file.unlink()
    try:
        path.rmdir()
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise


def _start_time(pid: int) -> Optional[str]:
    """Field 22 of /proc/PID/stat: tells a reused pid from the process that was meant (proc(5))."""
    content, error = _read_file(f"/proc/{pid}/stat")
    return None if error else content.rpartition(b")")[2].split()[19].decode()


def _ran(meta: Mapping[str, Any], evidence: str, folder: Path) -> Ran:
    return Ran(
        probe=meta["probe"],
        argv=tuple(meta["argv"]),
        started_at=meta["started_at"],
        seconds=meta["seconds"],
        exit=meta.get("exit"),
        signal=meta.get("signal"),
        timed_out=bool(meta.get("timed_out")),
        abandoned=bool(meta.get("abandoned")),
        start_error=meta.get("start_error"),
        over_limit=bool(meta.get("over_limit")),
        leftover=tuple(meta.get("leftover", ())),
        evidence=evidence,
        folder=folder,
    )


def _files(meta: Mapping[str, Any], evidence: str, folder: Path) -> Files:
    texts = {p: (folder / n).read_bytes().decode("utf-8", "replace") for p, n in meta.get("files", {}).items()}
    return Files(
        probe=meta["probe"],
        texts=texts,
        links=meta.get("links", {}),
        names=frozenset(meta.get("names", ())),
        errors=meta.get("errors", {}),
        evidence=evidence,
    )


def _read_file(path: str) -> tuple[bytes, Optional[str]]:
    try:
        # O_NONBLOCK: a FIFO in the place of a file must not hold the agent up.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as source:
            return source.read(FILE_LIMIT), None
    except OSError as error:
        return b"", errno.errorcode.get(error.errno or 0, "EIO")


_LIBC = ctypes.CDLL(None, use_errno=True)


def _die_with_parent() -> None:
    """In the child before exec: a killed agent takes its tools with it (Linux prctl(2) PR_SET_PDEATHSIG)."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _execute(
    argv: list[str], env: Mapping[str, str], cwd: Optional[str], folder: Path, timeout_s: float
) -> dict[str, Any]:
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=cwd,
                env=dict(env),
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        except OSError as error:
            return {"exit": None, "start_error": errno.errorcode.get(error.errno or 0, str(error))}
    try:
        ended, over = _wait(process, folder, timeout_s)
    except BaseException:
        _stop(process, env[TOKEN])
        raise
    outcome: dict[str, Any] = {"timed_out": False}
    if not ended:
        outcome["timed_out"] = not over
        outcome["over_limit"] = over
        outcome["abandoned"] = not _stop(process, env[TOKEN])
    elif left := _group_alive(process.pid):
        outcome["leftover"] = left
        _stop(process, env[TOKEN])
    code = process.returncode
    outcome["exit"] = code if code is not None and code >= 0 else None
    outcome["signal"] = -code if code is not None and code < 0 else None
    return outcome


def _wait(process: subprocess.Popen[bytes], folder: Path, timeout_s: float) -> tuple[bool, bool]:
    """(ended by itself, printed too much). Polls, so that a flood of output is seen before it fills the disk."""
    deadline = time.monotonic() + timeout_s
    pause = 0.002
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            return process.poll() is not None, False
        try:
            process.wait(min(left, pause))
            return True, False
        except subprocess.TimeoutExpired:
            pause = min(pause * 2, 0.25)
        if any((folder / s).stat().st_size > OUTPUT_LIMIT for s in ("stdout", "stderr")):
            return False, True


def _stop(process: subprocess.Popen[bytes], token: str) -> bool:
    """TERM, then KILL, to the group and to what left it; False when it cannot be killed (D state)."""
    for sign, grace in ((signal.SIGTERM, TERM_GRACE_S), (signal.SIGKILL, KILL_GRACE_S)):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, sign)
        deadline = time.monotonic() + grace
        while time.monotonic() < deadline:
            if process.poll() is not None and not _group_alive(process.pid):
                break
            time.sleep(0.02)
        else:
            continue
        break
    for pid in marked(token):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return process.poll() is not None


def _group_alive(pgid: int) -> list[int]:
    """Members of a process group that still run (zombies do not count)."""
    alive = []
    for stat in glob.glob("/proc/[0-9]*/stat"):
        content, error = _read_file(stat)
        if error:
            continue
        fields = content.rpartition(b")")[2].split()
        if len(fields) > 2 and int(fields[2]) == pgid and fields[0] not in (b"Z", b"X"):
            alive.append(int(stat.split("/")[2]))
    return alive


def marked(token: str) -> list[int]:
    """Processes (other than this one) that carry ``token``: descendants of one agent, wherever they moved."""
    needle = f"{TOKEN}={token}".encode()
    found = []
    for environ in glob.glob("/proc/[0-9]*/environ"):
        pid = int(environ.split("/")[2])
        content, error = _read_file(environ)
        if not error and pid != os.getpid() and needle in content.split(b"\0"):
            found.append(pid)
    return found


def beside_token(token: str) -> str:
    """Of the programs that an agent runs beside those of ``token``."""
    return f"{token}-beside"


def end_marked(token: str) -> None:
    """Kill what an agent that was itself killed has left running."""
    for pid in marked(token):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


class Dialogue:
    """A child that answers each line on its stdin with one line on its stdout: for what is asked again and again.

    Ends with the agent, however the agent ends. What it writes to stderr is dropped.
    """

    def __init__(self, argv: Sequence[str]) -> None:
        """Raises OSError where it cannot be started."""
        env = {k: os.environ[k] for k in TOOL_ENV if k in os.environ}
        self.token = f"{os.getpid()}-{time.time_ns()}"
        self._rest = b""
        self._process = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**env, "LC_ALL": "C.UTF-8", "LANG": "C.UTF-8", TOKEN: self.token},
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )

    def ask(self, line: str, timeout_s: float) -> Optional[str]:
        """Its answer; None where none came in time or it has ended."""
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(line.encode() + b"\n")
            stdin.flush()
        except (BrokenPipeError, ConnectionResetError):
            return None
        return self.hear(timeout_s)

    def hear(self, timeout_s: float) -> Optional[str]:
        """Its next line without asking."""
        stdout = self._process.stdout
        assert stdout is not None
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._rest:
            ready, _, _ = select.select([stdout], [], [], max(0.0, deadline - time.monotonic()))
            more = os.read(stdout.fileno(), 1 << 16) if ready else b""
            if not more or len(self._rest) > OUTPUT_LIMIT:
                return None
            self._rest += more
        first, _, self._rest = self._rest.partition(b"\n")
        return first.decode("utf-8", "replace")

    def end(self) -> bool:
        """TERM, then KILL; False where it hangs in the kernel."""
        ended = _stop(self._process, self.token)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        return ended


def spawn_detached(argv: Sequence[str], log: Path) -> int:
    """Start the agent again in a session of its own, with its output in ``log``; returns the pid."""
    with log.open("ab") as out:
        process = subprocess.Popen(list(argv), stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
    return process.pid
