"""What ``benchmarks/burn.py`` measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

from agent.tools import ParseError
from agent.tools.worker import Unable, mapping, number, numbers, sequence, text, truth, unable, whole


@dataclass(frozen=True)
class Stretch:
    """One of the stretches of equal length. ``rates`` in TFLOPS, one for each of ``seconds``, about 1 s each."""

    started_at: str
    ended_at: str
    rates: tuple[float, ...]
    seconds: tuple[float, ...]
    max_error: Optional[float]
    row_error: Optional[float]
    correct: bool

    @property
    def rate(self) -> float:
        """TFLOPS over the whole stretch, every stall counted."""
        return sum(r * s for r, s in zip(self.rates, self.seconds)) / sum(self.seconds)


@dataclass(frozen=True)
class OneDevice:
    """``light``: start and end of the small load before; None where it was not reached."""

    index: int
    light: Optional[tuple[str, str]]
    stretches: tuple[Stretch, ...]


@dataclass(frozen=True)
class Burn:
    """All devices. ``stopped``: why the time was not reached."""

    dtype: str
    shape: tuple[int, int, int]
    devices: tuple[OneDevice, ...]
    stopped: Optional[Unable]


def parse(data: Mapping[str, Any]) -> Burn:
    """A result file. :class:`ParseError` where it is not what the worker writes."""
    shape = tuple(whole(v, "shape") for v in sequence(data.get("shape"), "shape"))
    devices = tuple(_device(mapping(d, "burn")) for d in sequence(data.get("burn"), "burn"))
    if len(shape) != 3 or not devices or len({d.index for d in devices}) != len(devices):
        raise ParseError("unparsable", "no m, n, k, no device, or one index twice")
    stopped = data.get("stopped")
    return Burn(
        text(data.get("dtype"), "dtype"),
        (shape[0], shape[1], shape[2]),
        devices,
        None if stopped is None else unable(stopped, "stopped"),
    )


def _device(found: Mapping[str, Any]) -> OneDevice:
    light = found.get("light")
    return OneDevice(
        whole(found.get("index"), "burn.index"),
        None if light is None else _light(mapping(light, "light")),
        tuple(_stretch(mapping(b, "blocks")) for b in sequence(found.get("blocks"), "blocks")),
    )


def _light(found: Mapping[str, Any]) -> tuple[str, str]:
    return text(found.get("started_at"), "light.started_at"), text(found.get("ended_at"), "light.ended_at")


def _stretch(found: Mapping[str, Any]) -> Stretch:
    rates, seconds = numbers(found.get("rates"), "rates"), numbers(found.get("seconds"), "seconds")
    if len(rates) != len(seconds):
        raise ParseError("unparsable", "as many seconds as rates are needed")
    entry, row = found.get("max_error"), found.get("row_error")
    return Stretch(
        text(found.get("started_at"), "started_at"),
        text(found.get("ended_at"), "ended_at"),
        rates,
        seconds,
        None if entry is None else number(entry, "max_error"),
        None if row is None else number(row, "row_error"),
        truth(found.get("correct"), "correct"),
    )
