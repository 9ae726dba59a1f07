"""Counters that only grow: what is growth, what a new boot, an exchanged part or a program's own error."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from agent.checks import grammars
from agent.contract import load
from agent.text import msg
from agent.trial.events import clock_steps, growth
from agent.trial.judge import judge
from agent.trial.presence import Span, Step
from agent.trial.runs import Outcome, TrialRun, run_of
from tests.fakenode import healthy
from tests.fakenode.node import Node, build
from tests.runs import accept
from tests.trial.simulated import START

SLOT = "0000:1b:00.0"
LOG = "kernel log"
Counts = Mapping[str, Mapping[str, int]]


def run(number: int, counters: Counts, boot: str = "boot-1", uuid: str = "GPU-1") -> TrialRun:
    return TrialRun(
        folder=f"{number:04d}",
        at=START + timedelta(hours=4 * number),
        complete=True,
        profile="quick",
        verdict="accepted",
        contract_sha256="c",
        boot_id=boot,
        parts={"identity": "a", f"gpu {SLOT}": uuid},
        counters=counters,
        outcomes={"gpu.count": Outcome("gpu.count", "pass", "breach", "kept", msg("kept"), "", False)},
    )


def told(*runs: TrialRun) -> list[tuple[int, str, str]]:
    return [(e.run, e.kind, str(e.said)) for e in growth(runs)]


def test_each_kind_of_xid_is_counted_by_itself_and_programs_own_are_not() -> None:
    found = told(
        run(1, {LOG: {"messages": 0}}),
        run(2, {LOG: {"messages": 2}, SLOT: {"xid 31": 1, "xid 63": 1}}),
        run(3, {LOG: {"messages": 4}, SLOT: {"xid 31": 2, "xid 63": 1, "xid 79": 1}}),
    )
    assert found == [
        (2, "growth", "Xid 63 (memory row remapped) in the kernel log rose from 0 to 1"),
        (3, "growth", "Xid 79 (GPU fell off the bus) in the kernel log rose from 0 to 1"),
    ]


def test_what_the_log_said_before_the_trial_is_no_growth() -> None:
    assert told(run(1, {LOG: {"messages": 3}, SLOT: {"xid 79": 3}}), run(2, {LOG: {}, SLOT: {"xid 79": 3}})) == []


def test_a_log_that_could_be_read_only_later_says_nothing_about_before() -> None:
    assert told(run(1, {}), run(2, {LOG: {"messages": 1}, SLOT: {"xid 79": 1}})) == []


def test_the_drivers_counters_begin_anew_with_a_boot_and_the_cards_own_do_not() -> None:
    before = {SLOT: {"pcie_replay": 7, "nvlink_crc_flit": 9, "ecc_uncorrected_aggregate": 2, "xid 79": 3}, LOG: {}}
    after = {SLOT: {"pcie_replay": 3, "nvlink_crc_flit": 0, "ecc_uncorrected_aggregate": 2, "xid 79": 3}, LOG: {}}
    assert told(run(1, before), run(2, after, boot="boot-2")) == [
        (2, "growth", "PCIe replays rose from 0 to 3"),
        (2, "growth", "Xid 79 (GPU fell off the bus) in the kernel log rose from 0 to 3"),
    ]


def test_a_counter_of_the_card_that_falls_was_set_back() -> None:
    found = told(*(run(n, {SLOT: {"ecc_uncorrected_aggregate": v}}) for n, v in enumerate((5, 5, 0, 1), 1)))
    assert found == [
        (3, "cleared", "uncorrected ECC errors fell from 5 to 0: it was set back"),
        (4, "growth", "uncorrected ECC errors rose from 0 to 1"),
    ]


def test_another_card_in_the_slot_starts_with_its_own_counts() -> None:
    one, two = {SLOT: {"ecc_uncorrected_aggregate": 0}}, {SLOT: {"ecc_uncorrected_aggregate": 8}}
    assert told(run(1, one), run(2, two, uuid="GPU-2")) == []


def result(media: int, unsafe: int, names: tuple[str, str]) -> dict[str, Any]:
    one, two = names
    return {
        "started_at": "2026-11-30T02:00:00Z", "complete": True, "profile": "quick", "verdict": None,
        "contract": {"sha256": "c"}, "sessions": [{"boot_id": "b"}], "findings": [], "measurements": [],
        "node": {
            "disks": [{"name": one, "serial": "S-ONE"}, {"name": two, "serial": "S-TWO"}],
            "counters": {one: {"media_errors": 0}, two: {"media_errors": media, "unsafe_shutdowns": unsafe}},
        },
    }  # fmt: skip


def test_disks_are_known_by_their_serials_when_their_names_turn_around() -> None:
    first = run_of("1", result(4, 1, ("nvme0n1", "nvme1n1")))
    second = run_of("2", result(4, 2, ("nvme1n1", "nvme0n1")))
    (event,) = growth((first, second))
    assert (event.subject, event.name, str(event.said)) == (
        "disk S-TWO", "unsafe_shutdowns", "unsafe shutdowns of the disk rose from 1 to 2",
    )  # fmt: skip


@pytest.mark.parametrize(("by_s", "said"), [(7200.0, "forward by 2.0 h"), (-600.0, "back by 10 min")])
def test_a_clock_that_was_set_is_told_with_the_run_that_followed(by_s: float, said: str) -> None:
    runs = [run(n, {}) for n in (1, 2, 3)]
    known = Span("boot-1", START, START, runs[-1].at, (Step(runs[1].at - timedelta(minutes=5), by_s),))
    (event,) = clock_steps(runs, [known])
    assert (event.run, event.kind) == (2, "clock")
    assert said in str(event.said)


def test_one_thing_is_one_finding_with_all_its_runs(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("version: 1\ngpu: {count: 1, condition: new}\n")
    contract = load(path, grammars())
    runs = [run(n, {SLOT: {"ecc_uncorrected_aggregate": max(0, n - 2), "pcie_replay": n}}) for n in range(1, 8)]
    found = {j.finding.id: j for j in judge(runs, contract).judged}
    worn, replays = (found[f"integrity.counters.{n}@{SLOT}"] for n in ("ecc_uncorrected_aggregate", "pcie_replay"))
    assert (worn.runs, worn.finding.severity) == ((3, 4, 5, 6, 7), "breach")
    assert "5 times in all" in str(worn.finding.reason)
    assert (replays.runs, replays.finding.severity) == ((2, 3, 4, 5, 6, 7), "advisory")
    assert len(found) == len(judge(runs, contract).judged)


# ---------------------------------------------------------------- on the fake node, from outside


def one_run(node: Node, folder: Path, contract: Path, name: str) -> None:
    built = build(node, folder / f"node-{name}")
    done = accept(
        "run", str(contract), "--out", str(folder / "runs" / name), "--profile", "facts", "--yes",
        "--root", str(built.root), cwd=folder, env=built.environment(), timeout=240,
    )  # fmt: skip
    assert done.code in (0, 1, 3), done.said


def test_two_runs_on_a_node_show_which_card_got_worse(tmp_path: Path) -> None:
    contract = tmp_path / "c.yaml"
    contract.write_text("version: 1\ngpu: {count: 8, condition: new}\n")
    node = healthy.h100()
    bad, linked, logged = (node.cards[n] for n in (2, 4, 6))
    worse = node.answering(
        f"{bad.index} nvmlDeviceGetTotalEccErrors.1.1 3",
        f"{bad.index} nvmlDeviceGetPcieReplayCounter 12",
        *(f"{linked.index} nvmlDeviceGetNvLinkErrorCounter.{link}.2 5" for link in range(2)),
    ).but(
        kernel_log=(
            *(node.kernel_log or ()),
            f"[ 77.0] NVRM: Xid (PCI:{logged.slot[:-2]}): 63, pid=1, name=p, Row Remapper",
        )
    )
    one_run(node, tmp_path, contract, "0001")
    one_run(worse, tmp_path, contract, "0002")
    report = accept("trial", "report", "runs", "--format", "json", cwd=tmp_path)
    data = json.loads(report.out)
    grown = {(e["run"], e["subject"], e["said"]) for e in data["events"] if e["kind"] == "growth"}
    assert grown == {
        (2, bad.slot, "uncorrected ECC errors rose from 0 to 3"),
        (2, bad.slot, "PCIe replays rose from 0 to 12"),
        (2, linked.slot, "NVLink CRC errors (flits) rose from 0 to 10"),
        (2, logged.slot, "Xid 63 (memory row remapped) in the kernel log rose from 0 to 1"),
    }
    assert report.code == 1
    for kind in ("md", "html"):
        text = accept("trial", "report", "runs", "--format", kind, cwd=tmp_path).out
        assert all(card.slot in text for card in (bad, linked, logged))
