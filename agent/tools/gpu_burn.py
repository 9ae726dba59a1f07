"""What ``gpu_burn SECONDS`` prints: a line of progress over all GPUs, overwritten by carriage returns, and a verdict.

It ends with status 0 whatever it found, and sets its count of errors back after each tenth of the time: the verdict
at its end is what counts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from agent.stats import median
from agent.tools import ParseError
from agent.tools._text import clean, first_line

# "66.7%  proc'd: 2320 (15210 Gflop/s) - 2320 (15188 Gflop/s)   errors: 0 - 0   temps: 61 C - 58 C", newer ones with
# "power: …" behind.
_PROGRESS = re.compile(r"\s*\d{1,3}\.\d%\s+proc'd:")
_DONE = re.compile(r"(-?\d{1,12}) \((\d{1,12}) Gflop/s\)")
_ERRORS = re.compile(r"(-?\d{1,12})\s*(?:\((DIED|WARNING)!\))?")
_DEGREES = re.compile(r"(\d{1,3}) C|--")
_TESTED = re.compile(r"^Tested (\d{1,4}) GPUs?:")
_VERDICT = re.compile(r"^\s*GPU (\d{1,4}): (OK|FAULTY)\s*$")
_FAILED = (
    (re.compile(r"No clients are alive"), "no GPU could be tested"),
    (re.compile(r"No CUDA devices"), "it sees no GPU"),
    (re.compile(r"^\s*Couldn't init a GPU test: *(.*)"), "a GPU could not be prepared"),
)


@dataclass(frozen=True)
class Burnt:
    """One GPU, by CUDA's number. ``gflops``: median of what was shown, None where nothing was multiplied.

    ``errors``: the most that was shown at once; ``died``: its process ended, so that its errors mean nothing.
    """

    index: int
    gflops: Optional[float]
    errors: int
    faulty: bool
    died: bool


@dataclass(frozen=True)
class GpuBurn:
    """``hottest``: in C over all GPUs; nvidia-smi numbers them differently from CUDA, so it is nobody's own."""

    gpus: tuple[Burnt, ...]
    hottest: Optional[int]


@dataclass(frozen=True)
class _Line:
    calls: tuple[int, ...]
    gflops: tuple[float, ...]
    errors: tuple[int, ...]
    died: tuple[bool, ...]
    degrees: tuple[int, ...]


def parse(text: str) -> GpuBurn:
    """A whole run. :class:`ParseError` where it did not come to its end, could not begin, or is something else."""
    lines = re.split(r"[\r\n]", clean(text))
    progress = [found for found in map(_progress, lines) if found is not None]
    verdicts = _verdicts(lines)
    if verdicts is None:
        raise _unfinished(text, lines, bool(progress))
    width = len(verdicts)
    whole = [p for p in progress if len(p.calls) == len(p.errors) == width]
    if not whole:
        raise ParseError("unparsable", "no line of progress for as many GPUs as were tested", first_line(text))
    gpus = tuple(_gpu(index, whole, faulty) for index, faulty in enumerate(verdicts))
    return GpuBurn(gpus, max((d for p in whole for d in p.degrees), default=None))


def _gpu(index: int, lines: Sequence[_Line], faulty: bool) -> Burnt:
    rates = [line.gflops[index] for line in lines if line.calls[index] > 0 and line.gflops[index] > 0]
    died = any(line.died[index] or line.calls[index] < 0 for line in lines)
    errors = max(abs(line.errors[index]) for line in lines)
    return Burnt(index, median(rates) if rates else None, errors, faulty, died)


def _progress(line: str) -> Optional[_Line]:
    found = _PROGRESS.match(line)
    if found is None:
        return None
    calls, _, rest = line[found.end() :].partition("errors:")
    wrong, _, rest = rest.partition("temps:")
    done, errors = _DONE.findall(calls), _ERRORS.findall(wrong)
    degrees = [d for d in _DEGREES.findall(rest.partition("power:")[0]) if d]
    return _Line(
        tuple(int(calls) for calls, _ in done),
        tuple(float(rate) for _, rate in done),
        tuple(int(count) for count, _ in errors),
        tuple(word == "DIED" for _, word in errors),
        tuple(map(int, degrees)),
    )


def _verdicts(lines: Sequence[str]) -> Optional[list[bool]]:
    """Whether each GPU is called faulty, in their order; None where the list is not there or not whole."""
    tested = next((m for m in map(_TESTED.match, lines) if m is not None), None)
    if tested is None:
        return None
    found = [m for m in map(_VERDICT.match, lines) if m is not None]
    if not found or [int(m[1]) for m in found] != list(range(int(tested[1]))):
        raise ParseError("truncated", "the list of tested GPUs is not whole", tested[0])
    return [m[2] == "FAULTY" for m in found]


def _unfinished(text: str, lines: Sequence[str], begun: bool) -> ParseError:
    for line in lines:
        for pattern, what in _FAILED:
            if pattern.search(line):
                return ParseError("tool_failed", what, line.strip())
    if begun:
        return ParseError("truncated", "gpu_burn did not come to its end", first_line(text))
    return ParseError("unparsable", "not the output of gpu_burn", first_line(text))
