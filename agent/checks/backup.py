"""The ``backup`` clauses: one entry a target; how fast an upload goes."""

from __future__ import annotations

from agent.grammar import Section, rate, url

GRAMMAR = Section(clauses={"rate": rate()}, settings={"url": url(), "endpoint": url()}, many="url")
