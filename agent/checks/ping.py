"""The ``ping`` clauses: one entry a host; round trips."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, Optional

from agent.bench import ping as bench
from agent.bench import unable
from agent.bench.step import Step
from agent.checks import _own_address
from agent.checks._api import Case
from agent.checks._judge import rate, unsupported
from agent.facts.programs import absent
from agent.grammar import Section, duration, host, percent
from agent.model import Clause, Finding
from agent.quantity import convert

GRAMMAR = Section(
    clauses={"latency": duration(), "loss": percent(), "jitter": duration()},
    settings={"host": host()},
    many="host",
)
FACTS = (*_own_address.FACTS, "programs")
NAMES: tuple[bench.Name, ...] = ("latency", "jitter", "loss")


def steps(clauses: Sequence[Clause], case: Case) -> Iterable[Step]:
    """One step a host. Without ping TCP tells the latency; what is lost nobody tells."""
    why = absent(case.facts, "ping")
    if why is not None:
        yield from (unable.step(c.key, (c.key,), "network", why) for c in clauses if c.name == "loss")
        clauses = [c for c in clauses if c.name != "loss"]
    for name in dict.fromkeys(str(c.settings["host"]) for c in clauses):
        yield bench.step(entry_of([c for c in clauses if c.settings["host"] == name]))


def entry_of(clauses: Sequence[Clause]) -> bench.Entry:
    """The entry that these clauses of one host make up."""
    promised = {c.name for c in clauses}
    loss = next((c for c in clauses if c.name == "loss"), None)
    return bench.Entry(
        host=str(clauses[0].settings["host"]),
        wanted=tuple(name for name in NAMES if name in promised),
        loss=_share(loss),
        loss_op=_order(loss),
    )


def _share(loss: Optional[Clause]) -> Optional[float]:
    if loss is None or loss.promise.op == "auto":
        return None
    value = loss.promise.value
    return convert(float(value[-1] if isinstance(value, tuple) else value), loss.promise.unit, "%") / 100


def _order(loss: Optional[Clause]) -> Literal[">=", "<="]:
    return ">=" if loss is not None and loss.promise.op == ">=" else "<="


def judge(clauses: Sequence[Clause], case: Case) -> Iterable[Finding]:
    """Each number by the rule of its kind."""
    for clause in clauses:
        yield rate(clause, _own_address.aside(case, clause.key)) if clause.name in NAMES else unsupported(clause)
