"""UDP loss and jitter without a network: what is asked, what may be the fault of sender or receiver, and rule 11."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

import pytest

from agent.bench import network as tcp_bench
from agent.bench import network_udp as bench
from agent.bench.endpoints import Endpoint
from agent.bench.step import Look
from agent.checks import grammars, network
from agent.contract import loads
from agent.contradictions import contradictions
from agent.course import Course
from agent.model import Clause, Contract, Finding, Taken
from agent.plan import Options
from agent.tools import iperf3
from tests.bench.driven import Said, ScriptedHost, clause

A, B = "203.0.113.9:5201", "198.51.100.7:5201"
MODERN, OLD = "3.12", "3.1.3"


def answer(
    address: str,
    rate: float,
    lost: float,
    *,
    sent: float = 1.0,
    cpu: float = 5.0,
    jitter: float = 0.2,
    version: str = MODERN,
    reverse: bool = False,
) -> str:
    """An iperf3 client's JSON of one second: ``lost`` percent of the packets, ``sent`` of the rate asked."""
    packets = round(rate * sent / 8 / bench.PAYLOAD)
    gone = round(packets * lost / 100)
    counted = {"jitter_ms": jitter, "lost_packets": gone, "packets": packets, "lost_percent": 100 * gone / packets}
    whole = {"seconds": 1.0, "bytes": packets * bench.PAYLOAD, "bits_per_second": rate * sent}
    came = {
        "seconds": 1.0,
        "bytes": (packets - gone) * bench.PAYLOAD,
        "bits_per_second": rate * sent * (1 - lost / 100),
    }
    end: dict[str, Any] = {"sum": {**whole, **counted}, "cpu_utilization_percent": {"host_total": cpu}}
    if version == MODERN:
        end["sum_sent"] = {**whole, "jitter_ms": 0, "lost_packets": 0, "packets": packets, "lost_percent": 0}
        end["sum_received"] = {**came, **counted}
    setup = {"protocol": "UDP", "num_streams": 1, "reverse": int(reverse)}
    start = {
        "version": f"iperf {version}",
        "connected": [{"local_host": "192.0.2.77", "remote_host": address}],
        "test_start": setup,
    }
    return json.dumps({"start": start, "intervals": [{"sum": {**whole, "omitted": False}}], "end": end})


class Servers:
    """Loss in percent by server: one number, or several to be taken in turn (the last one stays)."""

    def __init__(self, losses: dict[str, Any], version: str = MODERN, **more: Any) -> None:
        self.losses = losses
        self.version = version
        self.more = more
        self.overflow: Optional[int] = None

    def __call__(self, probe: str, argv: Sequence[str]) -> Said:
        if argv[1] == "--version":
            return f"iperf {self.version}\n"
        server = str(Endpoint(argv[2], int(argv[4])))
        loss = self.losses[server]
        if isinstance(loss, list):
            loss = loss.pop(0) if len(loss) > 1 else loss[0]
        rate = float(argv[argv.index("-b") + 1])
        return answer(argv[2], rate, loss, version=self.version, reverse="-R" in argv, **self.more)


def clauses(name: str = "udp_loss", promise: str = "<= 0.5 %", way: str = "upload", **settings: Any) -> list[Clause]:
    mine = {"name": "public", "servers": (A, B), **settings}
    return [clause(network, name, promise, **mine), clause(network, way, ">= 100 Mbit/s", **mine)]


def judged(asked: list[Clause], host: ScriptedHost) -> Finding:
    course = Course(Contract(tuple(asked), b"", ""), Options(only=("*.udp_*",)), {"network": network}, host)
    course.make_plan()
    course.measure()
    (found,) = (f for f in course.findings() if ".udp_" in f.id)
    assert not course.faults, course.faults
    return found


def find(servers: Servers, run: Path, asked: Optional[list[Clause]] = None) -> Finding:
    return judged(asked or clauses(), ScriptedHost(run, servers))


# ---------------------------------------------------------------- what iperf3 says


def test_every_version_tells_the_same_loss() -> None:
    """3.1 prints one sum: the sender's rate with the receiver's counts. Since 3.10 there are three."""
    modern, old = (iperf3.parse(answer("h", 10e6, 2.0, version=v)) for v in (MODERN, OLD))
    for result in (modern, old):
        assert bench.loss_percent(result) == pytest.approx(2.0, abs=0.1)
        assert result.jitter_ms == 0.2
        assert (result.packets, result.lost_packets) == (1042, 21)
    assert (modern.sent_packets, old.sent_packets) == (1042, None)


def test_packets_after_the_last_that_arrived_count_where_they_are_many() -> None:
    """A way that closes in the middle: nothing comes after the gap, so that the receiver misses nothing."""
    text = json.loads(answer("h", 10e6, 0.0))
    text["end"]["sum_received"]["packets"] = 521
    half = bench.loss_percent(iperf3.parse(json.dumps(text)))
    assert half == pytest.approx(50, abs=0.1)
    text["end"]["sum_received"]["packets"] = 1020  # on their way when the test ended
    assert bench.loss_percent(iperf3.parse(json.dumps(text))) == 0.0


def test_packets_that_come_twice_are_no_negative_loss() -> None:
    text = json.loads(answer("h", 10e6, 0.0))
    for name in ("sum", "sum_received"):
        text["end"][name].update(lost_packets=-3, lost_percent=-0.3)
    assert bench.loss_percent(iperf3.parse(json.dumps(text))) == 0.0


def test_of_no_packets_there_is_neither_loss_nor_jitter() -> None:
    text = json.loads(answer("h", 10e6, 0.0))
    for name in ("sum", "sum_received"):
        text["end"][name].update(packets=0, bits_per_second=0, lost_packets=0)
    nothing = iperf3.parse(json.dumps(text))
    assert (bench.loss_percent(nothing), nothing.jitter_ms, nothing.received_bits_per_s) == (None, None, None)


def test_tcp_has_no_packets() -> None:
    text = json.loads(answer("h", 10e6, 1.0))
    text["start"]["test_start"]["protocol"] = "TCP"
    result = iperf3.parse(json.dumps(text))
    assert (result.packets, result.lost_packets, result.jitter_ms) == (None, None, None)


# ---------------------------------------------------------------- judging


@pytest.mark.parametrize("version", [MODERN, OLD])
def test_loss_convicts_when_two_networks_agree(version: str, tmp_path: Path) -> None:
    kept = find(Servers({A: 0.1, B: 0.1}, version), tmp_path / "kept")
    assert (kept.outcome, kept.interval_rule) == ("pass", "gamma interval of 12 blocks, 99.95 %"), kept
    broken = find(Servers({A: 2.0, B: 2.5}, version), tmp_path / "broken")
    assert (broken.outcome, broken.reason_code) == ("fail", "above-limit"), broken
    assert broken.subject == "upload"


def test_loss_through_one_end_is_open(tmp_path: Path) -> None:
    found = find(Servers({A: 2.0}), tmp_path, clauses(servers=(A,)))
    assert (found.outcome, found.reason_code) == ("inconclusive", tcp_bench.FAR_END)


def test_an_end_that_loses_alone_is_set_aside(tmp_path: Path) -> None:
    """It was the better one while the ends were chosen, and lost packets afterwards."""
    found = find(Servers({A: [0.0, 2.0], B: [0.1, 0.1]}), tmp_path)
    assert found.outcome == "pass", found
    assert any("set aside" in str(note) for note in found.notes)


def test_one_bad_test_among_good_ones_is_not_hidden(tmp_path: Path) -> None:
    """A median would say 0; of all that was sent 1.25 % is lost, and how sure that is the spread says."""
    burst = [0.0, *[0.0] * 6, 15.0, *[0.0] * 5]
    found = find(Servers({A: [*burst, *burst, 0.0]}), tmp_path, clauses(servers=(A,)))
    assert found.outcome == "inconclusive"
    assert found.reason_code in ("too-close", tcp_bench.FAR_END)


def test_jitter_is_one_number_a_test(tmp_path: Path) -> None:
    kept = find(Servers({A: 0.0, B: 0.0}, jitter=1.5), tmp_path / "kept", clauses("udp_jitter", "<= 2 ms"))
    assert (kept.outcome, kept.measured, kept.unit) == ("pass", 1.5, "ms")
    assert any("RFC 1889" in str(note) for note in kept.notes)
    broken = find(Servers({A: 0.0, B: 0.0}, jitter=3.5), tmp_path / "broken", clauses("udp_jitter", "<= 2 ms"))
    assert broken.outcome == "fail"


# ---------------------------------------------------------------- ours, not theirs


@pytest.mark.parametrize(("way", "who"), [("upload", "this machine"), ("download", "the far end")])
@pytest.mark.parametrize("loss", [0.0, 40.0])
def test_a_sender_below_the_rate_neither_keeps_nor_breaks(way: str, who: str, loss: float, tmp_path: Path) -> None:
    found = find(Servers({A: loss, B: loss}, sent=0.7), tmp_path, clauses(way=way))
    assert (found.outcome, found.reason_code) == ("inconclusive", bench.SENDER), found
    assert str(found.reason).startswith(who)


def test_a_full_core_of_ours_does_not_convict(tmp_path: Path) -> None:
    found = find(Servers({A: 2.0, B: 2.0}, cpu=99.0), tmp_path)
    assert (found.outcome, found.reason_code) == ("inconclusive", tcp_bench.CPU_LIMIT)


class Overflowing(ScriptedHost):
    """The kernel counts packets that found the receive buffer full: so many more at each look."""

    each = 0

    def run(self, probe: str, argv: Sequence[str], timeout_s: float, **more: Any) -> Any:
        if ".neighbours." not in probe:
            return super().run(probe, argv, timeout_s, **more)
        after = probe.endswith(".after")
        said = json.dumps({"at_s": 100.0 if after else 50.0, "udp_overflow": self.each if after else 0})
        kept, self.script = self.script, lambda probe, argv: said
        try:
            return super().run(probe.replace(".neighbours.", ".beside."), argv, timeout_s, **more)
        finally:
            self.script = kept


@pytest.mark.parametrize(
    ("way", "overflow", "code"), [("download", 200, bench.OWN_BUFFER), ("download", 3, ""), ("upload", 200, "")]
)
def test_packets_that_this_machine_dropped_itself_do_not_convict(
    way: str, overflow: int, code: str, tmp_path: Path
) -> None:
    host = Overflowing(tmp_path, Servers({A: 2.0, B: 2.0}))
    host.each = overflow
    found = judged(clauses(way=way), host)
    assert (found.outcome, found.reason_code) == (("inconclusive", code) if code else ("fail", "above-limit")), found


def test_more_than_was_promised_may_be_lost(tmp_path: Path) -> None:
    found = find(Servers({A: 40.0, B: 40.0}), tmp_path, clauses(udp_rate=200e6 / 8))
    assert (found.outcome, found.reason_code) == ("inconclusive", bench.ABOVE_PROMISE)


# ---------------------------------------------------------------- what is asked


def entry(**promised: float) -> tcp_bench.Entry:
    return tcp_bench.Entry("x", (A, B), promised)


def test_the_rate_is_modest_unless_it_is_written() -> None:
    assert bench.Asked(entry(upload=1e9), ("udp_loss",)).rate_of("upload") == 10e6
    assert bench.Asked(entry(upload=4e6), ("udp_loss",)).rate_of("upload") == 2e6
    assert bench.Asked(entry(upload=1e9), ("udp_loss",), 50e6).rate_of("upload") == 50e6


def test_headers_are_part_of_the_rate(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, Servers({A: 0.0, B: 0.0}))
    bench.step(bench.Asked(entry(upload=100e6), ("udp_loss",), 100e6)).execute(host, Look())
    argv = next(argv for probe, argv in host.asked if probe.endswith("rep1"))
    packets_per_s = int(argv[argv.index("-b") + 1]) / 8 / int(argv[argv.index("-l") + 1])
    assert packets_per_s * (bench.PAYLOAD + 20 + 8 + 18) * 8 <= 100e6


def test_directions_are_those_that_are_promised() -> None:
    assert bench.Asked(entry(upload=1e9), ("udp_loss",)).directions == ("upload",)
    assert bench.Asked(entry(), ("udp_loss",)).directions == ("download", "upload")


def test_a_small_promised_loss_takes_longer_within_bounds() -> None:
    seconds = [
        bench.Asked(entry(upload=1e9), ("udp_loss",), loss=share).plan("upload", "standard").seconds
        for share in (0.005, 0.0001, 0.000001)
    ]
    assert seconds == [3, 9, 10]


def test_the_plan_counts_minutes_and_bytes() -> None:
    asked = bench.Asked(entry(upload=1e9, download=1e9), ("udp_loss",), 100e6, 0.005)
    quick, standard, deeper = (bench.cost(asked, d) for d in ("quick", "standard", "deeper"))  # type: ignore[arg-type]
    assert quick.seconds < standard.seconds < deeper.seconds
    assert standard.sent == pytest.approx(2 * (12 * 3 + 2 * tcp_bench.SCREEN_S) * 100e6 / 8)
    default = bench.cost(bench.Asked(entry(upload=1e9, download=1e9), ("udp_loss",), loss=0.005), "deeper")
    assert default.sent < 1e9, "never gigabytes of its own accord"


def test_traffic_stays_within_the_cap_where_it_may_be_metered(tmp_path: Path) -> None:
    lengths = {}
    for server in ("8.8.8.8:5201", "10.0.0.9:5201"):
        host = ScriptedHost(tmp_path / server, Servers({server: 0.0}))
        asked = bench.Asked(tcp_bench.Entry("x", (server,), {"upload": 1e10}), ("udp_loss",), 1e9, 0.005)
        taken = bench.step(asked).execute(host, Look())["network[x].udp_loss@upload"]
        assert isinstance(taken, Taken)
        argv = next(argv for probe, argv in host.asked if probe.endswith("rep1"))
        lengths[server] = (int(argv[argv.index("-t") + 1]), any("metered" in str(n) for n in taken.attempt.notes))
    assert lengths == {"8.8.8.8:5201": (1, True), "10.0.0.9:5201": (3, False)}


CONTRACT = """\
version: 1
network:
  - {name: public, servers: ["203.0.113.9:5201"], upload: 50 Mbit/s, download: 200 Mbit/s, udp_rate: %s,
     udp_loss: "<= 0.5 %%", udp_jitter: 2 ms}
"""


@pytest.mark.parametrize(
    ("rate", "said"), [("50 Mbit/s", []), ("100 Mbit/s", ["upload 50 Mbit/s", "upload 50 Mbit/s"])]
)
def test_a_rate_above_the_promise_is_a_contradiction(rate: str, said: list[str]) -> None:
    read = loads((CONTRACT % rate).encode(), "c.yaml", grammars())
    messages = [str(p.message) for p in contradictions(read)]
    assert len(messages) == len(said)
    assert all(part in message and "udp_rate of 100 Mbit/s" in message for part, message in zip(said, messages))


def test_the_lines_of_the_example_are_a_contract() -> None:
    """They stand there as comments; without their marks they must be read."""
    example = Path(__file__).parents[2] / "contracts" / "examples" / "h100-sxm-8.yaml"
    text = example.read_text(encoding="utf-8").replace("    # udp_", "    udp_")
    read = loads(text.encode(), "c.yaml", grammars())
    assert {"udp_loss", "udp_jitter"} <= {c.name for c in read.clauses}
    assert not contradictions(read)


def test_without_servers_nothing_runs_and_it_is_said(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, Servers({}))
    found = judged(clauses(servers=()), host)
    assert (found.outcome, found.reason_code) == ("inconclusive", "not-there")
    assert not host.asked
