"""RDMA writes from each network card to another one of this machine, through the network; ib_write_bw of perftest.

A second attempt goes to another card where there are three or more, so that a slow one is not taken for its partner.
With a single card the transfer turns around inside it: that shows the card and its slot, not the cable and the switch.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Union

from agent.bench.step import Cost, Look, Step
from agent.host import Host, Ran
from agent.model import Attempt, Block, Depth, Result, Taken, Void
from agent.reading import Missing, MissingKind
from agent.stats import REPETITIONS, REPETITIONS_DEEPER
from agent.text import Text, msg
from agent.tools import ParseError, perftest
from agent.tools.perftest import WriteBandwidth

KEY = "rdma.write_bandwidth"
PORT = 18515
REPEATS: Mapping[Depth, int] = {"quick": REPETITIONS, "standard": REPETITIONS, "deeper": REPETITIONS_DEEPER}
SECONDS: Mapping[Depth, int] = {"quick": 1, "standard": 2, "deeper": 4}
MARGIN_S = 0
LISTENING_S = 0.5  # until the other end listens
CONNECTS = 6
BEYOND = 1.05  # of the line rate: what no link carries
LOOPBACK = "inside-the-card"
BEYOND_LINE = "above-physical-limit"
_KINDS: Mapping[str, MissingKind] = {
    "no_device": "not-there",
    "not_connected": "failed",
    "memory_locked": "denied",
    "denied": "denied",
    "link_down": "not-there",
    "empty": "unparsable",
    "unparsable": "unparsable",
}


Transfer = tuple[Ran, WriteBandwidth]


@dataclass(frozen=True)
class Card:
    """A device and its line rate in bit/s."""

    name: str
    line: float


def step(cards: Sequence[Card]) -> Step:
    """A key a card. Every second card sends at one time, to the others: none sends and receives at once."""
    keys = {f"{KEY}@{card.name}": number for number, card in enumerate(cards)}

    def execute(host: Host, look: Look) -> Mapping[str, Result]:
        results: dict[str, Result] = {}

        def measure(key: str, number: int) -> None:
            results[key] = _execute(key, cards, number, host, look)

        for turn in (0, 1):
            mine = [(k, n) for k, n in keys.items() if n % 2 == turn and look.wants(k)]
            senders = [threading.Thread(target=measure, args=pair) for pair in mine]
            for sender in senders:
                sender.start()
            for sender in senders:
                sender.join()
        return results

    # Not "network": it fills PCIe and memory, which the loads of GPUs use, and so it runs alone.
    return Step(KEY, tuple(keys), "cpu", lambda depth: cost(len(cards), depth), execute, settle_s=5.0)


def cost(cards: int, depth: Depth) -> Cost:
    """The network inside the rack is not paid by the byte."""
    return Cost(float(min(cards, 2) * REPEATS[depth] * (SECONDS[depth] + 1)))


def _execute(key: str, cards: Sequence[Card], number: int, host: Host, look: Look) -> Result:
    mine, partner = cards[number], cards[partner_of(number, len(cards), look.number)]
    got: list[Transfer] = []
    for repetition in range(1, REPEATS[look.depth] + 1):
        probe = f"{key}.{look.number}.rep{repetition}"
        one = _transfer(host, probe, (mine.name, partner.name), PORT + number, SECONDS[look.depth])
        if isinstance(one, Missing):
            return one
        got.append(one)
    return _taken(look, mine, partner, got)


def partner_of(number: int, cards: int, look: int) -> int:
    """The next card, in the next attempt the one before."""
    return (number + (1 if look % 2 else -1)) % cards


def _transfer(host: Host, probe: str, cards: tuple[str, str], port: int, seconds: int) -> Union[Transfer, Missing]:
    """One transfer; the receiving end runs beside it and ends with it, or with its own deadline."""
    mine, partner = cards
    budget = seconds + perftest.TIMEOUT_S
    receiving = perftest.argv(partner, port, seconds, MARGIN_S)
    far = threading.Thread(target=host.run, args=(f"{probe}.far", receiving, budget))
    far.start()
    client = perftest.argv(mine, port, seconds, MARGIN_S, "127.0.0.1")
    found: Union[Transfer, Missing, None] = None
    for again in range(CONNECTS):
        host.sleep(LISTENING_S)
        ran = host.run(probe if not again else f"{probe}.again{again}", client, budget)
        found = read(ran, mine, partner)
        if found is not None:
            break
    far.join()  # it ends with the transfer or with its deadline; what it printed is in the evidence
    return found or _failed(
        ran, mine, partner, "not_connected", msg("nobody listened within {s} s", s=f"{CONNECTS * LISTENING_S:g}")
    )


def read(ran: Ran, mine: str, partner: str) -> Union[Transfer, Missing, None]:
    """The result or why there is none; None where the other end does not listen yet."""
    missing = ran.missing()
    if missing is not None:
        return replace(missing, grant=_INSTALL) if missing.kind == "no-tool" else missing
    try:
        return ran, perftest.parse(f"{ran.stdout}\n{ran.stderr}")
    except ParseError as error:
        said = error.line or error.message
        return None if error.kind == "not_connected" else _failed(ran, mine, partner, error.kind, said)


_INSTALL = msg("install {tool}", tool="perftest")


def _failed(ran: Ran, mine: str, partner: str, code: str, said: Union[str, Text]) -> Missing:
    detail = msg("{one} → {other}: {said}", one=mine, other=partner, said=said)
    kind = _KINDS.get(code, "failed")
    grant = msg("/dev/infiniband in this environment, and memlock unlimited") if kind == "denied" else None
    return Missing(kind, detail, ran.cited, grant)


def _taken(look: Look, mine: Card, partner: Card, got: Sequence[Transfer]) -> Taken:
    alone = mine.name == partner.name
    blocks = tuple(
        Block(one.bits_per_s, conditions={"device": mine.name, "partner": partner.name, "message": one.message_bytes})
        for _, one in got
    )
    line = min(mine.line, partner.line)
    value = median(block.value for block in blocks)
    attempt = Attempt(
        blocks,
        look.depth,
        got[0][0].started_at,
        tuple(e for ran, _ in got for e in ran.cited),
        void=_void(alone, value, line, mine),
        notes=(told(SECONDS[look.depth], mine.name, partner.name, got, value),),
        reproduce=tuple(perftest.argv(mine.name, PORT, SECONDS[look.depth], MARGIN_S, "127.0.0.1")),
    )
    return Taken(attempt, "bit/s", "median of repetitions")


def _void(alone: bool, value: float, line: float, mine: Card) -> Union[Void, None]:
    if alone:
        text = msg(
            "with one card the transfer stays inside {card}: nothing is shown of cable and switch", card=mine.name
        )
        return Void(LOOPBACK, text)
    if value > BEYOND * line:
        return Void(BEYOND_LINE, beyond(line))
    return None


def beyond(line: float) -> Text:
    """Why a number above the line rate in bit/s is void."""
    return msg("above the line rate of {line} Gbit/s: the number is void", line=f"{line / 1e9:g}")


def told(seconds: int, one: str, other: str, got: Sequence[Transfer], value: float) -> Text:
    """The note on the transfers of one attempt, whose median is ``value`` bit/s."""
    head = got[0][1]
    return msg(
        "{n} transfers of {s} s from {one} to {other}, messages of {kib} KiB, median {gbit} Gbit/s ({link})",
        n=len(got),
        s=seconds,
        one=one,
        other=other,
        kib=head.message_bytes // 1024,
        gbit=f"{value / 1e9:.4g}",
        link=head.link_type or "?",
    )
