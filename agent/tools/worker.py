"""The result files of our own workers (``benchmarks/``): strict, because a number that is not what it claims convicts.

What is missing or of another type raises :class:`ParseError`; NaN and infinities are no JSON.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

from agent.tools import ParseError

SCHEMA = "accept.worker/1"


@dataclass(frozen=True)
class Device:
    """A device as a worker saw it; ``slot`` is its PCI address, None where the driver does not tell."""

    index: int
    name: str
    uuid: Optional[str] = None
    slot: Optional[str] = None

    @property
    def subject(self) -> str:
        """How findings name it."""
        return self.slot or f"device {self.index}"


@dataclass(frozen=True)
class Unable:
    """Why a worker could not do the whole or a part: the kinds are those of ``benchmarks/_protocol.py``."""

    kind: str
    detail: str
    needs: Optional[str] = None


@dataclass(frozen=True)
class WorkerJson:
    """A whole result file. ``error`` set: the worker could do nothing, and ``devices`` and ``versions`` are empty."""

    worker: str
    data: Mapping[str, Any]
    devices: tuple[Device, ...] = ()
    versions: Mapping[str, Optional[str]] = field(default_factory=dict)
    error: Optional[Unable] = None


def parse(raw: bytes, worker: str) -> WorkerJson:
    """The result file of this worker."""
    data = document(raw, SCHEMA)
    if data.get("worker") != worker:
        raise ParseError("unparsable", f"the result of worker {data.get('worker')!r}, not {worker!r}")
    if "error" in data:
        return WorkerJson(worker, data, error=unable(data["error"], "error"))
    return WorkerJson(worker, data, devices(data.get("devices")), versions(data.get("versions")))


def document(raw: bytes, schema: str) -> Mapping[str, Any]:
    """A file that holds one JSON object with that ``schema`` and nothing else."""
    try:
        data = json.loads(raw.decode("utf-8"), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise ParseError("unparsable", f"not the JSON of a worker: {error}"[:200]) from error
    top = mapping(data, "the document")
    if top.get("schema") != schema:
        raise ParseError("unparsable", f"schema {top.get('schema')!r}, not {schema!r}")
    return top


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no number")


def unable(value: Any, where: str) -> Unable:
    """``{"kind", "detail", "needs"}``."""
    found = mapping(value, where)
    needs = optional_text(found.get("needs"), f"{where}.needs")
    return Unable(text(found.get("kind"), f"{where}.kind"), text(found.get("detail"), f"{where}.detail"), needs)


def devices(value: Any) -> tuple[Device, ...]:
    """At least one, each index once."""
    found = tuple(_device(mapping(d, "devices")) for d in sequence(value, "devices"))
    if not found or len({d.index for d in found}) != len(found):
        raise ParseError("unparsable", "devices: none, or one index twice")
    return found


def _device(found: Mapping[str, Any]) -> Device:
    return Device(
        whole(found.get("index"), "devices.index"),
        text(found.get("name"), "devices.name"),
        optional_text(found.get("uuid"), "devices.uuid"),
        optional_text(found.get("slot"), "devices.slot"),
    )


def versions(value: Any) -> dict[str, Optional[str]]:
    """Version by component; None where there is none."""
    return {k: optional_text(v, f"versions.{k}") for k, v in mapping(value, "versions").items()}


def mapping(value: Any, where: str) -> Mapping[str, Any]:
    """A JSON object."""
    if not isinstance(value, dict):
        raise _wrong(where, "an object", value)
    return value


def sequence(value: Any, where: str) -> list[Any]:
    """A JSON array."""
    if not isinstance(value, list):
        raise _wrong(where, "a list", value)
    return value


def text(value: Any, where: str) -> str:
    """A JSON string that is not empty."""
    if not isinstance(value, str) or not value:
        raise _wrong(where, "a text", value)
    return value


def optional_text(value: Any, where: str) -> Optional[str]:
    """A JSON string that is not empty, or null."""
    return None if value is None else text(value, where)


def truth(value: Any, where: str) -> bool:
    """true or false."""
    if not isinstance(value, bool):
        raise _wrong(where, "true or false", value)
    return value


def number(value: Any, where: str) -> float:
    """A finite JSON number, 0 or more."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _wrong(where, "a number", value)
    if not math.isfinite(value) or value < 0:
        raise _wrong(where, "a finite number ≥ 0", value)
    return float(value)


def whole(value: Any, where: str) -> int:
    """A whole JSON number, 0 or more."""
    found = number(value, where)
    if found != int(found):
        raise _wrong(where, "a whole number", value)
    return int(found)


def numbers(value: Any, where: str) -> tuple[float, ...]:
    """An array of at least one number, each above 0: rates and times."""
    found = tuple(number(v, where) for v in sequence(value, where))
    if not found or min(found) <= 0:
        raise _wrong(where, "a list of numbers > 0", value)
    return found


def _wrong(where: str, wanted: str, value: Any) -> ParseError:
    return ParseError("unparsable", f"{where} is not {wanted}", repr(value)[:200])
