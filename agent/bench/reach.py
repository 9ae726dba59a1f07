"""Whether an address answers from this machine: name, TCP, TLS, HTTP; up to three tries an attempt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.bench._probe import run_probe
from agent.bench.step import Cost, Look, Step
from agent.host import Host, Ran
from agent.model import Attempt, Block, Result, Taken
from agent.reading import Missing
from agent.text import msg

TRIES = 3
PAUSE_S = 2.0
TIMEOUT_S = 8.0
# Name, up to four addresses, TLS, and the answer, each with its own deadline.
LONGEST_TRY_S = 8 * TIMEOUT_S


def step(target: str) -> Step:
    """The tries at one address. The blocks' conditions hold every try (see ``agent/probes/reach_probe.py``)."""
    key = f"reach[{target}]"

    def execute(host: Host, look: Look) -> Mapping[str, Result]:
        return {key: _execute(key, target, host, look)}

    return Step(key, (key,), "none", lambda depth: Cost(3.0, sent=64_000), execute, settle_s=10.0)


def _execute(key: str, target: str, host: Host, look: Look) -> Result:
    tries: list[Mapping[str, Any]] = []
    runs: list[Ran] = []
    for number in range(1, TRIES + 1):
        if tries:
            host.sleep(PAUSE_S)
        args = [target, f"{TIMEOUT_S:g}"]
        ran, answer = run_probe(host, f"{key}.{look.number}.try{number}", "reach_probe", args, LONGEST_TRY_S)
        if isinstance(answer, Missing):
            return answer
        runs.append(ran)
        tries.append(answer.value)
        if reached(answer.value):
            break
    failed = sum(not reached(one) for one in tries)
    conditions = {"count": failed, "trials": len(tries), "tries": tuple(tries)}
    block = Block(100 * failed / len(tries), conditions=conditions)
    evidence = tuple(e for ran in runs for e in ran.cited)
    notes = (msg("{n} tries, {failed} failed", n=len(tries), failed=failed),) if failed else ()
    attempt = Attempt(
        (block,), look.depth, runs[0].started_at, evidence, notes=notes, reproduce=("curl", "-sv", "-m", "30", target)
    )
    return Taken(attempt, "%", "share of trials")


def reached(answer: Mapping[str, Any]) -> bool:
    """An answer of the server itself: 404 is one, a gateway's 502 and a proxy's demand for a password are not."""
    status = answer.get("status")
    return bool(answer["reached"]) and (status is None or (status < 500 and status != 407))
