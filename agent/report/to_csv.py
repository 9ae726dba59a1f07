"""Findings as CSV, one line each, safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any, Optional

from agent.model import Finding, Run
from agent.report import looks, rows
from agent.report.clean import one_line
from agent.report.names import title
from agent.text import Translate

FORMAT = "csv"
EXTENSION = "csv"
COLUMNS = (
    "id", "clause", "title", "subject", "outcome", "severity", "word", "promised", "measured", "unit", "low", "high",
    "gap", "limit_op", "limit", "tolerance", "reason_code", "reason", "grant", "ref", "evidence",
)  # fmt: skip
# A spreadsheet takes a cell that begins with one of these for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "|", "%", "＝", "＋", "－", "＠")


def render(run: Run, folder: Optional[Path], translate: Translate, language: str) -> str:
    """A header and a line for each finding; numbers with a point and no grouping."""
    del folder, language
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for finding in run.findings:
        writer.writerow([_cell(v) for v in _line(finding, translate)])
    return out.getvalue()


def _line(f: Finding, translate: Translate) -> tuple[Any, ...]:
    low, high = f.interval or (None, None)
    limit = f.limit
    return (
        f.id, f.clause, title(f.clause, translate), f.subject, f.outcome, f.severity,
        looks.of_outcome(f.outcome, f.severity).word.render(translate), f.promised, f.measured, f.unit, low, high,
        rows.gap(f, translate), limit.op if limit else None, limit.value if limit else None,
        limit.tolerance if limit else None, f.reason_code, f.reason.render(translate),
        f.grant.render(translate) if f.grant else None, f.ref, " ".join(f.evidence),
    )  # fmt: skip


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value) if value == value and abs(value) != float("inf") else ""
    text = one_line(", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value))
    return f"'{text}" if text.startswith(_FORMULA) else text
