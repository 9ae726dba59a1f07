"""When the runs of a trial take place: a plan made once, kept in ``trial.json``. Pure but for reading and writing it.

The first and the last run are standard ones, those between are quick. Runs lie ``every`` apart, moved by a jitter so
that they do not always meet the same minute of somebody's cron job; each evening that lies within the trial gets at
least one run.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import date, datetime, timedelta, timezone, tzinfo
from pathlib import Path
from typing import Any, Literal, Optional
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from agent.evidence import read_json, write_json
from agent.text import Text, msg

FILE = "trial.json"
SCHEMA = "accept.trial/1"
EVERY_S = 4 * 3600.0
DAYS_S = 3 * 86400.0
EVENING = "19:00-23:00"
JITTER = 1 / 16  # of the time between two runs, to either side, at most ...
JITTER_MAX_S = 900.0
LATE = 0.5  # of the time between two runs: a run that would begin later than this is missed
SHORTEST_S = 60.0
SLOTS_MAX = 2000

State = Literal["planned", "running", "done", "broken-off", "missed"]
_HOURS = re.compile(r"(\d{1,2})[:：](\d{2})\s*[-~–—至到]\s*(\d{1,2})[:：](\d{2})\Z")


class ScheduleError(ValueError):
    """A trial that cannot be planned or read, in one sentence."""

    def __init__(self, text: Text) -> None:
        super().__init__(str(text))
        self.text = text


@dataclass(frozen=True)
class Slot:
    """One planned run. ``at`` is UTC; ``note`` says what was special about it."""

    number: int
    at: datetime
    profile: Literal["facts", "quick", "standard", "full"]
    state: State = "planned"
    folder: Optional[str] = None
    note: Optional[str] = None


@dataclass(frozen=True)
class Evening:
    """Minutes after local midnight, from ``start`` up to ``end``; ``end`` before ``start`` crosses midnight."""

    start: int
    end: int

    def holds(self, local: datetime) -> bool:
        """Whether a local time lies in it."""
        minute = local.hour * 60 + local.minute
        if self.start <= self.end:
            return self.start <= minute < self.end
        return minute >= self.start or minute < self.end

    def day(self, local: datetime) -> date:
        """The day whose evening this is: after midnight still the day before."""
        late = self.start > self.end and local.hour * 60 + local.minute < self.end
        return local.date() - timedelta(days=1 if late else 0)

    def bounds(self, day: date, zone: tzinfo) -> tuple[datetime, datetime]:
        """Begin and end in UTC of the evening of that local day."""
        midnight = datetime(day.year, day.month, day.day, tzinfo=zone)
        next_day = 1440 if self.start > self.end else 0
        begin = midnight + timedelta(minutes=self.start)
        return begin.astimezone(timezone.utc), (midnight + timedelta(minutes=self.end + next_day)).astimezone(
            timezone.utc
        )


@dataclass(frozen=True)
class Schedule:
    """The whole trial: what was asked for, and every slot with what became of it."""

    contract_sha256: str
    started_at: datetime
    every_s: float
    lasts_s: float
    evening: str
    timezone: str
    language: str
    slots: tuple[Slot, ...]

    @property
    def zone(self) -> tzinfo:
        return zone_of(self.timezone)

    @property
    def hours(self) -> Evening:
        return evening_of(self.evening)

    def next(self) -> Optional[Slot]:
        """The first slot that is still to come."""
        return next((s for s in self.slots if s.state == "planned"), None)

    def with_slot(self, slot: Slot) -> Schedule:
        """The same with this slot in the place of the one of its number."""
        return replace(self, slots=tuple(slot if s.number == slot.number else s for s in self.slots))


def zone_of(name: str) -> tzinfo:
    """The time zone of that name. ScheduleError where this machine does not know it."""
    if name == "UTC":
        return timezone.utc
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ScheduleError(
            msg("this machine does not know the time zone {name}: install tzdata", name=name)
        ) from error


def evening_of(written: str) -> Evening:
    """``19:00-23:00`` as the contract writes it."""
    found = _HOURS.match(written.strip())
    if found is None:
        raise ScheduleError(msg("not hours of the day: {text}", text=written))
    first, minute, last, until = (int(g) for g in found.groups())
    return Evening(first * 60 + minute, last * 60 + until)


def settings_of(trial: Mapping[str, Any]) -> tuple[float, float, str, str]:
    """``every`` and ``days`` in seconds, evening and time zone of the contract's ``trial:``, else the defaults."""
    return (
        float(trial.get("every") or EVERY_S),
        float(trial.get("days") or DAYS_S),
        str(trial.get("evening") or EVENING),
        str(trial.get("timezone") or "UTC"),
    )


def plan(
    contract_sha256: str, start: datetime, every_s: float, lasts_s: float, evening: str, zone: str,
    language: str = "en", seed: int = 0,
) -> Schedule:  # fmt: skip
    """Every slot of a trial that begins at ``start`` (UTC). ScheduleError for times that make no trial."""
    if every_s < SHORTEST_S:
        raise ScheduleError(msg("runs of a trial lie at least a minute apart"))
    count = int(lasts_s / every_s + 1e-9)
    if count < 2:
        raise ScheduleError(msg("the trial is shorter than the time between two of its runs"))
    if count > SLOTS_MAX:
        raise ScheduleError(msg("more than {n} runs: choose a longer time between them", n=SLOTS_MAX))
    dice = random.Random(seed)  # noqa: S311 - jitter, not a secret
    reach = min(JITTER * every_s, JITTER_MAX_S)
    times = [start + timedelta(seconds=n * every_s + (dice.uniform(-reach, reach) if n else 0)) for n in range(count)]
    times = _with_evenings(times, evening_of(evening), zone_of(zone))
    slots = tuple(
        Slot(n + 1, at.replace(microsecond=0), "standard" if n in (0, count - 1) else "quick")
        for n, at in enumerate(times)
    )
    return Schedule(contract_sha256, start.replace(microsecond=0), every_s, lasts_s, evening, zone, language, slots)


def _with_evenings(times: list[datetime], evening: Evening, zone: tzinfo) -> list[datetime]:
    """Where an evening within the trial has no run, the nearest one between first and last moves into it."""
    moved = list(times)
    day, last = (t.astimezone(zone).date() - timedelta(days=1) for t in (times[0], times[-1] + timedelta(days=2)))
    while day < last:
        begin, end = evening.bounds(day, zone)
        day += timedelta(days=1)
        if begin < times[0] or end > times[-1] or any(begin <= t < end for t in moved):
            continue
        middle = begin + (end - begin) / 2
        free = [n for n in range(1, len(moved) - 1) if not evening.holds(moved[n].astimezone(zone))]
        nearest = min(free, key=lambda n: abs(moved[n] - middle), default=None)
        if nearest is not None and moved[nearest - 1] < middle < moved[nearest + 1]:
            moved[nearest] = middle
    return moved


def late(schedule: Schedule, slot: Slot, now: datetime) -> bool:
    """Whether it is too late to begin this slot. The last one is worth more, and may begin a whole step late."""
    share = 1.0 if slot.number == schedule.slots[-1].number else LATE
    return now > slot.at + timedelta(seconds=share * schedule.every_s)


def write(folder: Path, schedule: Schedule) -> None:
    """Keep the plan with what became of it so far, whole or as before."""
    slots = [{**asdict(s), "at": _stamp(s.at)} for s in schedule.slots]
    data = {"schema": SCHEMA, **asdict(schedule), "started_at": _stamp(schedule.started_at), "slots": slots}
    write_json(folder / FILE, data)


def read(folder: Path) -> Schedule:
    """The plan of a trial folder. FileNotFoundError where there is none, ScheduleError for anything else."""
    data = read_json(folder / FILE)
    try:
        if data.pop("schema") != SCHEMA:
            raise ScheduleError(msg("{file} is of another version of accept", file=FILE))
        slots = tuple(Slot(**{**s, "at": moment(s["at"])}) for s in data.pop("slots"))
        return Schedule(**{**data, "started_at": moment(data["started_at"]), "slots": slots})
    except (KeyError, TypeError, AttributeError) as error:
        raise ScheduleError(msg("{file} of this trial cannot be read: {error}", file=FILE, error=str(error))) from error


def moment(text: str) -> datetime:
    """An ISO time as UTC."""
    found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)


def _stamp(at: datetime) -> str:
    return at.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
