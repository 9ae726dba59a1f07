"""What ``benchmarks/device_memory.py`` measured. :class:`ParseError` where a file is not what the worker writes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

from agent.tools import ParseError
from agent.tools.worker import Unable, mapping, number, numbers, optional_text, sequence, text, truth, unable, whole

SOURCES = ("sysfs", "nvml")


@dataclass(frozen=True)
class Pass:
    """One pattern written and read back. ``wrong_bytes`` came back as something else."""

    wrong_bytes: int
    write_s: float
    verify_s: float
    started_at: str


@dataclass(frozen=True)
class WrongWord:
    """A word of 8 bytes at ``offset`` of the tested memory; ``again``: read once more afterwards. Hexadecimal."""

    number: int  # of the pass
    offset: int
    address: str
    expected: str
    found: str
    again: str

    @property
    def bits(self) -> int:
        """How many bits differ."""
        return bin(int(self.expected, 16) ^ int(self.found, 16)).count("1")


@dataclass(frozen=True)
class MemoryTest:
    """One GPU; bytes. ``used_before``: by whomever, before our own context; None where nobody can tell.

    ``free``: what the driver called free once our context was there. ``why_host``: why no kernel verified.
    """

    index: int
    total: int
    used_before: Optional[int]
    free: Optional[int]
    asked: int
    allocated: int
    method: Optional[str]
    why_host: Optional[str]
    passes: tuple[Pass, ...]
    errors: tuple[WrongWord, ...]
    stopped: Optional[str]
    error: Optional[Unable]


@dataclass(frozen=True)
class Seen:
    """A link as one source told it under load: samples by (generation, width)."""

    links: Mapping[tuple[int, int], int]
    error: Optional[str]

    @property
    def samples(self) -> int:
        return sum(self.links.values())


@dataclass(frozen=True)
class Timing:
    """One block of copies in one direction, GB/s. ``link`` by source, where it was watched."""

    samples: tuple[float, ...]
    warmup: tuple[float, ...]
    calls: int
    started_at: str
    ended_at: str
    link: Mapping[str, Seen]


@dataclass(frozen=True)
class CopyBlock:
    ways: Mapping[str, Timing]  # h2d, d2h, d2d
    wrong_bytes: int


@dataclass(frozen=True)
class Copies:
    """One GPU. ``cpus``: where host memory and thread were kept. ``together``: GB/s by way with all GPUs at once."""

    index: int
    cpus: Optional[tuple[int, ...]]
    blocks: tuple[CopyBlock, ...]
    together: Optional[Mapping[str, float]]
    error: Optional[Unable]


@dataclass(frozen=True)
class PeerBlock:
    timing: Timing
    wrong_bytes: int


@dataclass(frozen=True)
class Pair:
    """From one GPU to another. ``access``: straight; False: the driver goes through host memory."""

    source: int
    target: int
    access: Optional[bool]
    blocks: tuple[PeerBlock, ...]
    error: Optional[Unable]


def memory_tests(data: Mapping[str, Any]) -> tuple[MemoryTest, ...]:
    """The result of task ``memory_test``, by GPU."""
    return tuple(_memory_test(mapping(t, "tests")) for t in sequence(data.get("tests"), "tests"))


def _memory_test(found: Mapping[str, Any]) -> MemoryTest:
    used, free = found.get("used_before_bytes"), found.get("free_bytes")
    return MemoryTest(
        index=whole(found.get("index"), "index"),
        total=whole(found.get("total_bytes"), "total_bytes"),
        used_before=None if used is None else whole(used, "used_before_bytes"),
        free=None if free is None else whole(free, "free_bytes"),
        asked=whole(found.get("asked_bytes"), "asked_bytes"),
        allocated=whole(found.get("allocated_bytes"), "allocated_bytes"),
        method=optional_text(found.get("method"), "method"),
        why_host=optional_text(found.get("why_host"), "why_host"),
        passes=tuple(_pass(mapping(p, "passes")) for p in sequence(found.get("passes"), "passes")),
        errors=tuple(_word(mapping(e, "errors")) for e in sequence(found.get("errors"), "errors")),
        stopped=optional_text(found.get("stopped"), "stopped"),
        error=_error(found),
    )


def _error(found: Mapping[str, Any]) -> Optional[Unable]:
    error = found.get("error")
    return None if error is None else unable(error, "error")


def _pass(found: Mapping[str, Any]) -> Pass:
    return Pass(
        whole(found.get("wrong_bytes"), "wrong_bytes"),
        number(found.get("write_s"), "write_s"),
        number(found.get("verify_s"), "verify_s"),
        text(found.get("started_at"), "started_at"),
    )


def _word(found: Mapping[str, Any]) -> WrongWord:
    word = WrongWord(
        whole(found.get("pass"), "pass"),
        whole(found.get("offset"), "offset"),
        text(found.get("address"), "address"),
        *(_hex(found.get(name), name) for name in ("expected", "found", "again")),
    )
    if word.expected == word.found:
        raise ParseError("unparsable", "errors: a word that is right")
    return word


def _hex(value: Any, where: str) -> str:
    found = text(value, where)
    if re.fullmatch(r"[0-9a-f]{16}", found) is None:
        raise ParseError("unparsable", f"{where} is not 16 hexadecimal digits", found[:200])
    return found


def copies(data: Mapping[str, Any]) -> tuple[Copies, ...]:
    """The result of task ``copy``, by GPU."""
    return tuple(_copies(mapping(c, "copies")) for c in sequence(data.get("copies"), "copies"))


def _copies(found: Mapping[str, Any]) -> Copies:
    cpus, together = found.get("cpus"), found.get("together")
    return Copies(
        index=whole(found.get("index"), "index"),
        cpus=None if cpus is None else tuple(whole(c, "cpus") for c in sequence(cpus, "cpus")),
        blocks=tuple(_copy_block(mapping(b, "blocks")) for b in sequence(found.get("blocks"), "blocks")),
        together=None
        if together is None
        else {w: number(mapping(together, "together").get(w), f"together.{w}") for w in ("h2d", "d2h")},
        error=_error(found),
    )


def _copy_block(found: Mapping[str, Any]) -> CopyBlock:
    ways = {w: _timing(mapping(found.get(w), w)) for w in ("h2d", "d2h", "d2d")}
    return CopyBlock(ways, whole(found.get("wrong_bytes"), "wrong_bytes"))


def _timing(found: Mapping[str, Any]) -> Timing:
    watched = mapping(found.get("link", {}), "link")
    return Timing(
        samples=numbers(found.get("samples"), "samples"),
        warmup=numbers(found.get("warmup"), "warmup"),
        calls=whole(found.get("calls"), "calls"),
        started_at=text(found.get("started_at"), "started_at"),
        ended_at=text(found.get("ended_at"), "ended_at"),
        link={s: _seen(mapping(watched[s], f"link.{s}")) for s in SOURCES if s in watched},
    )


def _seen(found: Mapping[str, Any]) -> Seen:
    links = mapping(found.get("links"), "links")
    counted = {_link(name): whole(count, "links") for name, count in links.items()}
    if whole(found.get("samples"), "link.samples") != sum(counted.values()):
        raise ParseError("unparsable", "link: the samples are not the sum of the links")
    return Seen(counted, optional_text(found.get("error"), "link.error"))


def _link(name: str) -> tuple[int, int]:
    match = re.fullmatch(r"([1-7])x([1-9]\d?)", name)
    if match is None:
        raise ParseError("unparsable", "links: not a generation and a width", name[:200])
    return int(match[1]), int(match[2])


def pairs(data: Mapping[str, Any]) -> tuple[Pair, ...]:
    """The result of task ``peer``."""
    return tuple(_pair(mapping(p, "pairs")) for p in sequence(data.get("pairs"), "pairs"))


def _pair(found: Mapping[str, Any]) -> Pair:
    access = found.get("access")
    return Pair(
        source=whole(found.get("from"), "from"),
        target=whole(found.get("to"), "to"),
        access=None if access is None else truth(access, "access"),
        blocks=tuple(_peer_block(mapping(b, "blocks")) for b in sequence(found.get("blocks"), "blocks")),
        error=_error(found),
    )


def _peer_block(found: Mapping[str, Any]) -> PeerBlock:
    return PeerBlock(_timing(found), whole(found.get("wrong_bytes"), "wrong_bytes"))


def stopped(data: Mapping[str, Any]) -> Optional[str]:
    """Why not all blocks were measured; None where they were."""
    return optional_text(data.get("stopped"), "stopped")
