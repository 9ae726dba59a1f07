"""The ``download`` clauses: one entry a URL; how fast it arrives."""

from __future__ import annotations

from agent.grammar import Section, rate, url

GRAMMAR = Section(clauses={"rate": rate()}, settings={"url": url()}, many="url")
