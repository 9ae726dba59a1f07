"""A short real training of a GPT over all GPUs: ``training.tokens_per_second``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Optional, Union

from agent import stats
from agent.bench import _devices
from agent.bench.gemm import SEED
from agent.bench.step import Cost, Look, Step
from agent.bench.telemetry import conditions
from agent.bench.worker import WorkerResult, as_missing, launch, unreadable
from agent.facts.pythons import Interpreter
from agent.host import Host
from agent.model import Attempt, Block, Depth, Result, Taken, Void
from agent.quantity import format_quantity
from agent.reading import Missing, Reading
from agent.text import Text, msg
from agent.tools import ParseError
from agent.tools.training import Stretch, Training, parse

WORKER = "training"
KEY = "training.tokens_per_second"
NOT_LEARNING = "loss-not-falling"
FALLS_BY = 0.02  # of the first loss, at least, within the steps of a short look
DEFAULT = "gpt-1b"
LARGEST = "largest"
START_S = 60.0
WARMUP_STEPS = 8
STEP_S = 2.0  # a step of the default model on one H100 takes 0.3 s, on a small card several seconds
STALL_S = 120.0
BATCH = 8  # sequences a step on each device

# Layers, width, heads of the GPTs that papers measure, the smallest first; 50,304 words in sequences of 2,048.
_SIZES = {
    "gpt-125m": (12, 768, 12),
    "gpt-350m": (24, 1024, 16),
    "gpt-1b": (24, 2048, 16),
    "gpt-3b": (32, 2560, 32),
    "gpt-7b": (32, 4096, 32),
    "gpt-13b": (40, 5120, 40),
}
Shape = Mapping[str, Union[str, int]]
SHAPES: Mapping[str, Shape] = {
    name: {"name": name, "layers": layers, "width": width, "heads": heads, "vocabulary": 50304, "sequence": 2048}
    for name, (layers, width, heads) in _SIZES.items()
}


@dataclass(frozen=True)
class Effort:
    """Blocks and seconds of each; they follow each other without a pause, as training does."""

    blocks: int
    block_s: float


EFFORT: Mapping[Depth, Effort] = {
    "quick": Effort(stats.BLOCKS, 2.0),
    "standard": Effort(stats.BLOCKS, 10.0),
    "deeper": Effort(stats.BLOCKS_DEEPER, 10.0),
}


def named(model: str) -> tuple[Shape, ...]:
    """The shapes to try in turn; empty for a name that is not known."""
    if model == LARGEST:
        return tuple(SHAPES.values())[::-1]
    return (SHAPES[model],) if model in SHAPES else ()


@dataclass
class TrainingStep:
    """``model``: a name of :data:`SHAPES`, or "largest". ``peak``: dense bf16 TFLOPS of one card, for the MFU."""

    interpreter: Reading[Interpreter]
    model: str = DEFAULT
    peak: Optional[float] = None
    device: str = "cuda"
    ranks: Optional[int] = None
    batch: int = BATCH
    sharded: Optional[bool] = None
    warmup_steps: int = WARMUP_STEPS
    stall_s: float = STALL_S
    shapes: Optional[tuple[Shape, ...]] = None
    effort: Mapping[Depth, Effort] = field(default_factory=lambda: EFFORT)

    def step(self) -> Step:
        load: Any = "cpu" if self.device == "cpu" else "gpu"
        return Step(KEY, (KEY,), load, self.cost, lambda host, look: {KEY: self.execute(host, look)}, 10.0)

    def cost(self, depth: Depth) -> Cost:
        if isinstance(_devices.devices(self.interpreter, self.device), Missing) or not self._shapes():
            return Cost(0.0)
        effort = self.effort[depth]
        return Cost(START_S + self.warmup_steps * STEP_S + effort.blocks * effort.block_s)

    def _shapes(self) -> tuple[Shape, ...]:
        return named(self.model) if self.shapes is None else self.shapes

    def execute(self, host: Host, look: Look) -> Result:
        found = _devices.devices(self.interpreter, self.device)
        if isinstance(self.interpreter, Missing):
            return self.interpreter
        if isinstance(found, Missing):
            return found
        if not self._shapes():
            known = (*SHAPES, LARGEST)
            return Missing("unsupported", msg("no model “{name}”; there are {known}", name=self.model, known=known))
        limit_s = 120 + 4 * self.cost(look.depth).seconds
        request = self.request(look.depth, limit_s, self.ranks or len(found))
        python, watch = self.interpreter.value.path, self.device == "cuda"
        ran = launch(host, f"{WORKER}/{look.number}", WORKER, request, python, limit_s + 60, watch)
        if isinstance(ran, Missing):
            return ran
        try:
            measured = parse(ran.data)
        except ParseError as error:
            return unreadable(WORKER, error, ran.evidence)
        return self.taken(ran, measured, look)

    def request(self, depth: Depth, limit_s: float, ranks: int) -> dict[str, Any]:
        """As ``benchmarks/training.py`` documents it."""
        effort = self.effort[depth]
        return {
            "device": self.device,
            "ranks": ranks,
            "shapes": [dict(s) for s in self._shapes()],
            "batch": self.batch,
            "sharded": self.sharded,
            "blocks": effort.blocks,
            "block_s": effort.block_s,
            "warmup_steps": self.warmup_steps,
            "limit_s": limit_s,
            "stall_s": self.stall_s,
            "seed": SEED,
        }

    def taken(self, ran: WorkerResult, measured: Training, look: Look) -> Result:
        """The attempt; a training that does not learn computes something else than it should."""
        if not measured.stretches:
            why = measured.stopped
            if why is not None:
                return as_missing(why, ran.evidence)
            return Missing("failed", msg("our own training test finished no block"), ran.evidence)
        void = _not_learning(measured)
        attempt = Attempt(
            blocks=tuple(self._block(s, ran, measured) for s in measured.stretches),
            depth=look.depth,
            started_at=ran.started_at,
            evidence=ran.evidence,
            void=void,
            correct=void is None,
            notes=self.notes(measured),
            reproduce=ran.argv,
        )
        return Taken(attempt, "/s", "median of block medians")

    def _block(self, stretch: Stretch, ran: WorkerResult, measured: Training) -> Block:
        value = stats.median(stretch.tokens_per_second)
        flops = value * measured.operations_per_token / measured.ranks / 1e12
        found = {
            "tflops_per_gpu": round(flops, 3),
            "mfu": round(flops / self.peak, 4) if self.peak else None,
            # What the projection of another job needs: operations a second that training really gets.
            "operations_per_token": measured.operations_per_token,
            "parameters": measured.parameters,
            "gpus": measured.ranks,
            "started_at": stretch.started_at,
            "ended_at": stretch.ended_at,
            **conditions(ran.telemetry, ran.devices[0], stretch.started_at, stretch.ended_at),
        }
        return Block(value, stretch.tokens_per_second, (), found)

    def notes(self, measured: Training) -> tuple[Text, ...]:
        """The model, what of the peak it used, memory and loss."""
        notes = [
            msg(
                "{name}: {parameters} M parameters, {batch} × {sequence} tokens a step on each of {n} devices, {how}",
                name=measured.name,
                parameters=f"{measured.parameters / 1e6:.0f}",
                batch=measured.batch,
                sequence=measured.sequence,
                n=measured.ranks,
                how=_PARALLEL[measured.parallel],
            )
        ]
        rate = stats.median([stats.median(s.tokens_per_second) for s in measured.stretches])
        flops = rate * measured.operations_per_token / measured.ranks / 1e12
        if self.peak:
            share = f"{100 * flops / self.peak:.1f}"
            said = msg("{tflops} TFLOPS a GPU, {share} % of the dense bf16 peak", tflops=f"{flops:.1f}", share=share)
            notes.append(said)
        if measured.memory_bytes is not None:
            said = msg("most memory on a device: {size}", size=format_quantity(float(measured.memory_bytes), "B"))
            notes.append(said)
        known = [loss for loss in measured.losses if loss is not None]
        if len(known) > 1:
            notes.append(msg("loss {first} → {last}", first=f"{known[0]:.3f}", last=f"{known[-1]:.3f}"))
        return tuple(notes)


_PARALLEL = {
    "one": msg("one device"),
    "ddp": msg("the whole model on each (DDP)"),
    "fsdp": msg("the model spread over all (FSDP)"),
}


def _not_learning(measured: Training) -> Optional[Void]:
    """The text is so easy that a loss which does not fall means wrong arithmetic."""
    losses = measured.losses
    if len(losses) < 2 or None in losses:
        return Void(NOT_LEARNING, msg("the loss of the training is not finite"))
    first, last = losses[0], losses[-1]
    assert first is not None
    assert last is not None
    if last <= (1 - FALLS_BY) * first:
        return None
    said = msg("the loss did not fall: {first} at first, {last} at last", first=f"{first:.4f}", last=f"{last:.4f}")
    return Void(NOT_LEARNING, said)
