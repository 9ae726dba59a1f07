"""The one table from outcome, severity and verdict to how they look in every format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Optional, Union

from agent.model import Outcome, Severity, Verdict
from agent.text import Text, msg

Junit = Literal["failure", "error", "skipped"]


@dataclass(frozen=True)
class Look:
    """``tone`` is the CSS class and ``colour`` a terminal colour; ``junit`` the element, None for a pass."""

    sigil: str
    word: Text
    tone: str
    colour: str
    junit: Optional[Junit] = None


# What could not be verified is an error in JUnit: a CI system must not show it green.
_OUTCOMES: dict[tuple[Outcome, Severity], Look] = {
    ("pass", "breach"): Look("✓", msg("kept"), "good", "green"),
    ("pass", "advisory"): Look("✓", msg("fine"), "good", "green"),
    ("fail", "breach"): Look("✗", msg("broken"), "bad", "red", "failure"),
    ("fail", "advisory"): Look("!", msg("remark"), "note", "yellow", "skipped"),
    ("inconclusive", "breach"): Look("?", msg("not verified"), "open", "magenta", "error"),
    ("inconclusive", "advisory"): Look("?", msg("not readable"), "note", "yellow", "skipped"),
    ("not-asked", "breach"): Look("·", msg("not asked"), "mute", "bright_black", "skipped"),
    ("not-asked", "advisory"): Look("·", msg("not asked"), "mute", "bright_black", "skipped"),
}

_VERDICTS: dict[Optional[Verdict], Look] = {
    "accepted": Look("✓", msg("Accepted"), "good", "green"),
    "rejected": Look("✗", msg("Rejected"), "bad", "red"),
    "inconclusive": Look("?", msg("Inconclusive"), "open", "magenta"),
    None: Look("…", msg("No verdict: the run did not finish"), "mute", "bright_black"),
}


def of_outcome(outcome: Outcome, severity: Severity) -> Look:
    """The look of a finding."""
    return _OUTCOMES[(outcome, severity)]


def of_verdict(verdict: Optional[Verdict]) -> Look:
    """The look of a verdict; None is a run that did not finish."""
    return _VERDICTS[verdict]


_IN_A_SENTENCE: dict[str, Text] = {
    "accepted": msg("accepted"),
    "rejected": msg("rejected"),
    "inconclusive": msg("inconclusive"),
}


def verdict_word(verdict: Optional[str]) -> Union[Text, str]:
    """A verdict within a sentence; a word of a foreign bundle that is none of ours stays as it is."""
    return _IN_A_SENTENCE.get(verdict or "", verdict or "–")
