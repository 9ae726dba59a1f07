"""Looks at the machine, one after another: a child that may hang, is ended then, and started again."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional, Protocol, Union

from agent import probes
from agent.host import Dialogue
from agent.tools import ParseError
from agent.tools.watch import Head, Look, parse_head, parse_look

PROBE = "telemetry_probe"
START_S = 20.0  # the driver may have to be loaded first
ANSWER_S = 10.0
PAUSE_S = 10.0  # before a child that hung is started again; doubled each time it hangs again
PAUSE_MAX_S = 600.0


class Clock(Protocol):
    """``time()``: seconds since 1970; ``monotonic()``: seconds that nobody sets; ``sleep`` waits."""

    def time(self) -> float: ...
    def monotonic(self) -> float: ...
    def sleep(self, seconds: float) -> None: ...


class Unanswered(Exception):
    """The child cannot be started, gave no answer in time or one that is none."""


@dataclass
class Child:
    """One child. ``root``: where /proc, /sys and /dev/kmsg are read; ``log_at``: the kernel's last message read."""

    folder: Path
    root: str = ""
    start_s: float = START_S
    answer_s: float = ANSWER_S
    log_at: Optional[int] = None

    def __post_init__(self) -> None:
        """Raises :class:`Unanswered`."""
        script = self.folder / f"{PROBE}.py"
        try:
            script.write_bytes(probes.source(PROBE))
            argv = [sys.executable, "-I", str(script), probes.pynvml_folder(), "ticks", self.root]
            argv += [] if self.log_at is None else [str(self.log_at)]
            self._dialogue = Dialogue(argv)
        except OSError as error:
            raise Unanswered(str(error)) from error
        line = self._dialogue.hear(self.start_s)
        self.head: Head = self._parsed_head(line)

    def _parsed_head(self, line: Optional[str]) -> Head:
        if line is None:
            self._dialogue.end()
            raise Unanswered("no first answer")
        try:
            return parse_head(line)
        except ParseError as error:
            self._dialogue.end()
            raise Unanswered(str(error)) from error

    def look(self, seconds: float) -> Look:
        """The machine now; ``seconds`` since the last look. Raises :class:`Unanswered`."""
        line = self._dialogue.ask(f"{seconds:.4f}", self.answer_s)
        if line is None:
            raise Unanswered("no answer")
        try:
            return parse_look(line, self.head)
        except ParseError as error:
            raise Unanswered(str(error)) from error

    def end(self) -> None:
        """Of the child and what it started."""
        self._dialogue.end()


@dataclass(frozen=True)
class Started:
    """A child answers from now on."""

    t: float
    head: Head


@dataclass(frozen=True)
class Looked:
    """One look. ``t``: seconds since 1970."""

    t: float
    look: Look


@dataclass(frozen=True)
class Silent:
    """A child was given up after ``seconds``; ``again_s``: the pause before the next."""

    t: float
    seconds: float
    again_s: float


@dataclass
class Source:
    """Goes on for ever, or ``looks`` looks."""

    clock: Clock
    every_s: float
    root: str = ""
    looks: Optional[int] = None
    start_s: float = START_S
    answer_s: float = ANSWER_S
    _pause: float = field(default=PAUSE_S)

    def __iter__(self) -> Iterator[Union[Started, Looked, Silent]]:
        """:class:`Started`, :class:`Looked` and :class:`Silent` as they come."""
        done = 0
        log_at: Optional[int] = None  # what came while a child hung is told by the next one
        with tempfile.TemporaryDirectory(prefix="accept-watch-") as scratch:
            while self.looks is None or done < self.looks:
                begun = self.clock.monotonic()
                try:
                    child = Child(Path(scratch), self.root, self.start_s, self.answer_s, log_at)
                except Unanswered:
                    yield from self._given_up(begun)
                    continue
                log_at = child.head.log_at if log_at is None else log_at
                try:
                    yield Started(self.clock.time(), child.head)
                    last = slot = self.clock.monotonic()
                    while self.looks is None or done < self.looks:
                        slot = self._wait(slot)
                        asked = self.clock.monotonic()
                        look = child.look(asked - last)
                        last, log_at = asked, look.log_at
                        done += 1
                        self._pause = PAUSE_S
                        yield Looked(self.clock.time(), look)
                except Unanswered:
                    child.end()
                    yield from self._given_up(asked)
                finally:
                    child.end()

    def _wait(self, slot: float) -> float:
        """Until the next slot; those that passed meanwhile are left out."""
        now = self.clock.monotonic()
        behind = max(0, int((now - slot) / self.every_s))
        following = slot + (behind + 1) * self.every_s
        self.clock.sleep(following - now)
        return following

    def _given_up(self, begun: float) -> Iterator[Silent]:
        pause = self._pause
        self._pause = min(2 * pause, PAUSE_MAX_S)
        yield Silent(self.clock.time(), self.clock.monotonic() - begun, pause)
        self.clock.sleep(pause)
