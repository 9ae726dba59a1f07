"""iperf3: the argv, failure kinds, interrupted runs, and the real tool over loopback."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess

import pytest

from agent.tools import ParseError, iperf3, to_json
from tests.tools.fuzz import FIXTURES


def test_argv() -> None:
    got = iperf3.client_argv(server="10.0.0.1", port=5300, seconds=30, omit_s=3, parallel=8, reverse=True)
    assert got[:3] == ["iperf3", "-c", "10.0.0.1"]
    assert "-J" in got
    assert "-R" in got
    assert "-u" not in got
    for option, value in (("-p", "5300"), ("-t", "30"), ("-O", "3"), ("-P", "8"), ("--connect-timeout", "5000")):
        assert got[got.index(option) + 1] == value


def test_argv_udp_without_connect_timeout() -> None:
    got = iperf3.client_argv(server="h", udp=True, rate_bits_per_s=10**9, connect_timeout_ms=0)
    assert "-u" in got
    assert got[got.index("-b") + 1] == "1000000000"
    assert "--connect-timeout" not in got


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("error - the server is busy running a test. try again later", "busy_server"),
        ("unable to connect to server: Connection refused", "refused"),
        ("unable to connect to server: Connection timed out", "timeout"),
        ("unable to connect to server: Network is unreachable", "unreachable"),
        ("unable to connect to server: Temporary failure in name resolution", "name_error"),
        ("control socket has closed unexpectedly", "connection_lost"),
        ("test authorization failed", "denied"),
        ("something new", "failed"),
    ],
)
def test_failure_kinds(text: str, kind: str) -> None:
    assert iperf3.failure_kind(text) == kind


def test_interrupted_run_says_so_and_has_no_received_rate() -> None:
    result = iperf3.parse((FIXTURES / "iperf3--sigterm_partial.txt").read_text())
    assert result.error == "interrupt - the client has terminated"
    assert result.received_bits_per_s is None


def test_way_back_of_bidir_is_kept_apart() -> None:
    result = iperf3.parse((FIXTURES / "iperf3--bidir.txt").read_text())
    assert (result.back_sent_bits_per_s, result.back_received_bits_per_s) == (3.0e8, 2.9e8)
    assert set(to_json(iperf3, result)) == {
        "version",
        "protocol",
        "reverse",
        "streams",
        "sent_bits_per_s",
        "received_bits_per_s",
        "retransmits",
        "lost_percent",
        "error",
    }


@pytest.mark.iperf3
@pytest.mark.skipif(shutil.which("iperf3") is None, reason="iperf3 is not installed")
def test_real_iperf3_and_a_closed_port() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = iperf3.client_argv(server="127.0.0.1", port=port, seconds=1, parallel=2)
    refused = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    with pytest.raises(ParseError) as caught:
        iperf3.parse(refused.stdout)
    assert caught.value.kind == "refused"
    listen = ["iperf3", "-s", "-1", "--forceflush", "-p", str(port)]
    with subprocess.Popen(listen, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert any("listening" in line for line in server.stdout)
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
        server.wait(timeout=30)
    result = iperf3.parse(done.stdout)
    end = json.loads(done.stdout)["end"]
    assert result.received_bits_per_s == end["sum_received"]["bits_per_second"]
    assert (result.streams, result.protocol, result.error) == (2, "TCP", None)


def test_an_error_alone_is_a_failure_with_its_kind() -> None:
    with pytest.raises(ParseError) as caught:
        iperf3.parse('{"error": "unable to connect to server: Connection refused"}\n')
    assert caught.value.kind == "refused"
