"""Which of the programs that measure are on this machine: known before anything runs, so that a plan can say it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

from agent import probes
from agent.facts import Asked
from agent.facts._read import answer
from agent.host import Host
from agent.reading import Known, Missing, Reading
from agent.text import msg
from agent.tools._text import one_document

# Program → the package that brings it, where that is called otherwise.
PROGRAMS = {
    "fio": "fio",
    "dd": "coreutils",
    "iperf3": "iperf3",
    "ping": "iputils-ping / iputils",
    "ib_write_bw": "perftest",
}
TIMEOUT_S = 10.0


@dataclass(frozen=True)
class ProgramsFacts:
    """``found``: where each program lies, None where it lies nowhere on the PATH."""

    found: Reading[Mapping[str, Any]]


def collect(host: Host, asked: Asked) -> ProgramsFacts:
    """One look at the PATH that tools are started with."""
    ran = probes.ask(host, "programs", "programs_probe", tuple(PROGRAMS), TIMEOUT_S)
    return ProgramsFacts(answer(ran, lambda text: one_document(text, "the probe's")))


def absent(facts: Mapping[str, Any], program: str) -> Optional[Missing]:
    """Why what needs this program cannot be measured here; None where it is there, or where that is not known."""
    read: Optional[ProgramsFacts] = facts.get("programs")
    if read is None or not isinstance(read.found, Known) or read.found.value.get(program, "") is not None:
        return None
    detail = msg("{tool} is not installed", tool=program)
    return Missing("no-tool", detail, read.found.evidence, msg("install {tool}", tool=PROGRAMS[program]))
