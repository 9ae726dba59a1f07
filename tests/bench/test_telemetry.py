"""The telemetry probe on a fake NVML, and the program that runs it beside a worker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from agent import probes, resources
from agent.tools import ParseError
from agent.tools import telemetry as tool
from agent.tools.telemetry import parse_gate
from tests.fakenode import healthy
from tests.fakenode.node import build

PROBE = Path(probes.__file__).parent / "telemetry_probe.py"
BESIDE = resources.path("benchmarks", "beside.py")
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('x', flush=True); time.sleep(600)"


def probe(seconds: float, environment: dict[str, str]) -> tool.Telemetry:
    argv = [sys.executable, "-I", str(PROBE), probes.pynvml_folder(), str(seconds)]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    return tool.parse(done.stdout)


def test_a_node_of_eight(tmp_path: Path) -> None:
    node = build(healthy.h100(), tmp_path)
    found = probe(2.05, {**os.environ, **node.environment()})
    assert (found.done, found.error, len(found.gpus)) == (True, None, 8)
    assert len({gpu.uuid for gpu in found.gpus}) == 8
    assert found.gpus[0].slot is not None
    assert found.gpus[0].slot == found.gpus[0].slot.lower()
    assert len(found.gpus[0].slot) == 12
    assert found.gpus[0].power_default_w == 700
    assert 15 <= len(found.fast) <= 21
    assert len(found.fast[0].clocks) == 8
    assert all(bits is not None for bits in found.fast[0].reasons)
    assert all(row.gpus[3]["temperature_c"] for row in found.slow)
    assert found.counters[0].gpus[0]["ecc_uncorrected"] == 0
    assert len(found.counters) >= 2


def test_without_a_library_the_host_is_still_watched() -> None:
    found = probe(1.05, {"PATH": os.defpath, "LD_LIBRARY_PATH": ""})
    assert found.error
    assert (found.gpus, found.fast) == ((), ())
    assert found.host[-1].values["available_mib"]
    assert found.done


def test_term_ends_it_with_its_last_line() -> None:
    argv = [sys.executable, "-I", str(PROBE), probes.pynvml_folder()]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    process.terminate()
    rest = process.stdout.read()
    process.wait(10)
    assert json.loads(rest.splitlines()[-1])["done"] is True


# ---------------------------------------------------------------- beside a worker


def beside(folder: Path, watcher: list[str], worker: list[str]) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-I", str(BESIDE), str(folder / "out"), "--", *watcher, "--", *worker]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


WATCHER = python("import time; print('here', flush=True); time.sleep(600)")


@pytest.mark.parametrize("code", [0, 3])
def test_ends_as_the_worker_did(tmp_path: Path, code: int) -> None:
    done = beside(tmp_path, WATCHER, python(f"print('said'); raise SystemExit({code})"))
    assert (done.returncode, done.stdout) == (code, "said\n")
    assert (tmp_path / "out").read_text() == "here\n"


def test_ends_by_the_workers_signal(tmp_path: Path) -> None:
    done = beside(tmp_path, WATCHER, python("import os; os.kill(os.getpid(), 9)"))
    assert done.returncode == -signal.SIGKILL


def test_a_watcher_that_does_not_end_is_killed(tmp_path: Path) -> None:
    begun = time.monotonic()
    assert beside(tmp_path, python(DEAF), python("pass")).returncode == 0
    assert time.monotonic() - begun < 20


def test_a_watcher_that_cannot_work_does_not_stop_the_worker(tmp_path: Path) -> None:
    done = beside(tmp_path, python("raise SystemExit('no')"), python("print('said')"))
    assert (done.returncode, done.stdout) == (0, "said\n")
    assert "no" in (tmp_path / "out.log").read_text()


# ---------------------------------------------------------------- the idle gate

CARDS = """
import json, sys, time
print(json.dumps({"telemetry": 1}), flush=True)
begun = time.monotonic()
while True:
    busy = 95 if time.monotonic() - begun < BUSY_S else 0
    print(json.dumps({"s": [[60, 30, 40, 1593, busy, 0], [60, 30, 40, 1593, None, 0]]}), flush=True)
    time.sleep(0.1)
"""


def gated(folder: Path, busy_s: float) -> tuple[float, dict[str, Any]]:
    """When the worker began, and what the gate says."""
    begun = time.monotonic()
    script = CARDS.replace("BUSY_S", str(busy_s))
    worker = python("import time; print(time.monotonic())")
    done = beside(folder, python(script), worker)
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("*.gate")
    return float(done.stdout) - begun, json.loads(path.read_text())


def test_a_load_waits_until_the_cards_are_idle(tmp_path: Path) -> None:
    after, said = gated(tmp_path, 3.0)
    assert after >= 3.0
    assert said["busy_percent"] == [0, None]
    assert 0.5 < said["waited_s"] < 10


def test_idle_cards_are_not_waited_for(tmp_path: Path) -> None:
    _, said = gated(tmp_path, 0.0)
    assert said["waited_s"] < 0.5


def test_work_that_does_not_end_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    short = tmp_path / "beside.py"
    short.write_text(BESIDE.read_text().replace("GATE_S = 20.0", "GATE_S = 1.0"))
    output = tmp_path / "out"
    argv = [
        sys.executable,
        str(short),
        str(output),
        "--",
        *python(CARDS.replace("BUSY_S", "60")),
        "--",
        *python("pass"),
    ]
    assert subprocess.run(argv, check=False, timeout=30).returncode == 0
    gate = (tmp_path / "out.gate").read_text()
    assert parse_gate(gate) == (95.0, None)
    with pytest.raises(ParseError):
        parse_gate("[]")
