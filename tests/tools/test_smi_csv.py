"""What the CSV must say beyond the fixtures, and the facts of the corpus."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.tools import ParseError, smi_csv
from tests.tools.nvidia import attempt, corpus, cut_readings, fixture, survives


def test_damaged_text_is_read_or_refused() -> None:
    survives(smi_csv)


@given(st.text(alphabet="0123456789 ,.[]\nNA/MiBWUnknowErr", max_size=200))
def test_arbitrary_rows_are_read_or_refused(text: str) -> None:
    got = attempt(smi_csv.parse, "index, memory.total [MiB], power.draw [W]\n" + text)
    assert got is None or (all(set(gpu) == {"index", "memory.total", "power.draw"} for gpu in got.gpus))


def test_the_caller_names_columns_without_header() -> None:
    columns = ("index", "name", "memory.total", "memory.used", "power.limit", "power.draw")
    got = smi_csv.parse(fixture("smi-csv--rows-noheader-h100"), columns)
    assert [gpu["memory.used"] for gpu in got.gpus] == [1, 1, 73211]
    assert got.units["memory.total"] == "MiB"
    with pytest.raises(ParseError):
        smi_csv.parse(fixture("smi-csv--rows-noheader-h100"), columns[:-1])


def test_a_cut_inside_a_line_never_gives_another_row() -> None:
    for name in ("na-variants", "all-fields-form", "lost-gpu-line-first"):
        text = fixture(f"smi-csv--{name}")
        whole = smi_csv.parse(text).gpus
        for cut, _ in cut_readings(smi_csv, text, count=1000):
            got = smi_csv.parse(cut).gpus
            assert got == whole[: len(got)], cut[-60:]


def test_units_that_contradict_the_header_are_refused() -> None:
    with pytest.raises(ParseError) as caught:
        smi_csv.parse("index, memory.total [MiB]\n0, 80 W\n")
    assert caught.value.kind == "unparsable"


def test_missing_is_never_zero() -> None:
    unreadable = [v for gpu in smi_csv.parse(fixture("smi-csv--na-variants")).gpus for v in gpu.values()]
    assert 0.0 not in [v for v in unreadable if isinstance(v, float)]


def test_every_corpus_table() -> None:
    read = 0
    for case, (facts, text) in corpus("smi_csv").items():
        got = smi_csv.parse(text)
        columns = re.match(r"columns=(\d+)/", facts)
        if columns is None:
            continue
        assert len(got.columns) == int(columns[1]), case
        for fact in facts.split("; ")[1:]:
            name, _, want = fact.partition("=")
            value = got.gpus[0][name.split(" [")[0]]
            number = re.match(r"\d+(\.\d+)?(?= (MiB|W|MHz)$|$)", want)
            assert value == (None if want == "[N/A]" else float(number[0]) if number else want), (case, fact)
        read += 1
    assert read >= 5


def test_a_long_foreign_text_is_refused_at_once() -> None:
    line = "[12345.678901] usb 1-1: new high-speed USB device number 2 using xhci_hcd\n"
    started = time.monotonic()
    assert attempt(smi_csv.parse, line * 400_000) is None
    assert time.monotonic() - started < 15
    log = "timestamp, index, power.draw [W]\n" + "2026/01/02 03:04:05.000, 0, 61.20 W\n" * 5000
    assert attempt(smi_csv.parse, log.replace(", index", "").replace(", 0,", ",")) is not None
