"""Which clauses are looked at, by which steps, in which order, for how long, within which budget. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Optional

from agent.bench.step import Cost, Look, Step
from agent.model import Clause, Contract, Depth, Profile, ScopeEntry
from agent.text import Text, msg

INTEGRITY = "integrity"
DEPTH: dict[Profile, Depth] = {"facts": "quick", "quick": "quick", "standard": "standard", "full": "deeper"}
# Cheap looks first, so that a dead machine is known early; the loads that heat it up last.
ORDER = ("none", "network", "disk", "cpu", "gpu")
FACTS_S = 12.0  # reading the machine, before any load
HALF_HOUR_S = 1800.0  # what a standard run is announced with


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
    """``tools``: those of the trade's own that are asked beside it; none in a short look."""

    step: Step
    depth: Depth
    tools: frozenset[str] = frozenset()

    @property
    def look(self) -> Look:
        """Its first execution."""
        return Look(1, self.depth, tools=self.tools)

    @property
    def cost(self) -> Cost:
        """Of the first execution, the trade's own tools with it."""
        ours = self.step.cost(self.depth)
        return replace(ours, seconds=ours.seconds + sum(self.step.tools[tool] for tool in self.tools))

    @property
    def can_run(self) -> bool:
        """False where its step costs nothing: what it needs is not there, and it only says why."""
        return self.step.cost(self.depth).seconds > 0


@dataclass(frozen=True)
class Plan:
    """``steps`` in order; what is left out or shortened, with the reason that the result will carry."""

    steps: tuple[Planned, ...]
    left_out: tuple[ScopeEntry, ...] = ()
    shortened: tuple[ScopeEntry, ...] = ()

    @property
    def seconds(self) -> float:
        """Planned wall clock of one look at everything, facts included."""
        return wall_clock(self.steps)

    @property
    def aside(self) -> tuple[Planned, ...]:
        """The steps whose first look runs beside the GPUs' loads."""
        return aside(self.steps)

    @property
    def tools(self) -> tuple[str, ...]:
        """The trade's own tools that are asked too."""
        return tuple(sorted({tool for p in self.steps for tool in p.tools}))

    @property
    def no_time_for(self) -> tuple[str, ...]:
        """Those that are on the machine and are not asked: a short look has no time for any."""
        return tuple(sorted({t for p in self.steps if p.can_run for t in p.step.tools} - set(self.tools)))

    @property
    def written(self) -> int:
        """Bytes written to disks at most."""
        return sum(p.cost.written for p in self.steps)

    @property
    def sent(self) -> int:
        """Bytes of network traffic at most."""
        return sum(p.cost.sent for p in self.steps)


def aside(steps: Sequence[Planned]) -> tuple[Planned, ...]:
    """Short looks at the network run beside the loads of GPUs, which do not use it; all else runs alone.

    A short look proves nothing, so that little is lost where the two meet after all; what came out short is looked
    at again alone before it counts.
    """
    if not any(p.step.load == "gpu" and p.can_run for p in steps):
        return ()
    return tuple(p for p in steps if p.step.load == "network" and p.depth == "quick" and p.can_run)


def wall_clock(steps: Sequence[Planned]) -> float:
    """Seconds of one look at everything: facts, what runs alone, and the longer of what runs side by side."""
    beside = aside(steps)
    seconds = [p.cost.seconds for p in steps if p not in beside]
    gpus = sum(p.cost.seconds for p in steps if p.step.load == "gpu")
    return FACTS_S + sum(seconds) + max(0.0, sum(p.cost.seconds for p in beside) - gpus)


@dataclass(frozen=True)
class Selection:
    """The clauses that are looked at, and the others with the reason why not."""

    asked: tuple[Clause, ...]
    left_out: tuple[ScopeEntry, ...] = field(default_factory=tuple)


def matches(key: str, patterns: Iterable[str]) -> bool:
    """Whether a clause key is meant by ``cpu``, ``disk[/data]``, ``disk.read`` (of every entry) or a glob."""
    family = key.split(".", 1)[0].split("[", 1)[0]
    of_all = f"{family}.{key.rpartition('].')[2]}" if "]." in key else key
    entry = key.split("].", 1)[0] + "]" if "]." in key else key.split(".", 1)[0]
    return any(p in (key, family, entry, of_all) or fnmatchcase(key, p) for p in patterns)


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
        # What judges nothing makes no announced half hour longer; a run that is longer anyway has time for it.
        within = HALF_HOUR_S if options.profile == "standard" and wall_clock(planned) <= HALF_HOUR_S else math.inf
        return Plan(tuple(_with_tools(planned, within)), shortened=tuple(entries))
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
    """Shorten what saves most, then leave out what tells least: with little time, every kind of promise is touched.

    The trade's own tools get what time is left: they judge nothing.
    """
    whole = {p.step.name: p for p in planned}
    left: list[ScopeEntry] = []
    while wall_clock(planned) > budget_s and any(p.depth != "quick" for p in planned):
        worst = max((p for p in planned if p.depth != "quick"), key=_saving)
        planned[planned.index(worst)] = Planned(worst.step, "quick")
    while wall_clock(planned) > budget_s and any(p.can_run for p in planned):
        worst = _least_told(planned)
        planned.remove(worst)
        left += [ScopeEntry(k, msg("left out to fit --budget")) for k in worst.step.keys]
    for i, short in enumerate(planned):
        fuller = [*planned[:i], whole[short.step.name], *planned[i + 1 :]]
        if wall_clock(fuller) <= budget_s:
            planned = fuller
    now = {p.step.name: p for p in planned if p.depth != whole[p.step.name].depth}
    shortened += [ScopeEntry(k, msg("shortened to fit --budget")) for p in now.values() for k in p.step.keys]
    gone = {e.key for e in left}
    told = _with_tools(planned, budget_s)
    return Plan(tuple(told), tuple(left), tuple(e for e in shortened if e.key not in gone))


def _with_tools(planned: Sequence[Planned], within_s: float) -> Sequence[Planned]:
    """With as many of the trade's own tools as fit, the quickest first."""
    deep = [p for p in planned if p.depth != "quick" and p.can_run]
    offers = sorted((seconds, p.step.name, tool) for p in deep for tool, seconds in p.step.tools.items())
    for _, name, tool in offers:
        more = [replace(p, tools=p.tools | {tool}) if p.step.name == name else p for p in planned]
        if wall_clock(more) <= within_s:
            planned = more
    return planned


def _least_told(planned: Sequence[Planned]) -> Planned:
    """Whose time tells least: first of several of one kind (a second type of number, a second host), then of all.

    Of those the one whose absence saves the most seconds for each promise that it looks at.
    """
    saved = {p.step.name: wall_clock(planned) - wall_clock([q for q in planned if q is not p]) for p in planned}
    able = [p for p in planned if saved[p.step.name] > 0]
    kinds = [_kind(p.step) for p in planned if p.can_run]
    doubled = [p for p in able if kinds.count(_kind(p.step)) > 1]
    return max(doubled or able, key=lambda p: saved[p.step.name] / max(1, len(_clauses(p.step))))


def _kind(step: Step) -> str:
    return step.name.split(".", 1)[0].split("[", 1)[0]


def _clauses(step: Step) -> set[str]:
    return {key.partition("@")[0] for key in step.keys}


def _saving(planned: Planned) -> float:
    return planned.cost.seconds - planned.step.cost("quick").seconds
