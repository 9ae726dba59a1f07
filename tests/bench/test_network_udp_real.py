"""UDP loss and jitter with the real iperf3: two hosts in network namespaces, filtered, shaped, delayed."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import pytest

from agent.bench import network as tcp_bench
from agent.bench import network_udp as bench
from agent.checks import network
from agent.course import Course
from agent.evidence import Store
from agent.host import ReplayHost
from agent.model import Clause, Contract, Finding
from agent.plan import Options
from agent.quantity import convert, parse_quantity
from tests import netns
from tests.bench.driven import clause, judged
from tests.netns import FAR, TwoHosts

WHY_NOT = netns.unavailable("iperf3")
pytestmark = [
    pytest.mark.root,
    pytest.mark.iperf3,
    pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)),
]
SERVERS = (f"{FAR[0]}:5201", f"{FAR[1]}:5202")


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same repetitions, shorter."""
    for bounds in (bench.SHORTEST_S, bench.LONGEST_S):
        for depth in ("standard", "deeper"):
            monkeypatch.setitem(bounds, depth, 1)
    monkeypatch.setattr(tcp_bench, "SCREEN_S", 1)
    monkeypatch.setattr(tcp_bench, "BUSY_PAUSE_S", 1.0)
    monkeypatch.setattr(tcp_bench, "SILENCE_S", 3.0)
    monkeypatch.setattr(bench, "SILENCE_S", 2.0)


def served(hosts: TwoHosts) -> None:
    for number in (0, 1):
        hosts.iperf3(FAR[number], 5201 + number)


def asked(
    name: str, promise: str, way: str = "upload", rate: str = "10 Mbit/s", servers: tuple[str, ...] = SERVERS
) -> list[Clause]:
    """A clause on UDP, and the promised rate that gives its direction."""
    quantity = parse_quantity(rate, "rate")
    settings = {"name": "public", "servers": servers, "udp_rate": convert(quantity.value, quantity.unit, "B/s")}
    return [clause(network, name, promise, **settings), clause(network, way, ">= 1 Gbit/s", **settings)]


def found(hosts: TwoHosts, run: Path, clauses: list[Clause]) -> dict[str, Finding]:
    """Only UDP is measured; the rate is promised all the same."""
    course = Course(
        Contract(tuple(clauses), b"", ""), Options(only=("*.udp_*",)), {"network": network}, hosts.host(run)
    )
    course.make_plan()
    course.measure()
    findings = {f.id: f for f in course.findings() if ".udp_" in f.id}
    assert not course.faults, course.faults
    return findings


def one(hosts: TwoHosts, run: Path, clauses: list[Clause]) -> Finding:
    (finding,) = found(hosts, run, clauses).values()
    return finding


def test_a_clean_line_loses_nothing_either_way_and_is_judged_again_alike(tmp_path: Path) -> None:
    settings = {"name": "public", "servers": SERVERS}
    clauses = [
        clause(network, "udp_loss", "<= 0.5 %", **settings),
        clause(network, "udp_jitter", "<= 5 ms", **settings),
    ]
    with netns.two_hosts() as hosts:
        served(hosts)
        live = judged(network, clauses, hosts.host(tmp_path))
    assert {i: f.outcome for i, f in live.items()} == {
        f"network[public].{name}@{way}": "pass" for name in ("udp_loss", "udp_jitter") for way in ("download", "upload")
    }, live
    loss = live["network[public].udp_loss@download"]
    assert (loss.measured, loss.unit) == (0.0, "%")
    assert any("a modest one was taken" in str(n) for n in loss.notes)
    assert any("over the tests, not over the packets" in str(n) for n in loss.notes)
    assert {"-u", "-R"} <= set(loss.reproduce)
    assert judged(network, clauses, ReplayHost(Store(tmp_path))) == live


@pytest.mark.slow
@pytest.mark.parametrize("way", ["upload", "download"])
def test_one_percent_of_loss_on_both_sides_of_its_limit(way: str, tmp_path: Path) -> None:
    with netns.two_hosts() as hosts:
        served(hosts)
        side = hosts.far if way == "upload" else hosts.near
        hosts.filter(side, "meta l4proto udp numgen random mod 100 < 1 drop")
        strict = one(hosts, tmp_path / "strict", asked("udp_loss", "<= 0.2 %", way))
        loose = one(hosts, tmp_path / "loose", asked("udp_loss", "<= 3 %", way))
    assert (strict.outcome, strict.reason_code) == ("fail", "above-limit"), strict
    assert loose.outcome == "pass", loose
    for finding in (strict, loose):
        assert finding.measured == pytest.approx(1.0, abs=0.5), finding


def test_one_server_alone_does_not_convict(tmp_path: Path) -> None:
    with netns.two_hosts() as hosts:
        served(hosts)
        hosts.filter(hosts.far, "meta l4proto udp numgen random mod 100 < 5 drop")
        alone = one(hosts, tmp_path, asked("udp_loss", "<= 0.2 %", servers=SERVERS[:1]))
    assert (alone.outcome, alone.reason_code) == ("inconclusive", tcp_bench.FAR_END), alone


def test_the_end_that_loses_less_is_asked(tmp_path: Path) -> None:
    with netns.two_hosts() as hosts:
        served(hosts)
        hosts.filter(hosts.far, f"ip daddr {FAR[0]} meta l4proto udp numgen random mod 100 < 20 drop")
        finding = one(hosts, tmp_path, asked("udp_loss", "<= 0.2 %"))
    assert finding.outcome == "pass", finding
    assert SERVERS[1] in str(finding.notes[0])


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("vde_switch") is None, reason="needs vde2")
def test_jitter_of_five_milliseconds(tmp_path: Path) -> None:
    """10 ms ± 5 ms one way, drawn anew for each packet."""
    with netns.two_hosts(delay_ms=10, spread_ms=5) as hosts:
        served(hosts)
        tight = one(hosts, tmp_path / "tight", asked("udp_jitter", "<= 1 ms", rate="2 Mbit/s"))
        wide = one(hosts, tmp_path / "wide", asked("udp_jitter", "<= 20 ms", rate="2 Mbit/s"))
    assert (tight.outcome, wide.outcome) == ("fail", "pass"), (tight, wide)
    assert 1.5 < float(str(tight.measured)) < 12


@pytest.mark.slow
def test_a_line_slower_than_the_rate_asked_loses_what_does_not_fit(tmp_path: Path) -> None:
    with netns.two_hosts() as hosts:
        served(hosts)
        hosts.filter(hosts.far, "meta l4proto udp limit rate over 2500 kbytes/second burst 64 kbytes drop")
        finding = one(hosts, tmp_path, asked("udp_loss", "<= 0.5 %", rate="40 Mbit/s"))
    assert (finding.outcome, finding.reason_code) == ("fail", "above-limit"), finding
    assert finding.measured == pytest.approx(50, abs=12)


def test_a_sender_that_cannot_keep_the_rate_shows_nothing(tmp_path: Path) -> None:
    """This machine's own interface holds its packets back: what arrives arrived, but not at the rate asked."""
    with netns.two_hosts() as hosts:
        served(hosts)
        hold = ("tbf", "rate", "10mbit", "burst", "64kb", "latency", "4s")
        hosts.shell(hosts.near, "tc", "qdisc", "replace", "dev", hosts.device, "root", *hold)
        finding = one(hosts, tmp_path, asked("udp_loss", "<= 0.5 %", rate="60 Mbit/s"))
    assert (finding.outcome, finding.reason_code) == ("inconclusive", bench.SENDER), finding
    assert "this machine sent" in str(finding.reason)


@pytest.mark.parametrize("verdict", ["drop", "reject"])
def test_udp_that_is_blocked_is_told_from_a_dead_server(verdict: str, tmp_path: Path) -> None:
    with netns.two_hosts() as hosts:
        served(hosts)
        hosts.filter(hosts.far, f"meta l4proto udp {verdict}")
        begun = time.monotonic()
        finding = one(hosts, tmp_path / "blocked", asked("udp_loss", "<= 0.5 %", servers=SERVERS[:1]))
        took = time.monotonic() - begun
        dead = one(hosts, tmp_path / "dead", asked("udp_loss", "<= 0.5 %", servers=(f"{FAR[0]}:5999",)))
    assert (finding.outcome, finding.reason_code) == ("inconclusive", "denied"), finding
    assert "TCP passes and UDP does not" in str(finding.reason)
    assert "UDP on port 5201 both ways" in str(finding.grant)
    assert took < 30
    assert (dead.outcome, dead.reason_code) == ("inconclusive", "not-there"), dead


def test_a_busy_server_is_waited_for(tmp_path: Path) -> None:
    with netns.two_hosts() as hosts:
        served(hosts)
        other = hosts.spawn(hosts.near, "iperf3", "-c", FAR[0], "-p", "5201", "-t", "4")
        time.sleep(0.7)
        finding = one(hosts, tmp_path, asked("udp_loss", "<= 0.5 %", servers=SERVERS[:1]))
        assert other.wait(10) == 0
    assert finding.outcome == "pass", finding


def test_a_server_that_dies_while_it_is_measured_is_no_loss(tmp_path: Path) -> None:
    with netns.two_hosts() as hosts:
        victim = hosts.iperf3(FAR[0])
        death = threading.Timer(6.0, victim.kill)  # among the repetitions, after the choice of the end
        death.start()
        begun = time.monotonic()
        finding = one(hosts, tmp_path, asked("udp_loss", "<= 0.5 %", servers=SERVERS[:1]))
        took = time.monotonic() - begun
        death.cancel()
    assert (finding.outcome, finding.measured) == ("inconclusive", None), finding
    assert took < 40
