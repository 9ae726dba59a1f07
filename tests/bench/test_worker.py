"""What becomes of a worker that does not do its work: a reason, said as our own trouble, and never a number."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.bench.worker import launch, read_result
from agent.host import Ran, marked
from agent.reading import Missing, MissingKind
from agent.tools import ParseError, worker
from tests.bench.interpreters import bare, live, shim

REQUEST = {"device": "cpu", "dtypes": ["fp32"], "limit_s": 30}


def ask(folder: Path, python: str, timeout_s: float = 60.0) -> Missing:
    found = launch(live(folder), "gemm.fp32/1", "gemm", REQUEST, python, timeout_s)
    assert isinstance(found, Missing)
    return found


def torch_that(does: str) -> dict[str, str]:
    return {"torch__init__": f"import os, signal, subprocess, sys, time\n{does}\n"}


def test_no_torch_names_what_to_install(tmp_path: Path) -> None:
    found = ask(tmp_path, bare(tmp_path))
    assert found.kind == "no-tool"
    assert "has no torch" in str(found.detail)
    assert "--python" in str(found.grant)
    assert found.evidence == ("evidence/0001-gemm.fp32-1",)


def test_an_old_torch_names_the_version_it_takes(tmp_path: Path) -> None:
    found = ask(tmp_path, shim(tmp_path, **torch_that("__version__ = '1.13.1+cu117'")))
    assert found.kind == "unsupported"
    assert "needs torch ≥ 2.0" in str(found.detail)
    assert "1.13.1+cu117" in str(found.detail)


def test_a_torch_that_cannot_be_imported(tmp_path: Path) -> None:
    found = ask(tmp_path, shim(tmp_path, **torch_that("raise OSError('libcudart.so.12: cannot open')")))
    assert found.kind == "failed"
    assert "libcudart.so.12" in str(found.detail)
    assert found.grant is not None


def test_an_empty_folder_called_torch(tmp_path: Path) -> None:
    python = shim(tmp_path, nothing="")
    (tmp_path / "first" / "torch").mkdir()
    python_without = Path(bare(tmp_path))
    script = Path(python).read_text().replace(sys.executable, str(python_without))
    Path(python).write_text(script)
    assert "empty folder" in str(ask(tmp_path, python).detail)


@pytest.mark.parametrize(
    ("does", "kind", "says"),
    [
        ("os._exit(3)", "failed", "status 3"),
        ("os._exit(0)", "failed", "left no result"),
        ("raise KeyError('our mistake')", "failed", "our mistake"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "failed", "signal 11"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "failed", "lack of memory"),
    ],
)
def test_a_crash_is_our_own_trouble(tmp_path: Path, does: str, kind: MissingKind, says: str) -> None:
    found = ask(tmp_path, shim(tmp_path, **torch_that(does)))
    assert found.kind == kind
    assert says in str(found.detail)
    assert "our own gemm test" in str(found.detail)


def test_no_such_interpreter(tmp_path: Path) -> None:
    assert ask(tmp_path, str(tmp_path / "nowhere" / "python")).kind == "no-tool"


def test_a_hang_ends_at_its_deadline_and_leaves_no_child(tmp_path: Path) -> None:
    does = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    does += "subprocess.Popen(['sleep', '600'], start_new_session=True)\nos.fork()\ntime.sleep(600)"
    host = live(tmp_path)
    begun = time.monotonic()
    found = launch(host, "gemm.fp32/1", "gemm", REQUEST, shim(tmp_path, **torch_that(does)), 2.0)
    assert isinstance(found, Missing)
    assert found.kind == "timeout"
    assert "our own gemm test" in str(found.detail)
    assert time.monotonic() - begun < 20
    assert not marked(host.token)


def test_the_run_holds_the_code_that_made_the_number(tmp_path: Path) -> None:
    ask(tmp_path, bare(tmp_path))
    folder = tmp_path / "run" / "evidence" / "0001-gemm.fp32-1"
    assert {p.name for p in folder.iterdir()} == {
        "gemm.py",
        "_gemm.py",
        "_protocol.py",
        "request.json",
        "result.json",
        "meta.json",
        "stdout",
        "stderr",
    }


# ---------------------------------------------------------------- the result file

GOOD: dict[str, Any] = {
    "schema": worker.SCHEMA,
    "worker": "gemm",
    "devices": [{"index": 0, "name": "NVIDIA H100", "uuid": "GPU-1", "slot": "0000:1b:00.0"}],
    "versions": {"torch": "2.4.1", "nccl": None},
}


def left(folder: Path, raw: bytes) -> Ran:
    (folder / "result.json").write_bytes(raw)
    return Ran("gemm", ("python",), "2026-11-30T00:00:00Z", 1.0, exit=0, evidence="evidence/0001-gemm", folder=folder)


def test_a_good_one() -> None:
    found = worker.parse(json.dumps(GOOD).encode(), "gemm")
    assert found.devices == (worker.Device(0, "NVIDIA H100", "GPU-1", "0000:1b:00.0"),)
    assert found.devices[0].subject == "0000:1b:00.0"
    assert found.versions == {"torch": "2.4.1", "nccl": None}


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"null",
        b"[" * 100_000,
        json.dumps(GOOD).encode()[:-20],
        json.dumps({**GOOD, "worker": "burn"}).encode(),
        json.dumps({**GOOD, "schema": "accept.worker/9"}).encode(),
        json.dumps({**GOOD, "devices": []}).encode(),
        json.dumps({**GOOD, "devices": GOOD["devices"] * 2}).encode(),
        json.dumps({**GOOD, "devices": [{"index": -1, "name": "x"}]}).encode(),
        json.dumps({**GOOD, "devices": [{"index": 0.5, "name": "x"}]}).encode(),
        json.dumps({**GOOD, "devices": [{"index": True, "name": "x"}]}).encode(),
        json.dumps({**GOOD, "versions": {"torch": 2.4}}).encode(),
        json.dumps({**GOOD, "error": "broken"}).encode(),
        json.dumps({**GOOD, "extra": float("nan")}).encode(),
        json.dumps({**GOOD, "extra": float("inf")}).encode(),
    ],
)
def test_one_that_is_not_what_it_claims(tmp_path: Path, raw: bytes) -> None:
    found = read_result(left(tmp_path, raw), "gemm")
    assert isinstance(found, Missing)
    assert found.kind == "unparsable"
    assert "our own gemm test" in str(found.detail)


def test_a_whole_result_counts_whatever_became_of_the_process(tmp_path: Path) -> None:
    ran = left(tmp_path, json.dumps(GOOD).encode())
    late = Ran(ran.probe, ran.argv, ran.started_at, 9.0, timed_out=True, signal=9, folder=tmp_path)
    assert not isinstance(read_result(late, "gemm"), Missing)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(["schema", "worker", "devices", "versions", "error"]), JSON)
def test_any_other_value_is_refused_or_read_but_never_a_traceback(field: str, value: Any) -> None:
    try:
        found = worker.parse(json.dumps({**GOOD, field: value}).encode(), "gemm")
    except ParseError:
        return
    assert found.error is not None or found.devices
