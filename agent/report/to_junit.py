"""JUnit XML: a test case for each finding. What could not be verified is an error, never a silent pass."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Optional
from xml.etree import ElementTree

from agent.model import Finding, Run
from agent.report import byhand, industry, looks, numbers, rows
from agent.report.clean import one_line, visible
from agent.report.names import title
from agent.text import Translate, msg

FORMAT = "junit"
EXTENSION = "xml"


def render(run: Run, folder: Optional[Path], translate: Translate, language: str) -> str:
    """One suite named after the contract. A run that did not finish carries an error of its own."""
    del folder, language
    cases = [_case(f, run, translate) for f in run.findings]
    if not run.complete:
        cases.append(_unfinished(translate))
    totals = {kind: str(sum(c.find(kind) is not None for c in cases)) for kind in ("failure", "error", "skipped")}
    suite = ElementTree.Element(
        "testsuite",
        name=one_line(f"accept {run.contract_id or run.run_id}"),
        tests=str(len(cases)),
        failures=totals["failure"],
        errors=totals["error"],
        skipped=totals["skipped"],
        time=_seconds(numbers.seconds_between(run.started_at, run.finished_at)),
        timestamp=_stamp(run.started_at),
        hostname=one_line(str(run.node.get("hostname") or "-")),
    )
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in _properties(run, translate):
        ElementTree.SubElement(properties, "property", name=name, value=one_line(value))
    suite.extend(cases)
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root) if hasattr(ElementTree, "indent") else None
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _properties(run: Run, translate: Translate) -> tuple[tuple[str, str], ...]:
    return (
        ("run_id", run.run_id),
        ("contract_sha256", run.contract_sha256),
        ("verdict", run.verdict or "none"),
        ("headline", run.headline.render(translate)),
        ("scope", "full" if run.scope.full and run.complete else "partial"),
        ("agent_version", run.agent_version),
    )


def _case(f: Finding, run: Run, translate: Translate) -> ElementTree.Element:
    look = looks.of_outcome(f.outcome, f.severity)
    case = ElementTree.Element("testcase", classname=f"accept.{_family(f.clause)}", name=one_line(f.id))
    why = visible(f.reason.render(translate))
    if look.junit:
        message = f"{look.word.render(translate)}: {title(f.clause, translate)}: {one_line(why)}"
        element = ElementTree.SubElement(case, look.junit, message=message)
        if look.junit != "skipped":
            element.set("type", one_line(f.reason_code) or "-")
        element.text = _details(f, why, run, translate)
    return case


def _details(f: Finding, why: str, run: Run, translate: Translate) -> str:
    lines = [
        (msg("promised"), numbers.promise(f.promised)),
        (msg("measured"), numbers.measured(f, translate)),
        (msg("against the promise"), rows.gap(f, translate)),
        (msg("why"), why),
        (msg("to be granted"), visible(f.grant.render(translate)) if f.grant else ""),
        (msg("reference"), one_line(f.ref or "")),
        (msg("reproduce"), byhand.command(f, run) or industry.command(f, run)),
        (msg("evidence"), one_line(", ".join(f.evidence))),
    ]
    return "\n" + "".join(f"{label.render(translate)}: {value}\n" for label, value in lines if value)


def _unfinished(translate: Translate) -> ElementTree.Element:
    case = ElementTree.Element("testcase", classname="accept.run", name="complete")
    message = looks.of_verdict(None).word.render(translate)
    ElementTree.SubElement(case, "error", message=message, type="incomplete")
    return case


def _family(clause: str) -> str:
    return one_line(clause.split("[")[0].split(".")[0]).replace(" ", "-") or "-"


def _seconds(value: Optional[float]) -> str:
    return f"{value:.3f}" if value is not None and math.isfinite(value) and value >= 0 else "0"


def _stamp(stamp: str) -> str:
    time = numbers.parsed(stamp)
    return time.strftime("%Y-%m-%dT%H:%M:%S") if time else "1970-01-01T00:00:00"
