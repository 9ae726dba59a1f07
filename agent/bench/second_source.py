"""The trade's own tools beside our measurement, where they are on the machine: context, never judged.

nccl-tests for the all-reduce, nvbandwidth for copies. Each runs once beside the first whole look, for a bounded time.
What they say stands in the measurement's notes with its difference from ours; a tool that is not there, fails or
prints something else leaves our number as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Optional

from agent import stats
from agent.bench.step import Look
from agent.host import Host
from agent.model import Result, Taken
from agent.text import Text, msg
from agent.tools import ParseError, nccl_tests, nvbandwidth

TIMEOUT_S = 90.0
NOISE = 0.05  # beyond the ends of our own interval
# Where images and packages put them when they are not on PATH.
PLACES: Mapping[str, Sequence[str]] = {
    "all_reduce_perf": (
        "/opt/nccl-tests/build/all_reduce_perf",
        "/opt/nccl_tests/build/all_reduce_perf",
        "/usr/local/nccl-tests/build/all_reduce_perf",
        "/root/nccl-tests/build/all_reduce_perf",
    ),
    "nvbandwidth": (
        "/opt/nvbandwidth/nvbandwidth",
        "/usr/local/nvbandwidth/nvbandwidth",
        "/root/nvbandwidth/nvbandwidth",
    ),
}


def wanted(look: Look) -> bool:
    """Once, and not in a look that has no time."""
    return look.number == 1 and look.depth != "quick"


def all_reduce(host: Host, look: Look, ranks: int, size: int, ours: Result) -> Result:
    """nccl-tests' bus bandwidth of the same size over as many GPUs, out of place, in the notes of our own."""
    if not wanted(look) or not isinstance(ours, Taken):
        return ours
    tool = "all_reduce_perf"
    words = (_program(host, tool), "-b", str(size), "-e", str(size), "-g", str(ranks), "-n", "20", "-c", "1")
    said = _said(host, tool, words)
    if said is None:
        return ours
    text, evidence = said
    try:
        found = nccl_tests.parse(text)
    except ParseError as error:
        return _noted(ours, evidence, _failed(tool, str(error)))
    values = [r.busbw_out for r in found.rows if r.bytes == size and r.busbw_out is not None]
    if not values:
        return _noted(ours, evidence, _failed(tool, "no row of the size"))
    if found.out_of_bounds:
        return _noted(ours, evidence, msg("{tool} beside: {n} wrong results", tool=tool, n=found.out_of_bounds))
    return _noted(ours, evidence, *_beside(tool, values[-1], ours))


def pcie(
    host: Host, look: Look, slots: Mapping[int, str], ours: Mapping[str, Result], keys: Mapping[str, str]
) -> dict[str, Result]:
    """nvbandwidth's copies of each GPU with the host. ``keys``: ``h2d``, ``d2h`` → key of a slot, with ``{slot}``."""
    results = dict(ours)
    ways = {nvbandwidth.HOST_TO_DEVICE: keys["h2d"], nvbandwidth.DEVICE_TO_HOST: keys["d2h"]}
    found = _matrices(host, look, results, tuple(ways))
    if found is None:
        return results
    matrices, evidence = found
    for test, key in ways.items():
        for (_, column), rate in matrices.tests.get(test, {}).items():
            _add(results, key.format(slot=_slot(matrices, slots, column)), rate, evidence)
    return results


def peers(host: Host, look: Look, slots: Mapping[int, str], ours: Mapping[str, Result], key: str) -> dict[str, Result]:
    """nvbandwidth's copies between GPUs; ``key`` with ``{source}`` and ``{target}``.

    Its ``read`` test prints what the row's GPU reads from the column's.
    """
    results = dict(ours)
    found = _matrices(host, look, results, (nvbandwidth.PEER_READ,))
    if found is None:
        return results
    matrices, evidence = found
    for (row, column), rate in matrices.tests.get(nvbandwidth.PEER_READ, {}).items():
        source, target = _slot(matrices, slots, column), _slot(matrices, slots, row)
        _add(results, key.format(source=source, target=target), rate, evidence)
    return results


def _matrices(
    host: Host, look: Look, results: dict[str, Result], tests: tuple[str, ...]
) -> Optional[tuple[nvbandwidth.Bandwidths, tuple[str, ...]]]:
    """What it printed; None where it says nothing, in which case the results may carry the reason."""
    if not wanted(look) or not any(isinstance(r, Taken) for r in results.values()):
        return None
    tool = "nvbandwidth"
    said = _said(host, f"{tool}.{tests[0]}", nvbandwidth.argv(_program(host, tool), *tests))
    if said is None:
        return None
    text, evidence = said
    try:
        return nvbandwidth.parse(text), evidence
    except ParseError as error:
        for key, ours in results.items():
            results[key] = _noted(ours, evidence, _failed(tool, str(error)))
        return None


def _slot(matrices: nvbandwidth.Bandwidths, slots: Mapping[int, str], number: int) -> Optional[str]:
    """By the PCI address that it prints; by CUDA's number in versions that print none."""
    printed = matrices.devices.get(number)
    if printed is None:
        return slots.get(number)
    bus = printed.lower().split(":", 1)[1].partition(".")[0]
    return next((s for s in slots.values() if s.split(":", 1)[1].partition(".")[0] == bus), None)


def _add(results: dict[str, Result], key: str, rate: float, evidence: tuple[str, ...]) -> None:
    ours = results.get(key)
    if isinstance(ours, Taken):
        results[key] = _noted(ours, evidence, *_beside("nvbandwidth", rate, ours))


def _program(host: Host, tool: str) -> str:
    """Its path where it lies at a usual place, else its name, to be found on PATH."""
    places = PLACES[tool]
    there = host.read(f"second.{tool}.where", names=places)
    return next((p for p in places if there.exists(p)), tool)


def _said(host: Host, name: str, words: tuple[str, ...]) -> Optional[tuple[str, tuple[str, ...]]]:
    """What it printed, with the evidence; None where it is not there or was not asked in a recorded run."""
    ran = host.run(f"second.{name}", words, TIMEOUT_S)
    if not ran.recorded or ran.start_error:
        return None
    return ran.stdout + ran.stderr, ran.cited


def _failed(tool: str, why: str) -> Text:
    return msg("{tool} beside gave no number: {why}", tool=tool, why=why[:200])


def _beside(tool: str, theirs: float, ours: Taken) -> tuple[Text, ...]:
    values = [b.value for b in ours.attempt.blocks]
    median = stats.median(values)
    if not median > 0:
        return ()
    said = msg(
        "{tool} on this machine: {theirs} {unit}, {percent} % of ours",
        tool=tool,
        theirs=f"{theirs:.4g}",
        unit=ours.unit,
        percent=f"{100 * theirs / median:.1f}",
    )
    if min(values) * (1 - NOISE) <= theirs <= max(values) * (1 + NOISE):
        return (said,)
    return said, msg("advisory: {tool} and accept differ by more than noise; ours is judged", tool=tool)


def _noted(ours: Result, evidence: tuple[str, ...], *notes: Text) -> Result:
    if not isinstance(ours, Taken):
        return ours
    attempt = ours.attempt
    return replace(
        ours,
        attempt=replace(attempt, notes=(*attempt.notes, *notes), evidence=(*attempt.evidence, *evidence)),
    )
