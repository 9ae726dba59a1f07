"""Every promise has a name in words: a key of YAML is no heading for somebody who reads none."""

from __future__ import annotations

from agent.checks import _integrity_gpu, grammars
from agent.report.names import title


def test_every_clause_has_a_name() -> None:
    keys = [
        family if name == section.bare else f"{family}.{name}"
        for family, section in grammars().items()
        for name in section.clauses
    ]
    assert len(keys) > 90
    assert [key for key in keys if title(key, str) == key] == []


def test_every_look_at_the_gpus_has_a_name() -> None:
    keys = [f"integrity.{name}" for name in _integrity_gpu.LOOKS]
    assert [key for key in keys if title(key, str) == key] == []


def test_an_entry_stands_with_its_name() -> None:
    assert title("disk[/data].read", str) == "Disk, sequential read: /data"
    assert title("x-own.thing", str) == "x-own.thing"
