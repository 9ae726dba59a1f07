"""The ``reach`` clauses: addresses that must answer from the node; the value is the address."""

from __future__ import annotations

from agent.grammar import Section, endpoint

GRAMMAR = Section(clauses={"reach": endpoint()}, bare="reach", each=True)
