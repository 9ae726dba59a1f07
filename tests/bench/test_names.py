"""How long names take: a note beside what is measured through them, and a slow resolver named as the cause."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.bench import download as download_bench
from agent.bench import names
from agent.bench import network as network_bench
from agent.checks import download, network, reach
from agent.evidence import Store
from agent.host import ReplayHost
from agent.model import Finding
from tests import netns
from tests.bench.driven import ScriptedHost, clause, judged
from tests.netns import FAR, TwoHosts

WHY_NOT = netns.unavailable("iperf3")
real = [
    pytest.mark.root,
    pytest.mark.iperf3,
    pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)),
]
NAME = "far.example"
HTTP = f"""
import http.server
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(64 << 20))
        self.end_headers()
        for _ in range(64 if self.path == "/file" else 0):
            self.wfile.write(bytes(1 << 20))
    def log_message(self, *args):
        pass
http.server.ThreadingHTTPServer(("{FAR[1]}", 8000), Answer).serve_forever()
"""


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_bench, "PLANS", {"standard": network_bench.Plan(6, 1, 1)})
    monkeypatch.setattr(network_bench, "SCREEN_S", 1)
    monkeypatch.setattr(download_bench, "SECONDS", {"standard": 1.0})
    monkeypatch.setattr(download_bench, "WARMUP_S", 0.2)


@pytest.fixture
def hosts() -> Iterator[TwoHosts]:
    with netns.two_hosts() as hosts:
        hosts.spawn(hosts.far, "python3", "-c", HTTP)
        hosts.listening(8000)
        hosts.iperf3(FAR[1], 5202)
        yield hosts


def reached(hosts: TwoHosts, run: Path) -> Finding:
    (found,) = judged(reach, [clause(reach, "reach", f"http://{NAME}:8000/")], hosts.host(run)).values()
    assert judged(reach, [clause(reach, "reach", f"http://{NAME}:8000/")], ReplayHost(Store(run))) == {found.id: found}
    return found


def note_of(found: Finding) -> str:
    (note,) = [str(n) for n in found.notes if NAME in str(n) and "resolv" in str(n)]
    return note


class TestReal:
    pytestmark = real

    def test_a_slow_resolver_is_named_as_the_cause_of_a_slow_reach(self, hosts: TwoHosts, tmp_path: Path) -> None:
        hosts.names(FAR[1], delay_s=2.0)
        found = reached(hosts, tmp_path)
        assert found.outcome == "pass"
        assert re.search(r"DNS 20\d\d ms", str(found.measured)), found.measured
        (note,) = [str(n) for n in found.notes]
        assert f"took 2 s: the name servers of this machine ({FAR[0]}) are slow, not the line" in note

    def test_a_quick_one_is_not(self, hosts: TwoHosts, tmp_path: Path) -> None:
        hosts.names(FAR[1])
        found = reached(hosts, tmp_path)
        assert (found.outcome, found.notes) == ("pass", ())

    @pytest.mark.slow
    def test_a_slow_name_stands_beside_the_rates_it_does_not_change(self, hosts: TwoHosts, tmp_path: Path) -> None:
        hosts.names(FAR[1], delay_s=1.2)
        asked = [clause(network, "upload", ">= 50 Mbit/s", name="public", servers=(f"{NAME}:5202",))]
        (rate,) = judged(network, asked, hosts.host(tmp_path / "network")).values()
        wanted = clause(download, "rate", ">= 5 MB/s", url=f"http://{NAME}:8000/file")
        (file,) = judged(download, [wanted], hosts.host(tmp_path / "download")).values()
        for found in (rate, file):
            assert found.outcome == "pass", found
            assert "took 1.2 s" in note_of(found)

    def test_a_quick_name_has_its_milliseconds(self, hosts: TwoHosts, tmp_path: Path) -> None:
        hosts.names(FAR[1])
        asked = [clause(network, "upload", ">= 50 Mbit/s", name="public", servers=(f"{NAME}:5202",))]
        (rate,) = judged(network, asked, hosts.host(tmp_path)).values()
        assert re.fullmatch(rf"{NAME} was resolved in [\d.]+ ms", note_of(rate))
        assert rate.outcome == "pass"


@pytest.mark.parametrize("address", ["203.0.113.9", "2001:db8::1", "[2001:db8::1]", "", None])
def test_of_an_address_nobody_is_asked(address: str, tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, lambda probe, argv: "{}")
    assert names.look(host, "x", address) == names.NOTHING
    assert host.asked == []


@pytest.mark.parametrize("said", ['{"ms": 8001, "error": "no answer in 8 s"}', "{}", "no JSON"])
def test_a_name_without_answer_is_left_to_the_measurement(said: str, tmp_path: Path) -> None:
    assert names.look(ScriptedHost(tmp_path, lambda probe, argv: said), "x", NAME) == names.NOTHING
