"""Round trips to one host: latency, jitter and loss by ICMP, and TCP connect times where ICMP gets no answer.

Latency and jitter are one number a repetition (ping's own average and mdev); loss is one share over all pings,
whose number is planned from the clause (:func:`agent.stats.trials_for`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, pstdev
from typing import Any, Literal, Optional, Union

from agent.bench._probe import run_probe
from agent.bench.endpoints import host_name
from agent.bench.step import Cost, Look, Step
from agent.facts._read import remedy
from agent.host import Host, Ran
from agent.model import Attempt, Block, Depth, Result, Taken, Void
from agent.reading import Missing, MissingKind
from agent.stats import REPETITIONS, REPETITIONS_DEEPER, trials_for
from agent.text import Text, msg
from agent.tools import ParseError
from agent.tools import ping as tool

# Seconds between pings, the first that ping allows us: older versions keep ordinary users at 0.2 s or more.
INTERVALS_S = (0.05, 0.2, 1.0)
CHECK_PINGS = 5
PINGS = 20  # of a repetition, where no loss clause asks for more
LONGEST_S = 900.0  # of one attempt: a loss of a hundredth of a percent would take hours
TCP_PORTS = (443, 80, 22)
TCP_CONNECTS = 10
TCP_INTERVAL_S = 0.1
TCP_TIMEOUT_S = 3.0
TCP_CODE = "tcp-instead-of-icmp"
REPEATS: Mapping[Depth, int] = {"quick": REPETITIONS, "standard": REPETITIONS, "deeper": REPETITIONS_DEEPER}
_KINDS: Mapping[str, MissingKind] = {"denied": "denied", "tool_missing": "no-tool", "option": "unsupported"}
_DENIED = msg("let this user send ICMP (cap_net_raw, or net.ipv4.ping_group_range)")

Name = Literal["latency", "jitter", "loss"]


@dataclass(frozen=True)
class Entry:
    """One ``ping`` entry: the promised names, and the promised loss as a share of 1 with its order."""

    host: str
    wanted: tuple[Name, ...]
    loss: Optional[float] = None
    loss_op: Literal[">=", "<="] = "<="
    port: Optional[int] = None

    def key(self, name: str) -> str:
        """``ping[jinan.example.cn].latency``"""
        return f"ping[{self.host}].{name}"


@dataclass(frozen=True)
class Sent:
    """One repetition: ping's summary, or what came instead."""

    ran: Ran
    result: tool.Ping

    @property
    def address(self) -> Optional[str]:
        return tool.address(self.ran.stdout)


@dataclass(frozen=True)
class Failed:
    """ping gave no summary: the parser's failure kind, or the reading's."""

    code: str
    missing: Missing


def planned(entry: Entry, depth: Depth) -> int:
    """How many pings the loss clause needs in one attempt; 0 without such a clause.

    A promise of no loss at all can't be shown by any number: it is held against a share of one in a thousand.
    """
    if "loss" not in entry.wanted or entry.loss is None:
        return 0
    allowed = entry.loss if entry.loss_op == "<=" else 1 - entry.loss
    return trials_for(min(max(allowed, 0.001), 0.5), "<=", 2 if depth == "deeper" else 1)


def step(entry: Entry) -> Step:
    """The measurement of one entry, with one key a promised number."""
    keys = tuple(entry.key(name) for name in entry.wanted)

    def execute(host: Host, look: Look) -> Mapping[str, Result]:
        names = [name for name in entry.wanted if look.wants(entry.key(name))]
        results = _execute(entry, host, look, names)
        return {entry.key(name): results[name] for name in names}

    return Step(f"ping[{entry.host}]", keys, "network", lambda depth: cost(entry, depth), execute, settle_s=10.0)


def cost(entry: Entry, depth: Depth) -> Cost:
    """At the shortest interval; 98 bytes a ping each way."""
    count = max(planned(entry, depth), PINGS * REPEATS[depth])
    return Cost(min(count * INTERVALS_S[0], LONGEST_S) + 0.5 * REPEATS[depth] + 2.0, sent=count * 196)


def _execute(entry: Entry, host: Host, look: Look, names: Sequence[Name]) -> Mapping[Name, Result]:
    try:
        host_name(entry.host)
    except ValueError as error:
        missing = Missing("unsupported", msg("{error}", error=str(error)))
        return dict.fromkeys(names, missing)
    found = _check(entry, host, look)
    if isinstance(found, Failed) and found.code in ("name_error", "unreachable"):
        return dict.fromkeys(names, found.missing)
    if isinstance(found, Failed):
        return _by_tcp(entry, host, look, names, found)
    return _by_ping(entry, host, look, names, found)


# ---------------------------------------------------------------- ICMP


def _check(entry: Entry, host: Host, look: Look) -> Union[float, Failed]:
    """A few pings: the shortest interval that is allowed here, or why ICMP can't be used."""
    outcome: Union[Sent, Failed, None] = None
    for interval in INTERVALS_S:
        probe = f"ping[{entry.host}].{look.number}.check.{interval:g}"
        outcome = _ping(host, probe, entry.host, CHECK_PINGS, interval)
        if isinstance(outcome, Sent) and outcome.result.received:
            return interval
        if not (isinstance(outcome, Failed) and outcome.code in ("interval", "option")):
            break
    if isinstance(outcome, Failed):
        return outcome
    detail = msg("{host} answers no ping (ICMP)", host=entry.host)
    return Failed("silent", Missing("timeout", detail, outcome.ran.cited if outcome else ()))


def _ping(host: Host, probe: str, target: str, count: int, interval: float) -> Union[Sent, Failed]:
    deadline = count * interval + tool.TIMEOUT_S
    ran = host.run(probe, tool.argv(target, count=count, interval_s=interval), deadline)
    missing = ran.missing()
    if missing is not None:
        return Failed(missing.kind, missing)
    try:
        return Sent(ran, tool.parse(f"{ran.stdout}\n{ran.stderr}"))
    except ParseError as error:
        code = "interval" if re.search(r"minimal interval|too short", ran.stderr) else error.kind
        detail = msg("ping {host}: {said}", host=target, said=error.line or error.message)
        grant = _DENIED if code == "denied" else remedy(code, "ping")
        return Failed(code, Missing(_KINDS.get(code, "failed"), detail, ran.cited, grant))


def _by_ping(entry: Entry, host: Host, look: Look, names: Sequence[Name], interval: float) -> Mapping[Name, Result]:
    repeats = REPEATS[look.depth]
    wanted = planned(entry, look.depth) if "loss" in names else 0
    total = min(max(wanted, PINGS * repeats), int(LONGEST_S / interval))
    each = math.ceil(total / repeats)
    sent: list[Sent] = []
    for number in range(1, repeats + 1):
        outcome = _ping(host, f"ping[{entry.host}].{look.number}.rep{number}", entry.host, each, interval)
        if isinstance(outcome, Failed):
            return dict.fromkeys(names, outcome.missing)
        sent.append(outcome)
    note = msg("{n} repetitions of {each} pings, {s} s apart", n=repeats, each=each, s=f"{interval:g}")
    return {name: _icmp_result(entry, look, name, sent, note, wanted) for name in names}


def _icmp_result(entry: Entry, look: Look, name: Name, sent: Sequence[Sent], note: Text, wanted: int) -> Result:
    if name == "loss":
        return _loss(look, sent, note, wanted)
    blocks = []
    for one in sent:
        value = one.result.rtt_avg_ms if name == "latency" else one.result.rtt_mdev_ms
        if value is not None:
            blocks.append(Block(value, conditions=_conditions(one)))
    if not blocks and any(one.result.received for one in sent):
        return Missing("unsupported", msg("this ping does not print the mean deviation"), _cited(sent))
    if not blocks:
        return Missing("timeout", msg("{host} answers no ping (ICMP)", host=entry.host), _cited(sent))
    return Taken(_attempt(look, sent, blocks, (note,)), "ms", "median of repetitions")


def _loss(look: Look, sent: Sequence[Sent], note: Text, wanted: int) -> Taken:
    trials = sum(one.result.sent for one in sent)
    lost = trials - sum(one.result.received for one in sent)
    plan = msg("{n} pings planned for this clause, {sent} sent, {lost} lost", n=wanted, sent=trials, lost=lost)
    series = tuple(100 * (one.result.sent - one.result.received) / max(one.result.sent, 1) for one in sent)
    conditions = {"count": lost, "trials": trials, "planned": wanted, "address": sent[0].address}
    block = Block(100 * lost / max(trials, 1), series, conditions=conditions)
    return Taken(_attempt(look, sent, [block], (note, plan)), "%", "share of trials")


def _conditions(one: Sent) -> dict[str, Any]:
    result = one.result
    return {
        "address": one.address,
        "sent": result.sent,
        "received": result.received,
        "min_ms": result.rtt_min_ms,
        "avg_ms": result.rtt_avg_ms,
        "max_ms": result.rtt_max_ms,
        "mdev_ms": result.rtt_mdev_ms,
    }


def _attempt(look: Look, sent: Sequence[Sent], blocks: Sequence[Block], notes: tuple[Text, ...]) -> Attempt:
    first = sent[0].ran
    return Attempt(tuple(blocks), look.depth, first.started_at, _cited(sent), notes=notes, reproduce=first.argv)


def _cited(sent: Sequence[Sent]) -> tuple[str, ...]:
    return tuple(e for one in sent for e in one.ran.cited)


# ---------------------------------------------------------------- TCP where ICMP gets no answer


@dataclass(frozen=True)
class Connects:
    """One repetition of TCP handshakes: milliseconds each, ``refused`` of which were answered by a reset."""

    ran: Ran
    port: int
    times_ms: tuple[float, ...]
    refused: int
    failed: int
    error: Optional[str]
    address: Optional[str] = None


def _by_tcp(entry: Entry, host: Host, look: Look, names: Sequence[Name], icmp: Failed) -> Mapping[Name, Result]:
    found = _open_port(entry, host, look)
    if found is None:
        detail = msg("{icmp}; nor does it answer TCP on {ports}", icmp=icmp.missing.detail, ports=_ports(entry))
        nobody = Missing(icmp.missing.kind, detail, icmp.missing.evidence, icmp.missing.grant)
        return dict.fromkeys(names, nobody)
    repetitions: list[Connects] = []
    for number in range(1, REPEATS[look.depth] + 1):
        one = _connects(
            host, f"ping[{entry.host}].{look.number}.tcp{found}.rep{number}", entry.host, found, TCP_CONNECTS
        )
        if isinstance(one, Missing):
            return dict.fromkeys(names, one)
        repetitions.append(one)
    return {name: _tcp_result(entry, look, name, repetitions, icmp) for name in names}


def _ports(entry: Entry) -> tuple[int, ...]:
    return (entry.port,) if entry.port else TCP_PORTS


def _open_port(entry: Entry, host: Host, look: Look) -> Optional[int]:
    """The first port that accepts, else the first that refuses: a reset takes one round trip as well."""
    refusing: Optional[int] = None
    for port in _ports(entry):
        one = _connects(host, f"ping[{entry.host}].{look.number}.tcp{port}.check", entry.host, port, 1)
        if isinstance(one, Missing) or not one.times_ms:
            continue
        if not one.refused:
            return port
        refusing = refusing or port
    return refusing


def _connects(host: Host, probe: str, target: str, port: int, count: int) -> Union[Connects, Missing]:
    args = [target, str(port), str(count), f"{TCP_INTERVAL_S:g}", f"{TCP_TIMEOUT_S:g}"]
    ran, answer = run_probe(host, probe, "tcp_probe", args, count * (TCP_INTERVAL_S + TCP_TIMEOUT_S) + 20.0)
    if isinstance(answer, Missing):
        return answer
    said = answer.value
    error = said.get("error")
    return Connects(ran, port, tuple(said["times_ms"]), said["refused"], said["failed"], error, said.get("address"))


def _tcp_result(entry: Entry, look: Look, name: Name, repetitions: Sequence[Connects], icmp: Failed) -> Result:
    evidence = (*icmp.missing.evidence, *(e for one in repetitions for e in one.ran.cited))
    if name == "loss":
        detail = msg("{why}: the loss of pings cannot be seen by TCP", why=icmp.missing.detail)
        return Missing(icmp.missing.kind, detail, evidence, icmp.missing.grant)
    blocks = []
    for one in repetitions:
        if one.times_ms:
            # The median: a lost SYN comes back after a whole second and is not a round trip.
            value = median(one.times_ms) if name == "latency" else pstdev(one.times_ms)
            conditions = {
                "address": one.address,
                "port": one.port,
                "refused": one.refused,
                "failed": one.failed,
                "mean_ms": fmean(one.times_ms),
            }
            blocks.append(Block(value, one.times_ms, conditions=conditions))
    if not blocks:
        return Missing("timeout", msg("{host} no longer answers TCP", host=entry.host), evidence)
    first = repetitions[0]
    how = msg(
        "{why}: time of TCP handshakes with port {port} instead, {n} repetitions of {each}",
        why=icmp.missing.detail,
        port=first.port,
        n=len(repetitions),
        each=TCP_CONNECTS,
    )
    weak = Void(TCP_CODE, msg("jitter of TCP handshakes is not that of pings")) if name == "jitter" else None
    started = first.ran.started_at
    attempt = Attempt(tuple(blocks), look.depth, started, evidence, weak=weak, notes=(how,), reproduce=first.ran.argv)
    return Taken(attempt, "ms", "median of repetitions")
