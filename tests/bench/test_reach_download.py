"""Reaching and downloading: real servers on loopback, and what each failure means."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent.bench import download as download_bench
from agent.bench import reach as reach_bench
from agent.bench.network import CPU_LIMIT, FAR_END
from agent.checks import _own_address, download, reach
from agent.evidence import Store
from agent.host import LiveHost, ReplayHost
from agent.model import Finding
from tests.bench.driven import Said, ScriptedHost, clause, judged
from tests.bench.servers import http_server
from tests.netns import silent_server


@pytest.fixture(autouse=True)
def _loopback_is_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """The servers of these tests stand in for machines elsewhere."""
    monkeypatch.setattr(_own_address, "is_own", lambda address, case: False)
    monkeypatch.setattr(_own_address, "this_machine", lambda address, local: False)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in os.environ if n.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(reach_bench, "PAUSE_S", 0.0)
    monkeypatch.setattr(reach_bench, "TIMEOUT_S", 2.0)
    monkeypatch.setattr(download_bench, "WARMUP_S", 0.1)
    monkeypatch.setattr(download_bench, "TIMEOUT_S", 2.0)
    seconds = dict.fromkeys(("quick", "standard", "deeper"), 0.4)
    monkeypatch.setattr(download_bench, "SECONDS", seconds)


class Host(LiveHost):
    """This machine, without waiting between attempts."""

    def sleep(self, seconds: float) -> None:
        """Nothing settles here."""


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(Store(tmp_path))


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with http_server() as number:
        yield number


def reached(host: LiveHost, target: str) -> Finding:
    return judged(reach, [clause(reach, "reach", target)], host)[f"reach[{target}]"]


def test_an_answer_is_kept_with_its_times(host: Host, port: int) -> None:
    found = reached(host, f"http://127.0.0.1:{port}/x")
    assert found.outcome == "pass"
    assert str(found.measured).startswith("HTTP 200 (DNS ")


def test_a_port_without_http_is_reached_by_tcp(host: Host, port: int) -> None:
    found = reached(host, f"127.0.0.1:{port}")
    assert (found.outcome, str(found.measured)[:5]) == ("pass", "TCP (")


@pytest.mark.parametrize(("status", "outcome"), [(404, "pass"), (401, "pass"), (302, "pass"), (502, "inconclusive")])
def test_what_an_http_status_says(host: Host, port: int, status: int, outcome: str) -> None:
    found = reached(host, f"http://127.0.0.1:{port}/status/{status}")
    assert found.outcome == outcome
    assert str(status) in str(found.measured)


def test_a_closed_port_is_broken_after_two_attempts(host: Host) -> None:
    found = reached(host, "127.0.0.1:1")
    assert (found.outcome, found.reason_code) == ("fail", "tcp-failed")
    assert "refused" in str(found.reason)
    assert len([ran for ran in host.log if "reach[" in ran.probe]) == 2 * reach_bench.TRIES
    assert judged(reach, [clause(reach, "reach", "127.0.0.1:1")], ReplayHost(host.store))[found.id] == found


def test_a_name_that_is_not_there_is_perhaps_misspelt(host: Host) -> None:
    found = reached(host, "https://nowhere.invalid/")
    assert (found.outcome, found.reason_code) == ("inconclusive", "dns-failed")
    assert "nowhere.invalid" in str(found.reason)
    assert "/etc/resolv.conf" in str(found.grant)


def test_a_server_that_never_answers(host: Host) -> None:
    with silent_server() as number:
        found = reached(host, f"http://127.0.0.1:{number}/")
    assert (found.outcome, found.reason_code) == ("inconclusive", "http-failed")
    assert max(ran.seconds for ran in host.log) < 6


def test_tls_that_is_not_tls(host: Host, port: int) -> None:
    found = reached(host, f"https://127.0.0.1:{port}/")
    assert (found.outcome, found.reason_code) == ("fail", "tls-failed")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_a_certificate_is_verified_and_may_be_our_own_trouble(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = tmp_path / "pair.pem"
    key = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost")
    name = ("-addext", "subjectAltName=DNS:localhost")
    subprocess.run([*key, *name, "-keyout", str(pair), "-out", str(tmp_path / "c")], check=True, capture_output=True)
    pair.write_bytes(pair.read_bytes() + (tmp_path / "c").read_bytes())
    with http_server(pair) as number:
        found = reached(host, f"https://localhost:{number}/")
        assert (found.outcome, found.reason_code) == ("inconclusive", "certificate-failed")
        assert "self-signed" in str(found.reason).replace("self signed", "self-signed")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "c"))
        trusted = reached(Host(Store(tmp_path / "trusted")), f"https://localhost:{number}/")
    assert trusted.outcome == "pass"
    assert "TLS" in str(trusted.measured)


def test_a_proxy_is_respected_and_its_refusal_is_ours(
    host: Host, tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://user:secret@127.0.0.1:{port}")
    monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
    through = reached(host, "http://elsewhere.invalid/")
    assert through.outcome == "pass"
    assert f"proxy 127.0.0.1:{port}" in str(through.measured)
    assert "secret" not in str(through)
    refused = reached(host, "https://elsewhere.invalid/")
    assert (refused.outcome, refused.reason_code) == ("inconclusive", "proxy-failed")
    assert "403" in str(refused.reason)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    direct = reached(Host(Store(tmp_path / "direct")), f"http://127.0.0.1:{port}/")
    assert "proxy" not in str(direct.measured)


def test_attempts_that_disagree_are_no_verdict(tmp_path: Path) -> None:
    base = {"target": "x", "proxy": None, "error": None, "dns_ms": 1.0, "tcp_ms": 1.0}
    no = {**base, "reached": False, "stage": "tcp", "error": "timed out"}
    answers = [json.dumps(no)] * 3 + [json.dumps({**base, "reached": True, "stage": "tcp"})]

    def script(probe: str, argv: Sequence[str]) -> Said:
        return answers.pop(0)

    found = reached(ScriptedHost(tmp_path, script), "203.0.113.9:22")
    assert (found.outcome, found.reason_code) == ("inconclusive", "unstable")


# ---------------------------------------------------------------- download


def downloads(host: LiveHost, **promises: str) -> dict[str, Finding]:
    asked = [clause(download, "rate", promise, url=url) for url, promise in promises.items()]
    return judged(download, asked, host)


def test_a_download_is_measured_over_several_connections(host: Host, port: int) -> None:
    url = f"http://127.0.0.1:{port}/size/200000000"
    found = downloads(host, **{url: ">= 1 MB/s"})[f"download[{url}].rate"]
    assert found.outcome == "pass"
    measured = [ran for ran in host.log if ".neighbours." not in ran.probe]
    said = json.loads(measured[0].stdout)
    assert found.interval is not None
    assert len(measured) == 6
    assert said["bytes"] / said["seconds"] <= max(1e6 * found.interval[1], 1) * (1 + 1e-9)


def test_one_url_alone_does_not_convict_and_a_small_file_is_said(host: Host, port: int) -> None:
    big, small = (f"http://127.0.0.1:{port}/size/{n}" for n in (100_000_000, 1000))
    found = downloads(host, **{big: ">= 900 GB/s"})[f"download[{big}].rate"]
    assert (found.outcome, found.reason_code) in {("inconclusive", FAR_END), ("inconclusive", CPU_LIMIT)}
    tiny = downloads(host, **{small: ">= 900 GB/s"})[f"download[{small}].rate"]
    assert tiny.reason_code in (download_bench.SMALL, CPU_LIMIT)


@pytest.mark.parametrize("path", ["/status/404", None], ids=["404", "refused"])
def test_a_download_that_gives_nothing_is_no_verdict(host: Host, port: int, path: Any) -> None:
    url = f"http://127.0.0.1:{port}{path}" if path else "http://127.0.0.1:1/"
    found = downloads(host, **{url: ">= 1 MB/s"})[f"download[{url}].rate"]
    assert (found.outcome, found.reason_code, found.measured) == ("inconclusive", "failed", None)


def scripted(rates: dict[str, float]) -> Any:
    def script(probe: str, argv: Sequence[str]) -> Said:
        url = argv[3]
        address = url.split("/")[2]
        answer = {"bytes": rates[url] * 5, "seconds": 5.0, "series": [rates[url]] * 5, "total_bytes": rates[url] * 6}
        rest = {"requests": 8, "file_bytes": 1 << 30, "status": 200, "address": address, "proxy": None}
        return json.dumps({**answer, **rest, "cpu_share": 0.1, "capped": False, "errors": []})

    return script


def test_two_urls_in_different_networks_convict_together(tmp_path: Path) -> None:
    a, b, c = "http://203.0.113.9/x", "http://198.51.100.7/x", "http://203.0.9.9/x"
    rates = {a: 1e7, b: 2e7, c: 2e7}
    both = downloads(ScriptedHost(tmp_path / "1", scripted(rates)), **{a: ">= 50 MB/s", b: ">= 50 MB/s"})
    assert {f.outcome for f in both.values()} == {"fail"}
    same = downloads(ScriptedHost(tmp_path / "2", scripted(rates)), **{a: ">= 50 MB/s", c: ">= 50 MB/s"})
    assert {f.reason_code for f in same.values()} == {FAR_END}
    modest = downloads(ScriptedHost(tmp_path / "3", scripted(rates)), **{a: ">= 50 MB/s", b: ">= 10 MB/s"})
    assert [f.outcome for f in modest.values()] == ["inconclusive", "pass"], "one that keeps its promise is no witness"
