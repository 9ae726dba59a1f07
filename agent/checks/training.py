"""The ``training`` clauses: a small training run, tokens per second over all GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Optional

from agent.bench.step import Step
from agent.bench.training import DEFAULT, NOT_LEARNING, TrainingStep
from agent.checks._api import Case
from agent.checks._judge import rate
from agent.checks._measured import models, whose_work
from agent.grammar import Section, label, per_second
from agent.model import Clause, Finding

GRAMMAR = Section(
    clauses={"tokens_per_second": per_second()},
    settings={"model": label()},
    advisory=frozenset({"tokens_per_second"}),
)
FACTS = ("gpus", "processes", "pythons")


def steps(clauses: Sequence[Clause], case: Case) -> Iterator[Step]:
    """The contract's model on all GPUs."""
    if "pythons" in case.facts and clauses:
        yield step(case, str(clauses[0].settings.get("model", DEFAULT)))


def step(case: Case, model: str) -> Step:
    """One training of that model on this machine."""
    return TrainingStep(case.facts["pythons"].chosen, model.strip().lower(), peak=peak(case)).step()


def peak(case: Case) -> Optional[float]:
    """Dense bf16 TFLOPS of the strongest that the weakest-known card can be; None where a card is not known."""
    each = [[m.peak("bf16") for m in known] for known in models(case).values()]
    if not each or not all(each):
        return None
    known = [[p for p in card if p is not None] for card in each]
    return min(max(card) for card in known) if all(known) else None


def judge(clauses: Sequence[Clause], case: Case) -> Iterator[Finding]:
    """One number for the whole node."""
    for clause in clauses:
        found = whose_work(rate(clause, case), case)
        # A void attempt asks for nothing by itself: a loss that does not fall is looked at once more.
        once_more = found.reason_code == NOT_LEARNING and _once(clause, case)
        yield replace(found, again="repeat") if once_more else found


def _once(clause: Clause, case: Case) -> bool:
    return len(getattr(case.measured.get(clause.key), "attempts", ())) == 1
