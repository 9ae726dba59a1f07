"""The ``cpu`` clauses: processors: ``cores`` are physical, ``vcpus`` what scheduler and cgroup give."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from agent.bench.steal import steal
from agent.bench.step import Step
from agent.checks._api import Case
from agent.checks._gpu_cards import all_cards, nobody
from agent.checks._judge import fact, rate, unreadable, unsupported
from agent.facts.cpu import CpuFacts
from agent.grammar import Section, count, model_name, percent
from agent.model import Clause, Finding, Promise
from agent.reading import Known, Missing, Reading
from agent.text import Text, msg

GRAMMAR = Section(
    clauses={
        "model": model_name(),
        "sockets": count(),
        "cores": count("at_least"),
        "vcpus": count("at_least"),
        "per_gpu": count("at_least"),
        "steal": percent(),
    },
)

FACTS = ("cpu", "gpus")

# Words in a processor's name that say nothing about which one it is.
_FILLER = {"cpu", "processor", "intel", "amd", "core", "with", "r", "tm", "genuine", "authenticamd", "genuineintel"}


def steps(clauses: Sequence[Clause], case: Case) -> Iterator[Step]:
    """Steal shows only under load."""
    cpu: CpuFacts = case.facts["cpu"]
    processes = math.ceil(cpu.vcpus.value) if isinstance(cpu.vcpus, Known) else 1
    for clause in clauses:
        if clause.name == "steal":
            yield steal(clause.key, max(1, processes))


def judge(clauses: Sequence[Clause], case: Case) -> Iterator[Finding]:
    """Facts of the processors, and steal as measured."""
    for clause in clauses:
        yield _judge(clause, case.facts["cpu"], case)


def _judge(clause: Clause, cpu: CpuFacts, case: Case) -> Finding:
    if clause.name == "model":
        return fact(clause, _model(clause, cpu), compare=keeps_model)
    if clause.name == "sockets":
        return fact(clause, cpu.sockets, notes=_in_guest(cpu))
    if clause.name == "cores":
        return fact(clause, _cores(cpu), notes=_in_guest(cpu))
    if clause.name == "vcpus":
        return fact(clause, cpu.vcpus, notes=_limits(cpu))
    if clause.name == "steal":
        return rate(clause, case)
    if clause.name == "per_gpu":
        return _per_gpu(clause, cpu, case)
    return unsupported(clause)


def _per_gpu(clause: Clause, cpu: CpuFacts, case: Case) -> Finding:
    """What scheduler and cgroup give, for each GPU that answers."""
    number = sum(c.answers for c in all_cards(case))
    if not number:
        return unreadable(clause, nobody(case))
    notes = (*_limits(cpu), msg("for {n} GPUs", n=number))
    evidence = case.facts["gpus"].sources["nvml"].evidence
    vcpus = cpu.vcpus
    if isinstance(vcpus, Known):
        vcpus = Known(vcpus.value / number, (*vcpus.evidence, *evidence))
    return fact(clause, vcpus, notes=notes)


def words(model: str) -> tuple[str, ...]:
    """What identifies a processor in its name, in order: ``Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz`` → xeon,
    e5, 2680, v4."""
    plain = re.sub(r"\((?:r|tm|c)\)|@.*|\b\d+-core\b", " ", model.lower())
    return tuple(w for w in re.findall(r"[a-z0-9+]+", plain) if w not in _FILLER)


def keeps_model(promise: Promise, model: Any) -> bool:
    """Whether all promised words stand in the name, in order and whole: 8468 is not 8468V."""
    found = iter(words(str(model)))
    return all(any(w == other for other in found) for w in words(str(promise.value)))


def _model(clause: Clause, cpu: CpuFacts) -> Reading[str]:
    """A hypervisor may show a family's name in place of the model: that neither keeps nor breaks a promise."""
    model = cpu.model
    if isinstance(model, Missing):
        return model
    have, wanted = words(model.value), words(str(clause.promise.value))
    guest = not isinstance(cpu.hypervisor, Known) or cpu.hypervisor.value
    if guest and not any(re.search(r"\d{3}", w) for w in have) and have != wanted:
        detail = msg("the hypervisor shows “{model}” in place of the real name", model=model.value)
        grant = msg("let the vendor pass the host's CPU model through, or show it from the host")
        return Missing("unsupported", detail, (*model.evidence, *cpu.hypervisor.evidence), grant)
    return model


def _cores(cpu: CpuFacts) -> Reading[int]:
    """Physical cores. A guest that sees one thread a core may have been given threads as cores."""
    guest = isinstance(cpu.hypervisor, Known) and cpu.hypervisor.value
    ratio = cpu.threads_per_core
    if guest and isinstance(cpu.cores, Known) and isinstance(ratio, Known) and ratio.value < 1.5:
        detail = msg(
            "the hypervisor shows {n} cores of one thread each: threads sold as cores look the same", n=cpu.cores.value
        )
        grant = msg("promise cpu.vcpus in a virtual machine, or let the vendor show the CPU pinning of the host")
        return Missing("unsupported", detail, cpu.cores.evidence, grant)
    return cpu.cores


def _in_guest(cpu: CpuFacts) -> tuple[Text, ...]:
    guest = isinstance(cpu.hypervisor, Known) and cpu.hypervisor.value
    return (msg("as the hypervisor shows it"),) if guest else ()


def _limits(cpu: CpuFacts) -> tuple[Text, ...]:
    notes = []
    if isinstance(cpu.affinity, Known):
        notes.append(msg("the scheduler gives {n} CPUs", n=cpu.affinity.value))
    if isinstance(cpu.quota, Known) and cpu.quota.value is not None:
        notes.append(msg("the control group gives the time of {n} CPUs", n=f"{cpu.quota.value:g}"))
    return tuple(notes)
