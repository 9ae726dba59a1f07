"""Xids that NVML told during a load, beside the kernel log: counted once, and heard where the log is denied."""

from __future__ import annotations

from typing import Any

import pytest

from agent.bench.burn import ERRORS
from agent.checks import families
from agent.checks._api import Case
from agent.facts.kernel_log import KernelLogFacts
from agent.model import Attempt, Block, Contract, Finding, Measurement
from agent.reading import Missing
from agent.text import msg
from tests.checks.gpu_node import SLOTS, clause, events, node
from tests.checks.test_gpu import xid

DENIED = KernelLogFacts(Missing("denied", msg("Operation not permitted"), ("evidence/0009-kernel-log",)))


def heard(*numbers: int, slot: str = SLOTS[1]) -> dict[str, Any]:
    block = Block(0.0, conditions={"xids": list(numbers), "growth": {}})
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
