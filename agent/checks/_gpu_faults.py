"""Judging what the kernel log says of the cards. Pure.

Xids that a program's own bug causes are nobody's fault but the program's; those of hardware, NVLink, driver firmware
and worn memory are what ``xid: none`` is about.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Optional, Union

from agent.bench.burn import ERRORS
from agent.checks._api import Case
from agent.checks._gpu_cards import all_cards, nobody
from agent.checks._judge import finding, unreadable
from agent.facts.gpus import GpusFacts
from agent.facts.kernel_log import KernelLog, KernelLogFacts, LogEvent
from agent.model import Clause, Finding, Measurement
from agent.reading import Known, Missing, Reading
from agent.text import Text, msg
from agent.tools.xid import XID_CLASS, xid_words

BLAMED = ("hardware", "nvlink", "driver", "wear")
HARD = ("hardware", "nvlink")
LOST = ("fallen_off_bus", "probe_failed")
SHOWN = 5


def log(case: Case) -> Reading[KernelLog]:
    """The log after the loads, which holds what came before and during them; without loads, the one before.

    Where the second reading failed, faults that the first showed stand; that there were none is no longer known.
    """
    facts: Optional[KernelLogFacts] = case.facts.get("kernel_log")
    if facts is None:
        return Missing("left-out", msg("the kernel log was not read"))
    if facts.after is None:
        return facts.log
    seen = isinstance(facts.log, Known) and by_slot(facts.log.value, BLAMED)
    return facts.log if isinstance(facts.after, Missing) and seen else facts.after


def by_slot(found: KernelLog, classes: tuple[str, ...]) -> Mapping[Optional[str], tuple[LogEvent, ...]]:
    """GPU events of these classes, by the slot that their line names."""
    slots: dict[Optional[str], list[LogEvent]] = {}
    for event in found.gpu_events:
        if event.class_ in classes or event.kind in LOST:
            slots.setdefault(event.slot, []).append(event)
    return {where: tuple(events) for where, events in slots.items()}


def ours(
    found: Mapping[Optional[str], tuple[LogEvent, ...]], case: Case
) -> Mapping[Optional[str], tuple[LogEvent, ...]]:
    """Without those of cards of the host that this environment was not given."""
    gpus: GpusFacts = case.facts["gpus"]
    return {where: events for where, events in found.items() if where not in gpus.hidden}


def said(events: tuple[LogEvent, ...]) -> Text:
    """What the log says, each kind of event once with its number."""
    counted: dict[Union[Text, str], int] = {}
    for event in events:
        counted[name(event)] = counted.get(name(event), 0) + 1
    parts = [msg("{event} ({n} times)", event=e, n=n) if n > 1 else msg("{event}", event=e) for e, n in counted.items()]
    return msg("the kernel log says: {events}", events=tuple(parts[:SHOWN]))


def name(event: LogEvent) -> Union[Text, str]:
    """``Xid 79: GPU fell off the bus``."""
    if event.xid is None:
        return event.text
    return xid_words(event.xid)


def judge_xid(clause: Clause, case: Case) -> Iterator[Finding]:
    """Each card with a fault in the log fails; without any, the whole log since boot keeps the promise."""
    found = log(case)
    heard = dict(_heard(case, found))
    for where, (numbers, evidence) in heard.items():
        events = tuple(LogEvent("xid", n, where, XID_CLASS[n], f"Xid {n}", "") for n in numbers)
        names = tuple(dict.fromkeys(map(name, events)))
        reason = msg("the driver reported through NVML while the card worked: {events}", events=names)
        yield finding(clause, "fail", "xid", reason, subject=where, measured=len(numbers), evidence=evidence)
    if isinstance(found, Missing):
        yield unreadable(clause, _unheard(found, case))
        return
    blamed = {w: e for w, e in ours(by_slot(found.value, BLAMED), case).items() if w not in heard}
    for where, events in blamed.items():
        fields = {"subject": where, "measured": len(events), "evidence": found.evidence, "notes": _raw(events)}
        yield finding(clause, "fail", "xid", said(events), **fields)
    if not blamed and not heard:
        yield _none(clause, case, found)


def _heard(
    case: Case, found: Reading[KernelLog]
) -> Iterator[tuple[Optional[str], tuple[tuple[int, ...], tuple[str, ...]]]]:
    """Xids that NVML's events told during loads, by slot, of cards whose faults the kernel log does not hold.

    The same fault comes both ways where the log may be read: then the log's line counts, and it alone.
    """
    logged = by_slot(found.value, BLAMED) if isinstance(found, Known) else {}
    for key, taken in case.measured.items():
        clause, _, where = key.partition("@")
        if clause != ERRORS or isinstance(taken, Missing) or where in logged:
            continue
        told = (x for a in taken.attempts for b in a.blocks for x in b.conditions["xids"])
        numbers = tuple(int(x) for x in told if XID_CLASS.get(int(x)) in BLAMED)
        if numbers:
            yield where or None, (numbers, tuple(dict.fromkeys(e for a in taken.attempts for e in a.evidence)))


def _unheard(missing: Missing, case: Case) -> Missing:
    """The log's gap, and whether NVML's events could have filled it while the cards worked."""
    loads = [m for k, m in case.measured.items() if k.partition("@")[0] == ERRORS and isinstance(m, Measurement)]
    refused = {
        m.subject: str(why)
        for m in loads for a in m.attempts for b in a.blocks if (why := b.conditions.get("no_events"))
    }  # fmt: skip
    if not refused:
        return missing
    detail = msg("{why}; of {n} of {m} loaded GPUs NVML told no Xids during the loads either ({error})",
                 why=missing.detail, n=len(refused), m=len(loads), error=next(iter(refused.values())))  # fmt: skip
    evidence = (e for m in loads if m.subject in refused for a in m.attempts for e in a.evidence)
    return replace(missing, detail=detail, evidence=tuple(dict.fromkeys((*missing.evidence, *evidence))))


def _raw(events: tuple[LogEvent, ...]) -> tuple[Text, ...]:
    return tuple(msg("{line}", line=e.raw.strip()) for e in events[:SHOWN])


def _none(clause: Clause, case: Case, found: Known[KernelLog]) -> Finding:
    if not any(c.answers for c in all_cards(case)):
        return unreadable(clause, nobody(case))
    unreadable_lines = [e for e in found.value.events if e.kind == "unreadable_xid"]
    if unreadable_lines:
        detail = msg("{n} lines about Xids cannot be read", n=len(unreadable_lines))
        return unreadable(clause, Missing("unparsable", detail, found.evidence), notes=_raw(tuple(unreadable_lines)))
    if not found.value.since_boot:
        detail = msg("the kernel log does not reach back to the start of the machine: earlier faults are not in it")
        grant = msg("let this user read the journal of this boot (journalctl -k -b)")
        return unreadable(clause, _unheard(Missing("unsupported", detail, found.evidence, grant), case))
    others = found.value.gpu_events
    notes = (msg("not counted, as programs cause them: {n} Xids", n=len(others)),) if others else ()
    reason = msg("no Xid of hardware, NVLink or driver since the machine started")
    return finding(clause, "pass", "kept", reason, measured=0, evidence=found.evidence, notes=notes)
