"""The ``gemm`` clauses: matrix multiplication on each GPU; ``spread`` is (median - slowest) / median."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Optional

from agent.bench.gemm import WRONG, GemmStep
from agent.bench.step import Step
from agent.catalogue import DTYPES as CATALOGUE_DTYPES
from agent.catalogue import Dtype, Model
from agent.checks._api import Case
from agent.checks._judge import rate, version_key
from agent.checks._measured import catalogue_limit, likely_cause, models, whose_work
from agent.grammar import Section, flops, percent
from agent.model import Again, Attempt, Clause, Finding, Limit, Measurement
from agent.text import msg
from agent.tools.worker import Device

DTYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")
GRAMMAR = Section(
    clauses={
        **{precision: flops() for precision in DTYPES},
        "spread": percent(),
    },
)
FACTS = ("gpus", "processes", "pythons")
# The first CUDA whose cuBLAS has kernels for a generation (NVIDIA's release notes); older ones run those before it.
LEAST_CUDA: Mapping[str, str] = {
    "8.0": "11.0",
    "8.6": "11.1",
    "8.9": "11.8",
    "9.0": "11.8",
    "10.0": "12.8",
    "10.3": "12.9",
    "12.0": "12.8",
}
OTHER_BITS = "other-bits"
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
        bound = partial(_bound, models(case))
        yield GemmStep(dtype, interpreter, spread=spread, judged=dtype in promised, bound=bound).step()


def _bound(known: Mapping[str, tuple[Model, ...]], dtype: str, device: Device) -> Optional[float]:
    """TFLOPS that no card which can be in this slot exceeds; None where one of them has no known bound."""
    bounds = [m.physical_bound(_dtype(dtype)) for m in known.get(device.subject, ())]
    return max((b for b in bounds if b is not None), default=None) if None not in bounds else None


def _dtype(name: str) -> Dtype:
    return next(d for d in CATALOGUE_DTYPES if d == name)


def judge(clauses: Sequence[Clause], case: Case) -> Iterator[Finding]:
    """Each GPU by itself; without any, the clause as a whole with the reason."""
    known = models(case)
    for clause in clauses:
        subjects = [k.partition("@")[2] for k in case.measured if k.startswith(f"{clause.key}@")]
        if not subjects:
            yield whose_work(rate(clause, case), case)
        for subject in subjects:
            limit = catalogue_limit(clause, known.get(subject, ()), f"gemm.{clause.name}")
            yield _one(clause, case, subject, limit)


def _one(clause: Clause, case: Case, subject: str, limit: Limit) -> Finding:
    found = likely_cause(rate(clause, case, subject=subject, limit=limit), case)
    taken = case.measured[f"{clause.key}@{subject}"]
    found = _by_old_software(found, case)
    if isinstance(taken, Measurement):
        found = _other_bits(found, clause, case, taken)
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


def _by_old_software(found: Finding, case: Case) -> Finding:
    """A cuBLAS that came before a card does not know its kernels: a shortfall then says nothing of the card."""
    taken = case.measured.get(found.measurements[0]) if found.measurements else None
    if found.outcome != "fail" or found.reason_code != "below-limit" or not isinstance(taken, Measurement):
        return found
    cuda = taken.attempts[-1].blocks[0].conditions.get("cuda") if taken.attempts[-1].blocks else None
    known = models(case).get(found.subject or "", ())
    needed = [(LEAST_CUDA[c], m) for m in known if (c := m.compute_capability) in LEAST_CUDA]
    if not cuda or not needed:
        return found
    least, model = max(needed, key=lambda n: version_key(n[0]))
    if version_key(str(cuda)) >= version_key(least):
        return found
    reason = msg(
        "CUDA {cuda} of this torch is older than the {least} that a {model} needs for its full rate",
        cuda=str(cuda),
        least=least,
        model=model.title,
    )
    grant = msg(
        "a torch that is built for CUDA {least} or newer, or --python with an interpreter that has one", least=least
    )
    return replace(found, outcome="inconclusive", reason_code="old-software", reason=reason, grant=grant, again=None)


def _other_bits(found: Finding, clause: Clause, case: Case, taken: Measurement) -> Finding:
    """The same operands give the same bits on cards of one model: one that differs again from two others is broken.

    Once proves nothing, nor does a card that differs from a single other one.
    """
    kind = _kind(case, taken)
    if not kind:
        return found
    others = [
        m
        for k, m in case.measured.items()
        if isinstance(m, Measurement) and k.startswith(f"{clause.key}@") and m is not taken and _kind(case, m) == kind
    ]
    votes = Counter(b for m in others for b in {_bits(a) for a in m.attempts} if b is not None)
    if not votes:
        return found
    (agreed, count), *_ = votes.most_common()
    mine = [b for b in map(_bits, taken.attempts) if b is not None and b[:2] == agreed[:2]]
    different = sum(b != agreed for b in mine)
    alone = not any(votes[b] for b in mine if b != agreed)
    if different == 0 or count < 2 or not alone:
        return found
    said = msg(
        "the same operands gave other bits than on {n} other GPUs in {different} of {made} attempts",
        n=count,
        different=different,
        made=len(mine),
    )
    if different > 1:
        return replace(found, outcome="fail", reason_code=OTHER_BITS, reason=said, again=None)
    if len(mine) < 2 and found.outcome != "fail":
        return replace(found, outcome="inconclusive", reason_code=OTHER_BITS, reason=said, again="repeat")
    return replace(found, notes=(*found.notes, said))


def _kind(case: Case, taken: Measurement) -> frozenset[str]:
    """What a card can be: only cards of one kind must agree. Empty where that is not known."""
    return frozenset(m.title for m in models(case).get(taken.subject or "", ()))


def _bits(attempt: Attempt) -> Optional[tuple[str, str, str]]:
    """(shape, digest of the operands, digest of the product)"""
    found = attempt.blocks[0].conditions if attempt.blocks else {}
    bits = found.get("bits")
    return (str(found.get("shape")), str(bits["inputs"]), str(bits["product"])) if bits else None


def _wrong(taken: Measurement) -> int:
    return sum(a.void is not None and a.void.code == WRONG for a in taken.attempts)
