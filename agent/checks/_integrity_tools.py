"""Whether the tools that speak for the GPUs are true, and the driver fit for what is promised. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agent.checks import _gpu_driver
from agent.checks._api import Case
from agent.checks._gpu_cards import Card, script
from agent.checks._judge import version_key
from agent.checks._looked import Bad, Looked, cited
from agent.facts.gpus import GpusFacts
from agent.reading import Known, Missing
from agent.text import msg

# torch of the package index, by first release: the CUDA that it brings (its wheels' metadata).
TORCH_CUDA = {(2, 4): "12.1", (2, 5): "12.4", (2, 7): "12.6", (2, 8): "12.8", (2, 11): "13.0"}


def nvidia_smi(case: Case, cards: Sequence[Card], facts: GpusFacts) -> Looked:
    """NVML and nvidia-smi are one library: what they tell differently, one of them made up."""
    forged = [c for c in cards if c.forged]
    if forged:
        return Looked(tuple(_forged(c) for c in forged))
    if script(facts):
        path = facts.nvidia_smi.value[0].path if isinstance(facts.nvidia_smi, Known) else "nvidia-smi"
        reason = msg("{path} is a script, not NVIDIA's program; what it prints agrees with NVML", path=path)
        if isinstance(facts.smi, Missing):
            reason = msg("{path} is a script, not NVIDIA's program: {why}", path=path, why=facts.smi.detail)
        return Looked((Bad(None, "script", reason, facts.smi_is_script.evidence),))
    if isinstance(facts.smi, Missing):
        if any(c.gpu.nvml.there for c in cards) and facts.smi.kind in ("timeout", "failed", "unparsable"):
            reason = msg("NVML answers and nvidia-smi does not: {why}", why=facts.smi.detail)
            return Looked((Bad(None, facts.smi.kind, reason, facts.smi.evidence),))
        return Looked(unknown=facts.smi)
    return Looked(fine=msg("nvidia-smi says what NVML says"), evidence=facts.smi.evidence)


def _forged(card: Card) -> Bad:
    believed = card.library[0].name if card.library else ""
    evidence = tuple(dict.fromkeys(e for d in card.forged for e in d.evidence))
    told = tuple(d.said for d in card.forged)
    if believed == "nvml":
        reason = msg(
            "nvidia-smi does not say what this card is: {told}; the rest of the machine agrees with NVML", told=told
        )
    elif believed == "smi":
        reason = msg("NVML does not say what this card is: {told}; the rest of the machine contradicts it", told=told)
    else:
        reason = msg("NVML and nvidia-smi, which are one library, contradict each other: {told}", told=told)
    return Bad(card.slot, "falsified", reason, evidence, "breach")


def driver_library(case: Case, cards: Sequence[Card], facts: GpusFacts) -> Looked:
    """The library that answered is the one of the loaded kernel driver."""
    for name in ("nvml", "smi"):
        driver = facts.driver.get(name)
        if isinstance(driver, Missing) and "VERSION_MISMATCH" in str(driver.detail).upper().replace(" ", "_"):
            reason = msg("the installed library is not of the loaded driver: {why}", why=driver.detail)
            return Looked((Bad(None, "mismatch", reason, (*driver.evidence, *cited(facts.driver.get("proc")))),))
    matches = facts.library_matches
    if isinstance(matches, Missing):
        return Looked(unknown=matches)
    path = facts.library.value if isinstance(facts.library, Known) else ""
    if not matches.value:
        reason = msg("{path} answers, which is not of the loaded kernel driver's version", path=path)
        return Looked((Bad(None, "mismatch", reason, matches.evidence, measured=path),))
    return Looked(fine=msg("{path} is of the loaded kernel driver's version", path=path), evidence=matches.evidence)


def driver_age(case: Case, cards: Sequence[Card], facts: GpusFacts) -> Looked:
    """Whether the driver runs the CUDA that the contract's software brings."""
    version = _gpu_driver.driver_version(facts)
    wanted = list(_promised_cuda(case))
    if isinstance(version, Missing) or not wanted:
        return Looked()
    bad = []
    for what, cuda in wanted:
        need = _gpu_driver.needed(cuda)
        if need is not None and version_key(version.value) < version_key(need[0]):
            reason = msg(
                "{what} needs CUDA {cuda} and so a driver of {need} or later; this is {version}",
                what=what,
                cuda=cuda,
                need=need[0],
                version=version.value,
            )
            bad.append(Bad(None, "driver-too-old", reason, version.evidence, measured=version.value))
    return Looked(
        tuple(bad), msg("driver {version} runs what is promised", version=version.value), None, version.evidence
    )


def _promised_cuda(case: Case) -> Iterator[tuple[str, str]]:
    for clause in case.contract.clauses:
        values = clause.promise.value if isinstance(clause.promise.value, tuple) else (clause.promise.value,)
        if clause.key == "software.cuda_toolkit":
            yield f"cuda_toolkit {clause.promise.written}", str(values[0])
        if clause.key == "software.torch":
            release = version_key(str(values[0]))[:2]
            brought = [cuda for first, cuda in TORCH_CUDA.items() if first <= release]
            if brought:
                yield f"torch {clause.promise.written}", brought[-1]
