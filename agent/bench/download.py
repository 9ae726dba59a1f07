"""How fast a URL arrives, over several HTTP(S) connections. Nothing is written.

Every attempt is weak: a slow server is the server's fault until another end, in another network, is as slow
(design rule 11). The judge decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional, Union
from urllib.parse import urlsplit

from agent.bench import names, neighbours
from agent.bench._probe import run_probe
from agent.bench.endpoints import network_of
from agent.bench.network import CPU_LIMIT, FAR_END
from agent.bench.step import TRAFFIC_CAP, Cost, Look, Step
from agent.host import Host, Ran
from agent.model import Attempt, Block, Depth, Result, Taken, Void
from agent.reading import Missing
from agent.stats import REPETITIONS, REPETITIONS_DEEPER
from agent.text import Text, msg

CONNECTIONS = 8
WARMUP_S = 1.0
TIMEOUT_S = 8.0
CPU_FULL_SHARE = 0.9
SMALL_FILE = 16 << 20  # each connection asks again when the file ends: the pauses between count
REQUEST_BYTES = 2048  # that a request costs beside its content: handshakes and headers
SMALL = "file-too-small"
REPEATS: Mapping[Depth, int] = {"quick": REPETITIONS, "standard": REPETITIONS, "deeper": REPETITIONS_DEEPER}
SECONDS: Mapping[Depth, float] = {"quick": 2.0, "standard": 5.0, "deeper": 5.0}


@dataclass(frozen=True)
class Entry:
    """One ``download`` entry; ``promised`` in bytes a second."""

    url: str
    promised: float

    @property
    def key(self) -> str:
        """``download[https://…].rate``"""
        return f"download[{self.url}].rate"


def step(entry: Entry) -> Step:
    """The measurement of one entry."""

    def execute(host: Host, look: Look) -> Mapping[str, Result]:
        return {entry.key: _execute(entry, host, look)}

    name = f"download[{entry.url}]"
    return Step(name, (entry.key,), "network", lambda depth: cost(entry, depth), execute, settle_s=10.0)


def cost(entry: Entry, depth: Depth) -> Cost:
    """At the promised rate, up to the cap."""
    seconds = REPEATS[depth] * (SECONDS[depth] + WARMUP_S)
    return Cost(seconds + REPEATS[depth], sent=int(min(seconds * entry.promised, TRAFFIC_CAP)))


def _execute(entry: Entry, host: Host, look: Look) -> Result:
    repeats = REPEATS[look.depth]
    seconds = SECONDS[look.depth]
    cap = TRAFFIC_CAP // repeats
    args = [entry.url, *(f"{n:g}" for n in (CONNECTIONS, WARMUP_S, seconds)), str(cap), f"{TIMEOUT_S:g}"]
    got: list[tuple[Ran, Mapping[str, Any]]] = []
    named = names.look(host, f"{entry.key}.{look.number}.name", _host_of(entry))
    counted = f"{entry.key}.{look.number}.neighbours"
    before = neighbours.look(host, f"{counted}.before")
    for number in range(1, repeats + 1):
        probe = f"{entry.key}.{look.number}.rep{number}"
        deadline = WARMUP_S + seconds + 3 * TIMEOUT_S
        ran, answer = run_probe(host, probe, "download_probe", args, deadline)
        said = read_answer(entry, ran, answer.value) if not isinstance(answer, Missing) else answer
        if isinstance(said, Missing):
            return said
        got.append((ran, said))
    window = neighbours.between(before, neighbours.look(host, f"{counted}.after"))
    ours = sum(answer["total_bytes"] + answer["requests"] * REQUEST_BYTES for _, answer in got)
    aside = neighbours.on_net(window, "download", ours)
    taken = _taken(entry, look, got, named)
    return replace(taken, attempt=neighbours.told(taken.attempt, aside))


def read_answer(entry: Entry, ran: Ran, answer: Mapping[str, Any]) -> Union[Mapping[str, Any], Missing]:
    """A repetition in which something arrived, or why nothing did."""
    if answer.get("bytes") and answer.get("seconds"):
        return answer
    why = "; ".join(answer.get("errors") or ()) or "nothing arrived"
    proxy = msg(" (through the proxy {proxy})", proxy=answer["proxy"]) if answer.get("proxy") else ""
    detail = msg("{url} gave nothing{proxy}: {why}", url=entry.url, proxy=proxy, why=why)
    return Missing("failed", detail, ran.cited, msg("a URL that this machine may fetch"))


def _taken(entry: Entry, look: Look, got: Sequence[tuple[Ran, Mapping[str, Any]]], named: names.Resolved) -> Taken:
    # Through a proxy it is the proxy that resolves the name.
    named = names.NOTHING if got[-1][1]["proxy"] else named
    blocks = tuple(_block(entry, answer, named) for _, answer in got)
    first, last = got[0][0], got[-1][1]
    notes = [
        msg(
            "{n} downloads of about {s} s over {c} connections from {address}, {gb} GB in all",
            n=len(got),
            s=round(SECONDS[look.depth]),
            c=CONNECTIONS,
            address=str(last["address"]),
            gb=f"{sum(a['total_bytes'] for _, a in got) / 1e9:.3g}",
        )
    ]
    notes += named.notes
    if last["proxy"]:
        notes.append(msg("through the proxy {proxy}, as this machine's environment says", proxy=last["proxy"]))
    if any(answer["capped"] for _, answer in got):
        notes.append(msg("ended early at {gb} GB: traffic may be metered", gb=f"{TRAFFIC_CAP / 1e9:.0f}"))
    evidence = (*(e for ran, _ in got for e in ran.cited), *named.evidence)
    weak = Void(*_weakness(entry, [answer for _, answer in got]))
    curl = ("curl", "-o", "/dev/null", "-m", str(round(SECONDS[look.depth])), entry.url)
    attempt = Attempt(blocks, look.depth, first.started_at, evidence, weak=weak, notes=tuple(notes), reproduce=curl)
    return Taken(attempt, "B/s", "median of repetitions")


def _host_of(entry: Entry) -> Optional[str]:
    """The name in the URL; None where there is none that could be read."""
    try:
        return urlsplit(entry.url).hostname
    except ValueError:
        return None


def _block(entry: Entry, answer: Mapping[str, Any], named: names.Resolved) -> Block:
    conditions = {
        **named.conditions,
        "server": entry.url,
        "address": answer["address"],
        # Behind a proxy the address is the proxy's, which says nothing about the far end.
        "network": None if answer["proxy"] else network_of(answer["address"]),
        "other_networks": 0,
        "direction": "download",
        "seconds": answer["seconds"],
        "bytes": answer["bytes"],
        "requests": answer["requests"],
        "file_bytes": answer["file_bytes"],
        "cpu_percent": 100 * answer["cpu_share"],
        "proxy": answer["proxy"],
    }
    return Block(answer["bytes"] / answer["seconds"], tuple(answer["series"]), conditions=conditions)


def _weakness(entry: Entry, answers: Sequence[Mapping[str, Any]]) -> tuple[str, Text]:
    if min(answer["cpu_share"] for answer in answers) >= CPU_FULL_SHARE:
        return CPU_LIMIT, msg("the downloading program had one core full: the line may be faster")
    size: Optional[int] = answers[0]["file_bytes"]
    if size is not None and size < SMALL_FILE:
        text = msg(
            "the file has only {kb} kB: the pauses between requests count; name one of 16 MiB or more", kb=size // 1000
        )
        return SMALL, text
    return FAR_END, msg(
        "the server of {url} was not shown capable of the promise: to fall short from it counts only if a second URL "
        "in another network falls short too",
        url=entry.url,
    )
