"""Whether a card is whole and nobody else is on it. Pure.

What is missing of a card (a vGPU, a MIG slice, memory or multiprocessors below the model's), what shares it (MPS,
slicing libraries), and who else uses it (processes, memory without an owner), each as signs with their evidence.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Optional

from agent.checks import _gpu_state
from agent.checks._api import Case
from agent.checks._gpu_cards import Card, each
from agent.checks._gpu_identity import WHOLE, is_whole, titles
from agent.checks._judge import finding, unreadable
from agent.facts import gpu_share
from agent.facts._source import Process
from agent.facts.gpu_share import FIRMWARE_MIB, GpuShareFacts
from agent.facts.gpus import GpusFacts
from agent.facts.processes import ProcessesFacts
from agent.model import Clause, Finding
from agent.reading import Known, Missing, Reading
from agent.text import Text, msg

SLICERS = ("hami", "cgpu", "qgpu", "mps", "fake")
BUSY_PERCENT = 5  # utilisation of a card on which nobody is
DISPLAY = ("Xorg", "Xwayland", "gnome-shell", "X")


@dataclass(frozen=True)
class Sign:
    """One sign, and where it was seen."""

    said: Text
    evidence: tuple[str, ...]


@dataclass(frozen=True)
class Users:
    """Who is on a card: ``foreign`` is somebody else's, ``own`` may be this user's."""

    foreign: tuple[Sign, ...] = ()
    own: tuple[Sign, ...] = ()
    unknown: Optional[Missing] = None


def judge_whole(clause: Clause, case: Case) -> Iterator[Finding]:
    """``whole_card``: no sign against it, and everything readable that would show one."""
    yield from each(clause, case, lambda asked, card: _whole(asked, card, case))


def _whole(clause: Clause, card: Card, case: Case) -> Finding:
    users = on_card(card, case)
    against = (*missing_part(card), *shared(case), *users.foreign, *unowned(card))
    promised = bool(clause.promise.value)
    evidence = tuple(dict.fromkeys((*card.identity.evidence, *(e for s in against for e in s.evidence))))
    if against:
        reason = msg("{signs}", signs=tuple(s.said for s in against))
        fields = {"subject": card.slot, "measured": "part of a card or shared", "evidence": evidence}
        if promised:
            return finding(clause, "fail", "not-whole", reason, **fields)
        return finding(clause, "pass", "kept", reason, **fields)
    if users.own:
        reason = msg("in use, perhaps by you: {who}; stop it and run again", who=tuple(s.said for s in users.own))
        return finding(clause, "inconclusive", "disturbed", reason, subject=card.slot, evidence=evidence)
    blind = _unseen(card, case, users)
    if blind is not None:
        return unreadable(clause, blind, card.slot)
    fields = {"subject": card.slot, "measured": "whole", "evidence": evidence}
    if not promised:
        return finding(clause, "fail", "not-equal", msg("a whole card that nobody else is on"), **fields)
    reason = msg("all memory and multiprocessors of a {model}, nobody on it", model=titles(card.identity.models))
    return finding(clause, "pass", "kept", reason, **fields)


# --- parts of a card --------------------------------------------------------------------------------------------------


def missing_part(card: Card) -> tuple[Sign, ...]:
    """What shows that this is less than the card of its name."""
    return (*_virtual(card), *_mig(card), *_less_memory(card), *_fewer_processors(card))


def _virtual(card: Card) -> Iterator[Sign]:
    mode, name = card.read("virtualization_mode"), card.identity.name
    if card.identity.profile and isinstance(name, Known):
        yield Sign(msg("“{name}” is a vGPU profile", name=name.value), name.evidence)
    elif isinstance(mode, Known) and mode.value == "vgpu":
        yield Sign(msg("the driver runs as a vGPU guest"), mode.evidence)
    else:
        return
    licence = card.read("vgpu_license")
    if isinstance(licence, Known) and not licence.value.lower().startswith("licensed"):
        yield Sign(msg("its licence: {state}; without one it slows down", state=licence.value), licence.evidence)


def _mig(card: Card) -> Iterator[Sign]:
    mode = card.read("mig_current")
    if isinstance(mode, Known) and mode.value:
        yield Sign(msg("MIG is on: the card is partitioned"), mode.evidence)


def _less_memory(card: Card) -> Iterator[Sign]:
    total, free, ecc = (card.read(n) for n in ("memory_total_mib", "memory_free_mib", "ecc_current"))
    if isinstance(total, Missing):
        return
    if isinstance(free, Known) and free.value > total.value:
        said = msg("{free} MiB are free of {total}", free=f"{free.value:.0f}", total=f"{total.value:.0f}")
        yield Sign(said, (*free.evidence, *total.evidence))
    mode = ecc.value if isinstance(ecc, Known) else None
    wholes = [t for m in card.identity.models for t in (m.memory_mib(mode) or m.memory_mib(None))]
    if wholes and total.value < min(wholes) * WHOLE:
        said = msg(
            "{found} MiB; a whole {model} shows {whole} MiB",
            found=f"{total.value:.0f}",
            model=titles(card.identity.models),
            whole=min(wholes),
        )
        yield Sign(said, total.evidence)


def _fewer_processors(card: Card) -> Iterator[Sign]:
    count = card.gpu.cuda.get("sm_count")
    counts = [m.sm_count for m in card.identity.models]
    if isinstance(count, Known) and counts and count.value < min(counts):
        said = msg("CUDA counts {n} multiprocessors; a whole card has {all}", n=count.value, all=min(counts))
        yield Sign(said, count.evidence)


# --- who else ---------------------------------------------------------------------------------------------------------


def shared(case: Case) -> tuple[Sign, ...]:
    """Slicing software and MPS, which concern every card of the machine."""
    return tuple(Sign(s.what, s.evidence) for s in software(case) if s.kind in SLICERS)


def software(case: Case) -> tuple[gpu_share.Sign, ...]:
    """Every sign of software between programs and cards."""
    share: Optional[GpuShareFacts] = case.facts.get("gpu_share")
    gpus: GpusFacts = case.facts["gpus"]
    return gpu_share.signs(share, gpus) if share is not None else ()


def on_card(card: Card, case: Case) -> Users:
    """The processes that the driver lists before our own first context."""
    listed: Reading[tuple[Process, ...]] = card.read("processes")
    if isinstance(listed, Missing):
        return Users(unknown=listed)
    people: Optional[ProcessesFacts] = case.facts.get("processes")
    foreign: list[Sign] = []
    own: list[Sign] = []
    for process in _named(listed.value, card):
        if people is not None and _draws(process, people):
            continue
        sign = Sign(_who(process), listed.evidence)
        (own if people is not None and _mine(process, people) else foreign).append(sign)
    return Users(tuple(foreign), tuple(own))


def _named(processes: tuple[Process, ...], card: Card) -> tuple[Process, ...]:
    """NVML knows the pid alone; nvidia-smi also the name."""
    told: Reading[tuple[Process, ...]] = card.gpu.smi.get("processes")
    names = {p.pid: p.name for p in told.value} if isinstance(told, Known) else {}
    return tuple(replace(p, name=p.name or names.get(p.pid)) for p in processes)


def _mine(process: Process, people: ProcessesFacts) -> bool:
    """Whether this environment runs it under this user; a host's pid inside a container is no proof by itself."""
    if process.pid is None or isinstance(people.running, Missing) or isinstance(people.me, Missing):
        return False
    found = people.running.value.get(process.pid)
    if found is None or found.uid != people.me.value:
        return False
    program = (process.name or "").split(" ")[0].rpartition("/")[2]
    return not program or program[:15] == found.command[:15] or found.command[:15] in (process.name or "")


def _draws(process: Process, people: ProcessesFacts) -> bool:
    """The display server of this very system, with no more than it needs to draw: nobody works there."""
    if process.type != "graphics" or process.pid is None or isinstance(people.running, Missing):
        return False
    found = people.running.value.get(process.pid)
    small = process.used_mib is None or process.used_mib <= FIRMWARE_MIB
    return small and found is not None and found.command[:15] in DISPLAY


def _who(process: Process) -> Text:
    pid = str(process.pid) if process.pid is not None else "?"
    if process.used_mib is None:
        return msg("process {pid} ({name}) is on the card", pid=pid, name=process.name or "?")
    return msg("process {pid} ({name}) holds {n} MiB", pid=pid, name=process.name or "?", n=f"{process.used_mib:.0f}")


def unowned(card: Card) -> tuple[Sign, ...]:
    """Memory above what firmware takes, or work, on a card on which the driver lists nobody for it."""
    found = []
    rest = gpu_share.unowned(card.gpu) if card.answers else None
    if isinstance(rest, Known) and rest.value > FIRMWARE_MIB:
        found.append(Sign(msg("{n} MiB are in use without an owner", n=f"{rest.value:.0f}"), rest.evidence))
    busy, listed = card.read("utilization_gpu"), card.read("processes")
    # Without persistence our first question woke the driver, which scrubs the memory: that is work of its own.
    kept = card.read("persistence")
    if isinstance(kept, Known) and not kept.value:
        return tuple(found)
    if isinstance(busy, Known) and isinstance(listed, Known) and not listed.value and busy.value > BUSY_PERCENT:
        found.append(Sign(msg("{n} % busy, and nobody is on it", n=busy.value), busy.evidence))
    return tuple(found)


# --- what must be seen before a card is called whole ------------------------------------------------------------------


def _unseen(card: Card, case: Case, users: Users) -> Optional[Missing]:
    """The first thing that could hide a slice and cannot be read."""
    share: Optional[GpuShareFacts] = case.facts.get("gpu_share")
    needed: list[Reading[Any]] = [
        card.read("memory_total_mib"),
        _gpu_state.whole(card),
        card.read("virtualization_mode"),
        card.gpu.cuda.get("sm_count"),
    ]
    if share is None:
        return Missing("left-out", msg("signs of sharing were not looked for"))
    needed += [share.preload, share.marks, gpu_share.unowned(card.gpu)]
    gone = users.unknown or next((r for r in needed if isinstance(r, Missing)), None)
    if gone is not None:
        why = msg("whether the card is whole cannot be told: {why}", why=gone.detail)
        return Missing(gone.kind, why, gone.evidence, gone.grant)
    total = card.read("memory_total_mib")
    if not card.identity.models:
        detail = msg("the catalogue has no {name}: what a whole one shows is not known", name=card.identity.product)
        return Missing("unsupported", detail, card.identity.evidence)
    fits = isinstance(total, Known) and any(
        is_whole(m, total.value, card.read("ecc_current")) for m in card.identity.models
    )
    if not fits:
        detail = msg("its memory is not what a {model} shows", model=titles(card.identity.models))
        return Missing("unsupported", detail, card.identity.evidence)
    return None
