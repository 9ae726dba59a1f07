"""Collectives over the GPUs of this node as bus bandwidth, each judged at one size: ``allreduce.busbw`` and others.

``size`` is what nccl-tests calls so: of all-gather what each GPU ends with, of reduce-scatter what each GPU begins
with, of all-to-all what each GPU sends. Bus bandwidth is size / time · (n−1)/n, of all-reduce twice that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Optional, Union

from agent import stats
from agent.bench import _devices, second_source
from agent.bench.gemm import EFFORT, WRONG, Effort
from agent.bench.step import Cost, Look, Step
from agent.bench.telemetry import conditions
from agent.bench.worker import WorkerResult, as_missing, launch, unreadable
from agent.facts.pythons import Interpreter
from agent.host import Host
from agent.model import Attempt, Block, Depth, Result, Taken, Void
from agent.quantity import format_quantity
from agent.reading import Missing, Reading
from agent.text import Text, msg
from agent.tools import ParseError, nccl_log
from agent.tools.allreduce import Allreduce, Row, parse
from agent.tools.nccl_log import NcclLog
from agent.tools.worker import Device, Unable

WORKER = "allreduce"
KEY = "allreduce.busbw"
COLLECTIVES = "collectives"
OPS = ("all_gather", "reduce_scatter", "all_to_all")  # besides all-reduce, as :data:`COLLECTIVES` names them
UNIT = "GB/s"
SIZE = 1 << 30  # what published numbers are of; small messages measure latency
SMALLEST, LARGEST = 8, 8 << 30
FEW_SIZES = 4  # of a short look: the judged size and what lies just below
SMALL_COUNTS = (2, 4)
START_S = 20.0  # torch, a context and NCCL's set-up on each GPU
STALL_S = 90.0  # NCCL's first set-up of eight GPUs takes half a minute on a busy host
SIZE_S = 0.6  # one size of the sweep

# GB/s of bus bandwidth that these devices can never exceed; None where it is not known. The second argument:
# whether the switch reduces (None: the log does not tell).
Bound = Callable[[tuple[Device, ...], Optional[bool]], Optional[float]]


def no_bound(devices: tuple[Device, ...], nvls: Optional[bool]) -> Optional[float]:
    """Nothing is known of any device."""
    return None


def key(op: str) -> str:
    """The key of a collective's measurement and clause."""
    return KEY if op == "all_reduce" else f"{COLLECTIVES}.{op}"


@dataclass
class AllreduceStep:
    """``gpus``: "all" or how many; ``promised``: how many the contract says there are; ``size`` in bytes.

    ``judged``: the collectives that are held against a promise; ``ops``: all that are measured, over all sizes.
    ``fewer``: whether groups of fewer GPUs are measured beside. ``tools``: the trade's own, where they lie.
    """

    interpreter: Reading[Interpreter]
    gpus: Union[int, str] = "all"
    promised: Optional[int] = None
    size: int = SIZE
    device: str = "cuda"
    ops: tuple[str, ...] = ("all_reduce",)
    judged: tuple[str, ...] = ("all_reduce",)
    fewer: bool = True
    tools: second_source.Where = field(default_factory=dict)
    smallest: int = SMALLEST
    largest: int = LARGEST
    bound: Bound = no_bound
    stall_s: float = STALL_S
    limit_s: Optional[float] = None
    effort: Mapping[Depth, Effort] = field(default_factory=lambda: EFFORT)

    def step(self) -> Step:
        load: Any = "cpu" if self.device == "cpu" else "gpu"
        keys = tuple(map(key, self.judged))
        name = KEY if keys == (KEY,) else COLLECTIVES
        tools = second_source.seconds(self.tools, *(second_source.PROGRAMS[op] for op in self.judged))
        return Step(name, keys, load, self.cost, self.results, 10.0, tools)

    def ranks(self) -> Union[int, Missing]:
        """How many GPUs take part, or why it cannot be measured."""
        found = _devices.devices(self.interpreter, self.device)
        if isinstance(found, Missing):
            return found
        there = len(found) if self.device == "cuda" else int(self.gpus)
        wanted = self.gpus if isinstance(self.gpus, int) else self.promised or there
        evidence = self.interpreter.evidence
        if there < wanted:
            detail = msg("an all-reduce over {wanted} GPUs is promised; torch sees {n}", wanted=wanted, n=there)
            if KEY not in map(key, self.judged):
                detail = msg("a collective over {wanted} GPUs is promised; torch sees {n}", wanted=wanted, n=there)
            return Missing("not-there", detail, evidence)
        if wanted < 2:
            detail = msg("an all-reduce needs two GPUs or more; there is {n}", n=there)
            if KEY not in map(key, self.judged):
                detail = msg("a collective needs two GPUs or more; there is {n}", n=there)
            return Missing("not-there", detail, evidence)
        return wanted if isinstance(self.gpus, int) else there

    def cost(self, depth: Depth) -> Cost:
        ranks = self.ranks()
        if isinstance(ranks, Missing):
            return Cost(0.0)
        sizes = len(self.sizes(depth)) * len(self.counts(ranks, depth)) * len(self.ops)
        return Cost(START_S + sizes * SIZE_S + self.effort[depth].seconds(len(self.judged)))

    def counts(self, ranks: int, depth: Depth) -> list[int]:
        """Numbers of GPUs, the judged one last; a short look takes only that."""
        few = [n for n in SMALL_COUNTS if n < ranks] if self.fewer and depth != "quick" else []
        return [*few, ranks]

    def sizes(self, depth: Depth) -> list[int]:
        """Bytes, doubling."""
        found = [self.smallest << k for k in range(64) if self.smallest << k <= self.largest]
        return [s for s in found if s <= self.size][-FEW_SIZES:] if depth == "quick" else found

    def request(self, ranks: int, depth: Depth, limit_s: float, nvls: bool) -> dict[str, Any]:
        """As ``benchmarks/allreduce.py`` documents it."""
        effort, sizes = self.effort[depth], self.sizes(depth)
        return {
            "device": self.device,
            "ranks": ranks,
            "counts": self.counts(ranks, depth),
            "ops": list(self.ops),
            "judged": {"count": ranks, "bytes": self.size, "ops": list(self.judged)},
            "smallest_bytes": sizes[0],
            "largest_bytes": max(sizes[-1], self.size),
            "blocks": effort.blocks,
            "samples": effort.samples,
            "sample_s": effort.sample_s,
            "warmup_s": effort.warmup_s,
            "pause_s": effort.pause_s,
            "limit_s": limit_s,
            "stall_s": self.stall_s,
            "nvls": nvls,
        }

    def results(self, host: Host, look: Look) -> dict[str, Result]:
        """One launch; where the switch's reduction hangs or fails, another without it. Both stay in the evidence."""
        ranks = self.ranks()
        if isinstance(ranks, Missing):
            return {key(op): ranks for op in self.judged}
        ours = self._ours(host, look, ranks)
        if self.device == "cpu":
            return {key(op): result for op, result in ours.items()}
        size = self.size
        return {
            key(op): second_source.collective(host, look, self.tools, op, ranks, size, result)
            for op, result in ours.items()
        }

    def execute(self, host: Host, look: Look) -> Result:
        """The first of the judged collectives alone."""
        return self.results(host, look)[key(self.judged[0])]

    def _ours(self, host: Host, look: Look, ranks: int) -> dict[str, Result]:
        """By collective."""
        first = self._launch(host, look, ranks, True)
        if isinstance(first, Missing) or not first.failed_with_nvls:
            return {op: self._taken(first, op, look, ranks, ()) for op in self.judged}
        second = self._launch(host, look, ranks, False)
        assert first.measured.stopped is not None
        why = msg("with NVLS: {why}; measured again without it", why=first.measured.stopped.detail)
        return {op: self._taken(second, op, look, ranks, (why,), first.ran.evidence) for op in self.judged}

    def _launch(self, host: Host, look: Look, ranks: int, nvls: bool) -> Union[Launched, Missing]:
        if isinstance(self.interpreter, Missing):
            return self.interpreter
        limit_s = self.limit_s or 60 + 3 * self.cost(look.depth).seconds
        name = WORKER if self.judged == ("all_reduce",) else COLLECTIVES
        probe = f"{name}/{look.number}" + ("" if nvls else ".without-nvls")
        request = self.request(ranks, look.depth, limit_s, nvls)
        python = self.interpreter.value.path
        ran = launch(host, probe, WORKER, request, python, limit_s + 60, self.device == "cuda")
        if isinstance(ran, Missing):
            return ran
        try:
            measured = parse(ran.data)
        except ParseError as error:
            return unreadable(WORKER, error, ran.evidence)
        return Launched(ran, measured, nccl_log.parse(measured.log))

    def _taken(
        self,
        found: Union[Launched, Missing],
        op: str,
        look: Look,
        ranks: int,
        notes: tuple[Text, ...],
        evidence: tuple[str, ...] = (),
    ) -> Result:
        if isinstance(found, Missing):
            return found
        rows = found.measured.blocks(ranks, self.size, op)
        cited = (*evidence, *found.ran.evidence)
        if op in found.measured.unavailable:
            return as_missing(found.measured.unavailable[op], cited)
        if not rows:
            stopped = found.measured.stopped or Unable("time-limit", "the judged size was not reached")
            return as_missing(stopped, cited)
        attempt = Attempt(
            blocks=tuple(_block(row, found) for row in rows),
            depth=look.depth,
            started_at=found.ran.started_at,
            evidence=cited,
            void=self._void(found, op, rows, ranks),
            correct=not self._wrong(found, op),
            notes=(*_notes(found, self._told_with(op)), *notes),
            reproduce=(second_source.PROGRAMS[op], *second_source.nccl_words(ranks, self.size)),
        )
        return Taken(attempt, UNIT, "median of block medians")

    def _told_with(self, op: str) -> frozenset[str]:
        """The collectives that this one's result speaks of: itself, and those that nobody judges."""
        return frozenset({op, *self.ops} - (set(self.judged) - {op}))

    def _wrong(self, found: Launched, op: str) -> tuple[Row, ...]:
        """Rows with a wrong number, of whatever size."""
        told = self._told_with(op)
        return tuple(r for r in found.measured.rows if r.wrong and r.op in told)

    def _void(self, found: Launched, op: str, rows: tuple[Row, ...], ranks: int) -> Optional[Void]:
        wrong = self._wrong(found, op)
        if wrong:
            return Void(WRONG, _wrong(wrong))
        bound = self.bound(found.ran.devices[:ranks], found.log.nvls)
        value = stats.median([stats.median(r.busbw) for r in rows])
        code = stats.void_above(value, bound)
        if code is None or bound is None:
            return None
        numbers = {"value": f"{value:.0f}", "bound": f"{bound:.0f}"}
        detail = msg("{value} GB/s is above the {bound} GB/s of the links", **numbers)
        if op == "all_reduce":
            detail = msg(
                "{value} GB/s is above the {bound} GB/s of the links, and the switch does not reduce", **numbers
            )
        return Void(code, detail)


@dataclass(frozen=True)
class Launched:
    """One launch of the worker."""

    ran: WorkerResult
    measured: Allreduce
    log: NcclLog

    @property
    def failed_with_nvls(self) -> bool:
        """Whether it did not end well while the switch reduced, or was about to."""
        return self.measured.stopped is not None and self.log.nvls is True


def _block(row: Row, launched: Launched) -> Block:
    found = {
        "bytes_per_call": row.bytes,
        "gpus": row.count,
        "calls": row.calls,
        "nvls": launched.log.nvls,
        "started_at": row.started_at,
        "ended_at": row.ended_at,
        **conditions(launched.ran.telemetry, launched.ran.devices[0], row.started_at, row.ended_at),
    }
    return Block(stats.median(row.busbw), row.busbw, (), found)


def _wrong(rows: tuple[Row, ...]) -> Text:
    first = rows[0]
    return msg(
        "{op} among {n}: {wrong} numbers of {size} came out wrong, and {more} other sizes",
        op=first.op,
        n=first.count,
        wrong=first.wrong,
        size=format_quantity(float(first.bytes), "B"),
        more=len(rows) - 1,
    )


def _notes(found: Launched, told: frozenset[str]) -> tuple[Text, ...]:
    notes = [_size(found.measured, op, count) for op, count in _swept(found.measured) if op in told]
    notes += [
        msg("{op} could not be measured: {why}", op=op, why=why.detail)
        for op, why in found.measured.unavailable.items()
        if op in told
    ]
    if found.measured.stopped is not None:
        notes.append(msg("stopped early: {why}", why=found.measured.stopped.detail))
    return (*notes, *_software(found.log))


def _swept(measured: Allreduce) -> list[tuple[str, int]]:
    return list(dict.fromkeys((r.op, r.count) for r in measured.rows if r.block is None))


def _size(measured: Allreduce, op: str, count: int) -> Text:
    rows = measured.sweep(op, count)
    best = max(rows, key=lambda r: stats.median(r.busbw))
    return msg(
        "{op} among {n}: {busbw} GB/s at {size}, {latency} µs at {small}",
        op=op,
        n=count,
        busbw=f"{stats.median(best.busbw):.4g}",
        size=_binary(best.bytes),
        latency=f"{rows[0].bytes / stats.median(rows[0].algbw) / 1e3:.3g}",
        small=_binary(rows[0].bytes),
    )


def _binary(size: int) -> str:
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << power:
            return f"{size / (1 << power):g} {unit}"
    return f"{size} B"


def _software(log: NcclLog) -> tuple[Text, ...]:
    notes = []
    if log.version is not None:
        nvls = {True: msg("with NVLS"), False: msg("without NVLS"), None: msg("NVLS not told")}[log.nvls]
        via = ", ".join(sorted(log.transports)) or "–"
        notes.append(msg("NCCL {version}, {nvls}, connected by {via}", version=log.version, nvls=nvls, via=via))
    if log.settings:
        said = ", ".join(f"{k}={v}" for k, v in sorted(log.settings.items()))
        notes.append(msg("set on this machine, not by accept: {settings}", settings=said))
    notes += [msg("NCCL warns: {warning}", warning=w[:200]) for w in log.warnings[:3]]
    return tuple(notes)
