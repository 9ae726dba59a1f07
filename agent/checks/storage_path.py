"""The ``storage_path`` clauses: the way between GPUs and NVMe devices."""

from __future__ import annotations

from agent.grammar import Section, distance, flag

GRAMMAR = Section(clauses={"gpudirect": flag(), "gpu_nvme": distance()})
