"""Whether something holds the clocks down, as a light load showed it. Pure."""

from __future__ import annotations

from typing import Any, Optional

from agent.bench.burn import LOCKED
from agent.bench.clocks import KEY
from agent.checks._api import Case
from agent.checks._judge import finding, unreadable
from agent.checks._measured import throttle_causes, whose_work
from agent.model import Clause, Finding, Limit, Measurement, Origin
from agent.reading import Missing
from agent.text import Text, msg

ORIGIN = Origin("agent", "a free card reaches 97 % of its largest clock under a light load")
Fields = dict[str, Any]


def judge_clocks_under_load(clause: Clause, case: Case, slot: str, notes: tuple[Text, ...]) -> Optional[Finding]:
    """The finding; None where no load was made. A clock that stays low must do so twice."""
    taken = case.measured.get(f"{KEY}@{slot}")
    if taken is None:
        return None
    if isinstance(taken, Missing):
        return unreadable(clause, taken, slot, notes=notes)
    best = max(taken.attempts, key=lambda a: a.blocks[0].value)
    conditions = best.blocks[0].conditions
    reached, most = conditions["sm_mhz"], conditions["most_mhz"]
    fields: Fields = {
        "subject": slot,
        "measured": reached,
        "unit": "MHz",
        "limit": Limit(">=", LOCKED * most, "MHz", origin=ORIGIN),
        "evidence": tuple(dict.fromkeys(e for a in taken.attempts for e in a.evidence)),
        "measurements": (taken.key,),
        "reproduce": best.reproduce,
        "notes": notes,
    }
    low = [a.blocks[0].value < 100 * LOCKED for a in taken.attempts]
    if not any(low):
        return finding(clause, "pass", "kept", msg("kept"), **fields)
    said = msg("under a light load the clock reached {mhz} of {most} MHz", mhz=f"{reached:g}", most=f"{most:g}")
    causes = throttle_causes(taken.attempts[-1])
    if causes:
        said = msg("{said}, held down by {causes}", said=said, causes=causes)
    return whose_work(_low(clause, taken, low, said, fields), case)


def _low(clause: Clause, taken: Measurement, low: list[bool], said: Text, fields: Fields) -> Finding:
    if len(taken.attempts) == 1:
        return finding(clause, "inconclusive", "fail-not-repeated", said, again="repeat", **fields)
    if all(low):
        return finding(clause, "fail", "below-limit", said, **fields)
    return finding(clause, "inconclusive", "unstable", said, **fields)
