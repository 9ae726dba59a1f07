"""What nobody asked for but every renter wants to know. Always judged; advisory, because nothing of it was promised.

A proven falsification, and hardware errors that appear under our load, are breaches without being asked. Not a family
of the contract: it has no ``GRAMMAR``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from agent.checks import _integrity_gpu, _load_errors
from agent.checks._api import Case
from agent.checks._disk_wear import health
from agent.checks._judge import integrity
from agent.facts.cpu import CpuFacts
from agent.facts.system import SystemFacts
from agent.model import Clause, Finding, Limit, Origin
from agent.quantity import format_quantity
from agent.reading import Known, Missing, Reading
from agent.text import Text, msg

FACTS = ("cpu", "system", *_integrity_gpu.FACTS)

STEAL_PERCENT = 1.0
SMALL_SHM = 64 << 20  # Docker's default, on which PyTorch's data loaders die of SIGBUS
FEW_PROCESSES = 4096  # a training process with data loaders for eight GPUs has about two thousand threads


def judge(clauses: Sequence[Clause], case: Case) -> Iterator[Finding]:
    """One finding a subject, whatever the contract asks."""
    cpu: CpuFacts = case.facts["cpu"]
    system: SystemFacts = case.facts["system"]
    yield _oversold(cpu, _promised_vcpus(case))
    yield _steal(cpu)
    yield _engineering(cpu)
    yield _shm(system)
    yield _processes(system)
    yield from _integrity_gpu.judge(case)
    yield from _load_errors.judge(case)
    if "disks" in case.facts:  # read only where the contract names a path
        yield from health(case.facts["disks"])


def _unknown(name: str, missing: Missing) -> Finding:
    fields: dict[str, Any] = {"grant": missing.grant, "evidence": missing.evidence}
    return integrity(name, "inconclusive", missing.kind, missing.detail, **fields)


def _found(name: str, bad: bool, code: str, reason: Text, **fields: Any) -> Finding:
    if bad:
        return integrity(name, "fail", code, reason, **fields)
    return integrity(name, "pass", "kept", reason, **fields)


def _promised_vcpus(case: Case) -> float:
    wanted = [c.promise.value for c in case.contract.clauses if c.key == "cpu.vcpus"]
    return float(wanted[0]) if wanted and isinstance(wanted[0], (int, float)) else 0.0


def _oversold(cpu: CpuFacts, promised: float) -> Finding:
    """A machine that shows more CPUs than its quota lets run, unless the contract promises no more than the quota."""
    name = "oversold_cpu"
    shown: Reading[int] = cpu.affinity
    if isinstance(cpu.quota, Missing):
        return _unknown(name, cpu.quota)
    if isinstance(shown, Missing):
        return _unknown(name, shown)
    evidence = tuple(dict.fromkeys((*cpu.quota.evidence, *shown.evidence, *cpu.throttling.evidence)))
    quota = cpu.quota.value
    if quota is None or quota >= shown.value:
        reason = msg("no quota below the {n} CPUs that are shown", n=shown.value)
        return integrity(name, "pass", "kept", reason, evidence=evidence, measured=float(shown.value))
    reason = msg("{n} CPUs are shown, the control group gives the time of {quota}", n=shown.value, quota=f"{quota:g}")
    agreed = 0.0 < promised <= quota
    return _found(
        name,
        not agreed,
        "oversold",
        reason,
        measured=quota,
        evidence=evidence,
        notes=(*_throttled(cpu), *_agreed(agreed)),
    )


def _agreed(agreed: bool) -> tuple[Text, ...]:
    return (msg("no more is promised"),) if agreed else ()


def _throttled(cpu: CpuFacts) -> tuple[Text, ...]:
    if isinstance(cpu.throttling, Missing) or cpu.throttling.value is None:
        return ()
    before, after = cpu.throttling.value.before, cpu.throttling.value.after
    grew = after.throttled - before.throttled
    return (
        msg("stopped by the quota in {n} of {periods} periods so far", n=after.throttled, periods=after.periods),
        *((msg("in {n} of them while accept only looked on", n=grew),) if grew > 0 else ()),
    )


def _steal(cpu: CpuFacts) -> Finding:
    if isinstance(cpu.steal, Missing):
        return _unknown("steal", cpu.steal)
    percent = cpu.steal.value.percent
    reason = msg("{percent} % of CPU time went to other guests while this one was idle", percent=f"{percent:.2f}")
    return _found(
        "steal",
        percent > STEAL_PERCENT,
        "above-limit",
        reason,
        measured=percent,
        unit="%",
        limit=Limit("<=", STEAL_PERCENT, "%", origin=Origin("agent")),
        evidence=cpu.steal.evidence,
    )


def _engineering(cpu: CpuFacts) -> Finding:
    if isinstance(cpu.engineering, Missing):
        return _unknown("engineering_cpu", cpu.engineering)
    signs = cpu.engineering.value
    model = cpu.model.value if isinstance(cpu.model, Known) else ""
    said = msg("the processor calls itself “{model}”, as pre-production parts do", model=model)
    plain = msg("“{model}” shows no sign of a pre-production part", model=model)
    evidence = cpu.engineering.evidence
    return _found("engineering_cpu", bool(signs), "engineering-sample", said if signs else plain, evidence=evidence)


def _shm(system: SystemFacts) -> Finding:
    if isinstance(system.shm, Missing):
        return _unknown("small_shm", system.shm)
    size = system.shm.value
    small = size <= SMALL_SHM
    plain = msg("the shared memory has {size}", size=format_quantity(float(size), "B"))
    why = msg("{plain}: data loaders of PyTorch and NCCL need more (docker run --shm-size)", plain=plain)
    limit = Limit(">", float(SMALL_SHM), "B", origin=Origin("agent"))
    return _found(
        "small_shm",
        small,
        "below-limit",
        why if small else plain,
        measured=float(size),
        unit="B",
        limit=limit,
        evidence=system.shm.evidence,
    )


def _processes(system: SystemFacts) -> Finding:
    """``pids.max`` of the control group and ``ulimit -u``, whichever is less."""
    if isinstance(system.pids, Missing):
        return _unknown("few_processes", system.pids)
    user = system.nproc.value.hard if isinstance(system.nproc, Known) else None
    limits = [n for n in (system.pids.value, user) if n is not None]
    evidence = tuple(dict.fromkeys((*system.pids.evidence, *system.nproc.evidence)))
    if not limits:
        return integrity("few_processes", "pass", "kept", msg("no limit on processes"), evidence=evidence)
    lowest = min(limits)
    reason = msg("at most {n} processes and threads", n=lowest)
    return _found("few_processes", lowest < FEW_PROCESSES, "below-limit", reason, measured=lowest, evidence=evidence)
