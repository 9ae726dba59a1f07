"""Whether packets of a promised size pass to a server in one piece: ping with fragmentation forbidden.

Beside the large ones go small ones, so that a firewall that drops pings is not taken for a narrow way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional

from agent.bench.endpoints import address_of, endpoint
from agent.bench.step import Cost, Look, Step
from agent.host import Host
from agent.model import Attempt, Block, Result, Taken
from agent.reading import Missing
from agent.text import msg
from agent.tools import ParseError, ping

HEADERS = {4: 28, 6: 48}  # IP and ICMP
SMALL = 56
COUNT, INTERVAL_S, DEADLINE_S = 3, 0.2, 4


def step(name: str, servers: Sequence[str], size: int, interface: Optional[str]) -> Step:
    """``size`` in bytes, as interfaces count it: with the IP header. One block a server."""
    key = f"network[{name}].mtu"

    def execute(host: Host, look: Look) -> Mapping[str, Result]:
        return {key: _execute(key, servers, size, interface, host, look)}

    seconds = len(servers) * (COUNT * INTERVAL_S + DEADLINE_S)
    return Step(key, (key,), "none", lambda depth: Cost(seconds, sent=len(servers) * COUNT * 2 * size), execute)


def _execute(key: str, servers: Sequence[str], size: int, interface: Optional[str], host: Host, look: Look) -> Result:
    try:
        hosts = list(dict.fromkeys(endpoint(text, 1).host for text in servers))
    except ValueError as error:
        return Missing("unsupported", msg("a server of the contract: {error}", error=str(error)))
    blocks: list[Block] = []
    evidence: list[str] = []
    started = ""
    for far in hosts:
        found: dict[str, Any] = {"server": far, "size": size}
        address = address_of(far)
        headers = HEADERS[address.version if address is not None else 4]
        for kind, payload in (("large", size - headers), ("small", SMALL)):
            argv = ping.argv(far, count=COUNT, interval_s=INTERVAL_S, deadline_s=DEADLINE_S)
            extra = ["-M", "do", "-s", str(payload), *(["-I", interface] if interface else [])]
            ran = host.run(f"{key}.{look.number}.{far}.{kind}", [*argv[:-1], *extra, argv[-1]], ping.TIMEOUT_S)
            evidence += ran.cited
            started = started or ran.started_at
            try:
                found[kind] = ping.parse(f"{ran.stdout}\n{ran.stderr}").received
            except ParseError as error:
                found[kind], found["said"] = None, error.line or error.message
        blocks.append(Block(float(size if found["large"] else 0), conditions=found))
    attempt = Attempt(tuple(blocks), look.depth, started, tuple(evidence))
    return Taken(attempt, "B", "median of repetitions")
