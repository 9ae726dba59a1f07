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


def test_a_row_of_another_width_is_no_row_and_a_finished_test_misses_none() -> None:
    text = fixture("nccl-tests--info-line-inside")
    shorter = text.replace("float     sum      -1    237.1", "float     0    237.1 ")
    with pytest.raises(ParseError, match="a row that cannot be read"):
        nccl_tests.parse(shorter)
    unfinished = "".join(line for line in shorter.splitlines(keepends=True) if not re.match(r"# (?:Out|Avg)", line))
    got = nccl_tests.parse(unfinished)
    assert [row.bytes for row in got.rows] == [67108864]
    assert (got.avg_busbw, got.out_of_bounds) == (None, None)


TABLE = """\
# nccl-tests version 2.17.6 nccl-headers=22807 nccl-library=22807
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 1048576 maxBytes 2097152 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1    41.70   25.15   44.01      0    41.22   25.44   44.52      0
     2097152        524288     float     sum      -1    52.31   40.09   70.16      0    51.97   40.35   70.62      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 57.3275
#
# Collective test concluded: all_reduce_perf
"""


@pytest.mark.parametrize(
    "prefix",
    [
        "[1,0]<stdout>:",
        "[1,0]<stdout>: ",
        "0: ",
        "gpu-07.example: ",
        "[pod/allreduce-launcher-x7k2p/launcher] ",
        "2026-03-04T05:06:07.123456789Z ",
        "2026-03-04T05:06:07Z [1,0]<stdout>:",
    ],
)
def test_what_launchers_put_before_each_line_changes_nothing(prefix: str) -> None:
    labelled = "".join(prefix + line for line in TABLE.splitlines(keepends=True))
    assert nccl_tests.parse(labelled) == nccl_tests.parse(TABLE)
    assert [row.busbw_out for row in nccl_tests.parse(TABLE).rows] == [44.01, 70.16]


def test_two_tables_are_no_result_even_where_one_did_not_finish() -> None:
    rows_only = TABLE.partition("# Out of bounds")[0]
    with pytest.raises(ParseError) as caught:
        nccl_tests.parse(rows_only + TABLE)
    assert caught.value.kind == "several_results"


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("node-a: Test NCCL failure common.cu:958 'unhandled cuda error / '", "nccl_error"),
        ("node-a: Test CUDA failure common.cu:892 'out of memory'", "cuda_error"),
        (" .. node-a pid 776691: Test failure common.cu:1161", "test_failed"),
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
