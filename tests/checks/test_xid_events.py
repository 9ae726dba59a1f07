"""Xids that NVML told during a load, beside the kernel log: counted once, and heard where the log is denied."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.bench.burn import ERRORS
from agent.checks import _load_errors, families
from agent.checks._api import Case
from agent.facts.kernel_log import KernelLogFacts
from agent.model import Attempt, Block, Contract, Finding, Measurement
from agent.reading import Known, Missing
from agent.text import msg
from tests.checks.gpu_node import SLOTS, clause, events, node
from tests.checks.test_gpu import xid

DENIED = KernelLogFacts(Missing("denied", msg("Operation not permitted"), ("evidence/0009-kernel-log",)))


def heard(*numbers: int, slot: str = SLOTS[1], **more: str) -> dict[str, Any]:
    block = Block(0.0, conditions={"xids": list(numbers), "growth": {}, **more})
    attempt = Attempt((block,), "standard", "2026-11-30T12:00:00Z", ("evidence/0030-burn",))
    key = f"{ERRORS}@{slot}"
    return {key: Measurement(key, "", "median of block medians", (attempt,), slot)}


def judged(log: KernelLogFacts, measured: dict[str, Any]) -> dict[str, Finding]:
    asked = clause("gpu.xid", "none")
    case = Case(Contract((asked,), b"", ""), node(kernel_log=log), measured)
    return {f.id: f for f in families()["gpu"].judge([asked], case)}


def test_an_event_is_heard_where_the_log_is_denied() -> None:
    found = judged(DENIED, heard(79))
    failed = found[f"gpu.xid@{SLOTS[1]}"]
    assert (failed.outcome, failed.reason_code, failed.measured) == ("fail", "xid", 1)
    assert "Xid 79" in str(failed.reason)
    assert failed.evidence == ("evidence/0030-burn",)
    assert found["gpu.xid"].outcome == "inconclusive"  # what came before, nobody knows


def test_one_fault_is_not_counted_twice() -> None:
    found = judged(events(xid(79, "hardware")), heard(79))
    assert list(found) == [f"gpu.xid@{SLOTS[1]}"]
    assert "kernel log" in str(found[f"gpu.xid@{SLOTS[1]}"].reason)


def test_an_event_that_the_log_lost_is_kept() -> None:
    found = judged(events(), heard(74))
    assert list(found) == [f"gpu.xid@{SLOTS[1]}"]
    assert found[f"gpu.xid@{SLOTS[1]}"].outcome == "fail"


@pytest.mark.parametrize("number", [13, 31, 43, 45])
def test_what_a_program_causes_is_nobodys_fault(number: int) -> None:
    assert judged(events(), heard(number))["gpu.xid"].outcome == "pass"
    assert [f.outcome for f in judged(DENIED, heard(number)).values()] == ["inconclusive"]


def deaf(slot: str, error: str = "NVML: Not Supported") -> dict[str, Any]:
    return heard(slot=slot, no_events=error)


def test_events_that_nvml_refused_are_said_where_the_log_is_denied() -> None:
    measured = {**deaf(SLOTS[0], "NVML: Insufficient Permissions"), **heard(slot=SLOTS[1])}
    found = judged(DENIED, measured)["gpu.xid"]
    assert (found.outcome, found.reason_code) == ("inconclusive", "denied")
    assert "Operation not permitted" in str(found.reason)
    assert "of 1 of 2 loaded GPUs NVML told no Xids during the loads either" in str(found.reason)
    assert "Insufficient Permissions" in str(found.reason)
    assert found.evidence == ("evidence/0009-kernel-log", "evidence/0030-burn")


def test_events_that_nvml_refused_are_said_where_the_log_has_a_hole() -> None:
    log = events()
    assert isinstance(log.log, Known)
    holed = replace(log, log=Known(replace(log.log.value, since_boot=False), log.log.evidence))
    found = judged(holed, deaf(SLOTS[0]))["gpu.xid"]
    assert found.outcome == "inconclusive"
    assert "does not reach back" in str(found.reason)
    assert "of 1 of 1 loaded GPUs" in str(found.reason)


def test_a_whole_log_needs_no_events() -> None:
    found = judged(events(), deaf(SLOTS[0]))["gpu.xid"]
    assert (found.outcome, str(found.reason)) == (
        "pass",
        "no Xid of hardware, NVLink or driver since the machine started",
    )


def test_where_nvml_listened_nothing_is_said_of_it() -> None:
    assert "NVML" not in str(judged(DENIED, heard())["gpu.xid"].reason)


def test_a_card_that_could_not_be_listened_to_says_so() -> None:
    asked = clause("gpu.xid", "none")
    measured = deaf(SLOTS[0])
    case = Case(Contract((asked,), b"", ""), node(kernel_log=DENIED), measured)
    (found,) = _load_errors.judge(case)
    assert found.outcome == "pass"
    assert "refused to tell them (NVML: Not Supported)" in str(found.notes[0])


def test_the_driver_is_explained_in_the_readers_language() -> None:
    """What a number means is a sentence of its own, which a translation replaces."""
    found = judged(events(xid(79, "hardware")), {})[f"gpu.xid@{SLOTS[1]}"]
    assert "Xid 79: GPU fell off the bus" in str(found.reason)
    assert "Xid 79: 掉卡" in found.reason.render(_only_one)


def _only_one(template: str) -> str:
    return "掉卡" if template == "GPU fell off the bus" else template
