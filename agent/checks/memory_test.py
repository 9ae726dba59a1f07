"""The ``memory_test`` clauses: share of the promised device memory that is written and verified."""

from __future__ import annotations

from agent.grammar import Section, percent

GRAMMAR = Section(clauses={"memory_test": percent("at_least")}, bare="memory_test")
