"""From looks to what is kept and shown: the log, the Prometheus file, the events, the latest look."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Optional, Union

from agent.evidence import write_atomic
from agent.tools.watch import Card, Head
from agent.watch import prom
from agent.watch.events import Event, Watcher
from agent.watch.log import Begun, Log, Seen
from agent.watch.source import Looked, Silent, Started


@dataclass(frozen=True)
class Trouble:
    """Something of ours that cannot be written: watching goes on without it. ``what``: log or prom."""

    t: float
    what: str
    path: str
    error: str


Told = Union[Begun, Seen, Event, Trouble]


@dataclass
class Watching:
    """``folder``: where the log goes, None for none; ``prom``: the file that a node exporter reads."""

    every_s: float
    folder: Optional[Path] = None
    prom: Optional[Path] = None
    _watcher: Watcher = field(default_factory=lambda: Watcher(()))
    _log: Optional[Log] = None
    _silent_since: Optional[float] = None
    _troubled: set[str] = field(default_factory=set)
    _xids: dict[tuple[str, int], int] = field(default_factory=dict)

    def follow(self, source: Iterable[Union[Started, Looked, Silent]]) -> Iterator[Told]:
        """Everything that there is to tell, in its order; kept before it is told."""
        try:
            for step in source:
                if isinstance(step, Started):
                    yield from self._started(step)
                elif isinstance(step, Looked):
                    yield from self._looked(step)
                elif self._silent_since is None:
                    self._silent_since = step.t - step.seconds
                    yield from self._kept(Event(step.t, "silent", None, {"seconds": step.seconds}))
        finally:
            if self._log is not None:
                self._log.close()

    def _started(self, step: Started) -> Iterator[Told]:
        begun = Begun(step.t, self.every_s, step.head.cards, step.head.error)
        if self._log is None or not _same(self._watcher.cards, step.head):
            # What is going on with cards that stayed goes on.
            self._watcher.cards = step.head.cards
            yield from self._opened(begun)
        yield begun

    def _opened(self, begun: Begun) -> Iterator[Told]:
        if self.folder is None:
            return
        if self._log is not None:
            self._log.close()
            self._log = None
        try:
            self._log = Log(self.folder, begun)
        except OSError as error:
            yield from self._trouble(begun.t, "log", self.folder, error)

    def _looked(self, step: Looked) -> Iterator[Told]:
        if self._silent_since is not None:
            gone = step.t - self._silent_since
            self._silent_since = None
            yield from self._kept(Event(step.t, "heard", None, {"seconds": gone}))
        events = self._watcher.see(step.t, step.look)
        yield from self._kept(Seen(step.t, replace(step.look, faults=(), log_at=None)))  # they are events
        for event in events:
            if event.kind == "xid":
                key = (event.subject or "", event.values["xid"] or 0)
                self._xids[key] = self._xids.get(key, 0) + 1
            yield from self._kept(event)
        if self.prom is not None:
            try:
                text = prom.render(self._watcher.cards, step.t, step.look, self._watcher.since, self._xids)
                write_atomic(self.prom, text.encode())
                self._troubled.discard("prom")
            except OSError as error:
                yield from self._trouble(step.t, "prom", self.prom, error)

    def _kept(self, item: Union[Seen, Event]) -> Iterator[Told]:
        if self._log is not None:
            try:
                self._log.write(item)
                self._troubled.discard("log")
            except OSError as error:
                yield from self._trouble(item.t, "log", self._log.folder, error)
        yield item

    def _trouble(self, t: float, what: str, path: Path, error: OSError) -> Iterator[Told]:
        """Told once, until it went well again."""
        if what not in self._troubled:
            self._troubled.add(what)
            yield Trouble(t, what, str(path), error.strerror or str(error))


def _same(cards: Iterable[Card], head: Head) -> bool:
    return tuple(c.uuid for c in cards) == tuple(c.uuid for c in head.cards)
