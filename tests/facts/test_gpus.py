from __future__ import annotations

import time
from pathlib import Path

import pytest

from agent.facts import Asked, _nvml, gpu_share, gpus
from agent.facts._slot import order, slot
from agent.facts.gpus import GpusFacts
from agent.tools import nvml
from tests.facts.fake import Start, replay
from tests.facts.node import missing, value
from tests.fakenode import healthy, wrong

LOST = 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("00000000:1B:00.0", "0000:1b:00.0"),
        ("0000:1b:00.0", "0000:1b:00.0"),
        ("GPU0000:A1:00.0", "0000:a1:00.0"),
        ("PCI:0000:a1:00", "0000:a1:00.0"),
        ("1b:00.1", "0000:1b:00.1"),
        ("00010000:01:00.0", "10000:01:00.0"),
        ("0001:00:00.0", "0001:00:00.0"),
        ("", None),
        ("N/A", None),
        ("1b", None),
        (None, None),
    ],
)
def test_slot(text: str, expected: str) -> None:
    assert slot(text) == expected


def test_slots_in_the_order_of_the_bus() -> None:
    assert sorted(["10000:01:00.0", "0001:00:00.0", "0000:df:00.0", "0000:1b:00.0"], key=order) == [
        "0000:1b:00.0",
        "0000:df:00.0",
        "0001:00:00.0",
        "10000:01:00.0",
    ]


@pytest.mark.parametrize("name", list(healthy.ALL))
def test_healthy(name: str, start: Start, tmp_path: Path) -> None:
    """Every source lists every card, all agree, and the recording says the same."""
    node = healthy.ALL[name]()
    facts = gpus.collect(start(node), Asked())
    assert [g.slot for g in facts.gpus] == [card.slot for card in node.listed]
    for gpu, card in zip(facts.gpus, node.listed):
        assert gpu.seen_by == gpus.SOURCES
        assert {value(gpu.source(s).get("name")) for s in ("nvml", "smi", "proc", "cuda")} == {card.name}
        ids = {value(gpu.source(s).get("pci_device_id")) for s in ("nvml", "smi", "pci")}
        assert ids == {f"10de:{card.device_id:04x}"}
        assert value(gpu.any("sm_count")) == card.sm
        assert value(gpu.nvml.get("memory_total_mib")) == card.memory_mib
        # What CUDA may give away lacks the driver's reserve.
        mine = value(gpu.cuda.get("memory_total_mib")) + value(gpu.nvml.get("memory_reserved_mib"))
        assert value(gpu.nvml.get("memory_total_mib")) == mine
        assert value(gpu_share.unowned(gpu)) == 0
    assert value(facts.counted) == len(node.listed)
    assert value(facts.library_matches) is True
    assert value(facts.smi_is_script) is False
    assert facts.unopened == ()
    assert gpus.collect(replay(tmp_path), Asked()) == facts


def test_eight_gpus_in_a_real_child_take_less_than_one_and_a_half_seconds(start: Start) -> None:
    """The best of three: other programs on the machine are not what is measured."""
    host = start(healthy.h100())
    took = []
    for _ in range(3):
        begun = time.monotonic()
        facts = _nvml.ask(host)
        took.append(time.monotonic() - begun)
        assert isinstance(facts, nvml.Nvml)
        assert facts.done
        assert len(facts.gpus) == 8
    assert min(took) < 1.5


def test_every_value_of_a_card(start: Start) -> None:
    """Units, words and booleans as the vocabulary promises."""
    gpu = gpus.collect(start(healthy.h100()), Asked()).gpus[0]
    told = {name: gpu.nvml.get(name) for name in gpu.nvml.values}
    wanted = {
        "architecture": "Hopper",
        "compute_capability": "9.0",
        "power_default_w": 700.0,
        "power_enforced_w": 700.0,
        "ecc_current": True,
        "mig_current": False,
        "persistence": True,
        "virtualization_mode": "none",
        "compute_mode": "default",
        "remapped_failure": False,
        "ecc_uncorrected_aggregate": 0,
        "recovery_action": "none",
        "pcie_gen_max": 5,
        "pcie_width_max": 16,
        "bus_width_bits": 5120,
        "inforom_valid": True,
        "processes": (),
        "throttle": 1,
    }
    assert {name: value(told[name]) for name in wanted} == wanted
    missing(told["retired_pages"], "unsupported")
    missing(gpu.nvml.get("no_such_name"), "unsupported")
    links = value(told["nvlinks"])
    assert len(links) == 18
    assert {(x.active, x.remote_type) for x in links} == {(True, "switch")}
    assert value(told["fabric"]).state == "completed"
    assert value(told["fabric"]).status == "NVML_SUCCESS"


def test_a_lost_card_leaves_seven_readable(start: Start, tmp_path: Path) -> None:
    facts = gpus.collect(start(wrong.lost(healthy.h100(), LOST)), Asked())
    assert len(facts.gpus) == 8
    gone = facts.gpus[LOST]
    assert value(gone.index) == LOST
    assert "GPU_IS_LOST" in str(missing(gone.nvml.get("name"), "failed").detail)
    missing(gone.cuda.get("name"), "not-there")
    assert value(gone.smi.get("lost")) is True
    assert value(gone.pci.get("dead")) is True
    assert [g.slot for g in facts.gpus if "nvml" in g.seen_by] == [g.slot for g in facts.gpus if g is not gone]
    assert [index for index, _ in facts.unopened] == [LOST]
    assert gpus.collect(replay(tmp_path), Asked()) == facts


def test_a_hanging_call_costs_its_deadline_and_the_others_are_read(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "CALL_S", 1.0)
    begun = time.monotonic()
    facts = gpus.collect(start(wrong.nvml_hangs(healthy.h100(), LOST)), Asked())
    assert time.monotonic() - begun < 20  # the deadline is 1 s, a stuck run would never end
    silent = [g for g in facts.gpus if any(getattr(r, "kind", "") == "timeout" for r in _readings(facts, g.slot))]
    assert [value(g.index) for g in silent] == [LOST]
    assert all(value(g.nvml.get("temperature_c")) for g in facts.gpus if value(g.index) != LOST)
    # What was read before the call that hangs is kept.
    assert value(facts.gpus[LOST].nvml.get("name")) == healthy.h100().cards[LOST].name
    assert gpus.collect(replay(tmp_path), Asked()) == facts


def _readings(facts: GpusFacts, where: str) -> list[object]:
    gpu = facts.of(where)
    assert gpu is not None
    return [gpu.nvml.get(name) for name in ("name", "power_w", "temperature_c", "fabric")]


def test_all_cards_hanging_are_bounded(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three children, not eight."""
    monkeypatch.setattr(nvml, "CALL_S", 0.4)
    host = start(healthy.h100().answering("* nvmlDeviceGetTemperature* hang"))
    found = _nvml.ask(host)
    assert [ran.probe for ran in host.log] == ["nvml", "nvml.2", "nvml.3"]
    assert isinstance(found, nvml.Nvml)
    assert len(found.gpus) == 8
    assert all(missing(g.source.get("temperature_c"), "timeout") for g in found.gpus.values())


def test_an_initialisation_that_hangs(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "CALL_S", 0.05)
    host = start(healthy.h100().answering("- nvmlInit* hang"))
    facts = gpus.collect(host, Asked())
    assert [ran.probe for ran in host.log if ran.probe.startswith("nvml")] == ["nvml"]
    missing(facts.sources["nvml"], "timeout")
    missing(facts.gpus[0].nvml.get("name"), "timeout")
    assert len(facts.gpus) == 8


def test_a_child_that_crashes_reads_the_others_in_the_next(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """No line about it: the first card that was not come to is the one to leave out."""
    real = nvml.parse
    cut: list[int] = []

    def broken_off(text: str, evidence: tuple[str, ...] = ()) -> nvml.Nvml:
        if not cut:
            cut.append(1)
            text = "".join(line for line in text.splitlines(keepends=True)[:4])
        return real(text, evidence)

    monkeypatch.setattr(nvml, "parse", broken_off)
    host = start(healthy.h100())
    found = _nvml.ask(host)
    assert [ran.probe for ran in host.log] == ["nvml", "nvml.2"]
    assert isinstance(found, nvml.Nvml)
    assert [i for i, gpu in found.gpus.items() if gpu.slot is None] == [3]
    missing(found.gpus[3].source.get("name"), "interrupted")


def test_a_card_that_the_bus_lacks(start: Start) -> None:
    facts = gpus.collect(start(wrong.not_on_the_bus(healthy.h100(), LOST)), Asked())
    assert facts.gpus[LOST].seen_by == ("nvml", "smi", "proc", "cuda")
    missing(facts.gpus[LOST].pci.get("pci_device_id"), "not-there")


def test_other_tenants_cards_beside_a_container_are_not_ours(start: Start) -> None:
    node = healthy.container()
    facts = gpus.collect(start(node), Asked())
    assert [g.slot for g in facts.gpus] == [c.slot for c in node.listed]
    assert facts.hidden == tuple(c.slot for c in node.cards if c not in node.listed)


def test_a_card_that_no_driver_could_start_is_broken_not_hidden(start: Start) -> None:
    """The kernel unbinds a driver whose probe failed."""
    node = healthy.container()
    host = start(node)
    broken = node.cards[5].slot
    (host.root / "sys/bus/pci/devices" / broken / "driver").unlink()
    facts = gpus.collect(host, Asked())
    assert broken not in facts.hidden
    gpu = facts.of(broken)
    assert gpu is not None
    assert gpu.seen_by == ("pci",)
    missing(gpu.nvml.get("name"), "not-there")


def test_a_library_of_another_version(start: Start) -> None:
    facts = gpus.collect(start(healthy.vm().but(library_version="535.104.05")), Asked())
    assert value(facts.library_matches) is False


def test_driver_and_library_that_do_not_fit(start: Start) -> None:
    facts = gpus.collect(start(wrong.mismatch(healthy.h100())), Asked())
    assert "LIB_RM_VERSION_MISMATCH" in str(missing(facts.sources["nvml"], "failed").detail)
    missing(facts.sources["smi"], "failed")
    assert len(facts.gpus) == 8
    assert value(facts.driver["proc"])


def test_without_a_driver_the_bus_still_shows_the_cards(start: Start) -> None:
    facts = gpus.collect(start(wrong.no_driver(healthy.h100())), Asked())
    missing(facts.sources["nvml"], "no-tool")
    missing(facts.sources["cuda"], "no-tool")
    assert len(facts.gpus) == 8
    assert facts.gpus[0].seen_by == ("pci",)


@pytest.mark.parametrize(
    ("error", "kind"), [("UNKNOWN", "failed"), ("NOT_SUPPORTED", "unsupported"), ("NO_PERMISSION", "denied")]
)
def test_no_value_is_invented(error: str, kind: str, start: Start) -> None:
    """NVML opens every card and answers nothing."""
    quiet = healthy.h100().answering("* nvmlDeviceGetHandleByIndex ok", f"* nvmlDevice* error NVML_ERROR_{error}")
    facts = gpus.collect(start(quiet), Asked())
    assert value(facts.counted) == 8
    missing(facts.sources["nvml"], kind)
    for gpu in facts.gpus:
        assert gpu.nvml.values
        for name in gpu.nvml.values:
            missing(gpu.nvml.get(name), "unsupported" if name == "vgpu_license" and kind == "unsupported" else kind)


def test_a_script_in_the_place_of_nvidia_smi(start: Start) -> None:
    facts = gpus.collect(start(wrong.scripted(healthy.h100())), Asked())
    assert value(facts.smi_is_script) is True
    assert value(facts.nvidia_smi)[0].kind == "script"
    assert value(facts.nvidia_smi)[0].interpreter


def test_clocks_of_an_older_driver_under_the_older_name(start: Start) -> None:
    older = healthy.h100().answering(
        "* nvmlDeviceGetCurrentClocksEventReasons error NVML_ERROR_FUNCTION_NOT_FOUND",
        "0 nvmlDeviceGetCurrentClocksThrottleReasons 4",
    )
    assert value(gpus.collect(start(older), Asked()).gpus[0].nvml.get("throttle")) == 4


def test_a_guest_without_a_licence(start: Start) -> None:
    gpu = gpus.collect(start(wrong.vgpu(healthy.vm(), licensed=False)), Asked()).gpus[0]
    assert value(gpu.nvml.get("virtualization_mode")) == "vgpu"
    assert value(gpu.smi.get("vgpu_license")).startswith("Unlicensed")


def test_an_empty_recording_says_so(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    facts = gpus.collect(replay(tmp_path), Asked())
    assert facts.gpus == ()
    for reading in (*facts.sources.values(), *facts.driver.values(), facts.nodes, facts.smi, facts.library):
        missing(reading, "not-recorded")
