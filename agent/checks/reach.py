"""The ``reach`` clauses: addresses that must answer from the node; the value is the address."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agent.bench import names
from agent.bench import reach as bench
from agent.bench.step import Step
from agent.checks import _own_address
from agent.checks._api import Case
from agent.checks._judge import REASONS, finding, unreadable
from agent.grammar import Section, endpoint
from agent.model import Attempt, Clause, Finding, Measurement, Outcome
from agent.reading import Missing
from agent.text import Text, msg

GRAMMAR = Section(clauses={"reach": endpoint()}, bare="reach", each=True)
FACTS = _own_address.FACTS

# What the network of the node has to do; the rest may be a proxy, a certificate store, or a fault of the server. A
# name that is not resolved may be misspelt in the contract, or gone from the name servers of the world.
OF_THE_NODE = ("tcp", "tls")
STAGES: Mapping[str, Text] = {
    "dns": msg("its name is not resolved"),
    "tcp": msg("no TCP connection"),
    "tls": msg("TCP connects, TLS does not"),
    "certificate": msg("its certificate is not accepted by this machine"),
    "proxy": msg("the proxy of this machine's environment does not let it through"),
    "http": msg("it connects, but the answer is no answer of the server"),
}


def steps(clauses: Sequence[Clause], case: Case) -> Iterable[Step]:
    """One step an address."""
    return [bench.step(str(clause.promise.value)) for clause in clauses]


def judge(clauses: Sequence[Clause], case: Case) -> Iterable[Finding]:
    """Reached in any of three tries: kept. Not reached in two attempts, by a fault of the network: broken."""
    return [_judge(clause, case) for clause in clauses]


def _judge(clause: Clause, case: Case) -> Finding:
    taken = case.measured.get(clause.key)
    if isinstance(taken, Missing):
        return unreadable(clause, taken)
    if not isinstance(taken, Measurement):
        return unreadable(clause, Missing("left-out", msg("not measured")))
    last = _last_try(taken.attempts[-1])
    outcome, code, reason = _decide(taken)
    # Who writes 127.0.0.1 means this machine; a name that leads here may be a trick.
    meant = str(last.get("address")) in str(clause.promise.value) or "localhost" in str(clause.promise.value)
    if outcome == "pass" and not meant and not last.get("proxy") and _own_address.is_own(last.get("address"), case):
        outcome, code, reason = "inconclusive", _own_address.CODE, _own_address.why(str(last["address"]))
    return finding(
        clause,
        outcome,
        code,
        reason,
        measured=_said(last),
        measurements=(taken.key,),
        depth=taken.attempts[-1].depth,
        reproduce=taken.attempts[-1].reproduce,
        evidence=tuple(dict.fromkeys(e for a in taken.attempts for e in a.evidence)),
        notes=(*dict.fromkeys(n for a in taken.attempts for n in a.notes), *_slow_names(last)),
        grant=_grant(last),
        again="repeat" if code == "fail-not-repeated" and len(taken.attempts) == 1 else None,
    )


def _decide(taken: Measurement) -> tuple[Outcome, str, Text]:
    tries = [_last_try(a) for a in taken.attempts]
    answered = [bench.reached(one) for one in tries]
    if all(answered):
        return "pass", "kept", REASONS["kept"]
    last = next(one for one in reversed(tries) if not bench.reached(one))
    stage = str(last["stage"])
    if any(answered):
        return "inconclusive", "unstable", msg("reached in one attempt and not in another: {why}", why=_why(last))
    if stage not in OF_THE_NODE or last.get("proxy"):
        return "inconclusive", f"{stage}-failed", _why(last)
    if len(tries) == 1:
        return "inconclusive", "fail-not-repeated", _why(last)
    return "fail", f"{stage}-failed", _why(last)


def _last_try(attempt: Attempt) -> Mapping[str, Any]:
    found: Mapping[str, Any] = attempt.blocks[0].conditions["tries"][-1]
    return found


def _why(one: Mapping[str, Any]) -> Text:
    said = one.get("error") or msg("HTTP status {status}", status=one.get("status"))
    return msg("{what}: {said}", what=STAGES.get(str(one["stage"]), str(one["stage"])), said=said)


def _grant(one: Mapping[str, Any]) -> Any:
    stage = one["stage"]
    if bench.reached(one):
        return None
    if one.get("proxy"):
        return msg("a proxy that lets this address through, or none: now {proxy}", proxy=one["proxy"])
    if stage == "dns":
        return msg("check the name's spelling, and the name servers in this machine's /etc/resolv.conf")
    if stage == "certificate":
        return msg("install ca-certificates and set the clock, or name the authority in SSL_CERT_FILE")
    return None


def _slow_names(one: Mapping[str, Any]) -> tuple[Text, ...]:
    """Where the time went, if it went into the name."""
    ms = one.get("dns_ms")
    slow = isinstance(ms, (int, float)) and ms >= names.SLOW_MS
    return (names.slow(float(ms or 0), one.get("name_servers")),) if slow else ()


def _digits(ms: float) -> str:
    """2,010 ms are not 2.01e+03 ms."""
    return f"{ms:.0f}" if ms >= 100 else f"{ms:.3g}"


def _said(one: Mapping[str, Any]) -> str:
    """``HTTP 200 in 31 ms (DNS 2, TCP 9, TLS 15, answer 5)``; the stage where it ended otherwise."""
    parts = {"DNS": "dns_ms", "TCP": "tcp_ms", "TLS": "tls_ms", "HTTP": "http_ms"}
    times = {name: float(one[key]) for name, key in parts.items() if one.get(key) is not None}
    spent = ", ".join(f"{name} {_digits(value)} ms" for name, value in times.items())
    proxy = f"; proxy {one['proxy']}" if one.get("proxy") else ""
    state = f"HTTP {one['status']}" if one.get("status") is not None else str(one["stage"]).upper()
    failed = "" if one["reached"] else " failed"
    return f"{state}{failed} ({spent}{proxy})"
