"""``accept run`` and ``accept judge`` from outside: verdicts, scope, exit status, replay."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Optional

import pytest

from agent import host as host_module
from agent.checks import families
from agent.contract import load
from agent.runner import judge_again
from tests import media
from tests.runs import FACTS_ONLY, accept, contract, findings, needs_fio, result


def run(folder: Path, text: str, *args: str) -> tuple[int, Path]:
    done = accept("run", str(contract(folder, text)), "--out", str(folder / "run"), *args, cwd=folder)
    assert (folder / "run" / "result.json").exists(), done.said
    return done.code, folder / "run"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Path]:
    """One run of a contract that this machine keeps, for several tests to look at."""
    return run(tmp_path_factory.mktemp("kept"), FACTS_ONLY)


def test_a_kept_contract_is_accepted(kept: tuple[int, Path]) -> None:
    code, folder = kept
    data = result(folder)
    assert (code, data["verdict"], data["complete"]) == (0, "accepted", True)
    assert data["scope"]["full"] is True
    for name in ("report.html", "report.md", "junit.xml", "manifest.json", "contract.yaml", "run.json"):
        assert (folder / name).stat().st_size > 0


def test_every_finding_cites_evidence_that_exists(kept: tuple[int, Path]) -> None:
    _, folder = kept
    cited = [path for f in result(folder)["findings"] for path in f["evidence"]]
    assert cited
    assert all((folder / path).exists() for path in cited)


def test_the_manifest_covers_the_run(kept: tuple[int, Path]) -> None:
    _, folder = kept
    listed = json.loads((folder / "manifest.json").read_text())["files"]
    there = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert there - set(listed) == {"manifest.json", "run.lock"}


def test_more_than_the_machine_has_is_rejected(tmp_path: Path) -> None:
    code, folder = run(tmp_path, "version: 1\ncpu: {vcpus: '>= 512'}\n")
    found = findings(folder)["cpu.vcpus"]
    assert (code, result(folder)["verdict"]) == (1, "rejected")
    assert found["outcome"] == "fail"
    assert found["promised"] == ">= 512"
    assert 0 < found["measured"] < 512
    assert found["limit"]["origin"]["kind"] == "contract"
    assert found["reason"]
    assert all((folder / e / "meta.json").exists() for e in found["evidence"])


def test_a_gpu_contract_without_gpus_is_inconclusive(tmp_path: Path) -> None:
    text = "version: 1\ngpu: {model: H100 SXM5 80GB, count: 8, ecc: on}\ngemm: {bf16: '>= 650 TFLOPS'}\n"
    code, folder = run(tmp_path, text)
    gpu = [f for f in result(folder)["findings"] if f["clause"].split(".")[0] in ("gpu", "gemm")]
    assert code == 3
    assert len(gpu) == 4
    assert all(f["outcome"] == "inconclusive" and f["reason"] for f in gpu)


def test_only_a_part_is_never_accepted_in_full(tmp_path: Path) -> None:
    code, folder = run(tmp_path, FACTS_ONLY, "--only", "cpu")
    data = result(folder)
    assert code == 3
    assert [e["key"] for e in data["scope"]["left_out"]] == ["memory.size"]
    assert findings(folder)["memory.size"]["outcome"] == "inconclusive"
    assert findings(folder)["cpu.vcpus"]["outcome"] == "pass"


def test_facts_profile_measures_nothing_and_says_so(tmp_path: Path) -> None:
    code, folder = run(tmp_path, "version: 1\ndisk: [{path: ., read: '>= 1 MB/s'}]\n", "--profile", "facts")
    assert code == 3
    assert findings(folder)["disk[.].read"]["reason_code"] == "left-out"
    assert not list(tmp_path.glob(".accept-test-*"))


def test_recheck_looks_only_at_what_was_not_kept(tmp_path: Path) -> None:
    _, first = run(tmp_path, "version: 1\ncpu: {vcpus: '>= 512', sockets: '>= 1'}\nmemory: {size: '>= 100 MB'}\n")
    not_kept = {f["clause"] for f in result(first)["findings"] if f["outcome"] != "pass"}
    done = accept("run", "contract.yaml", "--out", "again", "--recheck", str(first), cwd=tmp_path)
    again = result(tmp_path / "again")
    assert done.code == 1
    assert "cpu.vcpus" in not_kept
    assert "memory.size" in {e["key"] for e in again["scope"]["left_out"]}


def test_runs_are_numbered_beside_the_folder(tmp_path: Path) -> None:
    path = contract(tmp_path, FACTS_ONLY)
    for name in ("one", "two"):
        accept("run", str(path), "--out", str(tmp_path / "runs" / name), "--profile", "facts", cwd=tmp_path)
    second = result(tmp_path / "runs" / "two")["attempt"]
    assert (second["number"], second["of"]) == (2, 2)


def test_a_folder_that_holds_something_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("do not lose me")
    done = accept("run", str(contract(tmp_path, FACTS_ONLY)), "--out", "run", cwd=tmp_path)
    assert done.code == 2
    assert "not empty" in done.err
    assert [p.name for p in (tmp_path / "run").iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("args", [["--only", "cpuu"], ["--skip", "gpu"], ["--profile", "slow"], ["--budget", "45"]])
def test_wrong_options_are_one_line_and_exit_2(tmp_path: Path, args: list[str]) -> None:
    done = accept("run", str(contract(tmp_path, FACTS_ONLY)), *args, cwd=tmp_path)
    assert done.code == 2
    assert done.err.strip()
    assert "Traceback" not in done.err


class NoStarts(host_module.ReplayHost):
    """A replay on a machine where starting anything is an error."""


def same_but_for_time(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> bool:
    return json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)


def forbid(*_args: Any, **_kwargs: Any) -> Any:
    raise AssertionError("a judgement of recorded evidence started something")


@pytest.mark.parametrize("replaced", ["_execute", "_read_file", "spawn_detached"])
def test_judging_again_gives_the_same_and_starts_nothing(
    kept: tuple[int, Path], monkeypatch: pytest.MonkeyPatch, replaced: str
) -> None:
    _, folder = kept
    grammars = {n: m.GRAMMAR for n, m in families().items() if hasattr(m, "GRAMMAR")}
    monkeypatch.setattr(host_module, replaced, forbid)
    monkeypatch.setattr("subprocess.Popen", forbid)
    _, judged = judge_again(folder, load(folder / "contract.yaml", grammars), families())
    from agent.result import to_json

    assert same_but_for_time(to_json(judged)["findings"], result(folder)["findings"])
    assert judged.verdict == "accepted"


def test_judging_with_another_contract(kept: tuple[int, Path], tmp_path: Path) -> None:
    _, folder = kept
    other = contract(tmp_path, "version: 1\ncpu: {vcpus: '>= 512'}\nping: [{host: 127.0.0.1, latency: '<= 5 ms'}]\n")
    done = accept("judge", str(other), str(folder), "--out", str(tmp_path / "j"), cwd=tmp_path)
    found = findings(tmp_path / "j")
    assert done.code == 1
    assert found["cpu.vcpus"]["outcome"] == "fail"
    assert found["ping[127.0.0.1].latency"]["outcome"] == "inconclusive"
    assert found["ping[127.0.0.1].latency"]["reason_code"] == "not-recorded"


@needs_fio
@pytest.mark.fio
def test_a_short_disk_test_is_judged_again_the_same(tmp_path: Path) -> None:
    with ExitStack() as stack:
        # A disk of its own where root can make one: tests beside this one write to the disk under us.
        path = stack.enter_context(media.disk(400 << 20)).path if media.unavailable() is None else "."
        text = f"version: 1\ndisk: [{{path: {path}, read: '>= 1 MB/s', write: '>= 900 TB/s'}}]\n"
        code, folder = run(tmp_path, text, "--profile", "quick", "--yes")
    found = findings(folder)
    assert found[f"disk[{path}].read"]["reason_code"] == "shortened"
    assert found[f"disk[{path}].write"]["outcome"] == "fail"
    assert code == 1
    write = next(m for m in result(folder)["measurements"] if m["id"].startswith(f"disk[{path}].write"))
    assert len(write["attempts"]) == 2
    done = accept("judge", "contract.yaml", "run", "--out", "judged", cwd=tmp_path)
    assert done.code == 1
    assert same_but_for_time(result(tmp_path / "judged")["findings"], result(folder)["findings"])
    assert same_but_for_time(result(tmp_path / "judged")["measurements"], result(folder)["measurements"])


def test_results_obey_the_shipped_schema(kept: tuple[int, Path]) -> None:
    import jsonschema

    from agent.result import result_schema

    jsonschema.Draft202012Validator(result_schema()).validate(result(kept[1]))


def test_quoted_types_used(kept: tuple[int, Path]) -> None:
    """Measured values are numbers or words, never empty for a pass."""
    passes: Sequence[Mapping[str, Optional[Any]]] = [f for f in result(kept[1])["findings"] if f["outcome"] == "pass"]
    assert all(f["measured"] not in ("", None) for f in passes if not str(f["clause"]).startswith("integrity."))
