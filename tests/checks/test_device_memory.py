"""Judging what the memory and copy worker measured: memory_test, pcie_bandwidth, p2p_bandwidth, gpu.pcie under load."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Optional, Union

import pytest

from agent.bench.step import Look
from agent.checks import families, memory_test, p2p_bandwidth, pcie_bandwidth
from agent.checks._api import Case
from agent.checks._device_memory import pcie_bound, peer_bound
from agent.checks._measured import models
from agent.facts._source import Process
from agent.facts.processes import ProcessesFacts, Running
from agent.host import ReplayHost
from agent.model import Attempt, Block, Clause, Contract, Depth, Finding, Measurement, Void
from agent.plan import Options, arrange
from agent.reading import Missing
from agent.text import msg
from tests.checks.gpu_node import H100, RTX4090, SLOTS, clause, gpu, gpus, known, node, valued

GIB = 1 << 30
A, B = SLOTS[:2]
START = "2026-11-30T00:00:00Z"
Taken = Union[Measurement, Missing]


def bare(family: str, text: str, **more: Any) -> Clause:
    """A clause of a family that is one value."""
    promise = families()[family].GRAMMAR.clauses[family].parse(text)
    return Clause(family, family, family, promise, 1, 1, **more)


def judge(facts: dict[str, Any], measured: dict[str, Taken], *asked: Clause) -> dict[str, Finding]:
    case = Case(Contract(asked, b"", ""), facts, measured)
    found = [f for c in asked for f in families()[c.family].judge([c], case)]
    return {f.id: f for f in found}


# ---------------------------------------------------------------- memory_test

MEMORY = bare("memory_test", "95%")
PROMISE = clause("gpu.memory", "80 GB")
ASKED = 76_000 << 20


def verified(depth: Depth = "standard", void: Optional[Void] = None, **changes: Any) -> Attempt:
    """Two passes over what was asked, nothing wrong, unless told otherwise."""
    conditions: dict[str, Any] = {
        "total_bytes": 81559 << 20,
        "used_before_bytes": 500 << 20,
        "free_bytes": 80500 << 20,
        "asked_bytes": ASKED,
        "allocated_bytes": ASKED,
        "wrong_bytes": 0,
        "errors": [],
        **changes,
    }
    share = 100 * (conditions["allocated_bytes"] - conditions["wrong_bytes"]) / 80e9
    blocks = () if void else (Block(share, conditions=conditions),) * 2
    return Attempt(blocks, depth, START, ("evidence/0009-x",), void=void, correct=void is None)


def memory(*attempts: Attempt, facts: Optional[dict[str, Any]] = None) -> Finding:
    key = f"memory_test@{A}"
    taken = Measurement(key, "%", "median of repetitions", attempts, A)
    return judge(facts or node(), {key: taken}, MEMORY, PROMISE)[key]


ERROR = {
    "offset": 1234560,
    "address": "0x7f0000032d680",
    "expected": "fd1eee4bb068d198",
    "found": "f51eee4bb068d198",
    "again": "f51eee4bb068d198",
}
FLIPPED = verified(wrong_bytes=8, errors=[ERROR])


def test_sound_memory_is_kept() -> None:
    found = memory(verified())
    assert (found.outcome, found.reason_code, found.unit) == ("pass", "kept", "%")
    assert found.measured == pytest.approx(100 * ASKED / 80e9)
    assert found.limit is not None
    assert found.limit.value == 95
    assert "80 GB (gpu.memory)" in str(found.notes[0])


def test_a_flipped_bit_convicts_when_it_shows_twice() -> None:
    first = memory(FLIPPED)
    assert (first.outcome, first.reason_code, first.again) == ("inconclusive", "fail-not-repeated", "repeat")
    found = memory(FLIPPED, FLIPPED)
    assert (found.outcome, found.reason_code, found.again) == ("fail", "memory-wrong", None)
    for part in ("8 bytes", "1234560", "0x7f0000032d680", "fd1eee4bb068d198", "f51eee4bb068d198"):
        assert part in str(found.reason)


def test_a_flip_that_does_not_come_back_is_neither() -> None:
    second = memory(FLIPPED, verified())
    assert (second.outcome, second.reason_code, second.again) == ("inconclusive", "unstable", "repeat")
    third = memory(FLIPPED, verified(), verified())
    assert (third.outcome, third.again) == ("inconclusive", None)
    assert memory(FLIPPED, verified(), FLIPPED).outcome == "fail"


def test_half_of_the_memory_is_not_there() -> None:
    """Claims 80 GB, has 40."""
    lie = verified(wrong_bytes=ASKED - 40_000_000_000, errors=[ERROR])
    found = memory(lie, lie)
    assert (found.outcome, found.reason_code) == ("fail", "capacity-unreal")
    assert "only 40 of 79.69 GB" in str(found.reason)
    assert found.measured == pytest.approx(50)


def test_a_smaller_card_is_named() -> None:
    small = verified(total_bytes=40960 << 20, free_bytes=40000 << 20, allocated_bytes=39900 << 20)
    found = memory(small, small)
    assert (found.outcome, found.reason_code) == ("fail", "below-limit")
    assert "40960 MiB" in str(found.reason)


def test_memory_that_is_called_free_and_not_given() -> None:
    lie = verified(allocated_bytes=40 * GIB)
    found = memory(lie, lie)
    assert (found.outcome, found.reason_code) == ("fail", "capacity-unreal")


def test_less_than_promised_for_no_reason() -> None:
    short = verified(allocated_bytes=70_000 << 20, free_bytes=70_100 << 20)
    assert memory(short, short).reason_code == "below-limit"


HELD = verified(allocated_bytes=60_000 << 20, free_bytes=60_100 << 20, used_before_bytes=21_000 << 20)


def test_memory_held_by_somebody_else_is_not_delivered() -> None:
    somebody = (Process(4242, "compute", 20000.0, "python"),)
    found = memory(HELD, HELD, facts=valued(processes=somebody, memory_used_mib=20500.0))
    assert (found.outcome, found.reason_code) == ("fail", "memory-held")
    assert "process 4242 (python) holds 20000 MiB" in str(found.reason)


def test_memory_held_by_oneself_decides_nothing() -> None:
    mine = (Process(77, "compute", 20000.0, "python"),)
    people = ProcessesFacts(known({77: Running(1000, "python")}, "ps"), known(1000, "id"))
    found = memory(HELD, facts={**valued(processes=mine, memory_used_mib=20500.0), "processes": people})
    assert (found.outcome, found.reason_code, found.again) == ("inconclusive", "disturbed", None)


def test_memory_taken_after_the_facts_decides_nothing() -> None:
    found = memory(HELD)
    assert (found.outcome, found.reason_code) == ("inconclusive", "disturbed")
    assert "nobody knows by whom" in str(found.reason)


def test_an_ecc_error_convicts_when_it_shows_twice() -> None:
    ecc = verified(void=Void("ecc-error", msg("the card reported an uncorrectable memory error")))
    assert memory(ecc).again == "repeat"
    found = memory(ecc, ecc)
    assert (found.outcome, found.reason_code, found.measured) == ("fail", "ecc-error", None)


def test_a_quick_look_does_not_pass_and_may_fail() -> None:
    assert memory(verified("quick")).reason_code == "shortened"
    quick = replace(FLIPPED, depth="quick")
    assert memory(quick, quick).outcome == "fail"


def test_a_recording_that_tested_less_than_another_contract_asks_for() -> None:
    less = verified(asked_bytes=30_000 << 20, allocated_bytes=30_000 << 20)
    found = memory(less)
    assert (found.outcome, found.reason_code) == ("inconclusive", "shortened")


def test_what_was_not_tested_has_its_reason() -> None:
    why = Missing("no-tool", msg("the CUDA driver cannot be loaded"), (), msg("the NVIDIA driver"))
    found = judge(node(), {f"memory_test@{A}": why}, MEMORY, PROMISE)[f"memory_test@{A}"]
    assert (found.outcome, found.reason_code) == ("inconclusive", "no-tool")
    assert found.grant is not None
    (alone,) = judge(node(), {"memory_test": why}, MEMORY).values()
    assert (alone.id, alone.outcome) == ("memory_test", "inconclusive")


def case(*asked: Clause, facts: Optional[dict[str, Any]] = None) -> Case:
    return Case(Contract(asked, b"", ""), facts or node())


def test_the_promise_is_the_memory_then_the_model_then_the_cards_word() -> None:
    def size(*asked: Clause) -> tuple[float, str]:
        found = memory_test.promised(case(MEMORY, *asked))
        assert isinstance(found, memory_test.Promised)
        return found.size, str(found.origin)

    assert size(PROMISE, clause("gpu.model", "H200")) == (80e9, "gpu.memory")
    assert size(clause("gpu.memory", "80 GiB")) == (80 * GIB, "gpu.memory")
    assert size(clause("gpu.model", "H200")) == (141e9, "gpu.model")
    assert size(clause("gpu.model", "A100")) == (40e9, "gpu.model")  # the weakest that the name can mean
    found, origin = size()
    assert found == 81559 << 20
    assert "the card itself claims" in origin


def test_the_asked_share_is_covered_in_whole_allocations() -> None:
    (step,) = memory_test.steps((MEMORY,), case(MEMORY, PROMISE))
    assert step.keys == tuple(f"memory_test@{s}" for s in SLOTS)
    assert step.load == "gpu"


def test_without_gpus_the_reason_stays() -> None:
    (step,) = memory_test.steps((MEMORY,), case(MEMORY, PROMISE, facts=node(gpus())))
    assert (step.keys, step.cost("standard").seconds) == (("memory_test",), 0)
    assert list(memory_test.steps((MEMORY,), Case(Contract((MEMORY,), b"", "")))) == []


# ---------------------------------------------------------------- pcie_bandwidth


def attempt(value: float, depth: Depth = "standard", void: Optional[Void] = None) -> Attempt:
    blocks = tuple(Block(value + i / 100, (value + i / 100,)) for i in range(6))
    return Attempt(blocks, depth, START, ("evidence/0009-x",), void=void, correct=void is None)


def copies(key: str, *attempts: Attempt) -> dict[str, Taken]:
    return {key: Measurement(key, "GB/s", "median of block medians", attempts, key.partition("@")[2])}


def linked(
    generation: int, width: int, slot: str = A, times: int = 1, void: Optional[Void] = None, depth: Depth = "standard"
) -> dict[str, Taken]:
    rate = {(5, 16): 63.0, (4, 16): 31.5, (5, 8): 31.5, (1, 16): 4.0}[generation, width]
    blocks = (Block(rate, conditions={"generation": generation, "width": width}),) * 6
    return copies(f"gpu.pcie@{slot}", *(Attempt(blocks, depth, START, void=void) for _ in range(times)))


H2D = clause("pcie_bandwidth.h2d", ">= 48 GB/s", tolerance=0.05)
AUTO = clause("pcie_bandwidth.h2d", "auto", severity="advisory")


def test_each_gpu_is_held_against_the_promise() -> None:
    slow = attempt(40.0)
    measured = {**copies(f"pcie_bandwidth.h2d@{A}", attempt(55.0)), **copies(f"pcie_bandwidth.h2d@{B}", slow, slow)}
    found = judge(node(), measured, H2D)
    assert found[f"pcie_bandwidth.h2d@{A}"].outcome == "pass"
    assert found[f"pcie_bandwidth.h2d@{B}"].outcome == "fail"


def test_auto_is_a_share_of_the_link_under_load_and_never_convicts() -> None:
    key = f"pcie_bandwidth.h2d@{A}"
    slow = attempt(40.0)
    found = judge(node(), {**copies(key, slow, slow), **linked(5, 16)}, replace(AUTO, agreed=True, severity="breach"))
    assert (found[key].outcome, found[key].severity) == ("fail", "advisory")
    limit = found[key].limit
    assert limit is not None
    assert (limit.origin.kind, limit.origin.detail) == ("topology", "75% of Gen5 x16")
    assert limit.value == pytest.approx(0.75 * 63.0)
    # The same rate is what half the lanes carry.
    narrow = judge(node(), {**copies(key, attempt(27.0)), **linked(5, 8)}, AUTO)
    assert narrow[key].outcome == "pass"


@pytest.mark.parametrize(
    "link",
    [
        {},
        linked(1, 16, void=Void("not-corroborated", msg("the copies were faster"))),
        {f"gpu.pcie@{A}": Missing("unsupported", msg("nobody tells"))},
    ],
)
def test_auto_without_a_link_is_held_against_nothing(link: dict[str, Taken]) -> None:
    key = f"pcie_bandwidth.h2d@{A}"
    found = judge(node(), {**copies(key, attempt(40.0)), **link}, AUTO)[key]
    assert (found.outcome, found.reason_code) == ("inconclusive", "no-floor")


def test_wrong_data_never_passes() -> None:
    key = f"pcie_bandwidth.h2d@{A}"
    wrong = attempt(55.0, void=Void("wrong-result", msg("8 bytes arrived wrong")))
    assert judge(node(), copies(key, wrong), H2D)[key].again == "repeat"
    found = judge(node(), copies(key, wrong, wrong), H2D)[key]
    assert (found.outcome, found.reason_code) == ("inconclusive", "wrong-result")


def test_above_the_line_rate_is_void() -> None:
    key = f"pcie_bandwidth.h2d@{A}"
    found = judge(node(), copies(key, attempt(90.0, void=Void("above-physical-limit", msg("x")))), H2D)[key]
    assert (found.outcome, found.reason_code) == ("inconclusive", "above-physical-limit")


def test_bounds_come_from_the_catalogue() -> None:
    cards = gpus(gpu(A, 0, H100), gpu(B, 1, RTX4090))
    found = models(case(facts=node(cards)))
    assert pcie_bound(found, A) == pytest.approx(63.0, abs=0.1)
    assert pcie_bound(found, B) == pytest.approx(31.5, abs=0.1)
    assert pcie_bound(found, "0000:ff:00.0") is None
    assert peer_bound(found, A, A) == 450
    assert peer_bound(found, A, B) == pytest.approx(31.5, abs=0.1)
    assert peer_bound(found, A, "0000:ff:00.0") is None


def test_one_step_serves_both_families() -> None:
    link = clause("gpu.pcie", "Gen5 x16")
    both = case(H2D, link)
    steps = [*pcie_bandwidth.steps((H2D,), both), *families()["gpu"].steps((link,), both)]
    assert len(steps) == 2
    (planned,) = arrange(steps, Options()).steps
    assert set(planned.step.keys) == {
        f"{c}@{s}" for s in SLOTS for c in ("pcie_bandwidth.h2d", "pcie_bandwidth.d2h", "gpu.pcie")
    }
    assert list(families()["gpu"].steps((clause("gpu.count", "4"),), both)) == []


# ---------------------------------------------------------------- gpu.pcie

PCIE = clause("gpu.pcie", "Gen5 x16")


def link(measured: dict[str, Taken], asked: Clause = PCIE) -> Finding:
    return judge(node(), measured, asked)[f"gpu.pcie@{A}"]


def test_the_link_is_kept_under_load() -> None:
    found = link(linked(5, 16))
    assert (found.outcome, found.measured) == ("pass", "Gen5 x16")


@pytest.mark.parametrize(("generation", "width"), [(4, 16), (5, 8), (1, 16)])
def test_a_slower_link_under_load_convicts_when_it_shows_twice(generation: int, width: int) -> None:
    assert link(linked(generation, width)).again == "repeat"
    found = link(linked(generation, width, times=2))
    assert (found.outcome, found.measured) == ("fail", f"Gen{generation} x{width}")


def test_only_what_is_promised_of_the_link_is_judged() -> None:
    assert link(linked(5, 8), clause("gpu.pcie", "x8")).outcome == "pass"
    assert link(linked(5, 8), clause("gpu.pcie", "Gen5")).outcome == "pass"
    assert link(linked(4, 16, times=2), clause("gpu.pcie", "Gen5")).outcome == "fail"
    assert link(linked(5, 16), clause("gpu.pcie", "== Gen5 x16")).outcome == "pass"


def test_two_attempts_that_disagree_decide_nothing() -> None:
    key = f"gpu.pcie@{A}"
    attempts = [m.attempts[0] for n in (linked(4, 16), linked(5, 16)) if isinstance(m := n[key], Measurement)]
    assert link(copies(key, *attempts)).reason_code == "unstable"


def test_a_link_that_is_not_believed_decides_nothing() -> None:
    found = link(linked(1, 16, times=2, void=Void("not-corroborated", msg("the copies were faster"))))
    assert (found.outcome, found.reason_code) == ("inconclusive", "not-corroborated")


def test_a_quick_look_at_the_link_does_not_pass() -> None:
    assert link(linked(5, 16, depth="quick")).reason_code == "shortened"
    assert link(linked(5, 8, times=2, depth="quick")).outcome == "fail"


def test_without_a_look_under_load_the_clause_waits() -> None:
    assert link({}).reason_code == "needs-load"
    assert link({f"gpu.pcie@{A}": Missing("left-out", msg("left out by --profile facts"))}).reason_code == "needs-load"
    assert link({f"gpu.pcie@{A}": Missing("timeout", msg("gave no result"))}).reason_code == "timeout"


# ---------------------------------------------------------------- p2p_bandwidth

PEER = bare("p2p_bandwidth", ">= 330 GB/s", tolerance=0.05)


def ways(**rates: tuple[float, ...]) -> dict[str, Taken]:
    """Of three cards; ``ab``: attempts from the first to the second."""
    place = dict(zip("abc", SLOTS))
    found: dict[str, Taken] = {}
    for pair in ("ab", "ac", "ba", "bc", "ca", "cb"):
        key = f"p2p_bandwidth@{place[pair[0]]}>{place[pair[1]]}"
        found.update(copies(key, *(attempt(v) for v in rates.get(pair, (360.0,)))))
    return found


def test_the_slowest_way_out_of_each_gpu_decides() -> None:
    found = judge(node(), ways(ab=(350.0,)), PEER)
    assert list(found) == [f"p2p_bandwidth@{s}" for s in SLOTS[:3]]
    assert {f.outcome for f in found.values()} == {"pass"}
    first = found[f"p2p_bandwidth@{A}"]
    assert first.measured == pytest.approx(350.0, abs=0.1)
    assert len(first.measurements) == 2
    assert f"to {B}" in str(first.notes[-1])


def test_a_slow_way_is_repeated_and_then_convicts() -> None:
    (first, *others) = judge(node(), ways(ab=(200.0,)), PEER).values()
    assert (first.outcome, first.again) == ("inconclusive", "repeat")
    assert first.measurements == (f"p2p_bandwidth@{A}>{B}",)
    assert {f.outcome for f in others} == {"pass"}
    broken = judge(node(), ways(ab=(200.0, 200.0)), PEER)[f"p2p_bandwidth@{A}"]
    assert (broken.outcome, broken.subject) == ("fail", A)
    assert f"to {B}" in str(broken.reason)
    assert "1 of 2 ways" in str(broken.reason)


def test_a_way_that_must_be_seen_again_is_not_hidden_by_one_that_is_settled() -> None:
    found = judge(node(), ways(ab=(200.0, 360.0), ac=(200.0,)), PEER)[f"p2p_bandwidth@{A}"]
    assert (found.outcome, found.again) == ("inconclusive", "repeat")
    assert found.measurements == (f"p2p_bandwidth@{A}>{SLOTS[2]}",)


def test_a_pair_that_could_not_be_measured_does_not_pass() -> None:
    measured = {**ways(), f"p2p_bandwidth@{A}>{B}": Missing("failed", msg("CUDA_ERROR_UNKNOWN"))}
    found = judge(node(), measured, PEER)[f"p2p_bandwidth@{A}"]
    assert (found.outcome, found.reason_code) == ("inconclusive", "failed")


def test_auto_between_gpus_is_held_against_nothing() -> None:
    found = judge(node(), ways(), bare("p2p_bandwidth", "auto", severity="advisory"))
    assert {(f.outcome, f.reason_code) for f in found.values()} == {("inconclusive", "no-floor")}


def test_one_gpu_has_no_peer() -> None:
    alone = node(gpus(gpu(A, 0, H100)))
    (step,) = p2p_bandwidth.steps((PEER,), case(PEER, facts=alone))
    why = step.execute(ReplayHost.__new__(ReplayHost), Look())["p2p_bandwidth"]
    assert isinstance(why, Missing)
    (found,) = judge(alone, {"p2p_bandwidth": why}, PEER).values()
    assert (found.id, found.outcome, found.reason_code) == ("p2p_bandwidth", "inconclusive", "not-there")
