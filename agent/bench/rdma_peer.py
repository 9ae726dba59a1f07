"""RDMA writes from each network card to another machine, which runs ib_write_bw as a server: one card after the other.

Each card has a port of its own at the far end, so that each can meet a card of its own there. The far end's commands
stand in every reason, with the same options: both ends must agree on them. A second attempt goes to another machine
where the contract names one, because a shortfall may be the far end's (design rule 11).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Union

from agent.bench import names, rdma
from agent.bench.endpoints import Endpoint
from agent.bench.network import FAR_END
from agent.bench.rdma import BEYOND, BEYOND_LINE, CONNECTS, KEY, REPEATS, Card, Transfer
from agent.bench.step import Cost, Look, Step
from agent.host import Host
from agent.model import Attempt, Block, Depth, Result, Taken, Void
from agent.reading import Missing
from agent.text import Text, msg
from agent.tools import perftest

# At every depth the same: the far end was told so, and its loop knows nothing of depths.
SECONDS = 2
BETWEEN_S = 0.2  # of the far end's loop


@dataclass
class _Memory:
    """The machines that earlier attempts of each card went to, in order, and which had greater depth."""

    went: dict[str, list[str]] = field(default_factory=dict)
    deep: set[str] = field(default_factory=set)


def step(cards: Sequence[Card], peers: Sequence[str]) -> Step:
    """A key a card."""
    keys = {f"{KEY}@{card.name}": number for number, card in enumerate(cards)}
    memory = _Memory()

    def execute(host: Host, look: Look) -> Mapping[str, Result]:
        wanted = {k: n for k, n in keys.items() if look.wants(k)}
        return {k: _execute(k, cards[n], rdma.PORT + n, peers, memory, host, look) for k, n in wanted.items()}

    # Not "network": it fills PCIe and memory, which the loads of GPUs use, and so it runs alone.
    return Step(KEY, tuple(keys), "cpu", lambda depth: cost(len(cards), depth), execute, settle_s=5.0)


def cost(cards: int, depth: Depth) -> Cost:
    """The network between nodes of one rack is not paid by the byte."""
    return Cost(float(cards * REPEATS[depth] * (SECONDS + 1)))


def far_command(card: Card, port: int) -> str:
    """What the far end runs, with the name of a card of its own: one transfer after another."""
    served = " ".join(perftest.argv(card.name, port, SECONDS, rdma.MARGIN_S))
    return f"while sleep {BETWEEN_S:g}; do {served}; done"


def _execute(key: str, card: Card, port: int, peers: Sequence[str], memory: _Memory, host: Host, look: Look) -> Result:
    went = memory.went.setdefault(key, [])
    # A closer look at a number goes to the machine that gave it; a second opinion to another one.
    closer = bool(went) and look.depth == "deeper" and key not in memory.deep
    order = sorted(peers, key=lambda peer: peer != went[-1] if closer else peer in went)
    failures: list[Missing] = []
    for peer in order:
        got = _repeat(key, card, Endpoint(peer, port), host, look)
        if not isinstance(got, Missing):
            went.append(peer)
            memory.deep.update({key} if look.depth == "deeper" else ())
            named = names.look(host, f"{key}.{look.number}.{peer}.name", peer)
            return _taken(look, card, Endpoint(peer, port), len(set(peers)) - 1, got, failures, named)
        failures.append(got)
        if got.kind == "no-tool":
            break
    if len(failures) == 1:
        return failures[0]
    detail = msg("no other machine took the transfer: {failures}", failures=tuple(f.detail for f in failures))
    return Missing(failures[0].kind, detail, tuple(e for f in failures for e in f.evidence), failures[0].grant)


def _repeat(key: str, card: Card, end: Endpoint, host: Host, look: Look) -> Union[list[Transfer], Missing]:
    got: list[Transfer] = []
    for repetition in range(1, REPEATS[look.depth] + 1):
        one = _transfer(host, f"{key}.{look.number}.{end.host}.rep{repetition}", card, end)
        if isinstance(one, Missing):
            return one
        got.append(one)
    return got


def _transfer(host: Host, probe: str, card: Card, end: Endpoint) -> Union[Transfer, Missing]:
    """One transfer. The far end's loop needs a moment between two."""
    client = perftest.argv(card.name, end.port, SECONDS, rdma.MARGIN_S, end.host)
    ran = None
    for again in range(CONNECTS):
        if again:
            host.sleep(rdma.LISTENING_S)
        ran = host.run(probe if not again else f"{probe}.again{again}", client, SECONDS + perftest.TIMEOUT_S)
        found = rdma.read(ran, card.name, str(end))
        if found is not None:
            return _with_command(found, card, end) if isinstance(found, Missing) else found
    detail = msg(
        "nobody took the transfer of {card} at {end} within {s} s",
        card=card.name,
        end=str(end),
        s=f"{CONNECTS * rdma.LISTENING_S:g}",
    )
    return _with_command(Missing("not-there", detail, ran.cited if ran else ()), card, end)


def _with_command(missing: Missing, card: Card, end: Endpoint) -> Missing:
    """What the far end has to run, unless the trouble is on this machine and says what to do."""
    if missing.grant is not None:
        return missing
    grant = msg(
        "on {peer}, with the name of its own card: {command}", peer=end.host, command=far_command(card, end.port)
    )
    return replace(missing, grant=grant)


def _taken(
    look: Look,
    card: Card,
    end: Endpoint,
    others: int,
    got: Sequence[Transfer],
    failures: Sequence[Missing],
    named: names.Resolved,
) -> Taken:
    conditions = {
        "device": card.name,
        "partner": end.host,
        "server": str(end),
        "address": next(iter(named.addresses), end.host),
        # A witness of its own is another machine, wherever it stands: the fabric is what is judged.
        "network": end.host,
        "other_networks": others,
    }
    blocks = tuple(Block(one.bits_per_s, conditions={**conditions, "message": one.message_bytes}) for _, one in got)
    value = median(block.value for block in blocks)
    attempt = Attempt(
        blocks,
        look.depth,
        got[0][0].started_at,
        (*(e for ran, _ in got for e in ran.cited), *named.evidence),
        void=_void(value, card),
        weak=_weak(end.host),
        notes=(
            rdma.told(SECONDS, card.name, str(end), got, value),
            msg("there: {command}", command=far_command(card, end.port)),
            *named.notes,
            *(msg("not used: {detail}", detail=f.detail) for f in failures),
        ),
        reproduce=tuple(perftest.argv(card.name, end.port, SECONDS, rdma.MARGIN_S, end.host)),
    )
    return Taken(attempt, "bit/s", "median of repetitions", card.name)


def _void(value: float, card: Card) -> Union[Void, None]:
    if value <= BEYOND * card.line:
        return None
    return Void(BEYOND_LINE, rdma.beyond(card.line))


def _weak(peer: str) -> Void:
    text: Text = msg(
        "{peer} was not shown capable of the promise: to fall short to it counts only if a second machine falls short "
        "too, or if one transfer to it was fast enough",
        peer=peer,
    )
    return Void(FAR_END, text)
