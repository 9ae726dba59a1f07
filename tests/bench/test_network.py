"""Throughput: choosing a far end, and rule 11, without a network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

import pytest

from agent.bench import network as bench
from agent.bench.endpoints import Endpoint, endpoint, metered, network_of
from agent.bench.step import TRAFFIC_CAP, Look
from agent.checks import _far_end, network
from agent.evidence import Store
from agent.host import ReplayHost
from agent.model import Attempt, Block, Finding, Measurement, Taken, Void
from agent.text import msg
from tests.bench.driven import Said, ScriptedHost, clause, judged

A, B, C = "203.0.113.9:5201", "198.51.100.7:5201", "203.0.9.9:5201"
LOCAL = "198.51.100.77"  # this machine
BUSY = "the server is busy running a test. try again later"


def answer(address: str, bits_per_s: float, *, cpu: float = 10.0, error: Optional[str] = None) -> str:
    """An iperf3 client's JSON."""
    rows = [{"sum": {"bits_per_second": bits_per_s, "omitted": n < 2, "seconds": 1.0}} for n in range(7)]
    total = {"bits_per_second": bits_per_s, "seconds": 5.0, "bytes": int(bits_per_s / 8 * 5), "retransmits": 3}
    document: dict[str, Any] = {
        "start": {
            "version": "iperf 3.12",
            "connected": [{"local_host": LOCAL, "remote_host": address, "remote_port": 5201}],
            "test_start": {"protocol": "TCP", "num_streams": 4, "reverse": 1},
        },
        "intervals": rows,
        "end": {"sum_sent": total, "sum_received": total, "cpu_utilization_percent": {"host_total": cpu}},
    }
    return json.dumps({**document, "error": error} if error else document)


def refusal(error: str) -> str:
    return json.dumps({"start": {"connected": [], "version": "iperf 3.12"}, "intervals": [], "end": {}, "error": error})


class Servers:
    """Servers by address: a rate in bit/s, or an error text. ``busy`` counts the refusals still to come."""

    def __init__(self, rates: dict[str, Any], version: str = "3.12", cpu: float = 10.0) -> None:
        self.rates = rates
        self.version = version
        self.cpu = cpu
        self.busy: dict[str, int] = {}
        self.asked: list[str] = []

    def __call__(self, probe: str, argv: Sequence[str]) -> Said:
        if argv[1] == "--version":
            return f"iperf {self.version} (cJSON 1.7.15)\n"
        server = str(Endpoint(argv[2], int(argv[4])))
        self.asked.append(f"{probe.split('.')[-1]} {server}")
        if self.busy.get(server, 0) > 0:
            self.busy[server] -= 1
            return refusal(BUSY)
        rate = self.rates[server]
        if isinstance(rate, list):
            rate = rate.pop(0) if len(rate) > 1 else rate[0]
        if isinstance(rate, (TimeoutError, FileNotFoundError)):
            return rate
        return refusal(rate) if isinstance(rate, str) else answer(argv[2], rate, cpu=self.cpu)


def find(servers: Servers, run: Path, promise: str, *names: str) -> Finding:
    asked = clause(network, "download", promise, name="public", servers=names)
    return judged(network, [asked], ScriptedHost(run, servers))["network[public].download"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("203.0.113.9:5201", Endpoint("203.0.113.9", 5201)),
        ("iperf.example.cn", Endpoint("iperf.example.cn", 9)),
        ("[2001:db8::1]:5202", Endpoint("2001:db8::1", 5202)),
        ("2001:db8::1", Endpoint("2001:db8::1", 9)),
        ("测试.example:80", Endpoint("测试.example", 80)),
    ],
)
def test_endpoints_as_people_write_them(text: str, wanted: Endpoint) -> None:
    assert endpoint(text, 9) == wanted
    assert endpoint(str(wanted), 9) == wanted


@pytest.mark.parametrize("text", ["", ":5201", "-R", "host:0", "host:70000", "host:x", "a b", "host;rm", "$(id)", "--"])
def test_what_is_no_endpoint_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a"):
        endpoint(text, 5201)


def test_networks_of_addresses() -> None:
    assert network_of("203.0.113.9") == "203.0.0.0/16"
    assert network_of("::ffff:203.0.113.9") == "203.0.0.0/16"
    assert network_of("2001:db8:1::1") == network_of("2001:db8:2::1") == "2001:db8::/32"
    assert network_of("fe80::1%eth0") == "fe80::/32"
    assert network_of(None) is None
    assert network_of("host.example") is None
    assert metered("8.8.8.8")
    assert not metered("10.0.0.1")


def test_the_faster_server_is_taken_and_its_address_kept(tmp_path: Path) -> None:
    found = find(Servers({A: 3e8, B: 9e8}), tmp_path, ">= 500 Mbit/s", A, B)
    assert (found.outcome, found.measured) == ("pass", pytest.approx(900))
    assert "-R" in found.reproduce


@pytest.mark.parametrize("own", ["127.0.0.1:5201", "127.0.0.53:5201", f"{LOCAL}:5201"])
@pytest.mark.parametrize("promise", [">= 1 Mbit/s", ">= 900 Gbit/s"])
def test_this_machine_is_no_far_end(own: str, promise: str, tmp_path: Path) -> None:
    """Its rate is memory's: it neither keeps nor breaks a promise, nor does it serve as a witness."""
    alone = find(Servers({own: 40e9}), tmp_path / "alone", promise, own)
    assert (alone.outcome, alone.reason_code) == ("inconclusive", "own-address"), alone
    assert "this machine itself" in str(alone.reason)
    real = find(Servers({own: 40e9, A: 80e6}), tmp_path / "beside", ">= 100 Mbit/s", own, A)
    assert (real.outcome, real.reason_code, real.measured) == ("inconclusive", bench.FAR_END, 80.0), real


def test_a_shortfall_convicts_when_another_network_agrees(tmp_path: Path) -> None:
    servers = Servers({A: 3e8, B: 2e8})
    found = find(servers, tmp_path, ">= 500 Mbit/s", A, B)
    assert (found.outcome, found.reason_code) == ("fail", "below-limit")
    used = [one.split()[1] for one in servers.asked if one.startswith("rep")]
    assert used == [A] * 6 + [B] * 6, "look 2 goes to the other network"


def test_replaying_gives_the_same_finding(tmp_path: Path) -> None:
    live = find(Servers({A: 3e8, B: 2e8}), tmp_path, ">= 500 Mbit/s", A, B)
    asked = clause(network, "download", ">= 500 Mbit/s", name="public", servers=(A, B))
    assert judged(network, [asked], ReplayHost(Store(tmp_path))) == {live.id: live}


@pytest.mark.parametrize("names", [(A,), (A, C)], ids=["one server", "two in one network"])
def test_a_shortfall_through_one_network_is_open_and_not_repeated(tmp_path: Path, names: tuple[str, ...]) -> None:
    servers = Servers({A: 3e8, C: 2e8})
    found = find(servers, tmp_path, ">= 500 Mbit/s", *names)
    assert (found.outcome, found.reason_code) == ("inconclusive", bench.FAR_END)
    assert sum(one.startswith("rep") for one in servers.asked) == 6, "a repeat could not decide anything"


def test_a_fast_screening_does_not_show_an_end_to_be_capable(tmp_path: Path) -> None:
    found = find(Servers({A: [9e8, 3e8]}), tmp_path, ">= 500 Mbit/s", A)
    assert (found.outcome, found.reason_code) == ("inconclusive", bench.FAR_END)


def test_a_second_end_that_keeps_the_promise_sets_the_first_aside(tmp_path: Path) -> None:
    # B is busy at first and turns out to be the better one.
    servers = Servers({A: 3e8, B: [2e8, 9e8]})
    found = find(servers, tmp_path, ">= 500 Mbit/s", A, B)
    assert found.outcome == "pass"
    assert any("set aside" in str(note) for note in found.notes)


def test_a_busy_server_is_asked_again_within_a_stated_time(tmp_path: Path) -> None:
    servers = Servers({A: 9e8})
    servers.busy[A] = 3
    assert find(servers, tmp_path / "1", ">= 500 Mbit/s", A).outcome == "pass"
    servers.busy[A] = 1000
    host = ScriptedHost(tmp_path / "2", servers)
    asked = clause(network, "download", ">= 500 Mbit/s", name="public", servers=(A,))
    found = judged(network, [asked], host)["network[public].download"]
    assert (found.outcome, found.measured) == ("inconclusive", None)
    assert "busy" in str(found.reason)
    assert host.slept <= bench.BUSY_ROUNDS * bench.BUSY_PAUSE_S


def test_a_busy_server_does_not_hold_up_another(tmp_path: Path) -> None:
    servers = Servers({A: 9e8, B: 9e8})
    servers.busy[A] = 1000
    host = ScriptedHost(tmp_path, servers)
    asked = clause(network, "download", ">= 500 Mbit/s", name="public", servers=(A, B))
    assert judged(network, [asked], host)["network[public].download"].outcome == "pass"
    assert host.slept == 0


def test_a_server_that_stops_answering_is_left_for_another(tmp_path: Path) -> None:
    servers = Servers({A: [9e8, 9e8, 9e8, "unable to connect to server: Connection refused"], B: 8e8})
    found = find(servers, tmp_path, ">= 500 Mbit/s", A, B)
    assert (found.outcome, found.measured) == ("pass", pytest.approx(800))
    assert any("refused" in str(note) for note in found.notes)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("unable to connect to server: Connection refused", "not-there"),
        ("unable to connect to server - server may have stopped running: No route to host", "failed"),
        ("unable to connect to server: Name or service not known", "failed"),
        (TimeoutError(), "timeout"),
    ],
)
def test_no_server_is_no_verdict(tmp_path: Path, said: Any, code: str) -> None:
    found = find(Servers({A: said}), tmp_path, ">= 500 Mbit/s", A)
    assert (found.outcome, found.reason_code, found.measured) == ("inconclusive", code, None)
    assert found.grant is not None


def test_without_iperf3_it_is_named(tmp_path: Path) -> None:
    found = find_with(lambda probe, argv: FileNotFoundError("ENOENT"), tmp_path)
    assert (found.outcome, found.reason_code) == ("inconclusive", "no-tool")
    assert "iperf3" in str(found.grant)


def find_with(script: Any, run: Path) -> Finding:
    asked = clause(network, "download", ">= 500 Mbit/s", name="public", servers=(A,))
    return judged(network, [asked], ScriptedHost(run, script))["network[public].download"]


def test_without_servers_nothing_is_run(tmp_path: Path) -> None:
    asked = clause(network, "download", ">= 500 Mbit/s", name="public")
    host = ScriptedHost(tmp_path, Servers({}))
    found = judged(network, [asked], host)["network[public].download"]
    assert (found.outcome, found.reason_code) == ("inconclusive", "not-there")
    assert not host.asked


def test_the_error_key_is_believed_over_sums_and_exit_status(tmp_path: Path) -> None:
    def script(probe: str, argv: Sequence[str]) -> Said:
        if argv[1] == "--version":
            return "iperf 3.12"
        return answer(argv[2], 9e8, error="unable to write to stream socket: Connection reset by peer")

    found = find_with(script, tmp_path)
    assert found.outcome == "inconclusive"
    assert "reset" in str(found.reason)


def test_a_full_core_of_a_one_thread_client_does_not_convict(tmp_path: Path) -> None:
    rates = {A: 2e10, B: 2e10}
    slow = find(Servers(rates, cpu=99.0), tmp_path / "old", ">= 50 Gbit/s", A, B)
    assert (slow.outcome, slow.reason_code) == ("inconclusive", bench.CPU_LIMIT)
    assert any("one thread" in str(note) for note in slow.notes)
    new = find(Servers(rates, version="3.16", cpu=99.0), tmp_path / "new", ">= 50 Gbit/s", A, B)
    assert new.outcome == "fail"


def test_old_versions_get_no_option_they_do_not_know(tmp_path: Path) -> None:
    servers = Servers({A: 9e8}, version="3.1.3")
    host = ScriptedHost(tmp_path, servers)
    bench.step(bench.Entry("x", (A,), {"download": 1e8}, "eth1")).execute(host, Look())
    assert not any("--connect-timeout" in argv or "--bind-dev" in argv for _, argv in host.asked)
    host = ScriptedHost(tmp_path / "new", Servers({A: 9e8}))
    bench.step(bench.Entry("x", (A,), {"download": 1e8}, "eth1")).execute(host, Look())
    assert all("--bind-dev" in argv for _, argv in host.asked[1:])


def test_traffic_stays_within_the_cap_on_addresses_that_may_be_metered(tmp_path: Path) -> None:
    public, private = "8.8.8.8:5201", "10.0.0.9:5201"
    seconds = {}
    for server in (public, private):
        host = ScriptedHost(tmp_path / server, Servers({server: 1e10}))
        step = bench.step(bench.Entry("x", (server,), {"download": 1e10}))
        taken = step.execute(host, Look())["network[x].download"]
        assert isinstance(taken, Taken)
        argv = next(argv for probe, argv in host.asked if probe.endswith("rep1"))
        seconds[server] = int(argv[argv.index("-t") + 1]) + int(argv[argv.index("-O") + 1])
    assert seconds[public] * 6 * 1e10 / 8 <= TRAFFIC_CAP
    assert seconds[private] == bench.PLANS["standard"].seconds + bench.PLANS["standard"].omit_s


def test_a_repetition_measures_only_what_is_wanted(tmp_path: Path) -> None:
    step = bench.step(bench.Entry("x", (A,), {"download": 1e8, "upload": 1e8}))
    assert step.keys == ("network[x].download", "network[x].upload")
    look = Look(2, keys=frozenset({"network[x].upload"}))
    assert list(step.execute(ScriptedHost(tmp_path, Servers({A: 9e8})), look)) == ["network[x].upload"]


def test_costs_grow_with_depth() -> None:
    entry = bench.Entry("x", (A, B), {"download": 1e8})
    quick, standard, deeper = (bench.cost(entry, d) for d in ("quick", "standard", "deeper"))  # type: ignore[arg-type]
    assert quick.seconds < standard.seconds < deeper.seconds
    assert 0 < quick.sent < standard.sent < deeper.sent
    assert standard.written == 0


def test_promises_over_days_wait_for_the_trial(tmp_path: Path) -> None:
    asked = [
        clause(network, "dedicated", "true", name="public"),
        clause(network, "evening_drop", "<= 10 %", name="public"),
    ]
    found = judged(network, asked, ScriptedHost(tmp_path, Servers({})))
    assert {(f.outcome, f.reason_code) for f in found.values()} == {("inconclusive", "pending-trial")}


def test_a_flat_line_at_a_round_number_is_pointed_out(tmp_path: Path) -> None:
    found = find(Servers({A: 95.6e6, B: 95.5e6}), tmp_path, ">= 500 Mbit/s", A, B)
    assert found.outcome == "fail"
    assert any("flat line" in str(note) for note in found.notes)


# ---------------------------------------------------------------- rule 11 itself

WEAK = Void(bench.FAR_END, msg("weak"))


def attempt(server: str, net: Optional[str], *rates: float, minute: int = 0) -> Attempt:
    conditions = {"server": server, "network": net}
    blocks = tuple(Block(rate, conditions=conditions) for rate in rates)
    return Attempt(blocks, "standard", f"2026-11-30T{8 + minute // 60:02d}:{minute % 60:02d}:00.000Z", weak=WEAK)


def settled(*attempts: Attempt, seen: Sequence[Attempt] = ()) -> list[Attempt]:
    taken = Measurement("network[x].download", "B/s", "median of repetitions", attempts)
    other = Measurement("network[y].download", "B/s", "median of repetitions", tuple(seen))
    return list(_far_end.settle(taken, _far_end.Bound(">=", 100.0), [other] if seen else []).attempts)


def test_two_networks_within_the_hour_agree() -> None:
    assert [a.weak for a in settled(attempt("a", "1", 50, 60), attempt("b", "2", 70, minute=59))] == [None, None]
    late = settled(attempt("a", "1", 50, 60), attempt("b", "2", 70, minute=61))
    assert [a.weak for a in late] == [WEAK, WEAK]
    unknown = settled(attempt("a", None, 50), attempt("b", None, 60))
    assert [a.weak for a in unknown] == [WEAK, WEAK]


def test_another_entry_may_show_an_end_to_be_capable() -> None:
    assert settled(attempt("a", "1", 50), seen=[attempt("a", "1", 120)])[0].weak is None
    assert settled(attempt("a", "1", 50), seen=[attempt("b", "1", 120)])[0].weak is WEAK
    assert settled(attempt("a", "1", 50), seen=[attempt("a", "1", 120, minute=90)])[0].weak is WEAK


def test_an_end_held_back_by_our_own_cpu_is_no_witness() -> None:
    busy = replace(attempt("b", "2", 60), weak=Void(bench.CPU_LIMIT, msg("cpu")))
    first, second = settled(attempt("a", "1", 50), busy)
    assert (first.weak, second.weak) == (WEAK, busy.weak)
