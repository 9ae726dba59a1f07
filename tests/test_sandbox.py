"""A whole run where a renter has least: an ordinary user in something like a container. Nothing needs root."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from tests import media, sandbox
from tests.media import MIB, Disk
from tests.runs import accept, contract, findings, kill, needs_fio, result, start, until
from tests.sandbox import NOBODY

WHY_NOT = sandbox.unavailable() or media.unavailable()
pytestmark = [
    pytest.mark.root,
    pytest.mark.fio,
    needs_fio,
    pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)),
]
CONTRACT = """\
version: 1
access: {{kind: container, root: false}}
cpu: {{vcpus: ">= 64"}}
disk:
  - {{path: {own}, write: ">= 1 MB/s", read_iops: ">= 1 /s", wear: "<= 5 %"}}
  - {{path: {theirs}, write: ">= 1 MB/s"}}
ping: [{{host: 127.0.0.1, latency: "<= 50 ms", loss: "<= 1 %"}}]
reach: ["127.0.0.1:{port}"]
"""


@pytest.mark.slow
def test_a_whole_run_of_an_ordinary_user() -> None:
    with (
        media.disk(400 * MIB) as plain,
        socket.create_server(("127.0.0.1", 0)) as listener,
        sandbox.sandbox(cpus=1.0) as place,
    ):
        own, theirs = plain.path / "own", plain.path / "theirs"
        for folder, user in ((own, NOBODY), (theirs, 0)):
            folder.mkdir(mode=0o755)
            os.chown(folder, user, user)
        (own / "their.dat").write_text("kept")
        names = {"own": own, "theirs": theirs, "port": listener.getsockname()[1]}
        contract(place.home, CONTRACT.format(**names))
        before = media.snapshot(plain.path)
        done = place.accept("run", "contract.yaml", "--profile", "quick", "--out", "run")
        assert media.snapshot(plain.path) == before
        assert done.returncode in (1, 3), done.stdout + done.stderr
        run = result(place.home / "run")
        assert (run["complete"], run["sessions"][0]["uid"]) == (True, NOBODY)
        assert not (place.home / "run" / "agent-faults.txt").exists()
        found = findings(place.home / "run")
        if place.cpu is not None:
            assert (found["cpu.vcpus"]["outcome"], found["cpu.vcpus"]["measured"]) == ("fail", 1.0)
        write = found[f"disk[{own}].write"]
        assert (write["outcome"], write["reason_code"]) == ("inconclusive", "shortened")
        assert write["measured"] > 1
        assert any("libaio is used" in note and "io_uring" in note for note in write["notes"]), write["notes"]
        assert found[f"disk[{own}].read_iops"]["measured"] > 1
        wear = found[f"disk[{own}].wear"]
        assert (wear["outcome"], wear["measured"]) == ("inconclusive", None), wear
        denied = found[f"disk[{theirs}].write"]
        assert (denied["outcome"], denied["reason_code"]) == ("inconclusive", "denied")
        assert denied["grant"]
        latency, loss = found["ping[127.0.0.1].latency"], found["ping[127.0.0.1].loss"]
        # Measured, by TCP as ICMP is forbidden; this very machine as the far end counts neither way.
        assert (latency["outcome"], latency["reason_code"]) == ("inconclusive", "own-address"), latency
        assert any("TCP" in note for note in latency["notes"])
        assert loss["outcome"] == "inconclusive"
        assert found[f"reach[127.0.0.1:{names['port']}]"]["outcome"] == "pass"


@pytest.mark.skipif(media.unavailable("mkfs.btrfs", "btrfs") is not None, reason="needs btrfs-progs")
@pytest.mark.parametrize("limit", [24 * MIB, 1 * MIB])
def test_a_quota_ends_the_measurement_and_is_said(limit: int) -> None:
    """A quota that no size of a file system shows: what is written beyond it is refused (EDQUOT)."""
    with media.btrfs(400 * MIB) as limited, sandbox.sandbox(cpus=2.0) as place:
        limited.path.chmod(0o777)
        (limited.path / "their.dat").write_text("kept")
        media.space_quota(limited.path, limit)
        work = place.home
        contract(work, f"version: 1\ndisk: [{{path: {limited.path}, write: '>= 1 MB/s', checkpoint: '>= 1 MB/s'}}]\n")
        before = media.snapshot(limited.path)
        place.accept("run", "contract.yaml", "--profile", "quick", "--out", "run")
        assert media.snapshot(limited.path) == before
        found = findings(work / "run")
    for name in ("write", "checkpoint"):
        full = found[f"disk[{limited.path}].{name}"]
        assert (full["outcome"], full["measured"]) == ("inconclusive", None)
        assert "quota" in full["reason"], full["reason"]


@pytest.mark.parametrize(
    ("clause", "file"), [("write: '>= 1 MB/s'", "seq.dat"), ("small_files: '>= 1 /s'", "small-*.dat")]
)
def test_kill_9_leaves_what_the_next_start_takes_away(clause: str, file: str, tmp_path: Path) -> None:
    with media.disk(300 * MIB) as made:
        _theirs(made)
        before = media.snapshot(made.path)
        contract(tmp_path, f"version: 1\ndisk: [{{path: {made.path}, {clause}}}]\n")
        process = start("run", "contract.yaml", "--profile", "quick", "--yes", "--out", "run", cwd=tmp_path)
        until(lambda: any(made.path.glob(f".accept-test-{process.pid}-*/{file}")))
        kill(process, signal.SIGKILL)
        process.wait(10)
        assert media.snapshot(made.path) != before
        accept("run", "contract.yaml", "--profile", "facts", "--out", "next", cwd=tmp_path)
        assert media.snapshot(made.path) == before


def _theirs(made: Disk) -> None:
    """Files that look like ours and are not."""
    for name in (".accept-test-1-1", ".accept-test-notes", "seq"):
        (made.path / name).mkdir()
        (made.path / name / "seq.dat").write_text("theirs")
    (made.path / ".accept-test-file").write_text("theirs")
    (made.path / ".accept-test-link").symlink_to(made.path / "seq")
