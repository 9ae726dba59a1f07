"""Prometheus text format, for the textfile collector of a node exporter: one file a run, gauges only."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Optional

from agent.model import Finding, Outcome, Run, Verdict
from agent.report import numbers
from agent.report.clean import one_line
from agent.text import Translate

FORMAT = "prom"
EXTENSION = "prom"
_VERDICTS: tuple[Verdict, ...] = ("accepted", "rejected", "inconclusive")
_OUTCOMES: tuple[Outcome, ...] = ("pass", "fail", "inconclusive", "not-asked")
Labels = Mapping[str, Optional[str]]


def render(run: Run, folder: Optional[Path], translate: Translate, language: str) -> str:
    """Numbers in the unit of their label ``unit``. What was not measured has no line: absent is not zero."""
    del folder, translate, language
    own = {"contract": run.contract_id, "node": _text(run.node.get("hostname"))}
    return "".join((*_run(run, own), *_counts(run, own), *_findings(run, own)))


def _text(value: Any) -> Optional[str]:
    return None if value is None else str(value)


def _run(run: Run, own: Labels) -> Iterable[str]:
    verdict = run.verdict if run.complete else None
    yield _head("accept_verdict", "1 for the verdict of the run, 0 for the others; all 0 while there is none")
    yield from (_line("accept_verdict", {**own, "verdict": v}, v == verdict) for v in _VERDICTS)
    yield _head("accept_complete", "1 if the run reached its end")
    yield _line("accept_complete", own, run.complete)
    yield _head("accept_scope_full", "1 if nothing of the contract was left out, shortened or put off")
    yield _line("accept_scope_full", own, run.scope.full)
    started = numbers.parsed(run.started_at)
    if started is not None:
        yield _head("accept_started_timestamp_seconds", "When the run began")
        yield _line("accept_started_timestamp_seconds", own, started.timestamp())
    lasted = numbers.seconds_between(run.started_at, run.finished_at)
    if lasted is not None:
        yield _head("accept_duration_seconds", "How long the run took")
        yield _line("accept_duration_seconds", own, lasted)


def _counts(run: Run, own: Labels) -> Iterable[str]:
    yield _head("accept_findings", "Findings by outcome and severity")
    for outcome in _OUTCOMES:
        for severity in ("breach", "advisory"):
            found = sum(f.outcome == outcome and f.severity == severity for f in run.findings)
            yield _line("accept_findings", {**own, "outcome": outcome, "severity": severity}, found)


def _findings(run: Run, own: Labels) -> Iterable[str]:
    yield _head("accept_finding", "1 for each finding, with its outcome")
    for f in run.findings:
        yield _line("accept_finding", {**_of(f, own), "outcome": f.outcome, "severity": f.severity}, 1)
    yield _head("accept_measured", "The measured number of a finding")
    for f in run.findings:
        if _is_number(f.measured):
            yield _line("accept_measured", {**_of(f, own), "unit": f.unit}, f.measured)
    yield _head("accept_limit", "The limit it was held against, tolerance included")
    for f in run.findings:
        if f.limit is not None and _is_number(f.limit.value):
            labels = {**_of(f, own), "unit": f.limit.unit, "op": f.limit.op}
            yield _line("accept_limit", labels, f.limit.value)


def _of(finding: Finding, own: Labels) -> Labels:
    return {**own, "clause": finding.clause, "subject": finding.subject}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _head(name: str, text: str) -> str:
    return f"# HELP {name} {text}\n# TYPE {name} gauge\n"


def _line(name: str, labels: Labels, value: float) -> str:
    inner = ",".join(f'{k}="{_escaped(v)}"' for k, v in labels.items() if v is not None)
    return f"{name}{{{inner}}} {float(value):.12g}\n"


def _escaped(text: str) -> str:
    return one_line(text)[:400].replace("\\", "\\\\").replace('"', '\\"')
