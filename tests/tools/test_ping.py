"""ping: the argv, contradictions, and the real tool."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from agent.tools import ParseError, ping

SUMMARY = "--- h ping statistics ---\n{counts}\nrtt min/avg/max/mdev = 1.0/2.0/3.0/0.5 ms\n"


def test_argv() -> None:
    assert ping.argv("h", count=50, interval_s=0.2) == ["ping", "-n", "-c", "50", "-i", "0.2", "h"]
    assert ping.argv("h", count=5, deadline_s=9)[-3:] == ["-w", "9", "h"]


@pytest.mark.parametrize(
    "counts",
    [
        "0 packets transmitted, 20 received, 0% packet loss, time 1ms",
        "20 packets transmitted, 2 received, 0% packet loss, time 1ms",
        "20 packets transmitted, 20 received, 30% packet loss, time 1ms",
    ],
)
def test_counts_that_contradict_the_loss_are_refused(counts: str) -> None:
    with pytest.raises(ParseError) as caught:
        ping.parse(SUMMARY.format(counts=counts))
    assert caught.value.kind == "unparsable"


def test_whole_percent_rounded_down_is_accepted() -> None:
    result = ping.parse(SUMMARY.format(counts="3 packets transmitted, 2 received, 33% packet loss, time 1ms"))
    assert (result.sent, result.received, result.loss_percent) == (3, 2, 33.0)


def test_round_trip_times_out_of_order_are_refused() -> None:
    text = SUMMARY.format(counts="2 packets transmitted, 2 received, 0% packet loss, time 1ms")
    with pytest.raises(ParseError):
        ping.parse(text.replace("1.0/2.0", "9.0/2.0"))


def test_two_summaries_are_refused() -> None:
    text = SUMMARY.format(counts="2 packets transmitted, 2 received, 0% packet loss, time 1ms")
    with pytest.raises(ParseError) as caught:
        ping.parse(text + text)
    assert caught.value.kind == "several_results"


@pytest.mark.skipif(shutil.which("ping") is None, reason="ping is not installed")
def test_real_ping() -> None:
    command = ping.argv("127.0.0.1", count=3, interval_s=0.2)
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    try:
        result = ping.parse(done.stdout + done.stderr)
    except ParseError as error:
        if error.kind == "denied":
            pytest.skip("no permission to ping here")
        raise
    assert (result.sent, result.received, result.loss_percent) == (3, 3, 0.0)
    assert result.rtt_avg_ms is not None
