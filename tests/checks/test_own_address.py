"""A far end that is this machine itself: nobody is judged by it, whatever name leads here."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Optional

import pytest

from agent.checks import _own_address, download, ping, reach
from agent.checks._api import Case
from agent.model import Attempt, Block, Clause, Contract, Finding, Measurement, Statistic
from agent.reading import Known, Missing, Reading
from agent.text import msg
from tests.bench.driven import clause

MINE: Reading[Any] = Known({"eth0": ("192.0.2.7", "2001:db8::7%eth0"), "lo": ("127.0.0.1", "::1")})


def case(addresses: Reading[Any] = MINE) -> Case:
    return Case(Contract((), b"", ""), {"network": SimpleNamespace(addresses=addresses)})


@pytest.mark.parametrize(
    ("address", "own"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("0.0.0.0", True),
        ("192.0.2.7", True),
        ("2001:db8::7", True),
        ("192.0.2.8", False),
        ("not an address", False),
        (None, False),
    ],
)
def test_what_stays_here(address: Optional[str], own: bool) -> None:
    assert _own_address.is_own(address, case()) is own


def test_loopback_is_known_without_the_list_of_addresses() -> None:
    unread = case(Missing("denied", msg("not read")))
    assert _own_address.is_own("127.0.0.1", unread)
    assert not _own_address.is_own("192.0.2.7", unread)


def judged(module: Any, promise: Clause, blocks: tuple[Block, ...], unit: str, statistic: Statistic) -> Finding:
    attempt = Attempt(blocks, "standard", "2026-11-30T08:00:00Z")
    taken = Measurement(promise.key, unit, statistic, (attempt, replace(attempt)))
    (found,) = module.judge([promise], replace(case(), measured={promise.key: taken}))
    assert isinstance(found, Finding)
    return found


@pytest.mark.parametrize(("address", "outcome"), [("192.0.2.7", "inconclusive"), ("198.51.100.1", "pass")])
def test_a_name_that_leads_here_keeps_no_latency(address: str, outcome: str) -> None:
    promise = clause(ping, "latency", "<= 10 ms", host="office.example.com")
    blocks = tuple(Block(0.03 + n / 1000, conditions={"address": address}) for n in range(6))
    found = judged(ping, promise, blocks, "ms", "median of repetitions")
    assert found.outcome == outcome
    assert (found.reason_code == _own_address.CODE) == (outcome == "inconclusive")


@pytest.mark.parametrize(
    ("address", "proxy", "outcome"),
    [("127.0.0.1", None, "inconclusive"), ("127.0.0.1", "http://127.0.0.1:7890", "pass"), ("8.8.4.4", None, "pass")],
)
def test_a_download_from_here_keeps_nothing_but_a_proxy_may_be_here(
    address: str, proxy: Optional[str], outcome: str
) -> None:
    promise = clause(download, "rate", ">= 50 MB/s", url="http://mirror.example.com/x")
    conditions = {"address": address, "proxy": proxy, "network": None, "server": "x", "other_networks": 0}
    blocks = tuple(Block(9e8 + n, conditions={**conditions, "bytes": 9e8 + n, "seconds": 1.0}) for n in range(6))
    assert judged(download, promise, blocks, "B/s", "median of repetitions").outcome == outcome


@pytest.mark.parametrize(
    ("written", "outcome"),
    [("mirror.example.com:443", "inconclusive"), ("127.0.0.1:443", "pass"), ("localhost:443", "pass")],
)
def test_who_writes_this_machine_means_it_but_a_name_that_leads_here_reaches_nothing(
    written: str, outcome: str
) -> None:
    promise = clause(reach, "reach", written)
    one = {"reached": True, "stage": "tcp", "address": "127.0.0.1", "proxy": None, "tcp_ms": 0.1}
    found = judged(reach, promise, (Block(1.0, conditions={"tries": [one]}),), "", "median of repetitions")
    assert found.outcome == outcome
