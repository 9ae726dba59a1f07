"""The ``software`` clauses: what is installed and allowed; ``python_path`` is the interpreter to look into."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, Optional

from agent.checks._api import Case
from agent.checks._judge import compare_values, compare_versions, fact, unreadable, unsupported, version_key
from agent.facts.system import Docker, Os, Rlimit, SystemFacts
from agent.grammar import Section, count, flag, os_release, size, text, version
from agent.model import Clause, Finding, Promise
from agent.quantity import format_quantity
from agent.reading import Known, Missing, Reading, fmap
from agent.text import Text, msg

UNLIMITED = dict.fromkeys(("unlimited", "不限", "无限制"), "unlimited")

GRAMMAR = Section(
    clauses={
        "os": os_release(),
        "kernel": version(),
        "python": version("equal"),
        "torch": version("equal"),
        "cuda_toolkit": version("equal"),
        "nccl": version(),
        "docker": flag(),
        "nvidia_container_toolkit": flag(),
        "shm": size(),
        "memlock": size(words=UNLIMITED),
        "nofile": count("at_least", words=UNLIMITED),
    },
    settings={"python_path": text(msg("a path such as {example}", example="/opt/conda/bin/python"), r"[^\s-].*")},
)

FACTS = ("system",)
FACTS_OF = dict.fromkeys(("python", "torch", "nccl"), ("pythons",))

# How people write a distribution, by its id in os-release.
_NAMES = {
    "rhel": ("rhel", "red hat", "red hat enterprise", "redhat"),
    "almalinux": ("almalinux", "alma"),
    "alinux": ("alinux", "alibaba cloud", "aliyun"),
    "amzn": ("amzn", "amazon"),
    "sles": ("sles", "suse enterprise", "suse"),
    "ol": ("ol", "oracle"),
}
# Ubuntu's releases are year and month; everybody else's the first number.
_RELEASE_DEPTH = {"ubuntu": 2, "opensuse-leap": 2, "openeuler": 2, "fedora": 1}
_NAME_FILLER = re.compile(r"\b(?:gnu/linux|linux|server|lts|os|release|版|系统|操作系统)\b|[()]", re.IGNORECASE)


def judge(clauses: Sequence[Clause], case: Case) -> Iterator[Finding]:
    """Facts of the system and of its Python."""
    for clause in clauses:
        yield _judge(clause, case.facts["system"], case.facts.get("pythons"))


def _judge(clause: Clause, system: SystemFacts, pythons: Any) -> Finding:
    if clause.name == "os":
        return fact(clause, system.os, compare=keeps_os, shown=lambda found: found.pretty)
    if clause.name == "kernel":
        return fact(clause, system.kernel, compare=compare_versions)
    if clause.name == "python":
        return fact(clause, _python(system, pythons), compare=compare_versions, notes=_which(pythons))
    if clause.name == "torch":
        return fact(clause, _torch(pythons), compare=compare_versions, notes=_which(pythons))
    if clause.name == "cuda_toolkit":
        return fact(clause, system.cuda_toolkit, compare=compare_versions)
    if clause.name == "docker":
        return _docker(clause, system.docker)
    if clause.name == "nvidia_container_toolkit":
        return fact(clause, _toolkit(system), notes=_version_note(system.container_toolkit))
    if clause.name == "shm":
        return fact(clause, fmap(float, system.shm), unit="B")
    if clause.name == "memlock":
        return _limit(clause, system.memlock, "B")
    if clause.name == "nofile":
        return _limit(clause, system.nofile, "")
    if clause.name == "nccl":
        return fact(clause, _nccl(pythons), compare=compare_versions, notes=_which(pythons))
    return unsupported(clause)


def keeps_os(promise: Promise, found: Os) -> bool:
    """The same distribution; ``==`` in the same release, at the promised point release or a later one."""
    match = re.fullmatch(r"(.*?)[\s-]*v?(\d+(?:\.\d+)*)?\s*(?:lts)?", str(promise.value), re.IGNORECASE)
    if match is None or not _same_system(match[1], found):
        return False
    if match[2] is None:
        return True
    wanted, have = version_key(match[2]), version_key(found.version or "")
    if promise.op == ">=":
        return have >= wanted
    depth = min(_RELEASE_DEPTH.get(found.id, 1), len(wanted))
    return have[:depth] == wanted[:depth] and have >= wanted


def _same_system(written: str, found: Os) -> bool:
    name = _plain(written)
    return name in {found.id, _plain(found.name), *_NAMES.get(found.id, ())}


def _plain(name: str) -> str:
    return " ".join(_NAME_FILLER.sub(" ", name.lower()).split())


def _python(system: SystemFacts, pythons: Any) -> Reading[str]:
    """The interpreter that the workers use, else the ``python3`` on the PATH."""
    chosen = _chosen(pythons)
    return fmap(lambda found: str(found.python), chosen) if isinstance(chosen, Known) else system.python


def _torch(pythons: Any) -> Reading[str]:
    return fmap(lambda found: str(found.torch), _chosen(pythons))


def _nccl(pythons: Any) -> Reading[str]:
    """The NCCL that torch brings or was linked to: what a training job on this machine uses."""
    chosen = _chosen(pythons)
    if isinstance(chosen, Missing):
        return chosen
    found = chosen.value
    if found.nccl is not None:
        return Known(str(found.nccl), chosen.evidence)
    if found.cuda_error is not None:
        detail = msg("torch of {path} sees no GPU, so it was not asked for its NCCL", path=found.path)
        return Missing(
            "unsupported", detail, chosen.evidence, msg("a torch that sees the GPUs, or name it by --python")
        )
    detail = msg("torch of {path} has no NCCL", path=found.path)
    return Missing("not-there", detail, chosen.evidence, msg("a torch built with NCCL, or name it by --python"))


def _chosen(pythons: Any) -> Reading[Any]:
    if pythons is None:
        return Missing("left-out", msg("no interpreter was looked for"))
    found: Reading[Any] = pythons.chosen
    return found


def _which(pythons: Any) -> tuple[Text, ...]:
    chosen = _chosen(pythons)
    return (msg("interpreter {path}", path=chosen.value.path),) if isinstance(chosen, Known) else ()


def _docker(clause: Clause, docker: Reading[Docker]) -> Finding:
    """Promised is that this user can use it: a client alone, or a daemon that refuses, is not that."""
    if isinstance(docker, Missing):
        return fact(clause, _absent_is_false(docker))
    server = docker.value.server
    if isinstance(server, Known):
        return fact(clause, Known(True, server.evidence), notes=_version_note(server))
    if server.kind != "failed":
        return unreadable(clause, server)
    return fact(clause, Known(False, server.evidence), reason=server.detail)


def _toolkit(system: SystemFacts) -> Reading[bool]:
    found = system.container_toolkit
    if isinstance(found, Known):
        return Known(True, found.evidence)
    inside = isinstance(system.container, Known) and system.container.value != "none"
    if inside and found.kind == "not-there":
        detail = msg("the toolkit belongs to the host, which cannot be seen from inside a container")
        return Missing(
            "unsupported", detail, found.evidence, msg("let the vendor show nvidia-ctk --version of the host")
        )
    return _absent_is_false(found)


def _absent_is_false(missing: Missing) -> Reading[bool]:
    """What is promised and not installed is not there; anything else leaves it open."""
    return Known(False, missing.evidence) if missing.kind == "not-there" else missing


def _version_note(reading: Reading[str]) -> tuple[Text, ...]:
    return (msg("version {version}", version=reading.value),) if isinstance(reading, Known) else ()


def _limit(clause: Clause, limit: Reading[Rlimit], unit: str) -> Finding:
    """What this user is allowed: the hard limit. The soft one, which programs get, each may raise up to it."""
    return fact(
        clause,
        fmap(lambda found: math.inf if found.hard is None else float(found.hard), limit),
        unit=unit,
        compare=_within,
        shown=lambda value: _shown(None if math.isinf(value) else int(value), unit),
        notes=_soft(limit, unit),
    )


def _within(promise: Promise, value: Any) -> bool:
    return math.isinf(value) if promise.value == "unlimited" else compare_values(promise, value)


def _soft(limit: Reading[Rlimit], unit: str) -> tuple[Text, ...]:
    if isinstance(limit, Missing) or limit.value.soft == limit.value.hard:
        return ()
    return (msg("programs start with {soft} and may raise it", soft=_shown(limit.value.soft, unit)),)


def _shown(value: Optional[int], unit: str) -> str:
    if value is None:
        return "unlimited"
    return format_quantity(float(value), unit) if unit else str(value)
