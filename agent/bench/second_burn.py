"""gpu_burn and NVIDIA's own diagnostics beside the burn: what they say of each GPU, in the notes of ours.

Neither judges. gpu_burn loads all GPUs for a short time and compares its products with each other; dcgmi reads, it
loads nothing, and it is asked only where a host engine already runs: without one it would start its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Optional

from agent.bench.second_source import Told, Where, asked, noted, slot_of, wanted
from agent.bench.step import Look
from agent.host import Host
from agent.model import Result, Taken
from agent.text import Text, msg
from agent.tools import dcgmi, gpu_burn

TOOLS = ("gpu_burn", "dcgmi")
BURN_S = 20
# Preparing eight cards' memory before, and half a minute in which newer versions wait for their own processes.
BURN_TIMEOUT_S = BURN_S + 90.0


def beside(
    host: Host, look: Look, where: Where, slots: Mapping[int, str], tensor: bool, ours: Mapping[str, Result]
) -> dict[str, Result]:
    """The burn's results by key (``burn.sag@SLOT``), with notes. ``slots``: CUDA's number → slot.

    ``tensor``: whether the cards have tensor cores for fp32 products, which gpu_burn must be told.
    """
    results = dict(ours)
    if not any(isinstance(r, Taken) for r in results.values()):
        return results
    if wanted(host, look, where, "gpu_burn"):
        _gpu_burn(host, where["gpu_burn"], slots, tensor, results)
    if wanted(host, look, where, "dcgmi"):
        _dcgmi(host, where["dcgmi"], slots, results)
    return results


def _gpu_burn(host: Host, program: str, slots: Mapping[int, str], tensor: bool, results: dict[str, Result]) -> None:
    words = (program, *(("-tc",) if tensor else ()), str(BURN_S))
    # It looks for its kernels in the folder that it is started in.
    ran = host.run("second.gpu_burn", words, BURN_TIMEOUT_S, cwd=os.path.dirname(program))
    found = asked(ran, "gpu_burn", gpu_burn.parse)
    if isinstance(found, Told):
        _each(results, slots, found.evidence, found.why)
    if found is None or isinstance(found, Told):
        return
    tested = {gpu.index: gpu for gpu in found.gpus}
    for number, slot in slots.items():
        _of(results, slot, ran.cited, _burnt(tested.get(number), found, _right(results, slot)))


def _right(results: Mapping[str, Result], slot: str) -> bool:
    """Whether our own products on this GPU were right."""
    ours = (r for key, r in results.items() if key.partition("@")[2] == slot)
    return all(r.attempt.correct is not False for r in ours if isinstance(r, Taken))


def _burnt(gpu: Optional[gpu_burn.Burnt], found: gpu_burn.GpuBurn, right: bool) -> tuple[Text, ...]:
    """A process of its that ended says nothing of errors: why it ended is in its output."""
    if gpu is None:
        return (msg("gpu_burn beside: not among the {n} GPUs that it tested", n=len(found.gpus)),)
    if gpu.died:
        return (msg("gpu_burn beside: its own process for this GPU ended early; see its output"),)
    said = msg(
        "gpu_burn beside for {s} s: {rate} TFLOPS of fp32 products, {n} errors; the hottest GPU {hottest} °C",
        s=BURN_S,
        rate="–" if gpu.gflops is None else f"{gpu.gflops / 1000:.4g}",
        n=gpu.errors,
        hottest="–" if found.hottest is None else found.hottest,
    )
    if not gpu.faulty and not gpu.errors:
        return (said,)
    if not right:
        return said, msg("gpu_burn calls this GPU faulty too")
    return said, msg("advisory: gpu_burn calls this GPU faulty, accept's own products were right; ours is judged")


def _dcgmi(host: Host, program: str, slots: Mapping[int, str], results: dict[str, Result]) -> None:
    listed_by = host.run("second.dcgmi.discovery", dcgmi.discovery_argv(program), dcgmi.DISCOVERY_TIMEOUT_S)
    listed = asked(listed_by, "dcgmi", dcgmi.parse_discovery)
    if isinstance(listed, Told):
        _each(results, slots, listed.evidence, listed.why)
    if listed is None or isinstance(listed, Told):
        return
    ran = host.run("second.dcgmi.diag", dcgmi.diag_argv(program), dcgmi.TIMEOUT_S)
    found = asked(ran, "dcgmi", dcgmi.parse_diag)
    if isinstance(found, Told):
        _each(results, slots, (*listed_by.cited, *found.evidence), found.why)
    if found is None or isinstance(found, Told):
        return
    numbers = {slot_of(printed, slots.values()): number for number, printed in listed.items()}
    evidence = (*listed_by.cited, *ran.cited)
    for slot in slots.values():
        if slot in numbers:
            _of(results, slot, evidence, tuple(_diagnosed(found, numbers[slot])))
        else:
            _of(results, slot, evidence, (msg("dcgmi diag -r 1 beside: DCGM does not know this GPU"),))


def _diagnosed(found: dcgmi.Diag, number: int) -> Iterator[Text]:
    said = [s for s in found.of(number) if s.status != "skip"]
    if not said:
        yield msg("dcgmi diag -r 1 beside: no check of this GPU was run")
        return
    passed = sum(s.status == "pass" for s in said)
    bad = [s for s in said if s.status in ("fail", "warn")]
    yield msg(
        "dcgmi diag -r 1 beside (DCGM {version}): {passed} of {all} checks passed",
        version=found.version or "–",
        passed=passed,
        all=len(said),
    )
    for one in bad:
        words = "; ".join(one.words)[:300] or "–"
        yield msg("dcgmi diag -r 1: {test} {status}: {words}", test=one.test, status=one.status, words=words)
    if any(s.status == "fail" for s in bad):
        yield msg("advisory: dcgmi reports a failure, see its output; ours is judged")


def _of(results: dict[str, Result], slot: str, evidence: tuple[str, ...], notes: tuple[Text, ...]) -> None:
    """Once a GPU: with the first of its results that is a measurement."""
    mine = (k for k, r in results.items() if k.partition("@")[2] == slot and isinstance(r, Taken))
    first = next(mine, None)
    if first is not None:
        results[first] = noted(results[first], evidence, *notes)


def _each(results: dict[str, Result], slots: Mapping[int, str], evidence: tuple[str, ...], note: Text) -> None:
    for slot in slots.values():
        _of(results, slot, evidence, (note,))
