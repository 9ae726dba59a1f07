"""Damaged text never gives anything but a result or a ParseError; cut text never gives another number."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.tools import parsers
from tests.tools.fuzz import cases, foreign_numbers, mutations, outcome, read_case, truncations

KINDS = sorted(parsers())
CASES = [path for kind in KINDS for path in cases(kind)]
# A count of what was seen is smaller in a shorter text, honestly so: lines, sections, devices.
COUNTS_WHAT_IT_SAW = ("dmesg", "dmidecode")
# How a reading says that the text does not tell; and a count of links that were listed, on cards that differ in it.
UNTOLD = (None, False, "not_shown")
COUNTED = "total_links"
# One document or one summary: without its end there is no reading at all.
ENDS = ("fio", "iperf3", "mdstat", "ping", "smi-xml")


def kind_of(path: Path) -> str:
    return path.name.split("--")[0]


def is_part(part: Any, whole: Any) -> bool:
    """Whether a reading says nothing that the whole text's reading does not: less, unknown or the same."""
    if part in UNTOLD or part == whole:
        return True
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(key == COUNTED or (key in whole and is_part(value, whole[key])) for key, value in part.items())
    if isinstance(part, (list, tuple)) and isinstance(whole, (list, tuple)):
        rest = iter(whole)
        return all(any(is_part(item, candidate) for candidate in rest) for item in part)
    return False


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


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_a_text_cut_at_any_line_is_refused_or_says_less(path: Path) -> None:
    module = parsers()[kind_of(path)]
    text = read_case(path)
    whole = outcome(module, text)
    lines = text.splitlines(keepends=True)
    for end in range(len(lines)):
        got = outcome(module, "".join(lines[:end]))
        if whole is None or got is None or not "".join(lines[end:]).strip():
            continue
        assert kind_of(path) not in ENDS or got == whole, f"a reading from {end} of {len(lines)} lines"
        if kind_of(path) not in COUNTS_WHAT_IT_SAW:
            assert is_part(got, whole), f"{end} of {len(lines)} lines"


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
