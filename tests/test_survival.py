"""The run survives: kill -9, Ctrl-C, a lost connection, a tool that hangs and ignores TERM."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.runs import (
    FACTS_ONLY,
    WRITES,
    accept,
    contract,
    findings,
    kill,
    leftovers,
    needs_fio,
    ours,
    path_with,
    result,
    shim,
    start,
    until,
    writing,
)

pytestmark = [pytest.mark.fio, needs_fio]
QUICK = ("--profile", "quick", "--yes", "--out", "run")


def test_kill_9_in_the_middle_of_fio(tmp_path: Path) -> None:
    contract(tmp_path, WRITES)
    process = start("run", "contract.yaml", *QUICK, cwd=tmp_path)
    until(lambda: writing(tmp_path))
    kill(process, signal.SIGKILL)
    process.wait(10)
    until(lambda: not ours(tmp_path), 10)
    broken = result(tmp_path / "run")
    assert (broken["complete"], broken["verdict"]) == (False, None)
    assert accept("status", "run", cwd=tmp_path).out.startswith("broken off")
    done = accept("run", "--resume", "run", "--yes", cwd=tmp_path)
    assert done.code == 3, done.said
    assert result(tmp_path / "run")["complete"] is True
    assert findings(tmp_path / "run")["disk[.].write"]["reason_code"] == "shortened"
    assert not leftovers(tmp_path)
    assert not list(tmp_path.glob(".accept-test-*"))


def test_the_next_start_sweeps_what_a_killed_one_left(tmp_path: Path) -> None:
    contract(tmp_path, WRITES)
    process = start("run", "contract.yaml", *QUICK, cwd=tmp_path)
    until(lambda: writing(tmp_path))
    kill(process, signal.SIGKILL)
    process.wait(10)
    assert leftovers(tmp_path)
    accept("run", "contract.yaml", "--profile", "facts", "--out", "other", cwd=tmp_path)
    assert not leftovers(tmp_path)


@pytest.mark.parametrize("times", [1, 3])
def test_ctrl_c_leaves_reports_and_no_children(tmp_path: Path, times: int) -> None:
    contract(tmp_path, WRITES)
    process = start("run", "contract.yaml", *QUICK, cwd=tmp_path)
    until(lambda: writing(tmp_path))
    for _ in range(times):
        kill(process, signal.SIGINT)
        time.sleep(0.1)
    assert process.wait(30) == 130
    data = result(tmp_path / "run")
    assert (data["complete"], data["verdict"]) == (False, None)
    assert (tmp_path / "run" / "report.html").exists()
    assert not ours(tmp_path)
    assert not leftovers(tmp_path)


def test_sigterm_is_an_interruption_too(tmp_path: Path) -> None:
    contract(tmp_path, WRITES)
    process = start("run", "contract.yaml", *QUICK, cwd=tmp_path)
    until(lambda: writing(tmp_path))
    kill(process, signal.SIGTERM)
    assert process.wait(30) == 130
    assert not leftovers(tmp_path)


def test_a_lost_connection_does_not_stop_the_run(tmp_path: Path) -> None:
    contract(tmp_path, WRITES)
    process = start("run", "contract.yaml", *QUICK, cwd=tmp_path)
    until(lambda: writing(tmp_path))
    assert process.stdout is not None
    process.stdout.close()
    kill(process, signal.SIGHUP)
    assert process.wait(120) == 3
    assert result(tmp_path / "run")["complete"] is True


def test_detach_goes_on_alone(tmp_path: Path) -> None:
    contract(tmp_path, FACTS_ONLY)
    done = accept("run", "contract.yaml", "--out", "run", "--detach", cwd=tmp_path)
    assert done.code == 0
    until(lambda: (tmp_path / "run" / "result.json").exists() and result(tmp_path / "run")["complete"])
    until(lambda: accept("status", "run", cwd=tmp_path).out.startswith("finished"))
    assert result(tmp_path / "run")["verdict"] == "accepted"
    # Its last lines stand in its log, behind the manifest: they are no change of what was recorded.
    log = tmp_path / "run" / "agent.log"
    until(lambda: "digest" in log.read_text() and accept("verify", "run", cwd=tmp_path).code == 3)
    assert "agent.log" not in (tmp_path / "run" / "manifest.json").read_text()


def test_a_tool_that_hangs_and_ignores_term_costs_its_deadline(tmp_path: Path) -> None:
    shims = shim(tmp_path / "bin", "lsblk", "trap '' TERM HUP INT; while :; do sleep 1000; done")
    contract(tmp_path, "version: 1\ndisk: [{path: ., size: '>= 1 GB'}]\ncpu: {vcpus: '>= 1'}\n")
    begun = time.monotonic()
    done = accept("run", "contract.yaml", "--out", "run", cwd=tmp_path, env=path_with(shims))
    assert time.monotonic() - begun < 60, done.said
    assert findings(tmp_path / "run")["cpu.vcpus"]["outcome"] == "pass"
    timeouts = [f for f in findings(tmp_path / "run").values() if f["reason_code"] == "timeout"]
    assert len(timeouts) <= 1
    assert not ours(tmp_path / "bin")


def test_two_agents_do_not_share_a_folder(tmp_path: Path) -> None:
    contract(tmp_path, WRITES)
    process = start("run", "contract.yaml", *QUICK, cwd=tmp_path)
    until(lambda: writing(tmp_path))
    second = accept("run", "--resume", "run", cwd=tmp_path)
    kill(process, signal.SIGINT)
    process.wait(30)
    assert second.code == 2
    assert "another agent" in second.err


def test_a_finished_run_is_not_resumed(tmp_path: Path) -> None:
    accept("run", str(contract(tmp_path, FACTS_ONLY)), "--out", "run", cwd=tmp_path)
    before = (tmp_path / "run" / "manifest.json").read_bytes()
    done = accept("run", "--resume", "run", cwd=tmp_path)
    assert done.code == 2
    assert (tmp_path / "run" / "manifest.json").read_bytes() == before


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_disk_that_fills_up_during_the_run(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=34m", "tmpfs", str(small)], check=True)
    try:
        text = "version: 1\ncpu: {vcpus: '>= 1'}\nping: [{host: 127.0.0.1, latency: '<= 900 ms'}]\n"
        process = start("run", str(contract(tmp_path, text)), "--out", "run", "--yes", cwd=small)
        until(lambda: (small / "run" / "evidence").is_dir())
        with suppress(OSError), (small / "fill").open("wb") as fill:
            while fill.write(b"0" * 4096):
                pass
        assert process.wait(120) == 3
        assert process.stdout is not None
        said = process.stdout.read()
        assert "No space left" in said or "full" in said
        assert "Accepted" not in said
        left = small / "run" / "result.json"
        assert not left.exists() or result(small / "run")["verdict"] in (None, "inconclusive")
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_too_little_room_is_said_before_anything_runs(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)], check=True)
    try:
        done = accept("run", str(contract(tmp_path, FACTS_ONLY)), "--out", "run", cwd=small)
        assert done.code == 2
        assert "--out" in done.err
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)
