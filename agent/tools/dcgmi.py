"""``dcgmi diag -r 1 -j`` and ``dcgmi discovery -l``: what NVIDIA's own diagnostics say of each GPU.

Level 1 checks software and the driver's records (libraries, permissions, persistence, retired pages and remapped
rows, the card's own store) within seconds: it loads no GPU and changes no setting. DCGM 3 lists a test's GPUs as
``"gpu_ids": "0,1"`` below ``DCGM GPU Diagnostic``, DCGM 4 one ``entity_id`` a result below ``DCGM Diagnostic``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Optional

from agent.tools import ParseError
from agent.tools._text import clean, first_line, integer, json_documents, mapping, objects, text_or_none

TIMEOUT_S = 90.0
DISCOVERY_TIMEOUT_S = 15.0
ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
STATUSES = ("pass", "warn", "fail", "skip")
_NO_ENGINE = re.compile(r"unable to (?:connect to host engine|establish a connection to the specified host)", re.I)
_ERROR = re.compile(r"^\s*Error\b|\bDCGM_ST_\w+", re.I)
_COUNT = re.compile(r"^(\d{1,4}) GPUs? found")
_ROW = re.compile(r"^\|\s*(\d{1,4})\s*\|\s*Name:")
_BUS = re.compile(r"\bPCI Bus ID:\s*([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)")


@dataclass(frozen=True)
class Said:
    """One result of one test. ``gpus``: DCGM's numbers, empty where it speaks of the whole node.

    ``status``: one of :data:`STATUSES`, or "not run". ``words``: warnings as printed.
    """

    test: str
    gpus: tuple[int, ...]
    status: str
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Diag:
    """All results in their order; ``version`` of DCGM where it is told."""

    version: Optional[str]
    results: tuple[Said, ...]

    def of(self, gpu: int) -> tuple[Said, ...]:
        """What was said of one GPU, and of all."""
        return tuple(r for r in self.results if not r.gpus or gpu in r.gpus)


def diag_argv(program: str) -> tuple[str, ...]:
    """The command line of the first level."""
    return (program, "diag", "-r", "1", "-j")


def discovery_argv(program: str) -> tuple[str, ...]:
    """The command line that lists the GPUs of a host engine which already runs; it starts none."""
    return (program, "discovery", "-l")


def parse_diag(text: str) -> Diag:
    """A whole document. :class:`ParseError` for DCGM's own failures, cut and foreign text, and one without a test."""
    _check(text)
    documents, _ = json_documents(clean(text))
    found = next((d for d in documents if any(root in mapping(d) for root in ROOTS)), None)
    if found is None:
        raise ParseError("unparsable", "not the JSON of dcgmi diag", first_line(text))
    root = mapping(next(found[name] for name in ROOTS if name in found))
    failed = text_or_none(root.get("runtime_error"))
    if failed is not None:
        raise ParseError("tool_failed", "the diagnostic could not run", failed)
    results = tuple(said for test in _tests(root) for said in _said(test))
    if not results:
        raise ParseError("unparsable", "a diagnostic without a result", first_line(text))
    told = (root.get("version"), mapping(found.get("metadata")).get("version"), found.get("version"))
    return Diag(next((text for text in map(text_or_none, told) if text is not None), None), results)


def parse_discovery(text: str) -> Mapping[int, str]:
    """DCGM's number → PCI address as printed. :class:`ParseError` as for the diagnostic."""
    _check(text)
    count: Optional[int] = None
    number: Optional[int] = None
    found: dict[int, str] = {}
    for line in clean(text).split("\n"):
        if match := _COUNT.match(line.strip()):
            count = int(match[1])
        elif match := _ROW.match(line):
            number = int(match[1])
        elif number is not None and (match := _BUS.search(line)):
            found.setdefault(number, match[1])
    if count is None:
        raise ParseError("unparsable", "not the output of dcgmi discovery", first_line(text))
    if len(found) != count:
        raise ParseError("truncated", f"{count} GPUs found, {len(found)} listed", first_line(text))
    return found


def _check(text: str) -> None:
    for line in text.splitlines():
        if _NO_ENGINE.search(line):
            raise ParseError("no_engine", "nv-hostengine does not run", line.strip())
    first = first_line(text)
    if _ERROR.search(first) and "{" not in text:
        raise ParseError("tool_failed", "dcgmi reports an error", first)


def _tests(root: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for category in objects(root.get("test_categories")):
        yield from objects(category.get("tests"))


def _said(test: Mapping[str, Any]) -> Iterator[Said]:
    name = text_or_none(test.get("name")) or "?"
    results = objects(test.get("results"))
    for result in results:
        yield Said(name, _gpus(result), _status(result), _words(result))
    summary = mapping(test.get("test_summary"))
    # DCGM 4 repeats there what it said of each GPU, and adds what belongs to none.
    if summary and (not results or _words(summary)):
        yield Said(name, (), _status(summary), _words(summary))


def _gpus(result: Mapping[str, Any]) -> tuple[int, ...]:
    entity = integer(result.get("entity_id"))
    if entity is not None:
        return (entity,) if str(result.get("entity_group", "GPU")).upper() == "GPU" else ()
    listed = result.get("gpu_ids", result.get("gpu_id"))
    one = integer(listed)
    if one is not None:
        return (one,)
    return tuple(int(word) for word in re.findall(r"\d{1,4}", listed)) if isinstance(listed, str) else ()


def _status(found: Mapping[str, Any]) -> str:
    """A word that is not known is no pass."""
    word = str(found.get("status", "")).strip().lower()
    return next((status for status in STATUSES if word.startswith(status)), "not run")


def _words(found: Mapping[str, Any]) -> tuple[str, ...]:
    listed = found.get("warnings")
    each = listed if isinstance(listed, list) else [listed]
    texts = (text_or_none(mapping(item).get("warning") if isinstance(item, dict) else item) for item in each)
    return tuple(text for text in texts if text is not None)
