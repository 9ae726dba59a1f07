"""What ``benchmarks/gemm.py`` measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional, Union

from agent.tools import ParseError
from agent.tools.worker import (
    Unable,
    mapping,
    number,
    numbers,
    optional_text,
    sequence,
    text,
    truth,
    unable,
    whole,
)


@dataclass(frozen=True)
class Timing:
    """One block of one device. ``samples`` and ``warmup`` in TFLOPS.

    ``max_error`` is the largest deviation of checked entries from float64, ``row_error`` that of any row's sum with
    random signs, each in units of its root mean square; None: not finite.
    """

    samples: tuple[float, ...]
    warmup: tuple[float, ...]
    calls: int
    started_at: str
    ended_at: str
    max_error: Optional[float]
    row_error: Optional[float]
    correct: bool


@dataclass(frozen=True)
class Bits:
    """Digests of the first operands and of their product."""

    inputs: str
    product: str


@dataclass(frozen=True)
class Beside:
    """One block of another (m, n, k), after all others; or why there is none."""

    shape: tuple[int, int, int]
    timing: Union[Timing, Unable]


@dataclass(frozen=True)
class OneDevice:
    """``together``: TFLOPS while all devices multiplied at once. ``beside``: another shape."""

    index: int
    timings: tuple[Timing, ...]
    error: Optional[Unable]
    together: Optional[float] = None
    bits: Optional[Bits] = None
    beside: Optional[Beside] = None


@dataclass(frozen=True)
class Gemm:
    """One type of number on all devices. ``search`` holds (shape, TFLOPS or None where memory was short).

    ``fast_accumulation``: whether fp8 was added up with few bits; None where the type has no such choice.
    """

    shape: tuple[int, int, int]
    search: tuple[tuple[tuple[int, int, int], Optional[float]], ...]
    api: str
    stopped: Optional[str]
    devices: tuple[OneDevice, ...]
    fast_accumulation: Optional[bool] = None

    def reached(self, shape: tuple[int, int, int]) -> Optional[float]:
        """TFLOPS of one shape in the search; None where it was not tried."""
        return dict(self.search).get(shape)


def parse(data: Mapping[str, Any], dtype: str) -> Union[Gemm, Unable]:
    """The part of a result file about ``dtype``. :class:`ParseError` where it is not what the worker writes."""
    found = mapping(mapping(data.get("dtypes"), "dtypes").get(dtype), f"dtypes.{dtype}")
    if "unavailable" in found:
        return unable(found["unavailable"], "unavailable")
    devices = tuple(_device(mapping(d, "devices")) for d in sequence(found.get("devices"), "devices"))
    if len({d.index for d in devices}) != len(devices) or not devices:
        raise ParseError("unparsable", "devices: none, or one index twice")
    return Gemm(
        _shape(found.get("shape")),
        tuple(_tried(mapping(t, "search")) for t in sequence(found.get("search"), "search")),
        text(found.get("api"), "api"),
        optional_text(found.get("stopped"), "stopped"),
        devices,
        None if found.get("fast_accumulation") is None else truth(found["fast_accumulation"], "fast_accumulation"),
    )


def _shape(value: Any) -> tuple[int, int, int]:
    sides = tuple(whole(v, "shape") for v in sequence(value, "shape"))
    if len(sides) != 3 or min(sides) < 1:
        raise ParseError("unparsable", "shape is not m, n, k", repr(value)[:200])
    return sides[0], sides[1], sides[2]


def _tried(found: Mapping[str, Any]) -> tuple[tuple[int, int, int], Optional[float]]:
    rate = found.get("tflops")
    return _shape(found.get("shape")), None if rate is None else number(rate, "search.tflops")


def _device(found: Mapping[str, Any]) -> OneDevice:
    error, beside, bits = found.get("error"), found.get("together"), found.get("bits")
    return OneDevice(
        whole(found.get("index"), "devices.index"),
        tuple(_timing(mapping(b, "blocks")) for b in sequence(found.get("blocks"), "blocks")),
        None if error is None else unable(error, "devices.error"),
        None if beside is None else number(beside, "devices.together"),
        None if bits is None else _bits(mapping(bits, "devices.bits")),
        None if found.get("beside") is None else _beside(mapping(found["beside"], "devices.beside")),
    )


def _beside(found: Mapping[str, Any]) -> Beside:
    if found.get("error") is not None:
        return Beside(_shape(found.get("shape")), unable(found["error"], "beside.error"))
    return Beside(_shape(found.get("shape")), _timing(found))


def _bits(found: Mapping[str, Any]) -> Bits:
    return Bits(text(found.get("inputs"), "bits.inputs"), text(found.get("product"), "bits.product"))


def _timing(found: Mapping[str, Any]) -> Timing:
    entry, row = found.get("max_error"), found.get("row_error")
    return Timing(
        samples=numbers(found.get("samples"), "samples"),
        warmup=numbers(found.get("warmup"), "warmup"),
        calls=whole(found.get("calls"), "calls"),
        started_at=text(found.get("started_at"), "started_at"),
        ended_at=text(found.get("ended_at"), "ended_at"),
        max_error=None if entry is None else number(entry, "max_error"),
        row_error=None if row is None else number(row, "row_error"),
        correct=truth(found.get("correct"), "correct"),
    )
