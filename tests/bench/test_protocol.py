"""The workers' own rules: old syntax, nothing of the agent, and a result that is whole or absent."""

from __future__ import annotations

import ast
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from agent import resources

WORKERS = sorted(resources.path("benchmarks").glob("*.py"))


@pytest.fixture(scope="module")
def protocol() -> ModuleType:
    spec = importlib.util.spec_from_file_location("_protocol", resources.path("benchmarks", "_protocol.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", WORKERS, ids=lambda p: p.name)
def test_syntax_of_python_3_8_and_nothing_of_the_agent(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))
    imported = {a.name.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    imported |= {(n.module or "").split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    stdlib = getattr(sys, "stdlib_module_names", None)  # 3.10
    shared = {p.stem for p in WORKERS if p.stem.startswith("_")}
    foreign = imported - {"torch", "__future__", *shared} - set(stdlib or imported)
    assert "agent" not in imported
    assert not foreign


def test_a_crash_leaves_no_result(protocol: ModuleType, tmp_path: Path) -> None:
    def crash(request: object) -> dict[str, object]:
        raise KeyError("a mistake of ours")

    with pytest.raises(KeyError):
        _main(protocol, tmp_path, crash)
    assert not list(tmp_path.glob("result*"))


def test_what_cannot_be_done_is_a_result(protocol: ModuleType, tmp_path: Path) -> None:
    def unable(request: object) -> dict[str, object]:
        raise protocol.Unable("needs-torch", "torch 1.13 is too old", "2.0")

    assert _main(protocol, tmp_path, unable) == 0
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["error"] == {"kind": "needs-torch", "detail": "torch 1.13 is too old", "needs": "2.0"}
    assert [p.name for p in tmp_path.glob("result*")] == ["result.json"]


def test_not_a_number_is_never_written(protocol: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"[Oo]ut of range"):
        _main(protocol, tmp_path, lambda request: {"value": float("nan")})
    assert not (tmp_path / "result.json").exists()


def _main(protocol: ModuleType, folder: Path, measure: object) -> object:
    (folder / "request.json").write_text("{}")
    return protocol.main(
        "x", measure, ["--request", str(folder / "request.json"), "--result", str(folder / "result.json")]
    )


def test_samples_of_a_block_cover_the_asked_time(protocol: ModuleType) -> None:
    calls = []
    block = protocol.timed_block(lambda: calls.append(1), lambda: None, 0.01, 4, 0.02)
    assert len(block["seconds"]) == 4
    assert block["calls"] > 100
    assert len(calls) >= 4 * block["calls"]
    assert min(block["seconds"]) > 0


def test_rounds_go_over_all_devices_and_keep_the_pause(protocol: ModuleType) -> None:
    seen = []
    clock = protocol.Clock(60)
    stopped = protocol.interleaved([0, 1], 3, 0.1, clock, lambda index, block: seen.append((block, index)))
    assert seen == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
    assert stopped is None
    assert clock.left() < 59.8


def test_the_time_limit_ends_the_blocks(protocol: ModuleType) -> None:
    seen = []
    stopped = protocol.interleaved([0], 100, 0.2, protocol.Clock(0.5), lambda index, block: seen.append(block))
    assert stopped == "time-limit"
    assert 0 < len(seen) < 5


@pytest.mark.parametrize(
    ("text", "key"), [("2.4.1+cu121", (2, 4)), ("1.13.0a0+git", (1, 13)), ("2.0", (2, 0)), ("2.10.0.dev2", (2, 10))]
)
def test_versions_are_compared_by_numbers(protocol: ModuleType, text: str, key: tuple[int, int]) -> None:
    assert protocol.version_key(text) == key


@pytest.mark.parametrize(("value", "kind"), [(None, int), (True, float), ("8", int), (1.5, int), ({}, list)])
def test_a_request_of_the_wrong_type_is_refused(protocol: ModuleType, value: object, kind: type) -> None:
    with pytest.raises(protocol.Unable) as caught:
        protocol.asked({"field": value}, "field", kind)
    assert caught.value.kind == "bad-request"
