"""What is judged of GPUs without being asked: pure, on facts made here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.checks import _integrity_gpu
from agent.checks._api import Case
from agent.facts._source import Fabric, Process, Source
from agent.facts.gpus import Program
from agent.model import Access, Clause, Contract, Finding
from agent.reading import Missing
from agent.text import msg
from tests.checks.gpu_node import (
    GONE,
    H100,
    RTX4090,
    SLOTS,
    clause,
    events,
    gpu,
    gpus,
    known,
    machine,
    node,
    saying,
    valued,
)
from tests.checks.test_gpu import lost, xid

BARE = Access("bare-metal", True)


def look(facts: dict[str, Any], *asked: Clause, access: Access = BARE) -> dict[str, Finding]:
    """Findings by id."""
    found = list(_integrity_gpu.judge(Case(Contract(asked, b"", "", access=access), facts)))
    assert len({f.id for f in found}) == len(found)
    return {f.id: f for f in found}


def failed(facts: dict[str, Any], *asked: Clause, access: Access = BARE) -> dict[str, str]:
    """Ids of failures, with their severity."""
    return {i: f.severity for i, f in look(facts, *asked, access=access).items() if f.outcome == "fail"}


def test_healthy_machine_has_no_finding() -> None:
    found = look(node())
    assert {f.outcome for f in found.values()} == {"pass"}
    cards = [gpu(s, i, RTX4090) for i, s in enumerate(SLOTS)]
    plain = gpus(*cards, p2p={})
    assert failed(node(plain)) == {}


def test_machine_without_gpus_is_silent() -> None:
    assert look(node(gpus(sources=dict.fromkeys(("nvml", "smi", "pci", "proc", "cuda"), GONE)))) == {}


def alone(name: str) -> dict[str, str]:
    return {f"integrity.{name}@{SLOTS[0]}": "advisory"}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"vbios": "96.00.74.00.0D"}, alone("mixed_gpus")),
        ({"ecc_uncorrected_aggregate": 2}, alone("gpu_wear")),
        ({"recovery_action": "reset"}, alone("gpu_recovery")),
        ({"power_default_w": 610.0, "power_enforced_w": 610.0}, alone("power_default")),
        ({"pcie_width_current": 8}, alone("pcie_width")),
        ({"throttle": 0x40}, alone("gpu_throttled")),
        ({"fabric": Fabric("not-started")}, alone("gpu_fabric")),
        ({"mig_current": True}, alone("sliced_gpu")),
        ({"memory_total_mib": 40000.0}, alone("sliced_gpu")),
        ({"virtualization_mode": "passthrough"}, alone("virtual_gpu")),
        ({"memory_used_mib": 23000.0}, alone("memory_without_owner")),
        ({"utilization_gpu": 40}, alone("memory_without_owner")),
        ({"processes": (Process(7, "compute", 100.0, "python"),)}, alone("foreign_process")),
        ({"memory_used_mib": 256.0}, {}),  # firmware
        ({"pcie_gen_current": 1}, {}),  # power saving
        ({"throttle": 0x4}, {}),
    ],
)
def test_card(values: dict[str, Any], expected: dict[str, str]) -> None:
    found = look(valued(**values))
    assert {i: f.severity for i, f in found.items() if f.outcome == "fail"} == expected
    assert all(found[i].evidence for i in expected)


def test_x8_by_design_is_the_same_for_all() -> None:
    cards = [gpu(s, i, {**H100, "pcie_width_current": 8, "pcie_width_max": 8}) for i, s in enumerate(SLOTS)]
    assert failed(node(gpus(*cards))) == {}


def test_what_a_clause_decides_is_not_said_twice() -> None:
    worn = valued(ecc_uncorrected_aggregate=2)
    assert failed(worn, clause("gpu.condition", "new")) == {}
    off = valued(fabric=Fabric("not-started"))
    assert failed(off, clause("gpu.nvlink", "900 GB/s")) == {}
    sliced = valued(mig_current=True)
    assert failed(sliced, clause("gpu.whole_card", "true")) == {}
    assert failed(sliced, clause("gpu.mig", "on")) == {}


def test_guest_as_promised() -> None:
    guest = valued(virtualization_mode="passthrough")
    assert failed(guest, access=Access("vm", True)) == {}


def test_proven_falsification_is_a_breach() -> None:
    a100 = {**H100, "name": "NVIDIA A100-SXM4-80GB", "pci_device_id": "10de:20b2", "sm_count": 108}
    named = [saying(gpu(s, i, a100), ["nvml", "smi"], name="NVIDIA H100 80GB HBM3") for i, s in enumerate(SLOTS)]
    assert failed(node(gpus(*named))) == {f"integrity.gpu_identity@{s}": "breach" for s in SLOTS}
    one = machine(lambda card: saying(card, ["pci"], pci_device_id="10de:20b2"))
    found = failed(one)
    assert found[f"integrity.gpu_identity@{SLOTS[0]}"] == "advisory"


def test_forged_nvidia_smi_is_a_breach() -> None:
    facts = machine(lambda card: saying(card, ["smi"], name="NVIDIA H200"))
    found = look(facts)
    bad = found[f"integrity.nvidia_smi@{SLOTS[0]}"]
    assert (bad.outcome, bad.severity) == ("fail", "breach")
    assert "NVIDIA H200 by nvidia-smi" in str(bad.reason)
    assert {i for i, f in found.items() if f.outcome == "fail"} == {bad.id}


SCRIPT = Program("/usr/bin/nvidia-smi", "/opt/wrap.sh", "script", "/bin/sh", 0, False, 100)


def test_script_that_agrees_is_context() -> None:
    whole = replace(node()["gpus"], smi_is_script=known(True, "env"), nvidia_smi=known((SCRIPT,), "env"))
    assert failed(node(whole)) == {"integrity.nvidia_smi": "advisory"}


@pytest.mark.parametrize("kind", ["timeout", "failed", "unparsable"])
def test_nvidia_smi_that_does_not_work(kind: Any) -> None:
    broken = replace(node()["gpus"], smi=Missing(kind, msg("nvidia-smi: trouble"), ("evidence/x",)))
    assert failed(node(broken)) == {"integrity.nvidia_smi": "advisory"}
    absent = replace(broken, smi=Missing("no-tool", msg("not installed"), ("evidence/x",)))
    assert failed(node(absent)) == {}


def test_library_of_another_driver() -> None:
    other = replace(node()["gpus"], library_matches=known(False))
    found = failed(node(other))
    assert found["integrity.driver_library"] == "advisory"
    broken = Missing("failed", msg("NVML: NVML_ERROR_LIB_RM_VERSION_MISMATCH"), ("evidence/x",))
    facts = node(replace(node()["gpus"], driver={"nvml": broken, "smi": GONE, "proc": known("550")}))
    assert failed(facts) == {"integrity.driver_library": "advisory"}


def test_card_that_does_not_answer() -> None:
    assert failed(machine(lost, 2)) == {f"integrity.gpu_bus@{SLOTS[2]}": "advisory"}


def test_card_that_only_nvml_has() -> None:
    whole = node()["gpus"]
    facts = node(replace(whole, sources={**whole.sources, "pci": known(SLOTS[1:], "pci")}))
    assert failed(facts) == {f"integrity.gpu_bus@{SLOTS[0]}": "advisory"}
    # Neither the bus nor the kernel driver nor CUDA know it: NVML made it up.
    ghost = replace(whole.gpus[0], proc=Source("proc", {}), cuda=Source("cuda", {}), pci=Source("pci", {}))
    facts = node(
        replace(whole, gpus=(ghost, *whole.gpus[1:]), sources={**whole.sources, "pci": known(SLOTS[1:], "pci")})
    )
    assert failed(facts) == {f"integrity.gpu_bus@{SLOTS[0]}": "breach"}


def test_samples_and_changed_boards() -> None:
    sample = valued(name="NVIDIA Graphics Device")
    assert failed(sample)[f"integrity.gpu_sample@{SLOTS[0]}"] == "advisory"
    rebuilt = valued(model=RTX4090, memory_total_mib=49140.0)
    rebuilt["gpus"] = replace(rebuilt["gpus"], p2p={})
    assert failed(rebuilt) == {f"integrity.gpu_sample@{SLOTS[0]}": "advisory"}


def test_patched_driver() -> None:
    cards = [gpu(s, i, RTX4090) for i, s in enumerate(SLOTS)]
    assert failed(node(gpus(*cards))) == {"integrity.patched_driver": "advisory"}


@pytest.mark.parametrize(
    ("key", "text", "driver", "bad"),
    [
        ("software.cuda_toolkit", "12.4", "470.82.01", True),
        ("software.cuda_toolkit", "12.4", "535.54.03", False),  # minor-version compatibility
        ("software.torch", ">= 2.4", "470.82.01", True),
        ("software.torch", ">= 2.11", "550.54.15", True),  # brings CUDA 13
        ("software.torch", ">= 2.10", "550.54.15", False),
    ],
)
def test_driver_too_old(key: str, text: str, driver: str, bad: bool) -> None:
    versions = {n: known(driver, n) for n in ("nvml", "smi", "proc")}
    found = failed(node(replace(node()["gpus"], driver=versions)), clause(key, text))
    assert found == ({"integrity.driver_age": "advisory"} if bad else {})


def test_software_between() -> None:
    share = replace(node()["gpu_share"], preload=known(("/usr/local/vgpu/libvgpu.so",), "share"))
    assert failed(node(gpu_share=share)) == {"integrity.gpu_interception": "advisory"}
    fake = replace(node()["gpus"], libraries=("/opt/fakegpu/libnvidia-ml.so.1",))
    assert failed(node(fake)) == {"integrity.gpu_interception": "breach"}


def test_hard_faults() -> None:
    assert failed(node(kernel_log=events(xid(79, "hardware")))) == {f"integrity.hard_faults@{SLOTS[1]}": "advisory"}
    assert failed(node(kernel_log=events(xid(13, "application"), xid(31, "application")))) == {}


def test_nothing_passes_where_nothing_answers() -> None:
    why = Missing("denied", msg("NVML: NVML_ERROR_NO_PERMISSION"), ("evidence/x",), msg("root"))
    cards = [replace(c, nvml=Source("nvml", {}, why), smi=Source("smi", {}, why)) for c in node()["gpus"].gpus]
    sources = {**node()["gpus"].sources, "nvml": why, "smi": why}
    facts = node(gpus(*cards, sources=sources, smi=why, library=why, library_matches=why))
    found = look(facts)
    passed = {i for i, f in found.items() if f.outcome == "pass"}
    assert passed <= {"integrity.gpu_interception", "integrity.hard_faults"}  # they rest on files and the log
