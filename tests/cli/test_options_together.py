"""Options beside each other, and commands on what other commands left: nothing is lost, nothing passes by itself."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from agent.runner import default_folder
from tests.runs import accept, contract, findings, result, start

TWO = "version: 1\ncontract: {id: T-1}\ncpu: {vcpus: '>= 1'}\nmemory: {size: '>= 100 MB'}\n"
MORE = TWO + "software: {python: '>= 3.0'}\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two contracts and a finished run of the first."""
    place = tmp_path_factory.mktemp("together")
    contract(place, TWO, "two.yaml")
    contract(place, MORE, "more.yaml")
    done = accept("run", "two.yaml", "--profile", "facts", "--out", "runs/whole", cwd=place)
    assert done.code == 0, done.said
    return place


def untouched(run: Path, place: Path) -> bool:
    """Whether the run is still what its manifest says."""
    done = accept("verify", str(run), cwd=place, env={"XDG_CONFIG_HOME": str(place / "none")})
    return done.code == 3 and "not intact" not in done.out.splitlines()


@pytest.mark.parametrize(
    "args",
    [
        ("--out", "runs/other"),
        ("--profile", "facts"),
        ("--budget", "5m"),
        ("--only", "cpu"),
        ("--skip", "memory"),
        ("--stop-on-breach",),
        ("--recheck", "runs/whole"),
        ("--python", "/usr/bin/python3"),
    ],
)
def test_a_run_goes_on_as_it_was_begun(place: Path, tmp_path: Path, args: tuple[str, ...]) -> None:
    """Asked for less on the way, it would either be ignored or leave out what the report says was looked at."""
    broken = tmp_path / "runs" / "broken"
    shutil.copytree(place / "runs" / "whole", broken)
    (broken / "result.json").unlink()
    done = accept("run", "--resume", str(broken), *args, cwd=place)
    assert done.code == 2
    assert args[0] in done.err
    assert "Traceback" not in done.err
    assert not (broken / "result.json").exists()


def test_a_resumed_run_keeps_what_it_was_told_to_leave_out(place: Path, tmp_path: Path) -> None:
    done = accept("run", str(place / "two.yaml"), "--only", "cpu", "--out", "runs/part", cwd=tmp_path)
    assert done.code == 3
    part = tmp_path / "runs" / "part"
    (part / "result.json").unlink()
    done = accept("run", "--resume", str(part), cwd=tmp_path)
    assert done.code == 3, done.said
    assert result(part)["scope"]["full"] is False
    assert findings(part)["memory.size"]["reason_code"] == "left-out"


def test_recheck_looks_at_what_the_earlier_run_did_not_know(place: Path, tmp_path: Path) -> None:
    """Kept is what was found kept there; a clause that is new was not."""
    done = accept(
        "run", str(place / "more.yaml"), "--recheck", str(place / "runs" / "whole"), "--profile", "facts",
        "--out", "again", cwd=tmp_path,
    )  # fmt: skip
    assert done.code == 3, done.said
    found = findings(tmp_path / "again")
    assert found["software.python"]["outcome"] == "pass"
    assert found["memory.size"]["reason_code"] == "left-out"


@pytest.mark.parametrize("out", ["runs/whole/again", "runs/whole/evidence/again", "runs/../runs/whole/x"])
def test_no_run_begins_inside_another(place: Path, out: str) -> None:
    done = accept("run", "two.yaml", "--profile", "facts", "--out", out, cwd=place)
    assert done.code == 2
    assert "lies in the run folder" in done.err
    assert untouched(place / "runs" / "whole", place)


@pytest.mark.parametrize(
    "args",
    [
        ("judge", "two.yaml", "runs/whole", "--out", "runs/whole"),
        ("judge", "two.yaml", "runs/whole", "--out", "runs/whole/again"),
        ("report", "runs/whole", "--format", "html", "--lang", "zh", "-o", "runs/whole/report.html"),
        ("report", "runs/whole", "--format", "csv", "-o", "runs/whole/evidence/table.csv"),
        ("report", "runs/whole", "--format", "pdf", "-o", "runs/whole/report.pdf"),
        ("compare", "runs/whole", "runs/whole", "--format", "md", "-o", "runs/whole/same.md"),
        ("seal", "runs/whole", "-o", "runs/whole/bundle.tar.gz"),
    ],
    ids=" ".join,
)
def test_no_command_writes_into_a_run(place: Path, args: tuple[str, ...]) -> None:
    """A file that is added there, even by ourselves, and the run is no longer intact."""
    done = accept(*args, cwd=place)
    assert done.code == 2, done.said
    assert "Traceback" not in done.err
    assert "runs/whole" in done.err
    assert untouched(place / "runs" / "whole", place)


def test_a_bundle_is_not_left_in_the_run_where_one_stands(place: Path) -> None:
    done = accept("seal", ".", "--redact", cwd=place / "runs" / "whole")
    assert done.code == 2
    assert untouched(place / "runs" / "whole", place)


def test_a_judgement_again_says_so_in_its_own_language(place: Path, tmp_path: Path) -> None:
    done = accept(
        "judge", "more.yaml", "runs/whole", "--lang", "zh", "--out", str(tmp_path / "again"), cwd=place
    )  # fmt: skip
    assert done.code == 0, done.said
    again, first = result(tmp_path / "again"), result(place / "runs" / "whole")
    assert again["language"] == "zh"
    assert again["attempt"] is None
    assert any(first["run_id"] in n for n in again["notes"])
    assert {f["id"]: f["outcome"] for f in again["findings"]}["software.python"] == "pass"
    assert first["run_id"] in (tmp_path / "again" / "report.html").read_text()
    assert json.loads((place / "runs" / "whole" / "result.json").read_text()) == first


def test_where_nothing_can_be_numbered_no_run_begins(place: Path, tmp_path: Path) -> None:
    """The ledger lies beside the run: a place where it cannot be written gives no run 1 of 1."""
    (tmp_path / "runs" / "ledger.jsonl").mkdir(parents=True)
    done = accept("run", str(place / "two.yaml"), "--profile", "facts", "--out", "runs/one", cwd=tmp_path)
    assert done.code == 2
    assert "ledger.jsonl" in done.err
    assert "Traceback" not in done.said


def test_a_run_that_was_killed_before_it_was_numbered_is_numbered_when_it_goes_on(place: Path, tmp_path: Path) -> None:
    done = accept("run", str(place / "two.yaml"), "--profile", "facts", "--out", "runs/one", cwd=tmp_path)
    assert done.code == 0, done.said
    run, book = tmp_path / "runs" / "one", tmp_path / "runs" / "ledger.jsonl"
    book.unlink()
    (run / "result.json").unlink()
    done = accept("run", "--resume", str(run), cwd=tmp_path)
    assert done.code == 0, done.said
    assert (result(run)["attempt"]["number"], result(run)["attempt"]["of"]) == (1, 1)
    starts = [json.loads(line) for line in book.read_text().splitlines()]
    assert [e["event"] for e in starts] == ["start", "end"]


@pytest.mark.parametrize("name", ["txt", "md", "html", "junit"])
def test_a_verdict_over_a_part_says_so_in_every_format(place: Path, tmp_path: Path, name: str) -> None:
    text = "version: 1\ncpu: {vcpus: '>= 1'}\nmemory: {size: {is: '>= 100 MB', severity: advisory}}\n"
    contract(tmp_path, text)
    run = accept("run", "contract.yaml", "--skip", "memory", "--out", "part", cwd=tmp_path)
    assert (run.code, result(tmp_path / "part")["verdict"]) == (3, "accepted")
    assert "Parts of the contract were left out of this run." in run.out
    shown = accept("report", "part", "--format", name, cwd=tmp_path).out.replace("\\", "")
    sign = 'name="scope" value="partial"' if name == "junit" else "Parts of the contract were left out of this run."
    assert sign in shown


def test_two_runs_that_begin_at_once_have_two_folders_and_two_numbers(place: Path, tmp_path: Path) -> None:
    args = ("run", str(place / "two.yaml"), "--profile", "facts")
    both = [start(*args, cwd=tmp_path) for _ in range(3)]
    assert [p.wait(240) for p in both] == [0, 0, 0]
    folders = [p for p in (tmp_path / "accept-runs").iterdir() if p.is_dir()]
    assert len(folders) == 3
    assert sorted(result(p)["attempt"]["number"] for p in folders) == [1, 2, 3]
    assert all(untouched(p, tmp_path) for p in folders)


def test_a_name_that_is_taken_is_not_taken_again(tmp_path: Path) -> None:
    names = {default_folder(tmp_path, "node").name for _ in range(5)}
    assert len(names) == 5
    (tmp_path / "file").touch()
    assert default_folder(tmp_path / "file", "node").parent == tmp_path / "file"
