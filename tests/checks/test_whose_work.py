"""Beside the renter's own work a shortfall convicts nobody; others' work stays in and is named (design rule 10)."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any, Optional

import pytest

from agent.checks import _measured, burn, gemm, training, workload
from agent.checks._api import Case
from agent.checks._clocks_under_load import judge_clocks_under_load
from agent.checks._gpu_sharing import Sign, Users
from agent.model import Attempt, Block, Clause, Contract, Finding, Measurement, Promise
from agent.text import msg

SLOT, OTHER = "0000:1b:00.0", "0000:43:00.0"
SLOTS = (SLOT, OTHER)
CLAUSE = Clause("gemm.bf16", "gemm", "bf16", Promise(">=", 650.0, "TFLOPS", ">= 650 TFLOPS"), 1, 1)
PROCESS = Sign(msg("process 4711 (train) holds 4096 MiB"), ("evidence/0001-nvml",))


def judged(
    monkeypatch: pytest.MonkeyPatch, users: dict[str, Users], value: float = 500.0, busy: Optional[float] = None
) -> Finding:
    cards = [SimpleNamespace(slot=s, answers=True) for s in (SLOT, OTHER)]
    monkeypatch.setattr(_measured, "all_cards", lambda case: cards)
    monkeypatch.setattr(_measured, "on_card", lambda card, case: users.get(card.slot, Users()))
    monkeypatch.setattr(_measured, "unowned", lambda card: ())
    monkeypatch.setattr(_measured, "_cap", lambda found, case: ())
    monkeypatch.setattr(gemm, "models", lambda case: {})
    seen: dict[str, Any] = {} if busy is None else {"foreign": {"gpu_busy_percent": busy}}
    one = Attempt(tuple(Block(value, (value,), (), seen) for _ in range(6)), "standard", "2026-11-30T00:00:00Z")
    measured = Measurement(f"gemm.bf16@{SLOT}", "TFLOPS", "median of block medians", (one, one), SLOT)
    case = Case(Contract((CLAUSE,), b"", ""), {"gpus": None}, {measured.key: measured})
    (found,) = gemm.judge((CLAUSE,), case)
    return found


def test_own_work_on_the_card_leaves_it_open(monkeypatch: pytest.MonkeyPatch) -> None:
    found = judged(monkeypatch, {SLOT: Users((), (PROCESS,))})
    assert (found.outcome, found.reason_code, found.again) == ("inconclusive", "disturbed", None)
    assert "disturbed by own work: process 4711 (train)" in str(found.reason)
    assert found.measured == 500.0


def test_own_work_does_not_spoil_a_promise_that_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged(monkeypatch, {SLOT: Users((), (PROCESS,))}, value=700.0).outcome == "pass"


def test_own_work_on_another_card_excuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged(monkeypatch, {OTHER: Users((), (PROCESS,))}).outcome == "fail"


def test_work_of_others_stays_in_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = judged(monkeypatch, {SLOT: Users((PROCESS,), ())})
    assert found.outcome == "fail"
    assert any("meanwhile on the card, not ours: process 4711 (train)" in str(note) for note in found.notes)


def test_a_card_that_did_not_become_idle_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = judged(monkeypatch, {}, busy=97.0)
    assert found.outcome == "fail"
    assert any("the GPU was 97 % busy when our load began" in str(note) for note in found.notes)


# ---------------------------------------------------------------- every load on the cards

H100 = {"gpus": 8, "operations_per_token": 6e9, "throttle": {}, "sm_mhz": 1200.0, "most_mhz": 1980.0}
# key, clause name, promise, unit, statistic, a value that breaks it
LOADS = {
    f"burn.temperature@{SLOT}": (Promise("<=", 85.0, "C", "<= 85 C"), "C", "median of repetitions", 92.0),
    f"burn.throttled@{SLOT}": (Promise("<=", 1.0, "%", "<= 1 %"), "%", "share of time", 30.0),
    f"burn.power@{SLOT}": (Promise(">=", 90.0, "%", ">= 90 %"), "%", "median of block medians", 60.0),
    f"burn.sag@{SLOT}": (Promise("<=", 5.0, "%", "<= 5 %"), "%", "median of repetitions", 20.0),
    "gemm.spread": (Promise("<=", 5.0, "%", "<= 5 %"), "%", "median of block medians", 20.0),
    "training.tokens_per_second": (Promise(">=", 3e5, "/s", ">= 300000"), "/s", "median of block medians", 1e5),
    "workload.within": (Promise("<=", 30.0, "d", "<= 30 d"), "/s", "median of block medians", 1e5),
}


def load(monkeypatch: pytest.MonkeyPatch, key: str, users: dict[str, Users]) -> Finding:
    """A load that fell short twice, while somebody was on a card."""
    for module in (_measured, burn, gemm, training, workload):
        if hasattr(module, "models"):
            monkeypatch.setattr(module, "models", lambda case: {})
    monkeypatch.setattr(_measured, "all_cards", lambda case: [SimpleNamespace(slot=s, answers=True) for s in SLOTS])
    monkeypatch.setattr(_measured, "on_card", lambda card, case: users.get(card.slot, Users()))
    monkeypatch.setattr(_measured, "unowned", lambda card: ())
    monkeypatch.setattr(_measured, "_cap", lambda found, case: ())
    promise, unit, statistic, value = LOADS[key]
    name = key.partition("@")[0]
    family, _, short = name.partition(".")
    settings = {"params": 7e9, "tokens": 3e11} if family == "workload" else {}
    asked = Clause(name, family, short, promise, 1, 1, settings=settings)
    blocks = tuple(Block(value, (value,), (), dict(H100)) for _ in range(12))
    attempt = Attempt(blocks, "standard", "2026-11-30T00:00:00Z", correct=True)
    measured_as = "training.tokens_per_second" if family == "workload" else key
    subject = key.partition("@")[2] or None
    taken = Measurement(measured_as, unit, statistic, (attempt, attempt), subject)  # type: ignore[arg-type]
    case = Case(
        Contract((asked,), b"", ""), {"gpus": SimpleNamespace(gpus=(), of=lambda slot: None)}, {measured_as: taken}
    )
    module = {"burn": burn, "gemm": gemm, "training": training, "workload": workload}[family]
    found: list[Finding] = list(module.judge((asked,), case))
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("key", LOADS)
def test_own_work_beside_any_load_leaves_it_open(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    assert load(monkeypatch, key, {}).outcome == "fail", "alone it is short"
    found = load(monkeypatch, key, {SLOT: Users((), (PROCESS,))})
    assert (found.outcome, found.reason_code, found.again) == ("inconclusive", "disturbed", None)
    assert "disturbed by own work: process 4711 (train)" in str(found.reason)
    assert found.measured is not None


@pytest.mark.parametrize("key", LOADS)
def test_work_of_others_beside_any_load_stays_in(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    found = load(monkeypatch, key, {SLOT: Users((PROCESS,), ())})
    assert found.outcome == "fail"
    assert any("not ours: process 4711 (train)" in str(note) for note in found.notes)


@pytest.mark.parametrize("key", LOADS)
def test_own_work_on_another_card_excuses_only_what_all_cards_do(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    found = load(monkeypatch, key, {OTHER: Users((), (PROCESS,))})
    assert found.outcome == ("fail" if "@" in key else "inconclusive")


def test_own_work_beside_the_light_load_of_the_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_measured, "all_cards", lambda case: [SimpleNamespace(slot=SLOT, answers=True)])
    monkeypatch.setattr(_measured, "unowned", lambda card: ())
    block = Block(60.0, (60.0,), (), dict(H100))
    attempt = Attempt((block,), "standard", "2026-11-30T00:00:00Z")
    key = f"gpu.clocks@{SLOT}"
    taken = Measurement(key, "%", "median of repetitions", (attempt, attempt), SLOT)
    asked = Clause("gpu.clocks", "gpu", "clocks", Promise("==", "unlocked", "", "unlocked"), 1, 1)
    case = Case(Contract((asked,), b"", ""), {"gpus": None}, {key: taken})
    for users, outcome in ((Users(), "fail"), (Users((PROCESS,), ()), "fail"), (Users((), (PROCESS,)), "inconclusive")):
        monkeypatch.setattr(_measured, "on_card", lambda card, case, users=users: users)
        found = judge_clocks_under_load(asked, case, SLOT, ())
        assert found is not None
        assert found.outcome == outcome


@pytest.mark.parametrize("module", [burn, gemm, training, workload])
def test_whoever_judges_a_load_reads_who_is_there(module: ModuleType) -> None:
    assert {"gpus", "processes"} <= set(module.FACTS)
