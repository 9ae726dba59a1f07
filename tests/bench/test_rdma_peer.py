"""RDMA writes to another machine: a program in ib_write_bw's place, two network namespaces, a real socket."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

import pytest

from agent.bench import network as network_bench
from agent.bench import rdma, rdma_peer
from agent.checks import rdma as check
from agent.evidence import Store
from agent.host import LiveHost, Ran
from agent.model import Clause, Finding
from agent.tools import perftest
from tests import netns
from tests.bench.driven import judged
from tests.bench.test_rdma import with_cards
from tests.facts import fake
from tests.fakenode.node import build
from tests.netns import FAR, TwoHosts

WHY_NOT = netns.unavailable()
pytestmark = [pytest.mark.root, pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))]

# As the real one: a server takes one transfer and ends; both ends must agree on the options.
SHIM = """#!%(python)s
import json, socket, sys
rates = json.loads(%(rates)r)
args = sys.argv[1:]
device, port = args[args.index("-d") + 1], int(args[args.index("-p") + 1])
options = " ".join(args[args.index("-D"): args.index("-F") + 1])
if args[-1] == "-F":
    with socket.create_server(("0.0.0.0", port)) as listener:
        with listener.accept()[0] as other:
            if other.recv(200).decode() == options:
                other.sendall(b"agreed")
    sys.exit(0)
try:
    with socket.create_connection((args[-1], port), timeout=3) as other:
        other.sendall(options.encode())
        agreed = other.recv(64)
except OSError:
    sys.exit("Couldn't connect to %%s:%%d" %% (args[-1], port))
if agreed != b"agreed":
    sys.exit("Failed to exchange data between server and clients")
rate = rates[args[-1]]
print(" Dual-port       : OFF          Device         : " + device)
print(" Mtu             : 4096[B]\\n Link type       : IB")
print(" #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]")
print(f" 65536      1480102          0.00               {rate:.2f}                0.740143")
"""


class Host(LiveHost):
    """The fake node, its programs in the near namespace."""

    def __init__(self, store: Store, root: Path, namespace: str) -> None:
        super().__init__(store, root)
        self.namespace = namespace

    def run(
        self,
        probe: str,
        argv: Sequence[str],
        timeout_s: float,
        *,
        worker: bool = False,
        extra_env: Optional[Mapping[str, str]] = None,
        cwd: Optional[str] = None,
        inputs: Optional[Mapping[str, bytes]] = None,
    ) -> Ran:
        inside = ["ip", "netns", "exec", self.namespace, *argv] if argv[0] == "ib_write_bw" else argv
        return super().run(probe, inside, timeout_s, worker=worker, extra_env=extra_env, cwd=cwd, inputs=inputs)

    def sleep(self, seconds: float) -> None:
        super().sleep(min(seconds, 0.3))


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rdma, "PORT", 28515)
    monkeypatch.setattr(perftest, "TIMEOUT_S", 4.0)


@pytest.fixture
def hosts() -> Iterator[TwoHosts]:
    with netns.two_hosts() as hosts:
        yield hosts


def serve(hosts: TwoHosts, node: Path, cards: int) -> None:
    """The far end runs the very commands that the findings name."""
    for number in range(cards):
        card = rdma.Card(f"mlx5_{number}", 400e9)
        command = rdma_peer.far_command(card, rdma.PORT + number)
        hosts.spawn(hosts.far, "env", f"PATH={node}/bin:/usr/bin:/bin", "sh", "-c", command)
        hosts.listening(rdma.PORT + number)


def found_on(
    hosts: TwoHosts,
    folder: Path,
    patch: pytest.MonkeyPatch,
    rates: dict[str, float],
    peers: tuple[str, ...],
    cards: int = 2,
    served: bool = True,
) -> dict[str, Finding]:
    built = build(with_cards(cards).with_tools(ib_write_bw=None), folder / "node")
    shim = built.path / "bin" / "ib_write_bw"
    shim.write_text(SHIM % {"python": sys.executable, "rates": json.dumps(rates)})
    shim.chmod(0o755)
    if served:
        serve(hosts, built.path, cards)
    for name, value in built.env.items():
        patch.setenv(name, f"{value}:/usr/sbin:/sbin:/usr/bin:/bin" if name == "PATH" else value)
    promise = check.GRAMMAR.clauses["write_bandwidth"].parse(">= 380 Gbit/s")
    asked = Clause("rdma.write_bandwidth", "rdma", "write_bandwidth", promise, 1, 1, {"peer": peers})
    found = judged(check, [asked], Host(Store(folder / "run"), built.root, hosts.near), facts=True)
    assert judged(check, [asked], fake.replay(folder), facts=True) == found
    return found


def outcomes(found: dict[str, Finding]) -> dict[str, Any]:
    return {i.partition("@")[2]: (f.outcome, f.reason_code) for i, f in found.items()}


def test_each_card_in_turn_writes_to_the_other_machine(
    hosts: TwoHosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = found_on(hosts, tmp_path, monkeypatch, {FAR[0]: 391.0}, (FAR[0],))
    assert outcomes(found) == {"mlx5_0": ("pass", "kept"), "mlx5_1": ("pass", "kept")}, found
    one = found["rdma.write_bandwidth@mlx5_1"]
    assert (one.measured, one.unit) == (391.0, "Gbit/s")
    assert f"from mlx5_1 to {FAR[0]}:28516" in str(one.notes[0])
    assert "ib_write_bw -d mlx5_1 -p 28516 -D 2 -f 0 --report_gbits -F; done" in str(one.notes[1])
    assert one.reproduce[-1] == FAR[0]


def test_a_slow_machine_there_does_not_convict_alone_and_two_do(
    hosts: TwoHosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = {FAR[0]: 190.0, FAR[1]: 195.0}
    (alone,) = found_on(hosts, tmp_path / "alone", monkeypatch, rates, FAR[:1], cards=1).values()
    assert (alone.outcome, alone.reason_code) == ("inconclusive", network_bench.FAR_END), alone
    (both,) = found_on(hosts, tmp_path / "both", monkeypatch, rates, FAR[:2], cards=1, served=False).values()
    assert (both.outcome, both.reason_code) == ("fail", "below-limit"), both


def test_another_machine_that_is_fast_sets_the_slow_one_aside(
    hosts: TwoHosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = found_on(hosts, tmp_path, monkeypatch, {FAR[0]: 190.0, FAR[1]: 391.0}, FAR[:2], cards=1).values()
    assert (one.outcome, one.measured) == ("pass", 391.0), one
    assert any("set aside" in str(note) for note in one.notes)


def test_nobody_there_comes_with_the_command_to_run_there(
    hosts: TwoHosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = found_on(hosts, tmp_path, monkeypatch, {}, (FAR[0],), served=False)
    assert set(outcomes(found).values()) == {("inconclusive", "not-there")}, found
    grant = str(found["rdma.write_bandwidth@mlx5_1"].grant)
    assert grant == (
        f"on {FAR[0]}, with the name of its own card: "
        "while sleep 0.2; do ib_write_bw -d mlx5_1 -p 28516 -D 2 -f 0 --report_gbits -F; done"
    )


def test_one_that_accepts_and_says_nothing_costs_its_deadline(
    hosts: TwoHosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = "import socket, time; s = socket.create_server(('0.0.0.0', 28515), backlog=8); time.sleep(60)"
    hosts.spawn(hosts.far, "python3", "-c", silent)
    hosts.listening(28515)
    begun = time.monotonic()
    (one,) = found_on(hosts, tmp_path, monkeypatch, {}, (FAR[0],), cards=1, served=False).values()
    assert time.monotonic() - begun < 40
    assert one.outcome == "inconclusive", one
    assert "while sleep" in str(one.grant)


def test_this_machine_itself_is_no_other(hosts: TwoHosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes its own transfers, and what they show is its memory."""
    command = rdma_peer.far_command(rdma.Card("mlx5_0", 400e9), rdma.PORT)
    node = tmp_path / "node"
    hosts.spawn(hosts.near, "env", f"PATH={node}/bin:/usr/bin:/bin", "sh", "-c", command)
    (one,) = found_on(hosts, tmp_path, monkeypatch, {"127.0.0.1": 391.0}, ("127.0.0.1",), 1, served=False).values()
    assert (one.outcome, one.reason_code) == ("inconclusive", "own-address"), one
