"""A far end that is this machine itself measures its memory, not a network: such an attempt neither keeps nor breaks.

A line in /etc/hosts is enough to make somebody's name an address of this machine.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Optional

from agent.bench.endpoints import address_of, this_machine
from agent.checks._api import Case
from agent.model import Attempt, Measurement, Void
from agent.reading import Known
from agent.text import Text, msg

CODE = "own-address"
FACTS = ("network",)


def is_own(address: Optional[str], case: Case) -> bool:
    """Whether packets to this address stay here: loopback, or an address of an interface of this machine."""
    found = address_of((address or "").partition("%")[0])
    if found is None:
        return False
    if found.is_loopback or found.is_unspecified:
        return True
    listed = getattr(case.facts.get("network"), "addresses", None)
    mine = [a for rows in listed.value.values() for a in rows] if isinstance(listed, Known) else []
    return found in {address_of(a.partition("%")[0]) for a in mine}


def why(address: str) -> Text:
    """The sentence for it."""
    return msg(
        "{address} is this machine itself: nothing went over a network. Name a far end elsewhere, and look into "
        "/etc/hosts if you did",
        address=address,
    )


def aside(case: Case, key: str) -> Case:
    """The case with the attempts at ``key`` that went to this machine itself set aside."""
    taken = case.measured.get(key)
    if not isinstance(taken, Measurement):
        return case
    attempts = tuple(_aside(a, case) for a in taken.attempts)
    return replace(case, measured={**case.measured, key: replace(taken, attempts=attempts)})


def _aside(attempt: Attempt, case: Case) -> Attempt:
    address = next((str(a) for block in attempt.blocks if (a := _address(block.conditions))), None)
    if attempt.void is not None or address is None:
        return attempt
    # The kernel speaks to itself from the very address: it shows also where the addresses could not be listed.
    if not is_own(address, case) and not any(this_machine(address, b.conditions.get("local")) for b in attempt.blocks):
        return attempt
    return replace(attempt, void=Void(CODE, why(address)))


def _address(conditions: Any) -> Any:
    """A proxy may well run here: its address says nothing about the far end."""
    return None if conditions.get("proxy") else conditions.get("address")
