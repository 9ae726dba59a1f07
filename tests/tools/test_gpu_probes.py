"""Parsers of what the GPU probes print, and of /proc/driver/nvidia."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.reading import Known, Missing
from agent.tools import ParseError, cuda, nvidia_proc, nvml

HEAD = {"nvml": {"version": "12.570", "driver": "570.133.20", "cuda_driver": 12080, "library": "/lib/x.so"}, "count": 2}
CARD = {
    "gpu": 0,
    "slot": "00000000:1B:00.0",
    "pci_device_id": 0x233010DE,
    "name": "NVIDIA H100 80GB HBM3",
    "power_default_w": 700.0,
    "ecc_current": 1,
    "nvlinks": [{"link": 0, "state": 1, "remote_type": 2, "errors": {"replay": 3, "recovery_error": 3}}],
}
LINES = [
    HEAD,
    CARD,
    {"gpu": 1, "handle_error": "NVML_ERROR_GPU_IS_LOST"},
    {"p2p": {"0-1": {"read": 4}}},
    {"done": True},
]
CUDA = [
    {"cuda": {"driver_version": 12080, "library": "/lib/y.so", "hidden": "0"}, "count": 1},
    {"gpu": 0, "pci_bus_id": "0000:1B:00.0", "name": "x", "sm_count": 132, "cc_major": 9, "cc_minor": 0, "ecc": 1,
     "memory_total_bytes": 1 << 30, "clock_khz": 1980000, "integrated": 0, "compute_mode": 3},
    {"done": True},
]  # fmt: skip


def text(lines: Sequence[object]) -> str:
    return "".join(json.dumps(line) + "\n" for line in lines)


def test_nvml_lines() -> None:
    found = nvml.parse(text(LINES), ("evidence/1",))
    assert found.done
    assert found.cuda_driver == Known("12.8", ("evidence/1",))
    assert found.p2p == {(0, 1): {"read": "DR"}}
    source = found.gpus[0].source
    assert found.gpus[0].slot == "0000:1b:00.0"
    assert source.get("pci_device_id") == Known("10de:2330", ("evidence/1",))
    assert source.get("ecc_current") == Known(True, ("evidence/1",))
    links = source.get("nvlinks")
    assert isinstance(links, Known)
    assert links.value[0].errors == {"replay": 3}
    assert found.gpus[1].slot is None
    assert found.gpus[1].source.absent is not None


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("NVML_ERROR_NOT_SUPPORTED", "unsupported"),
        ("NVML_ERROR_FUNCTION_NOT_FOUND", "unsupported"),
        ("NVML_ERROR_NO_PERMISSION", "denied"),
        ("NVML_ERROR_GPU_IS_LOST", "failed"),
        ("NVML_ERROR_UNKNOWN", "failed"),
        ("NVML_ERROR_LIBRARY_NOT_FOUND", "no-tool"),
        ("NVML_ERROR_TIMEOUT", "timeout"),
        ("no pynvml: No module named 'pynvml'", "no-tool"),
    ],
)
def test_kinds_of_refusal(error: str, kind: str) -> None:
    found = nvml.missing(error)
    assert found.kind == kind
    assert error in str(found.detail)
    assert (found.grant is not None) == (kind in ("denied", "no-tool"))


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("memory_total_mib", 0),
        ("memory_used_mib", float(1 << 44)),
        ("power_default_w", 0.0),
        ("bus_width_bits", 0),
        ("minor", 0xFFFFFFFF),
        ("retired_pages", -1),
        ("ecc_corrected_aggregate", 0xFFFFFFFFFFFFFFFF),
        ("ecc_current", 2),
        ("perf_state", 32),
        ("virtualization_mode", 9),
        ("numa_node", None),
        ("serial", "N/A"),
        ("vbios", ""),
        ("name", None),
        ("fabric", {"state": 7}),
        ("processes", None),
    ],
)
def test_what_is_no_value_is_missing(name: str, raw: object) -> None:
    """Never 0, an empty text or False, whatever NVML's return code said."""
    source = nvml.parse(text([HEAD, {"gpu": 0, name: raw}])).gpus[0].source
    assert isinstance(source.get(name), Missing)


@pytest.mark.parametrize(
    ("name", "raw", "expected"),
    [("utilization_gpu", 0, 0), ("memory_used_mib", 0.0, 0.0), ("pcie_replay", 0, 0), ("temperature_c", 0, 0.0)],
)
def test_a_true_zero_is_a_value(name: str, raw: object, expected: object) -> None:
    source = nvml.parse(text([HEAD, {"gpu": 0, name: raw}])).gpus[0].source
    assert source.get(name) == Known(expected, ())


def test_a_hung_call_leaves_the_rest_timed_out() -> None:
    hung = {"hung": {"gpu": 0, "call": "power_w", "seconds": 10.0}}
    found = nvml.parse(text([HEAD, CARD, hung]))
    assert found.hung == nvml.Hung(0, "power_w", 10.0)
    assert isinstance(found.gpus[0].source.get("name"), Known)
    silent = found.gpus[0].source.get("power_w")
    assert isinstance(silent, Missing)
    assert silent.kind == "timeout"
    assert "power_w" in str(silent.detail)


def test_children_together() -> None:
    first = nvml.parse(text([HEAD, CARD, {"hung": {"gpu": 1, "call": "name", "seconds": 1}}]))
    second = nvml.parse(text([HEAD, {"gpu": 2, "name": "x"}, {"done": True}]))
    found = nvml.merge([first, second])
    assert sorted(found.gpus) == [0, 2]
    assert found.done
    assert found.hung == first.hung


@given(st.integers(min_value=0, max_value=len(text(LINES))))
def test_nvml_lines_cut_anywhere(end: int) -> None:
    """What is whole counts; nothing is made up from a cut line."""
    cut = text(LINES)[:end]
    try:
        found = nvml.parse(cut)
    except ParseError:
        assert "\n" not in cut.rstrip() or not cut.strip()
        return
    assert set(found.gpus) <= {0, 1}
    assert not found.done or end >= len(text(LINES)) - 1
    for gpu in found.gpus.values():
        name = gpu.source.get("name")
        assert isinstance(name, Missing) or name.value == CARD["name"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*CARD, "error", "link"]), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*nvml._CONVERT, "vgpu_license"]), JSON), JSON, JSON)
def test_nvml_never_ends_in_a_traceback(values: dict[str, object], head: object, p2p: object) -> None:
    lines = [{"nvml": head, "count": p2p}, {"gpu": 0, **values}, {"p2p": p2p}]
    try:
        found = nvml.parse(text(lines))
    except ParseError:
        assert not isinstance(head, dict)
        return
    assert all(isinstance(r, (Known, Missing)) for r in found.gpus[0].source.values.values())


def test_cuda_lines() -> None:
    found = cuda.parse(text(CUDA))
    assert found.hidden == "0"
    assert found.driver_version == Known("12.8")
    values = {name: r.value for name, r in found.gpus[0].source.values.items() if isinstance(r, Known)}
    assert values == {
        "ordinal": 0, "slot": "0000:1b:00.0", "name": "x", "sm_count": 132, "compute_capability": "9.0",
        "ecc_current": True, "memory_total_mib": 1024.0, "clock_sm_max_mhz": 1980.0, "integrated": False,
        "compute_mode": "exclusive-process",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("CUDA_ERROR_NO_DEVICE", "not-there"),
        ("CUDA_ERROR_NOT_PERMITTED", "denied"),
        ("CUDA_ERROR_SYSTEM_NOT_READY", "failed"),
        ("CUDA_ERROR_NOT_SUPPORTED", "unsupported"),
        ("no libcuda: cannot open shared object file", "no-tool"),
    ],
)
def test_a_cuda_that_does_not_start(error: str, kind: str) -> None:
    found = cuda.parse(text([{"cuda": {"error": error, "hidden": None}, "count": None}]))
    assert isinstance(found.count, Missing)
    assert found.count.kind == kind
    assert found.gpus == ()


@given(st.integers(min_value=0, max_value=len(text(CUDA))))
def test_cuda_lines_cut_anywhere(end: int) -> None:
    try:
        found = cuda.parse(text(CUDA)[:end])
    except ParseError:
        return
    assert len(found.gpus) <= 1


INFORMATION = """Model: \t\t NVIDIA A100-SXM4-80GB
IRQ:   \t\t 18
GPU UUID: \t {uuid}
Video BIOS: \t {vbios}
Bus Type: \t PCIe
Bus Location: \t 0000:07:00.0
Device Minor: \t 0
GPU Firmware: \t 535.54.03
GPU Excluded:\t No
"""


def test_information_of_the_kernel_driver() -> None:
    told = nvidia_proc.information(INFORMATION.format(uuid="GPU-1", vbios="92.00"))
    values = {name: r.value for name, r in told.items() if isinstance(r, Known)}
    assert values == {
        "name": "NVIDIA A100-SXM4-80GB", "uuid": "GPU-1", "vbios": "92.00", "slot": "0000:07:00.0", "minor": 0,
        "gsp_version": "535.54.03", "excluded": False,
    }  # fmt: skip


def test_question_marks_are_no_values() -> None:
    told = nvidia_proc.information(INFORMATION.format(uuid="GPU-????????-????-????", vbios="??.??.??.??.??"))
    assert isinstance(told["uuid"], Missing)
    assert isinstance(told["vbios"], Missing)


@pytest.mark.parametrize(
    ("line", "version", "flavour"),
    [
        ("NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6 22:20:39 UTC 2023", "535.54.03", "proprietary"),
        ("NVIDIA UNIX Open Kernel Module for x86_64  570.133.20  Release Build  (root@x)", "570.133.20", "open"),
    ],
)
def test_version_of_the_kernel_module(line: str, version: str, flavour: str) -> None:
    found = nvidia_proc.version(f"NVRM version: {line}\nGCC version:  gcc version 12.3.0\n")
    assert (found.version, found.flavour) == (version, flavour)


def test_another_text_is_refused() -> None:
    for parse in (nvidia_proc.version, nvidia_proc.information, nvml.parse, cuda.parse):
        with pytest.raises(ParseError):
            parse("hello\n")
