"""The ``gemm`` clauses: matrix multiplication on each GPU; ``spread`` is (median - slowest) / median."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Optional

from agent.bench.gemm import WRONG, GemmStep
from agent.bench.step import Step
from agent.checks._api import Case
from agent.checks._judge import rate
from agent.grammar import Section, flops, percent
from agent.model import Again, Clause, Finding, Measurement
from agent.text import msg

DTYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")
GRAMMAR = Section(
    clauses={
        **{precision: flops() for precision in DTYPES},
        "spread": percent(),
    },
)
FACTS = ("pythons",)
REPEATS = 3  # attempts until a wrong product is held to be the card's or not


def steps(clauses: Sequence[Clause], case: Case) -> Iterator[Step]:
    """One for each promised type; the spread is taken from the first of them, from bf16 where none is promised."""
    if "pythons" not in case.facts:
        return
    interpreter = case.facts["pythons"].chosen
    promised = [c.name for c in clauses if c.name != "spread"]
    wanted = any(c.name == "spread" for c in clauses)
    source = promised[0] if promised else "bf16"
    for dtype in dict.fromkeys([*promised, *([source] if wanted else [])]):
        spread = wanted and dtype == source
        yield GemmStep(dtype, interpreter, spread=spread, judged=dtype in promised).step()


def judge(clauses: Sequence[Clause], case: Case) -> Iterator[Finding]:
    """Each GPU by itself; without any, the clause as a whole with the reason."""
    for clause in clauses:
        subjects = [k.partition("@")[2] for k in case.measured if k.startswith(f"{clause.key}@")]
        if not subjects:
            yield rate(clause, case)
        for subject in subjects:
            yield _one(clause, case, subject)


def _one(clause: Clause, case: Case, subject: str) -> Finding:
    found = rate(clause, case, subject=subject)
    taken = case.measured[f"{clause.key}@{subject}"]
    wrong = _wrong(taken) if isinstance(taken, Measurement) else 0
    if not isinstance(taken, Measurement) or wrong == 0:
        return found
    made = len(taken.attempts)
    others = [m for k, m in case.measured.items() if k.startswith(f"{clause.key}@") and m is not taken]
    right = sum(isinstance(m, Measurement) and _wrong(m) == 0 for m in others)
    if wrong > 1 and right:
        reason = msg(
            "wrong products in {wrong} of {made} attempts; {right} other GPUs computed right with the same software",
            wrong=wrong,
            made=made,
            right=right,
        )
        return replace(found, outcome="fail", reason_code=WRONG, reason=reason, again=None)
    reason = msg(
        "wrong products in {wrong} of {made} attempts; no other GPU shows whether the card or the software is wrong",
        wrong=wrong,
        made=made,
    )
    if right:
        reason = msg("wrong products in {wrong} of {made} attempts", wrong=wrong, made=made)
    again: Optional[Again] = "repeat" if wrong == 1 and made < REPEATS else None
    return replace(found, outcome="inconclusive", reason_code=WRONG, reason=reason, again=again)


def _wrong(taken: Measurement) -> int:
    return sum(a.void is not None and a.void.code == WRONG for a in taken.attempts)
