"""Whether a card is whole, who else is on it, and what the kernel log says of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from agent.checks import _gpu_sharing
from agent.checks._api import Case
from agent.checks._gpu_cards import Card, nobody
from agent.checks._gpu_faults import HARD, by_slot, log, ours, said
from agent.checks._gpu_sharing import Sign
from agent.checks._looked import Bad, Looked, asked, cited
from agent.facts import gpu_share
from agent.facts.gpu_share import GpuShareFacts
from agent.facts.gpus import GpusFacts
from agent.model import Severity
from agent.reading import Known, Missing
from agent.text import msg


def sliced(case: Case, cards: Sequence[Card], facts: GpusFacts) -> Looked:
    """A part of a card although nobody asked for one; where a whole card is promised, that clause decides."""
    if asked(case, "gpu.whole_card"):
        return Looked()
    bad = [
        Bad(c.slot, "not-whole", msg("{signs}", signs=tuple(s.said for s in parts)), _evidence(parts))
        for c in cards
        if (parts := _gpu_sharing.missing_part(c)) and not _agreed_slice(case)
    ]
    return Looked(tuple(bad))


def _agreed_slice(case: Case) -> bool:
    return any(c.key == "gpu.mig" and c.promise.value is True for c in case.contract.clauses)


def between(case: Case, cards: Sequence[Card], facts: GpusFacts) -> Looked:
    """Libraries and drivers that stand between programs and cards and can change what they see."""
    share: Optional[GpuShareFacts] = case.facts.get("gpu_share")
    if share is None:
        return Looked()
    bad = [
        Bad(None, s.kind, s.what, s.evidence, "breach" if s.kind == "fake" else "advisory")
        for s in _gpu_sharing.software(case)
    ]
    if bad:
        reason = msg("{signs}", signs=tuple(b.reason for b in bad))
        severity: Severity = "breach" if any(b.severity == "breach" for b in bad) else "advisory"
        evidence = tuple(dict.fromkeys(e for b in bad for e in b.evidence))
        return Looked((Bad(None, bad[0].code, reason, evidence, severity),))
    unread = next((r for r in (share.preload, share.marks) if isinstance(r, Missing)), None)
    fine = msg("no library or driver is known to stand between programs and cards")
    return Looked(fine=fine, unknown=unread, evidence=cited(share.preload) + cited(share.marks))


def foreign(case: Case, cards: Sequence[Card], facts: GpusFacts) -> Looked:
    """Processes of others, before our own first context."""
    answering = [c for c in cards if c.answers]
    users = {c.slot: _gpu_sharing.on_card(c, case) for c in answering}
    bad = [
        Bad(slot, "foreign-process", msg("{who}", who=tuple(s.said for s in u.foreign)), _evidence(u.foreign))
        for slot, u in users.items()
        if u.foreign
    ]
    unknown = next((u.unknown for u in users.values() if u.unknown is not None), None)
    if unknown is None and not answering:
        unknown = nobody(case)
    return Looked(tuple(bad), msg("the driver lists nobody else on the cards"), unknown, _told(facts))


def unowned(case: Case, cards: Sequence[Card], facts: GpusFacts) -> Looked:
    """Memory in use that no process owns."""
    answering = [c for c in cards if c.answers]
    found = {c.slot: _gpu_sharing.unowned(c) for c in answering}
    bad = [
        Bad(slot, "without-owner", msg("{signs}", signs=tuple(s.said for s in some)), _evidence(some))
        for slot, some in found.items()
        if some
    ]
    rests = [gpu_share.unowned(c.gpu) for c in answering]
    unknown = next((r for r in rests if isinstance(r, Missing)), None)
    if not answering:
        unknown = nobody(case)
    fine = msg("no more memory is in use than firmware takes")
    return Looked(tuple(bad), fine, unknown, _told(facts))


def hard_faults(case: Case, cards: Sequence[Card], facts: GpusFacts) -> Looked:
    """Faults of hardware in the log, from before the run too; ``gpu.xid`` decides where it is promised."""
    found = log(case)
    if isinstance(found, Missing):
        return Looked(unknown=found)
    faults = ours(by_slot(found.value, HARD), case)
    bad = tuple(Bad(where, "xid", said(events), found.evidence) for where, events in faults.items())
    fine = msg("the kernel log holds no hardware fault of a GPU")
    if not found.value.since_boot:
        fine = msg("the kernel log, which does not reach back to the start, holds no hardware fault of a GPU")
    return Looked(bad, fine, None, found.evidence)


def _evidence(found: Sequence[Sign]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(e for s in found for e in s.evidence))


def _told(facts: GpusFacts) -> tuple[str, ...]:
    """The evidence of the source that told of the cards: nvidia-smi's where NVML gave nothing."""
    heard = (facts.sources[name] for name in ("nvml", "smi"))
    return next((r.evidence for r in heard if isinstance(r, Known)), facts.sources["nvml"].evidence)
