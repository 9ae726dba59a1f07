"""The ``cpu`` clauses: processors: ``cores`` are physical, ``vcpus`` what scheduler and cgroup give."""

from __future__ import annotations

from agent.grammar import Section, count, model_name, percent

GRAMMAR = Section(
    clauses={
        "model": model_name(),
        "sockets": count(),
        "cores": count("at_least"),
        "vcpus": count("at_least"),
        "per_gpu": count("at_least"),
        "steal": percent(),
    },
)
