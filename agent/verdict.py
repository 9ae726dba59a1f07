"""Fold findings into a verdict, a headline and an exit status. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Optional

from agent.model import UNBUILT, Finding, Scope, ScopeEntry, Verdict
from agent.text import Text, msg


class Exit(IntEnum):
    """Exit status of ``run`` and ``judge`` (and, where it fits, of the others)."""

    ACCEPTED = 0
    REJECTED = 1
    USAGE = 2
    INCONCLUSIVE = 3
    AGENT_FAILED = 4
    INTERRUPTED = 130


class NothingJudged(Exception):
    """Zero findings: an error of the agent, never an acceptance."""


def fold(findings: Sequence[Finding]) -> Verdict:
    """Any broken promise rejects; else any undecided one is inconclusive; advisory findings do not decide."""
    if not findings:
        raise NothingJudged
    decisive = [f for f in findings if f.severity == "breach"]
    if any(f.outcome == "fail" for f in decisive):
        return "rejected"
    if any(f.outcome == "inconclusive" for f in decisive):
        return "inconclusive"
    # What nobody promised accepts nothing: without a single kept promise there is nothing to accept.
    kept = any(f.outcome == "pass" and not f.clause.startswith("integrity.") for f in findings)
    return "accepted" if kept else "inconclusive"


def scope_of(findings: Sequence[Finding], left_out: Sequence[ScopeEntry], shortened: Sequence[ScopeEntry]) -> Scope:
    """Everything the verdict does not cover: by option, by budget, by a shortened test, or until the trial."""
    seen = {entry.key for entry in (*left_out, *shortened)}
    left, short, trial = [*left_out], [*shortened], list[ScopeEntry]()
    # What only load shows was left out where there was no load.
    by_code = {"left-out": left, "needs-load": left, "shortened": short, "pending-trial": trial}
    for f in findings:
        if f.reason_code in by_code and f.clause not in seen and f.outcome == "inconclusive":
            seen.add(f.clause)
            by_code[f.reason_code].append(ScopeEntry(f.clause, f.reason))
    return Scope(tuple(left), tuple(short), tuple(trial))


def headline(findings: Sequence[Finding]) -> Text:
    """In words: ``28 kept, 1 broken, 3 need root``. Advisory findings are counted apart."""
    decisive = [f for f in findings if f.severity == "breach"]
    undecided = [f for f in decisive if f.outcome == "inconclusive"]
    parts = [
        msg("{n} kept", n=sum(f.outcome == "pass" for f in decisive)),
        msg("{n} broken", n=sum(f.outcome == "fail" for f in decisive)),
    ]
    for template, codes in (
        (msg("{n} need root or a permission"), ("denied",)),
        (msg("{n} left out"), ("left-out",)),
        (msg("{n} tested only briefly"), ("shortened",)),
        (msg("{n} wait for the trial"), ("pending-trial",)),
    ):
        some = [f for f in undecided if f.reason_code in codes]
        undecided = [f for f in undecided if f.reason_code not in codes]
        if some:
            parts.append(msg(template.template, n=len(some)))
    # What the hardware or a tool has no answer for is "unsupported" too, and no later version will change it.
    unbuilt = [f for f in undecided if f.reason == UNBUILT]
    if unbuilt:
        undecided = [f for f in undecided if f not in unbuilt]
        parts.append(msg("{n} not supported yet", n=len(unbuilt)))
    if undecided:
        parts.append(msg("{n} could not be verified", n=len(undecided)))
    warned = sum(f.severity == "advisory" and f.outcome == "fail" for f in findings)
    if warned:
        parts.append(msg("{n} to note", n=warned))
    return msg("{parts}", parts=tuple(parts))


def exit_status(verdict: Optional[Verdict], scope: Scope) -> Exit:
    """0 only for accepted with full scope."""
    if verdict == "rejected":
        return Exit.REJECTED
    if verdict == "accepted" and scope.full:
        return Exit.ACCEPTED
    return Exit.INCONCLUSIVE
