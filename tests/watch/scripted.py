"""A fake node that changes by a script while virtual time passes: what ``accept watch`` looks at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Union

from agent.watch.events import Event
from agent.watch.source import Source
from agent.watch.watching import Told, Watching
from tests.fakenode.node import Built

EPOCH = 1_796_000_000.0
TICKS = 100  # of /proc/stat, a second of one CPU
CPUS = 8

BASE = (
    "* nvmlDeviceGetUtilizationRates 97 60",
    "* nvmlDeviceGetMemoryInfo 85899345920 0 13421772800 72477573120",
    "* nvmlDeviceGetPcieThroughput.0 1200000",
    "* nvmlDeviceGetPcieThroughput.1 800000",
    *(f"* nvmlDeviceGetFieldValues.{n}.4294967295 1000" for n in (138, 139)),
    *(f"* nvmlDeviceGetFieldValues.{n}.0 0" for n in (38, 45, 52, 59)),
)


@dataclass(frozen=True)
class Busy:
    """Percent of the host's time from now on."""

    cpu: float = 20.0
    steal: float = 0.0
    disk: float = 5.0
    port: float = 1.0


# Lines of answers.txt that come first from now on; lines of the kernel log; or how busy the host is.
Change = Union[tuple[str, ...], str, Busy]


@dataclass
class Script:
    """Virtual time. ``changes``: what happens at which second after the start."""

    node: Built
    changes: Mapping[float, Sequence[Change]]
    now: float = 0.0
    answers: tuple[str, ...] = ()
    busy: Busy = field(default_factory=Busy)
    stat: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])  # busy, idle, steal
    disk_ms: float = 0.0
    received: float = 0.0
    messages: int = 1

    def __post_init__(self) -> None:
        self.root = self.node.path / "watched"
        for folder in ("proc/net", "sys/block/nvme0n1", "sys/class/net/eth0", "dev"):
            (self.root / folder).mkdir(parents=True)
        (self.root / "sys/class/net/eth0/speed").write_text("10000\n")
        (self.root / "proc/meminfo").write_text("MemTotal: 2000000000 kB\nMemAvailable: 1500000000 kB\n")
        (self.root / "dev/kmsg").write_text("6,1,0,-;NVRM: Xid (PCI:0000:1b:00): 79, of an earlier boot\n")
        self.standard = (self.node.path / "answers.txt").read_text()
        self._say()
        self._files()

    def time(self) -> float:
        return EPOCH + self.now

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Time passes, and what the script has for it happens."""
        end = self.now + seconds
        for at in sorted(t for t in self.changes if self.now < t <= end):
            self._pass(at - self.now)
            for change in self.changes[at]:
                self._apply(change)
        self._pass(end - self.now)
        self._files()

    def _pass(self, seconds: float) -> None:
        ticks = TICKS * CPUS * seconds
        used, stolen = ticks * self.busy.cpu / 100, ticks * self.busy.steal / 100
        for place, more in enumerate((used, ticks - used - stolen, stolen)):
            self.stat[place] += more
        self.disk_ms += 1000 * seconds * self.busy.disk / 100
        self.received += 10e9 / 8 * seconds * self.busy.port / 100
        self.now += seconds

    def _apply(self, change: Change) -> None:
        if isinstance(change, Busy):
            self.busy = change
        elif isinstance(change, str):
            self.messages += 1
            with (self.root / "dev/kmsg").open("a") as log:
                log.write(f"6,{self.messages},{self.now * 1e6:.0f},-;{change}\n")
        else:
            self.answers = change
            self._say()

    def _say(self) -> None:
        new = self.node.path / "answers.new"
        new.write_text("\n".join((*self.answers, *BASE)) + "\n" + self.standard)
        new.replace(self.node.path / "answers.txt")

    def _files(self) -> None:
        used, idle, stolen = (round(n) for n in self.stat)
        (self.root / "proc/stat").write_text(f"cpu {used} 0 0 {idle} 0 0 0 {stolen} 0 0\n")
        disk = f" 259 0 nvme0n1 1 0 1000 1 1 0 1000 1 0 {self.disk_ms:.0f} 1 0 0 0 0\n"
        (self.root / "proc/diskstats").write_text(disk)
        head = "Inter-| Receive | Transmit\n face |bytes |bytes\n"
        port = f"  eth0: {self.received:.0f} 0 0 0 0 0 0 0 1000 0 0 0 0 0 0 0\n"
        (self.root / "proc/net/dev").write_text(head + port)

    def source(self, every_s: float, looks: int) -> Source:
        return Source(self, every_s, str(self.root), looks)


def watched(script: Script, every_s: float, looks: int, folder: Path) -> list[Told]:
    """All that ``accept watch`` would tell."""
    return list(Watching(every_s, folder).follow(script.source(every_s, looks)))


def events(told: Sequence[Told]) -> list[Event]:
    return [t for t in told if isinstance(t, Event)]
