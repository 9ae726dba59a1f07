"""Packets lost and their jitter at a stated rate, both ways: iperf3 with UDP, to the servers of a ``network`` entry.

Twelve tests of a few seconds an attempt. Packets are lost in runs, one after the other, so that neighbours are no
independent trials: the share is judged by its spread over the tests, never as so many coins tossed. The rate is that
of the line, headers counted, so that what is asked at the promised rate fits into it. Whoever sends may be the one
who is too slow, and who receives may lose packets of its own: neither is the network's, and neither convicts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Literal, Optional, Union

from agent.bench import names, neighbours, network
from agent.bench.endpoints import Endpoint, network_of
from agent.bench.network import Client, Entry, Failed, Memory, Plan, Seen, Test
from agent.bench.step import Cost, Look, Step
from agent.host import Host
from agent.model import Attempt, Block, Depth, Result, Taken, Void
from agent.quantity import format_quantity
from agent.reading import Known, Missing
from agent.stats import TIME_BLOCKS, TIME_BLOCKS_DEEPER
from agent.text import Text, msg
from agent.tools import iperf3

Direction = Literal["download", "upload"]
Name = Literal["udp_loss", "udp_jitter"]
DIRECTIONS: tuple[Direction, ...] = ("download", "upload")

DEFAULT_RATE = 10e6  # bit/s; of a slower line half of its promise
PAYLOAD = 1200  # bytes: in one piece on any way of today
WIRE = (PAYLOAD + 48) / PAYLOAD  # headers of UDP, IP and Ethernet beside the content
REPEATS: Mapping[Depth, int] = {"quick": TIME_BLOCKS, "standard": TIME_BLOCKS, "deeper": TIME_BLOCKS_DEEPER}
SHORTEST_S: Mapping[Depth, int] = {"quick": 1, "standard": 3, "deeper": 3}
LONGEST_S: Mapping[Depth, int] = {"quick": 1, "standard": 10, "deeper": 10}
TELLING = 10  # packets that the clause allows to be lost in an attempt: fewer tell chance from line badly
# Traffic of one attempt in one direction over addresses that may be paid by the byte.
TRAFFIC_CAP = 1_000_000_000
SENT_SHARE = 0.95  # of the rate asked: who sent less did not show the line at that rate
TAIL_SHARE = 0.1  # of the packets sent: as many may be on their way when the test ends
OVERFLOW_SHARE = 0.1  # of the packets lost
SILENCE_S = 5.0
TRIES = 3
SENDER = "sender-too-slow"
OWN_BUFFER = "own-receive-buffer"
ABOVE_PROMISE = "asked-above-promise"
BLOCKED = "udp-blocked"
# What UDP that does not pass looks like: a refusal, silence, or an end without a packet.
_NOT_PASSING = frozenset(
    {"timeout", "refused", "connection_lost", "denied", "unparsable", "failed", "truncated", "empty"}
)


@dataclass(frozen=True)
class Asked:
    """What an entry asks of UDP: the clauses' names, the written rate in bit/s, the promised loss as a share of 1."""

    entry: Entry
    names: tuple[Name, ...]
    rate: Optional[float] = None
    loss: Optional[float] = None

    @property
    def directions(self) -> tuple[Direction, ...]:
        """Those whose rate is promised; both where none is."""
        return tuple(d for d in DIRECTIONS if d in self.entry.promised) or DIRECTIONS

    def key(self, name: str, direction: str) -> str:
        """``network[public].udp_loss@download``"""
        return f"network[{self.entry.name}].{name}@{direction}"

    def rate_of(self, direction: str) -> float:
        """The rate on the line in bit/s: as written, else a modest one that the promise surely covers."""
        promised = self.entry.promised.get(direction)
        return self.rate or min(DEFAULT_RATE, promised / 2 if promised else DEFAULT_RATE)

    def plan(self, direction: str, depth: Depth) -> Plan:
        """As long as it takes for the allowed loss to be some packets, within bounds. Nothing is omitted: UDP does
        not start slowly."""
        seconds = SHORTEST_S[depth]
        if self.loss:
            telling = TELLING / (self.loss * REPEATS[depth] * self.rate_of(direction) / 8 / PAYLOAD / WIRE)
            seconds = min(max(seconds, math.ceil(telling)), LONGEST_S[depth])
        return Plan(REPEATS[depth], seconds, 0)


class _SlowTcp(Client):
    """Whether TCP passes at all: too little traffic to disturb the test that it stands beside."""

    def argv(self, end: Endpoint, direction: str, seconds: int, omit_s: int) -> list[str]:
        argv = iperf3.client_argv(
            server=end.host,
            port=end.port,
            seconds=seconds,
            reverse=direction == "download",
            rate_bits_per_s=1_000_000,
            connect_timeout_ms=self.connect_timeout_ms,
        )
        return argv + self.binding


@dataclass(frozen=True)
class UdpClient(Client):
    """iperf3 with UDP on this host, for one entry in one look."""

    asked: Asked

    def key(self, direction: str) -> str:
        return f"network[{self.entry.name}].udp.{direction}"

    def plan(self, direction: str) -> Plan:
        return self.asked.plan(direction, self.look.depth)

    def cap(self) -> int:
        return TRAFFIC_CAP

    def argv(self, end: Endpoint, direction: str, seconds: int, omit_s: int) -> list[str]:
        argv = iperf3.client_argv(
            server=end.host,
            port=end.port,
            seconds=seconds,
            reverse=direction == "download",
            udp=True,
            rate_bits_per_s=round(self.asked.rate_of(direction) / WIRE),
            connect_timeout_ms=self.connect_timeout_ms,
            length=PAYLOAD,
        )
        return argv + self.binding

    def silence_s(self) -> float:
        return SILENCE_S

    def test(self, probe: str, end: Endpoint, direction: str, seconds: int, omit_s: int) -> Union[Test, Failed]:
        """One test. Its first packet is sent once only, and where that is lost iperf3 waits in vain: it is tried again.

        Where nothing passes, a second of TCP to the same port tells a closed way from a silent server.
        """
        got = self._once(probe, end, direction, seconds, omit_s)
        if isinstance(got, Test) or got.code not in _NOT_PASSING:
            return got
        slowly = _SlowTcp(self.host, self.entry, self.look, self.version, self.resolved)
        tcp = network.patient(slowly, f"{probe}.tcp", end, direction, 1, 0)
        if isinstance(tcp, Failed):
            return got
        for again in range(1, TRIES):
            got = self._once(f"{probe}.udp{again}", end, direction, seconds, omit_s)
            if isinstance(got, Test) or got.code not in _NOT_PASSING:
                return got
        return _blocked(got, tcp, end)

    def _once(self, probe: str, end: Endpoint, direction: str, seconds: int, omit_s: int) -> Union[Test, Failed]:
        got = super().test(probe, end, direction, seconds, omit_s)
        if isinstance(got, Test) and got.result.packets is None:
            return network.failed(got.ran, end, "unparsable", "the receiver counted no packets")
        return got


def _blocked(udp: Failed, tcp: Test, end: Endpoint) -> Failed:
    detail = msg("TCP passes and UDP does not ({said})", said=udp.missing.detail)
    grant = msg(
        "UDP on port {port} both ways between this machine and {host}: firewalls and security groups at both ends",
        port=end.port,
        host=end.host,
    )
    return Failed(BLOCKED, Missing("denied", detail, (*udp.missing.evidence, *tcp.ran.cited), grant))


def step(asked: Asked) -> Step:
    """The measurement of one entry, with one key a clause and direction."""
    memory = Memory()
    keys = tuple(asked.key(name, d) for d in asked.directions for name in asked.names)

    def execute(host: Host, look: Look) -> Mapping[str, Result]:
        return _execute(asked, memory, host, look)

    name = f"network[{asked.entry.name}].udp"
    return Step(name, keys, "network", lambda depth: cost(asked, depth), execute, settle_s=10.0)


def cost(asked: Asked, depth: Depth) -> Cost:
    """Wall clock and traffic of one execution. Without a server there is nothing to run."""
    if not asked.entry.servers:
        return Cost(0.0)
    screening = len(asked.entry.servers) * (network.SCREEN_S + network.CONNECT_S)
    seconds, sent = 0.0, 0.0
    for direction in asked.directions:
        plan = asked.plan(direction, depth)
        seconds += screening + plan.repetitions * (plan.seconds + network.CONNECT_S)
        on_line = plan.repetitions * plan.seconds + len(asked.entry.servers) * network.SCREEN_S
        sent += on_line * asked.rate_of(direction) / 8
    return Cost(seconds, sent=int(sent))


def _execute(asked: Asked, memory: Memory, host: Host, look: Look) -> dict[str, Result]:
    wanted = {d: [n for n in asked.names if look.wants(asked.key(n, d))] for d in asked.directions}
    every = [asked.key(n, d) for d, mine in wanted.items() for n in mine]
    ends, trouble = network.ends_of(asked.entry)
    if trouble is not None:
        return dict.fromkeys(every, trouble)
    version = network.version_of(host, f"network[{asked.entry.name}].udp", look)
    if isinstance(version, Missing):
        return dict.fromkeys(every, version)
    resolved = names.looks(host, f"network[{asked.entry.name}].udp.name.{look.number}", (e.host for e in ends))
    client = UdpClient(host, asked.entry, look, version, resolved, asked)
    results: dict[str, Result] = {}
    for direction, mine in wanted.items():
        if mine:
            seen = network.through(client, memory, direction, ends)
            results.update({asked.key(n, direction): _result(client, n, direction, seen) for n in mine})
    return results


def _result(client: UdpClient, name: Name, direction: Direction, seen: Union[Seen, Missing]) -> Result:
    if isinstance(seen, Missing):
        return seen
    values = [loss_percent(t.result) if name == "udp_loss" else t.result.jitter_ms for t in seen.tests]
    known = [v for v in values if v is not None]
    if len(known) < len(values):
        evidence = tuple(e for t in seen.tests for e in t.ran.cited)
        return Missing("unparsable", msg("the receiver reported neither loss nor jitter"), evidence)
    named = client.resolved.of(seen.chosen.end.host)
    attempt = Attempt(
        blocks=tuple(_block(client, v, t, seen, direction) for v, t in zip(known, seen.tests)),
        depth=client.look.depth,
        started_at=seen.tests[0].ran.started_at,
        evidence=(*(e for t in (seen.chosen.test, *seen.tests) for e in t.ran.cited), *named.evidence),
        void=_void(client, direction, seen),
        weak=_weakness(client, direction, seen),
        notes=(*_notes(client, name, direction, seen), *named.notes, *(network.passed_over(f) for f in seen.failures)),
        reproduce=seen.tests[0].ran.argv,
    )
    moved = [t.course.moved for t in seen.tests if t.course.moved is not None]
    aside = neighbours.on_net(seen.window, direction, sum(moved) if len(moved) == len(seen.tests) else None)
    told = neighbours.told(attempt, aside)
    if name == "udp_loss":
        return Taken(told, "%", "share of packets", direction)
    return Taken(told, "ms", "median of repetitions", direction)


def loss_percent(result: iperf3.Iperf3) -> Optional[float]:
    """Of the packets that the receiver's numbering covers, in percent; None where it counted none.

    What was sent after the last one that arrived has no successor to be missed by. It counts where it is more than
    could have been on its way when the test ended: the way closed in the middle.
    """
    if result.packets is None or result.lost_packets is None:
        return None
    sent = result.sent_packets or 0
    tail = sent - result.packets
    tail = tail if tail > TAIL_SHARE * sent else 0
    return 100 * (result.lost_packets + tail) / (result.packets + tail)


def _block(client: UdpClient, value: float, test: Test, seen: Seen, direction: Direction) -> Block:
    # Not "bytes" and "seconds": these make a block a transfer, whose rate would be judged.
    conditions = {
        **client.resolved.of(seen.chosen.end.host).conditions,
        "server": str(seen.chosen.end),
        "address": test.course.address,
        "network": network_of(test.course.address),
        "local": seen.chosen.test.course.local,
        "other_networks": seen.others,
        "direction": direction,
        "asked_bits_per_s": client.asked.rate_of(direction),
        "sent_bits_per_s": _on_line(test),
        "packets": test.result.packets,
        "lost_packets": test.result.lost_packets,
        "sent_packets": test.result.sent_packets,
        "jitter_ms": test.result.jitter_ms,
        "took_s": test.seconds,
        "cpu_percent": test.course.cpu,
        "far_cpu_percent": test.course.far_cpu,
    }
    return Block(value, conditions=conditions)


def _on_line(test: Test) -> Optional[float]:
    """bit/s that the sender sent, headers counted; None where it did not say."""
    sent = test.result.sent_bits_per_s
    return None if sent is None else sent * WIRE


def _void(client: UdpClient, direction: Direction, seen: Seen) -> Optional[Void]:
    """Packets sent more slowly than asked say nothing about the rate asked, neither way."""
    asked = client.asked.rate_of(direction)
    rates = [_on_line(test) for test in seen.tests]
    told = [rate for rate in rates if rate is not None]
    if len(told) < len(rates):
        return Void(SENDER, msg("the sender did not report what it sent"))
    if median(told) >= SENT_SHARE * asked:
        return None
    who = msg("this machine") if direction == "upload" else msg("the far end {server}", server=str(seen.chosen.end))
    text = msg(
        "{who} sent {sent} of the {asked} that were asked for: this shows nothing at that rate",
        who=who,
        sent=_rate(median(told)),
        asked=_rate(asked),
    )
    return Void(SENDER, text)


def _weakness(client: UdpClient, direction: Direction, seen: Seen) -> Void:
    """Why these packets' loss is not simply the line's."""
    asked, promised = client.asked.rate_of(direction), client.entry.promised.get(direction)
    if promised and asked > promised:
        text = msg("{asked} were sent where only {promised} are promised", asked=_rate(asked), promised=_rate(promised))
        return Void(ABOVE_PROMISE, text)
    loads = [test.course.cpu for test in seen.tests if test.course.cpu is not None]
    if loads and median(loads) >= network.CPU_FULL_PERCENT:
        return Void(network.CPU_LIMIT, msg("iperf3 had one core of this machine full: packets may be lost by it"))
    overflow = seen.window.value.udp_overflow if isinstance(seen.window, Known) else None
    lost = sum(test.result.lost_packets or 0 for test in seen.tests)
    if direction == "download" and overflow and overflow >= OVERFLOW_SHARE * lost:
        text = msg("{n} packets reached this machine and found the program's receive buffer full", n=overflow)
        return Void(OWN_BUFFER, text)
    return network.far_end_unproven(seen.chosen.end)


def _notes(client: UdpClient, name: Name, direction: Direction, seen: Seen) -> list[Text]:
    asked, plan, tests = client.asked, client.plan(direction), seen.tests
    notes = [
        msg(
            "{n} UDP tests of {s} s at {rate} with headers, packets of {bytes} bytes, against {server} ({address}): "
            "{lost} of {packets} packets lost",
            n=len(tests),
            s=round(tests[0].seconds),
            rate=_rate(asked.rate_of(direction)),
            bytes=PAYLOAD,
            server=str(seen.chosen.end),
            address=str(seen.chosen.test.course.address),
            lost=sum(t.result.lost_packets or 0 for t in tests),
            packets=sum(t.result.packets or 0 for t in tests),
        )
    ]
    if asked.rate is None:
        notes.append(msg("the contract names no udp_rate: a modest one was taken"))
    if name == "udp_loss":
        notes.append(msg("packets are lost in runs: the interval is over the tests, not over the packets"))
    else:
        notes.append(msg("jitter as iperf3's receiver smooths it (RFC 1889)"))
    if network.affordable(plan, seen.chosen.test, client.cap())[0] < plan.seconds:
        gb = f"{TRAFFIC_CAP / 1e9:.0f}"
        notes.append(msg("shortened to about {gb} GB of traffic: the address may be metered", gb=gb))
    return notes


def _rate(bits_per_s: float) -> str:
    return format_quantity(bits_per_s, "bit/s")
