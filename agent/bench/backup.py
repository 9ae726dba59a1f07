"""How fast an upload goes to a backup target: HTTP(S) PUT or an S3-compatible service, over several connections.

Test objects of random bytes under names of our own, deleted afterwards. Every attempt is weak, as with downloads: a
slow target is the target's fault until another one, in another network, is as slow (design rule 11).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional, Union
from urllib.parse import urlsplit

from agent.bench import names, neighbours
from agent.bench._probe import run_probe
from agent.bench.download import CONNECTIONS, CPU_FULL_SHARE, REPEATS, SECONDS, TIMEOUT_S, WARMUP_S
from agent.bench.endpoints import network_of
from agent.bench.network import CPU_LIMIT, FAR_END
from agent.bench.step import TRAFFIC_CAP, Cost, Look, Step
from agent.host import Host, Ran, credentials
from agent.model import Attempt, Block, Depth, Result, Taken, Void
from agent.reading import Missing
from agent.text import Text, msg

# Uploads that the target refused may be counted in the rate as long as they are few.
ERRORS_SHARE = 0.1


@dataclass(frozen=True)
class Entry:
    """One ``backup`` entry; ``promised`` in bytes a second."""

    url: str
    promised: float
    endpoint: Optional[str] = None

    @property
    def key(self) -> str:
        """``backup[s3://bucket/…].rate``"""
        return f"backup[{self.url}].rate"


def step(entry: Entry) -> Step:
    """The measurement of one entry."""

    def execute(host: Host, look: Look) -> Mapping[str, Result]:
        return {entry.key: _execute(entry, host, look)}

    name = f"backup[{entry.url}]"
    return Step(name, (entry.key,), "network", lambda depth: cost(entry, depth), execute, settle_s=10.0)


def cost(entry: Entry, depth: Depth) -> Cost:
    """At the promised rate, up to the cap."""
    seconds = REPEATS[depth] * (SECONDS[depth] + WARMUP_S)
    return Cost(seconds + 2 * REPEATS[depth], sent=int(min(seconds * entry.promised, TRAFFIC_CAP)))


def _execute(entry: Entry, host: Host, look: Look) -> Result:
    repeats, seconds = REPEATS[look.depth], SECONDS[look.depth]
    numbers = [f"{n:g}" for n in (CONNECTIONS, WARMUP_S, seconds)]
    args = [entry.url, entry.endpoint or "", *numbers, str(TRAFFIC_CAP // repeats), f"{TIMEOUT_S:g}"]
    named = names.look(host, f"{entry.key}.{look.number}.name", _host_of(entry))
    counted = f"{entry.key}.{look.number}.neighbours"
    before = neighbours.look(host, f"{counted}.before")
    got: list[tuple[Ran, Mapping[str, Any]]] = []
    for number in range(1, repeats + 1):
        probe = f"{entry.key}.{look.number}.rep{number}"
        deadline = WARMUP_S + seconds + 6 * TIMEOUT_S
        ran, answer = run_probe(host, probe, "backup_probe", args, deadline, credentials())
        said = read_answer(entry, ran, answer.value) if not isinstance(answer, Missing) else answer
        if isinstance(said, Missing):
            return said
        got.append((ran, said))
    window = neighbours.between(before, neighbours.look(host, f"{counted}.after"))
    aside = neighbours.on_net(window, "upload", sum(answer["total_bytes"] for _, answer in got))
    taken = _taken(entry, look, got, named)
    return replace(taken, attempt=neighbours.told(taken.attempt, aside))


def read_answer(entry: Entry, ran: Ran, answer: Mapping[str, Any]) -> Union[Mapping[str, Any], Missing]:
    """A repetition that the target confirmed, or why it did not."""
    errors, objects = answer.get("errors") or (), answer.get("objects") or 0
    few = len(errors) <= ERRORS_SHARE * objects
    if answer.get("bytes") and answer.get("seconds") and few:
        return answer
    why = "; ".join(errors) or "nothing was taken"
    proxy = msg(" (through the proxy {proxy})", proxy=answer["proxy"]) if answer.get("proxy") else ""
    detail = msg("{url} took no upload{proxy}: {why}", url=entry.url, proxy=proxy, why=why)
    if answer.get("refused"):
        return Missing("denied", detail, ran.cited, _grant(entry))
    return Missing("failed", detail, ran.cited, msg("a target that takes uploads (PUT) from this machine"))


def _grant(entry: Entry) -> Text:
    if entry.url.startswith("s3:"):
        return msg(
            "credentials that may write there, in AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION "
            "of the environment; they are not recorded"
        )
    return msg("permission to PUT there, or ACCEPT_UPLOAD_AUTHORIZATION in the environment; it is not recorded")


def _taken(entry: Entry, look: Look, got: Sequence[tuple[Ran, Mapping[str, Any]]], named: names.Resolved) -> Taken:
    # Through a proxy it is the proxy that resolves the name.
    named = names.NOTHING if got[-1][1]["proxy"] else named
    answers = [answer for _, answer in got]
    attempt = Attempt(
        tuple(_block(entry, answer, named) for answer in answers),
        look.depth,
        got[0][0].started_at,
        (*(e for ran, _ in got for e in ran.cited), *named.evidence),
        weak=Void(*_weakness(entry, answers)),
        notes=(*_notes(look, answers), *named.notes),
        reproduce=_by_hand(entry),
    )
    return Taken(attempt, "B/s", "median of repetitions")


def _notes(look: Look, answers: Sequence[Mapping[str, Any]]) -> list[Text]:
    last = answers[-1]
    notes = [
        msg(
            "{n} uploads of about {s} s over {c} connections to {address}, {objects} objects, {gb} GB in all",
            n=len(answers),
            s=round(SECONDS[look.depth]),
            c=CONNECTIONS,
            address=str(last["address"]),
            objects=sum(a["objects"] for a in answers),
            gb=f"{sum(a['total_bytes'] for a in answers) / 1e9:.3g}",
        )
    ]
    if last["proxy"]:
        notes.append(msg("through the proxy {proxy}, as this machine's environment says", proxy=last["proxy"]))
    if any(answer["capped"] for answer in answers):
        notes.append(msg("ended early at {gb} GB: traffic may be metered", gb=f"{TRAFFIC_CAP / 1e9:.0f}"))
    left = [name for answer in answers for name in answer["left"]]
    if left:
        notes.append(msg("left behind, because the target deletes nothing: {names}", names=", ".join(left)))
    return notes


def _by_hand(entry: Entry) -> tuple[str, ...]:
    if not entry.url.startswith("s3:"):
        return ("curl", "-T", "FILE", entry.url.rstrip("/") + "/")
    named = ("--endpoint-url", entry.endpoint) if entry.endpoint else ()
    return ("aws", "s3", "cp", "FILE", entry.url, *named)


def _host_of(entry: Entry) -> Optional[str]:
    """The name of the service; None where the address names none (``s3://bucket`` without an endpoint)."""
    url = entry.endpoint or entry.url
    try:
        return None if url.startswith("s3:") else urlsplit(url).hostname
    except ValueError:
        return None


def _block(entry: Entry, answer: Mapping[str, Any], named: names.Resolved) -> Block:
    conditions = {
        **named.conditions,
        "server": entry.endpoint or entry.url,
        "address": answer["address"],
        # Behind a proxy the address is the proxy's, which says nothing about the far end.
        "network": None if answer["proxy"] else network_of(answer["address"]),
        "other_networks": 0,
        "direction": "upload",
        "seconds": answer["seconds"],
        "bytes": answer["bytes"],
        "objects": answer["objects"],
        "errors": answer["errors"],
        "cpu_percent": 100 * answer["cpu_share"],
        "proxy": answer["proxy"],
    }
    return Block(answer["bytes"] / answer["seconds"], tuple(answer["series"]), conditions=conditions)


def _weakness(entry: Entry, answers: Sequence[Mapping[str, Any]]) -> tuple[str, Text]:
    if min(answer["cpu_share"] for answer in answers) >= CPU_FULL_SHARE:
        return CPU_LIMIT, msg("the uploading program had one core full: the line may be faster")
    return FAR_END, msg(
        "{url} was not shown capable of the promise: to fall short to it counts only if a second target in another "
        "network falls short too",
        url=entry.url,
    )
