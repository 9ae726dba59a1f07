"""What a check module may hold, and what its judge is given.

A module ``agent/checks/<family>.py`` is named like its key in the contract and holds

* ``GRAMMAR``: the :class:`agent.grammar.Section` of the family;
* ``FACTS``: names of the modules in ``agent.facts`` whose readings it judges;
* ``steps(clauses, case)``: the measurements it needs, built from ``agent.bench``;
* ``judge(clauses, case)``: findings, a pure function.

A family without ``judge`` is accepted in contracts and found ``inconclusive: unsupported in this version``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from agent.bench.step import Step
from agent.model import Clause, Contract, Finding, Measured, Profile


@dataclass(frozen=True)
class Case:
    """All that a judge knows: the contract, the facts by module name, and what was measured by key."""

    contract: Contract
    facts: Mapping[str, Any] = field(default_factory=dict)
    measured: Measured = field(default_factory=dict)
    profile: Profile = "standard"


class Judge(Protocol):
    """``judge`` of a check module."""

    def __call__(self, clauses: Sequence[Clause], case: Case) -> Iterable[Finding]: ...


class Steps(Protocol):
    """``steps`` of a check module."""

    def __call__(self, clauses: Sequence[Clause], case: Case) -> Iterable[Step]: ...
