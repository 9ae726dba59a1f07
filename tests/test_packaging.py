"""What is delivered works where it is delivered to: the wheel in a fresh venv, the one file in an empty folder."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Optional

import pytest

ROOT = Path(__file__).resolve().parents[1]
PYZ = ROOT / "dist" / "accept.pyz"
DATA = (
    "benchmarks/gemm.py",
    "benchmarks/_protocol.py",
    "templates/report.html.j2",
    "templates/report.css",
    "templates/locale/zh/LC_MESSAGES/accept.mo",
    "contracts/result.schema.json",
    "contracts/examples/this-host.yaml",
)
CONTRACT = "version: 1\ncpu: {vcpus: '>= 1'}\nmemory: {size: '>= 100 MB'}\n"
# Nothing of this checkout, of its venv or of the user's settings may help.
BARE = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}


def run(*argv: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, cwd=cwd, env={**BARE, **env}, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from this checkout."""
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(out), str(ROOT)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``accept`` of a fresh venv that has the wheel and what it depends on."""
    venv = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    pip = [str(venv / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, str(wheel)], check=True, env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"})
    return venv / "bin" / "accept"


@pytest.mark.slow
def test_the_wheel_has_one_package_and_its_data(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"agent"}
    assert {f"agent/data/{name}" for name in DATA} <= names
    examples = {p.name for p in (ROOT / "contracts/examples").glob("*.yaml")}
    assert {n.rpartition("/")[2] for n in names if "/contracts/examples/" in n} == examples


@pytest.mark.slow
def test_the_installed_command_finds_its_data(installed: Path, tmp_path: Path) -> None:
    where = "from agent import resources; print(resources.path('contracts', 'examples', 'this-host.yaml'))"
    example = run(str(installed.parent / "python"), "-c", where, cwd=tmp_path).stdout.strip()
    assert str(installed.parent.parent) in example
    checked = run(str(installed), "contract", "check", example, cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr
    assert "sound" in checked.stdout


@pytest.mark.slow
def test_the_installed_command_runs_and_reports(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(CONTRACT)
    done = run(str(installed), "run", "c.yaml", "--out", "out", "--lang", "zh", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / "out/result.json").read_text())["verdict"] == "accepted"
    assert "合同" in (tmp_path / "out/report.html").read_text(encoding="utf-8")


# ---------------------------------------------------------------- accept.pyz


def launcher() -> ModuleType:
    spec = importlib.util.spec_from_file_location("launcher", ROOT / "packaging/launcher.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """The launcher with a command line of one line behind it."""
    path = tmp_path / "accept.pyz"
    with zipfile.ZipFile(path, "w") as out:
        out.write(ROOT / "packaging/launcher.py", "__main__.py")
        for name in ("agent", "agent/cli"):
            out.writestr(f"lib/{name}/__init__.py", "")
        out.writestr("lib/agent/cli/main.py", "def main():\n    print(__file__)\n")
    return path


def started(archive: Path, **env: str) -> subprocess.CompletedProcess[str]:
    folder = archive.parent / "empty"
    folder.mkdir(exist_ok=True)
    return run(sys.executable, str(archive), cwd=folder, **env)


def test_it_unpacks_once_into_the_users_cache(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    first = started(archive, HOME=str(tmp_path / "home"))
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith(str(tmp_path / "home/.cache/accept"))
    assert Path(first.stdout.strip()).exists()
    archive.write_bytes(archive.read_bytes())  # the second start must not need the files of the archive
    assert started(archive, HOME=str(tmp_path / "home")).stdout == first.stdout
    assert len(list((tmp_path / "home/.cache/accept").iterdir())) == 1


@pytest.mark.parametrize("home", ["/proc/nowhere", "/dev/null", ""])
def test_without_a_usable_home_it_unpacks_for_this_start_alone(archive: Path, tmp_path: Path, home: str) -> None:
    (tmp_path / "tmp").mkdir()
    done = started(archive, HOME=home, TMPDIR=str(tmp_path / "tmp"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path / "tmp"))
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_cache_that_others_can_write_is_not_used(archive: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(0o777)
    done = started(archive, ACCEPT_CACHE=str(cache), TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert not done.stdout.startswith(str(cache))
    assert list(cache.iterdir()) == []


def test_a_noexec_file_system_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = launcher()

    class Mounted:
        f_flag = os.ST_NOEXEC

    monkeypatch.setattr(module.os, "statvfs", lambda path: Mounted)
    with pytest.raises(ValueError, match="noexec"):
        module.prepare(str(tmp_path / "cache"))


def test_an_archive_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    broken = tmp_path / "broken.pyz"
    broken.write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(zipfile.BadZipFile):
        launcher().unpack(str(broken), str(tmp_path), str(tmp_path / "target"))
    assert [p.name for p in tmp_path.iterdir()] == ["broken.pyz"]


def test_an_old_python_reads_the_launcher() -> None:
    """No syntax that Python 2.7 or 3.5 would stumble over: it has to say which Python it needs."""
    text = (ROOT / "packaging/launcher.py").read_text(encoding="utf-8")
    compile(text, "launcher.py", "exec")
    assert text.isascii()
    assert not any(word in text for word in (' f"', "f'", " -> ", ":=", "nonlocal", "async "))


def interpreter(minor: int) -> Optional[str]:
    """A Python 3.``minor`` of this machine that starts, from the PATH or from pyenv."""
    found = [shutil.which(f"python3.{minor}"), *map(str, Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python"))]
    works = (p for p in found if p and subprocess.run([p, "-c", ""], capture_output=True, check=False).returncode == 0)
    return next(works, None)


@pytest.mark.slow
@pytest.mark.skipif(not PYZ.is_file(), reason="dist/accept.pyz is not built (make dist)")
@pytest.mark.parametrize("minor", range(9, 14))
def test_the_built_file_runs_with_only_python(minor: int, tmp_path: Path) -> None:
    python = interpreter(minor)
    if python is None:
        pytest.skip(f"python3.{minor} is not installed")
    (tmp_path / "home").mkdir()
    (tmp_path / "c.yaml").write_text(CONTRACT)
    done = run(python, str(PYZ), "run", "c.yaml", "--out", "out", cwd=tmp_path, HOME=str(tmp_path / "home"))
    assert done.returncode == 0, done.stdout + done.stderr
    answer = next((tmp_path / "out/evidence").glob("*host-system/stdout"))
    assert json.loads(answer.read_text())["cores"], "psutil was not found by the probe"
