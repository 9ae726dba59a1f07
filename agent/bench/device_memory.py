"""Device memory of each GPU, written and verified: ``memory_test@0000:1b:00.0``. Needs a driver and no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional, Union

from agent.bench.step import Cost, Look, Step
from agent.bench.telemetry import watched
from agent.bench.worker import WorkerResult, as_missing, launch, unreadable
from agent.facts._slot import slot
from agent.host import Host, LiveHost
from agent.model import Attempt, Block, Depth, Result, Taken, Void
from agent.reading import Missing
from agent.text import Text, msg
from agent.tools import ParseError
from agent.tools.device_memory import MemoryTest, WrongWord, memory_tests
from agent.tools.worker import Device

WORKER = "device_memory"
FAMILY = "memory_test"
ECC_ERROR = "ecc-error"
MIB = 1 << 20
# Two passes are one text and its inverse: every bit is seen as 0 and as 1.
PASSES: Mapping[Depth, int] = {"quick": 2, "standard": 2, "deeper": 4}
CHUNK = 256 * MIB  # of an allocation: a large one can fail where the same in pieces fits
WINDOW = 16 * MIB  # what the host compares at a time
START_S = 4.0  # a context on each GPU, and compiling the kernel
KERNEL_RATE = 0.5e12  # bytes/s, one GPU: what the slowest card of today does with room
HOST_RATE = 1e9  # bytes/s: eight GPUs over shared links, compared by one host; only bounds the time

Slots = Union[tuple[str, ...], Missing]


@dataclass(frozen=True)
class Answer:
    """A worker's result with the place of each GPU in it."""

    ran: WorkerResult
    index: Mapping[str, int]

    def device(self, where: str) -> Device:
        """The GPU as the worker saw it."""
        return next(d for d in self.ran.devices if d.index == self.index[where])

    def grown(self, where: str, counter: str) -> Optional[int]:
        """By how much a counter of the card grew meanwhile; None where nobody read it."""
        card = watched(self.ran.telemetry, self.device(where))
        grown = card.growth(counter) if card is not None else None
        return None if grown is None else int(grown)

    def missing(self, where: str) -> Missing:
        """Why a GPU that the facts saw is not in the answer."""
        detail = msg("the CUDA driver does not open {slot}", slot=where)
        grant = msg("a driver that can use this GPU; CUDA_VISIBLE_DEVICES must not hide it")
        return Missing("not-there", detail, self.ran.evidence, grant)


def ask(host: Host, probe: str, request: Mapping[str, Any], timeout_s: float) -> Union[Answer, Missing]:
    """Run the worker, with telemetry beside it, in the agent's own Python: it needs no other."""
    ran = launch(host, probe, WORKER, request, host.python(), timeout_s, watch=True)
    if isinstance(ran, Missing):
        return ran
    seen = {slot(d.slot): d.index for d in ran.devices}
    return Answer(ran, {where: index for where, index in seen.items() if where is not None})


def sysfs(host: Host) -> str:
    """Where the worker finds it; a simulated node has its own."""
    root = host.root if isinstance(host, LiveHost) else Path("/")
    return str(root / "sys")


@dataclass(frozen=True)
class MemoryTestStep:
    """``wanted`` bytes of each GPU, which are the asked share of the ``promised`` bytes.

    ``slack_s`` is what the worker gets beyond its own time limit before it is killed.
    """

    slots: Slots
    promised: float
    wanted: int
    method: str = "auto"
    window: int = WINDOW
    slack_s: float = 60.0

    def step(self) -> Step:
        return Step(
            name=FAMILY,
            keys=(FAMILY,) if isinstance(self.slots, Missing) else tuple(f"{FAMILY}@{s}" for s in self.slots),
            load="gpu",
            cost=self.cost,
            execute=self.execute,
            settle_s=10.0,
        )

    def cost(self, depth: Depth) -> Cost:
        if isinstance(self.slots, Missing):
            return Cost(0.0)
        return Cost(START_S + 2 * PASSES[depth] * self.wanted / KERNEL_RATE)

    def limit_s(self, depth: Depth) -> float:
        """The worker's own limit; enough also where the host has to compare."""
        return 60 + 2 * PASSES[depth] * self.wanted / HOST_RATE

    def execute(self, host: Host, look: Look) -> Mapping[str, Result]:
        if isinstance(self.slots, Missing):
            return {FAMILY: self.slots}
        keys = {f"{FAMILY}@{s}": s for s in self.slots if look.wants(f"{FAMILY}@{s}")}
        limit_s = self.limit_s(look.depth)
        request = {
            "task": "memory_test",
            "slots": list(keys.values()),
            "bytes": self.wanted,
            "passes": PASSES[look.depth],
            "chunk": CHUNK,
            "window": self.window,
            "method": self.method,
            "limit_s": limit_s,
        }
        answer = ask(host, f"{FAMILY}/{look.number}", request, limit_s + self.slack_s)
        if isinstance(answer, Missing):
            return dict.fromkeys(keys, answer)
        try:
            tests = {t.index: t for t in memory_tests(answer.ran.data)}
        except ParseError as error:
            return dict.fromkeys(keys, unreadable(WORKER, error, answer.ran.evidence))
        return {key: self._result(answer, tests, where, look) for key, where in keys.items()}

    def _result(self, answer: Answer, tests: Mapping[int, MemoryTest], where: str, look: Look) -> Result:
        test = tests.get(answer.index.get(where, -1))
        if test is None:
            return answer.missing(where)
        ecc = test.error is not None and test.error.kind == ECC_ERROR
        if test.error is not None and not ecc:
            return as_missing(test.error, answer.ran.evidence)
        if not ecc and (test.stopped is not None or not test.passes):
            return Missing("timeout", msg("the test was not through within its own time limit"), answer.ran.evidence)
        attempt = Attempt(
            blocks=tuple(_blocks(test, self.promised)),
            depth=look.depth,
            started_at=answer.ran.started_at,
            evidence=answer.ran.evidence,
            void=_ecc(test) if ecc else None,
            correct=not ecc and not test.errors,
            notes=(_how(test), *_ecc_growth(answer, where)),
            reproduce=answer.ran.argv,
        )
        return Taken(attempt, "%", "median of repetitions", where)


def _ecc(test: MemoryTest) -> Void:
    said = test.error.detail if test.error is not None else ""
    return Void(ECC_ERROR, msg("the card reported an uncorrectable memory error: {said}", said=said))


def _blocks(test: MemoryTest, promised: float) -> list[Block]:
    """One a pass: the share in % of the promised bytes that came back right."""
    whole = {
        "total_bytes": test.total,
        "used_before_bytes": test.used_before,
        "free_bytes": test.free,
        "asked_bytes": test.asked,
        "allocated_bytes": test.allocated,
        "promised_bytes": promised,
        "method": test.method,
    }
    blocks = []
    for number, one in enumerate(test.passes):
        right = test.allocated - one.wrong_bytes
        conditions = {
            **whole,
            "pass": number,
            "wrong_bytes": one.wrong_bytes,
            "write_s": one.write_s,
            "verify_s": one.verify_s,
            "errors": [_shown(e) for e in test.errors if e.number == number],
        }
        blocks.append(Block(100 * right / promised, conditions=conditions))
    return blocks


def _shown(word: WrongWord) -> dict[str, Any]:
    return {
        "offset": word.offset,
        "address": word.address,
        "expected": word.expected,
        "found": word.found,
        "again": word.again,
    }


def _how(test: MemoryTest) -> Text:
    mib = test.allocated // MIB
    if test.method == "kernel":
        return msg("{mib} MiB written and verified by a kernel, each bit as 0 and as 1", mib=mib)
    why = test.why_host or "—"
    return msg("{mib} MiB written and compared by the host, each bit as 0 and as 1 ({why})", mib=mib, why=why)


def _ecc_growth(answer: Answer, where: str) -> list[Text]:
    grown = {name: answer.grown(where, f"ecc_{name}") for name in ("corrected", "uncorrected")}
    if not any(grown.values()):
        return []
    counted = ", ".join(f"{name} +{n}" for name, n in grown.items() if n)
    return [msg("memory errors that the card counted meanwhile: {counted}", counted=counted)]
