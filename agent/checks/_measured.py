"""What the checks of measured GPU rates share: which model a card is, limits from the catalogue, one finding a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from agent.bench.gemm import WRONG
from agent.catalogue import Model
from agent.checks._api import Case
from agent.checks._gpu_cards import all_cards
from agent.checks._judge import limit_of, rate
from agent.model import Clause, Finding, Limit, Measurement, Origin
from agent.text import msg

LimitOf = Callable[[str], Limit]
REPEATS = 3  # attempts until a wrong result is held to stay


def models(case: Case) -> Mapping[str, tuple[Model, ...]]:
    """By slot, the products that each card can be by all sources together; empty where that is not known."""
    if "gpus" not in case.facts:
        return {}
    return {card.slot: card.identity.models for card in all_cards(case)}


def catalogue_limit(clause: Clause, known: tuple[Model, ...], key: str, count: int = 1, by: str = "") -> Limit:
    """The contract's limit; for ``auto`` the lowest published floor of what the card can be, tolerance applied.

    Without a floor it stays ``auto``, which :func:`agent.checks._judge.rate` holds against nothing.
    """
    if clause.promise.op != "auto":
        return limit_of(clause)
    floors = [f for f in (m.floor(key, count, by) for m in known) if f is not None]
    if not floors or len(floors) < len(known):
        return limit_of(clause)
    floor = min(floors, key=lambda f: f.value)
    unit = "TFLOPS" if key.startswith("gemm") else "GB/s"
    sources = ", ".join(floor.cite.sources)
    value = floor.value * (1 - clause.tolerance)
    return Limit(">=", value, unit, clause.tolerance, Origin("catalogue", sources))


def each_gpu(clause: Clause, case: Case, limit: LimitOf) -> Iterator[Finding]:
    """A finding for each subject that was measured or could not be; one for the clause where there is no GPU."""
    subjects = [k.partition("@")[2] for k in case.measured if k.startswith(f"{clause.key}@")]
    if not subjects:
        yield rate(clause, case)
    for subject in subjects:
        yield wrong_result(rate(clause, case, subject=subject, limit=limit(subject)), case)


def wrong_result(found: Finding, case: Case) -> Finding:
    """Wrong arithmetic never passes and never convicts by itself: it is looked at again and named."""
    taken = case.measured.get(found.measurements[0]) if found.measurements else None
    if not isinstance(taken, Measurement):
        return found
    wrong = sum(a.void is not None and a.void.code == WRONG for a in taken.attempts)
    if wrong == 0:
        return found
    made = len(taken.attempts)
    reason = msg("wrong results in {wrong} of {made} attempts: hardware or software", wrong=wrong, made=made)
    again = "repeat" if wrong == 1 and made < REPEATS else None
    return replace(found, outcome="inconclusive", reason_code=WRONG, reason=reason, again=again)
