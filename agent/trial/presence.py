"""Whether the machine was up between the runs: spans in which one boot of it was seen, kept in ``presence.json``.

One boot that is seen twice was up in between, whether anybody looked or not. Between two boots the machine was down
from the last time that the old one was seen (known to within half a minute while the trial runs) to the time at
which the new one says it was started. Whether it could be reached from outside is not known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Optional

from agent.evidence import read_json, write_json
from agent.trial.schedule import moment

FILE = "presence.json"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
UPTIME = Path("/proc/uptime")
STEP_S = 60.0  # a clock that goes wrong by less between two looks was not set


@dataclass(frozen=True)
class Boot:
    """One start of the machine as it says itself: its id, and how many seconds ago it was."""

    id: str
    up_s: float


@dataclass(frozen=True)
class Step:
    """The machine's clock was set: ``at`` (by the new time, UTC) it was found ``by_s`` seconds ahead of before."""

    at: datetime
    by_s: float


@dataclass(frozen=True)
class Span:
    """One boot, seen from ``first`` to ``last``; ``started``: when it says that it was started. All UTC."""

    boot: str
    started: datetime
    first: datetime
    last: datetime
    steps: tuple[Step, ...] = ()


def this_boot() -> Optional[Boot]:
    """The running boot; None on a machine that does not tell."""
    try:
        return Boot(BOOT_ID.read_text().strip(), float(UPTIME.read_text().split()[0]))
    except (OSError, ValueError, IndexError):
        return None  # nothing is recorded then, and the clause stays open with that reason


def spans(folder: Path) -> tuple[Span, ...]:
    """What was recorded in a trial folder, () where nothing was. ValueError where that cannot be read."""
    try:
        data = read_json(folder / FILE)
    except FileNotFoundError:
        return ()
    try:
        return tuple(
            Span(
                s["boot"], moment(s["started"]), moment(s["first"]), moment(s["last"]),
                tuple(Step(moment(t["at"]), float(t["by_s"])) for t in s.get("clock_steps", ())),
            )
            for s in data["spans"]
        )  # fmt: skip
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{FILE} has another shape: {error!r}") from error


def seen(folder: Path, now: datetime, boot: Optional[Boot]) -> None:
    """Record that this boot is up at ``now``. OSError where the folder cannot be written.

    A record that cannot be read is put aside, and the next one begins now: the trial goes on.
    """
    if boot is None:
        return
    try:
        known = spans(folder)
    except ValueError:
        (folder / FILE).replace(folder / f"{FILE}.broken")
        known = ()
    if known and known[-1].boot == boot.id:
        known = (*known[:-1], _again(known[-1], now, boot))
    else:
        known = (*known, Span(boot.id, now - timedelta(seconds=boot.up_s), now, now))
    data: list[dict[str, Any]] = [
        {
            "boot": s.boot,
            "started": s.started.isoformat(timespec="seconds"),
            "first": s.first.isoformat(timespec="seconds"),
            "last": s.last.isoformat(timespec="seconds"),
            "clock_steps": [{"at": t.at.isoformat(timespec="seconds"), "by_s": t.by_s} for t in s.steps],
        }
        for s in known
    ]
    write_json(folder / FILE, {"schema": "accept.presence/1", "spans": data})


def _again(known: Span, now: datetime, boot: Boot) -> Span:
    """The boot's own age, which nobody sets, tells whether the time of day was."""
    started = now - timedelta(seconds=boot.up_s)
    by_s = round((started - known.started).total_seconds())
    stepped = abs(by_s) >= STEP_S
    return Span(
        known.boot,
        started if stepped else known.started,
        known.first,
        max(now, known.last),  # a clock that was set back must not shorten what was seen
        (*known.steps, Step(now, by_s)) if stepped else known.steps,
    )


@dataclass(frozen=True)
class Outage:
    """The machine was down from ``begin`` to ``end`` at the most."""

    begin: datetime
    end: datetime

    @property
    def seconds(self) -> float:
        return max(0.0, (self.end - self.begin).total_seconds())


def outages(known: Sequence[Span]) -> tuple[Outage, ...]:
    """One for each time that another boot was seen."""
    return tuple(Outage(one.last, max(one.last, two.started)) for one, two in zip(known, known[1:]))


def share_up(known: Sequence[Span], forgiven: Sequence[int] = ()) -> Optional[float]:
    """Up time over the whole time, 0 to 1; ``forgiven`` outages (by number, from 0) were the renter's own."""
    if not known or known[-1].last <= known[0].first:
        return None
    whole = (known[-1].last - known[0].first).total_seconds()
    down = sum(o.seconds for n, o in enumerate(outages(known)) if n not in forgiven)
    return max(0.0, 1 - down / whole)
