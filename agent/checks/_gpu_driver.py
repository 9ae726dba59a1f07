"""Judging the driver: its version, and the newest CUDA that it runs. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Optional

from agent.checks._api import Case
from agent.checks._gpu_cards import TITLES, UNCORROBORATED, all_cards, nobody, script
from agent.checks._judge import compare_versions, fact, finding, unreadable, version_key
from agent.facts.gpus import GpusFacts
from agent.model import Clause, Finding
from agent.reading import Known, Missing, Reading
from agent.text import Text, msg

# The oldest Linux driver that runs programs of a CUDA major version, by minor-version compatibility
# (docs.nvidia.com/deploy/cuda-compatibility). The 13 also has no Volta or older.
OLDEST_FOR_MAJOR = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
# The driver each CUDA release came with (NVIDIA's release notes, table 3, Linux x86_64): without it programs that
# carry only PTX of that release fail.
CAME_WITH = {
    "13.2": "595.45.04",
    "13.1": "590.44.01",
    "13.0": "580.65.06",
    "12.9": "575.51.03",
    "12.8": "570.26",
    "12.6": "560.28.03",
    "12.5": "555.42.02",
    "12.4": "550.54.14",
    "12.3": "545.23.06",
    "12.2": "535.54.03",
    "12.1": "530.30.02",
    "12.0": "525.60.13",
    "11.8": "520.61.05",
    "11.7": "515.43.04",
    "11.6": "510.39.01",
    "11.5": "495.29.05",
    "11.4": "470.42.01",
    "11.3": "465.19.01",
    "11.2": "460.27.03",
    "11.1": "455.23",
    "11.0": "450.51.05",
}


def judge_driver(clause: Clause, case: Case) -> Finding:
    """The loaded kernel module's version; the library that speaks to it must say the same.

    NVML and nvidia-smi are one library: what nvidia-smi says otherwise, or cannot say, is named and not believed where
    NVML and the kernel agree.
    """
    facts: GpusFacts = case.facts["gpus"]
    module = facts.driver.get("proc")
    voices = [] if script(facts) else ["smi"]
    library = next(
        (r for n in ("nvml", *voices) if isinstance(r := facts.driver.get(n), Known) and _is_version(r)), None
    )
    if library is None:
        return _without_library(clause, case, module)
    evidence = _evidence(facts.driver)
    if isinstance(module, Known) and version_key(module.value) != version_key(library.value):
        reason = msg(
            "the loaded kernel driver is {module}, its library says {library}",
            module=module.value,
            library=library.value,
        )
        return finding(clause, "inconclusive", UNCORROBORATED, reason, evidence=evidence, grant=RELOAD)
    agreed = isinstance(module, Known) and library is facts.driver.get("nvml")
    tool = facts.smi
    if isinstance(tool, Missing) and (tool.kind == "timeout" or (tool.kind == "unparsable" and not agreed)):
        reason = msg("nvidia-smi, which belongs to this driver, does not work: {why}", why=tool.detail)
        return finding(clause, "inconclusive", tool.kind, reason, evidence=(*evidence, *tool.evidence), grant=REPAIR)
    notes = tuple(_not_believed(facts, library))
    if not isinstance(module, Known):
        notes = (*notes, msg("by NVIDIA's library alone: /proc does not tell the version"))
    return fact(clause, Known(library.value, evidence), compare=compare_versions, notes=notes)


def _is_version(reading: Known[str]) -> bool:
    """NVIDIA's drivers are named by two or three numbers."""
    return re.fullmatch(r"\d+(\.\d+){1,3}", reading.value) is not None


def _not_believed(facts: GpusFacts, library: Known[str]) -> Iterator[Text]:
    """What the other voices say, where they say something else or nothing that can be read."""
    for name in ("nvml", "smi"):
        said = facts.driver.get(name)
        if isinstance(said, Known) and version_key(said.value) != version_key(library.value):
            yield msg("not believed: {source} says {version}", source=TITLES[name], version=said.value)
    if isinstance(facts.smi, Missing) and facts.smi.kind == "unparsable":
        yield msg("not believed: {why}", why=facts.smi.detail)


REPAIR = msg("let the vendor repair the driver's installation until nvidia-smi answers")
RELOAD = msg("let the vendor load the kernel driver that belongs to the installed library (a reboot does it)")


def _without_library(clause: Clause, case: Case, module: Optional[Reading[str]]) -> Finding:
    why = nobody(case)
    if isinstance(module, Known):
        detail = msg("kernel driver {version} is loaded; {why}", version=module.value, why=why.detail)
        why = Missing(why.kind, detail, (*module.evidence, *why.evidence), why.grant)
    return unreadable(clause, why)


def judge_cuda(clause: Clause, case: Case) -> Finding:
    """What the management library and the CUDA driver say; where they differ, both must keep the promise."""
    facts: GpusFacts = case.facts["gpus"]
    library, cuda = _first(facts.cuda_version, "nvml", "smi"), facts.cuda_version.get("cuda")
    if not any(c.answers for c in all_cards(case)) or not isinstance(library, Known):
        # libcuda tells its own version even where it does not fit the kernel's driver.
        return unreadable(clause, nobody(case))
    heard = [r for r in (cuda, library) if isinstance(r, Known)]
    outcomes = {compare_versions(clause.promise, r.value) for r in heard}
    evidence = _evidence(facts.cuda_version)
    if len(outcomes) > 1:
        reason = msg("NVML says {a}, the CUDA driver says {b}", a=heard[1].value, b=heard[0].value)
        return finding(clause, "inconclusive", UNCORROBORATED, reason, evidence=evidence, measured=heard[0].value)
    notes = tuple(_other(r) for r in heard[1:] if r.value != heard[0].value)
    return fact(clause, Known(heard[0].value, evidence), compare=compare_versions, notes=notes)


def _other(reading: Known[str]) -> Text:
    return msg("NVML says {version}", version=reading.value)


def _first(versions: Mapping[str, Reading[str]], *names: str) -> Optional[Reading[str]]:
    found = [versions[n] for n in names if n in versions]
    return next((r for r in found if isinstance(r, Known)), found[0] if found else None)


def _evidence(versions: Mapping[str, Reading[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(e for r in versions.values() for e in r.evidence))


def driver_version(facts: GpusFacts) -> Reading[str]:
    """The loaded driver's version, by the kernel, else by the library."""
    found = _first(facts.driver, "proc", "nvml", "smi")
    return found if found is not None else Missing("not-there", msg("no source tells the driver's version"))


def needed(cuda: str) -> Optional[tuple[str, str]]:
    """The oldest driver that runs this CUDA at all, and the one that it came with; None for an unknown one."""
    key = version_key(cuda)
    if not key or key[0] not in OLDEST_FOR_MAJOR:
        return None
    came = CAME_WITH.get(".".join(str(n) for n in key[:2]), OLDEST_FOR_MAJOR[key[0]])
    return OLDEST_FOR_MAJOR[key[0]], came
