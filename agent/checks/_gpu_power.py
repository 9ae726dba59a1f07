"""Judging power limits and clocks. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from agent.catalogue import Model
from agent.checks._api import Case
from agent.checks._clocks_under_load import judge_clocks_under_load
from agent.checks._gpu_cards import Card, each, needs_load
from agent.checks._judge import fact, finding, unreadable
from agent.model import Clause, Finding, Limit, Origin
from agent.reading import Known, Missing
from agent.text import Text, msg

APPLICATION_CLOCKS = 0x2  # bit of the clocks event reasons: application or locked clocks hold the clock down
# What no idle card has a reason for. 0x8, the slowdown itself, may flash at a change of the performance state.
HELD = {
    0x20: msg("software thermal slowdown"),
    0x40: msg("hardware thermal slowdown"),
    0x80: msg("external power brake, mostly the power supply's"),
}
WATT = 1.0  # limits are set in mW and printed rounded


def judge_power(clause: Clause, card: Card) -> Finding:
    """``default``: nothing enforces less than the card boots with. Watts: at least so many are enforced."""
    enforced, default = card.read("power_enforced_w"), card.read("power_default_w")
    notes = _limits(card)
    if clause.promise.value != "default":
        return fact(clause, enforced, subject=card.slot, unit="W", notes=notes)
    if isinstance(enforced, Missing):
        return unreadable(clause, enforced, card.slot, notes=notes)
    if isinstance(default, Missing):
        return unreadable(clause, default, card.slot, notes=notes)
    evidence = tuple(dict.fromkeys((*enforced.evidence, *default.evidence)))
    kept = enforced.value >= default.value - WATT
    reason = msg(
        "{enforced} W are enforced, the card's own default is {default} W",
        enforced=f"{enforced.value:g}",
        default=f"{default.value:g}",
    )
    return finding(
        clause,
        "pass" if kept else "fail",
        "kept" if kept else "below-limit",
        msg("kept") if kept else reason,
        subject=card.slot,
        measured=enforced.value,
        unit="W",
        limit=Limit(">=", default.value, "W", origin=Origin("agent", "the card's default power limit")),
        evidence=evidence,
        notes=notes,
    )


def _limits(card: Card) -> tuple[Text, ...]:
    names = ("power_default_w", "power_min_w", "power_max_w")
    values = [card.read(n) for n in names]
    if not all(isinstance(v, Known) for v in values):
        return ()
    default, low, high = (f"{v.value:g}" for v in values if isinstance(v, Known))
    return (msg("default {default} W, adjustable from {low} to {high} W", default=default, low=low, high=high),)


def low_default(card: Card) -> Optional[tuple[Known[float], Model, Text]]:
    """The card's default limit where it is below the model's published one, and the likely reason."""
    default = card.read("power_default_w")
    model = card.model
    if isinstance(default, Missing) or model is None or default.value >= model.power_default_w.value - WATT:
        return None
    if round(default.value) in model.power_seen_w:
        return default, model, msg("seen on other boards of this model: a variant, or a vendor's cap in the VBIOS")
    return default, model, msg("a board variant, or a VBIOS that somebody changed")


def judge_clocks(clause: Clause, case: Case) -> Iterator[Finding]:
    """Every card that answers."""
    yield from each(clause, case, lambda asked, card: clocks(asked, card, case))


def clocks(clause: Clause, card: Card, case: Case) -> Finding:
    """Clocks set below their default are a fact; that nothing holds them down shows only under load."""
    set_to, default = card.read("app_clock_sm_mhz"), card.read("app_clock_sm_default_mhz")
    notes = _clocks(card)
    if isinstance(set_to, Known) and isinstance(default, Known) and set_to.value < default.value:
        reason = msg(
            "application clocks are set to {clock} MHz, the default is {default} MHz",
            clock=f"{set_to.value:g}",
            default=f"{default.value:g}",
        )
        return finding(
            clause,
            "fail",
            "below-limit",
            reason,
            subject=card.slot,
            measured=set_to.value,
            unit="MHz",
            limit=Limit(">=", default.value, "MHz", origin=Origin("agent", "the card's default application clock")),
            evidence=tuple(dict.fromkeys((*set_to.evidence, *default.evidence))),
            notes=notes,
        )
    throttle = card.read("throttle")
    if isinstance(throttle, Missing):
        return unreadable(clause, throttle, card.slot, notes=notes)
    held = tuple(text for bit, text in HELD.items() if throttle.value & bit)
    if held:
        reason = msg("held down at rest already: {why}", why=held)
        fields = {"subject": card.slot, "measured": hex(throttle.value), "evidence": throttle.evidence, "notes": notes}
        return finding(clause, "fail", "held-down", reason, **fields)
    if throttle.value & APPLICATION_CLOCKS:
        notes = (msg("the driver says that clocks are held by a setting right now"), *notes)
    under_load = judge_clocks_under_load(clause, case, card.slot, notes)
    if under_load is not None:
        return under_load
    reason = msg("whether something holds the clocks down shows only under load")
    return needs_load(clause, card, reason, evidence=throttle.evidence, notes=notes)


def _clocks(card: Card) -> tuple[Text, ...]:
    now, most = card.read("clock_sm_mhz"), card.read("clock_sm_max_mhz")
    if not isinstance(now, Known) or not isinstance(most, Known):
        return ()
    return (msg("at rest {now} MHz of at most {most} MHz", now=f"{now.value:g}", most=f"{most.value:g}"),)
