"""The ``memory_bandwidth`` clauses: triad in device memory, read and write counted, each GPU."""

from __future__ import annotations

from agent.grammar import Section, rate

GRAMMAR = Section(clauses={"memory_bandwidth": rate(auto=True)}, bare="memory_bandwidth")
