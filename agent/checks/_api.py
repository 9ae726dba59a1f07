"""What a check module may hold, and what its judge is given.

A module ``agent/checks/<family>.py`` is named like its key in the contract and holds

* ``GRAMMAR``: the :class:`agent.grammar.Section` of the family;
* ``FACTS``: names of the modules in ``agent.facts`` whose readings it judges;
* ``FACTS_OF``: further ones by clause name, read only where that clause is asked;
* ``steps(clauses, case)``: the measurements it needs, built from ``agent.bench``;
* ``judge(clauses, case)``: findings, a pure function;
* ``NEEDS_ROOT`` and ``HIDDEN`` (access kind → …): clause names that only root can see, or that a container or a
  guest hides, each with what the vendor must grant; named before money is paid.

A family without ``judge`` is accepted in contracts and found ``inconclusive: unsupported in this version``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Optional, Protocol

from agent.bench.step import Step
from agent.model import Access, Clause, Contract, Finding, Measured, Profile
from agent.text import Text


@dataclass(frozen=True)
class Case:
    """All that a judge knows: the contract, the facts by module name, and what was measured by key."""

    contract: Contract
    facts: Mapping[str, Any] = field(default_factory=dict)
    measured: Measured = field(default_factory=dict)
    profile: Profile = "standard"


def blind(clause: Clause, module: ModuleType, access: Access) -> Optional[Text]:
    """What would have to be granted to verify a clause that this access hides; None where it can be seen."""
    needs_root: Mapping[str, Text] = getattr(module, "NEEDS_ROOT", {})
    if access.root is False and clause.name in needs_root:
        return needs_root[clause.name]
    hidden: Mapping[str, Mapping[str, Text]] = getattr(module, "HIDDEN", {})
    return hidden.get(access.kind or "", {}).get(clause.name)


class Judge(Protocol):
    """``judge`` of a check module."""

    def __call__(self, clauses: Sequence[Clause], case: Case) -> Iterable[Finding]: ...


class Steps(Protocol):
    """``steps`` of a check module."""

    def __call__(self, clauses: Sequence[Clause], case: Case) -> Iterable[Step]: ...
