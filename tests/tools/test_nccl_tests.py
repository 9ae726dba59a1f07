"""What a nccl-tests table must say beyond the fixtures, and the facts of the corpus."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.tools import ParseError, nccl_tests
from tests.tools.nvidia import attempt, corpus, cut_readings, fixture, survives


def test_damaged_text_is_read_or_refused() -> None:
    survives(nccl_tests)


@given(st.text(alphabet="0123456789 .#NA/float sum-\n[]", max_size=300))
def test_arbitrary_rows_are_read_or_refused(text: str) -> None:
    attempt(nccl_tests.parse, fixture("nccl-tests--no-row") + text)


def test_an_unfinished_run_has_rows_and_no_summary() -> None:
    text = fixture("nccl-tests--info-line-inside")
    whole = nccl_tests.parse(text)
    for cut, _ in cut_readings(nccl_tests, text, count=3000):
        got = nccl_tests.parse(cut)
        assert got.rows == whole.rows[: len(got.rows)]
        assert got.avg_busbw is None or got.rows == whole.rows


def test_a_row_of_another_width_is_no_row() -> None:
    text = fixture("nccl-tests--info-line-inside")
    shorter = text.replace("float     sum      -1    237.1", "float     none  0    237.1 ".replace("none  0", "0"))
    assert [row.bytes for row in nccl_tests.parse(shorter).rows] == [67108864]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("node-a: Test NCCL failure common.cu:958 'unhandled cuda error / '", "nccl_error"),
        ("node-a: Test CUDA failure common.cu:892 'out of memory'", "cuda_error"),
        (" .. node-a pid 776691: Test failure common.cu:1161", "test_failed"),
        ("There are not enough slots available in the system to satisfy the 16", "mpi_error"),
    ],
)
def test_failures_have_names(line: str, kind: str) -> None:
    with pytest.raises(ParseError) as caught:
        nccl_tests.parse(fixture("nccl-tests--no-row") + line + "\n")
    assert caught.value.kind == kind


def test_every_corpus_run() -> None:
    read = 0
    for case, (facts, text) in corpus("nccltests").items():
        got = nccl_tests.parse(text)
        rows = re.search(r"rows=(\d+)|(\d+) readable rows", facts)
        assert rows, case
        assert len(got.rows) == int(rows[1] or rows[2]), case
        average = re.search(r"avg busbw=([\d.]+|absent)", facts)
        assert average, case
        assert got.avg_busbw == (None if average[1] == "absent" else float(average[1])), case
        bounds = re.search(r"out of bounds=(\d+|absent)", facts)
        assert bounds, case
        assert got.out_of_bounds == (None if bounds[1] == "absent" else int(bounds[1])), case
        last = re.search(r"(?:last )?size=(\d+) out-of-place busbw=([\d.]+) in-place busbw=([\d.]+)", facts)
        if last:
            row = got.rows[-1]
            want = (int(last[1]), float(last[2]), float(last[3]))
            assert (row.bytes, row.busbw_out, row.busbw_in) == want, case
        if "not checked" in facts:
            assert {row.wrong_out for row in got.rows} == {None}, case
        read += 1
    assert read >= 8
