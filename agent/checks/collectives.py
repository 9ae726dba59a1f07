"""The ``collectives`` clauses: all-gather, reduce-scatter and all-to-all over the GPUs of this node, as bus bandwidth.

``size`` as nccl-tests prints it: what each GPU ends with (all-gather), begins with (reduce-scatter) or sends
(all-to-all), its own part included. Each is judged at that one size, never as an average over sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Optional

from agent.bench.allreduce import OPS, SIZE, AllreduceStep
from agent.bench.step import Step
from agent.checks._api import Case
from agent.checks._judge import rate
from agent.checks._measured import models, tools
from agent.checks.allreduce import count_of, line, promised, told, weakest, without_limit
from agent.grammar import Section, count, size
from agent.grammar import rate as rate_kind
from agent.model import Clause, Finding, Limit, Origin
from agent.text import Text, msg

GRAMMAR = Section(
    clauses={op: rate_kind(auto=True, such="330 GB/s") for op in OPS},
    settings={"gpus": count(words={"all": "all", "全部": "all"}), "size": size("equal")},
)
FACTS = ("gpus", "processes", "pythons", "trade_tools")
# A ring carries the same over its links for these as for an all-reduce; an all-to-all has no ring.
RINGS = ("all_gather", "reduce_scatter")


def steps(clauses: Sequence[Clause], case: Case) -> Iterator[Step]:
    """One launch for all that are promised, over the GPUs and at the size that the contract names."""
    if "pythons" not in case.facts or not clauses:
        return
    settings = clauses[0].settings
    gpus = settings.get("gpus", "all")
    ops = tuple(dict.fromkeys(c.name for c in clauses))
    yield AllreduceStep(
        case.facts["pythons"].chosen,
        gpus=gpus if isinstance(gpus, str) else int(gpus),
        promised=promised(case),
        size=int(settings.get("size", SIZE)),
        ops=ops,
        judged=ops,
        fewer=False,
        # What a GPU gets or gives crosses its links, whatever the switch adds up.
        bound=partial(line, models(case)),
        tools=tools(case),
    ).step()


def judge(clauses: Sequence[Clause], case: Case) -> Iterator[Finding]:
    """Each collective at its size and number of GPUs."""
    for clause in clauses:
        yield _judge(clause, case)


def _judge(clause: Clause, case: Case) -> Finding:
    ring = _ring(clause, case)
    note = () if ring is None else (ring[1],)
    if clause.promise.op != "auto":
        return told(rate(clause, case), case, note)
    if ring is None or ring[0] is None:
        why = ring[1] if ring is not None else msg("nothing is published of this collective on such a machine")
        return without_limit(clause, case, why)
    # Derived from the links and from published all-reduces, by nobody measured as such: it cannot convict.
    value = ring[0] * (1 - clause.tolerance)
    limit = Limit(">=", value, "GB/s", clause.tolerance, Origin("topology", str(ring[1])))
    return told(rate(replace(clause, severity="advisory"), case, limit=limit), case, note)


def _ring(clause: Clause, case: Case) -> Optional[tuple[Optional[float], Text]]:
    """What a ring over these links reaches in GB/s, with the derivation; None where nothing is known of it."""
    found = weakest(case, count_of(case, clause.key)) if clause.name in RINGS else None
    if found is None:
        return None
    return found.ring, msg("a ring as of an all-reduce: {derivation}", derivation=found.derivation)
