"""``accept doctor``: what is there, what lacks, how to get it."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from agent.cli.commands.doctor import lines
from agent.doctor import Item, Section, State, examine, lacks, word
from agent.evidence import Store
from agent.host import LiveHost
from agent.reading import Known
from tests.runs import accept

GPU = "bus/pci/devices/0000:1b:00.0"


def folder_of_programs(where: Path, **programs: str) -> Path:
    """A PATH with just these: each prints its text."""
    where.mkdir()
    (where / "python3").symlink_to(sys.executable)
    for name, text in programs.items():
        path = where / name.replace("_", "-")
        path.write_text(f"#!/bin/sh\nprintf '%s\\n' '{text}'\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return where


def machine(root: Path, *, os_release: str = "ID=ubuntu\nNAME=Ubuntu\nVERSION_ID=22.04\n", gpu: bool = False) -> Path:
    (root / "etc").mkdir(parents=True)
    (root / "etc/os-release").write_text(os_release)
    if gpu:
        device = root / "sys" / GPU
        device.mkdir(parents=True)
        (device / "vendor").write_text("0x10de\n")
        (device / "class").write_text("0x030200\n")
    return root


def items(tmp_path: Path, root: Path) -> dict[str, Item]:
    host = LiveHost(Store(tmp_path / "run"), root)
    return {str(item.name): item for section in examine(host) for item in section.items}


def test_a_tool_that_lacks_comes_with_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder_of_programs(tmp_path / "bin", fio="fio-3.35")))
    found = items(tmp_path, machine(tmp_path / "root"))
    assert (found["fio"].state, str(found["fio"].found)) == ("there", "3.35")
    assert found["iperf3"].state == "missing"
    assert str(found["iperf3"].get) == "apt-get install iperf3"
    assert found["sending pings"].state == "missing"


def test_the_package_is_that_of_the_distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder_of_programs(tmp_path / "bin")))
    rocky = machine(tmp_path / "root", os_release='ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.4"\n')
    assert str(items(tmp_path, rocky)["ping"].get) == "dnf install iputils"


def test_another_distribution_gets_both_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder_of_programs(tmp_path / "bin")))
    other = machine(tmp_path / "root", os_release="ID=arch\nNAME=Arch\n")
    assert str(items(tmp_path, other)["fio"].get) == "apt-get install fio or dnf install fio"


def test_without_a_gpu_its_tools_are_no_lack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder_of_programs(tmp_path / "bin")))
    found = items(tmp_path, machine(tmp_path / "root"))
    for name in ("nvidia-smi", "Python with torch", "NVIDIA GPUs", "lspci"):
        assert found[name].state == "not-here" or (name, found[name].state) == ("lspci", "there")


def test_perftest_lacks_only_where_there_are_cards_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder_of_programs(tmp_path / "bin")))
    root = machine(tmp_path / "root")
    assert items(tmp_path / "without", root)["ib_write_bw"].state == "not-here"
    (root / "sys/class/infiniband/mlx5_0").mkdir(parents=True)
    lacking = items(tmp_path / "with", root)["ib_write_bw"]
    assert (lacking.state, str(lacking.get)) == ("missing", "apt-get install perftest")


def test_a_gpu_without_driver_and_torch_is_a_lack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder_of_programs(tmp_path / "bin")))
    monkeypatch.setattr("agent.facts.pythons.listing", lambda host: Known(()))
    found = items(tmp_path, machine(tmp_path / "root", gpu=True))
    for name in ("nvidia-smi", "Python with torch", "NVIDIA GPUs"):
        assert found[name].state == "missing"
        assert found[name].get is not None
    assert str(found["NVIDIA GPUs"].found) == "1 on the PCI bus, but no driver is loaded"


@pytest.mark.parametrize(("state", "expected"), [("there", False), ("not-here", False), ("missing", True)])
def test_only_what_is_missing_is_a_lack(state: State, expected: bool) -> None:
    item = Item(word("fio"), state, word("3.33"), word("disk"))
    assert lacks([Section(word("tools"), (item,))]) is expected


def test_what_a_machine_says_cannot_move_the_cursor() -> None:
    item = Item(word("fio"), "missing", word("\x1b[2Jall well"), word("disk"), word("apt-get install fio"))
    shown = "\n".join(lines(item, str))
    assert "\x1b" not in shown
    assert "get it: apt-get install fio" in shown


def test_the_command_says_what_lacks_and_ends_with_1(tmp_path: Path) -> None:
    done = accept("doctor", cwd=tmp_path, env={"PATH": str(folder_of_programs(tmp_path / "bin"))})
    assert done.code == 1, done.said
    assert "✗ fio: fio is not installed" in done.out
    assert not list(tmp_path.glob("accept*")), "it keeps nothing"
