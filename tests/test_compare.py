"""Comparing two runs: what is noise, what is change, what was exchanged."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.compare import changes, compare, holm
from agent.evidence import write_atomic
from agent.model import Attempt, Block, Finding, Measurement, Run, Scope
from agent.result import dumps, to_json
from agent.text import msg
from tests.runs import accept

NODE: dict[str, Any] = {
    "hostname": "node-7",
    "identity": "aaaa",
    "gpus": [
        {"slot": "0000:1b:00.0", "uuid": "GPU-1", "index": 0},
        {"slot": "0000:3b:00.0", "uuid": "GPU-2", "index": 1},
    ],
    "disks": [{"name": "nvme0n1", "serial": "S1"}],
}


def measurement(key: str, values: list[float], unit: str = "TFLOPS") -> Measurement:
    blocks = tuple(Block(v) for v in values)
    return Measurement(key, unit, "median of block medians", (Attempt(blocks, "standard", "2026-11-30T00:00:00Z"),))


def finding(key: str, outcome: Any, measured: Any = None) -> Finding:
    return Finding(key, key, outcome, "breach", ">= 1", "kept", msg("kept"), measured=measured)


def run(**changed: Any) -> Run:
    base = Run(
        run_id="r",
        agent_version="0",
        complete=True,
        started_at="2026-11-30T00:00:00Z",
        finished_at="2026-11-30T00:10:00Z",
        contract_id=None,
        contract_sha256="c",
        contract_header={},
        attempt=None,
        sessions=(),
        stack={"driver": "550.54"},
        node=NODE,
        scope=Scope(),
        verdict="accepted",
        headline=msg("1 kept"),
        findings=(finding("gpu.count", "pass", 2),),
        measurements=(measurement("gemm.bf16", noisy(700.0, 1)),),
        steps=(),
        profile="standard",
    )
    return replace(base, **changed)


def noisy(level: float, seed: int, spread: float = 0.005, count: int = 6) -> list[float]:
    source = random.Random(seed)
    return [level * (1 + source.gauss(0, spread)) for _ in range(count)]


def test_the_same_run_has_not_changed() -> None:
    found = compare(run(), run())
    assert not found.changed
    assert found.same_machine
    assert found.comparable


def test_a_swapped_card_is_named_by_its_slot() -> None:
    gpus = [{**NODE["gpus"][0], "uuid": "GPU-9"}, NODE["gpus"][1]]
    found = compare(run(), run(node={**NODE, "gpus": gpus}))
    assert [(d.where, d.before, d.after) for d in found.parts] == [("node.gpus[0000:1b:00.0].uuid", "GPU-1", "GPU-9")]
    assert not found.same_machine


def test_a_lost_card_and_a_new_disk() -> None:
    node = {**NODE, "gpus": NODE["gpus"][:1], "disks": [{"name": "nvme0n1", "serial": "S2"}]}
    assert {d.where for d in compare(run(), run(node=node)).parts} == {
        "node.gpus[0000:3b:00.0]",
        "node.disks[nvme0n1].serial",
    }


def test_a_renamed_host_is_a_fact_not_another_machine() -> None:
    found = compare(run(), run(node={**NODE, "hostname": "node-8"}))
    assert found.same_machine
    assert [d.where for d in found.facts] == ["node.hostname"]


def test_another_driver_and_a_turned_finding() -> None:
    after = run(stack={"driver": "570.1"}, findings=(finding("gpu.count", "fail", 1),))
    found = compare(run(), after)
    assert {d.where for d in found.facts} == {"stack.driver", "gpu.count"}
    assert [(t.id, t.before, t.after) for t in found.turns] == [("gpu.count", "pass", "fail")]


def test_a_version_that_one_run_did_not_ask_for_has_not_changed() -> None:
    before, after = run(stack={"driver": "550.54", "torch": "2.6.0"}), run(stack={"driver": "550.54", "torch": None})
    for one, two in ((before, after), (after, before)):
        assert compare(one, two).facts == ()


def test_a_tenth_less_is_beyond_noise_and_a_hundredth_is_not() -> None:
    before = [measurement("gemm.bf16", noisy(700.0, 1))]
    less = changes(before, [measurement("gemm.bf16", noisy(630.0, 2))])
    same = changes(before, [measurement("gemm.bf16", noisy(693.0, 3))])
    assert less[0].beyond_noise
    assert less[0].relative == pytest.approx(-0.1, abs=0.01)
    assert not same[0].beyond_noise


def test_healthy_machines_raise_few_alarms() -> None:
    """200 pairs of runs of 40 measurements each, with a run-to-run offset of 1 %: at most 2 % raise any alarm."""
    alarms = 0
    for seed in range(200):
        source = random.Random(seed)
        both = []
        for _ in range(2):
            offsets = [1 + source.gauss(0, 0.01) for _ in range(40)]
            both.append([measurement(f"m{i}", noisy(100 * o, source.randrange(10**9))) for i, o in enumerate(offsets)])
        alarms += any(c.beyond_noise for c in changes(*both))
    assert alarms <= 4


def test_of_a_hundred_measurements_eight_percent_are_found_and_noise_is_not() -> None:
    """100 pairs of runs of 100 measurements, each run 1 % off (sd): the chance of an alarm, and of a find."""
    alarms = found = 0
    for seed in range(100):
        source = random.Random(seed)
        offsets = [[1 + source.gauss(0, 0.01) for _ in range(100)] for _ in range(3)]
        offsets[2][7] *= 0.92
        runs = [
            [measurement(f"m{i}", noisy(100 * o, source.randrange(10**9))) for i, o in enumerate(run)]
            for run in offsets
        ]
        alarms += any(c.beyond_noise for c in changes(runs[0], runs[1]))
        found += any(c.beyond_noise and c.key == "m7" for c in changes(runs[0], runs[2]))
    assert alarms <= 5
    assert found >= 95


def test_other_units_are_not_compared() -> None:
    assert changes([measurement("a", [1.0] * 6, "GB/s")], [measurement("a", [1.0] * 6, "TFLOPS")]) == ()


def test_losses_are_compared_as_shares() -> None:
    def loss(bad: int) -> Measurement:
        block = Block(bad / 10, conditions={"count": bad, "trials": 1000})
        attempt = Attempt((block,), "standard", "2026-11-30T00:00:00Z")
        return Measurement("ping[a].loss", "%", "share of trials", (attempt,))

    assert changes([loss(2)], [loss(60)])[0].beyond_noise
    assert not changes([loss(2)], [loss(3)])[0].beyond_noise
    assert not changes([loss(0)], [loss(0)])[0].beyond_noise


@given(st.lists(st.floats(0, 1), max_size=30))
def test_holm_never_makes_a_p_smaller(ps: list[float]) -> None:
    adjusted = holm(ps)
    assert all(p <= a <= 1 for p, a in zip(ps, adjusted))
    order = sorted(range(len(ps)), key=lambda i: ps[i])
    assert [adjusted[i] for i in order] == sorted(adjusted)


def stored(folder: Path, value: Run) -> str:
    folder.mkdir()
    write_atomic(folder / "result.json", dumps(to_json(value)).encode())
    return str(folder)


@pytest.mark.parametrize(
    ("after", "code", "said"),
    [
        (run(), 0, "0 of 1 measurements changed"),
        (run(measurements=(measurement("gemm.bf16", noisy(500.0, 4)),)), 1, "1 of 1 measurements changed"),
        (run(contract_sha256="d", measurements=()), 3, "not comparable"),
    ],
)
def test_the_command(tmp_path: Path, after: Run, code: int, said: str) -> None:
    first, second = stored(tmp_path / "a", run()), stored(tmp_path / "b", after)
    done = accept("compare", first, second, cwd=tmp_path)
    assert (done.code, said in done.out) == (code, True), done.said
    plain = json.loads(accept("compare", first, second, "--format", "json", cwd=tmp_path).out)
    assert plain["changed"] is (code == 1)


def test_no_run_is_one_line(tmp_path: Path) -> None:
    done = accept("compare", str(tmp_path), str(tmp_path), cwd=tmp_path)
    assert done.code == 2
    assert "not a run folder" in done.err


def test_one_size_in_two_units_is_no_change() -> None:
    in_gb = replace(finding("memory.size", "pass", 25.276514304), unit="GB")
    in_tb = replace(finding("memory.size", "pass", 0.025276514304), unit="TB")
    less = replace(finding("memory.size", "pass", 12.6), unit="GB")
    assert not compare(run(findings=(in_gb,)), run(findings=(in_tb,))).changed
    found = compare(run(findings=(in_tb,)), run(findings=(less,)))
    assert [(d.where, d.before, d.after) for d in found.facts] == [("memory.size", "25.28 GB", "12.6 GB")]


def test_what_a_run_was_told_to_leave_out_has_not_changed() -> None:
    looked = finding("software.os", "fail", "Debian")
    aside = replace(finding("software.os", "inconclusive"), reason_code="left-out")
    found = compare(run(findings=(looked,)), run(findings=(aside,)))
    assert not found.turns
    assert found.left_out == ("software.os",)
    assert not found.changed


SILENT = {"slot": "0000:3b:00.0", "uuid": None, "index": 1, "answers": False}


def test_a_card_that_fell_silent_is_no_exchanged_part() -> None:
    """Its slot is still there: it is another fact about the same machine."""
    after = {**NODE, "gpus": [NODE["gpus"][0], SILENT]}
    found = compare(run(), run(node=after))
    assert found.same_machine
    assert [(d.where, d.before, d.after) for d in found.facts] == [("node.gpus[0000:3b:00.0].answers", None, False)]
    assert found.changed
    back = compare(run(node=after), run())
    assert [(d.where, d.before, d.after) for d in back.facts] == [("node.gpus[0000:3b:00.0].answers", False, None)]


def test_a_silent_card_that_tells_another_name_was_exchanged() -> None:
    after = {**NODE, "gpus": [NODE["gpus"][0], {**SILENT, "uuid": "GPU-9"}]}
    found = compare(run(), run(node=after))
    assert not found.same_machine
    assert [d.where for d in found.parts] == ["node.gpus[0000:3b:00.0].uuid"]


def shares(bad: int) -> Run:
    block = Block(bad / 10, conditions={"count": bad, "trials": 1000})
    attempt = Attempt((block,), "standard", "2026-11-30T00:00:00Z")
    return run(measurements=(Measurement("ping[a].loss", "%", "share of trials", (attempt,)),))


@pytest.mark.parametrize("name", ["txt", "md", "html", "json"])
def test_from_nothing_to_something_is_no_share(tmp_path: Path, name: str) -> None:
    """No packet lost before, 6 % now: in every format as these two numbers, never as infinity."""
    folders = stored(tmp_path / "a", shares(0)), stored(tmp_path / "b", shares(60))
    done = accept("compare", *folders, "--format", name, cwd=tmp_path)
    assert done.code == 1, done.said
    assert not {"inf", "Infinity", "NaN", "nan"} & set(re.findall(r"\w+", done.out))
    if name == "json":
        (change,) = json.loads(done.out)["changes"]
        assert (change["before"], change["after"], change["relative"]) == (0.0, 6.0, None)
    else:
        assert "6 %" in done.out


@pytest.mark.parametrize("one", [(True, False), (False, True)])
def test_names_are_not_held_against_what_stands_for_them(one: tuple[bool, bool]) -> None:
    """A redacted copy beside its original: nothing was exchanged, and nobody is told that it was."""
    clean = {**NODE, "identity": "0001", "hostname": "host-1", "gpus": [{**g, "uuid": "GPU-0"} for g in NODE["gpus"]]}
    found = compare(run(), run(node=clean), one)
    assert not found.comparable
    assert found.same_machine is None
    assert found.parts == ()


def test_two_redacted_runs_do_not_prove_one_machine() -> None:
    """The first name of each becomes the same token: equal tokens say nothing."""
    found = compare(run(), run(), (True, True))
    assert found.comparable
    assert found.same_machine is None
    other = {**NODE, "gpus": NODE["gpus"][:1]}
    assert [d.where for d in compare(run(), run(node=other), (True, True)).parts] == ["node.gpus[0000:3b:00.0]"]


def test_the_command_says_that_a_run_is_redacted(tmp_path: Path) -> None:
    folders = stored(tmp_path / "a", run()), stored(tmp_path / "b", run())
    (tmp_path / "b" / "redaction.json").write_text("{}")
    done = accept("compare", *folders, cwd=tmp_path)
    assert done.code == 3
    assert "one of the runs is redacted" in done.out
    assert "the same machine" not in done.out.splitlines()


def test_txt_goes_to_a_file_too(tmp_path: Path) -> None:
    folders = stored(tmp_path / "a", run()), stored(tmp_path / "b", run())
    done = accept("compare", *folders, "-o", "said.txt", cwd=tmp_path)
    assert (done.code, done.out) == (0, "")
    assert "0 of 1 measurements changed" in (tmp_path / "said.txt").read_text()
