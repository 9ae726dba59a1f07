"""A value read from the machine, or the reason why there is none. Never 0, "" or False for "unknown"."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Literal, Optional, TypeVar, Union

from agent.text import Text

T = TypeVar("T")
U = TypeVar("U")

MissingKind = Literal[
    "no-tool",  # the program is not installed
    "denied",  # permission: root, a group, a capability
    "timeout",  # no answer within its deadline
    "failed",  # the tool ran and said it failed
    "unparsable",  # an answer that is not what it should be
    "not-there",  # the machine has no such thing (no such file, device, interface)
    "unsupported",  # this machine, driver or version cannot tell
    "not-recorded",  # judged from a recording that does not hold it
    "left-out",  # by an option of ours or the budget
    "void",  # measured, but the number cannot be true
    "disturbed",  # measured while something else used the machine
    "interrupted",
]


@dataclass(frozen=True)
class Known(Generic[T]):
    """A value and the evidence folders (relative to the run) that it was read from."""

    value: T
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True)
class Missing:
    """No value: why, and what would have to be granted or installed to get one."""

    kind: MissingKind
    detail: Text
    evidence: tuple[str, ...] = ()
    grant: Optional[Text] = None


Reading = Union[Known[T], Missing]


def fmap(function: Callable[[T], U], reading: Reading[T]) -> Reading[U]:
    """``function`` of a known value, keeping its evidence; a missing one stays missing."""
    if isinstance(reading, Missing):
        return reading
    return Known(function(reading.value), reading.evidence)
