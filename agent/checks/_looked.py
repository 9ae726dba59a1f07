"""What one look at the GPUs found without being asked. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

from agent.checks._api import Case
from agent.model import Severity
from agent.reading import Missing
from agent.text import Text


@dataclass(frozen=True)
class Bad:
    """One thing that is not as it should be; ``slot`` None where it is the machine's."""

    slot: Optional[str]
    code: str
    reason: Text
    evidence: tuple[str, ...] = ()
    severity: Severity = "advisory"
    measured: Any = None


@dataclass(frozen=True)
class Looked:
    """What one look found; ``unknown`` says why it could not look, ``fine`` what is true where nothing is bad."""

    bad: tuple[Bad, ...] = ()
    fine: Optional[Text] = None
    unknown: Optional[Missing] = None
    evidence: tuple[str, ...] = ()


def asked(case: Case, key: str) -> bool:
    """Whether the contract has this clause, which then decides in the place of a look."""
    return any(c.key == key for c in case.contract.clauses)


def cited(reading: Any) -> tuple[str, ...]:
    """The evidence of a reading, where there is one."""
    return tuple(reading.evidence) if reading is not None else ()
