"""Matrix multiplication on each GPU: one step for each type of number, ``gemm.bf16@0000:1b:00.0``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Optional, Union

from agent import stats
from agent.bench.step import Cost, Look, Step
from agent.bench.telemetry import conditions, seen_as
from agent.bench.worker import WorkerResult, as_missing, launch, unreadable
from agent.facts.pythons import Interpreter
from agent.host import Host
from agent.model import Attempt, Block, Depth, Result, Statistic, Taken, Void
from agent.reading import Missing, Reading
from agent.text import Text, msg
from agent.tools import ParseError
from agent.tools.gemm import Beside, Bits, Gemm, OneDevice, Timing, parse
from agent.tools.worker import Device, Unable

FAMILY = "gemm"
SPREAD = "gemm.spread"
UNIT = "TFLOPS"
STATISTIC: Statistic = "median of block medians"
WRONG = "wrong-result"
SEED = 20240229

# TFLOPS that this device can never exceed with this type, from the catalogue; None where it is not known.
Bound = Callable[[str, Device], Optional[float]]

# Largest deviation from float64, in units of the root mean square of the products: rounding of the result
# (bf16 has 8 bits, the largest of 16384 entries is 4 rms) and of its accumulation, with room for split sums.
TOLERANCE: Mapping[str, float] = {
    "fp64": 1e-11,
    "fp32": 1e-4,
    "tf32": 1e-2,
    "fp16": 2e-2,
    "bf16": 4e-2,
    "fp8": 6e-2,  # the product is bf16 and is accumulated with 14 bits
    "int8": 0.0,
}
# m, n, k: those at which the models of today were measured best (and 8192³, at which most published numbers were
# taken). Small ones, cheap where a type is slow, for what consumer cards run at a 64th of their speed.
TENSOR_SHAPES = (
    (8192, 8192, 8192),
    (1024, 10240, 5120),
    (2048, 2048, 13312),
    (4096, 9728, 2048),
    (1024, 15360, 4096),
    (1792, 16128, 3072),
    (12288, 18432, 1024),
    (16384, 16384, 16384),
)
VECTOR_SHAPES = ((4096, 4096, 4096), (8192, 8192, 4096))
CPU_SHAPES = ((2048, 2048, 2048),)
START_S = 10.0  # importing torch, which the facts have just read from disk, and a context on each device
SEARCH_S: Mapping[Depth, float] = {"quick": 3.0, "standard": 15.0, "deeper": 15.0}
TOGETHER_S: Mapping[Depth, float] = {"quick": 0.3, "standard": 3.0, "deeper": 3.0}
TOGETHER_LEAST = 0.95  # of a GPU's own alone
COMMON_SHAPE = (8192, 8192, 8192)  # at which most published numbers were taken
CHECK_S = 0.15  # comparing with float64 after each block
PREPARE_S = 0.1  # drawing operands of another shape


@dataclass(frozen=True)
class Effort:
    """How hard to look: blocks of samples, seconds of each sample, of warm-up, and between two blocks of a device."""

    blocks: int
    samples: int
    sample_s: float
    warmup_s: float
    pause_s: float

    @property
    def block_s(self) -> float:
        return self.warmup_s + self.samples * self.sample_s + CHECK_S

    def seconds(self, devices: int) -> float:
        """Of all blocks on so many devices; the blocks of the others count as a device's pause."""
        one_round = max(devices * self.block_s, self.pause_s + self.block_s)
        return (self.blocks - 1) * one_round + devices * self.block_s


EFFORT: Mapping[Depth, Effort] = {
    "quick": Effort(stats.BLOCKS, samples=3, sample_s=0.03, warmup_s=0.06, pause_s=0.0),
    "standard": Effort(stats.BLOCKS, samples=10, sample_s=0.1, warmup_s=1.0, pause_s=10.0),
    "deeper": Effort(stats.BLOCKS_DEEPER, samples=10, sample_s=0.1, warmup_s=1.0, pause_s=10.0),
}


def no_bound(dtype: str, device: Device) -> Optional[float]:
    """Nothing is known of any device."""
    return None


@dataclass
class GemmStep:
    """One type of number on all devices that the interpreter sees.

    ``shape`` is searched at the first look and kept for the others: only equal work can be compared. ``common`` is
    measured beside, on each device.
    """

    dtype: str
    interpreter: Reading[Interpreter]
    device: str = "cuda"
    spread: bool = False
    judged: bool = True
    bound: Bound = no_bound
    effort: Mapping[Depth, Effort] = field(default_factory=lambda: EFFORT)
    shapes: Optional[tuple[tuple[int, int, int], ...]] = None
    common: tuple[int, int, int] = COMMON_SHAPE
    _shape: Optional[tuple[int, int, int]] = field(default=None, init=False)

    def step(self) -> Step:
        return Step(
            name=f"{FAMILY}.{self.dtype}",
            keys=self.keys(),
            load="cpu" if self.device == "cpu" else "gpu",
            cost=self.cost,
            execute=self.execute,
            settle_s=10.0,
        )

    def devices(self) -> Union[tuple[Device, ...], Missing]:
        """What will be measured, or why nothing can be."""
        if isinstance(self.interpreter, Missing):
            return self.interpreter
        if self.device == "cpu":
            return (Device(0, "cpu"),)
        found = self.interpreter.value
        if found.devices:
            return found.devices
        said = found.cuda_error or "—"
        detail = msg("torch {torch} of {path} sees no GPU: {said}", torch=found.torch, path=found.path, said=said)
        grant = msg("a GPU that CUDA {cuda} of this torch can use", cuda=found.cuda)
        if found.cuda is None:
            grant = msg("a torch that is built for CUDA, or --python with an interpreter that has one")
        return Missing("not-there", detail, self.interpreter.evidence, grant)

    def keys(self) -> tuple[str, ...]:
        found = self.devices()
        keys = (self.clause,) if isinstance(found, Missing) else tuple(self.key(d) for d in found)
        return (keys if self.judged else ()) + ((SPREAD,) if self.spread else ())

    @property
    def clause(self) -> str:
        return f"{FAMILY}.{self.dtype}"

    def key(self, device: Device) -> str:
        return f"{self.clause}@{device.subject}"

    def cost(self, depth: Depth) -> Cost:
        found = self.devices()
        if isinstance(found, Missing):
            return Cost(0.0)
        effort = self.effort[depth]
        search = SEARCH_S[depth] if len(self._candidates()) > 1 else 0.0
        together = 1.5 * TOGETHER_S[depth] if len(found) > 1 else 0.0
        beside = len(found) * (effort.block_s + PREPARE_S) if self._beside() is not None else 0.0
        return Cost(START_S + search + effort.seconds(len(found)) + together + beside)

    def execute(self, host: Host, look: Look) -> Mapping[str, Result]:
        if isinstance(self.interpreter, Missing):
            return dict.fromkeys(self.keys(), self.interpreter)
        found = self.devices()
        if isinstance(found, Missing):
            return dict.fromkeys(self.keys(), found)
        wanted = [d for d in found if look.wants(self.key(d)) or (self.spread and look.wants(SPREAD))]
        limit_s = 60 + 4 * self.cost(look.depth).seconds
        ran = launch(
            host,
            probe=f"{self.clause}/{look.number}",
            worker=FAMILY,
            request=self.request(look.depth, limit_s, [d.index for d in wanted]),
            python=self.interpreter.value.path,
            timeout_s=limit_s + 120,
            watch=self.device == "cuda",
        )
        if isinstance(ran, Missing):
            return dict.fromkeys(self.keys(), ran)
        try:
            measured = parse(ran.data, self.dtype)
        except ParseError as error:
            return dict.fromkeys(self.keys(), unreadable(FAMILY, error, ran.evidence))
        if isinstance(measured, Unable):
            return dict.fromkeys(self.keys(), as_missing(measured, ran.evidence))
        self._shape = measured.shape
        return self.results(ran, measured, look, wanted)

    def _candidates(self) -> tuple[tuple[int, int, int], ...]:
        if self._shape is not None:
            return (self._shape,)
        if self.shapes is not None:
            return self.shapes
        if self.device == "cpu":
            return CPU_SHAPES
        return VECTOR_SHAPES if self.dtype in ("fp64", "fp32") else TENSOR_SHAPES

    def _beside(self) -> Optional[list[int]]:
        """What published numbers are of, measured on each GPU too; on a CPU theirs would take too long."""
        too_long = self.device == "cpu" and self.common == COMMON_SHAPE
        return None if too_long or self._candidates() == (self.common,) else list(self.common)

    def request(self, depth: Depth, limit_s: float, indexes: list[int]) -> dict[str, Any]:
        """As ``benchmarks/gemm.py`` documents it."""
        effort = self.effort[depth]
        return {
            "device": self.device,
            "dtypes": [self.dtype],
            "shapes": [list(s) for s in self._candidates()],
            "search_s": SEARCH_S[depth],
            "blocks": effort.blocks,
            "samples": effort.samples,
            "sample_s": effort.sample_s,
            "warmup_s": effort.warmup_s,
            "pause_s": effort.pause_s,
            "together_s": TOGETHER_S[depth],
            "beside": self._beside(),
            "limit_s": limit_s,
            "seed": SEED,
            "tolerance": {self.dtype: TOLERANCE[self.dtype]},
            "indexes": indexes,
        }

    # ---------------------------------------------------------------- from the worker's answer

    def results(self, ran: WorkerResult, measured: Gemm, look: Look, wanted: list[Device]) -> dict[str, Result]:
        seen = {d.index: d for d in ran.devices}
        by_subject = {seen[d.index].subject: d for d in measured.devices if d.index in seen}
        found: dict[str, Result] = {}
        for device in wanted:
            # The CPU is named by the agent; a GPU must be the one that the facts saw.
            one = measured.devices[0] if self.device == "cpu" else by_subject.get(device.subject)
            found[self.key(device)] = self.taken(ran, measured, look, device, one)
        if self.spread:
            found[SPREAD] = spread(list(found.values()))
        return found

    def taken(self, ran: WorkerResult, measured: Gemm, look: Look, device: Device, one: Optional[OneDevice]) -> Result:
        if one is None:
            return Missing("failed", msg("torch no longer sees {slot}", slot=device.subject), ran.evidence)
        if one.error is not None:
            return as_missing(one.error, ran.evidence)
        if not one.timings:
            return Missing("timeout", msg("no block was finished within the test's own time limit"), ran.evidence)
        blocks = tuple(_block(t, measured, ran, device, one.bits) for t in one.timings)
        timings = (*one.timings, *_beside(one))
        correct = all(t.correct for t in timings)
        attempt = Attempt(
            blocks=blocks,
            depth=look.depth,
            started_at=ran.started_at,
            evidence=ran.evidence,
            void=_wrong(timings) if not correct else self._above(blocks, device),
            correct=correct,
            notes=(*_notes(ran, measured, one), *_together(one, blocks)),
            reproduce=ran.argv,
        )
        return Taken(attempt, UNIT, STATISTIC, device.subject)

    def _above(self, blocks: tuple[Block, ...], device: Device) -> Optional[Void]:
        """Nothing is better than physics: such a clock, such data or such a device is not what it claims."""
        bound = self.bound(self.dtype, device)
        value = stats.median([b.value for b in blocks])
        code = stats.void_above(value, bound)
        if code is None:
            return None
        detail = msg(
            "{value} TFLOPS is above the {bound} TFLOPS that this model can reach", value=f"{value:.1f}", bound=bound
        )
        return Void(code, detail)


def _block(timing: Timing, measured: Gemm, ran: WorkerResult, device: Device, bits: Optional[Bits]) -> Block:
    found = {
        "shape": list(measured.shape),
        "calls": timing.calls,
        "started_at": timing.started_at,
        "ended_at": timing.ended_at,
        "max_error": timing.max_error,
        "row_error": timing.row_error,
        "cuda": ran.versions.get("cuda"),
        **({} if bits is None else {"bits": {"inputs": bits.inputs, "product": bits.product}}),
        **conditions(ran.telemetry, seen_as(ran, device), timing.started_at, timing.ended_at),
    }
    return Block(stats.median(timing.samples), timing.samples, timing.warmup, found)


def _wrong(timings: tuple[Timing, ...]) -> Void:
    bad = sum(not t.correct for t in timings)
    detail = msg("the products of {bad} of {n} blocks differ from float64 arithmetic", bad=bad, n=len(timings))
    return Void(WRONG, detail)


def _notes(ran: WorkerResult, measured: Gemm, one: OneDevice) -> tuple[Text, ...]:
    m, n, k = measured.shape
    made = msg(
        "{api}, {m} × {n} × {k}, torch {torch}, CUDA {cuda}, cuBLAS {cublas}",
        api=measured.api,
        m=m,
        n=n,
        k=k,
        torch=ran.versions.get("torch") or "–",
        cuda=ran.versions.get("cuda") or "–",
        cublas=ran.versions.get("cublas") or "–",
    )
    notes = [made]
    if measured.fast_accumulation is not None:
        how = msg("fast accumulation") if measured.fast_accumulation else msg("full accumulation")
        notes.append(msg("sums of fp8 products: {how}", how=how))
    common = measured.reached(COMMON_SHAPE)
    if one.beside is not None:
        notes.append(_at(one.beside))
    elif common is not None and measured.shape != COMMON_SHAPE:
        notes.append(msg("at 8192 × 8192 × 8192 the first GPU reached {rate} TFLOPS", rate=f"{common:.1f}"))
    if measured.stopped is not None:
        notes.append(msg("stopped by its own time limit before all blocks were done"))
    return tuple(notes)


def _beside(one: OneDevice) -> tuple[Timing, ...]:
    return (one.beside.timing,) if one.beside is not None and isinstance(one.beside.timing, Timing) else ()


def _at(beside: Beside) -> Text:
    m, n, k = beside.shape
    if isinstance(beside.timing, Unable):
        return msg("at {m} × {n} × {k}: not measured ({why})", m=m, n=n, k=k, why=beside.timing.detail)
    reached = f"{stats.median(beside.timing.samples):.1f}"
    return msg("at {m} × {n} × {k}: {rate} TFLOPS", m=m, n=n, k=k, rate=reached)


def _together(one: OneDevice, blocks: tuple[Block, ...]) -> tuple[Text, ...]:
    """All GPUs share power and cooling: beside the others a card may be slower than alone, which is no breach."""
    alone = stats.median([b.value for b in blocks])
    if one.together is None or not alone > 0:
        return ()
    share = one.together / alone
    said = msg(
        "with all GPUs at once: {rate} TFLOPS, {share} % of its own alone",
        rate=f"{one.together:.1f}",
        share=f"{100 * share:.1f}",
    )
    if share >= TOGETHER_LEAST:
        return (said,)
    return said, msg("slower beside the others: power or cooling is shared")


def spread(results: list[Result]) -> Result:
    """(median − slowest) / median over the GPUs in %, for each round of blocks."""
    taken = [r for r in results if isinstance(r, Taken)]
    missing = next((r for r in results if isinstance(r, Missing)), None)
    if missing is not None:
        return Missing(missing.kind, msg("not every GPU was measured: {why}", why=missing.detail), missing.evidence)
    if len(taken) < 2:
        evidence = tuple(e for t in taken for e in t.attempt.evidence)
        return Missing("not-there", msg("a spread needs two GPUs or more; there is {n}", n=len(taken)), evidence)
    first = taken[0].attempt
    rounds = list(zip(*([b.value for b in t.attempt.blocks] for t in taken)))
    values = [100 * (stats.median(one) - min(one)) / stats.median(one) for one in rounds]
    attempt = Attempt(
        blocks=tuple(Block(value, (value,)) for value in values),
        depth=first.depth,
        started_at=first.started_at,
        evidence=first.evidence,
        void=next((t.attempt.void for t in taken if t.attempt.void is not None), None),
        correct=all(t.attempt.correct for t in taken),
        notes=first.notes,
        reproduce=first.reproduce,
    )
    return Taken(attempt, "%", STATISTIC)
