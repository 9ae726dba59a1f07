"""Machines that look odd and are honest: nothing about them is an accusation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.facts._source import Process
from agent.facts.processes import ProcessesFacts, Running
from tests.checks.gpu_node import GONE, H100, RTX4090, SLOTS, events, gpu, gpus, known, node, one, valued
from tests.checks.test_gpu import xid
from tests.checks.test_integrity_gpu import failed, look

GUEST = {**H100, "virtualization_mode": "passthrough"}


@pytest.mark.parametrize("name", ["NVIDIA GH200 480GB", "NVIDIA GB200", "NVIDIA GB300", "NVIDIA A100-PG509-200"])
def test_products_named_like_a_chip_are_no_samples(name: str) -> None:
    assert f"integrity.gpu_sample@{SLOTS[0]}" not in failed(valued(name=name))


@pytest.mark.parametrize("name", ["NVIDIA GA102", "NVIDIA GH100", "NVIDIA GB202", "NVIDIA PG506-232"])
def test_chips_and_boards_in_the_place_of_a_product_are_named(name: str) -> None:
    assert look(valued(name=name))[f"integrity.gpu_sample@{SLOTS[0]}"].reason_code == "engineering-sample"


def test_a_card_without_a_name_may_be_newer_than_its_driver() -> None:
    found = look(valued(name="NVIDIA Graphics Device"))[f"integrity.gpu_sample@{SLOTS[0]}"]
    assert (found.outcome, found.severity, found.reason_code) == ("fail", "advisory", "nameless")
    assert "older than the card" in str(found.reason)


def test_the_link_of_a_guest_is_the_hypervisors() -> None:
    cards = [gpu(s, i, {**GUEST, "pcie_gen_max": 1, "pcie_width_max": 1}) for i, s in enumerate(SLOTS)]
    found = one(node(gpus(*cards)), "gpu.pcie", "Gen5 x16")
    assert (found.outcome, found.reason_code) == ("inconclusive", "unsupported")
    assert found.grant is not None
    assert one(valued(pcie_gen_max=1), "gpu.pcie", "Gen5 x16").outcome == "fail"


def test_the_tree_of_a_guest_is_the_hypervisors_and_nvlinks_are_real() -> None:
    unlinked = [gpu(s, i, {**GUEST, "nvlinks": ()}) for i, s in enumerate(SLOTS)]
    assert one(node(gpus(*unlinked)), "topology.gpu_gpu", "<= PIX", None).outcome == "inconclusive"
    assert one(node(gpus(*unlinked)), "topology.gpu_gpu", "NVLink", None).outcome != "pass"
    linked = [gpu(s, i, GUEST) for i, s in enumerate(SLOTS)]
    assert one(node(gpus(*linked)), "topology.gpu_gpu", "NVLink", None).outcome == "pass"


def with_process(process: Process, running: dict[int, Running]) -> dict[str, Any]:
    return {**valued(model=RTX4090, processes=(process,)), "processes": ProcessesFacts(known(running), known(1000))}


@pytest.mark.parametrize(
    ("process", "command", "counts"),
    [
        (Process(900, "graphics", 4.0, "/usr/lib/xorg/Xorg"), "Xorg", False),
        (Process(900, "graphics", 4.0, "/usr/lib/xorg/Xorg"), "miner", True),
        (Process(900, "graphics", 9000.0, "/usr/lib/xorg/Xorg"), "Xorg", True),
        (Process(900, "compute", 4.0, "/usr/lib/xorg/Xorg"), "Xorg", True),
        (Process(901, "graphics", 4.0, "/usr/lib/xorg/Xorg"), "Xorg", True),  # not seen here: another's
    ],
)
def test_the_display_server_of_this_system_is_nobody(process: Process, command: str, counts: bool) -> None:
    facts = with_process(process, {900: Running(0, command)})
    facts["gpus"] = replace(facts["gpus"], p2p={})
    assert (f"integrity.foreign_process@{SLOTS[0]}" in failed(facts)) is counts


def test_a_driver_that_was_just_woken_scrubs_memory() -> None:
    assert f"integrity.memory_without_owner@{SLOTS[0]}" in failed(valued(utilization_gpu=97, persistence=True))
    assert failed(valued(utilization_gpu=97, persistence=False)) == {}


def test_faults_of_cards_that_this_container_was_not_given_are_not_its_own() -> None:
    other = "0000:f0:00.0"
    log = events(xid(79, "hardware", other))
    beside = node(replace(node()["gpus"], hidden=(other,)), kernel_log=log)
    assert one(beside, "gpu.xid", "none", None).outcome == "pass"
    assert failed(beside) == {}
    own = node(kernel_log=log)  # a card that fell off the bus is in no list any more
    assert one(own, "gpu.xid", "none", other).outcome == "fail"


def test_another_lot_is_not_called_used() -> None:
    found = one(valued(vbios="96.00.74.00.0D"), "gpu.condition", "new")
    assert (found.outcome, found.reason_code, found.measured) == ("fail", "differs", "of another lot")
    found = one(valued(ecc_uncorrected_aggregate=3), "gpu.condition", "new")
    assert (found.reason_code, found.measured) == ("worn", "used")


def test_cards_that_nvml_counts_are_not_called_absent() -> None:
    silent = gpus(
        sources={**dict.fromkeys(("nvml", "smi", "proc", "cuda"), GONE), "pci": known((), "pci")},
        unopened=((0, "NVML_ERROR_NO_PERMISSION"),),
    )
    found = one(node(silent), "gpu.count", "1", None)
    assert found.outcome == "inconclusive"
    assert "no NVIDIA GPU on the PCI bus" not in str(found.reason)
