"""Damaged text never gives anything but a result or a ParseError; cut text never gives another number."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.tools import parsers
from tests.tools.fuzz import cases, foreign_numbers, mutations, outcome, read_case, truncations

KINDS = ("fio", "iperf3", "dd", "ping", "lsblk", "mdstat", "smart", "dmidecode", "lspci", "dmesg")
CASES = [path for kind in KINDS for path in cases(kind)]
# A count of what was seen is smaller in a shorter text, honestly so: lines, sections, devices.
COUNTS_WHAT_IT_SAW = ("dmesg", "dmidecode")


def kind_of(path: Path) -> str:
    return path.name.split("--")[0]


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_has_good_and_bad_cases(kind: str) -> None:
    read = [outcome(parsers()[kind], read_case(path)) is not None for path in cases(kind)]
    assert any(read)
    assert not all(read)


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_damage(path: Path) -> None:
    module = parsers()[kind_of(path)]
    for text in mutations(read_case(path), seed=7, count=60):
        outcome(module, text)


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_cut_text_gives_no_other_number(path: Path) -> None:
    module = parsers()[kind_of(path)]
    text = read_case(path)
    if outcome(module, text) is None or kind_of(path) in COUNTS_WHAT_IT_SAW:
        for cut in truncations(text, seed=3, count=60):
            outcome(module, cut)
        return
    assert foreign_numbers(module, text) == []


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=400))
def test_any_text(kind: str, text: str) -> None:
    outcome(parsers()[kind], text)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_lines_of_real_output_in_any_order(kind: str, data: st.DataObject) -> None:
    lines = [line for path in cases(kind) for line in read_case(path).splitlines(keepends=True)][:300]
    outcome(parsers()[kind], "".join(data.draw(st.lists(st.sampled_from(lines), max_size=25))))


HUGE = 200_000
LONG = ("{" * HUGE, "a" + "{" * HUGE, "1 " + "a" * HUGE, "A" * HUGE, "[1/" * HUGE, "(" * HUGE, "9" * HUGE, "- " * HUGE)


@pytest.mark.parametrize("kind", KINDS)
def test_long_lines_take_no_long_time(kind: str) -> None:
    started = time.monotonic()
    for text in LONG:
        outcome(parsers()[kind], text)
    assert time.monotonic() - started < 20
