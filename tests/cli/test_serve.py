"""``accept serve``: what it offers, to whom, how fast, and that it ends."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Optional

import pytest

from agent.checks import grammars
from agent.contract import loads
from agent.contradictions import contradictions
from agent.serve import Bucket, Ends, contract_lines
from tests.runs import accept, start, until

needs_iperf3 = pytest.mark.skipif(shutil.which("iperf3") is None, reason="iperf3 is not installed")


def free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1])


class End:
    """A served end, its ports and its token."""

    def __init__(self, process: subprocess.Popen[str], http_port: int, tcp_port: int) -> None:
        self.process = process
        self.http_port = http_port
        self.tcp_port = tcp_port
        self.lines: list[str] = []
        assert process.stdout is not None
        while True:
            line = process.stdout.readline()
            assert line, "serve ended at once: " + "".join(self.lines)
            self.lines.append(line)
            if "Ctrl-C" in line:
                break
        found = re.search(rf":{http_port}/([^/]+)/download", "".join(self.lines))
        assert found is not None
        self.token = found.group(1)

    def ask(self, method: str, path: str, body: bytes = b"", most: int = 1 << 20) -> tuple[int, int, float]:
        """Status, bytes read, seconds."""
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=20)
        begun = time.monotonic()
        connection.request(method, path, body or None)
        answer = connection.getresponse()
        size = len(answer.read(most))
        connection.close()
        return answer.status, size, time.monotonic() - begun


@pytest.fixture
def end(tmp_path: Path) -> Iterator[End]:
    http_port, tcp_port = free_port(), free_port()
    ports = ("--iperf3-port", "0", "--http-port", str(http_port), "--tcp-port", str(tcp_port))
    process = start("serve", "--bind", "127.0.0.1", *ports, "--for", "60 s", "--limit", "20 MB/s", cwd=tmp_path)
    yield End(process, http_port, tcp_port)
    process.terminate()
    process.wait(10)


def test_only_the_token_opens(end: End) -> None:
    assert end.ask("GET", f"/{end.token}/download")[:2] == (200, 1 << 20)
    for path in ("/", "/x/download", f"/{end.token}", f"/{end.token}/../etc/passwd", f"/{end.token[:-1]}/download"):
        assert end.ask("GET", path)[0] == 404
    assert end.ask("PUT", "/x/upload", b"0" * 10)[0] == 404


def test_uploads_are_taken_and_thrown_away(end: End) -> None:
    assert end.ask("PUT", f"/{end.token}/upload", b"0" * 3_000_000)[0] == 201
    assert end.ask("POST", f"/{end.token}/upload", b"0")[0] == 201


def test_the_limit_holds(end: End) -> None:
    _, size, took = end.ask("GET", f"/{end.token}/download", most=40 << 20)
    assert size == 40 << 20
    assert 1.5 < took < 4.0


def test_tcp_accepts(end: End) -> None:
    with socket.create_connection(("127.0.0.1", end.tcp_port), timeout=5) as connection:
        assert connection.recv(1) == b""


def test_it_stops_by_itself(tmp_path: Path) -> None:
    port = free_port()
    process = start(
        "serve",
        "--bind",
        "127.0.0.1",
        "--iperf3-port",
        "0",
        "--tcp-port",
        "0",
        "--http-port",
        str(port),
        "--for",
        "2 s",
        cwd=tmp_path,
    )
    assert process.wait(20) == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=2)


def left_in(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.glob("accept-serve-*"))


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_in_tmp(sign: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ended by a signal it takes its folder away itself; after a kill the next start does."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "accept-serve-notes").mkdir()
    (tmp_path / f"accept-serve-{os.getpid()}-alive").mkdir()
    kept = left_in(tmp_path)
    port = str(free_port())
    ends = ("--bind", "127.0.0.1", "--iperf3-port", "0", "--tcp-port", "0", "--http-port", port)
    process = start("serve", *ends, cwd=tmp_path)
    until(lambda: len(left_in(tmp_path)) == len(kept) + 1)
    until(partial(connects, int(port)))
    process.send_signal(sign)
    process.wait(20)
    if sign == signal.SIGKILL:
        assert left_in(tmp_path) != kept
        accept("serve", *ends, "--for", "1 s", cwd=tmp_path)
    assert left_in(tmp_path) == kept


@needs_iperf3
@pytest.mark.iperf3
def test_selftest_says_what_this_end_can_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = accept("serve", "--selftest", cwd=tmp_path)
    said = json.loads(done.out)
    assert done.code == 0
    assert said["iperf3_to_itself_bit_per_s"] > 1e6
    assert said["interfaces_bit_per_s"]
    assert said["cpus"] >= 1
    assert said["load_average"] >= 0
    assert left_in(tmp_path) == []


def connects(port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = accept("serve", "--bind", "127.0.0.1", "--http-port", port, "--iperf3-port", "0", cwd=tmp_path)
    assert done.code == 2
    assert len(done.err.strip().splitlines()) == 1


def test_a_port_in_use_for_udp_alone_is_one_line_too(tmp_path: Path) -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = str(taken.getsockname()[1])
        ends = ("--bind", "127.0.0.1", "--iperf3-port", port, "--http-port", "0", "--tcp-port", "0")
        done = accept("serve", *ends, cwd=tmp_path)
    assert done.code == 2
    assert len(done.err.strip().splitlines()) == 1


def served(argv: list[str]) -> Optional[dict[str, Any]]:
    """iperf3's JSON, or None where it reached no result."""
    said = json.loads(subprocess.run(argv, capture_output=True, check=False, text=True).stdout)
    return said if "sum_received" in said.get("end", {}) else None


@needs_iperf3
@pytest.mark.iperf3
def test_iperf3_serves_one_test_after_another(tmp_path: Path) -> None:
    port = free_port()
    process = start(
        "serve",
        "--bind",
        "127.0.0.1",
        "--iperf3-port",
        str(port),
        "--tcp-port",
        "0",
        "--http-port",
        "0",
        "--for",
        "30 s",
        cwd=tmp_path,
    )
    argv = ["iperf3", "-c", "127.0.0.1", "-p", str(port), "-t", "1", "-J"]
    for extra in ([], ["-R"], ["-u", "-b", "5M"], ["-u", "-b", "5M", "-R"]):
        # iperf3 exits 0 on a busy or starting server: only the sums tell.
        done = until(partial(served, [*argv, *extra]), 20)
        assert done["end"]["sum_received"]["bits_per_second"] > 1e6
    process.terminate()
    process.wait(10)
    until(lambda: served(argv) is None, 10)


@pytest.mark.parametrize("address", ["203.0.113.5", "2001:db8::5", "office.example.cn"])
def test_the_lines_to_paste_are_a_contract(address: str) -> None:
    lines = contract_lines(Ends("::", 60, "token"), address)
    read = loads("\n".join(["version: 1", *lines]).encode(), "pasted", grammars())
    assert {c.family for c in read.clauses} == {"network", "download", "backup", "reach"}
    assert {"udp_loss", "udp_jitter"} <= {c.name for c in read.clauses}
    assert not contradictions(read)


def test_a_bucket_is_one_rate_for_all() -> None:
    now = [0.0]
    bucket = Bucket(100.0, lambda: now[0])
    assert bucket.wait_for(50) == 0.0
    assert bucket.wait_for(50) == pytest.approx(0.5)
    assert bucket.wait_for(100) == pytest.approx(1.0)
    now[0] = 10.0
    assert bucket.wait_for(10) == 0.0
    assert Bucket(None).wait_for(1 << 40) == 0.0
