"""``accept`` on a clock that does not wait and may be set: ``python -m tests.trial.on_a_false_clock AHEAD_S ARGV…``.

The machine's own age goes on with the waiting, as it would. With ``FILL=FOLDER`` in the environment, the file system
of that folder is filled to the last byte before the third run, with ``FILL_WITHIN=FOLDER`` in the middle of it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path

from agent.cli.commands import trial
from agent.cli.main import main
from agent.trial import drive, presence, schedule


class FalseClock:
    """Ahead of the machine's by what was asked, and by all that was waited."""

    ahead = 0.0
    waited = 0.0

    def now(self) -> datetime:
        return datetime.now(timezone.utc) + timedelta(seconds=FalseClock.ahead + FalseClock.waited)

    def sleep(self, seconds: float) -> None:
        FalseClock.waited += seconds
        fill(self.now())


def this_boot() -> presence.Boot:
    true = REAL()
    assert true is not None
    waited = float(os.environ.get("WAITED", "0")) + FalseClock.waited
    return presence.Boot(true.id, true.up_s + waited)


def fill(now: datetime) -> None:
    before, within = os.environ.get("FILL"), os.environ.get("FILL_WITHIN")
    folder = Path(before or within or "")
    if not (before or within) or now < schedule.read(folder / "trial").slots[2].at:
        return
    if before:
        to_the_last_byte(folder)
    else:
        threading.Thread(target=when_it_runs, args=(folder,), daemon=True).start()


def when_it_runs(folder: Path) -> None:
    while not list(folder.glob("trial/0003-*/run.json")):
        time.sleep(0.01)
    to_the_last_byte(folder)


def to_the_last_byte(folder: Path) -> None:
    with (folder / "filler").open("ab", buffering=0) as out:
        for size in (1 << 16, 1):
            with suppress(OSError):
                while True:
                    out.write(b"x" * size)


REAL = presence.this_boot

if __name__ == "__main__":
    FalseClock.ahead = float(sys.argv.pop(1))
    vars(trial).update(WallClock=FalseClock, drive=partial(drive.drive, boot=this_boot))
    main()
