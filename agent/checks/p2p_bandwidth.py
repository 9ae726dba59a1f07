"""The ``p2p_bandwidth`` clauses: copies between each pair of GPUs, one way; a finding for each GPU that sends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from agent.bench.p2p_bandwidth import PEER, PeerStep, every_pair
from agent.bench.step import Step
from agent.checks._api import Case
from agent.checks._device_memory import peer_bound, slots
from agent.checks._judge import rate as judge_rate
from agent.checks._measured import models, tools, whose_work, wrong_result
from agent.grammar import Section, rate
from agent.model import Clause, Finding
from agent.text import Text, msg

GRAMMAR = Section(clauses={"p2p_bandwidth": rate(auto=True, such="330 GB/s")}, bare="p2p_bandwidth")
FACTS = ("gpus", "processes", "trade_tools")


def steps(clauses: Sequence[Clause], case: Case) -> Iterator[Step]:
    """One for all pairs."""
    if "gpus" in case.facts:
        yield PeerStep(every_pair(slots(case)), bound=partial(peer_bound, models(case)), tools=tools(case)).step()


def judge(clauses: Sequence[Clause], case: Case) -> Iterator[Finding]:
    """The slowest way out of each GPU decides; without a pair, the clause as a whole with the reason."""
    for clause in clauses:
        ways: dict[str, list[str]] = {}
        for key in case.measured:
            family, _, subject = key.partition("@")
            if family == PEER and subject:
                ways.setdefault(subject.partition(">")[0], []).append(subject)
        if not ways:
            yield judge_rate(clause, case)
        for source, subjects in ways.items():
            yield _one(clause, case, source, subjects)


def _one(clause: Clause, case: Case, source: str, subjects: Sequence[str]) -> Finding:
    found = [whose_work(wrong_result(judge_rate(clause, case, subject=s), case), case) for s in subjects]
    worst = min(found, key=_order)
    target = str(worst.subject).partition(">")[2]
    alike = [f for f in found if (f.outcome, f.again) == (worst.outcome, worst.again)]
    cited = alike if worst.again is not None else found
    return replace(
        worst,
        id=f"{clause.key}@{source}",
        subject=source,
        reason=_reason(worst, target, len(alike), len(found)),
        measurements=tuple(m for f in cited for m in f.measurements),
        notes=(*worst.notes, msg("slowest of {n} ways: to {target}", n=len(found), target=target)),
    )


def _order(found: Finding) -> tuple[int, float]:
    """Broken before undecided, what must be seen again before what is settled, the slowest first."""
    again = 0 if found.again is not None else 1
    rank = {"fail": 0, "inconclusive": 1 + again}.get(found.outcome, 3)
    return rank, found.measured if isinstance(found.measured, float) else 0.0


def _reason(worst: Finding, target: str, alike: int, ways: int) -> Text:
    if worst.outcome == "pass":
        return worst.reason
    return msg("to {target}: {why} ({n} of {all} ways)", target=target, why=worst.reason, n=alike, all=ways)
