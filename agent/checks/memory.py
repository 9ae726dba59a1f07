"""The ``memory`` clauses: ``size`` is the smaller of host and cgroup, ``per_vram`` host over device memory."""

from __future__ import annotations

from agent.grammar import Section, rate, ratio, size

GRAMMAR = Section(clauses={"size": size(), "per_vram": ratio(), "bandwidth": rate()})
