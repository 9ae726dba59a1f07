"""The ``ping`` clauses: one entry a host; round trips."""

from __future__ import annotations

from agent.grammar import Section, duration, host, percent

GRAMMAR = Section(
    clauses={"latency": duration(), "loss": percent(), "jitter": duration()},
    settings={"host": host()},
    many="host",
)
