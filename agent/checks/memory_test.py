"""The ``memory_test`` clauses: share of the promised device memory that is written and verified."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

from agent import catalogue
from agent.bench.device_memory import FAMILY, MIB, MemoryTestStep, Slots
from agent.bench.step import Step
from agent.checks._api import Case
from agent.checks._device_memory import slots
from agent.checks._gpu_cards import all_cards
from agent.checks._gpu_sharing import on_card, unowned
from agent.checks._judge import REASONS, finding, rate, unreadable
from agent.facts.gpu_share import FIRMWARE_MIB
from agent.grammar import Section, percent
from agent.model import Again, Attempt, Clause, Finding, Limit, Measurement, Outcome
from agent.quantity import convert
from agent.reading import Known, Missing
from agent.text import Text, msg

GRAMMAR = Section(clauses={"memory_test": percent("at_least")}, bare="memory_test")
FACTS = ("gpus", "gpu_share", "processes")
GRAIN = 2 * MIB  # the driver allocates in pieces of this
REPEATS = 3  # attempts until an error that came once is held to stay away
WRONG = "memory-wrong"
UNREAL = "capacity-unreal"
HELD = "memory-held"
# Beyond this share of wrong bytes the memory is not faulty, it is not there.
NOT_THERE = 0.01
CONTEXT = 1 << 30  # bytes that a context of our own may take, where nobody tells what was in use before it


# --- what is promised ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Promised:
    """Bytes of one GPU, and what they were taken from."""

    size: float
    origin: Text


def steps(clauses: Sequence[Clause], case: Case) -> Iterator[Step]:
    """One for all GPUs."""
    if "gpus" not in case.facts:
        return
    for clause in clauses:
        size = promised(case)
        where: Slots = slots(case)
        if isinstance(size, Missing):
            yield MemoryTestStep(size, 0.0, 0).step()
        else:
            wanted = math.ceil(size.size * _share(clause) / 100 / GRAIN) * GRAIN
            yield MemoryTestStep(where, size.size, wanted).step()


def _share(clause: Clause) -> float:
    value = clause.promise.value
    return float(value[0] if isinstance(value, tuple) else value)


def promised(case: Case) -> Union[Promised, Missing]:
    """``gpu.memory``; else the model's name; else what the smallest card itself claims."""
    by_name = {c.key: c for c in case.contract.clauses}
    memory, model = by_name.get("gpu.memory"), by_name.get("gpu.model")
    if memory is not None:
        value = memory.promise.value
        least = float(value[0] if isinstance(value, tuple) else value)
        return Promised(convert(least, memory.promise.unit, "B"), msg("gpu.memory"))
    known = catalogue.load().match(str(model.promise.value)) if model is not None else ()
    sizes = [gb for m in known for gb in m.marketed_gb]
    if sizes:
        return Promised(min(sizes) * 1e9, msg("gpu.model"))
    claimed = [r.value for g in case.facts["gpus"].gpus if isinstance(r := g.any("memory_total_mib"), Known)]
    if claimed:
        return Promised(min(claimed) * MIB, msg("no promise but what the card itself claims"))
    where = slots(case)
    if isinstance(where, Missing):
        return where
    detail = msg("neither gpu.memory nor gpu.model says how much memory is promised, and no card tells")
    return Missing("unsupported", detail, (), msg("a promise of gpu.memory"))


# --- judging ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trouble:
    """What is wrong with an attempt. ``theirs``: it breaks the promise; else it only shows nothing."""

    code: str
    reason: Text
    theirs: bool = True


def judge(clauses: Sequence[Clause], case: Case) -> Iterator[Finding]:
    """Each GPU by itself; without any, the clause as a whole with the reason."""
    for clause in clauses:
        subjects = [k.partition("@")[2] for k in case.measured if k.startswith(f"{FAMILY}@")]
        if not subjects:
            yield rate(clause, case)
        for subject in subjects:
            yield _one(clause, case, subject)


def _one(clause: Clause, case: Case, subject: str) -> Finding:
    taken = case.measured[f"{FAMILY}@{subject}"]
    if isinstance(taken, Missing):
        return unreadable(clause, taken, subject)
    troubles = [_trouble(clause, case, subject, a) for a in taken.attempts]
    outcome, code, reason, again = _decide(taken, troubles)
    last = taken.attempts[-1]
    shares = [b.value for b in last.blocks]
    origin = _origin(case)
    return finding(
        clause,
        outcome,
        code,
        reason,
        subject=subject,
        measured=min(shares) if shares else None,
        unit="%",
        limit=Limit(">=", _share(clause), "%"),
        measurements=(taken.key,),
        depth=last.depth,
        reproduce=last.reproduce,
        evidence=tuple(dict.fromkeys(e for a in taken.attempts for e in a.evidence)),
        notes=(*origin, *dict.fromkeys(n for a in taken.attempts for n in a.notes)),
        again=again,
    )


def _origin(case: Case) -> tuple[Text, ...]:
    found = promised(case) if "gpus" in case.facts else None
    if not isinstance(found, Promised):
        return ()
    return (msg("promised: {gb} GB ({origin})", gb=f"{found.size / 1e9:.4g}", origin=found.origin),)


def _decide(taken: Measurement, troubles: Sequence[Optional[Trouble]]) -> tuple[Outcome, str, Text, Optional[Again]]:
    """A fail must show twice; once and not again is no pass either."""
    theirs = [t for t in troubles if t is not None and t.theirs]
    made = len(troubles)
    if len(theirs) > 1:
        return "fail", theirs[-1].code, theirs[-1].reason, None
    if theirs:
        again: Optional[Again] = "repeat" if made < REPEATS else None
        code = "fail-not-repeated" if made == 1 else "unstable"
        return "inconclusive", code, msg("once in {n} attempts: {what}", n=made, what=theirs[0].reason), again
    other = next((t for t in troubles if t is not None), None)
    if other is not None:
        return "inconclusive", other.code, other.reason, None
    if all(a.depth == "quick" for a in taken.attempts):
        return "inconclusive", "shortened", REASONS["shortened"], None
    return "pass", "kept", REASONS["kept"], None


def _trouble(clause: Clause, case: Case, subject: str, attempt: Attempt) -> Optional[Trouble]:
    if attempt.void is not None:
        return Trouble(attempt.void.code, attempt.void.text)
    worst = max((b.conditions for b in attempt.blocks), key=lambda c: int(c["wrong_bytes"]))
    if worst["wrong_bytes"] > 0:
        return _wrong(worst, [e for b in attempt.blocks for e in b.conditions["errors"]])
    if worst["allocated_bytes"] < worst["asked_bytes"]:
        return _short(case, subject, worst)
    if min(b.value for b in attempt.blocks) < _share(clause):
        # A recording judged with another contract, which asks for more than was tested.
        said = msg("{share} % of the promised memory was tested", share=f"{attempt.blocks[0].value:.4g}")
        return Trouble("shortened", said, theirs=False)
    return None


def _wrong(found: Mapping[str, Any], errors: Sequence[Mapping[str, Any]]) -> Trouble:
    tested, wrong = found["allocated_bytes"], found["wrong_bytes"]
    if wrong > NOT_THERE * tested:
        reason = msg(
            "only {right} of {tested} GB keep what is written into them: the rest is not there",
            right=f"{(tested - wrong) / 1e9:.4g}",
            tested=f"{tested / 1e9:.4g}",
        )
        return Trouble(UNREAL, reason)
    first = errors[0]
    reason = msg(
        "{n} bytes came back wrong; first at byte {offset} (address {address}): expected {expected}, found {found}, "
        "read again {again}",
        n=wrong,
        offset=first["offset"],
        address=first["address"],
        expected=first["expected"],
        found=first["found"],
        again=first["again"],
    )
    return Trouble(WRONG, reason)


def _short(case: Case, subject: str, found: Mapping[str, Any]) -> Trouble:
    """Less could be allocated than is promised: not there, held by somebody, or only claimed."""
    asked, allocated, total, free = (found[f"{n}_bytes"] for n in ("asked", "allocated", "total", "free"))
    numbers = {"mib": allocated // MIB, "asked": asked // MIB}
    if total < asked:
        reason = msg("the card has {total} MiB, {asked} MiB were to be tested", total=total // MIB, asked=asked // MIB)
        return Trouble("below-limit", reason)
    before = found["used_before_bytes"]
    held = before if before is not None else max(0, total - free - CONTEXT)
    if held > FIRMWARE_MIB * MIB and allocated + held >= asked:
        return _held(case, subject, held, numbers)
    if free >= asked:
        reason = msg(
            "the driver calls {free} MiB free and gives {mib}; {asked} MiB were to be tested",
            free=free // MIB,
            **numbers,
        )
        return Trouble(UNREAL, reason)
    return Trouble("below-limit", msg("only {mib} of {asked} MiB could be allocated", **numbers))


def _held(case: Case, subject: str, held: int, numbers: dict[str, int]) -> Trouble:
    """Whose the memory is decides whose the shortage is (design rule 10)."""
    cards = all_cards(case) if "gpus" in case.facts else ()
    card = next((c for c in cards if c.slot == subject), None)
    users = on_card(card, case) if card is not None else None
    if users is not None and users.own:
        who = tuple(s.said for s in users.own)
        reason = msg("only {mib} of {asked} MiB are free; perhaps your own: {who}", who=who, **numbers)
        return Trouble("disturbed", reason, theirs=False)
    signs = (*users.foreign, *unowned(card)) if users is not None and card is not None else ()
    if signs:
        who = tuple(s.said for s in signs)
        return Trouble(HELD, msg("only {mib} of {asked} MiB are free: {who}", who=who, **numbers))
    reason = msg(
        "only {mib} of {asked} MiB are free: {held} MiB were taken when the test began, nobody knows by whom",
        held=held // MIB,
        **numbers,
    )
    return Trouble("disturbed", reason, theirs=False)
