"""Timers of a trial: valid texts, installed and taken away without a trace, others' lines left as they were."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.trial import timer
from agent.trial.timer import Timer

CONTRACT = (
    'version: 1\ncontract: {id: t}\ncpu: {vcpus: ">= 1"}\ntrial: {days: 3, every: 4 h, timezone: Asia/Shanghai}\n'
)
FOLDERS = [
    "/srv/trial",
    "/srv/a b",
    "/srv/100%",
    '/srv/"quoted"',
    "/srv/$HOME",
    "/srv/it's",
    "/srv/验收",
    "/srv/back\\slash",
]

# A systemctl that does what `enable` and `disable` do to files, and answers as a running manager.
SYSTEMCTL = """#!/bin/sh
units={units}
case "$*" in
*is-system-running*) echo {state};;
*enable*) case "$*" in
  *disable*) rm -f "$units"/timers.target.wants/*;;
  *) [ -e "$units/$(basename "$4$3" | sed 's/--now//')" ] || true
     mkdir -p "$units/timers.target.wants"; for a; do last=$a; done
     [ -f "$units/$last" ] || {{ echo "Unit $last not found." >&2; exit 1; }}
     ln -s "$units/$last" "$units/timers.target.wants/$last";;
  esac;;
esac
echo "$*" >> {log}
"""
CRONTAB = """#!/bin/sh
table={table}
case "$1" in
-l) [ -e "$table" ] || {{ echo "no crontab for $(id -un)" >&2; exit 1; }}; cat "$table";;
-r) rm "$table";;
*) cp "$1" "$table";;
esac
"""


@pytest.fixture
def contract(tmp_path: Path) -> Path:
    path = tmp_path / "contract.yaml"
    path.write_text(CONTRACT)
    return path


@pytest.fixture
def shims(tmp_path: Path) -> dict[str, str]:
    """Programs in the place of systemd and cron, and a home of their own."""
    folder = tmp_path / "bin"
    folder.mkdir()
    units = tmp_path / "home" / ".config" / "systemd" / "user"
    (tmp_path / "home").mkdir()
    write(folder / "systemctl", SYSTEMCTL.format(units=units, state="running", log=tmp_path / "systemctl.log"))
    write(folder / "crontab", CRONTAB.format(table=tmp_path / "table"))
    write(folder / "loginctl", "#!/bin/sh\necho Linger=no\n")
    return {
        **{k: v for k, v in os.environ.items() if k not in ("XDG_CONFIG_HOME", "XDG_RUNTIME_DIR")},
        "PATH": f"{folder}:{os.environ['PATH']}",
        "HOME": str(tmp_path / "home"),
    }


def write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def accept(*arguments: object, **more: Any) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "agent", "trial", *map(str, arguments), "--lang", "en"]
    done: subprocess.CompletedProcess[str] = subprocess.run(argv, capture_output=True, text=True, timeout=60, **more)
    return done


def tree(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*")}


def a_timer(folder: str = "/srv/trial", every_s: float = 4 * 3600) -> Timer:
    return Timer(Path(folder), ["/usr/bin/python3", "-m", "agent"], "/usr/bin:/bin", every_s)


# ---------------------------------------------------------------- texts


@pytest.mark.parametrize("folder", FOLDERS)
def test_cron_runs_the_command_that_was_meant(folder: str) -> None:
    job = a_timer(folder)
    line = timer.cron_line(job)
    minute, *stars, command = line.split(" ", 5)
    assert minute == "*/10"
    assert stars == ["*"] * 4
    # crontab(5): an escaped percent sign is a percent sign; one that is not ends the command.
    assert not re.search(r"(?<!\\)%", command)
    words = shlex.split(command.replace("\\%", "%"), comments=True)
    assert words[0] == "PATH=/usr/bin:/bin"
    assert words[1:-2] == job.argv
    assert words[-2:] == [f">>{folder}/timer.log", "2>&1"]


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_finds_no_fault_in_the_units(folder: str, tmp_path: Path) -> None:
    job = Timer(Path(folder), [sys.executable, "-m", "agent"], "/usr/bin:/bin", 3600.0)
    files = [tmp_path / "accept-trial.service", tmp_path / "accept-trial.timer"]
    files[0].write_text(timer.service_text(job))
    files[1].write_text(timer.timer_text(job))
    done = subprocess.run(["systemd-analyze", "verify", *map(str, files)], capture_output=True, text=True)
    # The folders of this test do not exist; nothing else may be wrong with it.
    assert (done.returncode, [line for line in done.stderr.splitlines() if str(tmp_path) in line]) == (0, [])


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12), min_size=1))
def test_a_unit_holds_every_word_on_one_line(words: list[str]) -> None:
    text = timer.service_text(Timer(Path("/srv/x"), words, "/bin", 60.0))
    (start,) = [line for line in text.splitlines() if line.startswith("ExecStart=")]
    assert start.count("\n") == 0
    read = [unquoted(w) for w in re.findall(r'"((?:[^"\\]|\\.)*)"', start)]
    assert read[: len(words)] == words


def unquoted(word: str) -> str:
    """systemd.syntax(7) and the specifiers of systemd.unit(5), backwards."""
    out = bytearray()
    at = 0
    word = word.replace("%%", "%").replace("$$", "$")
    while at < len(word):
        if word.startswith("\\x", at):
            out.append(int(word[at + 2 : at + 4], 16))
            at += 4
        elif word[at] == "\\":
            out += word[at + 1].encode()
            at += 2
        else:
            out += word[at].encode()
            at += 1
    return out.decode()


lines = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029")))


@given(lines, st.booleans())
def test_lines_of_others_stay_byte_for_byte(rows: list[str], ended: bool) -> None:
    before = "\n".join(rows) + ("\n" if ended and rows else "")
    job = a_timer()
    after = timer.with_line(before, timer.cron_line(job), job.name)
    assert after.splitlines()[-1] == timer.cron_line(job)
    assert timer.with_line(after, timer.cron_line(job), job.name) == after
    taken = timer.without_line(after, job.name)
    assert taken == before or taken == before + "\n"


@pytest.mark.parametrize(("every_s", "minutes"), [(60, 1), (3600, 2), (4 * 3600, 10), (86400, 10)])
def test_the_clock_is_looked_at_often_enough(every_s: float, minutes: int) -> None:
    assert a_timer(every_s=every_s).step_min == minutes


# ---------------------------------------------------------------- installed and taken away


def test_cron_installs_and_uninstalls_without_a_trace(shims: dict[str, str], contract: Path, tmp_path: Path) -> None:
    table = tmp_path / "table"
    others = "MAILTO=me\n# mine\n5 4 * * * true %x\n"
    table.write_text(others)
    folder = tmp_path / "trial days"
    done = accept("install", contract, "--dir", folder, "--as", "cron", env=shims)
    assert done.returncode == 0, done.stderr
    assert table.read_text().startswith(others)
    assert table.read_text().count("accept-trial-") == 1
    assert accept("install", "--dir", folder, "--as", "cron", env=shims).returncode == 0  # again: still one line
    assert table.read_text().count("accept-trial-") == 1
    assert accept("status", folder, env=shims).returncode == 0
    assert accept("uninstall", folder, env=shims).returncode == 0
    assert table.read_text() == others
    assert tree(folder) == {"contract.yaml", "trial.json"}
    again = accept("uninstall", folder, env=shims)
    assert again.returncode == 2
    assert "no timer" in again.stderr


@pytest.mark.parametrize(("answer", "warned"), [("exit 1", True), ("echo 77", False), ("exit 3", False)])
def test_a_crontab_that_nobody_reads_is_no_timer(
    shims: dict[str, str], contract: Path, tmp_path: Path, answer: str, warned: bool
) -> None:
    write(tmp_path / "bin" / "pgrep", f"#!/bin/sh\n{answer}\n")
    done = accept("install", contract, "--dir", tmp_path / "trial", "--as", "cron", env=shims)
    assert done.returncode == 0, done.stderr
    assert ("no cron daemon runs here" in done.stdout) is warned


def test_a_crontab_that_was_not_there_is_not_there_afterwards(
    shims: dict[str, str], contract: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "trial"
    assert accept("install", contract, "--dir", folder, "--as", "cron", env=shims).returncode == 0
    assert (tmp_path / "table").exists()
    assert accept("uninstall", folder, env=shims).returncode == 0
    assert not (tmp_path / "table").exists()


def test_user_units_install_and_uninstall_without_a_trace(
    shims: dict[str, str], contract: Path, tmp_path: Path
) -> None:
    folder, home = tmp_path / "trial", tmp_path / "home"
    before = tree(home)
    done = accept("install", contract, "--dir", folder, "--as", "user", env=shims)
    assert done.returncode == 0, done.stderr
    assert "enable-linger" in done.stdout
    name = timer.name_of(folder)
    units = home / ".config/systemd/user"
    assert "OnUnitInactiveSec=10min\n" in (units / f"{name}.timer").read_text()
    assert (units / "timers.target.wants" / f"{name}.timer").is_symlink()
    assert accept("uninstall", folder, env=shims).returncode == 0
    assert {p for p in tree(home) - before if not (home / p).is_dir()} == set()
    called = (tmp_path / "systemctl.log").read_text()
    assert f"--user enable --now {name}.timer" in called
    assert f"--user disable --now {name}.timer" in called


def test_a_manager_that_refuses_leaves_nothing_behind(shims: dict[str, str], contract: Path, tmp_path: Path) -> None:
    write(tmp_path / "bin" / "systemctl", "#!/bin/sh\necho 'Access denied' >&2\nexit 1\n")
    done = accept("install", contract, "--dir", tmp_path / "trial", "--as", "user", env=shims)
    assert done.returncode == 2
    assert "Access denied" in done.stderr
    assert tree(tmp_path / "home") == set()


def test_without_systemd_and_cron_the_way_out_is_said(shims: dict[str, str], contract: Path, tmp_path: Path) -> None:
    write(tmp_path / "bin" / "systemctl", "#!/bin/sh\necho offline\nexit 1\n")
    write(tmp_path / "bin" / "crontab", "#!/bin/sh\necho 'you are not allowed to use this program' >&2\nexit 1\n")
    done = accept("install", contract, "--dir", tmp_path / "trial", env=shims)
    assert done.returncode == 2
    assert "nohup accept trial run" in done.stderr


def test_where_systemd_is_offline_cron_is_taken(shims: dict[str, str], contract: Path, tmp_path: Path) -> None:
    write(tmp_path / "bin" / "systemctl", "#!/bin/sh\necho offline\nexit 1\n")
    assert accept("install", contract, "--dir", tmp_path / "trial", env=shims).returncode == 0
    assert "accept-trial-" in (tmp_path / "table").read_text()


def test_print_writes_nothing(shims: dict[str, str], contract: Path, tmp_path: Path) -> None:
    done = accept("install", contract, "--dir", tmp_path / "trial", "--as", "user", "--print", env=shims)
    assert done.returncode == 0
    assert "[Timer]" in done.stdout
    assert tree(tmp_path / "home") == set()
    assert not (tmp_path / "trial").exists()


def test_every_run_of_the_timer_is_told_what_install_was_told(
    shims: dict[str, str], contract: Path, tmp_path: Path
) -> None:
    """The interpreter by its whole path, and unresolved: a virtual environment's is a link to the system's."""
    venv = tmp_path / "my venv"
    venv.mkdir()
    (venv / "python").symlink_to(sys.executable)
    told = ("--python", "my venv/python", "--force", "--as", "cron")
    done = accept("install", contract, "--dir", tmp_path / "trial", *told, env=shims, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    words = shlex.split((tmp_path / "table").read_text(), comments=True)
    assert words[words.index("--python") + 1] == str(venv / "python")
    assert "--force" in words


def test_an_interpreter_that_is_not_there_is_refused_before_anything_is_installed(
    shims: dict[str, str], contract: Path, tmp_path: Path
) -> None:
    done = accept("install", contract, "--dir", tmp_path / "trial", "--python", "/opt/conda/bin/pyhton", env=shims)
    assert done.returncode == 2
    assert "/opt/conda/bin/pyhton is no program that can be started" in done.stderr
    assert not (tmp_path / "trial").exists()


IN_OWN_MOUNTS = """
set -e
mkdir -p /etc/systemd/system /var/spool/cron/crontabs
mount -t tmpfs tmpfs /etc/systemd/system
mount -t tmpfs tmpfs /var/spool/cron/crontabs
chmod 1730 /var/spool/cron/crontabs; chgrp crontab /var/spool/cron/crontabs 2>/dev/null || true
"""


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root")
@pytest.mark.parametrize("kind", ["system", "cron"])
def test_as_root_for_real(kind: str, shims: dict[str, str], contract: Path, tmp_path: Path) -> None:
    """The real folder of units and the real crontab, in mounts of their own."""
    if kind == "cron":
        if shutil.which("crontab", path=os.environ["PATH"]) is None:
            pytest.skip("needs cron")
        (tmp_path / "bin" / "crontab").unlink()
    write(
        tmp_path / "bin" / "systemctl",
        SYSTEMCTL.format(units="/etc/systemd/system", state="running", log=tmp_path / "systemctl.log"),
    )
    own = f"{shlex.quote(sys.executable)} -m agent trial"
    script = IN_OWN_MOUNTS + (
        f"{own} install {contract} --dir {tmp_path}/trial --as {kind}\n"
        "find /etc/systemd/system /var/spool/cron/crontabs -mindepth 1 ! -type d | sort\n"
        "echo ---\n"
        f"{own} uninstall {tmp_path}/trial\n"
        "find /etc/systemd/system /var/spool/cron/crontabs -mindepth 1 | sort\n"
    )
    done = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, env=shims, timeout=60)
    assert done.returncode == 0, done.stderr
    there, _, gone = done.stdout.partition("---\n")
    name = timer.name_of(tmp_path / "trial")
    found = [line for line in there.splitlines() if line.startswith("/")]
    if kind == "system":
        units = "/etc/systemd/system"
        links = [f"{units}/timers.target.wants/{name}.timer"]
        assert found == sorted([f"{units}/{name}.service", f"{units}/{name}.timer", *links])
    else:
        assert found == ["/var/spool/cron/crontabs/root"]
    assert [line for line in gone.splitlines() if line.startswith("/")] == []
