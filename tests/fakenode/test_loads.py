"""Loads on fake nodes from the run to the report: what published numbers come to, and what a renter reads of them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from agent import contract as contracts
from agent import runner
from agent.checks import families, grammars
from agent.cli.main import cli
from agent.course import Silent
from agent.host import LiveHost
from agent.model import Finding, Run
from agent.plan import Options
from tests.fakenode import card as models
from tests.fakenode import healthy, prepared, wrong
from tests.fakenode.node import Node, build

PROMISES = "version: 1\ngpu: {{model: {model}, count: {count}}}\n{more}\n"
AUTO = "allreduce: {busbw: {is: auto, agreed: true}, gpus: all}"
H800 = models.H100_SXM.but(name="NVIDIA H800", device_id=0x2324, subsystem_id=0x17A6_10DE, links=(True,) * 8)
H200 = models.H100_SXM.but(
    name="NVIDIA H200", device_id=0x2335, subsystem_id=0x18BE_10DE, memory_mib=143771, bus_bits=6144
)
BRIDGED = models.A100_PCIE.but(links=(True,) * 12, nvlink_version=models.A100_SXM.nvlink_version)
WITHOUT_NVLS = "n:1:1 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\nn:1:2 [0] NCCL INFO Connected all rings\n"


@dataclass(frozen=True)
class Ended:
    """A run, its folder, its contract."""

    run: Run
    folder: Path
    contract: Path

    def finding(self, key: str) -> Finding:
        return next(f for f in self.run.findings if f.id == key)

    def report(self, name: str, lang: str = "en") -> str:
        done = CliRunner().invoke(cli, ["report", str(self.folder), "--format", name, "--lang", lang])
        assert done.exit_code == 0, done.output
        return done.output

    @property
    def page(self) -> str:
        """The page's words, without markup."""
        return " ".join(unescape(re.sub(r"<[^>]+>", " ", self.report("html"))).split())


def ran(
    folder: Path, monkeypatch: pytest.MonkeyPatch, node: Node, promises: str, **workers: Mapping[str, Any]
) -> Ended:
    """``accept run`` on the node, all looks and attempts; the waits between them are not waited."""
    built = build(node, folder / "node")
    for name, value in built.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(LiveHost, "sleep", lambda host, seconds: None)
    path = folder / "contract.yaml"
    path.write_text(promises, encoding="utf-8")
    python = prepared.python(folder / "prepared", node, **workers)
    options = Options(profile="standard", python=python)
    job = runner.create(folder / "runs" / "one", contracts.load(path, grammars()), options, "en", str(built.root))
    host = runner.live_host(job)
    runner.begin_session(job, host, ["accept", "run"])
    run = runner.execute(job, host, families(), Silent())
    runner.finish(job, run)
    return Ended(run, job.folder, path)


def eight(card: models.Card) -> Node:
    return wrong.another_model(healthy.h100(), card)


def some(node: Node, count: int) -> Node:
    return node.but(cards=node.cards[:count])


# (node, contract's model, what was published as healthy, as bad; does the bad one convict)
TOPOLOGIES: dict[str, tuple[Any, str, float, float, bool]] = {
    "8 H100": (healthy.h100, "H100 SXM5 80GB", 480, 240, False),
    "4 H100": (lambda: some(healthy.h100(), 4), "H100 SXM5 80GB", 367, 172, False),
    "8 A100": (healthy.a100, "A100 SXM4 80GB", 231, 160, True),
    "8 A800": (healthy.a800, "A800 SXM4 80GB", 155, 110, False),
    "8 H800": (lambda: eight(H800), "H800 SXM5", 215, 110, False),
    "8 H200": (lambda: eight(H200), "H200 SXM 141GB", 473, 280, False),
    "2 A100 PCIe with a bridge": (
        lambda: some(wrong.another_model(healthy.a100(), BRIDGED), 2), "A100 PCIe 80GB", 208, 22, False
    ),
}  # fmt: skip


def rejudged(ended: Ended, folder: Path, promises: str) -> dict[str, Any]:
    """``accept judge`` of the recorded run with another contract, in its result's words."""
    other = folder / "other.yaml"
    other.write_text(promises, encoding="utf-8")
    out = folder / "judged"
    done = CliRunner().invoke(cli, ["judge", str(other), str(ended.folder), "--out", str(out)])
    assert done.exit_code in (0, 1, 3), done.output
    return {f["id"]: f for f in json.loads((out / "result.json").read_text())["findings"]}


@pytest.mark.parametrize("name", TOPOLOGIES)
@pytest.mark.parametrize("good", [True, False], ids=["healthy", "bad"])
def test_published_all_reduce(name: str, good: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, model, healthy_rate, bad_rate, convicts = TOPOLOGIES[name]
    node = make()
    promises = PROMISES.format(model=model, count=len(node.cards), more=AUTO)
    rate = healthy_rate if good else bad_rate
    ended = ran(tmp_path, monkeypatch, node, promises, allreduce=prepared.allreduce(node, rate))
    found = ended.finding("allreduce.busbw")
    assert found.outcome == ("pass" if good else "fail"), found
    assert found.measured == pytest.approx(rate, rel=0.01)
    assert found.limit is not None
    assert bad_rate < found.limit.value <= healthy_rate
    if not good:
        # Only a floor that two independent sources measured convicts.
        assert found.severity == ("breach" if convicts else "advisory")
        assert found.limit.origin.kind == ("catalogue" if convicts else "topology")
    again = rejudged(ended, tmp_path, promises)["allreduce.busbw"]
    assert (again["outcome"], again["severity"]) == (found.outcome, found.severity)


def test_eight_4090_over_two_sockets_have_no_absolute_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = healthy.rtx4090()
    promises = PROMISES.format(model="RTX 4090", count=8, more=AUTO)
    ended = ran(tmp_path, monkeypatch, node, promises, allreduce=prepared.allreduce(node, 12.7, WITHOUT_NVLS))
    found = ended.finding("allreduce.busbw")
    assert (found.outcome, found.unit) == ("inconclusive", "GB/s")
    assert found.measured == pytest.approx(12.7, rel=0.01)
    for text in (ended.report("txt"), ended.page):
        assert "no limit can be derived: without NVLink the host's CPU and memory decide, nothing absolute" in text


def test_an_impossible_result_is_void_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A100s whose links carry 300 GB/s one way, and no switch that reduces: 700 cannot be."""
    node = healthy.a100()
    promises = PROMISES.format(model="A100 SXM4 80GB", count=8, more='allreduce: {busbw: ">= 200 GB/s", gpus: all}')
    ended = ran(tmp_path, monkeypatch, node, promises, allreduce=prepared.allreduce(node, 700, WITHOUT_NVLS))
    found = ended.finding("allreduce.busbw")
    assert (found.outcome, found.reason_code) == ("inconclusive", "above-physical-limit")
    assert ended.run.verdict == "inconclusive"
    for text in (ended.report("txt"), ended.page, ended.report("md")):
        plain = text.replace("\\", "")
        assert "700 GB/s is above the 300 GB/s of the links, and the switch does not reduce" in plain
    assert "700 GB/s 超过链路上限 300 GB/s" in ended.report("txt", "zh")
    # A number that cannot be true is nothing that the vendor could explain.
    assert "Ours to do: measure again (All-reduce" in ended.report("txt")
    assert "Say why" not in ended.report("txt")


def test_a_capped_card_names_the_cap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = wrong.capped(healthy.h100()).card(5, lambda card: card.but(throttle=0x4))
    rates = {c.index: 512.0 if c.index == 5 else 700.0 for c in node.cards}
    promises = PROMISES.format(model="H100 SXM5 80GB", count=8, more='gemm: {bf16: ">= 650 TFLOPS"}')
    ended = ran(tmp_path, monkeypatch, node, promises, gemm=prepared.gemm(rates))
    slot = node.cards[5].slot
    assert {f.subject: f.outcome for f in ended.run.findings if f.clause == "gemm.bf16"} == {
        c.slot: "fail" if c.slot == slot else "pass" for c in node.cards
    }
    cause = "likely cause: power is capped at 450 W, this card's default is 700 W"
    for text in (ended.report("txt"), ended.page, ended.report("md")):
        plain = text.replace("\\", "")
        assert cause in plain
        assert "clocks held down meanwhile by the power limit 100 % of" in plain  # a ticket's line ends here
    assert "100 % of the time (sw_power_cap)" in ended.page


def test_a_throttled_burn_names_bits_and_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hot = healthy.h100().card(2, lambda card: card.but(throttle=0x44))
    node = some(hot, 4)
    more = 'burn: {duration: 15 s, throttled: "<= 1 %"}'
    promises = PROMISES.format(model="H100 SXM5 80GB", count=4, more=more)
    ended = ran(tmp_path, monkeypatch, node, promises, burn=prepared.burn(node))
    found = ended.finding(f"burn.throttled@{node.cards[2].slot}")
    assert (found.outcome, found.measured) == ("fail", pytest.approx(100.0, abs=1))
    others = [f.outcome for f in ended.run.findings if f.clause == "burn.throttled" and f.subject != found.subject]
    assert others == ["pass"] * 3
    for text in (ended.report("txt"), ended.page, ended.report("md")):
        assert "temperature, by the hardware 100 % of the time (hw_thermal)" in text.replace("\\", "")


def test_a_lost_card_is_not_among_those_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the head of every report says of a server with seven cards that answer."""
    node = wrong.lost(healthy.h100())
    ended = ran(tmp_path, monkeypatch, node, PROMISES.format(model="H100 SXM5 80GB", count=8, more=""))
    head = f"7 × {models.H100_SXM.name} (7 of 8 GPUs answer; silent: {node.cards[3].slot})"
    for text in (ended.report("txt"), ended.page, ended.report("md")):
        assert head in text.replace("\\", "")
        assert f"8 × {models.H100_SXM.name}" not in text.replace("\\", "")
    gpus = json.loads(ended.report("json"))["node"]["gpus"]
    assert [g["slot"] for g in gpus if g.get("answers") is False] == [node.cards[3].slot]
    assert len(gpus) == 8
