"""Three short runs for real: killed with -9 in the second, the clock set back, the disk full in the third."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.runs import accept, environment

CONTRACT = """version: 1
cpu: {vcpus: ">= 1"}
ping: [{host: 127.0.0.1, latency: "<= 10 ms"}]
trial: {availability: ">= 99 %"}
"""
BEGIN = ("trial", "run", "c.yaml", "--dir", "trial", "--every", "60s", "--for", "180s")
GO_ON = ("trial", "run", "--dir", "trial")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=80m", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip("needs root to mount a small file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def started(ahead_s: float, *args: str, cwd: Path, **env: str) -> subprocess.Popen[str]:
    """The command on a clock that does not wait."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.trial.on_a_false_clock", str(ahead_s), *args],
        cwd=cwd, env=environment(env), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def states(folder: Path) -> list[str]:
    return [s["state"] for s in json.loads((folder / "trial.json").read_text())["slots"]]


def whole(run: Path) -> bool:
    """Every file as its manifest says; nobody has signed it, which is status 3."""
    done = accept("verify", str(run), cwd=run.parent)
    return done.code == 3 and "unchanged in itself" in done.out


@pytest.mark.parametrize("fill", ["FILL", "FILL_WITHIN"])
def test_nothing_is_lost_and_the_report_tells_what_happened(small_disk: Path, fill: str) -> None:
    folder = small_disk / "trial"
    (small_disk / "c.yaml").write_text(CONTRACT)
    agent = started(0, *BEGIN, cwd=small_disk)
    deadline = time.monotonic() + 120
    while not list(folder.glob("0002-*/run.json")):
        assert time.monotonic() < deadline
        assert agent.poll() is None
        time.sleep(0.05)
    os.kill(agent.pid, signal.SIGKILL)
    agent.communicate()
    (first,) = folder.glob("0001-*")
    result = (first / "result.json").read_bytes()
    assert whole(first)

    # Two hours back, on a machine that is as old as it is; then the disk is full when the third run begins.
    agent = started(60 - 7200, *GO_ON, cwd=small_disk, **{"WAITED": "60", fill: str(small_disk)})
    said, _ = agent.communicate(timeout=240)
    assert agent.returncode == 0, said
    assert "Traceback" not in said
    assert "run 3 of 3: broken off (No space left on device)" in said
    (small_disk / "filler").unlink()
    assert (first / "result.json").read_bytes() == result
    assert whole(first)

    report = accept("trial", "report", "trial", cwd=small_disk)
    assert report.code == 3, report.said
    data: dict[str, Any] = json.loads((folder / "trial-report.json").read_text())
    assert [r["folder"] for r in data["runs"] if r["complete"]] == [first.name]
    assert [s["state"] for s in data["slots"]][:2] == ["done", "broken-off"]
    assert any("set back by 2.0 h" in e["said"] for e in data["events"])
    lost = next(f for f in data["findings"] if f["clause"] == "integrity.trial")
    assert lost["outcome"] == "inconclusive"
    assert "1 of 3 runs done" in lost["reason"]
    up = next(f for f in data["findings"] if f["clause"] == "trial.availability")
    assert up["outcome"] == "pass"
