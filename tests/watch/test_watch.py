"""``accept watch`` from outside: log, rotation, a child that hangs, a disk that is full, the summary, the command."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.tools import ParseError
from agent.tools.watch import HOST, VALUES, Card, Head, Look, parse_head, parse_look
from agent.watch import log
from agent.watch.events import KINDS, Event, Watcher, words
from agent.watch.log import Begun, Log, Seen, Unread
from agent.watch.summary import summarise
from agent.watch.watching import Trouble, Watching
from tests.fakenode import healthy
from tests.fakenode.node import Built, build
from tests.watch.scripted import EPOCH, Script, events, watched

ACCEPT = [sys.executable, "-m", "agent"]
CARD = Card("0000:1b:00.0", "GPU-1", "NVIDIA H100 80GB HBM3", 81559.0, 87.0)
QUIET: dict[str, Any] = {**dict.fromkeys(VALUES, 0.0), "temperature_c": 40.0}


def look(**values: Any) -> Look:
    return Look(({**QUIET, **values},), dict.fromkeys(HOST, 0.0), {})


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Built:
    built = build(healthy.h100(), tmp_path / "node")
    for name, value in built.env.items():
        monkeypatch.setenv(name, value)
    return built


def accept(*arguments: object, **more: Any) -> subprocess.CompletedProcess[str]:
    done: subprocess.CompletedProcess[str] = subprocess.run(
        [*ACCEPT, *map(str, arguments)], capture_output=True, text=True, timeout=60, **more
    )
    return done


# ---------------------------------------------------------------- the command


def test_the_command_watches_eight_gpus_and_sums_them_up(node: Built, tmp_path: Path) -> None:
    folder, prom = tmp_path / "log", tmp_path / "gpu.prom"
    done = accept("watch", "--every", "1s", "--for", "3s", "--dir", folder, "--prom", prom, "--lang", "en")
    assert done.returncode == 0, done.stderr
    for card in node.node.cards:
        assert card.slot in done.stdout
        assert f'accept_watch_temperature_celsius{{gpu="{card.slot}",uuid="{card.uuid}"' in prom.read_text()
    assert len([i for i in log.read(folder) if isinstance(i, Seen)]) == 3
    summed = accept("watch", "--summary", "--dir", folder, "--lang", "zh")
    assert summed.returncode == 0
    assert "采样 3 次" in summed.stdout
    data = json.loads(accept("watch", "--summary", "--dir", folder, "--format", "json").stdout)
    assert data["looks"] == 3
    assert [g["slot"] for g in data["gpus"]] == sorted(c.slot for c in node.node.cards)
    assert data["gpus"][0]["temperature_c"][1] == node.node.cards[0].temperature_c
    assert data["gaps"] == []


def test_every_line_of_the_prometheus_file_is_one(node: Built, tmp_path: Path) -> None:
    prom = tmp_path / "gpu.prom"
    assert accept("watch", "--every", "1s", "--for", "1s", "--no-log", "--prom", prom).returncode == 0
    lines = prom.read_text().splitlines()
    assert all(re.fullmatch(r'# (HELP|TYPE) \w+ .+|\w+(\{(\w+="[^"\n]*",?)*\})? -?[\d.e+-]+', line) for line in lines)
    named = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    assert {re.split(r"[{ ]", line)[0] for line in lines if not line.startswith("#")} == named
    assert not (tmp_path / "accept-watch").exists()


def test_without_gpus_the_host_is_watched_and_the_reason_said(tmp_path: Path) -> None:
    done = accept("watch", "--every", "1s", "--for", "1s", "--dir", tmp_path / "log", "--lang", "en")
    assert done.returncode == 0
    assert "no GPU to watch" in done.stdout
    assert "CPU" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--every", "0s"], "at least 1s"),
        (["--every", "nonsense"], "no time"),
        (["--since", "2h"], "--summary"),
        (["--summary", "--since", "2026-13-45"], "no time"),
        (["--summary", "--dir", "/nonexistent"], "no log"),
        (["--dir", "/proc/nothing"], "cannot be written"),
    ],
)
def test_wrong_use_is_one_clear_line_and_status_2(arguments: list[str], said: str, tmp_path: Path) -> None:
    done = accept("watch", *arguments, "--lang", "en", cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_two_agents_do_not_write_one_log_and_a_kill_loses_nothing(node: Built, tmp_path: Path) -> None:
    folder = tmp_path / "log"
    first = subprocess.Popen(
        [*ACCEPT, "watch", "--every", "1s", "--dir", str(folder)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 20
    while len([i for i in log.read(folder) if isinstance(i, Seen)]) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    second = accept("watch", "--every", "1s", "--dir", folder, "--lang", "en")
    assert second.returncode == 2
    assert "another agent" in second.stderr
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    before = list(log.read(folder))
    assert len(before) >= 3
    with (folder / log.FILE).open("ab") as out:
        out.write(b'{"t":1796000000.0,"g":[[1')  # as a kill in the middle of a write leaves it
    assert accept("watch", "--every", "1s", "--for", "1s", "--dir", folder).returncode == 0
    after = list(log.read(folder))
    assert after[: len(before)] == before
    assert not any(isinstance(i, Unread) for i in after)


def test_ctrl_c_is_the_usual_end(node: Built, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*ACCEPT, "watch", "--every", "1s", "--dir", str(tmp_path / "log")], stdout=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 20
    while not any(isinstance(i, Seen) for i in log.read(tmp_path / "log")) and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "--summary" in out


# ---------------------------------------------------------------- a child that hangs


def test_a_driver_that_hangs_is_said_and_the_watch_goes_on(node: Built, tmp_path: Path) -> None:
    xid = f"NVRM: Xid (PCI:{node.node.cards[3].slot[:-2]}): 119, pid=1, name=p, Timeout waiting for RPC from GSP"
    script = Script(node, {100: [("* nvmlDeviceGetPowerUsage hang",)], 104: [xid], 130: [()]})
    source = script.source(5.0, 60)
    source.answer_s = 0.5
    found = [(e.t - EPOCH, e.kind) for e in events(list(Watching(5.0, tmp_path).follow(source)))]
    assert [kind for _, kind in found] == ["silent", "heard", "xid"], "what the kernel said meanwhile, once"
    assert found[0][0] == pytest.approx(100, abs=6)
    assert found[1][0] >= 130
    assert found[1][0] <= 180
    total = summarise(log.read(tmp_path))
    assert len(total.gaps) == 1
    assert total.looks == 60


# ---------------------------------------------------------------- the log


def test_the_log_rotates_stays_bounded_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "KEPT", 3)
    out = Log(tmp_path, Begun(0.0, 5.0, (CARD,)), file_bytes=4000)
    for n in range(400):
        out.write(Seen(float(n * 5), look(power_w=float(n))))
    out.close()
    files = sorted(p.name for p in tmp_path.glob("watch*"))
    assert len(files) == 4
    assert all((tmp_path / name).stat().st_size < 6000 for name in files)
    seen = [i for i in log.read(tmp_path) if isinstance(i, Seen)]
    numbers = [s.look.gpus[0]["power_w"] for s in seen]
    assert numbers == [float(n) for n in range(400 - len(numbers), 400)]
    assert not any(isinstance(i, Unread) for i in log.read(tmp_path))


def test_a_full_disk_is_said_once_and_lines_stay_whole(node: Built, tmp_path: Path) -> None:
    script = Script(node, {})
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)], capture_output=True)
    if mounted.returncode:
        pytest.skip("needs root to mount a small tmpfs")
    try:
        told = watched(script, 5.0, 120, small)
        read = list(log.read(small))
    finally:
        subprocess.run(["umount", str(small)], check=True)
    troubles = [t for t in told if isinstance(t, Trouble)]
    assert len(troubles) == 1
    assert "space" in troubles[0].error
    assert sum(isinstance(t, Seen) for t in told) == 120
    assert read
    assert not any(isinstance(i, Unread) for i in read)


numbers = st.none() | st.floats(-1e12, 1e12, allow_nan=False)
words_ = st.none() | st.text(max_size=8)
items = st.one_of(
    st.builds(
        Begun, numbers.map(lambda n: n or 0.0), st.just(5.0),
        st.lists(st.builds(Card, words_, words_, words_, numbers, numbers), max_size=3).map(tuple), words_,
    ),
    st.builds(
        lambda t, rows, host, busy: Seen(t, Look(rows, host, busy)),
        st.floats(0, 2e9),
        st.lists(st.fixed_dictionaries(dict.fromkeys(VALUES, numbers)), max_size=3).map(tuple),
        st.fixed_dictionaries(dict.fromkeys(HOST, numbers)),
        st.dictionaries(st.sampled_from(["disk", "port"]), st.tuples(st.text(max_size=5), st.floats(0, 100))),
    ),
    st.builds(Event, st.floats(0, 2e9), st.sampled_from(KINDS), words_, st.just({"seconds": 3.0})),
)  # fmt: skip


@given(items)
def test_what_is_written_is_read_again(item: Any) -> None:
    line = json.dumps(log.to_json(item)).encode()
    assert log.from_json(line) == item


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_line_is_an_item_or_none(line: bytes) -> None:
    log.from_json(line)


# ---------------------------------------------------------------- what the child says


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=4),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("fswchxkg"), inner),
    )
)
def test_an_answer_that_is_none_is_a_parse_error(value: Any) -> None:  # fmt: skip
    head = Head((CARD,), None, 2, True, False)
    for parse in (lambda: parse_head(json.dumps(value)), lambda: parse_look(json.dumps(value), head)):
        try:
            parse()
        except ParseError:
            continue
        raise AssertionError("taken for an answer")


def test_every_kind_of_event_has_words() -> None:
    values = {
        "c": 85.0, "limit": 87.0, "seconds": 61.0, "cause": "hw_thermal", "xid": 79, "text": "t", "by": 2.0, "to": 3.0,
        "counter": "pcie_replay", "utilization": 7.0, "busy": 95.0, "name": "nvme0n1", "steal": 9.0,
    }  # fmt: skip
    for kind in KINDS:
        given_ = {**values, "cause": "disk"} if kind == "waits" else values
        assert str(words(Event(0.0, kind, None, given_)))


def test_a_counter_that_was_set_back_tells_nothing() -> None:
    watcher = Watcher((CARD,))
    told = [watcher.see(5.0 * n, look(pcie_replay=float(v))) for n, v in enumerate((7, 7, 0, 0, 1))]
    assert [[e.kind for e in found] for found in told] == [[], [], [], [], ["grew"]]


def test_a_value_that_is_not_told_is_no_change() -> None:
    watcher = Watcher((CARD,))
    told = [
        watcher.see(5.0 * n, look(temperature_c=c, reasons=r))
        for n, (c, r) in enumerate([(90.0, 64.0), (None, None), (90.0, 64.0)])
    ]
    assert [[e.kind for e in found] for found in told] == [["hot", "held"], [], []]
