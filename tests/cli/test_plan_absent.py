"""``accept plan`` counts no minutes for what is known not to be there, and says why."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.runs import accept, contract


def test_a_path_and_servers_that_are_not_there_cost_nothing(tmp_path: Path) -> None:
    text = f"""\
version: 1
cpu: {{vcpus: ">= 1"}}
disk:
  - {{path: {tmp_path}/nowhere, read: ">= 1 GB/s", sustained: ">= 80 %"}}
network:
  - {{name: public, download: ">= 500 Mbit/s"}}
"""
    contract(tmp_path, text)
    done = accept("plan", "contract.yaml", "--lang", "en", cwd=tmp_path)
    assert "0 measurements" in done.out
    assert "nowhere is no folder of this machine" in done.out
    assert "names no server" in done.out
    assert "writes at most" not in done.out
    assert not (tmp_path / "nowhere").exists()


def test_a_path_that_is_there_costs_minutes_and_bytes(tmp_path: Path) -> None:
    contract(tmp_path, f'version: 1\ndisk: [{{path: {tmp_path}, read: ">= 1 GB/s"}}]\n')
    done = accept("plan", "contract.yaml", "--lang", "en", cwd=tmp_path)
    assert "1 measurements" in done.out or "1 measurement" in done.out
    assert "writes at most" in done.out


PROMISES = """\
version: 1
disk:
  - {{path: {folder}, read: ">= 10 MB/s", read_iops: ">= 1000", sustained: ">= 80 %", small_files: ">= 10 /s"}}
network:
  - {{name: public, servers: ["203.0.113.9:5201"], download: ">= 5 Mbit/s", udp_loss: "<= 1 %"}}
ping:
  - {{host: 203.0.113.9, latency: "<= 50 ms", loss: "<= 1 %"}}
"""


def planned(tmp_path: Path, *programs: str) -> str:
    """The plan of a machine that has these programs and no other."""
    found = tmp_path / "bin"
    found.mkdir()
    for name in programs:
        where = shutil.which(name)
        assert where is not None
        (found / name).symlink_to(where)
    contract(tmp_path, PROMISES.format(folder=tmp_path))
    # /sbin and /usr/sbin are looked at as well: what lies there cannot be hidden.
    done = accept("plan", "contract.yaml", "--lang", "en", cwd=tmp_path, env={"PATH": str(found)})
    assert done.code == 0, done.said
    return done.out


def measured(plan: str) -> set[str]:
    """The keys that the plan counts minutes for."""
    lines = [line for line in plan.splitlines() if line.startswith("  ") and line.rstrip().endswith(")")]
    return {key.strip() for line in lines for key in line.rpartition("(")[2].rstrip(") ").split(",")}


def test_what_no_program_here_measures_is_said_before_it_is_paid(tmp_path: Path) -> None:
    plan = planned(tmp_path, "dd")
    blind = plan.partition("cannot be verified here:")[2]
    disk = f"disk[{tmp_path}]"
    for keys, program, package in (
        ("network[public].download, network[public].udp_loss", "iperf3", "iperf3"),
        ("ping[203.0.113.9].loss", "ping", "iputils-ping / iputils"),
        (f"{disk}.read_iops, {disk}.sustained", "fio", "fio"),
    ):
        said = blind.partition(f"  {keys}\n")[2].splitlines()[:2]
        assert [line.strip() for line in said] == [f"{program} is not installed", f"→ install {package}"], plan
    # dd reads, connections tell latency, and files need no program.
    assert measured(plan) == {f"disk[{tmp_path}].read", f"disk[{tmp_path}].small_files", "ping[203.0.113.9].latency"}, (
        plan
    )


def test_without_dd_either_nothing_reads_a_disk(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    assert measured(plan) == {f"disk[{tmp_path}].small_files", "ping[203.0.113.9].latency"}, plan


@pytest.mark.skipif(not all(map(shutil.which, ("fio", "iperf3", "ping"))), reason="needs fio, iperf3, ping")
@pytest.mark.fio
@pytest.mark.iperf3
def test_where_they_are_there_all_is_measured(tmp_path: Path) -> None:
    plan = planned(tmp_path, "dd", "fio", "iperf3", "ping")
    assert "cannot be verified here" not in plan
    assert {"network[public].download", "network[public].udp_loss", "ping[203.0.113.9].loss"} <= measured(plan), plan
