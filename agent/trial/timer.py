"""A timer that goes on with a trial after every reboot: a systemd unit of the system or of the user, or a cron line.

All three call ``accept trial run --dir DIR --due`` every few minutes, which does what is due and returns; the lock of
the trial folder keeps two from running together. Texts are made and taken apart by pure functions; :func:`install`
and :func:`uninstall` write them, and leave every file and line of others as it was.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Optional

from agent.evidence import write_atomic
from agent.host import Host, Ran
from agent.text import Text, msg

Kind = Literal["system", "user", "cron"]
PREFIX = "accept-trial-"
SYSTEM_UNITS = Path("/etc/systemd/system")
TIMEOUT_S = 30.0
STEP_MIN_S, STEP_MAX_S = 60.0, 600.0
STEPS = 24.0  # so many looks at the clock between two runs, at least a minute and at most ten apart
LOG = "timer.log"


class TimerError(Exception):
    """Why it cannot be installed or taken away, in one sentence."""

    def __init__(self, text: Text) -> None:
        super().__init__(str(text))
        self.text = text


@dataclass(frozen=True)
class Timer:
    """``command``: argv of this accept; ``path``: the PATH with the tools; ``every_s``: between two runs.

    ``options``: what each ``trial run`` is told besides its folder.
    """

    folder: Path
    command: Sequence[str]
    path: str
    every_s: float
    options: Sequence[str] = ()

    @property
    def name(self) -> str:
        return name_of(self.folder)

    @property
    def step_min(self) -> int:
        """Minutes between two looks at the clock."""
        return round(min(max(self.every_s / STEPS, STEP_MIN_S), STEP_MAX_S) / 60)

    @property
    def argv(self) -> list[str]:
        return [*self.command, "trial", "run", "--dir", str(self.folder), "--due", *self.options]


def name_of(folder: Path) -> str:
    """The same for the same folder: what is installed for it is found again without a record."""
    return PREFIX + hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:10]


# ---------------------------------------------------------------- texts


def service_text(timer: Timer) -> str:
    """systemd.service(5)."""
    return (
        "[Unit]\n"
        f"Description=accept trial in {_one_line(str(timer.folder))}\n"
        "After=network-online.target\n"
        "\n"
        "[Service]\n"
        "Type=oneshot\n"
        f"WorkingDirectory={_specifiers(str(timer.folder))}\n"
        f"Environment={_quoted('PATH=' + timer.path)}\n"
        f"ExecStart={' '.join(_quoted(a, variables=True) for a in timer.argv)}\n"
        # A trial that is busy (2), or judged at its end, is no fault of the unit.
        "SuccessExitStatus=0 1 2 3\n"
        "TimeoutStartSec=infinity\n"
    )


def timer_text(timer: Timer) -> str:
    """systemd.timer(5): soon after a boot, then again and again after each call."""
    return (
        "[Unit]\n"
        f"Description=accept trial in {_one_line(str(timer.folder))}\n"
        "\n"
        "[Timer]\n"
        "OnActiveSec=1s\n"
        "OnBootSec=2min\n"
        f"OnUnitInactiveSec={timer.step_min}min\n"
        "AccuracySec=1s\n"
        "\n"
        "[Install]\n"
        "WantedBy=timers.target\n"
    )


def _one_line(text: str) -> str:
    return _specifiers("".join(c if c.isprintable() else "?" for c in text))


def _specifiers(text: str) -> str:
    return text.replace("%", "%%")


def _quoted(word: str, variables: bool = False) -> str:
    """As systemd.syntax(7) reads it again; ``$`` means something in a command line only."""
    escaped = _specifiers(word).replace("\\", "\\\\").replace('"', '\\"')
    escaped = "".join(c if c.isprintable() else "".join(f"\\x{b:02x}" for b in c.encode()) for c in escaped)
    return f'"{escaped.replace("$", "$$") if variables else escaped}"'


def cron_line(timer: Timer) -> str:
    """crontab(5); a percent sign would end the command there."""
    argv = " ".join(shlex.quote(a) for a in timer.argv)
    log = shlex.quote(str(timer.folder / LOG))
    command = f"PATH={shlex.quote(timer.path)} {argv} >>{log} 2>&1".replace("%", "\\%")
    return f"*/{timer.step_min} * * * * {command} # {timer.name}"


def with_line(crontab: str, line: str, name: str) -> str:
    """The crontab with this line in the place of an older one of the same name; others' lines as they are."""
    rest = without_line(crontab, name)
    gap = "" if not rest or rest.endswith("\n") else "\n"
    return f"{rest}{gap}{line}\n"


def without_line(crontab: str, name: str) -> str:
    """The crontab without our line."""
    return "".join(row for row in crontab.splitlines(keepends=True) if not row.rstrip("\n").endswith(f"# {name}"))


# ---------------------------------------------------------------- systemd and cron


@dataclass(frozen=True)
class Installed:
    """``what``: files, or the crontab, that hold it; ``note``: what the user must know."""

    kind: Kind
    what: tuple[str, ...]
    note: Optional[Text] = None


def install(host: Host, timer: Timer, kind: Optional[Kind] = None) -> Installed:
    """Write and start it; the best of what this machine has where no ``kind`` is asked for. :class:`TimerError`."""
    if not str(timer.folder).isprintable():
        raise TimerError(msg("a timer needs a folder whose name has no control characters"))
    chosen = kind or choose(host)
    if chosen is None:
        raise TimerError(
            msg(
                "neither systemd nor cron can be used here; instead: nohup accept trial run --dir {folder} &",
                folder=str(timer.folder),
            )
        )
    return _install_cron(host, timer) if chosen == "cron" else _install_units(host, timer, chosen)


def choose(host: Host) -> Optional[Kind]:
    """The system's timers for root, else the user's, else cron; None where there is none of them."""
    if os.geteuid() == 0 and _runs(host, "system"):
        return "system"
    if os.geteuid() != 0 and _runs(host, "user"):
        return "user"
    listed = host.run("trial-crontab-there", ["crontab", "-l"], TIMEOUT_S)
    return "cron" if listed.missing() is None and _table(listed) is not None else None


def _runs(host: Host, kind: Kind) -> bool:
    """Whether systemd answers; a container has the program but no manager."""
    ran = host.run(f"trial-systemd-{kind}", [*_systemctl(kind), "is-system-running"], TIMEOUT_S)
    return ran.missing() is None and ran.stdout.strip() in ("running", "degraded", "starting")


def _systemctl(kind: Kind) -> list[str]:
    return ["systemctl", "--user"] if kind == "user" else ["systemctl"]


def units(kind: Kind) -> Path:
    """Where the units of this kind lie."""
    if kind == "system":
        return SYSTEM_UNITS
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(home) / "systemd" / "user"


def _install_units(host: Host, timer: Timer, kind: Kind) -> Installed:
    folder = units(kind)
    files = (folder / f"{timer.name}.service", folder / f"{timer.name}.timer")
    try:
        made = _make(folder)
        write_atomic(files[0], service_text(timer).encode())
        write_atomic(files[1], timer_text(timer).encode())
    except OSError as error:
        _remove_files(files)
        raise TimerError(
            msg("{path} cannot be written: {error}", path=str(folder), error=error.strerror or str(error))
        ) from error
    for arguments in (["daemon-reload"], ["enable", "--now", f"{timer.name}.timer"]):
        ran = host.run(f"trial-{arguments[0]}", [*_systemctl(kind), *arguments], TIMEOUT_S)
        if not _went_well(ran):
            _remove_units(host, timer.name, kind)
            _unmake(folder, made)
            raise TimerError(msg("systemd refused the timer: {error}", error=_said(ran)))
    return Installed(kind, tuple(map(str, files)), _linger(host) if kind == "user" else None)


def _make(folder: Path) -> list[Path]:
    """The folders that had to be made, the deepest first."""
    absent = [p for p in (folder, *folder.parents) if not p.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    return absent


def _unmake(folder: Path, made: Sequence[Path]) -> None:
    for path in made if made else ():
        try:
            path.rmdir()
        except OSError:
            return  # somebody else uses it by now


def _linger(host: Host) -> Optional[Text]:
    """Without lingering a user's timers stop when he logs out."""
    ran = host.run("trial-linger", ["loginctl", "show-user", str(os.geteuid()), "--property=Linger"], TIMEOUT_S)
    if ran.missing() is None and ran.stdout.strip() == "Linger=yes":
        return None
    return msg("it runs only while you are logged in, unless lingering is on: loginctl enable-linger")


def _install_cron(host: Host, timer: Timer) -> Installed:
    before = _crontab(host)
    _set_crontab(host, timer.folder, with_line(before, cron_line(timer), timer.name))
    return Installed("cron", ("crontab",), _cron_daemon(host))


def _cron_daemon(host: Host) -> Optional[Text]:
    """A container often has the program ``crontab`` and nobody who reads what it wrote."""
    ran = host.run("trial-cron-daemon", ["pgrep", "-x", "cron|crond|fcron|fcrond"], TIMEOUT_S)
    if ran.missing() is not None or ran.exit != 1:  # 1: there is none; all else tells nothing
        return None
    return msg("no cron daemon runs here, so nothing will happen until it is started (as root: service cron start)")


def _crontab(host: Host) -> str:
    ran = host.run("trial-crontab", ["crontab", "-l"], TIMEOUT_S)
    found = _table(ran) if ran.missing() is None else None
    if found is None:
        raise TimerError(msg("the crontab cannot be read: {error}", error=_said(ran)))
    return found


def _table(ran: Ran) -> Optional[str]:
    """The user's crontab, empty where he has none; None where he may have none or cron fails."""
    if ran.exit == 0:
        return ran.bytes("stdout").decode("utf-8", "surrogateescape")
    return "" if "no crontab for" in ran.stderr else None


def _set_crontab(host: Host, folder: Path, text: str) -> None:
    """Through a file of ours: ``crontab FILE``."""
    path = folder / ".crontab.new"
    try:
        write_atomic(path, text.encode("utf-8", "surrogateescape"))
        ran = host.run("trial-crontab-set", ["crontab", str(path)], TIMEOUT_S)
    except OSError as error:
        raise TimerError(
            msg("{path} cannot be written: {error}", path=str(path), error=error.strerror or str(error))
        ) from error
    finally:
        path.unlink(missing_ok=True)
    if not _went_well(ran):
        raise TimerError(msg("cron refused the line: {error}", error=_said(ran)))


def _went_well(ran: Ran) -> bool:
    return ran.missing() is None and ran.exit == 0


def _said(ran: Ran) -> str:
    missing = ran.missing()
    if missing is not None:
        return str(missing.detail)
    return (ran.stderr.strip() or ran.stdout.strip()).split("\n")[0][:200]


def uninstall(host: Host, folder: Path) -> tuple[str, ...]:
    """Take away whatever of the three is there for this folder; what was taken. :class:`TimerError`."""
    name = name_of(folder)
    taken: list[str] = []
    kinds: tuple[Kind, ...] = ("system", "user")
    for kind in kinds:
        files = [units(kind) / f"{name}.{end}" for end in ("service", "timer")]
        if any(f.exists() for f in files):
            _remove_units(host, name, kind)
            left = [str(f) for f in files if f.exists()]
            if left:
                raise TimerError(msg("{path} cannot be removed: it takes the user who installed it", path=left[0]))
            taken += map(str, files)
    listed = host.run("trial-crontab-there", ["crontab", "-l"], TIMEOUT_S)
    before = _table(listed) if listed.missing() is None else None
    if before is not None and (after := without_line(before, name)) != before:
        if after:
            _set_crontab(host, folder if folder.is_dir() else Path.cwd(), after)
        elif not _went_well(ran := host.run("trial-crontab-remove", ["crontab", "-r"], TIMEOUT_S)):
            raise TimerError(msg("cron refused the line: {error}", error=_said(ran)))
        taken.append("crontab")
    return tuple(taken)


def _remove_units(host: Host, name: str, kind: Kind) -> None:
    """Also where the manager does not answer any more: then the links that it made are removed by hand."""
    host.run("trial-disable", [*_systemctl(kind), "disable", "--now", f"{name}.timer"], TIMEOUT_S)
    folder = units(kind)
    _remove_files(
        (folder / "timers.target.wants" / f"{name}.timer", *(folder / f"{name}.{e}" for e in ("timer", "service")))
    )
    wants = folder / "timers.target.wants"
    if wants.is_dir() and not any(wants.iterdir()) and os.access(folder, os.W_OK):
        wants.rmdir()
    host.run("trial-reload", [*_systemctl(kind), "daemon-reload"], TIMEOUT_S)


def _remove_files(files: Sequence[Path]) -> None:
    for path in files:
        try:
            path.unlink()
        except (FileNotFoundError, PermissionError):
            continue  # the caller looks what is left
