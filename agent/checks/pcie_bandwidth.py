"""The ``pcie_bandwidth`` clauses: copies between host and device, each GPU."""

from __future__ import annotations

from agent.grammar import Section, rate

GRAMMAR = Section(clauses={"h2d": rate(auto=True), "d2h": rate(auto=True)})
