"""Round trips: planning, fallbacks and what each failure means, without a network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from agent.bench import ping as bench
from agent.checks import ping
from agent.model import Finding
from agent.stats import trials_for
from tests.bench.driven import Said, ScriptedHost, clause, judged

HOST = "jinan.example.cn"


def summary(sent: int, received: int, avg: float = 8.0, mdev: str = "/0.4") -> str:
    loss = 100 * (sent - received) / sent
    rtt = f"rtt min/avg/max{'/mdev' if mdev else ''} = {avg - 1}/{avg}/{avg + 1}{mdev} ms\n" if received else ""
    head = f"PING {HOST} (203.0.113.9) 56(84) bytes of data.\n\n--- {HOST} ping statistics ---\n"
    return f"{head}{sent} packets transmitted, {received} received, {loss:.6g}% packet loss, time 9ms\n{rtt}"


class Answers:
    """ping with a constant round trip; every ``lose_each``-th ping is lost. Counts what was sent."""

    def __init__(self, avg: float = 8.0, lose_each: int = 0, mdev: str = "/0.4") -> None:
        self.avg, self.lose_each, self.mdev = avg, lose_each, mdev
        self.sent = 0
        self.lost = 0

    def __call__(self, probe: str, argv: Sequence[str]) -> Said:
        count = int(argv[argv.index("-c") + 1])
        if ".check" in probe:
            return summary(count, count, self.avg, self.mdev)
        self.sent += count
        lost = (self.sent // self.lose_each if self.lose_each else 0) - self.lost
        self.lost += lost
        return summary(count, count - lost, self.avg, self.mdev)


def find(script: object, run: Path, name: str, promise: str, host: str = HOST) -> Finding:
    asked = clause(ping, name, promise, host=host)
    return judged(ping, [asked], ScriptedHost(run, script))[asked.key]  # type: ignore[arg-type]


@pytest.mark.parametrize(("promise", "outcome"), [("<= 10 ms", "pass"), ("<= 7.9 ms", "fail"), ("<= 8 ms", "pass")])
def test_latency_on_both_sides(tmp_path: Path, promise: str, outcome: str) -> None:
    found = find(Answers(8.0), tmp_path, "latency", promise)
    assert (found.outcome, found.measured) == (outcome, 8.0)


def test_jitter_is_the_mean_deviation(tmp_path: Path) -> None:
    found = find(Answers(), tmp_path, "jitter", "<= 2 ms")
    assert (found.outcome, found.measured) == ("pass", 0.4)
    busybox = find(Answers(mdev=""), tmp_path / "busybox", "jitter", "<= 2 ms")
    assert (busybox.outcome, busybox.reason_code) == ("inconclusive", "unsupported")


@pytest.mark.parametrize(("lose_each", "outcome"), [(0, "pass"), (20, "fail"), (200, "inconclusive")])
def test_loss_with_as_many_pings_as_the_clause_needs(tmp_path: Path, lose_each: int, outcome: str) -> None:
    script = Answers(lose_each=lose_each)
    found = find(script, tmp_path, "loss", "<= 0.5 %")
    assert found.outcome == outcome, found
    assert script.sent >= trials_for(0.005)
    assert any(str(trials_for(0.005)) in str(note) for note in found.notes), "the plan is printed"
    if outcome == "fail":
        assert found.measured == pytest.approx(5, rel=0.01)
        assert found.unit == "%"


def test_a_few_lost_pings_are_looked_at_harder(tmp_path: Path) -> None:
    """One in a thousand: too close in the first look, kept in the second with four times as many."""
    script = Answers(lose_each=1000)
    found = find(script, tmp_path, "loss", "<= 0.5 %")
    assert (found.outcome, found.depth) == ("pass", "deeper")
    assert script.sent >= trials_for(0.005) + trials_for(0.005, look=2)


def test_ordinary_users_of_an_old_ping_get_the_longer_interval(tmp_path: Path) -> None:
    whole = Answers()

    def script(probe: str, argv: Sequence[str]) -> Said:
        if float(argv[argv.index("-i") + 1]) < 0.2:
            return ("", "ping: cannot flood; minimal interval allowed for user is 200ms\n", 2)
        return whole(probe, argv)

    found = find(script, tmp_path, "latency", "<= 10 ms")
    assert found.outcome == "pass"
    assert any("0.2 s apart" in str(note) for note in found.notes)


TCP = json.dumps({"address": "203.0.113.9", "times_ms": [8.0, 8.2, 9.0], "refused": 0, "failed": 0, "error": None})
NO_TCP = json.dumps({"address": None, "times_ms": [], "refused": 0, "failed": 1, "error": "timed out"})
REFUSED = json.dumps({"address": "a", "times_ms": [8.0], "refused": 1, "failed": 0, "error": None})


def blocked(how: Said, ports: dict[int, str]) -> object:
    def script(probe: str, argv: Sequence[str]) -> Said:
        if argv[0] == "ping":
            return how
        return ports[int(argv[4])]

    return script


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ((summary(5, 0), "", 1), "timeout"),
        (FileNotFoundError("ENOENT"), "no-tool"),
        (("", "ping: socktype: SOCK_RAW\nping: socket: Operation not permitted\n", 2), "denied"),
    ],
    ids=["silent", "no ping", "no permission"],
)
def test_where_icmp_gets_no_answer_tcp_is_timed(tmp_path: Path, how: Said, code: str) -> None:
    script = blocked(how, {443: NO_TCP, 80: TCP, 22: NO_TCP})
    latency = find(script, tmp_path / "latency", "latency", "<= 10 ms")
    assert (latency.outcome, latency.measured) == ("pass", 8.2)
    assert any("TCP" in str(note) and "80" in str(note) for note in latency.notes)
    loss = find(script, tmp_path / "loss", "loss", "<= 0.5 %")
    assert (loss.outcome, loss.reason_code, loss.measured) == ("inconclusive", code, None)
    jitter = find(script, tmp_path / "jitter", "jitter", "<= 0.01 ms")
    assert (jitter.outcome, jitter.reason_code) == ("inconclusive", bench.TCP_CODE)


def test_a_refusal_is_a_round_trip_too(tmp_path: Path) -> None:
    found = find(
        blocked((summary(5, 0), "", 1), {443: REFUSED, 80: NO_TCP, 22: NO_TCP}), tmp_path, "latency", "<= 10 ms"
    )
    assert (found.outcome, found.measured) == ("pass", 8.0)


def test_silence_on_everything_is_no_verdict(tmp_path: Path) -> None:
    found = find(blocked((summary(5, 0), "", 1), dict.fromkeys((443, 80, 22), NO_TCP)), tmp_path, "latency", "<= 9 ms")
    assert (found.outcome, found.reason_code, found.measured) == ("inconclusive", "timeout", None)


@pytest.mark.parametrize(
    "said", [f"ping: {HOST}: Name or service not known\n", "ping: connect: Network is unreachable\n"]
)
def test_a_name_or_route_that_is_not_there_is_said(tmp_path: Path, said: str) -> None:
    host_says: Said = ("", said, 2)
    found = find(lambda probe, argv: host_says, tmp_path, "latency", "<= 10 ms")
    assert (found.outcome, found.reason_code) == ("inconclusive", "failed")
    assert said.strip()[6:] in str(found.reason)


def test_a_host_that_is_an_option_is_not_run(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, lambda probe, argv: "")
    asked = clause(ping, "latency", "<= 10 ms", host="-f")
    assert judged(ping, [asked], host)[asked.key].outcome == "inconclusive"
    assert not host.asked


def test_planned_numbers() -> None:
    entry = bench.Entry(HOST, ("latency", "loss"), 0.005)
    assert bench.planned(entry, "standard") == 1472
    assert bench.planned(entry, "deeper") == 5888
    assert bench.planned(bench.Entry(HOST, ("latency",)), "standard") == 0
    assert bench.planned(bench.Entry(HOST, ("loss",), 0.0), "standard") > 1000
    assert bench.cost(entry, "standard").seconds < bench.cost(entry, "deeper").seconds <= bench.LONGEST_S + 20
