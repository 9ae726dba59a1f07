"""What the checks of measured GPU rates share: which model a card is, limits from the catalogue, one finding a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Optional

from agent.bench.burn import dtype_for
from agent.bench.gemm import WRONG
from agent.catalogue import Model
from agent.checks._api import Case
from agent.checks._gpu_cards import all_cards
from agent.checks._gpu_sharing import on_card, unowned
from agent.checks._judge import known, limit_of, rate
from agent.model import Again, Attempt, Clause, Finding, Limit, Measurement, Origin
from agent.text import Text, msg

LimitOf = Callable[[str], Limit]
CAPPED = msg("likely cause: power is capped at {enforced} W, this card's default is {default} W")
HELD = msg("clocks held down by {causes}")
MEANWHILE = msg("clocks held down meanwhile by {causes}")
CAUSES = frozenset(text.template for text in (CAPPED, HELD, MEANWHILE))  # of a shortfall, wherever they are said
# nvmlClocksEventReasons in words.
HELD_BY: Mapping[str, Text] = {
    "app_clocks": msg("clocks that somebody set"),
    "sw_power_cap": msg("the power limit"),
    "hw_slowdown": msg("hardware slowdown"),
    "sync_boost": msg("the slowest of a group of cards"),
    "sw_thermal": msg("temperature, by the driver"),
    "hw_thermal": msg("temperature, by the hardware"),
    "power_brake": msg("power brake: the server's power supply asked for it"),
    "display_clocks": msg("a display"),
}
REPEATS = 3  # attempts until a wrong result is held to stay


def models(case: Case) -> Mapping[str, tuple[Model, ...]]:
    """By slot, the products that each card can be by all sources together; empty where that is not known."""
    if "gpus" not in case.facts:
        return {}
    return {card.slot: card.identity.models for card in all_cards(case)}


def tools(case: Case) -> Mapping[str, str]:
    """The trade's own measuring tools on this machine, by name; empty where nobody looked."""
    return case.facts["trade_tools"].found if "trade_tools" in case.facts else {}


def load_dtype(case: Case) -> str:
    """The type of number for a load on all GPUs at once: what the weakest of them has units for."""
    known = [m.compute_capability for each in models(case).values() for m in each]
    return dtype_for(min(known, key=lambda c: tuple(int(n) for n in c.split(".")), default=None))


def catalogue_limit(clause: Clause, cards: tuple[Model, ...], key: str, count: int = 1, by: str = "") -> Limit:
    """The contract's limit; for ``auto`` the lowest published floor of what the card can be, tolerance applied.

    Without a floor it stays ``auto``, which :func:`agent.checks._judge.rate` holds against nothing.
    """
    if clause.promise.op != "auto":
        return limit_of(clause)
    floors = [f for f in (m.floor(key, count, by) for m in cards) if f is not None]
    if not floors or len(floors) < len(cards):
        return limit_of(clause)
    floor = min(floors, key=lambda f: f.value)
    unit = "TFLOPS" if key.startswith("gemm") else "GB/s"
    sources = ", ".join(floor.cite.sources)
    value = floor.value * (1 - clause.tolerance)
    return Limit(">=", value, unit, clause.tolerance, Origin("catalogue", sources))


def each_gpu(clause: Clause, case: Case, limit: LimitOf) -> Iterator[Finding]:
    """A finding for each subject that was measured or could not be; one for the clause where there is no GPU."""
    found = subjects(clause, case)
    if not found:
        yield rate(clause, case)
    for subject in found:
        yield likely_cause(wrong_result(rate(clause, case, subject=subject, limit=limit(subject)), case), case)


def subjects(clause: Clause, case: Case) -> list[str]:
    """The GPUs that were measured for this clause, or could not be."""
    return [k.partition("@")[2] for k in case.measured if k.startswith(f"{clause.key}@")]


def likely_cause(found: Finding, case: Case) -> Finding:
    """A shortfall names what held the card down meanwhile: a lowered power limit, throttling and its causes.

    First of all whose work was there beside ours.
    """
    found = whose_work(found, case)
    if found.outcome != "fail":
        return found
    causes = (*_cap(found, case), *_held(found, case))
    return replace(found, notes=(*found.notes, *causes))


def whose_work(found: Finding, case: Case) -> Finding:
    """Beside the renter's own work a shortfall convicts nobody; others' work stays in it and is named (rule 10)."""
    if found.outcome != "fail" or found.reason_code not in ("below-limit", "above-limit") or "gpus" not in case.facts:
        return found
    slots = set((found.subject or "").split(">")) - {""}
    cards = [c for c in all_cards(case) if c.answers and (not slots or c.slot in slots)]
    users = [on_card(c, case) for c in cards]
    own = tuple(s.said for u in users for s in u.own)
    if own:
        reason = msg("disturbed by own work: {who}; stop it and run again", who=own)
        return replace(found, outcome="inconclusive", reason_code="disturbed", reason=reason, again=None)
    others = tuple(s.said for u in users for s in u.foreign) + tuple(s.said for c in cards for s in unowned(c))
    notes: tuple[Text, ...] = (msg("meanwhile on the card, not ours: {who}", who=others),) if others else ()
    busy = _busy(found, case)
    if busy is not None:
        notes += (msg("the GPU was {percent} % busy when our load began", percent=f"{busy:.0f}"),)
    return replace(found, notes=(*found.notes, *notes))


def _busy(found: Finding, case: Case) -> Optional[float]:
    taken = (case.measured.get(key) for key in found.measurements)
    blocks = [b for m in taken if isinstance(m, Measurement) for a in m.attempts for b in a.blocks]
    seen = [b.conditions.get("foreign", {}).get("gpu_busy_percent") for b in blocks]
    return max((s for s in seen if s is not None), default=None)


def _cap(found: Finding, case: Case) -> tuple[Text, ...]:
    facts = case.facts.get("gpus")
    gpu = facts.of(found.subject) if facts is not None and found.subject is not None else None
    enforced, default = (known(gpu.any(f"power_{n}_w")) if gpu is not None else None for n in ("enforced", "default"))
    if enforced is None or default is None or enforced >= default - 1:
        return ()
    return (msg(CAPPED.template, enforced=f"{enforced:g}", default=f"{default:g}"),)


def _held(found: Finding, case: Case) -> tuple[Text, ...]:
    taken = case.measured.get(found.measurements[0]) if found.measurements else None
    if not isinstance(taken, Measurement):
        return ()
    causes = throttle_causes(taken.attempts[-1])
    return (msg(MEANWHILE.template, causes=causes),) if causes else ()


def throttle_causes(attempt: Attempt) -> tuple[Text, ...]:
    """Mean shares of the time over the blocks, the largest first; idle is no cause. Empty where nothing is known."""
    rows = [b.conditions["throttle"] for b in attempt.blocks if b.conditions.get("throttle")]
    names = {name for row in rows for name in row if name != "idle"}
    means = {name: sum(row.get(name, 0.0) for row in rows) / len(attempt.blocks) for name in names}
    ordered = sorted(means.items(), key=lambda item: -item[1])
    return tuple(
        msg(
            "{cause} {share} % of the time ({bit})", cause=HELD_BY.get(name, name), share=f"{100 * share:.3g}", bit=name
        )
        for name, share in ordered
    )


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
    again: Optional[Again] = "repeat" if wrong == 1 and made < REPEATS else None
    return replace(found, outcome="inconclusive", reason_code=WRONG, reason=reason, again=again)
