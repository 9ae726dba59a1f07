"""The ``gemm`` clauses, judged on measurements as the steps give them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Optional, Union

import pytest

from agent import catalogue
from agent.bench.step import Step
from agent.checks import gemm
from agent.checks._api import Case
from agent.facts.pythons import Pythons
from agent.model import Attempt, Block, Clause, Contract, Finding, Measurement, Promise, Void
from agent.reading import Missing
from agent.text import msg
from tests.bench.interpreters import GPUS, interpreter

A, B, C, D = (f"0000:{bus}:00.0" for bus in ("1b", "2b", "3b", "4b"))
WRONG = Void("wrong-result", msg("wrong"))


def clause(name: str, op: Any = ">=", value: float = 650.0, unit: str = "TFLOPS", **more: Any) -> Clause:
    return Clause(f"gemm.{name}", "gemm", name, Promise(op, value, unit, f"{op} {value} {unit}"), 1, 1, **more)


BF16 = clause("bf16")


def attempt(value: float, void: Optional[Void] = None) -> Attempt:
    blocks = tuple(Block(value + i, (value + i,)) for i in range(6))
    return Attempt(blocks, "standard", "2026-11-30T00:00:00Z", void=void, correct=void is None)


def measured(subject: str, *attempts: Attempt) -> Measurement:
    return Measurement(f"gemm.bf16@{subject}", "TFLOPS", "median of block medians", attempts, subject)


def judge(*entries: Union[Measurement, tuple[str, Missing]], clauses: tuple[Clause, ...] = (BF16,)) -> list[Finding]:
    found = {e.key: e for e in entries if isinstance(e, Measurement)}
    lost = dict(e for e in entries if not isinstance(e, Measurement))
    return list(gemm.judge(clauses, Case(Contract(clauses, b"", ""), {}, {**found, **lost})))


def test_each_gpu_is_judged_by_itself() -> None:
    kept, broken = judge(measured(A, attempt(700)), measured(B, attempt(500), attempt(500)))
    assert (kept.id, kept.outcome) == (f"gemm.bf16@{A}", "pass")
    assert (broken.id, broken.outcome, broken.measured) == (f"gemm.bf16@{B}", "fail", pytest.approx(502.5))


def test_a_first_fail_is_looked_at_again() -> None:
    (found,) = judge(measured(A, attempt(500)))
    assert (found.outcome, found.again) == ("inconclusive", "repeat")


def test_nothing_measured_gives_the_reason_once() -> None:
    why = Missing("not-there", msg("torch sees no GPU"), ("evidence/0001-x",))
    (found,) = judge(("gemm.bf16", why))
    assert (found.id, found.outcome, found.reason_code) == ("gemm.bf16", "inconclusive", "not-there")
    assert found.evidence


def test_one_gpu_that_was_not_measured_does_not_pass() -> None:
    found = judge(measured(A, attempt(700)), (f"gemm.bf16@{B}", Missing("failed", msg("gone"))))
    assert [f.outcome for f in found] == ["pass", "inconclusive"]


def test_wrong_products_are_looked_at_again_and_never_pass() -> None:
    (found,) = judge(measured(A, attempt(700, WRONG)))
    assert (found.outcome, found.reason_code, found.again) == ("inconclusive", "wrong-result", "repeat")
    (found,) = judge(measured(A, attempt(700, WRONG), attempt(700)))
    assert (found.outcome, found.again) == ("inconclusive", "repeat")
    (found,) = judge(measured(A, attempt(700, WRONG), attempt(700), attempt(700)))
    assert (found.outcome, found.again) == ("inconclusive", None)


def test_wrong_twice_is_the_card_only_where_another_card_is_right() -> None:
    wrong = measured(A, attempt(700, WRONG), attempt(700, WRONG))
    found = judge(wrong, measured(B, attempt(700)))
    assert [f.outcome for f in found] == ["fail", "pass"]
    assert "1 other GPUs computed right" in str(found[0].reason)
    (alone,) = judge(wrong)
    assert alone.outcome == "inconclusive"
    both = judge(wrong, measured(B, attempt(700, WRONG), attempt(700, WRONG)))
    assert [f.outcome for f in both] == ["inconclusive", "inconclusive"]


def test_above_physics_is_no_pass() -> None:
    (found,) = judge(measured(A, attempt(3000, Void("above-physical-limit", msg("too good")))))
    assert (found.outcome, found.reason_code) == ("inconclusive", "above-physical-limit")


def test_spread_is_a_percentage_at_most() -> None:
    limit = clause("spread", "<=", 10.0, "%")
    blocks = tuple(Block(v, (v,)) for v in (14.0, 14.5, 15.0, 14.0, 14.2, 14.1))
    taken = Attempt(blocks, "standard", "2026-11-30T00:00:00Z")
    slow = Measurement("gemm.spread", "%", "median of block medians", (taken, taken))
    (found,) = judge(slow, clauses=(limit,))
    assert (found.outcome, found.reason_code) == ("fail", "above-limit")


# ---------------------------------------------------------------- steps


def steps(*names: str, devices: Any = GPUS) -> list[Step]:
    clauses = tuple(clause(n) for n in names)
    facts = {"pythons": Pythons(interpreter(devices=devices))}
    return list(gemm.steps(clauses, Case(Contract(clauses, b"", ""), facts)))


def test_one_step_for_each_type_with_a_key_for_each_gpu() -> None:
    found = steps("bf16", "fp8", "spread")
    assert [s.name for s in found] == ["gemm.bf16", "gemm.fp8"]
    assert found[0].keys == (f"gemm.bf16@{A}", f"gemm.bf16@{B}", "gemm.spread")
    assert found[1].keys == (f"gemm.fp8@{A}", f"gemm.fp8@{B}")
    assert {s.load for s in found} == {"gpu"}


def test_the_spread_alone_is_taken_from_bf16() -> None:
    (found,) = steps("spread")
    assert (found.name, found.keys) == ("gemm.bf16", ("gemm.spread",))


def test_without_gpus_a_step_that_costs_nothing_keeps_the_reason() -> None:
    (found,) = steps("bf16", devices=())
    assert found.keys == ("gemm.bf16",)
    assert found.cost("standard").seconds == 0


def test_without_facts_there_are_no_steps() -> None:
    assert list(gemm.steps((BF16,), Case(Contract((BF16,), b"", "")))) == []


def test_all_promised_types_are_known_to_the_worker() -> None:
    assert set(gemm.GRAMMAR.clauses) == {*gemm.DTYPES, "spread"}


class TestBits:
    """The same operands on cards of one model."""

    @pytest.fixture(autouse=True)
    def _one_model(self, monkeypatch: pytest.MonkeyPatch) -> None:
        h100 = catalogue.load().get("h100-sxm5-80gb")
        assert h100 is not None
        monkeypatch.setattr(gemm, "models", lambda case: dict.fromkeys((A, B, C, D), (h100,)))

    @staticmethod
    def computed(subject: str, *products: str, value: float = 700.0) -> Measurement:
        conditions = [{"shape": [8, 8, 8], "bits": {"inputs": "aa", "product": p}} for p in products]
        attempts = (replace(attempt(value), blocks=(Block(value, (value,) * 6, (), c),) * 6) for c in conditions)
        return measured(subject, *attempts)

    def judged(self, *cards: Measurement) -> dict[Optional[str], Finding]:
        return {f.subject: f for f in judge(*cards)}

    def test_one_that_differs_again_from_two_others_is_broken(self) -> None:
        found = self.judged(self.computed(A, "11"), self.computed(B, "11"), self.computed(C, "22", "22"))
        assert [found[s].outcome for s in (A, B, C)] == ["pass", "pass", "fail"]
        assert found[C].reason_code == "other-bits"
        assert "other bits than on 2 other GPUs in 2 of 2 attempts" in str(found[C].reason)

    def test_once_is_looked_at_again(self) -> None:
        found = self.judged(self.computed(A, "11"), self.computed(B, "11"), self.computed(C, "22"))
        assert (found[C].outcome, found[C].again) == ("inconclusive", "repeat")

    def test_once_and_not_again_is_told(self) -> None:
        found = self.judged(self.computed(A, "11"), self.computed(B, "11"), self.computed(C, "22", "11"))
        assert found[C].outcome == "pass"
        assert any("other bits" in str(note) for note in found[C].notes)

    def test_two_cards_prove_nothing(self) -> None:
        found = self.judged(self.computed(A, "11", "11"), self.computed(B, "22", "22"))
        assert [f.outcome for f in found.values()] == ["pass", "pass"]

    def test_two_against_two_prove_nothing(self) -> None:
        cards = [self.computed(s, p, p) for s, p in ((A, "11"), (B, "11"), (C, "22"), (D, "22"))]
        assert {f.outcome for f in self.judged(*cards).values()} == {"pass"}

    def test_cards_that_are_not_known_are_not_compared(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(gemm, "models", lambda case: {})
        found = self.judged(self.computed(A, "11"), self.computed(B, "11"), self.computed(C, "22", "22"))
        assert {f.outcome for f in found.values()} == {"pass"}


@pytest.mark.parametrize(
    ("cuda", "outcome"), [("11.7", "inconclusive"), ("11.8", "fail"), ("12.4", "fail"), (None, "fail")]
)
def test_a_cublas_older_than_the_card_convicts_nobody(
    cuda: Optional[str], outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    h100 = catalogue.load().get("h100-sxm5-80gb")
    assert h100 is not None
    monkeypatch.setattr(gemm, "models", lambda case: {A: (h100,)})
    blocks = tuple(Block(500.0, (500.0,), (), {"cuda": cuda}) for _ in range(6))
    one = replace(attempt(500), blocks=blocks)
    (found,) = judge(measured(A, one, one))
    assert found.outcome == outcome
    if outcome == "inconclusive":
        assert found.reason_code == "old-software"
        assert "older than the 11.8" in str(found.reason)
        assert "CUDA 11.8" in str(found.grant)
