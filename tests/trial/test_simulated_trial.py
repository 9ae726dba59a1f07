"""Three simulated days: what is wrong is found in the right run, what is not is not called."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Optional

import pytest

from agent.model import Contract, Finding
from agent.text import msg
from agent.trial.judge import Trial, judge, needed
from agent.trial.runs import Unread
from agent.trial.schedule import Slot
from tests.trial.simulated import SLOTS, World, contract, simulate, trial

EVENING = "network[public].evening_drop@download"


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Contract:
    return contract(tmp_path_factory.mktemp("contract"))


def of(found: Trial, key: str) -> Finding:
    return next(j.finding for j in found.judged if j.finding.id == key)


def runs_of(found: Trial, key: str) -> Optional[tuple[int, ...]]:
    return next((j.runs for j in found.judged if j.finding.id == key), None)


@pytest.mark.parametrize("seed", range(5))
def test_an_evening_a_fifth_slower_is_a_breach_with_its_interval(signed: Contract, seed: int) -> None:
    found = of(trial(signed, World(evening_drop=0.2), seed), EVENING)
    assert found.interval is not None
    assert found.interval[0] <= 20 <= found.interval[1]
    assert found.outcome == "fail" or found.reason_code == "too-close"


def test_most_such_evenings_convict(signed: Contract) -> None:
    outcomes = [of(trial(signed, World(evening_drop=0.2), seed), EVENING).outcome for seed in range(40)]
    assert outcomes.count("fail") >= 24
    assert "pass" not in outcomes


def test_three_percent_are_not_called(signed: Contract) -> None:
    outcomes = [of(trial(signed, World(evening_drop=0.03), seed), EVENING).outcome for seed in range(100)]
    assert "fail" not in outcomes
    assert outcomes.count("pass") > 0


def test_a_slow_evening_behind_a_far_end_that_was_not_shown_capable_convicts_nobody(signed: Contract) -> None:
    found = of(trial(signed, World(evening_drop=0.3, weak="far-end-not-shown-capable"), 1), EVENING)
    assert (found.outcome, found.reason_code) == ("inconclusive", "far-end-not-shown-capable")


def test_a_swapped_card_is_named_by_slot_at_its_run(signed: Contract) -> None:
    found = trial(signed, World(swap_at=7), 1)
    key = f"integrity.parts@gpu {SLOTS[1]}"
    assert runs_of(found, key) == (7,)
    assert "GPU-2 → GPU-9" in str(of(found, key).reason)
    assert found.verdict == "inconclusive"


def test_a_reboot_is_named_at_its_run(signed: Contract) -> None:
    found = trial(signed, World(reboot_at=9), 1)
    assert [(e.run, e.kind) for e in found.events] == [(9, "reboot")]


def test_growing_error_counts_break_the_condition_at_every_run_they_grow(signed: Contract) -> None:
    found = trial(signed, World(errors_from=12), 1)
    grown = [(e.run, e.subject) for e in found.events if e.kind == "growth"]
    assert grown == [(n, SLOTS[0]) for n in range(12, 19)]
    assert found.verdict == "rejected"


def test_a_drift_of_four_percent_is_noted_and_does_not_reject(signed: Contract) -> None:
    called = [trial(signed, World(drift=0.04), seed) for seed in range(20)]
    drifting = [t for t in called if any(j.finding.clause == "integrity.drift" for j in t.judged)]
    assert len(drifting) >= 15
    for found in drifting:
        (first, *_rest) = [j for j in found.judged if j.finding.clause == "integrity.drift"]
        assert first.finding.severity == "advisory"
        assert 6 <= first.runs[0] <= 18


def test_a_fact_broken_once_is_broken_and_its_repair_and_return_are_told(signed: Contract) -> None:
    world = World(outcomes={4: {"gpu.count": "fail"}, 10: {"gpu.count": "fail"}})
    found = trial(signed, world, 1)
    assert of(found, "gpu.count").outcome == "fail"
    assert runs_of(found, "gpu.count") == (4, 10)
    told = [(e.run, e.kind) for e in found.events]
    assert told == [(5, "repaired"), (10, "came-back"), (11, "repaired")]


def test_healthy_trials_are_not_rejected(signed: Contract) -> None:
    verdicts = [trial(signed, World(), seed).verdict for seed in range(100)]
    assert verdicts.count("rejected") == 0
    assert verdicts.count("accepted") > 50


def test_one_measured_breach_of_many_looks_leaves_the_promise_open(signed: Contract) -> None:
    runs, made = simulate(signed, World(), 1)
    key = "network[public].download"
    broken = replace(runs[5].outcomes[key], outcome="fail")
    runs = (*runs[:5], replace(runs[5], outcomes={**runs[5].outcomes, key: broken}), *runs[6:])
    found = of(judge(runs, signed, made), key)
    assert (found.outcome, found.reason_code) == ("inconclusive", "unstable")
    every = tuple(replace(r, outcomes={**r.outcomes, key: broken}) for r in runs)
    assert of(judge(every, signed, made), key).outcome == "fail"


@pytest.mark.parametrize(("looks", "promises", "least"), [(1, 1, 1), (18, 1, 2), (18, 50, 3), (500, 50, 7)])
def test_how_many_breaches_it_takes(looks: int, promises: int, least: int) -> None:
    assert needed(looks, promises) == least


def test_a_trial_with_holes_accepts_nothing(signed: Contract) -> None:
    runs, made = simulate(signed, World(), 1)
    last = made.slots[-1]
    holed = made.with_slot(Slot(last.number, last.at, last.profile, "missed"))
    found = judge(runs[:-1], signed, holed, [Unread("0018", msg("no result.json"))])
    assert of(found, "integrity.trial").reason_code == "too-few-runs"
    assert runs_of(found, "integrity.trial") == (18,)
    assert found.verdict != "accepted"


def test_quick_runs_alone_keep_nothing(signed: Contract, tmp_path: Path) -> None:
    runs, made = simulate(signed, World(), 1)
    found = judge(runs[1:-1], signed, made)
    assert of(found, "network[public].download").outcome == "inconclusive"
