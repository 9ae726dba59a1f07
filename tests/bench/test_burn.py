"""The burn: on this CPU for real, and judged on telemetry that is made up."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

import pytest

from agent.bench import burn as bench_burn
from agent.bench import clocks as light
from agent.bench.burn import BurnStep, dtype_for
from agent.bench.step import Look
from agent.bench.telemetry import conditions
from agent.bench.worker import read_result
from agent.checks import _load_errors, burn
from agent.checks._api import Case
from agent.checks._clocks_under_load import judge_clocks_under_load
from agent.checks._measured import likely_cause
from agent.evidence import Store
from agent.facts.pythons import Pythons
from agent.host import Ran, ReplayHost, marked
from agent.model import Attempt, Block, Clause, Contract, Finding, Measurement, Promise, Result, Taken
from agent.reading import Known, Missing
from agent.text import msg
from agent.tools import ParseError
from agent.tools import burn as tool
from agent.tools import telemetry as telemetry_tool
from agent.tools.worker import Device
from tests.bench import synthetic
from tests.bench.interpreters import interpreter, live, needs_torch, shim

ALL = ("temperature", "throttled", "power", "sag")
A, B = synthetic.SLOTS
CARDS = tuple(Device(i, "NVIDIA Test", u, s) for i, (u, s) in enumerate(zip(synthetic.UUIDS, synthetic.SLOTS)))


def cpu_step(python: Optional[str] = None, **settings: Any) -> BurnStep:
    chosen = interpreter(python) if python else interpreter()
    few: dict[str, Any] = {"metrics": ALL, "duration_s": 12.0, "dtype": "fp32", "shape": (128, 128, 128)}
    return BurnStep(chosen, **{"device": "cpu", "stall_s": 60.0, "light_s": 0.1, **few, **settings})


def missing(found: Result) -> Missing:
    assert isinstance(found, Missing), found
    return found


class TestReal:
    """With the real torch of this Python, telemetry beside it."""

    pytestmark = needs_torch

    def test_a_cpu_burns_and_has_no_gpu_telemetry(self, tmp_path: Path) -> None:
        host = live(tmp_path)
        found = cpu_step().execute(host, Look())
        sag = found["burn.sag@device 0"]
        assert isinstance(sag, Taken)
        assert len(sag.attempt.blocks) == 6
        assert sag.attempt.correct is True
        for name in ("temperature", "throttled", "power"):
            assert missing(found[f"burn.{name}@device 0"]).kind == "no-tool"
        assert not marked(host.token)
        (folder,) = (tmp_path / "run" / "evidence").iterdir()
        told = telemetry_tool.parse((folder / "telemetry.jsonl").read_text())
        assert told.done
        assert any(sample.values["own"] for sample in told.host)
        assert "--" not in sag.attempt.reproduce
        assert cpu_step().execute(ReplayHost(Store(tmp_path / "run")), Look()) == found

    def test_a_hang_ends_with_no_child_left(self, tmp_path: Path) -> None:
        source = """
            import sys, time, torch
            real, seen = torch.mm, []
            def mm(*a, **k):
                seen.append(1)
                if len(seen) > 50: time.sleep(600)
                return real(*a, **k)
            torch.mm = mm
        """
        host, begun = live(tmp_path), time.monotonic()
        found = cpu_step(shim(tmp_path, sitecustomize=source), stall_s=6.0).execute(host, Look())
        assert missing(found["burn.sag@device 0"]).kind == "timeout"
        assert "rank 0 is at" in str(missing(found["burn.sag@device 0"]).detail)
        assert time.monotonic() - begun < 60
        assert not marked(host.token)

    def test_wrong_products_are_void(self, tmp_path: Path) -> None:
        source = """
            import torch
            real = torch.mm
            def mm(a, b, out=None):
                c = real(a, b, out=out)
                c[3, 3] += 300
                return c
            torch.mm = mm
        """
        found = cpu_step(shim(tmp_path, sitecustomize=source)).execute(live(tmp_path), Look())
        sag = found["burn.sag@device 0"]
        assert isinstance(sag, Taken)
        assert sag.attempt.void is not None


# ---------------------------------------------------------------- judged on what is made up


def left(folder: Path, result: Mapping[str, Any], told: Optional[str]) -> Ran:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_text(json.dumps(result))
    if told is not None:
        (folder / "telemetry.jsonl").write_text(told)
    return Ran("burn/1", ("python",), synthetic.moment(-2), 600.0, exit=0, evidence="evidence/0001-burn", folder=folder)


def results(
    folder: Path,
    told: Optional[str],
    result: Optional[Mapping[str, Any]] = None,
    seconds: float = 600,
    look: Optional[Look] = None,
) -> dict[str, Result]:
    """What the step makes of a worker's answer."""
    one = BurnStep(interpreter(devices=CARDS), metrics=ALL, duration_s=seconds)
    ran = read_result(left(folder, result or synthetic.burn(seconds), told), "burn")
    assert not isinstance(ran, Missing), ran
    return one.results(ran, tool.parse(ran.data), look or Look(), CARDS)


def clause(name: str, op: Any, value: float, unit: str) -> Clause:
    return Clause(f"burn.{name}", "burn", name, Promise(op, value, unit, f"{op} {value} {unit}"), 1, 1)


CLAUSES = {
    "temperature": clause("temperature", "<=", 85.0, "C"),
    "throttled": clause("throttled", "<=", 1.0, "%"),
    "power": clause("power", ">=", 90.0, "%"),
    "sag": clause("sag", "<=", 5.0, "%"),
}


def judged(name: str, *attempts: Mapping[str, Result]) -> dict[str, Finding]:
    """By slot, after so many attempts."""
    measured: dict[str, Any] = {}
    for results_ in attempts:
        for key, result in results_.items():
            before = measured.get(key)
            if isinstance(result, Missing):
                measured[key] = result
            else:
                earlier = before.attempts if isinstance(before, Measurement) else ()
                made = (*earlier, result.attempt)
                measured[key] = Measurement(key, result.unit, result.statistic, made, result.subject)
    case = Case(Contract((CLAUSES[name],), b"", ""), {}, measured)
    return {f.subject or "": f for f in burn.judge((CLAUSES[name],), case)}


def test_a_healthy_node_keeps_all(tmp_path: Path) -> None:
    found = results(tmp_path, synthetic.telemetry(600))
    for name in ALL:
        assert [f.outcome for f in judged(name, found).values()] == ["pass", "pass"], name
    # A power cap all the time is how a full load looks.
    assert judged("throttled", found)[A].measured == 0
    power = judged("power", found)[A].measured
    assert power == pytest.approx(100 * 690 / 700)


def test_thermal_throttling_names_its_bits_and_their_share(tmp_path: Path) -> None:
    hot = synthetic.telemetry(600, reasons=lambda card, t: 0x44 if card == 1 and t % 10 < 3 else 0x4)
    found = results(tmp_path, hot)
    once, twice = judged("throttled", found), judged("throttled", found, found)
    assert (once[B].outcome, once[B].again) == ("inconclusive", "repeat")
    assert [twice[A].outcome, twice[B].outcome] == ["pass", "fail"]
    assert twice[B].measured == pytest.approx(30, abs=1)
    assert "temperature, by the hardware 30.1 % of the time (hw_thermal)" in str(twice[B].reason)
    assert "the power limit 100 % of the time (sw_power_cap)" in str(twice[B].reason)


@pytest.mark.parametrize(("bit", "name"), [(0x8, "hw_slowdown"), (0x20, "sw_thermal"), (0x80, "power_brake")])
def test_every_fault_counts(tmp_path: Path, bit: int, name: str) -> None:
    found = results(tmp_path, synthetic.telemetry(600, reasons=lambda card, t: bit))
    assert name in str(judged("throttled", found, found)[A].reason)


def test_a_power_cap_is_throttling_only_where_the_limit_was_lowered(tmp_path: Path) -> None:
    found = results(tmp_path, synthetic.telemetry(600, enforced=500))
    lowered = judged("throttled", found, found)[A]
    assert lowered.outcome == "fail"
    assert any("500 W are enforced" in str(n) for n in lowered.notes)


def test_the_drivers_own_counter_sees_what_falls_between_samples(tmp_path: Path) -> None:
    def counters(card: int, t: float) -> list[Optional[float]]:
        held = max(0.0, t) * 0.2e9 if card == 0 else 0.0
        return [*[0.0] * 7, held, 0.0, 0.0]

    found = results(tmp_path, synthetic.telemetry(600, counters=counters))
    assert judged("throttled", found, found)[A].outcome == "fail"
    assert judged("throttled", found, found)[A].measured == pytest.approx(20, abs=1)
    assert judged("throttled", found, found)[B].outcome == "pass"


def test_the_hottest_second_counts_exactly(tmp_path: Path) -> None:
    hot = synthetic.telemetry(600, temperature=lambda card, t: 86 if card == 0 and 300 <= t < 301 else 80)
    found = judged("temperature", results(tmp_path, hot))
    assert (found[A].outcome, found[A].measured) == ("fail", 86)
    assert (found[B].outcome, found[B].measured) == ("pass", 80)


def test_a_sag_is_first_to_last_minute(tmp_path: Path) -> None:
    sagging = synthetic.burn(600, rate=lambda card, t: 700.0 - (t / 600 * 80 if card == 1 else 0))
    found = results(tmp_path, synthetic.telemetry(600), sagging)
    assert judged("sag", found)[A].outcome == "pass"
    bad = judged("sag", found, found)[B]
    assert bad.outcome == "fail"
    assert bad.measured == pytest.approx(100 * 72 / 700, rel=0.1)


def test_a_card_behind_the_others_is_named(tmp_path: Path) -> None:
    slow = synthetic.burn(600, rate=lambda card, t: 600.0 if card else 700.0)
    found = judged("sag", results(tmp_path, synthetic.telemetry(600), slow))
    assert any("behind the median" in str(n) for n in found[B].notes)
    assert not any("behind the median" in str(n) for n in found[A].notes)


def test_a_clock_that_a_light_load_does_not_raise_is_locked(tmp_path: Path) -> None:
    locked = synthetic.telemetry(600, clock=lambda card, t: (1410 if card else 1980) if t < 0 else 1400)
    found = judged("sag", results(tmp_path, locked))
    assert any("1410 of 1980 MHz" in str(n) for n in found[B].notes)
    assert not any("locked" in str(n) for n in found[A].notes)


def test_a_shortened_burn_may_fail_and_never_pass(tmp_path: Path) -> None:
    quick = Look(1, "quick")
    good = results(tmp_path / "a", synthetic.telemetry(48), synthetic.burn(48), 600, quick)
    for name in ALL:
        found = judged(name, good)[A]
        assert (found.outcome, found.reason_code) == ("inconclusive", "shortened"), name
    hot = synthetic.telemetry(48, temperature=lambda card, t: 90, reasons=lambda card, t: 0x20)
    bad = results(tmp_path / "b", hot, synthetic.burn(48), 600, quick)
    assert judged("temperature", bad)[A].outcome == "fail"
    assert judged("throttled", bad, bad)[A].outcome == "fail"


def test_without_telemetry_only_the_rate_is_judged(tmp_path: Path) -> None:
    found = results(tmp_path, None)
    assert judged("sag", found)[A].outcome == "pass"
    for name in ("temperature", "throttled", "power"):
        assert judged(name, found)[A].outcome == "inconclusive"


def test_telemetry_is_joined_by_uuid_and_not_by_order(tmp_path: Path) -> None:
    turned = synthetic.telemetry(600, temperature=lambda card, t: 90 if card else 60, uuids=("GPU-1", "GPU-0"))
    found = judged("temperature", results(tmp_path, turned))
    assert (found[A].measured, found[B].measured) == (90, 60)


def test_a_driver_that_answers_too_seldom_says_nothing(tmp_path: Path) -> None:
    sparse = synthetic.telemetry(600)
    lines = [line for i, line in enumerate(sparse.splitlines(True)) if '"f"' not in line or i % 5 == 0]
    found = judged("throttled", results(tmp_path, "".join(lines)))
    assert found[A].outcome == "inconclusive"


def test_wrong_products_never_pass(tmp_path: Path) -> None:
    found = results(tmp_path, synthetic.telemetry(600), synthetic.burn(600, wrong=(1,)))
    assert judged("sag", found)[B].reason_code == "wrong-result"
    assert judged("sag", found)[A].outcome == "pass"


def test_a_card_that_is_gone_leaves_the_others(tmp_path: Path) -> None:
    found = results(tmp_path, synthetic.telemetry(600), synthetic.burn(600, cards=1))
    assert judged("sag", found)[A].outcome == "pass"
    assert judged("sag", found)[B].outcome == "inconclusive"


def test_a_burn_that_broke_off_says_why(tmp_path: Path) -> None:
    stopped = {"kind": "rank-died", "detail": "rank 1 was ended by signal 9", "rank": 1, "needs": None}
    result = {**synthetic.burn(600, stretches=12), "stopped": stopped}
    result["burn"][1]["blocks"] = result["burn"][1]["blocks"][:3]
    found = judged("sag", results(tmp_path, synthetic.telemetry(600), result))
    assert found[A].outcome == "pass"
    assert "rank 1 was ended by signal 9" in str(found[B].reason)


# ---------------------------------------------------------------- errors under load


def errors(folder: Path, **changes: Any) -> dict[str, Finding]:
    measured: dict[str, Any] = {}
    for key, result in results(folder, synthetic.telemetry(600, **changes)).items():
        if isinstance(result, Taken):
            measured[key] = Measurement(key, result.unit, result.statistic, (result.attempt,), result.subject)
    return {f.subject or "": f for f in _load_errors.judge(Case(Contract((), b"", ""), {}, measured))}


def test_no_new_errors(tmp_path: Path) -> None:
    found = errors(tmp_path)
    assert [f.outcome for f in found.values()] == ["pass", "pass"]
    assert found[A].id == f"integrity.load_errors@{A}"


@pytest.mark.parametrize(
    ("place", "severity", "says"),
    [
        (0, "breach", "3 uncorrected memory errors"),
        (2, "breach", "3 rows remapped"),
        (1, "advisory", "3 corrected memory errors"),
        (5, "advisory", "3 PCIe replays"),
    ],
)
def test_errors_that_grow_are_named(tmp_path: Path, place: int, severity: str, says: str) -> None:
    def counters(card: int, t: float) -> list[Optional[float]]:
        row: list[Optional[float]] = [7.0] * 10
        row[place] = 7.0 + (3 if card == 1 and t > 300 else 0)
        return row

    found = errors(tmp_path, counters=counters)
    assert (found[A].outcome, found[B].outcome, found[B].severity) == ("pass", "fail", severity)
    assert says in str(found[B].reason)


def test_a_hardware_fault_during_the_load(tmp_path: Path) -> None:
    found = errors(tmp_path, faults=((100.0, 1, 79), (200.0, 0, 13)))
    assert (found[B].outcome, found[B].severity) == ("fail", "breach")
    assert "Xid 79" in str(found[B].reason)
    # 13 is a program's own fault, ours as likely as not.
    assert found[A].outcome == "pass"


# ---------------------------------------------------------------- conditions of a block


def test_conditions_of_a_block() -> None:
    told = telemetry_tool.parse(synthetic.telemetry(20, reasons=lambda card, t: 0x4 if t < 5 else 0x24))
    found = conditions(Known(told), CARDS[0], synthetic.moment(0), synthetic.moment(10))
    assert (found["sm_mhz"], found["power_w"], found["temp_c"], found["late"]) == (1755, 690, 64, 0)
    assert found["throttle"] == {"sw_power_cap": 1.0, "sw_thermal": pytest.approx(0.5, abs=0.02)}
    assert found["foreign"]["cpu_percent"] == pytest.approx(5.0)
    assert found["foreign"]["network_mb_s"] == pytest.approx(1.0)
    assert "sm_mhz" not in conditions(Known(told), Device(0, "cpu"), synthetic.moment(0), synthetic.moment(10))


def test_a_shortfall_names_what_held_the_card_down() -> None:

    block = Block(500.0, (500.0,), (), {"throttle": {"hw_thermal": 0.25, "idle": 0.5}})
    attempt = Attempt((block,), "standard", synthetic.moment(0))
    key = f"gemm.bf16@{A}"
    found = Finding(key, "gemm.bf16", "fail", "breach", "", "below-limit", msg("x"), A, measurements=(key,))
    case = Case(Contract((), b"", ""), {}, {key: Measurement(key, "TFLOPS", "median of block medians", (attempt,), A)})
    assert [str(n) for n in likely_cause(found, case).notes] == [
        "clocks held down meanwhile by temperature, by the hardware 25 % of the time (hw_thermal)"
    ]


# ---------------------------------------------------------------- steps and parsing


def test_the_type_of_number_a_card_has_units_for() -> None:
    assert [dtype_for(c) for c in ("9.0", "8.0", "7.5", "7.0", "5.0", None)] == [
        "bf16",
        "bf16",
        "fp16",
        "fp16",
        "fp32",
        "bf16",
    ]


def test_one_step_for_all_clauses() -> None:
    clauses = tuple(CLAUSES[n] for n in ("sag", "temperature"))
    facts = {"pythons": Pythons(interpreter(devices=CARDS))}
    (found,) = burn.steps(clauses, Case(Contract(clauses, b"", ""), facts))
    assert set(found.keys) == {
        f"{name}@{slot}" for name in ("burn.sag", "burn.temperature", "integrity.load_errors") for slot in (A, B)
    }
    assert found.cost("quick").seconds < 120 < 600 < found.cost("standard").seconds < 720
    assert list(burn.steps(clauses, Case(Contract(clauses, b"", "")))) == []


def test_telemetry_that_was_cut_off_is_read_up_to_there() -> None:
    whole = synthetic.telemetry(10)
    cut = telemetry_tool.parse(whole[: len(whole) // 2])
    assert not cut.done
    assert cut.fast


@pytest.mark.parametrize(
    "text",
    ["", "{}\n", "[]\n", '{"telemetry":1}\n', synthetic.telemetry(2).replace("[[", "[[1,", 1), "\x00\n"],
)
def test_telemetry_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ParseError):
        telemetry_tool.parse(text)


@pytest.mark.parametrize("change", [{"burn": []}, {"shape": [1]}, {"burn": [{"index": 0, "light": 1, "blocks": []}]}])
def test_a_wrong_burn_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ParseError):
        tool.parse({**synthetic.burn(60), **change})


# ---------------------------------------------------------------- gpu.clocks


CLOCKS = Clause("gpu.clocks", "gpu", "clocks", Promise("==", "unlocked", "", "unlocked"), 1, 1)


def clocks(folder: Path, *reached: float) -> Optional[Finding]:
    """Judged after so many attempts, in each of which the first card reached so many MHz."""
    attempts = []
    for number, mhz in enumerate(reached):
        told = synthetic.telemetry(12, clock=_steady(mhz), reasons=lambda card, t: 0x2)
        ran = read_result(left(folder / str(number), synthetic.burn(12), told), "burn")
        assert not isinstance(ran, Missing)
        result = light.taken(ran, Look(number + 1), CARDS[0], tool.parse(ran.data).devices[0])
        assert isinstance(result, Taken)
        attempts.append(result.attempt)
    key = f"gpu.clocks@{A}"
    measured = {key: Measurement(key, "%", "median of repetitions", tuple(attempts), A)} if attempts else {}
    return judge_clocks_under_load(CLOCKS, Case(Contract((CLOCKS,), b"", ""), {}, measured), A, ())


def test_clocks_that_a_light_load_raises_are_free(tmp_path: Path) -> None:
    found = clocks(tmp_path, 1965)
    assert found is not None
    assert (found.outcome, found.measured) == ("pass", 1965)


def test_clocks_that_stay_low_twice_are_held(tmp_path: Path) -> None:
    once, twice, mixed = clocks(tmp_path, 1410), clocks(tmp_path, 1410, 1410), clocks(tmp_path, 1410, 1980)
    assert once is not None
    assert twice is not None
    assert mixed is not None
    assert (once.outcome, once.again) == ("inconclusive", "repeat")
    assert (twice.outcome, mixed.outcome) == ("fail", "inconclusive")
    assert "1410 of 1980 MHz, held down by clocks that somebody set 100 % of the time (app_clocks)" in str(twice.reason)


def test_without_a_load_clocks_are_not_judged_here(tmp_path: Path) -> None:
    assert clocks(tmp_path) is None


def _steady(value: float) -> synthetic.Of:
    return lambda card, t: value


# ---------------------------------------------------------------- the trade's own tools beside it

TOOL = """#!/bin/sh
printf '\\r100.0%%  proc'"'"'d: 20 (15000 Gflop/s) - 20 (15100 Gflop/s)   errors: 0 - 0   temps: 60 C - 61 C '
printf '\\nKilling processes with SIGTERM (soft kill)\\ndone\\n\\nTested 2 GPUs:\\n\\tGPU 0: FAULTY\\n\\tGPU 1: OK\\n'
"""


def test_gpu_burn_of_the_machine_stands_beside_and_judges_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "gpu_burn"
    tool.write_text(TOOL)
    tool.chmod(0o755)
    made = read_result(left(tmp_path / "made", synthetic.burn(600), synthetic.telemetry(600)), "burn")
    monkeypatch.setattr(bench_burn, "launch", lambda *a, **k: made)
    one = BurnStep(interpreter(devices=CARDS), metrics=ALL, duration_s=600, tools={"gpu_burn": str(tool)})
    assert one.step().tools == {"gpu_burn": 60.0}
    host = live(tmp_path)
    found = one.execute(host, Look())
    assert [r.probe for r in host.log] == ["second.gpu_burn"]
    assert host.log[0].argv == (str(tool), "-tc", "20")
    findings = judged("temperature", found)
    assert [f.outcome for f in findings.values()] == ["pass", "pass"]
    assert any("advisory: gpu_burn calls this GPU faulty" in str(n) for n in findings[A].notes)
    assert any("15.1 TFLOPS of fp32 products, 0 errors" in str(n) for n in findings[B].notes)
    assert not any("advisory" in str(n) for n in findings[B].notes)
    assert host.log[0].evidence in findings[A].evidence
    assert one.execute(ReplayHost(Store(tmp_path / "run")), Look()) == found


def test_wrong_products_of_ours_and_of_gpu_burn_are_no_disagreement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "gpu_burn"
    tool.write_text(TOOL)
    tool.chmod(0o755)
    result: Any = json.loads(json.dumps(synthetic.burn(600)))
    result["burn"][0]["blocks"][0]["correct"] = False
    made = read_result(left(tmp_path / "made", result, synthetic.telemetry(600)), "burn")
    monkeypatch.setattr(bench_burn, "launch", lambda *a, **k: made)
    one = BurnStep(interpreter(devices=CARDS), metrics=ALL, duration_s=600, tools={"gpu_burn": str(tool)})
    found = one.execute(live(tmp_path), Look())[f"burn.temperature@{A}"]
    assert isinstance(found, Taken)
    said = [str(n) for n in found.attempt.notes]
    assert "gpu_burn calls this GPU faulty too" in said
    assert not any("advisory" in n for n in said)
