"""Run folders, terminals and tools that mean no good: a clear answer, never a traceback, a hang or a verdict."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.evidence import Ledger, Store, read_json
from agent.result import ResultError, from_json
from agent.tools import LONGEST_LINE, ParseError, ping
from tests.runs import ACCEPT, FACTS_ONLY, accept, contract, environment, result

Spoil = Callable[[Path], Any]
DEEP = "[" * 100_000


def to_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def to_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def to_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def to_endless(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


SPOILT: dict[str, Spoil] = {
    "deep": lambda path: path.write_text(DEEP),
    "empty": lambda path: path.write_text(""),
    "null": lambda path: path.write_text("null"),
    "folder": to_folder,
    "fifo": to_fifo,
    "loop": to_loop,
    "endless": to_endless,
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder, with its contract beside it; tests spoil copies of it."""
    folder = tmp_path_factory.mktemp("hostile")
    done = accept("run", str(contract(folder, FACTS_ONLY)), "--profile", "facts", "--out", "run", cwd=folder)
    assert done.code == 0, done.said
    return folder


def copy(ran: Path, to: Path) -> Path:
    shutil.copytree(ran, to, dirs_exist_ok=True)
    return to / "run"


@pytest.mark.parametrize("how", SPOILT)
@pytest.mark.parametrize("name", ["result.json", "run.json"])
def test_a_spoilt_file_of_a_run_is_one_line_and_exit_2(ran: Path, tmp_path: Path, name: str, how: str) -> None:
    folder = copy(ran, tmp_path)
    SPOILT[how](folder / name)
    done = accept("judge", "contract.yaml", "run", cwd=tmp_path, timeout=60)
    assert (done.code, done.err.count("\n")) == (2, 1), done.said
    assert name in done.err


@pytest.mark.parametrize("how", SPOILT)
def test_a_spoilt_recording_counts_as_none(ran: Path, tmp_path: Path, how: str) -> None:
    folder = copy(ran, tmp_path)
    probes = len(Store(folder).recorded())
    SPOILT[how](sorted(folder.glob("evidence/*/meta.json"))[0])
    assert len(Store(folder).recorded()) == probes - 1


def test_what_no_recording_shows_is_not_kept(ran: Path, tmp_path: Path) -> None:
    folder = copy(ran, tmp_path)
    for meta in folder.glob("evidence/*/meta.json"):
        meta.write_text("null")
    done = accept("judge", "contract.yaml", "run", cwd=tmp_path)
    assert done.code == 3, done.said
    assert "Traceback" not in done.said


def test_a_file_in_the_place_of_the_evidence(ran: Path, tmp_path: Path) -> None:
    folder = copy(ran, tmp_path)
    shutil.rmtree(folder / "evidence")
    (folder / "evidence").write_text("")
    done = accept("judge", "contract.yaml", "run", cwd=tmp_path)
    assert (done.code, done.err.count("\n")) == (2, 1), done.said


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("steps.0.argv.0", -1e308),
        ("steps.0.started_at", 7),
        ("findings.0.promised", True),
        ("findings.0.outcome", "kept"),
        ("findings.0.ref", 7),
        ("findings.0.interval", ["a", "b"]),
        ("node.gpus", 7),
        ("sessions.0.uid", True),
        ("verdict", "fine"),
    ],
)
def test_a_result_of_another_shape_is_refused_where_it_is_read(ran: Path, place: str, value: object) -> None:
    data = result(ran / "run")
    assert from_json(data).complete
    *parents, last = place.split(".")
    target: Any = data
    for part in parents:
        target = target[int(part) if part.isdigit() else part]
    target[int(last) if last.isdigit() else last] = value
    with pytest.raises(ResultError, match="/" + place.replace(".", "/")):
        from_json(data)


def test_the_reader_of_json_waits_for_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(ValueError, match="regular"):
        read_json(tmp_path / "fifo")


def test_a_ledger_of_rubbish_still_counts_what_is_whole(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.path.write_bytes(b"\xff\xfe\n" + DEEP.encode() + b"\n[]\nnull\n")
    ledger.add({"event": "start", "run_id": "a", "contract": "c", "machine": "m"})
    assert [e["run_id"] for e in ledger.entries()] == ["a"]


@pytest.mark.parametrize("encoding", ["ascii", "gbk"])
def test_a_terminal_that_cannot_show_a_sign_ends_nothing(ran: Path, encoding: str) -> None:
    env = environment({"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"})
    words = [*ACCEPT, "judge", "contract.yaml", "run", "--lang", "zh"]
    done = subprocess.run(words, cwd=ran, env=env, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_half_a_character_is_no_name(tmp_path: Path) -> None:
    text = 'version: 1\nping: [{host: "\\ud800", latency: "<= 5 ms"}]\ncpu: {model: "\\udfff"}\n'
    done = accept("plan", str(contract(tmp_path, text)), cwd=tmp_path)
    assert done.code == 2, done.said
    assert ":2:" in done.err
    assert ":3:" in done.err


def test_a_flood_of_output_is_quoted_shortly() -> None:
    with pytest.raises(ParseError) as error:
        ping.parse("x" * 5_000_000)
    assert len(error.value.line or "") <= LONGEST_LINE
