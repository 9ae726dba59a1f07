"""RDMA writes between the cards of a fake node: a program in ib_write_bw's place, two real processes, a real socket."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Optional

import pytest

from agent.bench import rdma as bench
from agent.checks import rdma
from agent.evidence import Store
from agent.host import LiveHost
from agent.model import Clause, Finding
from agent.tools import perftest
from tests.bench.driven import judged
from tests.facts import fake
from tests.fakenode import healthy
from tests.fakenode.node import Node, build

SHIM = """#!%(python)s
import json, socket, sys
rates, delay = json.loads(%(rates)r), 0
args = sys.argv[1:]
device, port = args[args.index("-d") + 1], int(args[args.index("-p") + 1])
client = args[-1] == "127.0.0.1"
if device not in rates:
    sys.exit(f"IB device {device} not found")
if isinstance(rates[device], str):
    print(rates[device])
    sys.exit(1)
if not client:
    with socket.create_server(("127.0.0.1", port)) as listener:
        with listener.accept()[0] as other:
            partner = other.recv(64).decode()
            other.sendall(device.encode())
    sys.exit(0)
try:
    with socket.create_connection(("127.0.0.1", port), timeout=3) as other:
        other.sendall(device.encode())
        partner = other.recv(64).decode()
except OSError:
    sys.exit("Couldn't connect to 127.0.0.1:%%d" %% port)
rate = min(rates[device], rates[partner])
print(" Dual-port       : OFF          Device         : " + device)
print(" Mtu             : 4096[B]\\n Link type       : IB")
print(" #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]")
print(f" 65536      1480102          0.00               {rate:.2f}                0.740143")
"""


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "PORT", 28515)
    monkeypatch.setattr(bench, "LISTENING_S", 0.2)
    monkeypatch.setattr(perftest, "TIMEOUT_S", 6.0)


class Host(LiveHost):
    def sleep(self, seconds: float) -> None:
        super().sleep(min(seconds, 0.2))


def with_cards(count: int) -> Node:
    node = healthy.h100()
    files = {"/dev/infiniband/uverbs0": ""}
    return node.but(nics=node.nics[:count]).with_files(files)


def found_on(
    node: Node,
    rates: Optional[dict[str, object]],
    folder: Path,
    patch: pytest.MonkeyPatch,
    promise: str = ">= 380 Gbit/s",
) -> dict[str, Finding]:
    script = SHIM % {"python": sys.executable, "rates": json.dumps(rates)} if rates is not None else None
    built = build(node.with_tools(ib_write_bw=None), folder / "node")
    if script is not None:
        (built.path / "bin" / "ib_write_bw").write_text(script)
        (built.path / "bin" / "ib_write_bw").chmod(0o755)
    for name, value in built.env.items():
        patch.setenv(name, value)
    asked = Clause(
        "rdma.write_bandwidth", "rdma", "write_bandwidth", rdma.GRAMMAR.clauses["write_bandwidth"].parse(promise), 1, 1
    )
    found = judged(rdma, [asked], Host(Store(folder / "run"), built.root), facts=True)
    again = judged(rdma, [asked], fake.replay(folder), facts=True)
    assert again == found
    return found


def outcomes(found: dict[str, Finding]) -> dict[str, str]:
    return {i.partition("@")[2]: f.outcome for i, f in found.items()}


def test_each_card_is_measured_against_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = found_on(with_cards(2), {"mlx5_0": 388.05, "mlx5_1": 391}, tmp_path, monkeypatch)
    assert outcomes(found) == {"mlx5_0": "pass", "mlx5_1": "pass"}
    one = found["rdma.write_bandwidth@mlx5_0"]
    assert (one.measured, one.unit) == (388.05, "Gbit/s")
    assert "from mlx5_0 to mlx5_1" in str(one.notes[0])
    assert one.evidence
    assert one.reproduce[0] == "ib_write_bw"


def test_a_slow_card_is_not_taken_for_its_partner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its partners are short once and not with another card: no verdict on them; the slow one is short twice."""
    rates: dict[str, object] = {"mlx5_0": 390, "mlx5_1": 190, "mlx5_2": 390, "mlx5_3": 390}
    found = found_on(with_cards(4), rates, tmp_path, monkeypatch)
    assert outcomes(found) == {"mlx5_0": "inconclusive", "mlx5_1": "fail", "mlx5_2": "pass", "mlx5_3": "pass"}
    assert found["rdma.write_bandwidth@mlx5_0"].reason_code == "unstable"


def test_one_card_alone_shows_nothing_of_the_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = found_on(with_cards(1), {"mlx5_0": 395}, tmp_path, monkeypatch).values()
    assert (one.outcome, one.reason_code) == ("inconclusive", bench.LOOPBACK)
    assert "395 Gbit/s" in str(one.notes[0])
    assert "under “peer”" in str(one.grant)


def test_faster_than_the_line_is_void(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = found_on(with_cards(2), {"mlx5_0": 800, "mlx5_1": 800}, tmp_path, monkeypatch)
    assert {f.reason_code for f in found.values()} == {bench.BEYOND_LINE}


@pytest.mark.parametrize(
    ("rates", "code", "said"),
    [
        (None, "no-tool", "ib_write_bw"),
        ({"mlx5_0": "Couldn't allocate MR", "mlx5_1": "Couldn't allocate MR"}, "denied", "allocate MR"),
        ({}, "not-there", "not found"),
    ],
)
def test_what_cannot_be_measured_is_no_verdict(
    rates: Optional[dict[str, object]], code: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = found_on(with_cards(2), rates, tmp_path, monkeypatch)
    assert {(f.outcome, f.reason_code, f.measured) for f in found.values()} == {("inconclusive", code, None)}
    assert all(said in str(f.reason) for f in found.values())


def test_no_device_files_and_no_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = healthy.h100()
    bare = node.but(nics=(node.nics[0], node.nics[1].down()))
    found = found_on(bare, {"mlx5_0": 390}, tmp_path, monkeypatch)
    codes = {i.partition("@")[2]: (f.outcome, f.reason_code) for i, f in found.items()}
    assert codes == {"mlx5_0": ("inconclusive", "denied"), "mlx5_1": ("inconclusive", "not-there")}
    assert found["rdma.write_bandwidth@mlx5_0"].grant is not None


def test_no_card_at_all_breaks_the_promise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = found_on(healthy.h100().but(nics=()), None, tmp_path, monkeypatch).values()
    assert (one.id, one.outcome) == ("rdma.write_bandwidth", "fail")
