"""How long a name takes to be resolved, beside what is measured through it: a note, never a clause.

A slow resolver makes a quick line feel slow, and is neither the line's fault nor the far end's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from agent.bench._probe import run_probe
from agent.bench.endpoints import address_of
from agent.host import Host
from agent.reading import Missing
from agent.text import Text, msg

TIMEOUT_S = 8.0
SLOW_MS = 1000.0


@dataclass(frozen=True)
class Resolved:
    """What a look at a name gave: nothing where it is an address, or where the look itself failed."""

    ms: Optional[float] = None
    addresses: tuple[str, ...] = ()
    notes: tuple[Text, ...] = ()
    evidence: tuple[str, ...] = ()

    @property
    def conditions(self) -> Mapping[str, Any]:
        """For a block."""
        return {} if self.ms is None else {"dns_ms": self.ms}


NOTHING = Resolved()


@dataclass(frozen=True)
class Names:
    """The looks at several names, by name."""

    looks: Mapping[str, Resolved] = field(default_factory=dict)

    def of(self, name: str) -> Resolved:
        """The look at one name."""
        return self.looks.get(name, NOTHING)


def look(host: Host, probe: str, name: Optional[str]) -> Resolved:
    """One name. Where it is not resolved nothing is said: what is measured through it says so."""
    if not name or address_of(name.strip("[]")) is not None:
        return NOTHING
    ran, answer = run_probe(host, probe, "name_probe", [name, f"{TIMEOUT_S:g}"], TIMEOUT_S + 12.0)
    if isinstance(answer, Missing) or answer.value.get("error"):
        return NOTHING
    ms = answer.value.get("ms")
    if not isinstance(ms, (int, float)):
        return NOTHING
    addresses = tuple(str(a) for a in answer.value.get("addresses") or ())
    return Resolved(float(ms), addresses, (_note(name, float(ms), answer.value.get("name_servers")),), ran.cited)


def looks(host: Host, probe: str, names: Iterable[str]) -> Names:
    """Several names, each once."""
    return Names({name: look(host, f"{probe}.{name}", name) for name in dict.fromkeys(names)})


def slow(ms: float, servers: object) -> Text:
    """The sentence for a resolver that is slow."""
    listed = [str(s) for s in servers] if isinstance(servers, Sequence) and not isinstance(servers, str) else []
    return msg(
        "resolving the name took {s} s: the name servers of this machine ({servers}) are slow, not the line",
        s=f"{ms / 1e3:.2g}",
        servers=", ".join(listed) or "/etc/resolv.conf",
    )


def _note(name: str, ms: float, servers: object) -> Text:
    if ms < SLOW_MS:
        return msg("{name} was resolved in {ms} ms", name=name, ms=f"{ms:.0f}" if ms >= 100 else f"{ms:.3g}")
    return msg("{name}: {why}", name=name, why=slow(ms, servers))
