"""The keys of a contract that are not clauses: who promised what to whom, and the fields of the mapping form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Optional

from agent.grammar import Kind, day, flag, label, one_of, percent, plain, ratio, text

# A tolerance is for the noise of a measurement; half of the promise is not noise.
TOLERANCE = plain(percent("at_most", most=50))

VERSION = one_of("1")

HEADER: Mapping[str, Kind] = {
    "id": label(),
    "vendor": label(),
    "customer": label(),
    "signed": day(),
    "site": label(),
    "language": one_of("zh", "en", aliases={"zh-CN": "zh", "中文": "zh", "英文": "en"}),
}

PRICE: Mapping[str, Kind] = {
    "amount": plain(ratio("at_most")),
    "currency": label(),
    "per": one_of(
        *("hour", "day", "week", "month", "year"),
        aliases={"时": "hour", "小时": "hour", "天": "day", "日": "day", "周": "week", "月": "month", "年": "year"},
    ),
}

ACCESS: Mapping[str, Kind] = {
    "kind": one_of(
        *("container", "vm", "bare-metal"),
        aliases={"容器": "container", "虚拟机": "vm", "裸金属": "bare-metal", "物理机": "bare-metal"},
    ),
    "root": flag(),
}

# ``is`` and ``remedy`` (the user's own fields) come on top; ``tolerance`` only where something is measured.
FORM: Mapping[str, Kind] = {
    "ref": label(),
    "text": text(),
    "tolerance": TOLERANCE,
    "severity": one_of("breach", "advisory"),
    "if_unreadable": one_of("inconclusive", "advisory"),
    "agreed": flag(),
}

TERM: Mapping[str, Kind] = {"text": text(), "check_by": day(), "ref": label()}

TOP = ("version", "contract", "access", "tolerance", "terms")
OWN = "x-"  # keys that begin so are the user's own, at every level

# What a clause's remedy may reckon with, beside words: ``remedy: {text: …, per_percent: 2 %, at_most: 30 %}``.
FORMULA = frozenset({"per_percent", "at_most"})
_SHARE = re.compile(r"\s*(\d{1,3}(?:\.\d{1,6})?)\s*[%％]\s*\Z")


def share_of_price(written: str) -> Optional[float]:
    """``2.5 %`` → 0.025; None for what is no percentage."""
    found = _SHARE.match(written)
    return float(found[1]) / 100 if found else None
