"""Failure texts of nvidia-smi and around it get their names, from whatever parser meets them."""

from __future__ import annotations

from types import ModuleType
from typing import Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.tools import ParseError, nvlink, smi_csv, smi_errors, smi_table, smi_xml, topo
from tests.tools.nvidia import corpus

TEXTS = {
    "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.161\n": "driver_mismatch",
    "Failed to initialize NVML: Driver Not Loaded\n": "no_driver",
    "Failed to initialize NVML: Unknown Error\n": "nvml_unknown_error",
    "Failed to initialize NVML: Insufficient Permissions\n": "no_permission",
    "Failed to initialize NVML: GPU access blocked by the operating system\n": "access_blocked",
    "Failed to initialize NVML: Something new\n": "nvml_error",
    "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.\n": "no_library",
    "nvidia-container-cli: initialization error: nvml error: driver/library version mismatch\n": "driver_mismatch",
    "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: "
    "cannot open shared object file: no such file or directory\n": "no_library",
    'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].\n': (
        "no_container_runtime"
    ),
    "No devices were found\n": "no_devices",
    "Unable to determine the device handle for gpu 0000:02:00.0: GPU is lost.  Reboot the system\n": "gpu_lost",
    "sh: 1: nvidia-smi: not found\n": "not_found",
    "bash: line 1: nvidia-smi: command not found\n": "not_found",
    "-bash: nvidia-smi: 未找到命令\n": "not_found",
    "'nvidia-smi' is not recognized as an internal or external command,\n": "not_found",
    "Segmentation fault (core dumped)\n": "crashed",
    "Failed to initialize NVML: Timeout\n": "timeout",
}


@pytest.mark.parametrize("module", [topo, smi_xml, smi_csv, smi_table, nvlink], ids=lambda m: str(m.KIND))
@pytest.mark.parametrize("text", TEXTS)
def test_every_parser_names_the_failure(module: ModuleType, text: str) -> None:
    with pytest.raises(ParseError) as caught:
        module.parse(text)
    assert caught.value.kind == TEXTS[text]
    assert caught.value.line is not None
    assert caught.value.line in text


@pytest.mark.parametrize(
    ("line", "index", "bus"),
    [
        ("Unable to determine the device handle for GPU 0000:04:00.0: Unknown Error", None, "0000:04:00.0"),
        ("Unable to determine the device handle for GPU0000:A1:00.0: Unknown Error", None, "0000:A1:00.0"),
        ("Unable to determine the device handle for GPU3: 0000:04:00.0: Unknown Error", 3, "0000:04:00.0"),
        ("Unable to determine the device handle for GPU2: Unknown Error", 2, None),
        ("Unable to determine the device handle for GPU 0000:0a:00.0: GPU is lost.  Reboot", None, "0000:0A:00.0"),
    ],
)
def test_the_four_forms_of_a_lost_gpu(line: str, index: Optional[int], bus: Optional[str]) -> None:
    assert smi_errors.lost_gpus(f"other\n{line}\n") == (smi_errors.LostGpu(index, bus, line),)


@given(st.text())
def test_any_text_is_searched_without_trouble(text: str) -> None:
    smi_errors.find_failure(text)
    smi_errors.lost_gpus(text)


def test_every_corpus_failure_is_known() -> None:
    want = {"err01": "no_driver", "err02": "driver_mismatch", "err03": "driver_mismatch", "err05": "no_devices"}
    want |= {"err06": "gpu_lost", "err07": "gpu_lost", "err09": "gpu_lost", "err12": "not_found"}
    want |= {"err13": "not_found", "err14": "no_library", "err16": "no_library"}
    want |= {"err18": "driver_too_old", "err20": "crashed"}
    for case, (_, text) in corpus("smi_error").items():
        failure = smi_errors.find_failure(text)
        assert failure is not None, case
        assert failure.kind == want.get(case[:5], failure.kind), case
