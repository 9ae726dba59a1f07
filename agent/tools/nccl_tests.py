"""The table of nccl-tests (``all_reduce_perf`` and its siblings): sizes, times, bandwidths, wrong values.

Units as nccl-tests prints them: bytes, microseconds, GB/s (10^9). A run without its summary lines did not
finish: ``avg_busbw`` and ``out_of_bounds`` are then None, however many rows there are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from agent.tools import ParseError
from agent.tools._nvidia import complete
from agent.tools._text import clean, recognise
from agent.tools.smi_errors import find_failure, refuse

KIND = "nccl-tests"
ARGV = ("all_reduce_perf", "-b", "8", "-e", "8G", "-f", "2")
TIMEOUT_S = 600.0
_SIGN = re.compile(r"nThread|NCCL|_perf\b|busbw")


@dataclass(frozen=True)
class Row:
    """One message size. ``out`` is out of place, ``in`` in place; ``wrong`` is None where not checked."""

    bytes: int
    type: str
    op: Optional[str]
    time_us_out: Optional[float]
    algbw_out: Optional[float]
    busbw_out: Optional[float]
    wrong_out: Optional[int]
    time_us_in: Optional[float]
    algbw_in: Optional[float]
    busbw_in: Optional[float]
    wrong_in: Optional[int]


@dataclass(frozen=True)
class NcclTest:
    """All rows in order, and the two summary lines."""

    rows: tuple[Row, ...]
    avg_busbw: Optional[float]
    """GB/s over all sizes, small ones included: never the bandwidth of the machine."""
    out_of_bounds: Optional[int]
    """How many results were wrong; more than zero means that no bandwidth here counts."""


_FAILURES = (
    ("nccl_error", "NCCL failed inside the test", r"Test NCCL failure|NCCL (?:failure|error)\b"),
    ("cuda_error", "CUDA failed inside the test", r"Test CUDA failure|CUDA (?:failure|error)\b"),
    ("test_failed", "the test itself failed", r"Test failure\b|Test timeout\b"),
    ("usage", "nccl-tests refused its command line", r"^USAGE: \w+_perf\b|^invalid (?:size|value|option) specified"),
    (
        "mpi_error",
        "MPI could not start or run the ranks",
        r"not enough slots|MPI_ABORT|MPI_Init.{0,300}fail"
        r"|^(?:mpirun|mpiexec|prterun|srun)\b.*(?:unable|error|exited|fail)",
    ),
)
_FAILED = tuple((kind, message, re.compile(pattern, re.I)) for kind, message, pattern in _FAILURES)
_RANK = re.compile(r"\[\d{1,5}\](?: *[:>])?")
# What launchers and log collectors put before each line: a time, a pod, mpirun's tag, a rank, a host.
_PREFIX = re.compile(
    r"^\s*(?:\d{4}-\d\d-\d\d[T ][\d:.,]{8,20}(?:Z|[+-]\d\d:?\d\d)?\s+)?(?:\[pod/[^\]]{1,200}\]\s+)?"
    r"(?:\[\d{1,5},\d{1,5}\]<std(?:out|err)>:|\d{1,5}: |[A-Za-z][\w.-]{0,63}: (?=\s*(?:#|\d+\s+\d+\s)))?"
)
_BOUNDS = re.compile(r"#\s*Out of bounds values\s*:\s*(\d{1,18})\b")
_AVERAGE = re.compile(r"#\s*Avg bus bandwidth\s*:\s*(\d{1,9}(?:\.\d{1,9})?)(?![\d.])")
_TYPE = re.compile(r"u?int\d*|u?char|half|float\d*(?:_?e\dm\d)?|double|bfloat16|f8e\dm\d|fp8\w*", re.I)
_REDOP = re.compile(r"sum|prod|max|min|avg|all|mulsum|none", re.I)
_FLOAT = re.compile(r"\d{1,12}(?:\.\d{1,9})?")
_COUNT = re.compile(r"\d{1,18}")


def parse(text: str) -> NcclTest:
    """One test's table. Failure texts, an unfinished last line and foreign text raise :class:`ParseError`."""
    recognise(text, "nccl-tests", _SIGN)
    lines = [_plain(line) for line in clean(text).split("\n")]
    _check_failures(lines)
    counted = not any(line.startswith("#") and re.search(r"\berror\b", line) for line in lines)
    if not complete(text) and (_is_summary(lines[-1]) or _starts_row(lines[-1].split())):
        raise ParseError("truncated", "the text ends inside a line", lines[-1])
    width = _width(lines)
    rows = tuple(_row(words, counted) for words in map(str.split, lines) if _is_row(words, width))
    if not rows:
        raise _no_rows(text, lines)
    average = _single(_AVERAGE, lines)
    bounds = _single(_BOUNDS, lines)
    _check_tables(lines, width, finished=average is not None or bounds is not None)
    return NcclTest(rows, float(average) if average else None, int(bounds) if bounds else None)


def _plain(line: str) -> str:
    """Without the marks that launchers put before and inside lines."""
    return _RANK.sub(" ", _PREFIX.sub("", line, count=1)).strip()


def _check_failures(lines: Sequence[str]) -> None:
    for line in lines:
        for kind, message, pattern in _FAILED:
            if pattern.search(line) and "NCCL INFO" not in line:
                raise ParseError(kind, message, line)


def _no_rows(text: str, lines: Sequence[str]) -> ParseError:
    failure = find_failure(text)
    started = next((line for line in lines if re.match(r"#.*\b(minBytes|nThread|algbw)\b", line)), None)
    if failure is None and started is not None:
        return ParseError("truncated", "the test printed no row", started)
    return refuse(text, "nccl-tests")


def _width(lines: Sequence[str]) -> int:
    """How many cells a row has: as the heading says, else as the first row has; 0 where there is none."""
    for line in lines:
        if _is_heading(line):
            return line.lstrip("#").split().index("time") + 8
    first = next((len(words) for words in map(str.split, lines) if _starts_row(words)), 0)
    return first if 11 <= first <= 13 else 0


def _check_tables(lines: Sequence[str], width: int, *, finished: bool) -> None:
    """Two tables in one text are no result of either; a broken row in a finished test is a row missed."""
    if sum(_is_heading(line) for line in lines) > 1:
        raise ParseError("several_results", "more than one table (without MPI each rank runs a test of its own)")
    for line in lines:
        if finished and _starts_row(line.split()) and not _is_row(line.split(), width):
            raise ParseError("unparsable", "a row that cannot be read", line)


def _is_heading(line: str) -> bool:
    words = line.lstrip("#").split()
    return words[:3] == ["size", "count", "type"] and "time" in words


def _is_row(words: Sequence[str], width: int) -> bool:
    return len(words) == width and _starts_row(words)


def _starts_row(words: Sequence[str]) -> bool:
    """Size, count and type: bytes and elements as digits, then a name of a type."""
    return len(words) > 2 and all(map(_COUNT.fullmatch, words[:2])) and bool(_TYPE.fullmatch(words[2]))


def _row(words: Sequence[str], counted: bool) -> Row:
    """Size, count, type, up to two of redop and root, then two halves of four cells."""
    first = len(words) - 8
    op = next((word for word in words[3:first] if _REDOP.fullmatch(word)), None)
    out, into = words[first : first + 4], words[first + 4 :]
    line = " ".join(words)
    (time_out, alg_out, bus_out), (time_in, alg_in, bus_in) = (
        [_float(cell, line) for cell in half[:3]] for half in (out, into)
    )
    return Row(
        bytes=int(words[0]),
        type=words[2],
        op=op,
        time_us_out=time_out,
        algbw_out=alg_out,
        busbw_out=bus_out,
        wrong_out=_wrong(out[3], counted, line),
        time_us_in=time_in,
        algbw_in=alg_in,
        busbw_in=bus_in,
        wrong_in=_wrong(into[3], counted, line),
    )


def _float(cell: str, line: str) -> Optional[float]:
    if cell == "N/A":
        return None
    if not _FLOAT.fullmatch(cell):
        raise ParseError("unparsable", f"{cell!r} is no time or bandwidth", line)
    return float(cell)


def _wrong(cell: str, counted: bool, line: str) -> Optional[int]:
    """The count of wrong values. Old versions print the largest error there, which is no count."""
    if cell == "N/A":
        return None
    if _COUNT.fullmatch(cell):
        return int(cell) if counted else None
    if not counted or re.fullmatch(r"\d(?:\.\d+)?e[+-]?\d+", cell, re.I):
        return None
    raise ParseError("unparsable", f"{cell!r} is no count of wrong values", line)


def _is_summary(line: str) -> bool:
    return line.startswith("#") and re.match(r"#\s*(?:Out|Avg)\b", line) is not None


def _single(pattern: re.Pattern[str], lines: Sequence[str]) -> Optional[str]:
    found = [match[1] for match in map(pattern.match, lines) if match]
    if len(found) > 1:
        raise ParseError("several_results", f"{len(found)} tests in one text; give one at a time")
    return found[0] if found else None
