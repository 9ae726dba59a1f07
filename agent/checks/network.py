"""The ``network`` clauses: one entry a network, by a name of the renter's own."""

from __future__ import annotations

from agent.grammar import Section, count, flag, interface, label, list_of, percent, rate, server

GRAMMAR = Section(
    clauses={
        "download": rate(),
        "upload": rate(),
        "dedicated": flag(),
        "evening_drop": percent(),
        "speed": rate(measured=False),
        "mtu": count("at_least"),
    },
    settings={"name": label(), "servers": list_of(server()), "interface": interface()},
    many="name",
)
