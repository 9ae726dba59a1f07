"""SM clocks under a light load: ``gpu.clocks@0000:1b:00.0``, in percent of the largest that the card offers.

A few thread blocks draw little power and make no heat: whatever holds the clock down then is a setting, or a fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

from agent.bench import _devices
from agent.bench.burn import WORKER, BurnStep
from agent.bench.step import Cost, Look, Step
from agent.bench.telemetry import shares, watched
from agent.bench.worker import WorkerResult, as_missing, launch, unreadable
from agent.facts.pythons import Interpreter
from agent.host import Host
from agent.model import Attempt, Block, Result, Taken
from agent.reading import Missing, Reading
from agent.text import msg
from agent.tools import ParseError
from agent.tools.burn import OneDevice, parse
from agent.tools.worker import Device

KEY = "gpu.clocks"
START_S = 10.0
LIGHT_S = 3.0
AFTER_S = 1.0  # of multiplication, which the same worker does next; not judged
SHAPE = (2048, 2048, 2048)


@dataclass
class ClocksStep:
    """All GPUs at once."""

    interpreter: Reading[Interpreter]
    dtype: str = "bf16"

    def step(self) -> Step:
        return Step(KEY, self.keys(), "gpu", lambda depth: self.cost(), self.execute, 10.0)

    def keys(self) -> tuple[str, ...]:
        return _devices.keys(KEY, _devices.devices(self.interpreter, "cuda"))

    def cost(self) -> Cost:
        gone = isinstance(_devices.devices(self.interpreter, "cuda"), Missing)
        return Cost(0.0 if gone else START_S + LIGHT_S + AFTER_S)

    def execute(self, host: Host, look: Look) -> Mapping[str, Result]:
        if isinstance(self.interpreter, Missing):
            return _devices.all_of(self.keys(), self.interpreter)
        found = _devices.devices(self.interpreter, "cuda")
        if isinstance(found, Missing):
            return _devices.all_of(self.keys(), found)
        load = BurnStep(self.interpreter, (), AFTER_S, dtype=self.dtype, shape=SHAPE, light_s=LIGHT_S)
        limit_s = 120 + 3 * self.cost().seconds
        request = {**load.request("standard", limit_s, len(found)), "blocks": 1}
        python = self.interpreter.value.path
        ran = launch(host, f"{KEY}/{look.number}", WORKER, request, python, limit_s + 60, watch=True)
        if isinstance(ran, Missing):
            return _devices.all_of(self.keys(), ran)
        try:
            measured = parse(ran.data)
        except ParseError as error:
            return _devices.all_of(self.keys(), unreadable(WORKER, error, ran.evidence))
        if measured.stopped is not None:
            return _devices.all_of(self.keys(), as_missing(measured.stopped, ran.evidence))
        by_index = {d.index: d for d in measured.devices}
        pairs = {d.subject: (d, by_index.get(d.index)) for d in ran.devices}
        return {f"{KEY}@{d.subject}": taken(ran, look, *pairs.get(d.subject, (d, None))) for d in found}


def taken(ran: WorkerResult, look: Look, device: Device, one: Optional[OneDevice]) -> Result:
    """The largest clock during the light load, and what held it down."""
    card = watched(ran.telemetry, device)
    if one is None or one.light is None or card is None:
        return Missing("failed", msg("no telemetry of this GPU beside the load"), ran.evidence)
    span = card.span(*one.light)
    clocks, reasons = card.clocks(span), card.reasons(span)
    most = card.telemetry.gpus[card.card].clock_sm_max_mhz
    if not clocks or not most:
        return Missing("unsupported", msg("the driver does not tell the clock or its largest value"), ran.evidence)
    conditions = {"sm_mhz": max(clocks), "most_mhz": most, "throttle": shares(reasons) if reasons else None}
    value = 100 * max(clocks) / most
    attempt = Attempt(
        blocks=(Block(value, (value,), (), conditions),),
        depth=look.depth,
        started_at=ran.started_at,
        evidence=ran.evidence,
        reproduce=ran.argv,
    )
    return Taken(attempt, "%", "median of repetitions", device.subject)
