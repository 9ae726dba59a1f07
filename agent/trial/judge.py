"""The verdict over a trial: every run's findings, the numbers over the days, what happened between the runs. Pure.

The rules, printed with the report:

* a fact is exact: broken in one run, it is broken;
* a measured promise is broken when more runs broke it than chance explains: a healthy machine breaks one in
  ``FALSE_FAIL`` of its looks at the most, and over all measured promises together chance may reject one trial in 200.
  Fewer breaches leave it open, never kept;
* it is kept when no run broke it and the last standard run found it kept; quick runs alone keep nothing;
* evening against the rest: broken when the whole interval lies beyond what the contract allows, kept when it lies
  within, open otherwise;
* a part that was exchanged leaves the trial open: what was measured before does not cover the new part.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Optional

from agent.model import Clause, Contract, Finding, Limit, Outcome, Severity, Verdict
from agent.quantity import format_quantity
from agent.text import Text, msg
from agent.trial.events import Event, all_events
from agent.trial.presence import Span, outages, share_up
from agent.trial.runs import Point, TrialRun, Unread
from agent.trial.schedule import Schedule, evening_of, settings_of, zone_of
from agent.trial.series import ERROR, EVENING_RUNS, EVENINGS, Drift, Drop, Sample, drift, evening_drop
from agent.verdict import fold, headline

FALSE_FAIL = 0.002
DEDICATED_DROP = 10.0  # %: bandwidth that is one's own falls by no more in the evening
DONE_LEAST = 0.8  # of the planned runs
DIRECTIONS = ("download", "upload")
SAID = 3  # of a thing that happened again and again, so many times are told in words
FAR_END = "far-end-not-shown-capable"
WORN = frozenset({"ecc_uncorrected_aggregate", "remapped_uncorrectable", "remapped_failure", "retired_pages"})


@dataclass(frozen=True)
class Judged:
    """A finding over the whole trial and the numbers of the runs that it happened in."""

    finding: Finding
    runs: tuple[int, ...] = ()


@dataclass(frozen=True)
class Series:
    """One measurement over the runs; ``points`` by run number. ``limit`` in ``unit`` where one was judged against."""

    key: str
    unit: str
    points: tuple[tuple[int, Point], ...]
    samples: tuple[Sample, ...]
    limit: Optional[float]
    drop: Optional[Drop]
    drift: Optional[Drift]


@dataclass(frozen=True)
class Trial:
    """All that the report shows."""

    runs: tuple[TrialRun, ...]
    unread: tuple[Unread, ...]
    schedule: Optional[Schedule]
    contract_id: Optional[str]
    evening: str
    timezone: str
    judged: tuple[Judged, ...]
    series: tuple[Series, ...]
    events: tuple[Event, ...]
    verdict: Verdict
    headline: Text


def judge(
    runs: Sequence[TrialRun], contract: Contract, schedule: Optional[Schedule] = None, unread: Sequence[Unread] = (),
    presence: Sequence[Span] = (), own: Sequence[int] = (),
) -> Trial:  # fmt: skip
    """One document from all runs; ``NothingJudged`` without findings. ``own``: restarts, from 1, of the renter's."""
    _every, _days, evening, zone = settings_of(contract.trial)
    if schedule is not None:
        evening, zone = schedule.evening, schedule.timezone
    events = all_events(runs, presence)
    series = _all_series(runs, evening, zone, events)
    judged = (
        *_clauses(runs),
        *_evenings(contract, series),
        *_availability(contract, presence, own),
        *_happened(contract, events),
        *_drifts(series),
        *_completeness(runs, schedule),
    )
    findings = [j.finding for j in judged]
    return Trial(
        runs=tuple(runs),
        unread=tuple(unread),
        schedule=schedule,
        contract_id=None if contract.header.get("id") is None else str(contract.header["id"]),
        evening=evening,
        timezone=zone,
        judged=judged,
        series=series,
        events=events,
        verdict=fold(findings),
        headline=headline(findings),
    )


def _finding(
    key: str, outcome: Outcome, code: str, reason: Text, severity: Severity = "breach", subject: Optional[str] = None
) -> Finding:
    name = key if subject is None else f"{key}@{subject}"
    return Finding(name, key, outcome, severity, "", code, reason, subject)


# ---- promises


def _clauses(runs: Sequence[TrialRun]) -> Iterator[Judged]:
    """Every finding that any run made, but those that only the trial as a whole can judge."""
    ids = dict.fromkeys(key for run in runs for key in run.outcomes)
    measured = sum(any(r.outcomes[i].measured for r in runs if i in r.outcomes) for i in ids)
    least = needed(len(runs), max(1, measured))
    for key in ids:
        found = _clause(key, runs, least)
        if found is not None:
            yield found


def needed(looks: int, promises: int) -> int:
    """How many of ``looks`` runs must break a measured promise before chance is out of the question."""
    count, below = 0, 0.0  # below: P(Binomial(looks, FALSE_FAIL) < count)
    while 1 - below > ERROR / promises:
        below += math.comb(looks, count) * FALSE_FAIL**count * (1 - FALSE_FAIL) ** (looks - count)
        count += 1
    return count


def _clause(key: str, runs: Sequence[TrialRun], least: int) -> Optional[Judged]:
    there = [(n, run, run.outcomes[key]) for n, run in enumerate(runs, 1) if key in run.outcomes]
    last = there[-1][2]
    if last.clause.startswith("trial.") or last.code == "pending-trial" or last.outcome == "not-asked":
        return None
    severity: Severity = "advisory" if last.severity == "advisory" else "breach"
    broken = tuple(n for n, _, o in there if o.outcome == "fail")
    fields = (last.promised, severity)
    if broken and (not any(o.measured for _, _, o in there) or len(broken) >= least):
        why = next(o.reason for n, _, o in there if n == broken[0])
        reason = msg("broken in run {runs}: {why}", runs=_numbers(broken), why=why)
        return Judged(_told(key, last.clause, last.subject, "fail", "broken", reason, *fields), broken)
    if broken:
        reason = msg(
            "broken in run {runs} of {n}: too few to exclude chance, {least} would be needed",
            runs=_numbers(broken),
            n=len(there),
            least=least,
        )
        return Judged(_told(key, last.clause, last.subject, "inconclusive", "unstable", reason, *fields), broken)
    deep = [o for _, run, o in there if run.profile in ("standard", "full") and run.complete]
    final = deep[-1] if deep else last
    kept = sum(o.outcome == "pass" for _, _, o in there)
    if final.outcome == "pass":
        reason = msg("never broken in {n} runs, found kept in {kept}", n=len(there), kept=kept)
        return Judged(_told(key, last.clause, last.subject, "pass", "kept", reason, *fields))
    reason = msg("{why}", why=final.reason)
    return Judged(_told(key, last.clause, last.subject, "inconclusive", final.code, reason, *fields))


def _told(
    key: str, clause: str, subject: Optional[str], outcome: Outcome, code: str, reason: Text, promised: str,
    severity: Severity,
) -> Finding:  # fmt: skip
    return Finding(key, clause, outcome, severity, promised, code, reason, subject)


def _numbers(runs: Sequence[int]) -> str:
    shown = ", ".join(str(n) for n in runs[:12])
    return shown + (" …" if len(runs) > 12 else "")


# ---- numbers over the days


def _all_series(runs: Sequence[TrialRun], evening: str, zone_name: str, events: Sequence[Event]) -> tuple[Series, ...]:
    zone, hours = zone_of(zone_name), evening_of(evening)
    anew = {e.subject[4:]: e.run for e in events if e.kind == "exchanged" and e.subject.startswith("gpu ")}
    keys = list(dict.fromkeys(k for run in runs for k in run.points))
    found = []
    for key in sorted(keys):
        points = tuple((n, run.points[key]) for n, run in enumerate(runs, 1) if key in run.points)
        unit = points[-1][1].unit
        points = tuple((n, p) for n, p in points if p.unit == unit)
        samples = []
        for n, point in points:
            local = runs[n - 1].at.astimezone(zone)
            samples.append(Sample(n, runs[n - 1].at, point.value, hours.holds(local), hours.day(local)))
        since = anew.get(points[-1][1].subject or "", 0)
        found.append((key, unit, points, tuple(samples), since))
    looks = max(1, len(found))
    return tuple(
        Series(
            key,
            unit,
            points,
            samples,
            _limit(key, unit, runs),
            evening_drop(samples, looks),
            drift([s for s in samples if s.run >= since], looks),
        )
        for key, unit, points, samples, since in found
    )


def _limit(key: str, unit: str, runs: Sequence[TrialRun]) -> Optional[float]:
    for run in reversed(runs):
        held = run.outcomes.get(key)
        if held is not None and held.limit is not None and held.limit_unit == unit:
            return held.limit
    return None


def _evenings(contract: Contract, series: Sequence[Series]) -> Iterator[Judged]:
    by_key = {s.key: s for s in series}
    for clause in contract.clauses:
        if clause.family == "network" and clause.name in ("dedicated", "evening_drop"):
            entry = clause.key.rpartition(".")[0]
            there = [by_key[k] for d in DIRECTIONS if (k := f"{entry}.{d}") in by_key]
            if clause.name == "dedicated" and clause.promise.value is False:
                continue
            for one in there:
                yield _evening(clause, one)
            if not there:
                reason = msg("no rate of this network was measured: promise a download or upload to have it measured")
                yield Judged(_on(clause, None, "inconclusive", "no-measurement", reason))


def _on(
    clause: Clause, subject: Optional[str], outcome: Outcome, code: str, reason: Text, drop: Optional[Drop] = None,
    allowed: float = 0.0,
) -> Finding:  # fmt: skip
    plain = Finding(
        clause.key if subject is None else f"{clause.key}@{subject}",
        clause.key,
        outcome,
        clause.severity,
        clause.promise.written,
        code,
        reason,
        subject,
        ref=clause.ref,
        quote=clause.text,
    )
    if drop is None:
        return plain
    interval = (100 * drop.low, 100 * drop.high)
    limit = Limit("<=", allowed, "%")
    return replace(plain, measured=100 * drop.share, unit="%", interval=interval, limit=limit)


def _evening(clause: Clause, one: Series) -> Judged:
    direction = one.key.rpartition(".")[2]
    drop = one.drop
    if drop is None:
        reason = msg(
            "needs {n} runs in the evening on {days} days and as many outside it",
            n=EVENING_RUNS,
            days=EVENINGS,
        )
        return Judged(_on(clause, direction, "inconclusive", "too-few-samples", reason))
    allowed = DEDICATED_DROP if clause.name == "dedicated" else float(clause.promise.value)
    said = msg(
        "in the evening {drop} % lower than otherwise ({low} to {high} %; {n} runs on {days} evenings, {rest} others)",
        drop=_told_from(drop.share, allowed),
        low=_told_from(drop.low, allowed),
        high=_told_from(drop.high, allowed),
        n=drop.evening_runs,
        days=drop.evenings,
        rest=drop.other_runs,
    )
    runs = tuple(s.run for s in one.samples if s.evening)
    if 100 * drop.low > allowed:
        if not _far_end_capable(one):
            reason = msg("{drop}; but the far end was not shown capable in the evening", drop=said)
            return Judged(_on(clause, direction, "inconclusive", FAR_END, reason, drop, allowed), runs)
        return Judged(_on(clause, direction, "fail", "above-limit", said, drop, allowed), runs)
    if 100 * drop.high <= allowed:
        return Judged(_on(clause, direction, "pass", "kept", said, drop, allowed))
    return Judged(_on(clause, direction, "inconclusive", "too-close", said, drop, allowed), runs)


def _told_from(share: float, allowed: float) -> str:
    """A share in percent, on the side of the allowed percentage where it lies."""
    return format_quantity(100 * share, "", (allowed,), 3)


def _far_end_capable(one: Series) -> bool:
    """Every evening number could convict by itself, or far ends in two networks were slow in the evening."""
    numbers = {s.run for s in one.samples if s.evening}
    points = [p for n, p in one.points if n in numbers]
    networks = {p.network for p in points if p.network is not None}
    return all(p.weak is None for p in points) or len(networks) > 1


def _drifts(series: Sequence[Series]) -> Iterator[Judged]:
    """Nobody promises that nothing drifts: to be noted."""
    for one in series:
        if one.drift is not None and one.drift.since is not None:
            reason = msg(
                "changed by {change} % over the trial ({low} to {high} %), beyond noise from run {n}",
                change=f"{100 * one.drift.share:+.1f}",
                low=f"{100 * one.drift.low:+.1f}",
                high=f"{100 * one.drift.high:+.1f}",
                n=one.drift.since,
            )
            found = _finding("integrity.drift", "fail", "drift", reason, severity="advisory", subject=one.key)
            yield Judged(found, (one.drift.since,))


# ---- what happened


def _happened(contract: Contract, events: Sequence[Event]) -> Iterator[Judged]:
    """One finding for each thing that happened, with all the runs that saw it."""
    condition = any(c.key == "gpu.condition" for c in contract.clauses)
    found: dict[tuple[str, str], list[Event]] = {}
    for event in events:
        if event.kind != "repaired":
            found.setdefault((_key(event), event.subject), []).append(event)
    for (key, subject), together in found.items():
        first = together[0]
        said: tuple[Text, ...] = tuple(e.said for e in together[:SAID])
        if len(together) > SAID:
            said = (*said, msg("{n} times in all", n=len(together)))
        reason = msg("{said}", said=said)
        runs = tuple(e.run for e in together)
        if first.kind == "exchanged":
            reason = msg("{what}; what was measured before run {n} does not cover it", what=said, n=runs[-1])
            yield Judged(_finding(key, "inconclusive", "exchanged", reason, subject=subject), runs)
            continue
        severity: Severity = "breach" if condition and first.kind == "growth" and first.name in WORN else "advisory"
        yield Judged(_finding(key, "fail", first.kind, reason, severity, subject), runs)


def _key(event: Event) -> str:
    names = {"exchanged": "parts", "growth": f"counters.{event.name}", "cleared": f"cleared.{event.name}"}
    return f"integrity.{names.get(event.kind, event.kind)}".replace("-", "_").replace(" ", "_")


def _availability(contract: Contract, known: Sequence[Span], own: Sequence[int]) -> Iterator[Judged]:
    """The machine's own times; ``own``: outages, from 1, that the renter says were their own restarts."""
    clause = next((c for c in contract.clauses if c.key == "trial.availability"), None)
    if clause is None:
        return
    up = share_up(known, [n - 1 for n in own])
    if up is None:
        reason = msg("nobody recorded whether the machine was up between the runs (accept trial run does)")
        yield Judged(_on(clause, None, "inconclusive", "not-watched", reason))
        return
    least = float(clause.promise.value)
    down = sum(o.seconds for n, o in enumerate(outages(known), 1) if n not in own) / 60
    hours = (known[-1].last - known[0].first).total_seconds() / 3600
    reason = msg(
        "up {share} % of {hours} h: {n} restarts, {minutes} min down, {own} of the restarts the renter's own",
        share=format_quantity(100 * up, "", (least,)),
        hours=f"{hours:.1f}",
        n=len(known) - 1,
        minutes=f"{down:.1f}",
        own=len(own),
    )
    found = _on(clause, None, "pass" if 100 * up >= least else "fail", "kept", reason)
    if 100 * up < least:
        found = replace(found, reason_code="below-limit")
    limit = Limit(">=", least, "%")
    yield Judged(replace(found, measured=100 * up, unit="%", limit=limit))


def _completeness(runs: Sequence[TrialRun], schedule: Optional[Schedule]) -> Iterator[Judged]:
    """A trial with holes accepts nothing."""
    if schedule is None:
        return
    states = [s.state for s in schedule.slots]
    waiting = sum(s in ("planned", "running") for s in states)
    done = states.count("done")
    said = msg(
        "{done} of {n} runs done, {missed} missed, {broken} broken off, {waiting} to come",
        done=done,
        n=len(states),
        missed=states.count("missed"),
        broken=states.count("broken-off"),
        waiting=waiting,
    )
    lost = tuple(s.number for s in schedule.slots if s.state in ("missed", "broken-off"))
    if waiting:
        yield Judged(_finding("integrity.trial", "inconclusive", "not-finished", said), lost)
    elif done < DONE_LEAST * len(states) or not (states[0] == states[-1] == "done"):
        reason = msg("{said}: the first, the last and four of five runs are needed", said=said)
        yield Judged(_finding("integrity.trial", "inconclusive", "too-few-runs", reason), lost)
    else:
        yield Judged(_finding("integrity.trial", "pass", "kept", said), lost)


def local_hour(run: TrialRun, zone_name: str) -> int:
    """The hour of the day at which a run began, where the renter lives."""
    return run.at.astimezone(zone_of(zone_name)).hour
