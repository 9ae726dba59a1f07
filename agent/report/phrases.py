"""Fixed phrases that the result stores as plain strings (how an interval was made), put into another language."""

from __future__ import annotations

import re
from typing import Any

from agent.report.clean import one_line
from agent.text import Text, Translate, msg

_PHRASES: tuple[Text, ...] = (
    msg("median of block medians"),
    msg("median of repetitions"),
    msg("percentile per repetition"),
    msg("share of trials"),
    msg("share of time"),
    msg("share of packets"),
    msg("min–max of {n} blocks, {needed} needed", n=0, needed=0),
    msg("min–max of {n} blocks, {sure}", n=0, sure=0),
    msg("min–max of {n} repetitions, {sure}", n=0, sure=0),
    msg("min–max of {n} rounds, {sure}", n=0, sure=0),
    msg("{low} lowest–{high} highest of {n} blocks, {sure}", low=0, high=0, n=0, sure=0),
    msg("{low} lowest–{high} highest of {n} repetitions, {sure}", low=0, high=0, n=0, sure=0),
    msg("{low} lowest–{high} highest of {n} rounds, {sure}", low=0, high=0, n=0, sure=0),
    msg("exact binomial (Clopper–Pearson), {k} of {n}, {sure}", k=0, n=0, sure=0),
    msg("gamma interval of {n} blocks, {sure}", n=0, sure=0),
    # What checks found, in words of ours.
    msg("whole"),
    msg("part of a card or shared"),
    msg("new"),
    msg("used"),
    msg("of another lot"),
    msg("all pairs"),
    msg("{n} of {m} pairs", n=0, m=0),
    msg("on"),
    msg("off"),
    msg("unlimited"),
)
# The catalogue holds ordinals as sentences of their own: "2nd" is no word that a template could inflect.
_ORDINALS = (msg("2nd"), msg("3rd"), msg("4th"), msg("5th"), msg("6th"))
_HOLE = re.compile(r"\\\{(\w+)\\\}")


VERDICTS: dict[str, Text] = {
    "accepted": msg("accepted"),
    "rejected": msg("rejected"),
    "inconclusive": msg("inconclusive"),
}
PROFILES: dict[str, Text] = {
    "facts": msg("facts only"),
    "quick": msg("quick"),
    "standard": msg("standard"),
    "full": msg("full"),
}
# Where a run of a trial stands.
STATES: dict[str, Text] = {
    "planned": msg("planned"),
    "running": msg("running"),
    "done": msg("done"),
    "broken-off": msg("broken off"),
    "missed": msg("missed"),
}


def _pattern(template: str) -> re.Pattern[str]:
    return re.compile(_HOLE.sub(r"(?P<\1>.{1,20}?)", re.escape(template)) + r"\Z")


_KNOWN = tuple((p.template, _pattern(p.template)) for p in _PHRASES)


def _ordinal(text: str) -> Any:
    return next((o for o in _ORDINALS if o.template == text), text)


def phrase(text: str, translate: Translate) -> str:
    """``text`` in the reader's language if it is one of the known phrases, else as it is."""
    for template, pattern in _KNOWN:
        found = pattern.match(text)
        if found:
            filled = {k: _ordinal(v) for k, v in found.groupdict().items()}
            return one_line(msg(template, **filled).render(translate)).replace(" %", "\u202f%")
    return one_line(text)
