"""``integrity.load_errors``: memory errors, remapped rows and faults that appeared while the card worked. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agent.bench.burn import ERRORS
from agent.checks._api import Case
from agent.checks._judge import integrity
from agent.model import Finding, Measurement
from agent.reading import Missing
from agent.text import Text, msg
from agent.tools import xid

NAME = ERRORS.partition(".")[2]
TITLES = {
    "ecc_uncorrected": msg("uncorrected memory errors"),
    "remapped_uncorrectable": msg("rows remapped after uncorrectable errors"),
    "remapped_failure": msg("failed remaps"),
    "ecc_corrected": msg("corrected memory errors"),
    "pcie_replay": msg("PCIe replays"),
}
BREACH = ("ecc_uncorrected", "remapped_uncorrectable", "remapped_failure")


def judge(case: Case) -> Iterator[Finding]:
    """One finding for each card that was loaded; what a healthy card corrects by itself is advisory."""
    for key, taken in case.measured.items():
        if key.partition("@")[0] != ERRORS:
            continue
        subject = key.partition("@")[2] or None
        if isinstance(taken, Missing):
            # Why nothing was measured the clauses themselves say.
            continue
        yield _one(taken, subject)


def _one(taken: Measurement, subject: Any) -> Finding:
    last = [b.conditions for a in taken.attempts for b in a.blocks]
    grown = {name: sum(c["growth"].get(name) or 0.0 for c in last) for name in TITLES}
    hard = [x for c in last for x in c["xids"] if xid.XID_CLASS.get(x) in ("hardware", "nvlink")]
    fields: dict[str, Any] = {
        "subject": subject,
        "measured": sum(grown[name] for name in BREACH) + len(hard),
        "evidence": tuple(dict.fromkeys(e for a in taken.attempts for e in a.evidence)),
        "measurements": (taken.key,),
    }
    deaf = next((str(c["no_events"]) for c in last if c.get("no_events")), None)
    if deaf is not None:
        fields["notes"] = (msg("Xids could not be listened for: NVML refused to tell them ({error})", error=deaf),)
    said = (*_said(grown), *(xid.xid_words(x) for x in hard))
    if fields["measured"]:
        reason = msg("new while the card worked: {errors}", errors=said)
        return integrity(NAME, "fail", "new-errors", reason, severity="breach", **fields)
    if said:
        reason = msg("corrected while the card worked: {errors}", errors=said)
        return integrity(NAME, "fail", "corrected-errors", reason, **fields)
    return integrity(NAME, "pass", "kept", msg("no new errors while the card worked"), **fields)


def _said(grown: dict[str, float]) -> tuple[Text, ...]:
    return tuple(msg("{n} {what}", n=int(n), what=TITLES[name]) for name, n in grown.items() if n)
