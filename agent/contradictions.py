"""What a readable contract says that cannot all be true, found before it is signed. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Optional

from agent.contract_gpus import beyond_the_model
from agent.model import Clause, Contract
from agent.quantity import convert, format_quantity
from agent.source import Problem
from agent.text import Text, msg


def contradictions(contract: Contract, name: str = "contract") -> tuple[Problem, ...]:
    """Pairs of clauses that exclude each other, at the place of the second; ``name`` is the file's name."""
    clauses = {clause.key: clause for clause in contract.clauses}
    found = [
        *_number_of_gpus(clauses),
        *_sliced_and_whole(clauses),
        *_sockets(clauses),
        *_links(clauses),
        *_faster_than_the_port(clauses),
        *_more_than_promised(clauses),
        *_nodes(clauses),
        *beyond_the_model(clauses),
        *_trial(contract, clauses),
    ]
    problems = (Problem(name, clause.line, clause.column, message) for clause, message in found)
    return tuple(sorted(problems, key=lambda p: (p.line, p.column)))


Found = Iterator[tuple[Clause, Text]]
_COLLECTIVES = ("collectives.all_gather", "collectives.reduce_scatter", "collectives.all_to_all")
Clauses = Mapping[str, Clause]


def _number(clause: Optional[Clause]) -> Optional[float]:
    value = clause.promise.value if clause is not None else None
    return value if isinstance(value, float) else None


def _is(clause: Optional[Clause], value: Any) -> bool:
    return clause is not None and clause.promise.value == value


def _number_of_gpus(clauses: Clauses) -> Found:
    count = clauses.get("gpu.count")
    gpus = _number(count)
    if count is None or gpus is None or count.promise.op != "==":
        return
    for key in ("allreduce.busbw", *_COLLECTIVES):
        over = clauses[key].settings.get("gpus") if key in clauses else None
        if isinstance(over, int) and over > gpus:
            said = msg("an all-reduce over {n} GPUs, but gpu.count is {m}", n=over, m=int(gpus))
            if key in _COLLECTIVES:
                said = msg("a collective over {n} GPUs, but gpu.count is {m}", n=over, m=int(gpus))
            yield clauses[key], said
    if gpus < 2:
        for key in ("allreduce.busbw", *_COLLECTIVES, "p2p_bandwidth", "topology.gpu_gpu"):
            if key in clauses:
                yield clauses[key], msg("{key} needs two GPUs, but gpu.count is {m}", key=key, m=int(gpus))


def _sliced_and_whole(clauses: Clauses) -> Found:
    mig = clauses.get("gpu.mig")
    if mig is None or mig.promise.value is not True:
        return
    if _is(clauses.get("gpu.whole_card"), True):
        yield mig, msg("MIG slices a card, so gpu.mig: on and gpu.whole_card: true exclude each other")
    if _is(clauses.get("gpu.p2p"), True):
        yield mig, msg("MIG instances have no peer access, so gpu.mig: on and gpu.p2p: true exclude each other")


def _sockets(clauses: Clauses) -> Found:
    sockets, cores = _number(clauses.get("cpu.sockets")), _number(clauses.get("cpu.cores"))
    if sockets is not None and cores is not None and sockets > cores:
        yield clauses["cpu.cores"], msg("{n} sockets cannot have {m} cores", n=int(sockets), m=int(cores))


def _links(clauses: Clauses) -> Found:
    if not _is(clauses.get("gpu.nvlink"), "none"):
        return
    if _is(clauses.get("topology.gpu_gpu"), "NVLink"):
        yield clauses["topology.gpu_gpu"], msg("NVLink between the GPUs, but gpu.nvlink is none")


def _faster_than_the_port(clauses: Clauses) -> Found:
    for clause in clauses.values():
        if clause.family != "network" or clause.name not in ("download", "upload"):
            continue
        port = clauses.get(clause.key.rpartition(".")[0] + ".speed")
        wanted, line = _number(clause), _number(port)
        if port is None or wanted is None or line is None:
            continue
        if wanted > convert(line, port.promise.unit, clause.promise.unit):
            message = msg("{key} promises more than the port's {speed}", key=clause.key, speed=port.promise.written)
            yield clause, message


def _more_than_promised(clauses: Clauses) -> Found:
    """UDP is not slowed down by what is lost: sent above the promised rate it must lose packets."""
    for clause in clauses.values():
        asked = clause.settings.get("udp_rate") if clause.family == "network" else None
        if clause.name not in ("udp_loss", "udp_jitter") or asked is None:
            continue
        for name in ("download", "upload", "speed"):
            line = clauses.get(clause.key.rpartition(".")[0] + f".{name}")
            promised = _number(line)
            if line is None or promised is None or asked <= convert(promised, line.promise.unit, "B/s"):
                continue
            yield (
                clause,
                msg(
                    "{key} is asked for at a udp_rate of {rate}, above the promised {line}",
                    key=clause.key,
                    rate=format_quantity(8 * asked, "bit/s"),
                    line=f"{name} {line.promise.written}",
                ),
            )
            break


def _nodes(clauses: Clauses) -> Found:
    nodes = _number(clauses.get("fleet.nodes"))
    clause = clauses.get("fleet.allreduce.busbw")
    if nodes is None or clause is None:
        return
    for wanted in clause.settings.get("allreduce.nodes", ()):
        if isinstance(wanted, int) and wanted > nodes:
            yield clause, msg("an all-reduce over {n} nodes, but fleet.nodes is {m}", n=wanted, m=int(nodes))


def _trial(contract: Contract, clauses: Clauses) -> Found:
    days, every = contract.trial.get("days"), contract.trial.get("every")
    clause = clauses.get("trial.availability")
    if clause is not None and days is not None and every is not None and every > days:
        yield clause, msg("the trial is shorter than the time between its runs")
