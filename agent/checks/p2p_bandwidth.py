"""The ``p2p_bandwidth`` clauses: copies between each pair of GPUs."""

from __future__ import annotations

from agent.grammar import Section, rate

GRAMMAR = Section(clauses={"p2p_bandwidth": rate(auto=True)}, bare="p2p_bandwidth")
