"""iperf3 and ping for real: two hosts in network namespaces, shaped, delayed, filtered."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Optional

import pytest

from agent.bench import network as bench
from agent.bench import path_mtu
from agent.bench import ping as ping_bench
from agent.bench.step import Look
from agent.checks import network, ping
from agent.checks._judge import finding
from agent.checks._network_facts import along_the_way
from agent.evidence import Store
from agent.host import Ran, ReplayHost
from agent.model import Finding, Measurement, Taken
from agent.text import msg
from tests import netns
from tests.bench.driven import clause, judged
from tests.netns import FAR, NEAR, TwoHosts

SHAPE = 200e6
WHY_NOT = netns.unavailable("iperf3", "ping")
pytestmark = [
    pytest.mark.root,
    pytest.mark.iperf3,
    pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)),
]


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same repetitions, shorter."""
    plan = bench.Plan(6, 1, 1)
    monkeypatch.setattr(bench, "PLANS", {"quick": plan, "standard": plan, "deeper": bench.Plan(11, 1, 1)})
    monkeypatch.setattr(bench, "SCREEN_S", 1)
    monkeypatch.setattr(bench, "BUSY_PAUSE_S", 1.0)


@pytest.fixture(scope="module")
def shaped() -> Iterator[TwoHosts]:
    """200 Mbit/s, no delay to speak of; iperf3 in three networks."""
    with netns.two_hosts(rate="200mbit") as hosts:
        for number, address in enumerate(FAR):
            hosts.iperf3(address, 5201 + number)
        yield hosts


def _servers(*numbers: int) -> tuple[str, ...]:
    return tuple(f"{FAR[n]}:{5201 + n}" for n in numbers)


def _download(hosts: TwoHosts, run: Path, promise: str, servers: tuple[str, ...]) -> Finding:
    asked = clause(network, "download", promise, name="public", servers=servers)
    return judged(network, [asked], hosts.host(run))["network[public].download"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("vde_switch") is None, reason="needs vde2")
def test_shaped_and_delayed_rate_and_latency_on_both_sides_of_the_limit(tmp_path: Path) -> None:
    with netns.two_hosts(rate="200mbit", delay_ms=10) as hosts:
        for number in (0, 1):
            hosts.iperf3(FAR[number], 5201 + number)
        host = hosts.host(tmp_path / "run")
        rates = [
            clause(network, "download", ">= 180 Mbit/s", name="public", servers=_servers(0, 1)),
            clause(network, "upload", ">= 220 Mbit/s", name="public", servers=_servers(0, 1)),
        ]
        found = judged(network, rates, host)
        pings = [
            clause(ping, "latency", "<= 22 ms", host=FAR[0]),
            clause(ping, "latency", "<= 18 ms", host=FAR[1]),
        ]
        found.update(judged(ping, pings, host))
    down, up = found["network[public].download"], found["network[public].upload"]
    for rate in (down, up):
        assert rate.measured == pytest.approx(SHAPE / 1e6, rel=0.05), rate
    assert (down.outcome, up.outcome) == ("pass", "fail"), up.reason
    assert up.reason_code == "below-limit"
    kept, broken = found[f"ping[{FAR[0]}].latency"], found[f"ping[{FAR[1]}].latency"]
    for latency in (kept, broken):
        assert latency.measured == pytest.approx(20, abs=1)
    assert (kept.outcome, broken.outcome) == ("pass", "fail")


def test_a_recorded_run_is_judged_again_to_the_same_findings(shaped: TwoHosts, tmp_path: Path) -> None:
    asked = [clause(network, "download", ">= 300 Mbit/s", name="public", servers=_servers(0, 1))]
    live = judged(network, asked, shaped.host(tmp_path))
    assert judged(network, asked, ReplayHost(Store(tmp_path))) == live
    assert live["network[public].download"].outcome == "fail"


def test_one_server_alone_does_not_convict(shaped: TwoHosts, tmp_path: Path) -> None:
    found = _download(shaped, tmp_path, ">= 300 Mbit/s", _servers(0))
    assert (found.outcome, found.reason_code) == ("inconclusive", bench.FAR_END)


def test_two_servers_in_one_network_do_not_convict(shaped: TwoHosts, tmp_path: Path) -> None:
    found = _download(shaped, tmp_path, ">= 300 Mbit/s", _servers(2, 3))
    assert (found.outcome, found.reason_code) == ("inconclusive", bench.FAR_END)


def test_a_busy_server_is_waited_for(shaped: TwoHosts, tmp_path: Path) -> None:
    other = shaped.spawn(shaped.near, "iperf3", "-c", FAR[0], "-p", "5201", "-t", "4")
    time.sleep(0.7)
    found = _download(shaped, tmp_path, ">= 150 Mbit/s", _servers(0))
    assert other.wait(10) == 0
    assert found.outcome == "pass"
    assert any("again" in meta.parent.name for meta in (tmp_path / "evidence").glob("*/meta.json"))


def test_own_traffic_beside_the_test_is_named_and_does_not_convict(shaped: TwoHosts, tmp_path: Path) -> None:
    step = bench.step(bench.Entry("public", _servers(0), {"upload": SHAPE}))
    quiet = step.execute(shaped.host(tmp_path / "quiet"), Look())["network[public].upload"]
    other = shaped.spawn(shaped.near, "iperf3", "-c", FAR[1], "-p", "5202", "-t", "60")
    busy = step.execute(shaped.host(tmp_path / "busy"), Look())["network[public].upload"]
    other.kill()
    assert isinstance(quiet, Taken)
    assert isinstance(busy, Taken)
    assert quiet.attempt.weak is not None
    assert quiet.attempt.weak.code == bench.FAR_END
    assert quiet.attempt.blocks[0].conditions["foreign"]["net_bytes_per_s"] < 0.01 * SHAPE / 8
    assert busy.attempt.weak is not None
    assert busy.attempt.weak.code == "disturbed"
    assert "t0 carried" in str(busy.attempt.weak.text)


def test_refused_is_said_and_another_server_serves(shaped: TwoHosts, tmp_path: Path) -> None:
    found = _download(shaped, tmp_path, ">= 150 Mbit/s", (f"{FAR[0]}:5999", *_servers(1)))
    assert found.outcome == "pass"
    assert any("refused" in str(note) for note in found.notes)
    alone = _download(shaped, tmp_path / "alone", ">= 150 Mbit/s", (f"{FAR[0]}:5999",))
    assert (alone.outcome, alone.reason_code) == ("inconclusive", "not-there")
    assert alone.grant is not None


def test_a_server_that_never_answers_costs_its_deadline(
    shaped: TwoHosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "SILENCE_S", 2.0)
    listen = "import socket,time; s=socket.create_server(('10.71.0.2', 5300), backlog=8); time.sleep(60)"
    shaped.spawn(shaped.far, "python3", "-c", listen)
    shaped.listening(5300)
    begun = time.monotonic()
    found = _download(shaped, tmp_path, ">= 150 Mbit/s", ("10.71.0.2:5300",))
    assert time.monotonic() - begun < 15
    assert (found.outcome, found.reason_code) == ("inconclusive", "timeout")


class Deadly(netns.NamespaceHost):
    """Kills a server ``after_s`` into its third repetition."""

    victim: subprocess.Popen[bytes]
    after_s = 0.0

    def run(
        self,
        probe: str,
        argv: Sequence[str],
        timeout_s: float,
        *,
        worker: bool = False,
        extra_env: Optional[Mapping[str, str]] = None,
        cwd: Optional[str] = None,
        inputs: Optional[Mapping[str, bytes]] = None,
    ) -> Ran:
        if probe.endswith("rep3"):
            death = threading.Timer(self.after_s, self.victim.kill)
            death.start()
            death.join(None if self.after_s == 0 else 0)
        return super().run(probe, argv, timeout_s, worker=worker, extra_env=extra_env, cwd=cwd, inputs=inputs)


def test_a_server_that_dies_in_the_middle(tmp_path: Path) -> None:
    with netns.two_hosts(rate="200mbit") as hosts:
        host = Deadly(Store(tmp_path), hosts.near)
        host.victim = hosts.iperf3(FAR[0])
        asked = clause(network, "download", ">= 150 Mbit/s", name="public", servers=(f"{FAR[0]}:5201",))
        found = judged(network, [asked], host)["network[public].download"]
    assert (found.outcome, found.measured) == ("inconclusive", None)
    assert "refused" in str(found.reason)


def test_a_server_that_dies_while_it_is_measured_is_left_for_another(tmp_path: Path) -> None:
    """iperf3 ends with status 0 and sums of the part before: it is the error that tells."""
    with netns.two_hosts(rate="200mbit") as hosts:
        host = Deadly(Store(tmp_path), hosts.near)
        host.after_s = 1.2
        host.victim = hosts.iperf3(FAR[0])
        begun = time.monotonic()
        alone = clause(network, "download", ">= 150 Mbit/s", name="alone", servers=_servers(0))
        dead = judged(network, [alone], host)["network[alone].download"]
        took = time.monotonic() - begun
        host.victim = hosts.iperf3(FAR[0])
        # Both are as fast: whichever is chosen first, one of the two is dead after its third test.
        hosts.iperf3(FAR[1], 5202)
        pair = clause(network, "download", ">= 150 Mbit/s", name="pair", servers=_servers(0, 1))
        other = judged(network, [pair], host)["network[pair].download"]
    assert (dead.outcome, dead.measured) == ("inconclusive", None), dead
    assert dead.reason_code in ("failed", "timeout", "not-there")
    assert took < 30
    assert other.outcome == "pass", other


def test_a_slow_far_end_is_not_the_vendors_fault(tmp_path: Path) -> None:
    """The first network's server can do 50 Mbit/s, the second's all: the promise is kept, and it is said how."""
    with netns.two_hosts() as hosts:
        hosts.filter(hosts.far, f"ip daddr {FAR[0]} limit rate over 6 mbytes/second burst 128 kbytes drop")
        hosts.iperf3(FAR[0])
        hosts.iperf3(FAR[1], 5202)
        slow = clause(network, "upload", ">= 500 Mbit/s", name="slow", servers=(f"{FAR[0]}:5201",))
        both = clause(network, "upload", ">= 500 Mbit/s", name="both", servers=(f"{FAR[0]}:5201", f"{FAR[1]}:5202"))
        found = judged(network, [slow, both], hosts.host(tmp_path))
    assert found["network[both].upload"].outcome == "pass"
    assert found["network[slow].upload"].reason_code == bench.FAR_END


@pytest.mark.slow
def test_a_policer_of_100_mbit_is_named_and_up_is_not_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes down is policed at 100 Mbit/s, what goes up is free: each direction is judged by itself."""
    monkeypatch.setattr(bench, "PLANS", dict.fromkeys(("standard", "deeper"), bench.Plan(6, 4, 1)))
    with netns.two_hosts() as hosts:
        hosts.police(hosts.far, "100mbit")
        for number in (0, 1):
            hosts.iperf3(FAR[number], 5201 + number)
        asked = [
            clause(network, name, ">= 500 Mbit/s", name="public", servers=_servers(0, 1))
            for name in ("download", "upload")
        ]
        found = judged(network, asked, hosts.host(tmp_path))
    down, up = found["network[public].download"], found["network[public].upload"]
    assert down.outcome == "fail", down
    assert 60 <= float(str(down.measured)) <= 105, down
    assert any("100 Mbit/s" in str(note) for note in down.notes), down.notes
    assert up.outcome == "pass", up


def test_an_upload_through_a_policer_is_not_taken_for_own_work(tmp_path: Path) -> None:
    """What a policer drops is sent again: the interface carries more than arrives, and it is all ours."""
    with netns.two_hosts() as hosts:
        hosts.filter(hosts.far, "meta length > 0 limit rate over 12500 kbytes/second burst 64 kbytes drop")
        for number in (0, 1):
            hosts.iperf3(FAR[number], 5201 + number)
        asked = [clause(network, "upload", ">= 500 Mbit/s", name="public", servers=_servers(0, 1))]
        found = judged(network, asked, hosts.host(tmp_path))["network[public].upload"]
    assert found.outcome == "fail", found
    assert float(str(found.measured)) <= 110


def test_up_and_down_are_judged_apart(tmp_path: Path) -> None:
    with netns.two_hosts() as hosts:
        hosts.shape(hosts.far, "300mbit")
        hosts.shape(hosts.near, "50mbit")
        for number in (0, 1):
            hosts.iperf3(FAR[number], 5201 + number)
        asked = [
            clause(network, name, ">= 200 Mbit/s", name="public", servers=_servers(0, 1))
            for name in ("download", "upload")
        ]
        found = judged(network, asked, hosts.host(tmp_path))
    down, up = found["network[public].download"], found["network[public].upload"]
    assert (down.outcome, up.outcome) == ("pass", "fail"), (down, up)
    assert down.measured == pytest.approx(300, rel=0.1)
    assert up.measured == pytest.approx(50, rel=0.1)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("vde_switch") is None, reason="needs vde2")
def test_thirty_milliseconds_and_their_jitter(tmp_path: Path) -> None:
    """15 ms ± 5 ms one way: 30 ms there and back, whose mean deviation is some 4 ms."""
    with netns.two_hosts(delay_ms=15, spread_ms=5) as hosts:
        asked = [
            clause(ping, name, promise, host=host)
            for host, name, promise in (
                (FAR[0], "latency", "<= 35 ms"),
                (FAR[1], "latency", "<= 25 ms"),
                (FAR[0], "jitter", "<= 8 ms"),
                (FAR[1], "jitter", "<= 1 ms"),
            )
        ]
        found = judged(ping, asked, hosts.host(tmp_path))
    outcomes = {i: f.outcome for i, f in found.items()}
    assert found[f"ping[{FAR[0]}].latency"].measured == pytest.approx(30, abs=4), found
    assert set(outcomes.values()) == {"pass", "fail"}
    assert {i for i, outcome in outcomes.items() if outcome == "fail"} == {
        f"ping[{FAR[1]}].latency",
        f"ping[{FAR[1]}].jitter",
    }


def test_an_address_of_this_machine_is_no_network(tmp_path: Path) -> None:
    with netns.two_hosts() as hosts:
        hosts.spawn(hosts.near, "iperf3", "-s", "-B", NEAR[0], "-p", "5209")
        time.sleep(1.0)
        asked = [clause(network, "download", ">= 1 Mbit/s", name="own", servers=(f"{NEAR[0]}:5209",))]
        found = judged(network, asked, hosts.host(tmp_path))["network[own].download"]
    assert (found.outcome, found.reason_code) == ("inconclusive", "own-address"), found
    assert "this machine itself" in str(found.reason)


def test_the_mtu_of_the_way(tmp_path: Path) -> None:
    """Both ends 9000: large packets pass. The far end 1500: the interface keeps the promise, the way is open."""
    with netns.two_hosts() as hosts:
        for namespace in (hosts.near, hosts.far):
            hosts.shell(namespace, "ip", "link", "set", hosts.device, "mtu", "9000")
        host = hosts.host(tmp_path)
        step = path_mtu.step("lan", (f"{FAR[0]}:5201",), 9000, None)
        wide = _way(step.execute(host, Look(1))["network[lan].mtu"])
        hosts.shell(hosts.far, "ip", "link", "set", hosts.device, "mtu", "1500")
        narrow = _way(step.execute(host, Look(2))["network[lan].mtu"])
        hosts.filter(hosts.far, "icmp type echo-request drop")
        silent = _way(step.execute(host, Look(3))["network[lan].mtu"])
    assert (wide.outcome, "in one piece" in str(wide.notes[-1])) == ("pass", True), wide
    assert (narrow.outcome, narrow.reason_code) == ("inconclusive", "narrow-way"), narrow
    assert (silent.outcome, "was not seen" in str(silent.notes[-1])) == ("pass", True), silent
    assert all(found.evidence for found in (wide, narrow, silent))


def _way(taken: object) -> Finding:
    """What the check says of an interface of 9000 bytes and of this measurement."""
    assert isinstance(taken, Taken)
    asked = clause(network, "mtu", "9000", name="lan")
    kept = finding(asked, "pass", "kept", msg("kept"), measured=9000)
    seen = Measurement("network[lan].mtu", taken.unit, taken.statistic, (taken.attempt,))
    return along_the_way(kept, seen)


def test_icmp_blocked_is_measured_by_tcp_and_loss_stays_open(tmp_path: Path) -> None:
    with netns.two_hosts() as hosts:
        hosts.filter(hosts.far, "icmp type echo-request drop")
        asked = [
            clause(ping, "latency", "<= 5 ms", host=FAR[0]),
            clause(ping, "loss", "<= 1 %", host=FAR[0]),
        ]
        found = judged(ping, asked, hosts.host(tmp_path))
    latency, loss = found[f"ping[{FAR[0]}].latency"], found[f"ping[{FAR[0]}].loss"]
    assert latency.outcome == "pass"
    assert any("TCP" in str(note) for note in latency.notes)
    assert (loss.outcome, loss.reason_code) == ("inconclusive", "timeout")


@pytest.mark.slow
def test_one_percent_of_loss_on_both_sides_of_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ping_bench, "INTERVALS_S", (0.005,))
    with netns.two_hosts() as hosts:
        hosts.filter(hosts.far, f"ip daddr {FAR[0]} icmp type echo-request numgen random mod 100 < 1 drop")
        asked = [clause(ping, "loss", "<= 0.2 %", host=FAR[0]), clause(ping, "loss", "<= 0.2 %", host=FAR[1])]
        found = judged(ping, asked, hosts.host(tmp_path))
    lossy, clean = found[f"ping[{FAR[0]}].loss"], found[f"ping[{FAR[1]}].loss"]
    assert clean.outcome == "pass", clean
    assert lossy.outcome == "fail", lossy
    assert lossy.measured == pytest.approx(1.0, abs=0.6)


def test_namespaces_are_gone_afterwards() -> None:
    with netns.two_hosts(rate="100mbit") as hosts:
        names = (hosts.near, hosts.far)
        hosts.iperf3(FAR[0])
    assert not any(name in netns.namespaces() for name in names)
    assert not hosts.folder.exists()
