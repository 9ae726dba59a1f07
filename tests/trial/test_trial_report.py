"""``accept trial report``: from folders to documents; hostile strings, many runs, what cannot be read."""

from __future__ import annotations

import json
import time
import tracemalloc
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Optional

import pytest

from agent.checks import grammars
from agent.contract import load as load_contract
from agent.evidence import write_atomic
from agent.model import Attempt, Block, Finding, Limit, Measurement, Run, Scope, Session
from agent.result import dumps, to_json
from agent.text import msg
from agent.trial import document, presence, schedule
from agent.trial.judge import judge
from agent.trial.runs import _without_samples, load_runs, run_of
from tests.fakenode import healthy
from tests.fakenode.node import build
from tests.fakenode.wrong import occupied
from tests.runs import accept
from tests.trial.simulated import TEXT

HOSTILE = "<script>alert(1)</script>|`\u202e"
KEY = "network[public].download"


def made(number: int, sha256: str, **changed: Any) -> Run:
    at = f"2026-11-{1 + number // 24 % 28:02d}T{number % 24:02d}:00:00Z"
    blocks = tuple(Block(500.0 + k + number % 7, samples=(500.0,) * 60, conditions={"network": "a"}) for k in range(6))
    taken = Measurement(KEY, "Mbit/s", "median of repetitions", (Attempt(blocks, "standard", at),))
    limit = Limit(">=", 475.0, "Mbit/s", 0.05)
    found = (
        Finding("gpu.count", "gpu.count", "pass", "breach", "2", "kept", msg("kept"), measured=2),
        Finding(KEY, KEY, "pass", "breach", ">= 500", "kept", msg("kept"), limit=limit, measurements=(KEY,)),
    )
    base = Run(
        run_id=f"r{number}",
        agent_version="0",
        complete=True,
        started_at=at,
        finished_at=at,
        contract_id=None,
        contract_sha256=sha256,
        contract_header={},
        attempt=None,
        sessions=(Session("boot-1", ("accept",), 0, None),),
        stack={},
        node={"hostname": HOSTILE, "identity": "aaaa", "gpus": [{"slot": "0000:1b:00.0", "uuid": "GPU-1"}]},
        scope=Scope(),
        verdict="accepted",
        headline=msg("2 kept"),
        findings=found,
        measurements=(taken,),
        steps=(),
        profile="standard",
    )
    return replace(base, **changed)


def folder_of(tmp_path: Path, count: int, **changed: Any) -> Path:
    (tmp_path / "contract.yaml").write_text(TEXT, encoding="utf-8")
    sha256 = load_contract(tmp_path / "contract.yaml", grammars()).sha256
    for number in range(count):
        run = tmp_path / f"{number:04d}"
        run.mkdir()
        write_atomic(run / "result.json", dumps(to_json(made(number, sha256, **changed))).encode())
    return tmp_path


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, Any]]) -> None:
        self.seen.append(tag)


def test_three_documents_are_written_and_the_status_is_the_verdict(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, 20)
    done = accept("trial", "report", str(folder), cwd=tmp_path)
    assert done.code in (0, 3), done.said
    data = json.loads((folder / "trial-report.json").read_text())
    assert data["schema"] == "accept.trial-report/1"
    assert data["verdict"] == {0: "accepted", 3: "inconclusive"}[done.code]
    assert len(data["runs"]) == 20
    (series,) = data["series"]
    assert series["limit"] == 475.0
    assert sum(h["runs"] for h in series["hours"]) == 20
    assert (folder / "trial.md").read_text().startswith("# ")
    assert "<svg" in (folder / "trial.html").read_text()


def test_a_hostile_machine_cannot_write_into_the_report(tmp_path: Path) -> None:
    hostile = Finding("gpu.count", "gpu.count", "fail", "breach", HOSTILE, "x", msg("{w}", w=HOSTILE), measured=2)
    folder = folder_of(tmp_path, 3, findings=(hostile,))
    done = accept("trial", "report", str(folder), cwd=tmp_path)
    assert done.code == 1
    page = (folder / "trial.html").read_text()
    tags = Tags()
    tags.feed(page)
    assert "script" not in tags.seen
    assert "\u202e" not in page
    assert "<script" not in (folder / "trial.md").read_text()


def test_runs_of_another_contract_and_torn_ones_are_named_and_not_judged(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, 3)
    other = folder / "0009"
    other.mkdir()
    write_atomic(other / "result.json", dumps(to_json(made(9, "d" * 64))).encode())
    torn = folder / "0010"
    torn.mkdir()
    (torn / "result.json").write_text('{"half": ')
    begun = folder / "0011"
    begun.mkdir()
    (begun / "run.json").write_text("{}")
    done = accept("trial", "report", str(folder), "--format", "json", cwd=tmp_path)
    data = json.loads(done.out)
    assert [u["folder"] for u in data["unread"]] == ["0010", "0011", "0009"]
    assert len(data["runs"]) == 3


def test_an_empty_folder_is_no_trial(tmp_path: Path) -> None:
    done = accept("trial", "report", str(tmp_path), cwd=tmp_path)
    assert done.code == 2
    assert "holds no run" in done.err


def test_runs_that_all_broke_off_are_one_clear_line_and_no_verdict(tmp_path: Path) -> None:
    for name, text in (("0001", None), ("0002", '{"half": ')):
        run = tmp_path / name
        run.mkdir()
        (run / "run.json").write_text("{}")
        if text is not None:
            (run / "result.json").write_text(text)
    done = accept("trial", "report", str(tmp_path), cwd=tmp_path)
    assert done.code == 4
    assert done.err.count("\n") == 1
    assert "none of the 2 runs" in done.err
    assert "0001: no result.json" in done.err
    assert not (tmp_path / "trial.html").exists()


def planned(tmp_path: Path) -> Path:
    (tmp_path / "c.yaml").write_text("version: 1\ncpu: {vcpus: '>= 1'}\n")
    folder = tmp_path / "t"
    folder.mkdir()
    (folder / "contract.yaml").write_bytes((tmp_path / "c.yaml").read_bytes())
    sha256 = load_contract(folder / "contract.yaml", grammars()).sha256
    start = datetime.now(timezone.utc) + timedelta(days=1)
    schedule.write(folder, schedule.plan(sha256, start, 3600, 86400, "19:00-23:00", "UTC"))
    return folder


def test_a_trial_that_has_not_begun_says_when_it_will(tmp_path: Path) -> None:
    done = accept("trial", "report", str(planned(tmp_path)), cwd=tmp_path)
    assert done.code == 2
    assert "the next is due" in done.err


@pytest.mark.parametrize("action", ["run", "install"])
@pytest.mark.parametrize(
    ("times", "said"),
    [
        (("--every", "0s"), ""),
        (("--every", "-1h"), ""),
        (("--every", "soon"), "soon"),
        (("--every", "10s", "--for", "1h"), "a minute apart"),
        (("--every", "2h", "--for", "1h"), "shorter than"),
        (("--every", "60s", "--for", "30d"), "more than"),
    ],
)
def test_times_that_are_nonsense_are_one_line_and_status_2(
    action: str, times: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    (tmp_path / "c.yaml").write_text("version: 1\ncpu: {vcpus: '>= 1'}\n")
    done = accept("trial", action, "c.yaml", "--dir", "t", *times, cwd=tmp_path)
    assert done.code == 2, done.said
    assert said in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "t" / "trial.json").exists()


@pytest.mark.parametrize("action", ["run", "install"])
def test_a_planned_trial_is_not_changed_in_silence(action: str, tmp_path: Path) -> None:
    folder = planned(tmp_path)
    before = (folder / "trial.json").read_bytes()
    for times in (("--every", "2h"), ("--for", "3d")):
        done = accept("trial", action, "--dir", "t", *times, cwd=tmp_path)
        assert done.code == 2, done.said
        assert "planned already" in done.err
    (tmp_path / "other.yaml").write_text("version: 1\ncpu: {vcpus: '>= 2'}\n")
    done = accept("trial", action, "other.yaml", "--dir", "t", cwd=tmp_path)
    assert (done.code, "another contract" in done.err) == (2, True)
    assert (folder / "trial.json").read_bytes() == before


def test_five_hundred_runs_are_read_judged_and_written_in_seconds(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, 500)
    contract = load_contract(folder / "contract.yaml", grammars())
    tracemalloc.start()
    begun = time.process_time()
    runs, _unread = load_runs(folder)
    trial = judge(runs, contract)
    pages = [document.render(trial, kind, str, "en") for kind in document.FORMATS]
    spent = time.process_time() - begun
    _now, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(runs) == 500
    assert all(pages)
    assert spent < 15, "5 s, and three times that for tracing memory"
    assert most < 300e6


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_documents_exist_in_both_languages(tmp_path: Path, language: str) -> None:
    folder = folder_of(tmp_path, 4)
    done = accept("trial", "report", str(folder), "--lang", language, "--format", "html", cwd=tmp_path)
    assert f'lang="{"en" if language == "en" else "zh-Hans"}"' in done.out


def test_a_trial_of_one_minute_steps_runs_for_real_and_its_status_is_told(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("version: 1\ncpu: {vcpus: '>= 1'}\n")
    first = accept(
        "trial", "run", "c.yaml", "--dir", "t", "--every", "60s", "--for", "120s", "--due", cwd=tmp_path, timeout=120
    )
    assert first.code == 0, first.said
    assert "run 1 of 2: done" in first.out
    status = accept("trial", "status", "t", cwd=tmp_path)
    assert "run 2 of 2: planned" in status.out
    assert "nobody works on it now" in status.out
    report = accept("trial", "report", "t", cwd=tmp_path)
    assert report.code == 3
    assert "1 of 2 runs done" in report.said


@pytest.mark.parametrize(("force", "note"), [((), "in use: facts and counters only"), (("--force",), None)])
def test_a_gpu_in_use_is_left_in_peace_unless_it_is_forced(
    force: tuple[str, ...], note: Optional[str], tmp_path: Path
) -> None:
    busy = build(occupied(healthy.h100(), 2), tmp_path / "n")
    (tmp_path / "c.yaml").write_text("version: 1\ngpu: {count: 8}\nmemory_bandwidth: '>= 1 TB/s'\n")
    done = accept(
        "trial", "run", "c.yaml", "--dir", "t", "--every", "60s", "--for", "120s", "--due", *force,
        "--root", str(busy.root), cwd=tmp_path, env=busy.environment(), timeout=120,
    )  # fmt: skip
    assert done.code == 0, done.said
    assert "run 1 of 2: done" in done.out
    result = json.loads(next((tmp_path / "t").glob("0001-*/result.json")).read_text())
    assert result["profile"] == ("facts" if note else "standard")
    slot = busy.node.cards[2].slot
    assert (f"GPU {slot} in use" in done.out) == bool(note)
    assert result["node"]["counters"][slot]
    (count,) = [f for f in result["findings"] if f["id"] == "gpu.count"]
    assert count["outcome"] == "pass"


def test_leaving_samples_out_changes_nothing_else() -> None:
    """Also where a string of the result looks like them."""
    run = replace(made(3, "0" * 64), run_id='"samples": [1, 2] and \\"warmup": [3]')
    text = dumps(to_json(run)).encode()
    whole, trimmed = json.loads(text), json.loads(_without_samples(text))
    assert len(_without_samples(text)) < len(text)
    assert trimmed["run_id"] == whole["run_id"]
    assert run_of("0003", trimmed) == run_of("0003", whole)


def test_a_copy_of_a_run_does_not_break_a_promise_twice(tmp_path: Path) -> None:
    """Chance explains one breach of a measured promise, not two: the same run under another name is still one."""
    limit = Limit(">=", 475.0, "Mbit/s", 0.05)
    broken = Finding(
        KEY, KEY, "fail", "breach", ">= 500", "x", msg("{n} is short", n=1), limit=limit, measurements=(KEY,)
    )
    folder = folder_of(tmp_path, 20)
    sha256 = load_contract(folder / "contract.yaml", grammars()).sha256
    for name in ("0005", "0105", "0205", "0305"):
        (folder / name).mkdir(exist_ok=True)
        write_atomic(folder / name / "result.json", dumps(to_json(made(5, sha256, findings=(broken,)))).encode())
    done = accept("trial", "report", str(folder), "--format", "json", cwd=tmp_path)
    assert done.code == 3, done.said
    data = json.loads(done.out)
    assert [u["folder"] for u in data["unread"]] == ["0105", "0205", "0305"]
    assert {u["why"] for u in data["unread"]} == {"the same run as 0005, which counts once"}
    assert len(data["runs"]) == 20
    (found,) = [f for f in data["findings"] if f["id"] == KEY]
    assert (found["outcome"], found["reason_code"], found["runs"]) == ("inconclusive", "unstable", [6])


@pytest.mark.parametrize("text", ["{broken", "[]", '{"spans": [{"boot": 1}]}', '{"spans": 3}'])
def test_a_broken_record_of_the_boots_is_one_line(tmp_path: Path, text: str) -> None:
    folder = folder_of(tmp_path, 3)
    (folder / presence.FILE).write_text(text)
    done = accept("trial", "report", str(folder), cwd=tmp_path)
    assert done.code == 2
    assert presence.FILE in done.err
    assert "Traceback" not in done.err


def test_reasons_are_told_in_the_language_of_the_reader(tmp_path: Path) -> None:
    """Of runs that were made in English."""
    short = Finding("cpu.vcpus", "cpu.vcpus", "fail", "breach", ">= 8", "below-limit", msg("not measured"), measured=2)
    folder = folder_of(tmp_path, 3, findings=(short,))
    done = accept("trial", "report", str(folder), "--format", "md", "--lang", "zh", cwd=tmp_path)
    assert done.code == 1, done.said
    (row,) = [line for line in done.out.splitlines() if line.startswith("| cpu.vcpus")]
    assert "未达标" in row
    assert "未测" in row
    assert "measured" not in row
    assert "fail" not in row
    assert not [word for word in ("standard", "rejected", "accepted") if f"| {word} |" in done.out]
