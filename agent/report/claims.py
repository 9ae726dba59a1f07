"""What a broken promise is worth, where the contract itself says how to count it.

``remedy: {text: …, per_percent: 2 %, at_most: 30 %}`` on a clause, with ``contract.price``: for each percent short of
the promise, 2 % of the price, at most 30 % of it. The formula is read from the contract kept in the run folder, and
only while its sha256 is the one that the run was judged by. Without a formula there is no money in a report.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from agent.checks import grammars
from agent.contract import ContractErrors, loads
from agent.contract_keys import share_of_price
from agent.model import Run
from agent.report import numbers
from agent.report.clean import one_line, shortened
from agent.text import Text, msg

CONTRACT = "contract.yaml"
_LARGEST = 1 << 20
_PERIODS: Mapping[str, Text] = {
    "hour": msg("per hour"),
    "day": msg("per day"),
    "week": msg("per week"),
    "month": msg("per month"),
    "year": msg("per year"),
}


@dataclass(frozen=True)
class Formula:
    """Fractions of the price: for each percent short, and at most."""

    per_percent: float
    at_most: float

    def credit(self, short: float) -> float:
        """The fraction of the price for a shortfall of ``short`` (a fraction of the promise)."""
        return min(100 * short * self.per_percent, self.at_most)


def formulas(run: Run, folder: Optional[Path]) -> Mapping[str, Formula]:
    """By clause key; empty where the run folder holds no contract, or another one."""
    path = folder / CONTRACT if folder else None
    if path is None or path.is_symlink() or not path.is_file() or path.stat().st_size > _LARGEST:
        return {}
    written = path.read_bytes()
    # Most contracts have no formula: then nothing needs to be read again.
    if b"per_percent" not in written or hashlib.sha256(written).hexdigest() != run.contract_sha256:
        return {}
    try:
        clauses = loads(written, CONTRACT, grammars()).clauses
    except ContractErrors:
        return {}  # a later version that reads contracts otherwise; the run itself was judged
    found = ((c.key, _formula(c.remedy)) for c in clauses)
    return {key: formula for key, formula in found if formula is not None}


def _formula(remedy: Optional[Mapping[str, Any]]) -> Optional[Formula]:
    if not remedy:
        return None
    per, most = (share_of_price(str(remedy.get(name, ""))) for name in ("per_percent", "at_most"))
    return Formula(per, 1.0 if most is None else most) if per else None


def claim(formula: Formula, short: float, header: Mapping[str, Any]) -> Optional[Text]:
    """``3,600 CNY per month (15 % of the price: 3 % for each percent short, at most 30 %)``; None without a price."""
    price = header.get("price")
    amount = _amount(price.get("amount")) if isinstance(price, Mapping) else None
    if amount is None or not isinstance(price, Mapping) or short <= 0:
        return None
    share = formula.credit(short)
    per = str(price.get("per") or "")
    money = f"{numbers.number(round(amount * share, 2))} {shortened(one_line(str(price.get('currency') or '')), 12)}"
    return msg(
        "{money} {period} ({share} of the price: {each} for each percent short, at most {most})",
        money=money.strip(), period=_PERIODS.get(per, shortened(one_line(per), 20)), share=numbers.percent(share),
        each=numbers.percent(formula.per_percent), most=numbers.percent(formula.at_most),
    )  # fmt: skip


def _amount(written: Any) -> Optional[float]:
    try:
        value = float(str(written).replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None
