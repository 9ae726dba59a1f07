"""A load on all GPUs at once for the contract's time: ``burn.temperature@…``, ``burn.throttled@…`` and the others.

Beside them ``integrity.load_errors@…``: by how much the counters of memory errors, remapped rows and replays grew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Optional, Union

from agent import stats
from agent.bench import _devices, second_burn, second_source
from agent.bench.gemm import SEED, TOLERANCE, WRONG
from agent.bench.step import Cost, Look, Step
from agent.bench.telemetry import Watched, conditions, fault_share, shares, watched
from agent.bench.worker import WorkerResult, as_missing, launch, unreadable
from agent.facts.pythons import Interpreter
from agent.host import Host
from agent.model import Attempt, Block, Depth, Result, Statistic, Taken, Void
from agent.reading import Missing, Reading
from agent.text import Text, msg
from agent.tools import ParseError
from agent.tools.burn import Burn, OneDevice, Stretch, parse
from agent.tools.worker import Device

WORKER = "burn"
ERRORS = "integrity.load_errors"
DURATION_S = 600.0
SHORT_S = 15.0
WINDOW_S = 60.0  # "first to last minute"; a quarter of the time where that is less
PARTS = stats.BLOCKS  # of each window, for an interval
START_S = 12.0  # torch, a context and the first product on each GPU, all at once
LIGHT_S = 3.0
CHECK_S = 0.3
STALL_S = 90.0
BATCH_S = 0.1
SHAPE = (8192, 8192, 8192)
LOCKED = 0.97  # of the largest clock that a free card reaches under a light load
STRAGGLER = 0.05  # behind the node's median: more than the spread between healthy cards
DTYPES = (((8, 0), "bf16"), ((5, 3), "fp16"))  # the first that the card has units for
COUNTED = ("ecc_uncorrected", "remapped_uncorrectable", "remapped_failure", "ecc_corrected", "pcie_replay")
METRICS: Mapping[str, tuple[str, Statistic]] = {
    "temperature": ("C", "median of repetitions"),
    "throttled": ("%", "share of time"),
    "power": ("%", "median of block medians"),
    "sag": ("%", "median of repetitions"),
}


@dataclass
class BurnStep:
    """``metrics``: which clauses are promised; ``duration_s``: how long the contract wants it."""

    interpreter: Reading[Interpreter]
    metrics: tuple[str, ...]
    duration_s: float = DURATION_S
    device: str = "cuda"
    dtype: str = "bf16"
    shape: tuple[int, int, int] = SHAPE
    stall_s: float = STALL_S
    light_s: float = LIGHT_S
    tools: second_source.Where = field(default_factory=dict)

    def step(self) -> Step:
        load: Any = "cpu" if self.device == "cpu" else "gpu"
        tools = second_source.seconds(self.tools, *second_burn.TOOLS)
        return Step(WORKER, self.keys(), load, self.cost, self.execute, 30.0, tools)

    def keys(self) -> tuple[str, ...]:
        found = _devices.devices(self.interpreter, self.device)
        names = [f"burn.{m}" for m in self.metrics]
        return tuple(key for name in (*names, ERRORS) for key in _devices.keys(name, found))

    def seconds(self, depth: Depth) -> float:
        """How long the load lasts."""
        return min(SHORT_S, self.duration_s) if depth == "quick" else self.duration_s

    def stretches(self, depth: Depth) -> int:
        return stats.TIME_BLOCKS_DEEPER if depth == "deeper" else stats.TIME_BLOCKS

    def cost(self, depth: Depth) -> Cost:
        if isinstance(_devices.devices(self.interpreter, self.device), Missing):
            return Cost(0.0)
        return Cost(START_S + self.light_s + self.seconds(depth) + self.stretches(depth) * CHECK_S)

    def execute(self, host: Host, look: Look) -> Mapping[str, Result]:
        if isinstance(self.interpreter, Missing):
            return _devices.all_of(self.keys(), self.interpreter)
        found = _devices.devices(self.interpreter, self.device)
        if isinstance(found, Missing):
            return _devices.all_of(self.keys(), found)
        limit_s = 120 + 1.5 * self.cost(look.depth).seconds
        python = self.interpreter.value.path
        request = self.request(look.depth, limit_s, len(found))
        ran = launch(host, f"{WORKER}/{look.number}", WORKER, request, python, limit_s + 60, watch=True)
        if isinstance(ran, Missing):
            return _devices.all_of(self.keys(), ran)
        try:
            measured = parse(ran.data)
        except ParseError as error:
            return _devices.all_of(self.keys(), unreadable(WORKER, error, ran.evidence))
        ours = self.results(ran, measured, look, found)
        if self.device == "cpu":
            return ours
        slots = {d.index: d.subject for d in found}
        # Tensor cores for fp32 operands came with those for bf16.
        return second_burn.beside(host, look, self.tools, slots, self.dtype == "bf16", ours)

    def request(self, depth: Depth, limit_s: float, ranks: int) -> dict[str, Any]:
        """As ``benchmarks/burn.py`` documents it."""
        return {
            "device": self.device,
            "ranks": ranks,
            "dtype": self.dtype,
            "shape": list(self.shape),
            "seconds": self.seconds(depth),
            "blocks": self.stretches(depth),
            "light_s": self.light_s,
            "batch_s": BATCH_S,
            "limit_s": limit_s,
            "stall_s": self.stall_s,
            "seed": SEED,
            "tolerance": {self.dtype: TOLERANCE[self.dtype]},
        }

    def results(self, ran: WorkerResult, measured: Burn, look: Look, wanted: tuple[Device, ...]) -> dict[str, Result]:
        """From the worker's answer and the telemetry beside it, for each metric of each device."""
        seen = {d.index: d for d in ran.devices}
        by_subject = {seen[d.index].subject: (seen[d.index], d) for d in measured.devices if d.index in seen}
        medians = _node_median(measured, self.stretches(look.depth))
        found: dict[str, Result] = {}
        for device in wanted:
            # The CPU is named by the agent; a GPU must be the one that the facts saw.
            pair = by_subject.get(device.subject) if self.device == "cuda" else (device, measured.devices[0])
            one = self._one(ran, measured, look, pair, medians)
            for name in self.metrics:
                found[f"burn.{name}@{device.subject}"] = _metric(name, one, device)
            found[f"{ERRORS}@{device.subject}"] = _errors(one, device)
        return found

    def _one(
        self,
        ran: WorkerResult,
        measured: Burn,
        look: Look,
        pair: Optional[tuple[Device, OneDevice]],
        medians: Optional[float],
    ) -> Union[Burned, Missing]:
        if pair is None:
            return Missing("failed", msg("torch no longer sees this GPU"), ran.evidence)
        device, one = pair
        if len(one.stretches) < self.stretches(look.depth):
            if measured.stopped is not None:
                return as_missing(measured.stopped, ran.evidence)
            return Missing("failed", msg("the load ended before its time"), ran.evidence)
        return Burned(ran, measured, look, device, one, watched(ran.telemetry, device), medians)


def dtype_for(capability: Optional[str]) -> str:
    """The type of number that a card of this compute capability (``9.0``) is loaded with."""
    parts = tuple(int(n) for n in capability.split(".")) if capability else (8, 0)
    return next((dtype for least, dtype in DTYPES if parts >= least), "fp32")


def _node_median(measured: Burn, stretches: int) -> Optional[float]:
    rates = [stats.median([s.rate for s in d.stretches]) for d in measured.devices if len(d.stretches) == stretches]
    return stats.median(rates) if len(rates) > 1 else None


@dataclass(frozen=True)
class Burned:
    """One device that was loaded for the whole time. ``node``: the median rate of all GPUs in TFLOPS."""

    ran: WorkerResult
    measured: Burn
    look: Look
    device: Device
    one: OneDevice
    card: Optional[Watched]
    node: Optional[float]

    def blocks(self, values: list[float]) -> tuple[Block, ...]:
        """One value a stretch, with the stretch's conditions."""
        pairs = zip(values, self.one.stretches)
        return tuple(Block(value, (value,), (), self._conditions(stretch)) for value, stretch in pairs)

    def _conditions(self, stretch: Stretch) -> dict[str, Any]:
        found = {
            "tflops": round(stretch.rate, 3),
            "started_at": stretch.started_at,
            "ended_at": stretch.ended_at,
            "max_error": stretch.max_error,
            **conditions(self.ran.telemetry, self.device, stretch.started_at, stretch.ended_at),
        }
        return {**found, **self._counted(stretch)}

    def _counted(self, stretch: Stretch) -> dict[str, Any]:
        """The driver's own counts of held clocks, where it has them."""
        if self.card is None:
            return {}
        span = self.card.span(stretch.started_at, stretch.ended_at)
        names = ("power_ns", "thermal_ns", "board_ns", "reliability_ns")
        found = {name[:-3]: self.card.held_down(name, span) for name in names}
        known = {name: round(share, 5) for name, share in found.items() if share is not None}
        return {"held_down": known} if known else {}

    def attempt(self, blocks: tuple[Block, ...], notes: tuple[Text, ...] = ()) -> Attempt:
        wrong = sum(not s.correct for s in self.one.stretches)
        void = None
        if wrong:
            said = msg("the products of {bad} of {n} stretches are wrong", bad=wrong, n=len(self.one.stretches))
            void = Void(WRONG, said)
        return Attempt(
            blocks=blocks,
            depth=self.look.depth,
            started_at=self.ran.started_at,
            evidence=self.ran.evidence,
            void=void,
            correct=not wrong,
            notes=(*self.notes(), *notes),
            reproduce=self.ran.argv,
        )

    def notes(self) -> tuple[Text, ...]:
        """The load, the straggler, locked clocks."""
        m, n, k = self.measured.shape
        seconds = sum(sum(s.seconds) for s in self.one.stretches)
        rate = stats.median([s.rate for s in self.one.stretches])
        made = msg(
            "{dtype}, {m} × {n} × {k} for {s} s: {rate} TFLOPS",
            dtype=self.measured.dtype,
            m=m,
            n=n,
            k=k,
            s=f"{seconds:.0f}",
            rate=f"{rate:.4g}",
        )
        return (made, *self._behind(rate), *self._locked())

    def _behind(self, rate: float) -> tuple[Text, ...]:
        if self.node is None or rate >= (1 - STRAGGLER) * self.node:
            return ()
        return (
            msg("{percent} % behind the median of this node's GPUs", percent=f"{100 * (1 - rate / self.node):.1f}"),
        )

    def _locked(self) -> tuple[Text, ...]:
        if self.card is None or self.one.light is None:
            return ()
        most = self.card.telemetry.gpus[self.card.card].clock_sm_max_mhz
        clocks = self.card.clocks(self.card.span(*self.one.light))
        if most is None or not clocks or max(clocks) >= LOCKED * most:
            return ()
        said = msg("under a light load the clock reached {mhz} of {most} MHz", mhz=f"{max(clocks):g}", most=f"{most:g}")
        return (msg("{said}: it is locked or held down", said=said),)


def _metric(name: str, one: Union[Burned, Missing], device: Device) -> Result:
    if isinstance(one, Missing):
        return one
    unit, statistic = METRICS[name]
    made = {"temperature": _temperature, "throttled": _throttled, "power": _power, "sag": _sag}[name](one)
    return made if isinstance(made, Missing) else Taken(made, unit, statistic, device.subject)


def _no_telemetry(one: Burned) -> Missing:
    telemetry = one.ran.telemetry
    if isinstance(telemetry, Missing):
        return telemetry
    why = telemetry.value.error or "–"
    grant = msg("an NVIDIA driver whose NVML can be read")
    detail = msg("no telemetry of this GPU beside the load: {why}", why=why)
    return Missing("no-tool" if telemetry.value.error else "failed", detail, one.ran.evidence, grant)


def _too_few(one: Burned) -> Missing:
    return Missing("failed", msg("the driver gave too few samples during the load"), one.ran.evidence)


def _temperature(one: Burned) -> Union[Attempt, Missing]:
    """The hottest moment of each stretch."""
    if one.card is None:
        return _no_telemetry(one)
    values = [one.card.slow("temperature_c", one.card.span(s.started_at, s.ended_at)) for s in one.one.stretches]
    return one.attempt(one.blocks([max(v) for v in values])) if all(values) else _too_few(one)


def _power(one: Burned) -> Union[Attempt, Missing]:
    """Mean draw of each stretch as a share of the limit that is enforced."""
    if one.card is None:
        return _no_telemetry(one)
    limit = one.card.telemetry.gpus[one.card.card].power_enforced_w
    values = [one.card.slow("power_w", one.card.span(s.started_at, s.ended_at)) for s in one.one.stretches]
    if not limit:
        return Missing("unsupported", msg("the driver does not tell the power limit in force"), one.ran.evidence)
    if not all(values):
        return _too_few(one)
    return one.attempt(one.blocks([100 * sum(v) / len(v) / limit for v in values]))


def _throttled(one: Burned) -> Union[Attempt, Missing]:
    """Share of the time in which a fault held the clocks down: samples, or the driver's counter where that is more."""
    if one.card is None:
        return _no_telemetry(one)
    values = []
    for stretch in one.one.stretches:
        span = one.card.span(stretch.started_at, stretch.ended_at)
        reasons = one.card.reasons(span)
        if reasons is None:
            return _too_few(one)
        counted = one.card.held_down("thermal_ns", span) or 0.0
        values.append(100 * max(fault_share(reasons, one.card.capped), counted))
    return one.attempt(one.blocks(values), _causes(one, one.card))


def _causes(one: Burned, card: Watched) -> tuple[Text, ...]:
    """Every cause with its share of the time, the normal ones too."""
    first, last = one.one.stretches[0].started_at, one.one.stretches[-1].ended_at
    reasons = card.reasons(card.span(first, last)) or [0]
    found = ", ".join(f"{name} {100 * share:.3g} %" for name, share in shares(reasons).items())
    notes = [msg("clocks held down by: {causes}", causes=found or "–")]
    if card.capped:
        gpu = card.telemetry.gpus[card.card]
        notes.append(
            msg(
                "{enforced} W are enforced, {default} W is this card's default: the power cap counts as throttling",
                enforced=f"{gpu.power_enforced_w:g}",
                default=f"{gpu.power_default_w:g}",
            )
        )
    return tuple(notes)


def _sag(one: Burned) -> Union[Attempt, Missing]:
    """First to last minute in %, in six pairs of parts; a card that got faster has not sagged."""
    series = [(r, s) for stretch in one.one.stretches for r, s in zip(stretch.rates, stretch.seconds)]
    window = min(WINDOW_S, sum(s for _, s in series) / 4)
    first, last = _parts(series, window), _parts(series[::-1], window)[::-1]
    if len(first) < PARTS or len(last) < PARTS:
        return Missing("failed", msg("the load was too short to compare its first and last minute"), one.ran.evidence)
    values = [100 * max(0.0, 1 - late / early) for early, late in zip(first, last)]
    blocks = tuple(
        Block(v, (v,), (), {"first_tflops": round(early, 3), "last_tflops": round(late, 3)})
        for v, early, late in zip(values, first, last)
    )
    return one.attempt(blocks)


def _parts(series: list[tuple[float, float]], window: float) -> list[float]:
    """Rates of :data:`PARTS` parts of the first ``window`` seconds."""
    found: list[float] = []
    work = time = 0.0
    for rate, seconds in series:
        work, time = work + rate * seconds, time + seconds
        if time >= window / PARTS:
            found.append(work / time)
            work = time = 0.0
        if len(found) == PARTS:
            break
    return found


def _errors(one: Union[Burned, Missing], device: Device) -> Result:
    """One block: its value is the growth of what no healthy card has, its conditions every counter's."""
    if isinstance(one, Missing):
        return one
    if one.card is None:
        return _no_telemetry(one)
    card = one.card
    grown = {name: card.growth(name) for name in COUNTED}
    faults = [xid for _, index, xid in card.telemetry.faults if index == card.card]
    if all(value is None for value in grown.values()) and not faults:
        return Missing("unsupported", msg("this card tells no error counters"), one.ran.evidence)
    deaf = card.telemetry.gpus[card.card].no_events
    bad = sum(grown[name] or 0.0 for name in COUNTED[:3])
    block = Block(bad, (bad,), (), {"growth": grown, "xids": faults, **({"no_events": deaf} if deaf else {})})
    return Taken(one.attempt((block,)), "", "median of repetitions", device.subject)
