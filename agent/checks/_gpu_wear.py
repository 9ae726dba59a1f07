"""What use has left on a card: error counts over its life, remapped rows, retired pages; and cards of mixed lots. Pure.

Sources of the rules: NVIDIA's GPU memory error management guide (row remapping since Ampere, page retirement before)
and its RMA policy. Used is not broken: a worn card breaks only ``condition: new``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from agent.checks._api import Case
from agent.checks._gpu_cards import Card, all_cards, each
from agent.checks._judge import finding, unreadable
from agent.model import Clause, Finding
from agent.reading import Known, Missing, Reading
from agent.text import Text, msg

COUNTS: Mapping[str, Text] = {
    "ecc_uncorrected_aggregate": msg("uncorrected memory errors over the card's life"),
    "retired_pages": msg("retired memory pages"),
}
FLAGS: Mapping[str, Text] = {
    "remapped_pending": msg("a memory row waits to be remapped"),
    "remapped_failure": msg("remapping a memory row has failed"),
    "retired_pending": msg("a memory page waits to be retired"),
}
REMAPPED: Mapping[str, Text] = {
    "remapped_uncorrectable": msg("memory rows remapped after uncorrectable errors"),
    "remapped_correctable": msg("memory rows remapped after correctable errors"),
}
# What a card must have kept a record of before it can be called new: errors, and rows or pages taken out of use.
RECORDS = (("ecc_uncorrected_aggregate",), ("remapped_failure", "retired_pages"))
ALIKE = {"vbios": msg("VBIOS"), "board_part": msg("board part number")}


@dataclass(frozen=True)
class Sign:
    """One sign of use: what, and how much of it."""

    said: Text
    evidence: tuple[str, ...]


def signs(card: Card) -> tuple[Sign, ...]:
    """All that this card's own records show: a count above zero, a flag that is set."""
    found = []
    for name, said in (*COUNTS.items(), *REMAPPED.items()):
        count = card.read(name)
        if isinstance(count, Known) and count.value > 0:
            found.append(Sign(msg("{n} {what}", n=count.value, what=said), count.evidence))
    for name, said in FLAGS.items():
        flag = card.read(name)
        if isinstance(flag, Known) and flag.value:
            found.append(Sign(said, flag.evidence))
    valid = card.read("inforom_valid")
    if isinstance(valid, Known) and not valid.value:
        found.append(Sign(msg("the card's infoROM, which keeps its history, is corrupted"), valid.evidence))
    return tuple(found)


def odd_one(card: Card, cards: Sequence[Card]) -> tuple[Sign, ...]:
    """Where this card differs from the most of its kind in this machine."""
    kind = card.gpu.any("pci_device_id", "pci", "nvml", "smi")
    siblings = [c for c in cards if _same(c.gpu.any("pci_device_id", "pci", "nvml", "smi"), kind)]
    found = []
    for name, title in ALIKE.items():
        mine = card.read(name)
        others = [r.value for c in siblings for r in (c.read(name),) if isinstance(r, Known)]
        if isinstance(mine, Missing) or not others:
            continue
        usual, number = Counter(others).most_common(1)[0]
        if mine.value != usual:
            said = msg(
                "{what} {mine} differs from {usual} of {n} other cards of this model",
                what=title,
                mine=mine.value,
                usual=usual,
                n=number,
            )
            found.append(Sign(said, mine.evidence))
    return tuple(found)


def _same(one: Reading[Any], other: Reading[Any]) -> bool:
    return isinstance(one, Known) and isinstance(other, Known) and bool(one.value == other.value)


def judge_condition(clause: Clause, case: Case) -> Iterator[Finding]:
    """``new``, each card beside its siblings."""
    cards = all_cards(case)
    yield from each(clause, case, lambda asked, card: _new(asked, card, cards))


def _new(clause: Clause, card: Card, cards: Sequence[Card]) -> Finding:
    """No sign of use, and records that would show it."""
    used, odd = signs(card), odd_one(card, cards)
    worn = (*used, *odd)
    records = [card.read(n) for names in RECORDS for n in names]
    evidence = tuple(dict.fromkeys(e for r in records for e in r.evidence))
    if worn:
        reason = msg("{signs}", signs=tuple(s.said for s in worn))
        cited = tuple(dict.fromkeys((*(e for s in worn for e in s.evidence), *evidence)))
        code, measured = ("worn", "used") if used else ("differs", "of another lot")
        return finding(clause, "fail", code, reason, subject=card.slot, measured=measured, evidence=cited)
    gone = _unrecorded(card)
    if gone is not None:
        return unreadable(clause, gone, card.slot)
    reason = msg("no uncorrected error, no remapped row or retired page; same VBIOS and board part as its siblings")
    return finding(clause, "pass", "kept", reason, subject=card.slot, measured="new", evidence=evidence)


def _unrecorded(card: Card) -> Optional[Missing]:
    """The record without which nobody can call this card new."""
    for names in RECORDS:
        readings = [card.read(n) for n in names]
        missing = next((r for r in readings if isinstance(r, Missing)), None)
        if missing is not None and not any(isinstance(r, Known) for r in readings):
            why = msg("the card shows no record of its use: {why}", why=missing.detail)
            return Missing(missing.kind, why, missing.evidence, missing.grant or _HISTORY)
    return None


_HISTORY = msg("let the vendor prove the age of this card by its invoice: it keeps no error history")
