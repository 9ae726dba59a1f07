"""``accept plan`` counts no minutes for what is known not to be there, and says why."""

from __future__ import annotations

from pathlib import Path

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
