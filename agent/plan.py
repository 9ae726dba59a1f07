"""Which clauses are looked at, by which steps, in which order, for how long, within which budget. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Optional

from agent.bench.step import Cost, Step
from agent.model import Clause, Contract, Depth, Profile, ScopeEntry
from agent.text import Text, msg

INTEGRITY = "integrity"
DEPTH: dict[Profile, Depth] = {"facts": "quick", "quick": "quick", "standard": "standard", "full": "deeper"}
# Cheap looks first, so that a dead machine is known early; the loads that heat it up last.
ORDER = ("none", "network", "disk", "cpu", "gpu")
FACTS_S = 15.0  # reading the machine, before any load


@dataclass(frozen=True)
class Options:
    """What the renter asked for on the command line, as far as it changes what is judged."""

    profile: Profile = "standard"
    budget_s: Optional[float] = None
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    stop_on_breach: bool = False
    python: Optional[str] = None
    recheck: Optional[frozenset[str]] = None  # clause keys that were not kept in an earlier run


@dataclass(frozen=True)
class Planned:
    step: Step
    depth: Depth

    @property
    def cost(self) -> Cost:
        return self.step.cost(self.depth)


@dataclass(frozen=True)
class Plan:
    """``steps`` in order; what is left out or shortened, with the reason that the result will carry."""

    steps: tuple[Planned, ...]
    left_out: tuple[ScopeEntry, ...] = ()
    shortened: tuple[ScopeEntry, ...] = ()

    @property
    def seconds(self) -> float:
        """Planned wall clock of one look at everything, facts included."""
        return FACTS_S + sum(p.cost.seconds for p in self.steps)

    @property
    def written(self) -> int:
        """Bytes written to disks at most."""
        return sum(p.cost.written for p in self.steps)

    @property
    def sent(self) -> int:
        """Bytes of network traffic at most."""
        return sum(p.cost.sent for p in self.steps)


@dataclass(frozen=True)
class Selection:
    """The clauses that are looked at, and the others with the reason why not."""

    asked: tuple[Clause, ...]
    left_out: tuple[ScopeEntry, ...] = field(default_factory=tuple)


def matches(key: str, patterns: Iterable[str]) -> bool:
    """Whether a clause key is meant by ``cpu``, ``disk[/data]``, ``disk[/data].read`` or a glob pattern."""
    family = key.split(".", 1)[0].split("[", 1)[0]
    entry = key.split("].", 1)[0] + "]" if "]." in key else key.split(".", 1)[0]
    return any(p in (key, family, entry) or fnmatchcase(key, p) for p in patterns)


def unknown_patterns(contract: Contract, patterns: Iterable[str]) -> list[str]:
    """Patterns of ``--only`` and ``--skip`` that no clause of the contract matches: surely a typing error."""
    return [p for p in patterns if p != INTEGRITY and not any(matches(c.key, (p,)) for c in contract.clauses)]


def select(contract: Contract, options: Options) -> Selection:
    """Apply ``--only``, ``--skip`` and ``--recheck``; nothing disappears, it is left out with a reason."""
    asked: list[Clause] = []
    left: list[ScopeEntry] = []
    for clause in contract.clauses:
        why = _why_not(clause, options)
        if why is None:
            asked.append(clause)
        else:
            left.append(ScopeEntry(clause.key, why))
    if INTEGRITY in options.skip:
        left.append(ScopeEntry(INTEGRITY, msg("left out by --skip")))
    return Selection(tuple(asked), tuple(left))


def _why_not(clause: Clause, options: Options) -> Optional[Text]:
    if options.only and not matches(clause.key, options.only):
        return msg("left out by --only")
    if matches(clause.key, options.skip):
        return msg("left out by --skip")
    if options.recheck is not None and clause.key not in options.recheck:
        return msg("kept in the run that is being checked again")
    return None


def arrange(steps: Iterable[Step], options: Options) -> Plan:
    """Order the steps and fit them into the profile and the budget."""
    unique = {s.name: s for s in steps}
    ordered = sorted(unique.values(), key=lambda s: (ORDER.index(s.load), s.name))
    if options.profile == "facts":
        return Plan((), tuple(ScopeEntry(k, msg("left out by --profile facts")) for s in ordered for k in s.keys))
    planned = [Planned(s, DEPTH[options.profile]) for s in ordered]
    shortened = [p for p in planned if p.depth == "quick"]
    why = msg("shortened by --profile {profile}", profile=options.profile)
    entries = [ScopeEntry(k, why) for p in shortened for k in p.step.keys]
    if options.budget_s is None:
        return Plan(tuple(planned), shortened=tuple(entries))
    return _fit(planned, entries, options.budget_s)


def folded(entries: Iterable[ScopeEntry]) -> tuple[ScopeEntry, ...]:
    """One entry a clause: ``p2p_bandwidth`` for the measurements of its 56 pairs."""
    return tuple(dict.fromkeys(ScopeEntry(e.key.partition("@")[0], e.why) for e in entries))


def clauses_of(keys: Iterable[str]) -> str:
    """Measurement keys as a person reads them: ``gemm.bf16 (8), gemm.spread``."""
    counted: dict[str, int] = {}
    for key in keys:
        clause = key.partition("@")[0]
        counted[clause] = counted.get(clause, 0) + 1
    return ", ".join(f"{clause} ({n})" if n > 1 else clause for clause, n in counted.items())


def _fit(planned: list[Planned], shortened: list[ScopeEntry], budget_s: float) -> Plan:
    """Shorten the longest first, then leave the longest out: with little time, everything is touched."""
    left: list[ScopeEntry] = []
    while _seconds(planned) > budget_s and any(p.depth != "quick" for p in planned):
        worst = max((p for p in planned if p.depth != "quick"), key=_saving)
        planned[planned.index(worst)] = Planned(worst.step, "quick")
        shortened += [ScopeEntry(k, msg("shortened to fit --budget")) for k in worst.step.keys]
    while _seconds(planned) > budget_s and planned:
        worst = max(planned, key=lambda p: p.cost.seconds)
        planned.remove(worst)
        left += [ScopeEntry(k, msg("left out to fit --budget")) for k in worst.step.keys]
    gone = {e.key for e in left}
    return Plan(tuple(planned), tuple(left), tuple(e for e in shortened if e.key not in gone))


def _seconds(planned: Sequence[Planned]) -> float:
    return FACTS_S + sum(p.cost.seconds for p in planned)


def _saving(planned: Planned) -> float:
    return planned.cost.seconds - planned.step.cost("quick").seconds
