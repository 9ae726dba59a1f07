"""A case run through the agent in this process: facts, findings, verdict. Tools and probes are real children."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from agent import contract as contracts
from agent import runner
from agent.checks import families, grammars
from agent.course import Silent
from agent.facts import _smi
from agent.host import LiveHost
from agent.model import Finding, Run
from agent.plan import Options
from agent.tools import nvml
from tests.fakenode.node import build
from tests.fakenode.wrong import Case

CONTRACTS = Path(__file__).parent / "contracts"
# What the machine that runs the tests has of its own: its shared memory, limits and CPU time.
OF_THE_TEST_HOST = ("integrity.small_shm", "integrity.few_processes", "integrity.steal", "integrity.oversold_cpu")


def run(case: Case, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Build the node, run the profile ``facts`` on it; the recording lies in ``folder/run``."""
    built = build(case.node(), folder / "node")
    for name, value in built.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(LiveHost, "sleep", lambda host, seconds: None)
    # The fake answers at once or never.
    monkeypatch.setattr(_smi, "TIMEOUT_S", 3.0)
    monkeypatch.setattr(nvml, "CALL_S", 2.0)
    contract = contracts.load(CONTRACTS / case.contract, grammars())
    # One interpreter, without torch: to import it takes longer than all the rest, and facts say nothing by it.
    options = Options(profile="facts", python=os.path.realpath(sys.executable))
    job = runner.create(folder / "run", contract, options, "en", str(built.root))
    host = runner.live_host(job)
    runner.begin_session(job, host, ["accept", "run"])
    return runner.execute(job, host, families(), Silent())


def compare(case: Case, run: Run) -> list[str]:
    """What came out otherwise than the case says, a line each."""
    findings = [f for f in run.findings if f.id not in OF_THE_TEST_HOST]
    lines = [] if run.verdict == case.verdict else [f"verdict {run.verdict}, wanted {case.verdict}"]
    for outcome, severity, patterns in (
        ("fail", "breach", case.fails),
        ("inconclusive", "breach", case.unknown),
        ("fail", "advisory", case.advisory),
    ):
        found = [f for f in findings if (f.outcome, f.severity) == (outcome, severity)]
        lines += _differences(found, patterns)
    return lines


def _differences(found: Sequence[Finding], patterns: Sequence[str]) -> Iterator[str]:
    for finding in found:
        if not any(fnmatchcase(finding.id, pattern) for pattern in patterns):
            said = f"{finding.outcome} ({finding.severity}) {finding.reason_code}: {finding.reason}"
            yield f"unexpected: {finding.id} {said}"
    for pattern in patterns:
        if not any(fnmatchcase(finding.id, pattern) for finding in found):
            yield f"missing: {pattern}"


def told(run: Run) -> list[str]:
    """What decides, and what fails without deciding: a line a clause and outcome, with the subjects counted."""
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in run.findings:
        decides = finding.outcome == "inconclusive" and finding.severity == "breach"
        if (decides or finding.outcome == "fail") and finding.id not in OF_THE_TEST_HOST:
            groups.setdefault((finding.clause, finding.outcome, finding.severity), []).append(finding)
    return [
        f"{clause} {outcome}{' (advisory)' * (severity == 'advisory')}: {found[0].reason_code}"
        + (f" @ {found[0].subject}" if len(found) == 1 and found[0].subject else f" x {len(found)}" * (len(found) > 1))
        for (clause, outcome, severity), found in groups.items()
    ]
