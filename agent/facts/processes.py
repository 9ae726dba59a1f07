"""Who runs what in this environment, to tell one's own work on a GPU from somebody else's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agent.facts import Asked
from agent.facts._read import answer, whole
from agent.host import Host
from agent.reading import Reading
from agent.tools import ParseError

TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Running:
    """``uid`` of the owner; ``command`` as the kernel keeps it, cut to 15 characters."""

    uid: int
    command: str


@dataclass(frozen=True)
class ProcessesFacts:
    """``running`` by pid: what this environment sees (a container sees its own). ``me``: the uid of this run."""

    running: Reading[Mapping[int, Running]]
    me: Reading[int]


def collect(host: Host, asked: Asked) -> ProcessesFacts:
    """``ps`` and ``id``, before any load of ours."""
    listed = host.run("processes", ["ps", "-e", "-o", "pid=,uid=,comm="], TIMEOUT_S)
    mine = host.run("processes-uid", ["id", "-u"], TIMEOUT_S)
    return ProcessesFacts(running=answer(listed, running), me=answer(mine, whole))


def running(text: str) -> Mapping[int, Running]:
    """Lines of pid, uid and command; the command may hold spaces."""
    found: dict[int, Running] = {}
    for line in text.splitlines():
        fields = line.split(None, 2)
        if not fields:
            continue
        if len(fields) < 2 or not (fields[0].isdigit() and fields[1].isdigit()):
            raise ParseError("unparsable", "not a list of pid, uid and command", line[:80])
        found[int(fields[0])] = Running(int(fields[1]), fields[2].strip() if len(fields) > 2 else "")
    if not found:
        raise ParseError("unparsable", "an empty list of processes", "")
    return found
