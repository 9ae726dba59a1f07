"""The ``burn`` clauses: a load on all GPUs at once, for a stated time."""

from __future__ import annotations

from agent.grammar import Section, duration, percent, temperature

GRAMMAR = Section(
    clauses={
        "temperature": temperature(),
        "throttled": percent(),
        "power": percent("at_least"),
        "sag": percent(),
    },
    settings={"duration": duration("equal")},
    # the share of the power limit that a load draws is the card's business, not a fault
    advisory=frozenset({"power"}),
)
