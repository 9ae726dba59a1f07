"""Asking NVML through children: one hanging call costs its deadline, then the next child reads the other GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Optional, Union

from agent import probes
from agent.facts._slot import order
from agent.host import Host, Ran
from agent.reading import Known, Missing, MissingKind, Reading
from agent.text import msg
from agent.tools import ParseError, nvml
from agent.tools._source import Source
from agent.tools.nvml import Nvml, NvmlGpu

NOT_READ: MissingKind = "interrupted"
"""Of a GPU that no child of ours came to: this says nothing about the GPU."""

Answer = Union[Nvml, Missing]
"""What NVML said, or why not even its first line came."""


def ask(host: Host) -> Answer:
    """Children until every GPU is read or has cost a deadline, at most :data:`nvml.CHILDREN`."""
    parts: list[Nvml] = []
    skipped: set[int] = set()
    for number in range(1, nvml.CHILDREN + 1):
        part = _child(host, number, {i for p in parts for i in p.gpus} - skipped, skipped)
        if isinstance(part, Missing):
            return _all_said(nvml.merge(parts)) if parts else part
        parts.append(part)
        culprit = _culprit(nvml.merge(parts), part, skipped)
        if culprit is None:
            break
        skipped.add(culprit)
    return _all_said(nvml.merge(parts))


def _child(host: Host, number: int, read: set[int], skipped: set[int]) -> Answer:
    lists = [",".join(map(str, sorted(indices))) for indices in (read, skipped)]
    probe = "nvml" if number == 1 else f"nvml.{number}"
    arguments = [probes.pynvml_folder(), str(nvml.CALL_S), *lists]
    ran = probes.ask(host, probe, "nvml_probe", arguments, nvml.TIMEOUT_S)
    try:
        part = nvml.parse(ran.stdout, ran.cited)
    except ParseError as error:
        detail = msg("NVML's child: {why}", why=str(error) if ran.stdout.strip() else _last_words(ran))
        return ran.missing() or Missing("failed", detail, ran.cited)
    ended = ran.missing()
    if ended is None or part.done:
        return part
    return replace(part, ended=ended)


def _last_words(ran: Ran) -> str:
    lines = [line.strip() for line in ran.stderr.splitlines() if line.strip()]
    return lines[-1][:200] if lines else f"ended with status {ran.exit}"


def _culprit(merged: Nvml, last: Nvml, skipped: set[int]) -> Optional[int]:
    """The GPU that ended the last child early: the one it names, else the first that it did not come to."""
    if last.done or not isinstance(last.count, Known):
        return None
    if last.hung is not None:
        return last.hung.gpu
    left = [i for i in range(last.count.value) if i not in merged.gpus and i not in skipped]
    return left[0] if left else None


def _all_said(found: Nvml) -> Nvml:
    """Every index that NVML counts is there, with the reason where no child came to read it."""
    if not isinstance(found.count, Known):
        return found
    evidence = found.count.evidence
    if found.hung is not None:
        why = nvml.timed_out(found.hung, evidence)
    else:
        why = found.ended or Missing(NOT_READ, msg("NVML's child ended before it read this GPU"), evidence)
    gpus = {
        i: found.gpus.get(i) or NvmlGpu(i, None, Source("nvml", {}, why)) for i in range(min(found.count.value, 256))
    }
    return replace(found, gpus=gpus)


def slots(found: Answer) -> Reading[tuple[str, ...]]:
    """The slots of the GPUs that NVML could open; Missing where it counts some and tells the slot of none."""
    if isinstance(found, Missing):
        return found
    if isinstance(found.count, Missing):
        return found.count
    listed = {gpu.slot for gpu in found.gpus.values() if gpu.slot is not None}
    if found.gpus and not listed:
        return _why(next(iter(found.gpus.values())))
    return Known(tuple(sorted(listed, key=order)), found.count.evidence)


def unopened(found: Answer) -> tuple[tuple[int, str], ...]:
    """Index and reason of each GPU that NVML counts and could not open, or whose slot it does not tell."""
    gpus = () if isinstance(found, Missing) else tuple(found.gpus.values())
    return tuple((g.index, str(_why(g).detail)) for g in gpus if g.slot is None)


def _why(gpu: NvmlGpu) -> Missing:
    """Why a GPU has no slot."""
    told = gpu.source.get("slot")
    assert isinstance(told, Missing)
    return gpu.source.absent or told


def count(found: Answer) -> Reading[int]:
    """How many GPUs NVML counts, openable or not."""
    return found if isinstance(found, Missing) else found.count


def by_slot(found: Answer, elsewhere: Sequence[str]) -> dict[str, NvmlGpu]:
    """NVML's GPUs by slot.

    Those that it could not open have none of their own. Where as many slots are known from ``elsewhere`` alone,
    they are these, in order: NVML counts by bus address.
    """
    gpus = () if isinstance(found, Missing) else tuple(found.gpus.values())
    placed = {gpu.slot: gpu for gpu in gpus if gpu.slot is not None}
    closed = sorted((gpu for gpu in gpus if gpu.slot is None), key=lambda g: g.index)
    free = sorted((s for s in elsewhere if s not in placed), key=order)
    return {**placed, **(dict(zip(free, closed)) if len(free) == len(closed) else {})}


def peers(found: Answer, placed: Mapping[str, NvmlGpu]) -> Mapping[tuple[str, str], Mapping[str, str]]:
    """P2P status by pair of slots, the lower slot first."""
    if isinstance(found, Missing):
        return {}
    where = {gpu.index: slot for slot, gpu in placed.items()}
    told = {}
    for (one, other), states in found.p2p.items():
        if one in where and other in where:
            a, b = sorted((where[one], where[other]), key=order)
            told[a, b] = states
    return told
