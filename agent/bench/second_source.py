"""The trade's own tools beside our measurement, where they are on the machine: context, never judged.

nccl-tests for collectives, nvbandwidth for copies; for the burn see ``second_burn.py``. Each runs once beside the
first whole look, for a bounded time that the plan counts and a budget cuts first. What they say stands in the
measurement's notes with its difference from ours; a tool that is not there, fails or prints something else leaves our
number as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Callable, Optional, TypeVar, Union

from agent import stats
from agent.bench.step import Look
from agent.host import Host, Ran
from agent.model import Result, Taken
from agent.text import Text, msg
from agent.tools import ParseError, nccl_tests, nvbandwidth

T = TypeVar("T")
TIMEOUT_S = 90.0
NOISE = 0.05  # beyond the ends of our own interval
# What each takes on eight GPUs: contexts, NCCL's set-up and one size; a matrix of copies; checks without a load;
# memory of eight cards, the burn itself, and half a minute in which newer ones wait for their own processes.
SECONDS: Mapping[str, float] = {
    **dict.fromkeys(("all_reduce_perf", "all_gather_perf", "reduce_scatter_perf", "alltoall_perf"), 15.0),
    "nvbandwidth": 15.0,
    "dcgmi": 10.0,
    "gpu_burn": 60.0,
}
# The program of nccl-tests that measures a collective.
PROGRAMS: Mapping[str, str] = {
    "all_reduce": "all_reduce_perf",
    "all_gather": "all_gather_perf",
    "reduce_scatter": "reduce_scatter_perf",
    "all_to_all": "alltoall_perf",
}
# Tool → absolute path, as ``agent/facts/trade_tools.py`` finds them.
Where = Mapping[str, str]


@dataclass(frozen=True)
class Told:
    """What a tool gave no number for, and where that is kept."""

    why: Text
    evidence: tuple[str, ...]


def wanted(host: Host, look: Look, where: Where, tool: str) -> bool:
    """Where it is there: once, and not in a look that has no time for it. A recorded run holds what was asked."""
    time = not host.live or look.tools is None or tool in look.tools
    return tool in where and time and look.number == 1 and look.depth != "quick"


def seconds(where: Where, *tools: str) -> dict[str, float]:
    """What each of these tools takes, those that are there."""
    return {tool: SECONDS[tool] for tool in tools if tool in where}


def collective(host: Host, look: Look, where: Where, op: str, ranks: int, size: int, ours: Result) -> Result:
    """nccl-tests' bus bandwidth of the same size over as many GPUs, out of place, in the notes of our own."""
    tool = PROGRAMS[op]
    if not wanted(host, look, where, tool) or not isinstance(ours, Taken):
        return ours
    words = (where[tool], *nccl_words(ranks, size))
    ran = host.run(f"second.{tool}", words, TIMEOUT_S)
    found = asked(ran, tool, nccl_tests.parse)
    if found is None:
        return ours
    if isinstance(found, Told):
        return noted(ours, found.evidence, found.why)
    # nccl-tests rounds a size down to whole elements for each rank.
    values = [r.busbw_out for r in found.rows if 0 <= size - r.bytes < ALIGNED * ranks and r.busbw_out is not None]
    if not values:
        return noted(ours, ran.cited, _failed(tool, msg("no row of the size")))
    if found.out_of_bounds:
        return noted(ours, ran.cited, msg("{tool} beside: {n} wrong results", tool=tool, n=found.out_of_bounds))
    return noted(ours, ran.cited, *_beside(tool, values[-1], ours))


ALIGNED = 64  # bytes


def nccl_words(ranks: int, size: int) -> tuple[str, ...]:
    """nccl-tests at one size over so many GPUs of this node, results checked."""
    return ("-b", str(size), "-e", str(size), "-g", str(ranks), "-n", "20", "-c", "1")


def pcie(
    host: Host,
    look: Look,
    where: Where,
    slots: Mapping[int, str],
    ours: Mapping[str, Result],
    keys: Mapping[str, str],
) -> dict[str, Result]:
    """nvbandwidth's copies of each GPU with the host. ``keys``: ``h2d``, ``d2h`` → key of a slot, with ``{slot}``."""
    results = dict(ours)
    ways = {nvbandwidth.HOST_TO_DEVICE: keys["h2d"], nvbandwidth.DEVICE_TO_HOST: keys["d2h"]}
    found = _matrices(host, look, where, results, tuple(ways))
    if found is None:
        return results
    matrices, evidence = found
    for test, key in ways.items():
        for (_, column), rate in matrices.tests.get(test, {}).items():
            _add(results, key.format(slot=_slot(matrices, slots, column)), rate, evidence)
    return results


def peers(
    host: Host, look: Look, where: Where, slots: Mapping[int, str], ours: Mapping[str, Result], key: str
) -> dict[str, Result]:
    """nvbandwidth's copies between GPUs; ``key`` with ``{source}`` and ``{target}``.

    Its ``read`` test prints what the row's GPU reads from the column's.
    """
    results = dict(ours)
    found = _matrices(host, look, where, results, (nvbandwidth.PEER_READ,))
    if found is None:
        return results
    matrices, evidence = found
    for (row, column), rate in matrices.tests.get(nvbandwidth.PEER_READ, {}).items():
        source, target = _slot(matrices, slots, column), _slot(matrices, slots, row)
        _add(results, key.format(source=source, target=target), rate, evidence)
    return results


def _matrices(
    host: Host, look: Look, where: Where, results: dict[str, Result], tests: tuple[str, ...]
) -> Optional[tuple[nvbandwidth.Bandwidths, tuple[str, ...]]]:
    """What it printed; None where it says nothing, in which case the results may carry the reason."""
    tool = "nvbandwidth"
    if not wanted(host, look, where, tool) or not any(isinstance(r, Taken) for r in results.values()):
        return None
    ran = host.run(f"second.{tool}.{tests[0]}", nvbandwidth.argv(where[tool], *tests), TIMEOUT_S)
    found = asked(ran, tool, nvbandwidth.parse)
    if isinstance(found, Told):
        results.update({key: noted(ours, found.evidence, found.why) for key, ours in results.items()})
    return None if found is None or isinstance(found, Told) else (found, ran.cited)


def _slot(matrices: nvbandwidth.Bandwidths, slots: Mapping[int, str], number: int) -> Optional[str]:
    """By the PCI address that it prints; by CUDA's number in versions that print none."""
    printed = matrices.devices.get(number)
    return slots.get(number) if printed is None else slot_of(printed, slots.values())


def slot_of(printed: str, slots: Iterable[str]) -> Optional[str]:
    """The slot that a PCI address means, however many digits its domain has and with or without a function."""
    return next((slot for slot in slots if _bus(slot) == _bus(printed)), None)


def _bus(address: str) -> tuple[int, ...]:
    """Domain, bus and device."""
    return tuple(int(part, 16) for part in address.partition(".")[0].split(":"))


def _add(results: dict[str, Result], key: str, rate: float, evidence: tuple[str, ...]) -> None:
    ours = results.get(key)
    if isinstance(ours, Taken):
        results[key] = noted(ours, evidence, *_beside("nvbandwidth", rate, ours))


def asked(ran: Ran, tool: str, parse: Callable[[str], T]) -> Union[T, Told, None]:
    """What a tool printed, parsed, whatever its exit status; else why it gave no number.

    None where a recorded run had no time for it.
    """
    if not ran.recorded:
        return None
    missing = ran.missing()
    if missing is not None:
        return Told(_failed(tool, missing.detail), ran.cited)
    try:
        return parse(ran.stdout + ran.stderr)
    except ParseError as error:
        return Told(_failed(tool, msg("{said}", said=str(error)[:200])), ran.cited)


def _failed(tool: str, why: Text) -> Text:
    return msg("{tool} beside gave no number: {why}", tool=tool, why=why)


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


def noted(ours: Result, evidence: tuple[str, ...], *notes: Text) -> Result:
    """Our own result with notes and what they rest on; a measurement that failed stays as it is."""
    if not isinstance(ours, Taken):
        return ours
    attempt = ours.attempt
    return replace(
        ours,
        attempt=replace(attempt, notes=(*attempt.notes, *notes), evidence=(*attempt.evidence, *evidence)),
    )
