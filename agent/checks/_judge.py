"""From a reading or a measurement and a promise to a finding. Pure; every family judges through here."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Optional, Union

from agent import stats
from agent.checks._api import Case
from agent.model import (
    UNBUILT,
    Attempt,
    Block,
    Clause,
    Finding,
    Limit,
    Measurement,
    Origin,
    Outcome,
    Promise,
    Severity,
)
from agent.quantity import SAME, convert, format_quantity
from agent.reading import Known, Missing, Reading
from agent.text import Text, msg

Compare = Callable[[Promise, Any], bool]

REASONS = {
    "kept": msg("kept"),
    "below-limit": msg("measured below the limit, twice"),
    "above-limit": msg("measured above the limit, twice"),
    "not-equal": msg("not the promised value, twice"),
    "fail-not-repeated": msg("short of the limit once; a breach must show twice and there was no second attempt"),
    "unstable": msg("two attempts disagree: one keeps the limit and one does not"),
    "too-close": msg("too close to the limit to call, also at greater depth"),
    "too-few-samples": msg("too few samples to decide"),
    "no-samples": msg("the measurement gave no samples"),
    "no-measurement": msg("not measured"),
    "not-a-number": msg("the measurement gave no finite number"),
    "negative": msg("the measurement gave a negative number"),
    "shortened": msg("kept in a shortened test, which cannot prove the promise"),
    "uneven-blocks": msg("the blocks of the measurement are not of one length"),
    "above-physical-limit": msg("above what this hardware can do: the number is void"),
}


def finding(clause: Clause, outcome: Outcome, code: str, reason: Text, **fields: Any) -> Finding:
    """A finding on ``clause`` with what the contract says of it; ``fields`` are further fields of the finding."""
    subject = fields.get("subject")
    severity: Severity = fields.pop("severity", clause.severity)
    remedy = clause.remedy.get("text") if clause.remedy else None
    return Finding(
        id=f"{clause.key}@{subject}" if subject else clause.key,
        clause=clause.key,
        outcome=outcome,
        severity=severity,
        promised=clause.promise.written,
        reason_code=code,
        reason=reason,
        ref=clause.ref,
        quote=clause.text,
        remedy=str(remedy) if remedy else None,
        **fields,
    )


def unreadable(clause: Clause, missing: Missing, subject: Optional[str] = None, **fields: Any) -> Finding:
    """A promise that could not be looked at: never a pass, and advisory only where the contract says so."""
    severity: Severity = "advisory" if clause.if_unreadable == "advisory" else clause.severity
    return finding(
        clause,
        "inconclusive",
        missing.kind,
        missing.detail,
        subject=subject,
        severity=severity,
        grant=missing.grant,
        evidence=missing.evidence,
        **fields,
    )


def unsupported(clause: Clause) -> Finding:
    """A clause of the contract format whose check is not built yet."""
    return finding(clause, "inconclusive", "unsupported", UNBUILT)


def pending_trial(clause: Clause) -> Finding:
    """A promise over days or hours of the day, which no single run can prove."""
    reason = msg("needs repeated runs over the trial days: one run cannot tell")
    return finding(clause, "inconclusive", "pending-trial", reason)


def version_key(text: str) -> tuple[int, ...]:
    """The numbers of a version: ``550.54.14`` → (550, 54, 14), ``3.10.12+cu121`` → (3, 10, 12)."""
    found = re.match(r"\D{0,20}?(\d+(?:[._]\d+)*)", text)
    return tuple(int(n) for n in re.split(r"[._]", found.group(1))) if found else ()


def compare_versions(promise: Promise, value: Any) -> bool:
    """By numbers; ``==`` and ``one_of`` hold to the depth that is promised: ``12.4`` is kept by 12.4.131."""
    have = version_key(str(value))
    wanted = [version_key(str(w)) for w in _many(promise.value)]
    if not have or not all(wanted):
        return False
    if promise.op == "one_of" or promise.op == "==":
        return any(have[: len(w)] == w for w in wanted)
    width = max(len(have), *(len(w) for w in wanted))
    padded = [_pad(w, width) for w in wanted]
    mine = _pad(have, width)
    if promise.op == ">=":
        return mine >= padded[0]
    if promise.op == "<=":
        # "<= 12" admits 12.4: the promise speaks of the major version only.
        return have[: len(wanted[0])] <= wanted[0]
    return padded[0] <= mine <= padded[-1]


def compare_values(promise: Promise, value: Any) -> bool:
    """Numbers by order, words without regard to case and spacing, booleans by equality."""
    wanted = promise.value
    if isinstance(value, bool) or isinstance(wanted, bool):
        return bool(value == wanted)
    if isinstance(value, (int, float)) and promise.op == "range":
        return _at_least(value, wanted[0]) and _at_least(wanted[1], value)
    if isinstance(value, (int, float)) and isinstance(wanted, (int, float)):
        kept = {">=": _at_least(value, wanted), "<=": _at_least(wanted, value)}
        return kept.get(promise.op, math.isclose(value, wanted))
    return any(_fold(value) == _fold(w) for w in _many(wanted))


def _at_least(value: float, least: float) -> bool:
    """Whether it is reached; 12.5 GB/s reach 100 Gbit/s whatever the last bit of the conversion says."""
    return value >= least or math.isclose(value, least, rel_tol=SAME)


def _many(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (tuple, list)) else (value,)


def _pad(version: tuple[int, ...], width: int) -> tuple[int, ...]:
    return version + (0,) * (width - len(version))


def _fold(value: Any) -> str:
    return re.sub(r"[\s_-]+", " ", str(value)).strip().casefold()


def fact(
    clause: Clause,
    reading: Reading[Any],
    *,
    subject: Optional[str] = None,
    unit: str = "",
    compare: Compare = compare_values,
    shown: Optional[Callable[[Any], Any]] = None,
    reason: Optional[Text] = None,
    notes: tuple[Text, ...] = (),
) -> Finding:
    """An exact comparison, without tolerance.

    ``reading`` is in ``unit`` (converted to the promise's unit where both have one); ``shown`` turns the value
    into what the report prints as measured; ``reason`` replaces the plain sentence of a failure.
    """
    if isinstance(reading, Missing):
        return unreadable(clause, reading, subject, notes=notes)
    promise = clause.promise
    value = reading.value
    if compare is compare_versions and not version_key(str(value)):
        detail = msg("“{text}” is no version", text=str(value)[:60])
        return unreadable(clause, Missing("unparsable", detail, reading.evidence), subject, notes=notes)
    if isinstance(value, float) and not math.isfinite(value) and shown is None:
        # 1e400 in a tool's JSON is read as infinity, which would keep every promise of at least.
        return unreadable(
            clause, Missing("unparsable", REASONS["not-a-number"], reading.evidence), subject, notes=notes
        )
    if isinstance(value, (int, float)) and not isinstance(value, bool) and unit and promise.unit:
        value = convert(float(value), unit, promise.unit)
    kept = compare(promise, value)
    said = shown(reading.value) if shown else value
    fields: dict[str, Any] = {
        "subject": subject,
        "measured": said,
        "unit": promise.unit if shown is None else "",
        "limit": Limit(promise.op, promise.value, promise.unit),
        "evidence": reading.evidence,
        "notes": notes,
    }
    if kept:
        return finding(clause, "pass", "kept", msg("kept"), **fields)
    plain = msg(
        "promised {promised}, found {found}", promised=promise.written, found=_said(said, fields["unit"], promise)
    )
    return finding(clause, "fail", _fail_code(promise.op), reason or plain, **fields)


def _said(value: Any, unit: str, promise: Promise) -> str:
    if not isinstance(value, float):
        return f"{value} {unit}".strip()
    return format_quantity(value, unit, (w for w in _many(promise.value) if isinstance(w, (int, float))))


def _fail_code(op: str) -> str:
    return {">=": "below-limit", "<=": "above-limit"}.get(op, "not-equal")


def limit_of(clause: Clause) -> Limit:
    """The promise with the clause's tolerance applied once, toward the vendor."""
    promise = clause.promise
    value = promise.value
    if promise.op == ">=":
        value = value * (1 - clause.tolerance)
    elif promise.op == "<=":
        value = value * (1 + clause.tolerance)
    elif promise.op == "range":
        value = (value[0] * (1 - clause.tolerance), value[1] * (1 + clause.tolerance))
    return Limit(promise.op, _decimal(value), promise.unit, clause.tolerance, Origin("contract"))


def _decimal(value: Any) -> Any:
    """60 ms and 10 % are 66 ms, not 66.00000000000001."""
    if isinstance(value, tuple):
        return tuple(_decimal(v) for v in value)
    return float(f"{value:.15g}") if isinstance(value, float) else value


def stats_attempt(attempt: Attempt, statistic: str, factor: float = 1.0) -> stats.Attempt:
    """An attempt's blocks as the statistics see them, values multiplied by ``factor`` (a unit conversion).

    Blocks of shares are in percent; the statistics count in fractions.
    """
    look = 2 if attempt.depth == "deeper" else 1
    if attempt.void is not None:
        return stats.Attempt(None, None, look, attempt.void.code)
    blocks = attempt.blocks
    if statistic == "share of trials":
        bad, trials = (sum(b.conditions[k] for b in blocks) for k in ("count", "trials"))
        return _scaled(stats.share_attempt(bad, trials, look), 100 * factor)
    if statistic in ("share of time", "share of packets"):  # both come in runs: blocks are what is independent
        return _scaled(stats.time_share_attempt([b.value / 100 for b in blocks], look), 100 * factor)
    if statistic == "median of block medians":
        return stats.block_attempt([tuple(s * factor for s in b.samples or (b.value,)) for b in blocks], look)
    if all("bytes" in b.conditions and "seconds" in b.conditions for b in blocks):
        return stats.rate_attempt([_transfer(b, factor) for b in blocks], look)
    return stats.median_attempt([b.value * factor for b in blocks], look, "repetitions")


def _transfer(block: Block, factor: float) -> stats.Repetition:
    series = tuple(s * factor for s in block.samples)
    return stats.Repetition(block.conditions["bytes"] * factor, block.conditions["seconds"], series)


def _scaled(attempt: stats.Attempt, factor: float) -> stats.Attempt:
    if attempt.interval is None or attempt.value is None or factor == 1.0:
        return attempt
    interval = replace(attempt.interval, low=attempt.interval.low * factor, high=attempt.interval.high * factor)
    return replace(attempt, value=attempt.value * factor, interval=interval)


def rate(
    clause: Clause,
    case: Case,
    *,
    key: Optional[str] = None,
    subject: Optional[str] = None,
    lift_weakness: Optional[Callable[[Measurement], bool]] = None,
    limit: Optional[Limit] = None,
) -> Finding:
    """A measured number against its limit, by the rule for its kind of number (design rule 4).

    ``lift_weakness`` says whether attempts that alone could not convict do so together (rule 11). ``limit``
    replaces the contract's own, for ``auto``.
    """
    key = key or (f"{clause.key}@{subject}" if subject else clause.key)
    taken: Union[Measurement, Missing, None] = case.measured.get(key)
    if taken is None:
        taken = Missing("left-out", msg("not measured"))
    if isinstance(taken, Missing):
        return unreadable(clause, taken, subject)
    limit = limit or limit_of(clause)
    if limit.op == "auto":
        reason = msg("no published floor is known for this: “auto” has nothing to hold the value against")
        return finding(clause, "inconclusive", "no-floor", reason, subject=subject, measurements=(key,))
    factor = convert(1.0, taken.unit, limit.unit) if taken.unit != limit.unit else 1.0
    attempts = [stats_attempt(a, taken.statistic, factor) for a in taken.attempts]
    decision = decide(limit, attempts)
    return _from_decision(clause, taken, limit, decision, subject, lift_weakness)


def decide(limit: Limit, attempts: Sequence[stats.Attempt]) -> stats.Decision:
    """``stats.decide`` also for a range: both ends must hold, and the worse one is reported."""
    if limit.op == "range":
        low, high = limit.value
        both = [stats.decide(">=", low, attempts), stats.decide("<=", high, attempts)]
        return max(both, key=lambda d: ("pass", "inconclusive", "fail").index(d.outcome))
    if limit.op == ">=":
        return stats.decide(">=", limit.value, attempts)
    if limit.op == "<=":
        return stats.decide("<=", limit.value, attempts)
    return stats.decide("==", limit.value, attempts)


def _from_decision(
    clause: Clause,
    taken: Measurement,
    limit: Limit,
    decision: stats.Decision,
    subject: Optional[str],
    lift_weakness: Optional[Callable[[Measurement], bool]],
) -> Finding:
    outcome: Outcome = decision.outcome
    code = decision.reason_code
    reason = _reason(code, taken)
    again = decision.again
    counting = [a for a in taken.attempts if a.void is None]
    if outcome == "pass" and not any(a.depth != "quick" for a in counting):
        outcome, code, reason = "inconclusive", "shortened", REASONS["shortened"]
    if outcome == "fail":
        weak = next((a.weak for a in counting if a.weak), None)
        if weak is not None and not (lift_weakness is not None and lift_weakness(taken)):
            outcome, code, reason = "inconclusive", weak.code, weak.text
    if outcome == "fail" and any(a.correct is False for a in counting):
        outcome, code, reason = "inconclusive", "wrong-result", msg("the arithmetic of the measurement was wrong")
    return finding(
        clause,
        outcome,
        code,
        reason,
        subject=subject,
        measured=decision.value,
        unit=limit.unit,
        interval=(decision.interval.low, decision.interval.high) if decision.interval else None,
        interval_rule=decision.interval.rule if decision.interval else None,
        limit=limit,
        measurements=(taken.key,),
        depth=taken.attempts[-1].depth,
        reproduce=taken.attempts[-1].reproduce,
        evidence=tuple(dict.fromkeys(e for a in taken.attempts for e in a.evidence)),
        notes=tuple(dict.fromkeys(n for a in taken.attempts for n in a.notes)),
        again=again,
    )


def _reason(code: str, taken: Measurement) -> Text:
    void = next((a.void for a in reversed(taken.attempts) if a.void and a.void.code == code), None)
    if void is not None:
        return void.text
    return REASONS.get(code) or msg("not decided: {code}", code=code)


def integrity(
    name: str,
    outcome: Outcome,
    code: str,
    reason: Text,
    *,
    severity: Severity = "advisory",
    **fields: Any,
) -> Finding:
    """What nobody asked for but every renter wants to know, as ``integrity.<name>``."""
    subject = fields.get("subject")
    key = f"integrity.{name}"
    return Finding(
        id=f"{key}@{subject}" if subject else key,
        clause=key,
        outcome=outcome,
        severity=severity,
        promised=fields.pop("promised", ""),
        reason_code=code,
        reason=reason,
        **fields,
    )


def known(reading: Reading[Any]) -> Any:
    """The value, or None where there is none: only for choosing words, never for judging."""
    return reading.value if isinstance(reading, Known) else None
