"""Going through a trial's plan: wait, run, keep what happened. The clock and the run itself are given from outside.

Killed at any moment, the next start goes on: a slot that was running is broken off and kept, one whose time has
passed is missed and recorded as such, and none is ever run twice.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Callable, Optional, Protocol

from agent.evidence import RESULT, read_json
from agent.trial.presence import Boot, seen, this_boot
from agent.trial.schedule import Schedule, Slot, late, write

NAP_S = 30.0  # a wall clock that is set, or a machine that slept, is noticed within this time


class Clock(Protocol):
    """The time of day and waiting; tests give one that does not wait."""

    def now(self) -> datetime:
        """UTC."""
        ...

    def sleep(self, seconds: float) -> None: ...


class WallClock:
    """The machine's own."""

    def now(self) -> datetime:
        return datetime.now(timezone.utc)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


# Runs one slot in that folder and returns what was special about it, or None.
Execute = Callable[[Slot, Path], Optional[str]]


def recover(folder: Path, schedule: Schedule) -> Schedule:
    """After a start: slots that were running when the agent ended are done if their run is, else broken off."""
    for slot in schedule.slots:
        if slot.state == "running":
            done = slot.folder is not None and _complete(folder / slot.folder)
            schedule = schedule.with_slot(replace(slot, state="done" if done else "broken-off"))
    write(folder, schedule)
    return schedule


def _complete(run: Path) -> bool:
    try:
        return bool(read_json(run / RESULT)["complete"])
    except (OSError, ValueError, KeyError, TypeError):
        return False  # no result that can be read: the run did not end, which is what is asked


def drive(
    folder: Path,
    schedule: Schedule,
    clock: Clock,
    execute: Execute,
    only_due: bool = False,
    boot: Callable[[], Optional[Boot]] = this_boot,
) -> Iterator[tuple[Schedule, Slot]]:
    """Every slot that comes to an end, with the plan after it: run, or missed.

    ``only_due``: return instead of waiting, for a timer that calls again.
    """
    schedule = recover(folder, schedule)
    while True:
        slot = schedule.next()
        if slot is None:
            return
        now = clock.now()
        if late(schedule, slot, now):
            slot = replace(slot, state="missed")
        elif now >= slot.at:
            slot = _run(folder, schedule, slot, execute)
        elif only_due:
            _keep(folder, schedule, now, boot())
            return
        else:
            _keep(folder, schedule, now, boot())
            clock.sleep(min(NAP_S, (slot.at - now).total_seconds()))
            continue
        schedule = schedule.with_slot(slot)
        trouble = _keep(folder, schedule, clock.now(), boot())
        if trouble is not None:
            # It stays in memory and is written as soon as there is room; killed before that, the run folder tells.
            schedule = schedule.with_slot(replace(slot, note=trouble))
        yield schedule, slot


def _keep(folder: Path, schedule: Schedule, now: datetime, boot: Optional[Boot]) -> Optional[str]:
    """Write what is known; a full disk must not end the trial, so the error comes back as text."""
    try:
        write(folder, schedule)
        seen(folder, now, boot)
    except OSError as error:
        return error.strerror or str(error)
    return None


def _run(folder: Path, schedule: Schedule, slot: Slot, execute: Execute) -> Slot:
    name = f"{slot.number:04d}-{slot.at:%Y%m%dT%H%M%SZ}"
    slot = replace(slot, state="running", folder=name)
    try:
        write(folder, schedule.with_slot(slot))
        note = execute(slot, folder / name)
    except OSError as error:
        # A full disk ends one slot, not the trial: the next may find room again.
        return replace(slot, state="broken-off", note=error.strerror or str(error))
    return replace(slot, state="done" if _complete(folder / name) else "broken-off", note=note)
