"""Beside the renter's own work a shortfall convicts nobody; others' work stays in and is named (design rule 10)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Optional

import pytest

from agent.checks import _measured, gemm
from agent.checks._api import Case
from agent.checks._gpu_sharing import Sign, Users
from agent.model import Attempt, Block, Clause, Contract, Finding, Measurement, Promise
from agent.text import msg

SLOT, OTHER = "0000:1b:00.0", "0000:43:00.0"
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
