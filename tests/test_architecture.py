"""Imports go one way, the agent never loads torch, one file starts processes, workers and probes stand alone."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
AGENT = ROOT / "agent"
# Each imports only from those before it, and from its own folder. A new module takes its place here; those of the
# design that are not written yet have theirs already.
ORDER = (
    "__init__ text quantity reading stats model resources gpu_names catalogue tools evidence host serve probes "
    "facts inventory doctor bench grammar checks source contract_keys contract_schema contract_gpus contradictions "
    "contract plan course verdict result compare report runner redact seal trial watch fleet size init cli __main__"
).split()
STARTERS = {"subprocess", "multiprocessing", "pty", "concurrent.futures"}
STARTING_CALLS = {"system", "popen", "posix_spawn", "posix_spawnp"}
FILES = sorted(AGENT.rglob("*.py"))
PROBES = sorted(p for p in (AGENT / "probes").glob("*.py") if p.name != "__init__.py")
WORKERS = sorted((ROOT / "benchmarks").glob("*.py"))


def imported(source: str) -> Iterator[str]:
    """Every module that a source imports, at its top or anywhere inside: ``from a import b`` gives ``a.b``."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where they go"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module") and node.args:
            argument = node.args[0]
            if isinstance(argument, ast.Constant):
                yield str(argument.value)


def place(path: Path) -> str:
    """The module or folder directly below ``agent`` that a file belongs to."""
    return path.relative_to(AGENT).parts[0].replace(".py", "")


def target(name: str) -> str:
    """The same for an imported name; a name that is no module is defined in ``agent`` itself."""
    part = name.split(".")[1]
    return part if (AGENT / part).is_dir() or (AGENT / f"{part}.py").is_file() else "__init__"


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import torch.cuda", ["torch.cuda"]),
        ("def f():\n    from agent.host import Host, Ran", ["agent.host.Host", "agent.host.Ran"]),
        ("importlib.import_module('torch')", ["torch"]),
    ],
)
def test_the_finder_of_imports_sees_all_kinds(source: str, found: list[str]) -> None:
    assert list(imported(source)) == found


@pytest.mark.parametrize("path", FILES, ids=shown)
def test_imports_go_one_way(path: Path) -> None:
    allowed = ORDER[: ORDER.index(place(path)) + 1]
    uses = {target(name) for name in imported(path.read_text(encoding="utf-8")) if name.startswith("agent.")}
    assert sorted(uses - set(allowed)) == []


@pytest.mark.parametrize("path", FILES, ids=shown)
def test_the_agent_never_imports_torch(path: Path) -> None:
    names = {name.split(".")[0] for name in imported(path.read_text(encoding="utf-8"))}
    assert not names & {"torch", "numpy"}


@pytest.mark.parametrize("path", [p for p in FILES if p != AGENT / "host.py"], ids=shown)
def test_only_the_host_starts_processes(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not {n for n in imported(text) if any(n == s or n.startswith(f"{s}.") for s in STARTERS)}
    called = {n.func for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call)}
    on_os = {f.attr for f in called if isinstance(f, ast.Attribute) and ast.unparse(f.value) == "os"}
    assert not {name for name in on_os if name in STARTING_CALLS or name.startswith(("exec", "spawn"))}


@pytest.mark.parametrize("path", [*WORKERS, *PROBES], ids=shown)
def test_workers_and_probes_stand_alone(path: Path) -> None:
    standard = getattr(sys, "stdlib_module_names", None)
    if standard is None:
        pytest.skip("needs Python 3.10 to know the names of the standard library")
    names = {name.split(".")[0] for name in imported(path.read_text(encoding="utf-8"))}
    shared = {p.stem for p in WORKERS if p.stem.startswith("_")}
    own = {"torch", *shared} if path in WORKERS else {"psutil", "pynvml"}
    assert sorted(names - set(standard) - own) == []
