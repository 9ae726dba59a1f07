"""The memory worker whole, on our own libcuda: sound memory, flipped bits, memory that is not there, and no driver."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Union

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.bench.device_memory import Answer, MemoryTestStep
from agent.bench.step import Look
from agent.evidence import Store
from agent.host import LiveHost, ReplayHost, marked
from agent.model import Result, Taken
from agent.reading import Missing
from agent.text import msg
from agent.tools import ParseError
from agent.tools.device_memory import copies, memory_tests, pairs
from tests.bench.fake_gpus import MIB, deliver, slots, small
from tests.fakenode.node import Node

WANTED = 56 * MIB
PROMISED = 60e6
KERNEL = "* cuda.jit right"
FIRST = Look()


def step(node: Node, **settings: Any) -> MemoryTestStep:
    return MemoryTestStep(slots(node), PROMISED, WANTED, **{"window": 4 * MIB, **settings})


def run(
    node: Node,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    look: Look = FIRST,
    **settings: Any,
) -> Mapping[str, Result]:
    return step(node, **settings).execute(deliver(node, folder, monkeypatch), look)


def taken(results: Mapping[str, Result], node: Node, card: int = 0) -> Taken:
    found = results[f"memory_test@{slots(node)[card]}"]
    assert isinstance(found, Taken), found
    return found


def missing(results: Mapping[str, Result], node: Node, card: int = 0) -> Missing:
    found = results[f"memory_test@{slots(node)[card]}"]
    assert isinstance(found, Missing), found
    return found


def errors(found: Taken) -> list[dict[str, Any]]:
    return [e for b in found.attempt.blocks for e in b.conditions["errors"]]


@pytest.mark.parametrize(("line", "method"), [("# none", "host"), (KERNEL, "kernel")])
def test_sound_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, method: str) -> None:
    node = small().answering(line)
    results = run(node, tmp_path, monkeypatch)
    for card in range(2):
        found = taken(results, node, card)
        assert found.subject == slots(node)[card]
        assert found.attempt.correct is True
        assert [b.value for b in found.attempt.blocks] == [pytest.approx(100 * WANTED / PROMISED)] * 2
        for block in found.attempt.blocks:
            assert block.conditions["method"] == method
            assert block.conditions["allocated_bytes"] == block.conditions["asked_bytes"] == WANTED
            assert block.conditions["total_bytes"] == 64 * MIB
            assert block.conditions["used_before_bytes"] == 0


def test_a_replay_gives_the_same_and_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = small()
    first = run(node, tmp_path, monkeypatch)
    assert step(node).execute(ReplayHost(Store(tmp_path / "run")), Look()) == first


@pytest.mark.parametrize("line", ["# none", KERNEL])
def test_a_flipped_bit_is_found_at_its_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    place, bit = 20_000_003, 5
    node = small().answering(f"1 cuda.flip {place}:{bit}", line)
    results = run(node, tmp_path, monkeypatch)
    assert taken(results, node, 0).attempt.correct is True
    found = taken(results, node, 1)
    assert found.attempt.correct is False
    assert [b.conditions["wrong_bytes"] for b in found.attempt.blocks] == [8, 8]
    base = (2 << 44) + 2 * MIB  # where our libcuda begins the memory of its second GPU
    for error in errors(found):
        assert int(error["address"], 16) == base + place // 8 * 8
        assert int(error["expected"], 16) ^ int(error["found"], 16) == 1 << 8 * (place % 8) + bit
        assert error["again"] == error["found"]


def test_flips_beyond_what_is_recorded_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flips = " ".join(f"{4096 * n}:0" for n in range(1024, 1124))
    node = small(cards=1).answering(f"0 cuda.flip {flips}")
    found = taken(run(node, tmp_path, monkeypatch), node)
    assert [b.conditions["wrong_bytes"] for b in found.attempt.blocks] == [800, 800]
    assert len(errors(found)) == 32


@pytest.mark.parametrize("line", ["# none", KERNEL])
def test_memory_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    """The card claims 64 MiB, gives out 64 MiB, and has 32."""
    node = small(cards=1).answering(f"0 cuda.capacity {32 * MIB}", line)
    found = taken(run(node, tmp_path, monkeypatch), node)
    conditions = found.attempt.blocks[0].conditions
    assert conditions["allocated_bytes"] == WANTED
    right = conditions["allocated_bytes"] - conditions["wrong_bytes"]
    assert right == pytest.approx(32 * MIB, abs=4 * MIB)
    assert found.attempt.blocks[0].value == pytest.approx(100 * right / PROMISED)


@pytest.mark.parametrize(
    ("how", "why"), [("wrong", "does not write what it should"), ("blind", "does not find what is planted")]
)
def test_a_kernel_that_does_wrong_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, why: str
) -> None:
    node = small(cards=1).answering(f"0 cuda.jit {how}", "0 cuda.flip 30000000:0")
    found = taken(run(node, tmp_path, monkeypatch), node)
    assert found.attempt.blocks[0].conditions["method"] == "host"
    assert why in str(found.attempt.notes[0])
    assert len(errors(found)) == 2


def test_memory_that_somebody_holds_is_not_allocated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = small(change=lambda c: c.but(memory_used_mib=24)).answering(f"* cuda.held {24 * MIB}")
    found = taken(run(node, tmp_path, monkeypatch), node)
    conditions = found.attempt.blocks[0].conditions
    assert conditions["allocated_bytes"] == 40 * MIB
    assert conditions["free_bytes"] == 40 * MIB
    assert conditions["used_before_bytes"] == 24 * MIB
    assert conditions["wrong_bytes"] == 0


def test_allocations_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.bench.device_memory.CHUNK", 10 * MIB + 1)
    node = small().answering(f"* cuda.held {6 * MIB}")
    found = taken(run(node, tmp_path, monkeypatch), node)
    assert found.attempt.blocks[0].conditions["allocated_bytes"] == WANTED


def test_an_ecc_error_is_the_cards_own_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = small().answering("1 cuMemcpyDtoH error CUDA_ERROR_ECC_UNCORRECTABLE")
    results = run(node, tmp_path, monkeypatch)
    assert taken(results, node, 0).attempt.void is None
    void = taken(results, node, 1).attempt.void
    assert void is not None
    assert void.code == "ecc-error"


def test_another_error_is_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = small().answering("1 cuMemcpyDtoH error CUDA_ERROR_LAUNCH_FAILED")
    results = run(node, tmp_path, monkeypatch)
    assert taken(results, node, 0)
    assert missing(results, node, 1).kind == "failed"
    assert "CUDA_ERROR_LAUNCH_FAILED" in str(missing(results, node, 1).detail)


# ---------------------------------------------------------------- no result


def test_no_driver_names_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = small().but(has_libraries=False)
    found = missing(run(node, tmp_path, monkeypatch), node)
    assert found.kind == "no-tool"
    assert "libcuda.so.1" in str(found.detail)
    assert "driver" in str(found.grant)


def test_a_driver_that_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = small().answering("- cuInit error CUDA_ERROR_SYSTEM_NOT_READY")
    found = missing(run(node, tmp_path, monkeypatch), node)
    assert found.kind == "not-there"
    assert "CUDA_ERROR_SYSTEM_NOT_READY" in str(found.detail)


def test_a_gpu_that_cuda_does_not_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = small().answering("0 cuDeviceGet error CUDA_ERROR_UNKNOWN")
    results = run(node, tmp_path, monkeypatch)
    assert missing(results, node, 0).kind == "not-there"
    assert taken(results, node, 1)


@pytest.mark.parametrize("call", ["cuMemcpyHtoD", "cuCtxCreate", "cuInit"])
def test_a_hang_is_killed_at_its_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    node = small().answering(f"{'-' if call == 'cuInit' else '1'} {call} hang")
    monkeypatch.setattr("agent.bench.device_memory.MemoryTestStep.limit_s", lambda self, depth: 1.0)
    host = deliver(node, tmp_path, monkeypatch)
    begun = time.monotonic()
    results = step(node, slack_s=5.0).execute(host, Look())
    assert time.monotonic() - begun < 20
    assert missing(results, node).kind == "timeout"
    assert marked(host.token) == []


@pytest.mark.parametrize("call", ["cuMemcpyHtoD", "cuCtxCreate", "cuMemAlloc"])
def test_a_gpu_that_hangs_leaves_the_other_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    node = small().answering(f"1 {call} hang")
    monkeypatch.setattr("agent.bench.device_memory.MemoryTestStep.limit_s", lambda self, depth: 3.0)
    host = deliver(node, tmp_path, monkeypatch)
    begun = time.monotonic()
    results = step(node).execute(host, Look())
    assert time.monotonic() - begun < 30
    assert taken(results, node, 0).attempt.correct is True
    assert missing(results, node, 1).kind == "timeout"
    assert marked(host.token) == []


def test_the_workers_own_limit_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = small(cards=1).answering("0 cuda.rate 100e6 100e6 0")
    monkeypatch.setattr("agent.bench.device_memory.MemoryTestStep.limit_s", lambda self, depth: 1.5)
    found = missing(run(node, tmp_path, monkeypatch), node)
    assert (found.kind, "own time limit" in str(found.detail)) == ("timeout", True)


# ---------------------------------------------------------------- the step


def test_errors_that_the_card_counted_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = small(cards=1)
    run(node, tmp_path, monkeypatch)
    monkeypatch.setattr(Answer, "grown", lambda self, where, counter: {"ecc_corrected": 3}.get(counter, 0))
    found = taken(step(node).execute(ReplayHost(Store(tmp_path / "run")), FIRST), node)
    assert "corrected +3" in str(found.attempt.notes[-1])


def test_only_what_is_wanted_again_is_tested_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = small()
    key = f"memory_test@{slots(node)[1]}"
    assert list(run(node, tmp_path, monkeypatch, Look(2, keys=frozenset({key})))) == [key]


def test_without_gpus_nothing_is_started() -> None:
    why = Missing("not-there", msg("no NVIDIA GPU is to be seen"))
    one = MemoryTestStep(why, 0.0, 0)
    assert one.step().keys == ("memory_test",)
    assert one.cost("standard").seconds == 0
    assert one.execute(ReplayHost.__new__(ReplayHost), Look()) == {"memory_test": why}


def test_the_plan_of_eight_h100() -> None:
    whole = MemoryTestStep(tuple(f"0000:{n:02x}:00.0" for n in range(8)), 80e9, 76_000_000_000)
    assert whole.cost("standard").seconds < 10
    # Should no kernel compile, the host compares: that must fit into the limit.
    assert whole.limit_s("standard") > 2 * 2 * 76 / 1.5


# ---------------------------------------------------------------- reading the result


def result_file(folder: Path) -> dict[str, Any]:
    (file,) = folder.glob("run/evidence/*/result.json")
    found: dict[str, Any] = json.loads(file.read_text())
    return found


Json = Union[None, bool, int, float, str, list[Any], dict[str, Any]]
WORDS: st.SearchStrategy[Json] = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.floats(), st.text(max_size=3), st.just([]), st.just({})
)


def spots(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(s for k, v in children for s in spots(v, (*path, k)))]


MEMORY = {
    "tests": [
        {
            "index": 0,
            "total_bytes": 10,
            "used_before_bytes": None,
            "free_bytes": 9,
            "asked_bytes": 8,
            "allocated_bytes": 8,
            "method": "host",
            "why_host": "asked for",
            "passes": [{"wrong_bytes": 8, "write_s": 0.1, "verify_s": 0.2, "started_at": "x"}],
            "errors": [
                {
                    "pass": 0,
                    "offset": 0,
                    "address": "0x10",
                    "expected": "00000000000000ff",
                    "found": "00000000000000fe",
                    "again": "00000000000000fe",
                }
            ],
            "stopped": None,
            "error": None,
        }
    ]
}
TIMING = {"samples": [1.0], "warmup": [1.0], "calls": 1, "started_at": "x", "ended_at": "y"}
WATCHED = {**TIMING, "link": {"sysfs": {"samples": 2, "links": {"5x16": 2}, "error": None}}}
COPIES = {
    "copies": [
        {
            "index": 0,
            "cpus": [0, 1],
            "blocks": [{"h2d": WATCHED, "d2h": WATCHED, "d2d": TIMING, "wrong_bytes": 0}],
            "together": {"h2d": 1.0, "d2h": 2.0},
            "error": None,
        }
    ]
}
PAIRS = {"pairs": [{"from": 0, "to": 1, "access": True, "blocks": [{**TIMING, "wrong_bytes": 0}], "error": None}]}


@pytest.mark.parametrize(("parse", "whole"), [(memory_tests, MEMORY), (copies, COPIES), (pairs, PAIRS)])
def test_a_whole_result_is_read(parse: Any, whole: dict[str, Any]) -> None:
    assert len(parse(whole)) == 1


@pytest.mark.parametrize(("parse", "whole"), [(memory_tests, MEMORY), (copies, COPIES), (pairs, PAIRS)])
@given(data=st.data())
def test_a_damaged_result_is_refused_or_read(data: st.DataObject, parse: Any, whole: dict[str, Any]) -> None:
    damaged = json.loads(json.dumps(whole))
    path = data.draw(st.sampled_from([p for p in spots(damaged) if p]))
    holder = damaged
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = data.draw(WORDS)
    with contextlib.suppress(ParseError):
        parse(damaged)


def test_a_right_word_is_no_error() -> None:
    damaged = json.loads(json.dumps(MEMORY))
    damaged["tests"][0]["errors"][0]["found"] = "00000000000000ff"
    with pytest.raises(ParseError, match="a word that is right"):
        memory_tests(damaged)


def test_the_worker_names_what_it_ran_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = small()
    run(node, tmp_path, monkeypatch)
    found = result_file(tmp_path)
    assert found["versions"]["cuda_driver"] == "12.8"
    assert [d["uuid"] for d in found["devices"]] == [c.uuid for c in node.cards]
    copied = {p.name for p in (tmp_path / "run/evidence").glob("*/*.py")}
    assert copied >= {"device_memory.py", "_copies.py", "_cuda.py", "_link.py", "_pattern.py", "_protocol.py"}


def test_a_hidden_gpu_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = small()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    results = run(node, tmp_path, monkeypatch)
    assert "CUDA_VISIBLE_DEVICES" in str(missing(results, node, 0).grant)
    assert taken(results, node, 1)


def test_the_host_is_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker runs with the agent's own Python: no torch is looked for."""
    node = small(cards=1)
    host = deliver(node, tmp_path, monkeypatch)
    assert isinstance(host, LiveHost)
    found = taken(step(node).execute(host, Look()), node)
    assert found.attempt.reproduce[0] == host.python()
