"""Which interpreters are found, in which order they are asked, and which is chosen."""

from __future__ import annotations

import json
import sys
import venv
from pathlib import Path
from typing import Optional

import pytest

from agent.evidence import Store
from agent.facts import Asked, pythons
from agent.facts.pythons import Interpreter, Pythons, Tried, choose, collect, parse_listing, refusal
from agent.host import ReplayHost, marked
from agent.probes import python_probe
from agent.reading import Known, Missing, Reading
from agent.text import msg
from agent.tools import ParseError
from agent.tools.worker import Device, Unable
from tests.bench.interpreters import GPUS, TWO_GPUS, bare, live, needs_torch, shim

# A torch that was built with NCCL.
NCCL = """
    torch.distributed.is_nccl_available = lambda: True
    torch.cuda.nccl.version = lambda: (2, 21, 5)
"""

# ---------------------------------------------------------------- what lies on the machine


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\nexit 1\n")
    path.chmod(0o755)
    return path


def test_the_active_environment_comes_first_and_each_only_once(tmp_path: Path) -> None:
    conda = executable(tmp_path / "conda" / "bin" / "python")
    path = executable(tmp_path / "bin" / "python3.11")
    (tmp_path / "bin" / "python3").symlink_to("python3.11")
    executable(tmp_path / "bin" / "python3-config")
    (tmp_path / "bin" / "python").mkdir()
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    environ = {
        "VIRTUAL_ENV": str(tmp_path / "venv"),
        "CONDA_PREFIX": str(tmp_path / "conda"),
        "PATH": f"{tmp_path / 'bin'}:{tmp_path / 'none'}",
    }
    found = python_probe.pythons(environ)
    assert found[:2] == [str(tmp_path / "venv" / "bin" / "python"), str(conda)]
    assert found.count(str(path.with_name("python3"))) == 1
    assert str(path) not in found
    assert not [p for p in found if "config" in p]
    assert str(tmp_path / "bin" / "python") not in found


def test_many_shims_of_one_switch_are_asked_once(tmp_path: Path) -> None:
    for name in ("python3", "python3.10", "python3.11"):
        executable(tmp_path / ".pyenv" / "shims" / name)
    found = python_probe.pythons({"PATH": str(tmp_path / ".pyenv" / "shims")})
    assert [p for p in found if "shims" in p] == [str(tmp_path / ".pyenv" / "shims" / "python3")]


def test_a_venv_is_another_environment_than_its_base(tmp_path: Path) -> None:
    venv.create(tmp_path / "a", with_pip=False, symlinks=True)
    base = Path(tmp_path / "a" / "bin" / "python").resolve()
    assert python_probe.identity(str(tmp_path / "a" / "bin" / "python")) != python_probe.identity(str(base))


def test_a_listing_that_is_none() -> None:
    assert parse_listing('{"pythons": ["/usr/bin/python3"]}') == ("/usr/bin/python3",)
    for text in ("", "{}", '{"pythons": [1]}', '{"pythons": ["/usr/bin/py'):
        with pytest.raises(ParseError):
            parse_listing(text)


# ---------------------------------------------------------------- one interpreter


def test_one_without_torch(tmp_path: Path) -> None:
    found = collect(live(tmp_path), Asked(python=bare(tmp_path)))
    assert isinstance(found.chosen, Missing)
    assert found.chosen.kind == "no-tool"
    assert len(found.tried) == 1


def test_one_with_an_old_torch(tmp_path: Path) -> None:
    found = collect(live(tmp_path), Asked(python=shim(tmp_path, torch__init__="__version__ = '1.12.1'\n")))
    assert isinstance(found.chosen, Missing)
    assert found.chosen.kind == "unsupported"
    assert "1.12.1" in str(found.chosen.detail)


def test_one_whose_import_crashes(tmp_path: Path) -> None:
    found = collect(live(tmp_path), Asked(python=shim(tmp_path, torch__init__="import os\nos.abort()\n")))
    assert isinstance(found.chosen, Missing)
    assert "signal 6" in str(found.chosen.detail)


def test_one_whose_import_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pythons, "TORCH_TIMEOUT_S", 1.0)
    host = live(tmp_path)
    found = collect(host, Asked(python=shim(tmp_path, torch__init__="import time\ntime.sleep(600)\n")))
    assert isinstance(found.chosen, Missing)
    assert found.chosen.kind == "timeout"
    assert not marked(host.token)


def test_one_that_is_not_there(tmp_path: Path) -> None:
    found = collect(live(tmp_path), Asked(python=str(tmp_path / "no" / "python")))
    assert isinstance(found.chosen, Missing)
    assert found.chosen.kind == "no-tool"


def test_one_that_prints_garbage_and_ends(tmp_path: Path) -> None:
    found = collect(live(tmp_path), Asked(python="/bin/echo"))
    assert isinstance(found.chosen, Missing)
    assert found.chosen.kind == "failed"


class TestReal:
    pytestmark = needs_torch

    def test_this_one(self, tmp_path: Path) -> None:
        found = collect(live(tmp_path), Asked(python=sys.executable))
        assert isinstance(found.chosen, Known)
        assert found.chosen.value.torch.startswith("2.")
        assert found.chosen.value.python == sys.version.split()[0]
        assert found.chosen.evidence
        assert found.chosen.value.devices or found.chosen.value.cuda_error
        assert collect(ReplayHost(Store(tmp_path / "run")), Asked(python=sys.executable)) == found

    def test_its_devices_carry_their_slots(self, tmp_path: Path) -> None:
        found = collect(live(tmp_path), Asked(python=shim(tmp_path, sitecustomize=TWO_GPUS)))
        assert isinstance(found.chosen, Known)
        assert [d.slot for d in found.chosen.value.devices] == [d.slot for d in GPUS]
        assert found.chosen.value.devices[1].uuid == "GPU-01010101-0101-0101-0101-010101010101"

    def test_its_versions_are_the_stack_of_the_result(self, tmp_path: Path) -> None:
        found = collect(live(tmp_path), Asked(python=shim(tmp_path, sitecustomize=TWO_GPUS + NCCL)))
        stack = found.stack()
        assert (stack["nccl"], stack["python"]) == ("2.21.5", sys.version.split()[0])
        assert str(stack["torch"]).startswith("2.")
        assert Pythons(Missing("no-tool", msg("none"))).stack() == dict.fromkeys(stack)


# ---------------------------------------------------------------- several


def test_the_search_asks_in_order_records_all_and_replays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in python_probe.ACTIVE:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("VIRTUAL_ENV", str(Path(bare(tmp_path)).parent.parent))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(pythons, "TOTAL_S", 0.001)
    found = collect(live(tmp_path), Asked())
    assert found.tried[0].path == str(tmp_path / "bare" / "bin" / "python")
    assert isinstance(found.tried[0].reading, Missing)
    assert found.tried[0].reading.kind == "no-tool"
    assert [t.reading.kind for t in found.tried[1:] if isinstance(t.reading, Missing)] == ["left-out"] * (
        len(found.tried) - 1
    )
    assert isinstance(found.chosen, Missing)
    assert found.chosen.grant is not None
    assert collect(ReplayHost(Store(tmp_path / "run")), Asked()) == found
    listed = json.loads((tmp_path / "run/evidence/0001-pythons/stdout").read_text())
    assert listed["pythons"] == [t.path for t in found.tried]


def known(path: str, gpus: int = 0) -> Tried:
    return Tried(path, Known(interpreter(path, gpus)))


def interpreter(path: str, gpus: int) -> Interpreter:
    return Interpreter(path, "3.10.1", "/", "2.4.1", devices=tuple(Device(i, "GPU") for i in range(gpus)))


def none(path: str, kind: str = "no-torch", needs: Optional[str] = None) -> Tried:
    return Tried(path, refusal(Unable(kind, "said", needs), path, ()))


def chosen(*tried: Tried) -> Reading[Interpreter]:
    return choose(tried, ("evidence/0001-pythons",))


def test_a_torch_that_sees_a_gpu_goes_before_one_that_does_not() -> None:
    found = chosen(none("/a"), known("/b"), known("/c", gpus=8))
    assert isinstance(found, Known)
    assert found.value.path == "/c"


def test_the_first_with_torch_where_none_sees_a_gpu() -> None:
    found = chosen(none("/a"), known("/b"), known("/c"))
    assert isinstance(found, Known)
    assert found.value.path == "/b"


def test_a_torch_that_fails_says_more_than_one_that_is_not_there() -> None:
    found = chosen(none("/a"), none("/b", "torch-broken"), none("/c"))
    assert isinstance(found, Missing)
    assert "/b" in str(found.detail)
    old = chosen(none("/a"), none("/b", "needs-torch", "2.0"))
    assert isinstance(old, Missing)
    assert old.kind == "unsupported"


def test_none_at_all_says_how_many() -> None:
    found = chosen(none("/a"), none("/b"), Tried("/c", Missing("failed", msg("no python at all"))))
    assert isinstance(found, Missing)
    assert found.kind == "no-tool"
    assert "none of the 3" in str(found.detail)
