"""What others did on this machine's disks and network while we measured (design rule 10).

The kernel counts what its disks and interfaces move; what is beyond our own part is somebody else's. Foreign load
stays in the measurement and is named. Load of the renter's own processes makes it unfit to convict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Optional

from agent.bench._probe import run_probe
from agent.host import Host
from agent.model import Attempt, Void
from agent.quantity import format_quantity
from agent.reading import Known, Missing, Reading
from agent.text import Text, msg

TIMEOUT_S = 20.0
DISTURBED = "disturbed"
# Below these nobody is disturbed: a share of our own part, and bytes a second.
SHARE = 0.05
LEAST = 1e6
# Headers, acknowledgements and what is sent twice: interfaces count more than a test's payload.
CARRIED = 0.9  # of our bytes: what moved less did not carry them
ON_WIRE = 1.10
STEAL_SHARE = 0.01
NAMED = 3  # processes named in a note

Pair = tuple[int, int]  # bytes read and written, or received and sent


@dataclass(frozen=True)
class Process:
    """Another process: bytes it had storage read and write; ``own``: perhaps the renter's own work."""

    name: str
    pid: int
    own: bool
    moved: Pair


@dataclass(frozen=True)
class Counters:
    """One look, as ``agent/probes/neighbours_probe.py`` prints it."""

    said: Mapping[str, Any]
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True)
class Between:
    """What happened between two looks, in bytes; None where the kernel does not tell."""

    seconds: float
    disks: Mapping[str, Pair] = field(default_factory=dict)
    physical: Optional[Pair] = None
    agent: Optional[Pair] = None
    net: Mapping[str, Pair] = field(default_factory=dict)
    steal: Optional[float] = None
    udp_overflow: Optional[int] = None  # packets that a program here was too slow to fetch
    processes: tuple[Process, ...] = ()
    evidence: tuple[str, ...] = ()

    def on(self, device: Optional[str]) -> Optional[Pair]:
        """What a device moved; of all devices with hardware behind them where it is not known which."""
        return self.disks.get(device) if device is not None else self.physical


@dataclass(frozen=True)
class Aside:
    """What a report says of it: notes, numbers for the blocks' conditions, and why it cannot convict."""

    notes: tuple[Text, ...] = ()
    foreign: Mapping[str, Any] = field(default_factory=dict)
    disturbed: Optional[Void] = None
    evidence: tuple[str, ...] = ()


def look(host: Host, probe: str) -> Reading[Counters]:
    """The counters now. Probes end in ``.neighbours.before`` or ``.neighbours.after``."""
    ran, answer = run_probe(host, probe, "neighbours_probe", (), TIMEOUT_S)
    if isinstance(answer, Missing):
        return answer
    if not isinstance(answer.value.get("at_s"), (int, float)):
        return Missing("unparsable", msg("the probe names no time"), ran.cited)
    return Known(Counters(answer.value, ran.cited), ran.cited)


def between(before: Reading[Counters], after: Reading[Counters]) -> Reading[Between]:
    """Differences of two looks; whichever is missing is the reason."""
    if isinstance(before, Missing):
        return before
    if isinstance(after, Missing):
        return after
    old, new = before.value.said, after.value.said
    disks = _pairs(old.get("disks"), new.get("disks"))
    whole = [disks[name] for name in new.get("physical") or () if name in disks]
    evidence = (*before.evidence, *after.evidence)
    found = Between(
        seconds=max(new["at_s"] - old["at_s"], 1e-3),
        disks=disks,
        physical=(sum(r for r, _ in whole), sum(w for _, w in whole)) if whole else None,
        agent=_pairs({"": old.get("agent")}, {"": new.get("agent")}).get(""),
        net=_pairs(old.get("net"), new.get("net")),
        steal=_share(old.get("cpu"), new.get("cpu")),
        udp_overflow=_grown(old.get("udp_overflow"), new.get("udp_overflow")),
        processes=_processes(old, new),
        evidence=evidence,
    )
    return Known(found, evidence)


def _pairs(old: Any, new: Any) -> dict[str, Pair]:
    """Differences by name, of names in both; a counter that went back was set to zero meanwhile."""
    found: dict[str, Pair] = {}
    for name, now in (new or {}).items():
        then = (old or {}).get(name)
        if now is not None and then is not None and now[0] >= then[0] and now[1] >= then[1]:
            found[name] = (now[0] - then[0], now[1] - then[1])
    return found


def _grown(old: Any, new: Any) -> Optional[int]:
    return int(new - old) if isinstance(old, int) and isinstance(new, int) and new >= old else None


def _share(old: Any, new: Any) -> Optional[float]:
    if not old or not new or new[1] <= old[1] or new[0] < old[0]:
        return None
    return float((new[0] - old[0]) / (new[1] - old[1]))


def _processes(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Process, ...]:
    """Most bytes first. A process that was not there before counts whole: it began meanwhile."""
    then = {(row[0], row[1]): (row[5], row[6]) for row in old.get("processes") or ()}
    found = []
    for pid, started, name, uid, service, read, written in new.get("processes") or ():
        before = then.get((pid, started), (0, 0))
        moved = (max(0, read - before[0]), max(0, written - before[1]))
        if any(moved):
            found.append(Process(name, pid, uid == new.get("uid") and not service, moved))
    return tuple(sorted(found, key=lambda p: -sum(p.moved)))


# ---------------------------------------------------------------- what it means


def on_disk(found: Reading[Between], device: Optional[str], journal: bool = False) -> Aside:
    """Traffic of the disk under a path beside ours.

    ``journal``: our own small writes make the file system write much more, so only reads tell of others.
    """
    if isinstance(found, Missing):
        return Aside()
    window = found.value
    moved = window.disks.get(device) if device is not None else None
    ours = window.agent
    notes, foreign = [*_steal(window)], dict(_stolen(window))
    disturbed: Optional[Void] = None
    if ours is not None:
        # Where the disk's own counters are unknown, all that our own work moved may have gone there.
        beyond = None if moved is None else _beyond(moved, ours, journal)
        own = [p for p in window.processes if p.own]
        others = _total([p for p in window.processes if not p.own])
        disturbing = sum(_least(_total(own), beyond))
        # Nobody's counters name a disk: whoever of the visible moved more is taken for the one on it.
        if _much(disturbing, sum(ours), window.seconds) and disturbing >= sum(others):
            disturbed = _own_work(own, disturbing / window.seconds)
        elif beyond is not None and _much(sum(beyond), sum(ours), window.seconds):
            notes.append(_strangers(window, str(device), sum(beyond)))
        if beyond is not None:
            foreign["disk_bytes_per_s"] = sum(beyond) / window.seconds
        foreign["own_bytes_per_s"] = disturbing / window.seconds
    return Aside(tuple(notes), foreign, disturbed, window.evidence)


def _beyond(moved: Pair, ours: Pair, journal: bool) -> Pair:
    return max(0, moved[0] - ours[0]), 0 if journal else max(0, moved[1] - ours[1])


def _total(who: Sequence[Process]) -> Pair:
    return sum(p.moved[0] for p in who), sum(p.moved[1] for p in who)


def _least(own: Pair, beyond: Optional[Pair]) -> Pair:
    return own if beyond is None else (min(own[0], beyond[0]), min(own[1], beyond[1]))


def _much(theirs: float, ours: float, seconds: float) -> bool:
    return theirs > SHARE * ours and theirs / seconds > LEAST


def _own_work(who: Sequence[Process], rate: float) -> Void:
    text = msg(
        "disturbed by own work: {who} moved {rate} on the disk meanwhile; stop it and run again",
        who=_names(who),
        rate=format_quantity(rate, "B/s"),
    )
    return Void(DISTURBED, text)


def _strangers(window: Between, device: str, beyond: int) -> Text:
    rate = format_quantity(beyond / window.seconds, "B/s")
    others = [p for p in window.processes if not p.own and _much(sum(p.moved), 0, window.seconds)]
    if others:
        return msg("meanwhile {who} moved {rate} on {device}, beside us", who=_names(others), rate=rate, device=device)
    return msg("meanwhile {device} moved {rate} beside ours, of nobody visible from here", device=device, rate=rate)


def _names(who: Sequence[Process]) -> str:
    return ", ".join(f"{p.name} ({p.pid})" for p in who[:NAMED])


def on_net(found: Reading[Between], direction: str, ours: Optional[float]) -> Aside:
    """Traffic beside ours on the interface that carried the test; ``ours`` in bytes of payload, None if unknown.

    Only this machine's own traffic can be seen on its interfaces, and a machine is one renter's: it is own work.
    """
    if isinstance(found, Missing):
        return Aside()
    window = found.value
    way = 0 if direction == "download" else 1
    notes, foreign = [*_steal(window)], dict(_stolen(window))
    # What carried the test moved about as much at least (some may still lie in buffers); of several the one that tells
    # least of others.
    carriers = {n: pair[way] for n, pair in window.net.items() if ours is not None and pair[way] >= CARRIED * ours}
    carrier = min(carriers, key=lambda name: carriers[name], default=None)
    disturbed: Optional[Void] = None
    if carrier is not None and ours is not None:
        beyond = max(0.0, carriers[carrier] - ON_WIRE * ours)
        foreign["net_bytes_per_s"] = beyond / window.seconds
        if _much(beyond, ours, window.seconds):
            text = msg(
                "disturbed by own work: {interface} carried {rate} beside the test; stop it and run again",
                interface=carrier,
                rate=format_quantity(beyond / window.seconds, "B/s"),
            )
            disturbed = Void(DISTURBED, text)
    return Aside(tuple(notes), foreign, disturbed, window.evidence)


def _steal(window: Between) -> tuple[Text, ...]:
    if window.steal is None or window.steal < STEAL_SHARE:
        return ()
    return (msg("meanwhile {share} of the CPUs' time was stolen", share=f"{100 * window.steal:.1f} %"),)


def _stolen(window: Between) -> Mapping[str, float]:
    return {} if window.steal is None else {"steal_percent": 100 * window.steal}


def told(attempt: Attempt, aside: Aside) -> Attempt:
    """The attempt with what others did beside it."""
    if aside.foreign:
        blocks = tuple(replace(b, conditions={**b.conditions, "foreign": aside.foreign}) for b in attempt.blocks)
        attempt = replace(attempt, blocks=blocks)
    notes = (*attempt.notes, *aside.notes, *((aside.disturbed.text,) if aside.disturbed else ()))
    evidence = (*attempt.evidence, *aside.evidence)
    return replace(attempt, weak=aside.disturbed or attempt.weak, notes=notes, evidence=evidence)
