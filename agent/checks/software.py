"""The ``software`` clauses: what is installed and allowed; ``python_path`` is the interpreter to look into."""

from __future__ import annotations

from agent.grammar import Section, count, flag, os_release, size, text, version
from agent.text import msg

GRAMMAR = Section(
    clauses={
        "os": os_release(),
        "kernel": version(),
        "python": version("equal"),
        "torch": version("equal"),
        "cuda_toolkit": version("equal"),
        "nccl": version(),
        "docker": flag(),
        "nvidia_container_toolkit": flag(),
        "shm": size(),
        "memlock": size(words={"unlimited": "unlimited", "不限": "unlimited"}),
        "nofile": count("at_least", words={"unlimited": "unlimited", "不限": "unlimited"}),
    },
    settings={"python_path": text(msg("a path such as {example}", example="/opt/conda/bin/python"), r"[^\\s-].*")},
)
