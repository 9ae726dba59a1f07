"""What happened to the machine between runs: parts exchanged, reboots, counters that grew, faults that came back. Pure.

Every event names the run in which it was first seen; that it happened is exact, so no statistics is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Optional

from agent.text import Text, msg
from agent.trial.runs import TrialRun

Kind = Literal["exchanged", "gone", "reboot", "growth", "came-back", "repaired", "clock", "stack"]


@dataclass(frozen=True)
class Event:
    """``run`` is the number of the run, from 1; ``subject`` a part (``gpu 0000:1b:00.0``), counter owner or clause."""

    kind: Kind
    run: int
    subject: str
    said: Text
    name: str = ""


def exchanged(runs: Sequence[TrialRun]) -> Iterator[Event]:
    """A part whose own name is another one than when it was last seen, and cards that are no longer there."""
    last: dict[str, str] = {}
    missed: set[str] = set()
    for number, run in enumerate(runs, 1):
        for part, name in run.parts.items():
            before = last.get(part)
            missed.discard(part)
            if before is not None and before != name:
                yield Event("exchanged", number, part, _other(part, before, name))
            last[part] = name
        for part in [p for p in last if p.startswith("gpu ") and p not in run.parts and p not in missed]:
            missed.add(part)
            yield Event("gone", number, part, msg("{part} does not answer or is gone", part=part))


def _other(part: str, before: str, after: str) -> Text:
    if part == "identity":
        return msg("another machine answers behind the same name")
    first, second = set(before.split(", ")), set(after.split(", "))
    if part in ("disks", "network cards"):
        gone, new = ", ".join(sorted(first - second)) or "–", ", ".join(sorted(second - first)) or "–"
        return msg("{part}: gone {gone}, new {new}", part=part, gone=gone, new=new)
    return msg("{part} was exchanged: {before} → {after}", part=part, before=before, after=after)


def reboots(runs: Sequence[TrialRun]) -> Iterator[Event]:
    """The kernel's boot id is another one, on the same machine."""
    last: Optional[TrialRun] = None
    for number, run in enumerate(runs, 1):
        if run.boot_id is None:
            continue
        same = last is not None and last.parts.get("identity") == run.parts.get("identity")
        if last is not None and same and last.boot_id != run.boot_id:
            when = f"{last.at:%Y-%m-%d %H:%M} – {run.at:%Y-%m-%d %H:%M} UTC"
            yield Event("reboot", number, "machine", msg("the machine was started again ({when})", when=when))
        last = run


def clock_steps(runs: Sequence[TrialRun]) -> Iterator[Event]:
    """A run that claims to be earlier than the one before it: the machine's clock was set back."""
    for number, (before, run) in enumerate(zip(runs, runs[1:]), 2):
        if run.at < before.at:
            back = f"{(before.at - run.at).total_seconds() / 60:.0f} min"
            yield Event("clock", number, "clock", msg("the clock was set back by at least {time}", time=back))


def growth(runs: Sequence[TrialRun]) -> Iterator[Event]:
    """Counters of errors that are higher than in the run before; a card that was exchanged starts anew."""
    last: dict[tuple[str, str], tuple[str, int]] = {}
    for number, run in enumerate(runs, 1):
        for owner, counters in run.counters.items():
            part = run.parts.get(f"gpu {owner}", "")
            for name, count in counters.items():
                who, before = last.get((owner, name), (part, count))
                if who == part and count > before:
                    said = msg("{counter} rose from {before} to {after}", counter=name, before=before, after=count)
                    yield Event("growth", number, owner, said, name)
                last[(owner, name)] = (part, count)


def recurrence(runs: Sequence[TrialRun]) -> Iterator[Event]:
    """A promise that was broken, then kept, then broken again; and how long until a run saw it kept."""
    for key in dict.fromkeys(k for run in runs for k in run.outcomes):
        since: Optional[int] = None
        repaired: Optional[int] = None
        for number, run in enumerate(runs, 1):
            outcome = run.outcomes[key].outcome if key in run.outcomes else None
            if outcome == "fail":
                if repaired is not None:
                    said = msg("{id} is broken again; in run {n} it was kept", id=key, n=repaired)
                    yield Event("came-back", number, key, said)
                since, repaired = since or number, None
            elif outcome == "pass" and since is not None:
                hours = f"{(run.at - runs[since - 1].at).total_seconds() / 3600:.1f}"
                said = msg("{id} is kept again, {hours} h after run {n} saw it broken", id=key, hours=hours, n=since)
                yield Event("repaired", number, key, said)
                since, repaired = None, number


def all_events(runs: Sequence[TrialRun]) -> tuple[Event, ...]:
    """Everything, in the order of the runs."""
    found = [e for source in (exchanged, reboots, clock_steps, growth, recurrence) for e in source(runs)]
    return tuple(sorted(found, key=lambda e: e.run))
