"""Judging GPUs: pure, on facts made here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Optional

import pytest

from agent.facts._source import Fabric, NvLink, Process, Source
from agent.facts.gpus import Gpu
from agent.facts.kernel_log import LogEvent
from agent.facts.processes import ProcessesFacts, Running
from agent.reading import Known, Missing
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
    judged,
    known,
    machine,
    node,
    one,
    saying,
    valued,
)

ALL = {
    "gpu.model": "H100 SXM5 80GB",
    "gpu.count": "4",
    "gpu.memory": "80 GB",
    "gpu.driver": ">= 550.54",
    "gpu.cuda": ">= 12.4",
    "gpu.ecc": "on",
    "gpu.mig": "off",
    "gpu.whole_card": "true",
    "gpu.power_limit": "default",
    "gpu.nvlink": "900 GB/s",
    "gpu.p2p": "true",
    "gpu.condition": "new",
    "gpu.xid": "none",
}
DENIED = Missing("denied", msg("NVML: NVML_ERROR_NO_PERMISSION"), ("evidence/x",), msg("root"))


def outcomes(facts: dict[str, Any], promises: Optional[dict[str, str]] = None) -> dict[str, str]:
    """Ids of what is not kept, with the outcome."""
    found = judged(facts, *(clause(k, t) for k, t in (promises or ALL).items()))
    return {i: f.outcome for i, f in found.items() if f.outcome != "pass"}


def test_healthy() -> None:
    found = judged(node(), *(clause(k, t) for k, t in ALL.items()))
    assert {f.outcome for f in found.values()} == {"pass"}
    assert all(f.evidence for f in found.values())
    assert len(found) == 4 * 8 + 5  # eight clauses a card, five of the machine


@pytest.mark.parametrize(
    ("promised", "values", "outcome"),
    [
        ("H100", {}, "pass"),
        ("H100 80GB", {}, "pass"),
        ("H100 PCIe", {}, "fail"),
        ("H200", {}, "fail"),
        ("RTX 9999", {}, "inconclusive"),
        ("H100 SXM5 80GB", {"name": "NVIDIA H100 PCIe", "pci_device_id": "10de:2331", "sm_count": 114}, "fail"),
        ("A100 80G", {"name": "NVIDIA A100-SXM4-80GB", "pci_device_id": "10de:20b2", "sm_count": 108}, "pass"),
        ("A100 80G", {"name": "NVIDIA A100 80GB PCIe", "pci_device_id": "10de:20b5", "sm_count": 108}, "pass"),
        ("A100 SXM4 80GB", {"name": "NVIDIA A800-SXM4-80GB", "pci_device_id": "10de:20f3", "sm_count": 108}, "fail"),
        # A name that no table has, on the promised product's PCI id: a sample, or a driver that is too old.
        ("H100 SXM5 80GB", {"name": "NVIDIA Graphics Device"}, "inconclusive"),
        ("H100 SXM5 80GB", {"name": "NVIDIA GeForce GTX 1080", "pci_device_id": "10de:1b80", "sm_count": 20}, "fail"),
        ("GTX 1080", {"name": "NVIDIA GeForce GTX 1080", "pci_device_id": "10de:1b80", "sm_count": 20}, "pass"),
        ("H100 SXM5 80GB", {"name": "NVIDIA H100XM-40C"}, "inconclusive"),
    ],
)
def test_model(promised: str, values: dict[str, Any], outcome: str) -> None:
    found = one(valued(**values), "gpu.model", promised)
    assert (found.outcome, bool(found.evidence)) == (outcome, True), str(found.reason)


def test_ambiguous_model_is_said() -> None:
    found = one(node(), "gpu.model", "H100")
    assert any("can mean" in str(n) for n in found.notes)


def test_memory_alone_identifies_nothing() -> None:
    """H20 and GH200 show the same total: name, id and multiprocessors decide."""
    h20: dict[str, Any] = {
        "name": "NVIDIA H20",
        "pci_device_id": "10de:2329",
        "sm_count": 78,
        "memory_total_mib": 97871.0,
    }
    assert one(valued(**h20), "gpu.model", "GH200").outcome == "fail"
    assert one(valued(**h20), "gpu.model", "H20 96GB").outcome == "pass"


def test_modified_card() -> None:
    rebuilt = valued(model=RTX4090, memory_total_mib=49140.0)
    found = one(rebuilt, "gpu.model", "RTX 4090")
    assert (found.outcome, found.reason_code) == ("fail", "not-equal")
    assert "changed by" in str(found.reason)
    assert one(rebuilt, "gpu.memory", "24 GB").outcome == "pass"


FORGED = [
    (("nvml", "smi"), "fail"),  # PCI id, /proc and CUDA say otherwise: proven
    (("nvml", "smi", "proc"), "fail"),  # true PCI id and number of multiprocessors
    (("nvml", "smi", "proc", "cuda"), "fail"),  # every name; the id and the multiprocessors remain
    (("smi",), "fail"),  # nvidia-smi alone: NVML says that it is no H100
]


@pytest.mark.parametrize(("liars", "outcome"), FORGED)
def test_another_name(liars: tuple[str, ...], outcome: str) -> None:
    """An A100 that these sources call H100."""
    a100 = {**H100, "name": "NVIDIA A100-SXM4-80GB", "pci_device_id": "10de:20b2", "sm_count": 108}
    cards = [saying(gpu(s, i, a100), liars, name="NVIDIA H100 80GB HBM3") for i, s in enumerate(SLOTS)]
    facts = node(gpus(*cards))
    found = judged(facts, *(clause(k, t) for k, t in ALL.items()))
    assert found[f"gpu.model@{SLOTS[0]}"].outcome == outcome
    if "nvml" in liars:
        rest = [f for i, f in found.items() if "@" in i and not i.startswith("gpu.model")]
        assert {f.reason_code for f in rest} == {"not-corroborated"}


def test_one_voice_against_the_library_proves_nothing() -> None:
    """A PCI id of another product, all else as promised: not corroborated, and never accepted."""
    facts = machine(lambda card: saying(card, ["pci"], pci_device_id="10de:20b2"))
    found = judged(facts, *(clause(k, t) for k, t in ALL.items()))
    mine = [f for i, f in found.items() if i.endswith(SLOTS[0])]
    assert {(f.outcome, f.reason_code) for f in mine} == {("inconclusive", "not-corroborated")}
    others = [f for i, f in found.items() if i.endswith(SLOTS[1])]
    assert {f.outcome for f in others} == {"pass"}


def test_forged_tool_does_not_spoil_what_nvml_says() -> None:
    facts = machine(lambda card: saying(card, ["smi"], name="NVIDIA H200", memory_total_mib=143771.0))
    assert outcomes(facts) == {}


def test_tool_against_library_without_a_third_source() -> None:
    def torn(card: Gpu) -> Gpu:
        bare = replace(card, pci=Source("pci", {}), proc=Source("proc", {}), cuda=Source("cuda", {}))
        return saying(bare, ["smi"], name="NVIDIA H200")

    found = one(machine(torn), "gpu.memory", "80 GB")
    assert (found.outcome, found.reason_code) == ("inconclusive", "not-corroborated")


def test_model_that_nothing_else_names() -> None:
    def alone(card: Gpu) -> Gpu:
        return replace(card, pci=Source("pci", {}), proc=Source("proc", {}), cuda=Source("cuda", {}))

    found = one(machine(alone), "gpu.model", "H100 SXM5 80GB")
    assert (found.outcome, found.reason_code) == ("inconclusive", "not-corroborated")


# --- how many ---------------------------------------------------------------------------------------------------------


def lost(card: Gpu) -> Gpu:
    why = Missing("failed", msg("NVML: NVML_ERROR_GPU_IS_LOST"), ("evidence/0001-nvml",))
    return replace(card, nvml=Source("nvml", {}, why))


def test_lost_card() -> None:
    """nvidia-smi still prints the name; the card does not count, and its own clauses alone stay open."""
    found = outcomes(machine(lost, 2))
    assert found.pop("gpu.count") == "fail"
    assert set(found.values()) == {"inconclusive"}
    assert all(i.endswith(SLOTS[2]) for i in found)
    assert SLOTS[2] in str(one(machine(lost, 2), "gpu.count", "4", None).reason)


def test_count_without_independent_sources() -> None:
    cards = node()["gpus"].gpus
    facts = node(gpus(*cards, sources={"nvml": known(SLOTS), "smi": GONE, "pci": GONE, "proc": GONE, "cuda": GONE}))
    assert one(facts, "gpu.count", "4", None).reason_code == "not-corroborated"
    assert one(facts, "gpu.count", "8", None).outcome == "fail"


def test_count_of_a_card_that_is_not_on_the_bus() -> None:
    cards = node()["gpus"].gpus
    sources = {**node()["gpus"].sources, "pci": known(SLOTS[:3], "pci")}
    facts = node(gpus(*cards, sources=sources))
    assert one(facts, "gpu.count", "4", None).reason_code == "not-corroborated"
    assert one(facts, "gpu.count", "5", None).outcome == "fail"
    assert one(facts, "gpu.memory", "80 GB", SLOTS[3]).reason_code == "not-corroborated"


def test_no_driver() -> None:
    absent = Missing("no-tool", msg("NVML: NVML_ERROR_LIBRARY_NOT_FOUND"), (), msg("install the driver"))
    cards = [_without_driver(gpu(s, i, H100), absent) for i, s in enumerate(SLOTS)]
    sources: dict[str, Any] = dict.fromkeys(("nvml", "smi", "proc", "cuda"), absent)
    listed = {**sources, "pci": known(SLOTS, "pci")}
    facts = node(gpus(*cards, sources=listed, driver=sources, cuda_version=sources))
    found = judged(facts, *(clause(k, t) for k, t in ALL.items()))
    assert {f.outcome for f in found.values()} == {"inconclusive"}
    assert all(f.grant for f in found.values())
    assert one(facts, "gpu.count", "8", None).outcome == "fail"  # fewer on the bus than promised needs no driver


def _without_driver(card: Gpu, absent: Missing) -> Gpu:
    silent = {n: Source(n, {}, absent) for n in ("nvml", "smi", "proc", "cuda")}
    return Gpu(card.slot, absent, absent, silent["nvml"], silent["smi"], card.pci, silent["proc"], silent["cuda"])


# --- memory, driver, modes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("promised", "values", "outcome"),
    [
        ("80 GB", {}, "pass"),
        ("80 GiB", {}, "pass"),  # the card of that name, in whatever unit it was written
        ("80 GB", {"memory_total_mib": 78000.0}, "fail"),  # more than 80e9 bytes, and still a slice of this card
        ("80 GB", {"memory_total_mib": 81251.0}, "pass"),
        ("96 GB", {}, "fail"),
        (">= 40 GB", {}, "pass"),
        ("80 GB", {"memory_total_mib": DENIED}, "inconclusive"),
    ],
)
def test_memory(promised: str, values: dict[str, Any], outcome: str) -> None:
    assert one(valued(**values), "gpu.memory", promised).outcome == outcome


def test_memory_in_its_ecc_mode() -> None:
    l40s = {**H100, "name": "NVIDIA L40S", "pci_device_id": "10de:26b9", "sm_count": 142, "nvlinks": GONE}
    on = {**l40s, "memory_total_mib": 46068.0, "ecc_current": True}
    off = {**l40s, "memory_total_mib": 46068.0, "ecc_current": False}
    assert one(valued(model=on), "gpu.memory", "48 GB").outcome == "pass"
    assert one(valued(model=off), "gpu.memory", "48 GB").outcome == "fail"  # 49140 with ECC off


@pytest.mark.parametrize(
    ("key", "text", "changes", "outcome"),
    [
        ("gpu.driver", ">= 550.54", {}, "pass"),
        ("gpu.driver", ">= 570", {}, "fail"),
        ("gpu.driver", ">= 550", {"driver": {"nvml": known("550.54.15"), "proc": known("570.1")}}, "inconclusive"),
        ("gpu.driver", ">= 550", {"driver": {"nvml": GONE, "smi": GONE, "proc": known("570.1")}}, "inconclusive"),
        ("gpu.driver", ">= 550", {"smi": Missing("timeout", msg("no answer"))}, "inconclusive"),
        ("gpu.driver", ">= 550", {"smi": Missing("no-tool", msg("not installed"))}, "pass"),
        ("gpu.driver", ">= 550", {"smi": Missing("unparsable", msg("garbage"))}, "pass"),  # NVML and kernel agree
        ("gpu.driver", ">= 570", {"smi": Missing("unparsable", msg("garbage"))}, "fail"),
        (
            "gpu.driver",
            ">= 550",
            {"smi": Missing("unparsable", msg("garbage")), "driver": {"nvml": known("550.54.15"), "proc": GONE}},
            "inconclusive",
        ),
        (
            "gpu.driver",
            ">= 550",
            {"driver": {"nvml": known("550.1"), "smi": known("999.9"), "proc": known("550.1")}},
            "pass",
        ),
        (
            "gpu.driver",
            ">= 560",
            {"driver": {"nvml": known("550.1"), "smi": known("999.9"), "proc": known("550.1")}},
            "fail",
        ),
        (
            "gpu.driver",
            ">= 550",
            {"driver": {"nvml": known("\ufffd"), "smi": known("550.1"), "proc": known("550.1")}},
            "pass",
        ),
        (
            "gpu.driver",
            ">= 550",
            {"driver": {"nvml": known("\ufffd"), "smi": GONE, "proc": known("550.1")}},
            "inconclusive",
        ),
        ("gpu.cuda", ">= 12.4", {}, "pass"),
        ("gpu.cuda", ">= 12.6", {}, "fail"),
        ("gpu.cuda", ">= 12.6", {"cuda_version": {"nvml": known("12.4"), "cuda": known("12.8")}}, "inconclusive"),
        ("gpu.cuda", ">= 12.4", {"cuda_version": {"nvml": GONE, "smi": GONE, "cuda": known("12.8")}}, "inconclusive"),
    ],
)
def test_driver(key: str, text: str, changes: dict[str, Any], outcome: str) -> None:
    facts = node(replace(node()["gpus"], **changes))
    assert one(facts, key, text, None).outcome == outcome


def test_the_voice_on_the_driver_that_is_not_believed_is_named() -> None:
    voices = {"nvml": known("550.54.15"), "smi": known("999.9"), "proc": known("550.54.15")}
    found = one(node(replace(node()["gpus"], driver=voices)), "gpu.driver", ">= 550", None)
    assert "not believed: nvidia-smi says 999.9" in [str(n) for n in found.notes]
    garbage = Missing("unparsable", msg("nvidia-smi: no XML"))
    found = one(node(replace(node()["gpus"], smi=garbage)), "gpu.driver", ">= 550", None)
    assert "not believed: nvidia-smi: no XML" in [str(n) for n in found.notes]


@pytest.mark.parametrize(
    ("key", "text", "model", "values", "outcome"),
    [
        ("gpu.ecc", "on", H100, {}, "pass"),
        ("gpu.ecc", "on", H100, {"ecc_current": False}, "fail"),
        ("gpu.ecc", "on", H100, {"ecc_current": GONE}, "inconclusive"),
        ("gpu.ecc", "off", H100, {"ecc_current": GONE}, "inconclusive"),
        ("gpu.mig", "off", H100, {}, "pass"),
        ("gpu.mig", "off", H100, {"mig_current": True}, "fail"),
        ("gpu.mig", "off", H100, {"mig_current": GONE}, "inconclusive"),
        ("gpu.mig", "off", RTX4090, {"mig_current": GONE}, "pass"),  # built without
        ("gpu.mig", "off", RTX4090, {"mig_current": DENIED}, "inconclusive"),
        ("gpu.power_limit", "default", H100, {"power_enforced_w": 450.0}, "fail"),
        ("gpu.power_limit", "default", H100, {"power_enforced_w": GONE}, "inconclusive"),
        ("gpu.power_limit", "default", H100, {"power_default_w": GONE}, "inconclusive"),
        ("gpu.power_limit", "default", H100, {"power_default_w": 600.0, "power_enforced_w": 600.0}, "pass"),
        ("gpu.power_limit", "700 W", H100, {"power_default_w": 600.0, "power_enforced_w": 600.0}, "fail"),
        ("gpu.power_limit", "700 W", H100, {}, "pass"),
        ("gpu.clocks", "unlocked", H100, {}, "inconclusive"),  # only load shows
        ("gpu.clocks", "unlocked", H100, {"app_clock_sm_mhz": 1200.0}, "fail"),
        ("gpu.clocks", "unlocked", H100, {"throttle": 0x80}, "fail"),
        ("gpu.clocks", "unlocked", H100, {"throttle": 0x8}, "inconclusive"),  # may flash
        ("gpu.clocks", "unlocked", H100, {"throttle": GONE}, "inconclusive"),
        ("gpu.pcie", "Gen5 x16", H100, {}, "inconclusive"),  # idle Gen1 is no fault, and proves nothing
        ("gpu.pcie", "Gen5 x16", H100, {"pcie_gen_max": 3}, "fail"),
        ("gpu.pcie", "Gen5 x16", H100, {"pcie_width_max": 8}, "fail"),
        ("gpu.pcie", "x8", H100, {"pcie_gen_max": 3, "pcie_width_max": 8}, "inconclusive"),
        ("gpu.nvlink", "900 GB/s", H100, {}, "pass"),
        ("gpu.nvlink", "18 links", H100, {}, "pass"),
        ("gpu.nvlink", "none", H100, {}, "fail"),
        ("gpu.nvlink", "none", RTX4090, {}, "pass"),
        ("gpu.nvlink", "none", H100, {"nvlinks": GONE}, "inconclusive"),
        ("gpu.nvlink", "900 GB/s", H100, {"nvlinks": ()}, "fail"),
        ("gpu.nvlink", "900 GB/s", H100, {"fabric": Fabric("in-progress")}, "fail"),
        ("gpu.nvlink", "900 GB/s", H100, {"fabric": GONE}, "pass"),
        ("gpu.nvlink", "12 links", H100, {"nvlinks": tuple(NvLink(n, n < 8, 4) for n in range(12))}, "fail"),
        ("gpu.nvlink", "12 links", H100, {"nvlinks": tuple(NvLink(n, None) for n in range(12))}, "inconclusive"),
    ],
)
def test_card(key: str, text: str, model: dict[str, Any], values: dict[str, Any], outcome: str) -> None:
    found = one(valued(model=model, **values), key, text)
    assert (found.outcome, bool(found.evidence)) == (outcome, True), str(found.reason)


def test_capped_card_names_both_limits() -> None:
    found = one(valued(power_enforced_w=450.0), "gpu.power_limit", "default")
    assert (found.measured, found.unit, found.limit and found.limit.value) == (450.0, "W", 700.0)


def test_load_is_forgiven_where_the_contract_says_so() -> None:
    found = one(node(), "gpu.pcie", "Gen5 x16", if_unreadable="advisory")
    assert (found.reason_code, found.severity) == ("needs-load", "advisory")


def test_links_that_are_down_are_named() -> None:
    links = tuple(NvLink(n, n not in (3, 7), 6, "switch") for n in range(18))
    found = one(valued(nvlinks=links), "gpu.nvlink", "900 GB/s")
    assert (found.measured, found.outcome) == (800.0, "fail")
    assert "down: 3, 7" in str(found.reason)


def test_p2p() -> None:
    refused = replace(node()["gpus"], p2p={**node()["gpus"].p2p, (SLOTS[0], SLOTS[2]): {"read": "CNS"}})
    found = one(node(refused), "gpu.p2p", "true", None)
    assert found.outcome == "fail"
    assert f"{SLOTS[0]} – {SLOTS[2]}" in str(found.reason)
    assert one(node(replace(refused, p2p={})), "gpu.p2p", "true", None).outcome == "inconclusive"
    assert one(node(gpus(gpu(SLOTS[0], 0, H100))), "gpu.p2p", "true", None).outcome == "inconclusive"


def test_p2p_of_a_changed_driver_is_said() -> None:
    cards = [gpu(s, i, RTX4090) for i, s in enumerate(SLOTS)]
    found = one(node(gpus(*cards)), "gpu.p2p", "true", None)
    assert found.outcome == "pass"
    assert "changed" in str(found.notes[0])


# --- wear and faults --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "outcome"),
    [
        ({"ecc_uncorrected_aggregate": 3}, "fail"),
        ({"remapped_failure": True}, "fail"),
        ({"remapped_pending": True}, "fail"),
        ({"remapped_uncorrectable": 2}, "fail"),
        ({"retired_pages": 4}, "fail"),
        ({"inforom_valid": False}, "fail"),
        ({"vbios": "96.00.74.00.0D"}, "fail"),
        ({"board_part": "692-2G520-0200-001"}, "fail"),
        ({"ecc_uncorrected_aggregate": GONE}, "inconclusive"),
        ({"remapped_failure": GONE}, "inconclusive"),
        ({"remapped_failure": GONE, "retired_pages": 0}, "pass"),  # before Ampere
    ],
)
def test_condition(values: dict[str, Any], outcome: str) -> None:
    cards = [gpu(s, i, {**H100, **values} if i == 0 else H100) for i, s in enumerate(SLOTS)]
    if "retired_pages" in values:
        cards[0] = saying(cards[0], ["nvml"], retired_pages=values["retired_pages"])
    found = judged(node(gpus(*cards)), clause("gpu.condition", "new"))
    assert found[f"gpu.condition@{SLOTS[0]}"].outcome == outcome
    assert found[f"gpu.condition@{SLOTS[1]}"].outcome == "pass"


def xid(number: int, kind: Optional[str], slot: Optional[str] = SLOTS[1]) -> LogEvent:
    return LogEvent("xid", number, slot, kind, f"Xid {number}", f"[1.0] NVRM: Xid (PCI:{slot}): {number}")


@pytest.mark.parametrize(
    ("event", "bad"),
    [
        (xid(79, "hardware"), f"gpu.xid@{SLOTS[1]}"),
        (xid(74, "nvlink"), f"gpu.xid@{SLOTS[1]}"),
        (xid(119, "driver"), f"gpu.xid@{SLOTS[1]}"),
        (xid(63, "wear"), f"gpu.xid@{SLOTS[1]}"),
        (LogEvent("fallen_off_bus", None, SLOTS[1], None, "fallen off the bus", "x"), f"gpu.xid@{SLOTS[1]}"),
        (xid(79, "hardware", None), "gpu.xid"),
        (xid(13, "application"), None),  # a program's own bug
        (xid(31, "application"), None),
        (xid(43, "application"), None),
        (xid(45, "side-effect"), None),
    ],
)
def test_xid(event: LogEvent, bad: Optional[str]) -> None:
    found = judged(node(kernel_log=events(event)), clause("gpu.xid", "none"))
    assert {i for i, f in found.items() if f.outcome == "fail"} == ({bad} if bad else set())
    assert {f.outcome for f in found.values()} == ({"fail"} if bad else {"pass"})


@pytest.mark.parametrize(("event", "outcome"), [(xid(79, "hardware"), "fail"), (xid(31, "application"), "pass")])
def test_xid_during_the_loads(event: LogEvent, outcome: str) -> None:
    """A card that falls off the bus under load breaks the promise; our own worker's bad address does not."""
    log = replace(events(), after=events(event).log)
    found = judged(node(kernel_log=log), clause("gpu.xid", "none"))
    assert {f.outcome for f in found.values()} == {outcome}


@pytest.mark.parametrize(("before", "outcome"), [((), "inconclusive"), ((xid(79, "hardware"),), "fail")])
def test_a_log_that_cannot_be_read_again(before: tuple[LogEvent, ...], outcome: str) -> None:
    log = replace(events(*before), after=Missing("timeout", msg("dmesg gave no answer")))
    assert {f.outcome for f in judged(node(kernel_log=log), clause("gpu.xid", "none")).values()} == {outcome}


def test_log_that_forgot_its_beginning() -> None:
    assert one(node(kernel_log=events(since_boot=False)), "gpu.xid", "none", None).outcome == "inconclusive"


# --- whole cards ------------------------------------------------------------------------------------------------------

SOMEBODY = Process(31415, "compute", 60210.0, "python3")


@pytest.mark.parametrize(
    ("values", "outcome"),
    [
        ({}, "pass"),
        ({"mig_current": True}, "fail"),
        ({"virtualization_mode": "vgpu"}, "fail"),
        ({"virtualization_mode": "passthrough"}, "pass"),
        ({"virtualization_mode": GONE}, "inconclusive"),
        ({"memory_total_mib": 40000.0}, "fail"),
        ({"memory_total_mib": 1000.0, "memory_free_mib": 30837.0}, "fail"),
        ({"sm_count": 66, "mig_current": True}, "fail"),
        ({"processes": (SOMEBODY,), "memory_used_mib": 60744.0}, "fail"),
        ({"processes": GONE}, "inconclusive"),
        ({"memory_used_mib": 256.0}, "pass"),  # firmware
        ({"memory_used_mib": 23117.0}, "fail"),
        ({"utilization_gpu": 40}, "fail"),
        ({"memory_total_mib": GONE}, "inconclusive"),
    ],
)
def test_whole_card(values: dict[str, Any], outcome: str) -> None:
    cards = [gpu(s, i, {**H100, **values} if i == 0 else H100) for i, s in enumerate(SLOTS)]
    found = judged(node(gpus(*cards)), clause("gpu.whole_card", "true"))
    assert found[f"gpu.whole_card@{SLOTS[0]}"].outcome == outcome
    assert found[f"gpu.whole_card@{SLOTS[1]}"].outcome == "pass"


def test_own_process_is_never_somebody() -> None:
    mine = ProcessesFacts(known({31415: Running(1000, "python3")}, "ps"), known(1000, "id"))
    busy = valued(processes=(SOMEBODY,), memory_used_mib=60744.0)
    found = one({**busy, "processes": mine}, "gpu.whole_card", "true")
    assert (found.outcome, found.reason_code) == ("inconclusive", "disturbed")
    theirs = ProcessesFacts(known({31415: Running(0, "python3")}, "ps"), known(1000, "id"))
    assert one({**busy, "processes": theirs}, "gpu.whole_card", "true").outcome == "fail"
    # A container's own process of that number is another program.
    other = ProcessesFacts(known({31415: Running(1000, "bash")}, "ps"), known(1000, "id"))
    assert one({**busy, "processes": other}, "gpu.whole_card", "true").outcome == "fail"


def test_slicing_software() -> None:
    share = replace(node()["gpu_share"], preload=known(("/usr/local/vgpu/libvgpu.so",), "share"))
    assert one(node(gpu_share=share), "gpu.whole_card", "true").outcome == "fail"
    plain = replace(node()["gpu_share"], preload=known(("/usr/lib/libjemalloc.so",), "share"))
    assert one(node(gpu_share=plain), "gpu.whole_card", "true").outcome == "pass"


def test_unknown_model_cannot_be_called_whole() -> None:
    old = valued(name="NVIDIA GeForce GTX 1080", pci_device_id="10de:1b80", sm_count=20)
    assert one(old, "gpu.whole_card", "true").outcome == "inconclusive"


# --- nothing is invented ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [GONE, DENIED, Missing("failed", msg("NVML: NVML_ERROR_UNKNOWN"), ("evidence/x",))])
def test_nothing_passes_where_nvml_says_nothing(error: Missing) -> None:
    """PCI, /proc and CUDA answer as ever."""
    mute = [n for n in H100 if n != "sm_count"]
    cards = []
    for i, s in enumerate(SLOTS):
        whole = gpu(s, i, H100)
        nvml, smi = (Source(n, dict.fromkeys(mute, error)) for n in ("nvml", "smi"))
        cards.append(replace(whole, nvml=nvml, smi=smi))
    versions = {"nvml": error, "smi": error, "proc": known("550.54.15", "proc"), "cuda": known("12.4", "cuda")}
    facts = node(gpus(*cards, driver=versions, cuda_version=versions))
    extra = {
        "gpu.clocks": "unlocked",
        "gpu.pcie": "Gen5 x16",
        "topology.gpu_gpu": "NVLink",
        "topology.numa": "balanced",
    }
    found = judged(facts, *(clause(k, t) for k, t in {**ALL, **extra}.items()))
    assert {f.outcome for f in found.values()} == {"inconclusive"}
    assert all(str(f.reason) for f in found.values())


@pytest.mark.parametrize("name", sorted(n for n in H100 if n not in ("name", "sm_count")))
def test_no_single_missing_value_passes_as_something(name: str) -> None:
    """Without one of NVML's values a clause may stay open, never break."""
    cards = [gpu(s, i, H100) for i, s in enumerate(SLOTS)]
    cards[0] = saying(cards[0], ["nvml", "smi"], **{name: DENIED})
    found = outcomes(node(gpus(*cards)))
    assert set(found.values()) <= {"inconclusive"}
    assert isinstance(cards[0].nvml.get(name), Missing)
    assert isinstance(cards[1].nvml.get(name), Known)
