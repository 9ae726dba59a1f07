"""What changed between two runs, beyond noise. Works on results only; pure.

A measurement changed when its blocks differ by more than blocks and runs of one healthy machine do: Welch's t on
logarithms, with the run-to-run spread added, corrected by Holm over all measurements that are compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Any, Optional

from agent.model import Finding, Measurement, Outcome, Run
from agent.quantity import format_quantity
from agent.stats import t_within

SIGNIFICANCE = 0.05
# What one machine differs by from run to run with nothing changed, as a standard deviation of the logarithm.
# A tenth above what is usual for device rates (1 %), so that Holm's 5 % hold where a machine is a little worse.
RUN_TO_RUN = {"median of block medians": 0.011}
MANY = 200  # degrees of freedom: nearly the normal distribution
RUN_TO_RUN_DEFAULT = 0.03  # disks, networks, latencies


@dataclass(frozen=True)
class Change:
    """One measurement in both runs; ``p`` is already corrected by Holm.

    ``relative`` is after / before − 1, None where it was nothing before and is something now.
    """

    key: str
    unit: str
    before: float
    after: float
    relative: Optional[float]
    p: float

    @property
    def beyond_noise(self) -> bool:
        return self.p < SIGNIFICANCE


@dataclass(frozen=True)
class Difference:
    """A fact that is not the same: ``where`` is a path such as ``node.gpus[0000:1b:00.0].uuid``."""

    where: str
    before: Any
    after: Any


@dataclass(frozen=True)
class Turn:
    """A finding whose outcome is another one, or that is only in one of the runs (None)."""

    id: str
    before: Optional[Outcome]
    after: Optional[Outcome]
    reason: Optional[Finding]


@dataclass(frozen=True)
class Comparison:
    """``parts`` are differences in what the machine is made of, ``facts`` those of versions and judged facts.

    ``left_out``: ids that one of the runs was told not to look at, which is no change of the machine. ``redacted``:
    whether names of the one and of the other stand for others; then ``same_machine`` is None, as it cannot be told.
    """

    same_contract: bool
    same_machine: Optional[bool]
    parts: tuple[Difference, ...]
    facts: tuple[Difference, ...]
    changes: tuple[Change, ...]
    turns: tuple[Turn, ...]
    left_out: tuple[str, ...] = ()
    redacted: tuple[bool, bool] = (False, False)

    @property
    def changed(self) -> bool:
        """Whether anything differs beyond noise."""
        return bool(self.parts or self.facts or self.turns or any(c.beyond_noise for c in self.changes))

    @property
    def comparable(self) -> bool:
        """Two runs that have nothing in common cannot be compared, nor names with what stands for them."""
        return self.redacted[0] == self.redacted[1] and (self.same_contract or bool(self.changes))


# Parts that make a machine the one it is; the rest (kernel, OS, host name) may change on the same machine.
PARTS = ("identity", "gpus", "cpu", "memory", "disks", "network", "product")
ANSWERS = ".answers"  # of a card that is there and silent: a fact, no exchange of parts
# What stands for something else in a redacted run, by the order in which it was met: equal in two runs of two machines.
NAMES = ("identity", "hostname", "network", "uuid", "serial")


def compare(before: Run, after: Run, redacted: tuple[bool, bool] = (False, False)) -> Comparison:
    """Everything that differs from ``before`` to ``after``. ``redacted``: which of them is a redacted copy."""
    one, two = (_nameless(run.node) if any(redacted) else run.node for run in (before, after))
    one, two = _with_silent(one, two), _with_silent(two, one)
    found = tuple(_differences("node", _only(one, PARTS), _only(two, PARTS)))
    parts = tuple(d for d in found if not d.where.endswith(ANSWERS))
    silent = (d for d in found if d.where.endswith(ANSWERS))
    rest = (*silent, *_differences("node", _without(one, PARTS), _without(two, PARTS)))
    turns = tuple(_turns(before.findings, after.findings))
    aside = _left_out(before) | _left_out(after)
    # A version that one of the runs did not ask for has not changed.
    known = [name for name in before.stack if before.stack[name] and after.stack.get(name)]
    versions = _differences("stack", _only(before.stack, known), _only(after.stack, known))
    facts = (*rest, *versions, *_judged_facts(before, after))
    return Comparison(
        same_contract=before.contract_sha256 == after.contract_sha256,
        same_machine=None if any(redacted) else not parts,
        parts=parts,
        facts=tuple(facts),
        changes=changes(before.measurements, after.measurements),
        turns=tuple(t for t in turns if t.id not in aside),
        left_out=tuple(t.id for t in turns if t.id in aside),
        redacted=redacted,
    )


def _with_silent(node: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """What a card that does not answer told in the other run stands for it: it is silent, not exchanged."""
    gpus = [g for g in node.get("gpus") or () if isinstance(g, Mapping)]
    if not any(g.get("answers") is False for g in gpus):
        return dict(node)
    told = {g.get("slot"): g for g in other.get("gpus") or () if isinstance(g, Mapping)}
    known = [{k: told.get(g.get("slot"), {}).get(k) if v is None else v for k, v in g.items()} for g in gpus]
    return {**node, "gpus": known}


def _nameless(node: Any) -> Any:
    if isinstance(node, Mapping):
        return {k: _nameless(v) for k, v in node.items() if k not in NAMES}
    return [_nameless(v) for v in node] if isinstance(node, (list, tuple)) else node


def _only(node: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {k: v for k, v in node.items() if k in keys}


def _without(node: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {k: v for k, v in node.items() if k not in keys}


def _differences(where: str, before: Any, after: Any) -> Iterable[Difference]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys((*before, *after)):
            yield from _differences(f"{where}.{key}", before.get(key), after.get(key))
    elif isinstance(before, (list, tuple)) and isinstance(after, (list, tuple)):
        first, second = _by_name(before), _by_name(after)
        for name in dict.fromkeys((*first, *second)):
            yield from _differences(f"{where}[{name}]", first.get(name), second.get(name))
    elif before != after:
        yield Difference(where, before, after)


def _by_name(items: Sequence[Any]) -> dict[str, Any]:
    """GPUs by slot, disks and interfaces by name: a swap must show as one, not as a shifted list."""
    named = {}
    for number, item in enumerate(items):
        key = (item.get("slot") or item.get("name")) if isinstance(item, Mapping) else None
        named[str(key if key is not None else number)] = item
    return named


def _judged_facts(before: Run, after: Run) -> Iterable[Difference]:
    first, second = _facts_of(before), _facts_of(after)
    for key in first:
        if key in second and first[key] != second[key]:
            yield Difference(key, first[key], second[key])


def _facts_of(run: Run) -> dict[str, Any]:
    """What was found for clauses that no load decides; integrity's numbers breathe and are no facts."""
    judged = (f for f in run.findings if not f.measurements and not f.clause.startswith("integrity."))
    return {f.id: _with_unit(f) for f in judged if f.measured is not None}


def _with_unit(f: Finding) -> Any:
    """A finding has the unit its contract uses: 25 GB and 0.025 TB are one size, written the same way here."""
    if not f.unit or isinstance(f.measured, bool) or not isinstance(f.measured, (int, float)):
        return f.measured
    return format_quantity(f.measured, f.unit)


def _left_out(run: Run) -> set[str]:
    return {f.id for f in run.findings if f.reason_code == "left-out"}


def _turns(before: Sequence[Finding], after: Sequence[Finding]) -> Iterable[Turn]:
    first, second = {f.id: f for f in before}, {f.id: f for f in after}
    for key in dict.fromkeys((*first, *second)):
        one, two = first.get(key), second.get(key)
        outcomes = (one.outcome if one else None, two.outcome if two else None)
        if outcomes[0] != outcomes[1]:
            yield Turn(key, *outcomes, two or one)


def changes(before: Sequence[Measurement], after: Sequence[Measurement]) -> tuple[Change, ...]:
    """Every measurement that both runs took in the same way, in the order of its key, with Holm's correction."""
    first = {m.key: m for m in before}
    pairs = [(first[m.key], m) for m in after if m.key in first and _alike(first[m.key], m)]
    raw = [c for c in (_change(a, b) for a, b in pairs) if c is not None]
    adjusted = holm([c.p for c in raw])
    corrected = [Change(c.key, c.unit, c.before, c.after, c.relative, p) for c, p in zip(raw, adjusted)]
    return tuple(sorted(corrected, key=lambda c: c.key))


def _alike(one: Measurement, two: Measurement) -> bool:
    return (one.unit, one.statistic) == (two.unit, two.statistic)


def _change(one: Measurement, two: Measurement) -> Optional[Change]:
    first, second = _values(one), _values(two)
    if not first or not second:
        return None
    before, after = fmean(first), fmean(second)
    if one.statistic == "share of trials":
        return Change(one.key, one.unit, before, after, _relative(before, after), _p_of_shares(one, two))
    if min(*first, *second) <= 0:
        return None  # no logarithm: nothing was transferred, which the findings tell
    p = _p_of_rates(first, second, RUN_TO_RUN.get(one.statistic, RUN_TO_RUN_DEFAULT))
    return Change(one.key, one.unit, before, after, _relative(before, after), p)


def _relative(before: float, after: float) -> Optional[float]:
    return after / before - 1 if before else (0.0 if after == before else None)


def _values(measurement: Measurement) -> list[float]:
    return [b.value for a in measurement.attempts if a.void is None for b in a.blocks]


def _p_of_rates(first: Sequence[float], second: Sequence[float], run_to_run: float) -> float:
    one, two = [math.log(v) for v in first], [math.log(v) for v in second]
    spread = [(variance(v) if len(v) > 1 else run_to_run**2) / len(v) for v in (one, two)]
    error = math.sqrt(sum(spread) + 2 * run_to_run**2)
    # Welch-Satterthwaite: what the blocks' own spread adds is estimated from few, the run-to-run part is stated.
    uncertain = sum(s**2 / (len(v) - 1) for s, v in zip(spread, (one, two)) if len(v) > 1)
    degrees = min(MANY, math.floor(error**4 / uncertain)) if uncertain > 0 else MANY
    return 1.0 - t_within(abs(fmean(one) - fmean(two)) / error, degrees)


def _p_of_shares(one: Measurement, two: Measurement) -> float:
    """Two shares of trials: the normal test of their difference with the pooled share."""
    bad, trials = zip(*(_counted(m) for m in (one, two)))
    pooled = sum(bad) / sum(trials)
    if pooled in (0, 1):
        return 1.0
    error = math.sqrt(pooled * (1 - pooled) * (1 / trials[0] + 1 / trials[1]))
    return math.erfc(abs(bad[0] / trials[0] - bad[1] / trials[1]) / error / math.sqrt(2))


def _counted(measurement: Measurement) -> tuple[float, float]:
    conditions = [b.conditions for a in measurement.attempts if a.void is None for b in a.blocks]
    return sum(c["count"] for c in conditions), sum(c["trials"] for c in conditions)


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's step-down correction: the chance of one false alarm among all stays below the significance."""
    order = sorted(range(len(ps)), key=lambda i: ps[i])
    adjusted = [1.0] * len(ps)
    highest = 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(ps) - rank) * ps[index]))
        adjusted[index] = highest
    return adjusted
