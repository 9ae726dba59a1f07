"""Judging the PCIe link as it was seen while copies ran (design rule 7). Pure."""

from __future__ import annotations

from typing import Any, Optional

from agent.bench.device_link import LINK
from agent.checks._api import Case
from agent.checks._judge import REASONS, finding, unreadable
from agent.grammar import Link
from agent.model import Attempt, Clause, Finding, Limit, Severity
from agent.reading import Missing
from agent.text import msg


def judge_under_load(clause: Clause, case: Case, slot: str, wanted: Link, fields: dict[str, Any]) -> Optional[Finding]:
    """A finding where the link was watched, or could not be; None where nobody tried or was let.

    ``fields`` of the finding are those that do not depend on the load. A fail must show in two attempts.
    """
    taken = case.measured.get(f"{LINK}@{slot}")
    if taken is None or (isinstance(taken, Missing) and taken.kind == "left-out"):
        return None
    if isinstance(taken, Missing):
        return unreadable(clause, taken, slot, notes=fields.get("notes", ()))
    counting = [a for a in taken.attempts if a.void is None]
    links = [_link(a) for a in counting]
    short = [n for n in links if not _keeps(clause.promise.op, wanted, n)]
    last = taken.attempts[-1]
    evidence = (*fields.get("evidence", ()), *(e for a in taken.attempts for e in a.evidence))
    fields = {
        **fields,
        "measured": str((short or links)[-1]) if links else None,
        "limit": Limit(clause.promise.op, str(wanted), ""),
        "measurements": (taken.key,),
        "depth": last.depth,
        "reproduce": last.reproduce,
        "evidence": tuple(dict.fromkeys(evidence)),
        "notes": (*fields.get("notes", ()), *last.notes),
    }
    if not counting:
        void = next(a.void for a in taken.attempts if a.void is not None)
        severity: Severity = "advisory" if clause.if_unreadable == "advisory" else clause.severity
        return finding(clause, "inconclusive", void.code, void.text, severity=severity, **fields)
    if not short:
        if all(a.depth == "quick" for a in counting):
            return finding(clause, "inconclusive", "shortened", REASONS["shortened"], **fields)
        return finding(clause, "pass", "kept", REASONS["kept"], **fields)
    if len(short) < len(links):
        return finding(clause, "inconclusive", "unstable", REASONS["unstable"], **fields)
    reason = msg("under load the link runs at {found}, promised {wanted}", found=str(short[-1]), wanted=str(wanted))
    if len(short) < 2:
        return finding(clause, "inconclusive", "fail-not-repeated", reason, again="repeat", **fields)
    return finding(clause, "fail", "below-limit" if clause.promise.op == ">=" else "not-equal", reason, **fields)


def _link(attempt: Attempt) -> Link:
    """The middle of the blocks, the lower one of two."""
    ordered = sorted(attempt.blocks, key=lambda b: b.value)
    middle = ordered[(len(ordered) - 1) // 2].conditions
    return Link(middle["generation"], middle["width"])


def _keeps(op: str, wanted: Link, found: Link) -> bool:
    pairs = ((wanted.generation, found.generation), (wanted.width, found.width))
    asked = [(w, f) for w, f in pairs if w is not None]
    if op == "==":
        return all(f == w for w, f in asked)
    return all(f is not None and f >= w for w, f in asked)
