"""Throughput to iperf3 servers, both ways.

A server is chosen by a short screening test, then asked for six tests of a few seconds: bytes over seconds as the
receiver counted them, without the start. A second attempt goes to a server in another network where one answers,
because a shortfall may be the far end's (design rule 11). Whether an attempt convicts, the judge decides: here
every attempt is weak.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Optional, Union

from agent.bench import names, neighbours
from agent.bench.endpoints import Endpoint, endpoint, metered, network_of, this_machine
from agent.bench.neighbours import Between
from agent.bench.step import TRAFFIC_CAP, Cost, Look, Step
from agent.facts._read import remedy
from agent.host import Host, Ran
from agent.model import Attempt, Block, Depth, Result, Taken, Void
from agent.reading import Missing, MissingKind, Reading
from agent.stats import REPETITIONS, REPETITIONS_DEEPER
from agent.text import Text, msg
from agent.tools import ParseError, iperf3

DEFAULT_PORT = 5201
SCREEN_S = 2
# An end that accepts the connection and then says nothing is given up after this, beyond the test's own seconds.
SILENCE_S = 10.0
CONNECT_TIMEOUT_MS = 4000
# A server runs one test at a time; public ones are free again within a few tests of this length.
BUSY_PAUSE_S = 5.0
BUSY_ROUNDS = 7
BUSY_RETRIES = 3
FAR_END = "far-end-not-shown-capable"
CPU_LIMIT = "client-cpu-limit"
CPU_FULL_PERCENT = 90.0
THREADS_SINCE = (3, 16)
CONNECT_TIMEOUT_SINCE = (3, 3)
BIND_DEV_SINCE = (3, 10)
SEGMENT = 1500  # bytes of a TCP segment on the wire, at most, where the way is not wider
FAST = 1e9  # bit/s; from here on one TCP stream is seldom enough

_KINDS: Mapping[str, MissingKind] = {
    "refused": "not-there",
    "timeout": "timeout",
    "parameter": "unsupported",
    "denied": "denied",
    "empty": "unparsable",
    "truncated": "unparsable",
    "unparsable": "unparsable",
    "text_output": "unparsable",
    "several_results": "unparsable",
}


CONNECT_S = 0.2  # beside each test's own time


@dataclass(frozen=True)
class Plan:
    """One attempt in one direction."""

    repetitions: int
    seconds: int
    omit_s: int


PLANS: Mapping[Depth, Plan] = {
    "quick": Plan(REPETITIONS, 2, 1),
    "standard": Plan(REPETITIONS, 5, 2),
    "deeper": Plan(REPETITIONS_DEEPER, 5, 2),
}


@dataclass(frozen=True)
class Entry:
    """One ``network`` entry: ``promised`` maps each wanted direction to its promise in bit/s."""

    name: str
    servers: tuple[str, ...]
    promised: Mapping[str, float]
    interface: Optional[str] = None

    def key(self, direction: str) -> str:
        """``network[public].download``"""
        return f"network[{self.name}].{direction}"


@dataclass(frozen=True)
class Test:
    """One iperf3 test that gave a rate: ``bits_per_s`` and ``seconds`` are the receiver's."""

    bits_per_s: float
    seconds: float
    course: iperf3.Course
    result: iperf3.Iperf3
    ran: Ran


@dataclass(frozen=True)
class Failed:
    """A test without a rate; ``code`` is the parser's failure kind or the reading's kind."""

    code: str
    missing: Missing


@dataclass(frozen=True)
class Screened:
    """A server that answered the screening, and what it gave."""

    end: Endpoint
    test: Test

    @property
    def network(self) -> Optional[str]:
        return network_of(self.test.course.address)

    @property
    def here(self) -> bool:
        """Whether the server is this machine itself: measured only where no other answers, and never judged."""
        return this_machine(self.test.course.address, self.test.course.local)


@dataclass
class Memory:
    """Which networks earlier attempts at each key went to, in order, and which depths they had."""

    went: dict[str, list[Optional[str]]] = field(default_factory=dict)
    deep: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Client:
    """iperf3 on this host for one entry, in one look: TCP both ways. What differs for UDP is overridden."""

    host: Host
    entry: Entry
    look: Look
    version: tuple[int, ...]
    resolved: names.Names

    def key(self, direction: str) -> str:
        """What the probes of one direction begin with."""
        return self.entry.key(direction)

    def plan(self, direction: str) -> Plan:
        """One attempt at this look's depth."""
        return PLANS[self.look.depth]

    def cap(self) -> int:
        """Bytes of one attempt in one direction over addresses that may be paid by the byte."""
        return TRAFFIC_CAP

    def silence_s(self) -> float:
        """Beyond a test's own seconds, until an end that says nothing is given up."""
        return SILENCE_S

    def streams(self, direction: str) -> int:
        """Parallel streams: one TCP stream is limited by its window and by one core."""
        return 8 if self.entry.promised.get(direction, 0.0) >= FAST else 4

    def argv(self, end: Endpoint, direction: str, seconds: int, omit_s: int) -> list[str]:
        """One test's command, with the options that this version knows."""
        argv = iperf3.client_argv(
            server=end.host,
            port=end.port,
            seconds=seconds,
            omit_s=omit_s,
            parallel=self.streams(direction),
            reverse=direction == "download",
            connect_timeout_ms=self.connect_timeout_ms,
        )
        return argv + self.binding

    @property
    def connect_timeout_ms(self) -> int:
        """0 where this version has no such option."""
        return CONNECT_TIMEOUT_MS if self.version >= CONNECT_TIMEOUT_SINCE else 0

    @property
    def binding(self) -> list[str]:
        """The interface that the entry names, where this version can be bound to it."""
        named = self.entry.interface
        return ["--bind-dev", named] if named and self.version >= BIND_DEV_SINCE else []

    def test(self, probe: str, end: Endpoint, direction: str, seconds: int, omit_s: int) -> Union[Test, Failed]:
        """One test; the ``error`` key is believed, the exit status is not."""
        argv = self.argv(end, direction, seconds, omit_s)
        return read_test(self.host.run(probe, argv, seconds + omit_s + self.silence_s()), end)


def read_test(ran: Ran, end: Endpoint) -> Union[Test, Failed]:
    """What a test gave, from its recording."""
    missing = ran.missing()
    if missing is not None:
        return Failed(missing.kind, missing)
    try:
        result = iperf3.parse(ran.stdout if ran.stdout.strip() else ran.stderr)
        course = iperf3.course(ran.stdout)
    except ParseError as error:
        return failed(ran, end, error.kind, error.line or str(error.message))
    if result.error is not None:
        return failed(ran, end, iperf3.failure_kind(result.error), result.error)
    rate = result.received_bits_per_s or _arrived(result)
    if rate is None or not course.seconds:
        return failed(ran, end, "unparsable", "the receiver reported no rate")
    return Test(rate, course.seconds, course, result, ran)


def _arrived(result: iperf3.Iperf3) -> Optional[float]:
    """UDP before 3.10 prints the sender's rate and what was lost of it. bit/s; None where nothing arrived."""
    if result.sent_bits_per_s is None or result.packets is None or result.lost_packets is None:
        return None
    return result.sent_bits_per_s * (1 - result.lost_packets / result.packets) or None


def failed(ran: Ran, end: Endpoint, code: str, said: str) -> Failed:
    """A test without a rate; ``code`` is the parser's failure kind, ``said`` the tool's own words."""
    detail = msg("{server}: {said}", server=str(end), said=said)
    return Failed(code, Missing(_KINDS.get(code, "failed"), detail, ran.cited, remedy(code, "iperf3")))


def step(entry: Entry) -> Step:
    """The measurement of one entry, with one key a promised direction."""
    memory = Memory()

    def execute(host: Host, look: Look) -> Mapping[str, Result]:
        wanted = [d for d in entry.promised if look.wants(entry.key(d))]
        return _execute(entry, memory, host, look, wanted)

    keys = tuple(entry.key(d) for d in entry.promised)
    return Step(f"network[{entry.name}]", keys, "network", lambda depth: cost(entry, depth), execute, settle_s=10.0)


def cost(entry: Entry, depth: Depth) -> Cost:
    """Wall clock and traffic of one execution, at the promised rate (a faster line moves more, up to the cap).

    Without a server there is nothing to run.
    """
    if not entry.servers:
        return Cost(0.0)
    plan = PLANS[depth]
    screening = len(entry.servers) * (SCREEN_S + CONNECT_S)
    seconds = sum(screening + plan.repetitions * (plan.seconds + plan.omit_s + CONNECT_S) for _ in entry.promised)
    on_wire = plan.repetitions * (plan.seconds + plan.omit_s) + screening
    return Cost(float(seconds), sent=int(sum(on_wire * rate / 8 for rate in entry.promised.values())))


def _execute(entry: Entry, memory: Memory, host: Host, look: Look, wanted: Sequence[str]) -> dict[str, Result]:
    ends, trouble = ends_of(entry)
    if trouble is not None:
        return {entry.key(d): trouble for d in wanted}
    version = version_of(host, f"network[{entry.name}]", look)
    if isinstance(version, Missing):
        return {entry.key(d): version for d in wanted}
    resolved = names.looks(host, f"network[{entry.name}].name.{look.number}", (e.host for e in ends))
    client = Client(host, entry, look, version, resolved)
    return {entry.key(d): _measure(client, memory, d, ends) for d in wanted}


def _measure(client: Client, memory: Memory, direction: str, ends: Sequence[Endpoint]) -> Result:
    found = through(client, memory, direction, ends)
    return found if isinstance(found, Missing) else _taken(client, direction, found)


def ends_of(entry: Entry) -> tuple[list[Endpoint], Optional[Missing]]:
    """The entry's servers, or why there are none."""
    grant = msg("name iperf3 servers under “servers”, at best two in different networks")
    if not entry.servers:
        return [], Missing("not-there", msg("the contract names no server to measure against"), grant=grant)
    try:
        return [endpoint(text, DEFAULT_PORT) for text in entry.servers], None
    except ValueError as error:
        return [], Missing("unsupported", msg("a server of the contract: {error}", error=str(error)), grant=grant)


def version_of(host: Host, prefix: str, look: Look) -> Union[tuple[int, ...], Missing]:
    """Of the iperf3 on this machine, as its major and minor number."""
    ran = host.run(f"{prefix}.version.{look.number}", ["iperf3", "--version"], 10.0)
    missing = ran.missing()
    if missing is not None:
        return missing
    found = re.search(r"iperf (\d+)\.(\d+)", ran.stdout + ran.stderr)
    if found is None:
        return Missing("unparsable", msg("the program called iperf3 does not tell its version"), ran.cited)
    return int(found[1]), int(found[2])


# ---------------------------------------------------------------- choosing the far end


@dataclass(frozen=True)
class Seen:
    """All repetitions of one attempt through one end. ``others``: further networks that answered."""

    chosen: Screened
    tests: Sequence[Test]
    others: int
    failures: Sequence[Failed]
    window: Reading[Between]


def through(client: Client, memory: Memory, direction: str, ends: Sequence[Endpoint]) -> Union[Seen, Missing]:
    """One attempt through the best end that answers."""
    key = client.key(direction)
    went = memory.went.setdefault(key, [])
    # A closer look at a number goes to the end that gave it; a second opinion to an end in another network.
    closer = bool(went) and client.look.depth == "deeper" and key not in memory.deep
    avoid = set() if closer else set(went)
    answered, failures = screen(client, direction, ends, avoid)
    order = sorted(
        answered, key=lambda s: (s.here, s.network in avoid, closer and s.network != went[-1], -s.test.bits_per_s)
    )
    for chosen in order:
        counted = f"{key}.{client.look.number}.{chosen.end}.neighbours"
        before = neighbours.look(client.host, f"{counted}.before")
        tests, failure = _repeat(client, direction, chosen)
        if failure is None:
            window = neighbours.between(before, neighbours.look(client.host, f"{counted}.after"))
            went.append(chosen.network)
            memory.deep.update({key} if client.look.depth == "deeper" else ())
            others = len({s.network for s in answered if not s.here} - {chosen.network})
            return Seen(chosen, tests, others, failures, window)
        failures.append(failure)
    return _nobody(failures)


def screen(
    client: Client, direction: str, ends: Sequence[Endpoint], avoid: set[Optional[str]]
) -> tuple[list[Screened], list[Failed]]:
    """A short test with every server; while all that matter are busy, again within about half a minute."""
    answered: list[Screened] = []
    failures: list[Failed] = []
    waiting = list(ends)
    for again in range(BUSY_ROUNDS):
        if again:
            client.host.sleep(BUSY_PAUSE_S)
        busy = []
        for end in waiting:
            suffix = f".again{again}" if again else ""
            probe = f"{client.key(direction)}.{client.look.number}.screen.{end}{suffix}"
            outcome = client.test(probe, end, direction, SCREEN_S, 0)
            if isinstance(outcome, Test):
                answered.append(Screened(end, outcome))
            elif outcome.code == "busy_server" and again < BUSY_ROUNDS - 1:
                busy.append(end)
            else:
                failures.append(outcome)
        waiting = busy
        if not waiting or any(s.network not in avoid for s in answered):
            break
    return answered, failures


def _nobody(failures: Sequence[Failed]) -> Missing:
    kinds = {f.missing.kind for f in failures}
    detail = msg("no server could be measured against: {failures}", failures=tuple(f.missing.detail for f in failures))
    evidence = tuple(e for f in failures for e in f.missing.evidence)
    usual = msg("a server that answers: “iperf3 -s” on a machine of yours, its address and port under “servers”")
    grant = next((f.missing.grant for f in failures if f.missing.grant is not None), usual)
    return Missing(kinds.pop() if len(kinds) == 1 else "failed", detail, evidence, grant)


# ---------------------------------------------------------------- measuring


def _repeat(client: Client, direction: str, chosen: Screened) -> tuple[list[Test], Optional[Failed]]:
    """All repetitions through one end, or the failure that ended them."""
    plan = client.plan(direction)
    seconds, omit_s = affordable(plan, chosen.test, client.cap())
    tests: list[Test] = []
    for number in range(1, plan.repetitions + 1):
        probe = f"{client.key(direction)}.{client.look.number}.{chosen.end}.rep{number}"
        outcome = patient(client, probe, chosen.end, direction, seconds, omit_s)
        if isinstance(outcome, Failed):
            return tests, outcome
        tests.append(outcome)
    return tests, None


def affordable(plan: Plan, screened: Test, cap: int = TRAFFIC_CAP) -> tuple[int, int]:
    """Seconds and omitted seconds of each repetition, kept within ``cap`` bytes at the rate just seen."""
    if not metered(screened.course.address):
        return plan.seconds, plan.omit_s
    allowed = int(8 * cap / (plan.repetitions * screened.bits_per_s))
    if allowed >= plan.seconds + plan.omit_s:
        return plan.seconds, plan.omit_s
    omit_s = min(1, plan.omit_s)
    return max(1, allowed - omit_s), omit_s


def patient(
    client: Client, probe: str, end: Endpoint, direction: str, seconds: int, omit_s: int
) -> Union[Test, Failed]:
    """One repetition; somebody else's test may have slipped in between two of ours."""
    outcome = client.test(probe, end, direction, seconds, omit_s)
    for again in range(1, BUSY_RETRIES + 1):
        if isinstance(outcome, Test) or outcome.code != "busy_server":
            break
        client.host.sleep(BUSY_PAUSE_S)
        outcome = client.test(f"{probe}.again{again}", end, direction, seconds, omit_s)
    return outcome


def _block(test: Test, chosen: Screened, direction: str, others: int, named: names.Resolved) -> Block:
    conditions = {
        **named.conditions,
        "server": str(chosen.end),
        "address": test.course.address,
        "network": network_of(test.course.address),
        "local": chosen.test.course.local,
        "other_networks": others,
        "direction": direction,
        "streams": test.result.streams,
        "seconds": test.seconds,
        "bytes": test.bits_per_s / 8 * test.seconds,
        "retransmits": test.result.retransmits,
        "cpu_percent": test.course.cpu,
        "far_cpu_percent": test.course.far_cpu,
        "screened": chosen.test.bits_per_s / 8,
    }
    return Block(test.bits_per_s / 8, tuple(rate / 8 for rate in test.course.series), conditions=conditions)


def _taken(client: Client, direction: str, seen: Seen) -> Taken:
    chosen, tests, others = seen.chosen, seen.tests, seen.others
    named = client.resolved.of(chosen.end.host)
    attempt = Attempt(
        blocks=tuple(_block(test, chosen, direction, others, named) for test in tests),
        depth=client.look.depth,
        started_at=tests[0].ran.started_at,
        evidence=(*(e for test in (chosen.test, *tests) for e in test.ran.cited), *named.evidence),
        weak=_weakness(client, chosen, tests),
        notes=(*_notes(client, direction, chosen, tests), *named.notes, *(passed_over(f) for f in seen.failures)),
        reproduce=tests[0].ran.argv,
    )
    # A test that tells no bytes could not be told from somebody else's traffic.
    moved = [test.course.moved for test in tests if test.course.moved is not None]
    # What a policer drops we send again: our own traffic, though it is no payload.
    again = sum(test.result.retransmits or 0 for test in tests) * SEGMENT if direction == "upload" else 0
    aside = neighbours.on_net(seen.window, direction, sum(moved) + again if len(moved) == len(tests) else None)
    return Taken(neighbours.told(attempt, aside), "B/s", "median of repetitions")


def _weakness(client: Client, chosen: Screened, tests: Sequence[Test]) -> Void:
    loads = [test.course.cpu for test in tests if test.course.cpu is not None]
    if client.version < THREADS_SINCE and loads and median(loads) >= CPU_FULL_PERCENT:
        return Void(
            CPU_LIMIT,
            msg(
                "iperf3 {version} works with one thread and had one core full: this machine's line may be faster",
                version=_dotted(client.version),
            ),
        )
    return far_end_unproven(chosen.end)


def far_end_unproven(end: Endpoint) -> Void:
    """Why a shortfall through this end alone does not convict."""
    return Void(
        FAR_END,
        msg(
            "{server} was not shown capable of the promise: to fall short through it counts only if a second server "
            "in another network falls short too, or if one was seen to be fast enough",
            server=str(end),
        ),
    )


def _notes(client: Client, direction: str, chosen: Screened, tests: Sequence[Test]) -> list[Text]:
    streams = client.streams(direction)
    moved = sum(test.bits_per_s / 8 * test.seconds for test in tests) / 1e9
    notes = [
        msg(
            "{n} tests of {s} s with {streams} TCP streams against {server} ({address}), {gb} GB in all",
            n=len(tests),
            s=round(tests[0].seconds),
            streams=streams,
            server=str(chosen.end),
            address=str(chosen.test.course.address),
            gb=f"{moved:.3g}",
        )
    ]
    if client.version < THREADS_SINCE:
        notes.append(
            msg(
                "iperf3 {version} uses one thread for all streams: below 40 Gbit/s the CPU may be the limit",
                version=_dotted(client.version),
            )
        )
    if client.entry.interface and client.version < BIND_DEV_SINCE:
        notes.append(
            msg(
                "iperf3 {version} cannot be bound to {interface}: the route chose the interface",
                version=_dotted(client.version),
                interface=client.entry.interface,
            )
        )
    if affordable(PLANS[client.look.depth], chosen.test)[0] < PLANS[client.look.depth].seconds:
        notes.append(
            msg("shortened to about {gb} GB of traffic: the address may be metered", gb=f"{TRAFFIC_CAP / 1e9:.0f}")
        )
    return notes


def passed_over(failure: Failed) -> Text:
    """The note on an end that gave no number."""
    return msg("not used: {detail}", detail=failure.missing.detail)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
