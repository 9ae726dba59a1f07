"""``nvidia-smi --version`` and ``-q``."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.tools import ParseError, smi_text
from tests.tools.fuzz import mutations, truncations
from tests.tools.nvidia import attempt, corpus

VERSION = """NVIDIA-SMI version  : 610.57.04
NVML version        : 610.57
DRIVER version      : Deprecated, see "KMD version" instead
CUDA version        : Deprecated, see "CUDA UMD version" instead
KMD version         : 610.57.04
CUDA UMD version    : 13.3
"""
Q = """
==============NVSMI LOG==============

Timestamp                                 : Wed Aug 12 21:53:45 2026
Driver Version                            : 610.57.04 [Deprecated; will be removed in CUDA 14.0.]
CUDA Version                              : 13.3
Attached GPUs                             : 2
GPU 00000000:AD:00.0
    Product Name                          : NVIDIA H100 NVL
    FB Memory Usage
        Total                             : 95830 MiB
        Used                              : 0 MiB
    BAR1 Memory Usage
        Total                             : 131072 MiB
    GPU Power Readings
        Average Power Draw                : N/A
        Instantaneous Power Draw          : 38.89 W
        GPU Ceiling Power Limit
            Current Power Limit           : 310.00 W
        Max Power Limit                   : 400.00 W
    Processes                             : None

GPU 00000000:AE:00.0
    Product Name                          : NVIDIA H100 NVL
    FB Memory Usage
        Total                             : GPU is lost
        Used                              : N/A
    BAR1 Memory Usage
        Total                             : 131072 MiB
    GPU Power Readings
        Power Draw                        : 61.62 W
        Current Power Limit               : 310.00 W
    Processes                             : None
"""


def test_version_prefers_the_new_keys() -> None:
    assert smi_text.parse_version(VERSION) == smi_text.SmiVersion("610.57.04", "610.57", "610.57.04", "13.3")
    older = "NVIDIA-SMI version  : 565.57.01\nDRIVER version      : 565.57.01\nCUDA Version        : 12.7\n"
    assert smi_text.parse_version(older) == smi_text.SmiVersion("565.57.01", None, "565.57.01", "12.7")


def test_a_cut_version_is_refused() -> None:
    with pytest.raises(ParseError) as caught:
        smi_text.parse_version(VERSION[:-3])
    assert caught.value.kind == "truncated"


def test_q_sections_keep_equal_keys_apart() -> None:
    got = smi_text.parse_q(Q)
    first, second = got.gpus
    assert (got.driver_version, got.cuda_version, got.attached_gpus) == ("610.57.04", "13.3", 2)
    assert first.amount("FB Memory Usage/Total", "MiB") == 95830
    assert (first.power_draw_w, first.power("Current Power Limit"), first.power("Max Power Limit")) == (38.89, 310, 400)
    assert first.power("Default Power Limit") is None
    assert second.amount("FB Memory Usage/Total", "MiB") == "error: GPU is lost"
    assert second.amount("FB Memory Usage/Used", "MiB") is None


def test_a_cut_q_is_refused_or_whole() -> None:
    whole = smi_text.parse_q(Q)
    for cut in truncations(Q, 1, 3000):
        got = attempt(smi_text.parse_q, cut)
        assert got is None or len(got.gpus) == len(whole.gpus)


@given(st.text())
def test_arbitrary_text_is_read_or_refused(text: str) -> None:
    for damaged in [text, Q + text, *mutations(Q, len(text), 2)]:
        attempt(smi_text.parse_q, damaged)
        attempt(smi_text.parse_version, damaged)


def test_corpus() -> None:
    assert smi_text.parse_version(corpus("smi_version")["ver02_610"][1]).driver_version == "610.57.04"
    texts = {case[:3]: text for case, (_, text) in corpus("smi_q").items()}
    h200 = smi_text.parse_q(texts["q01"]).gpus[0]
    assert (h200.amount("FB Memory Usage/Used", "MiB"), h200.power_draw_w) == (32362, 625.24)
    rtx = smi_text.parse_q(texts["q03"])
    assert (rtx.driver_version, rtx.cuda_version) == ("610.57.04", "13.3")
    assert [rtx.gpus[0].power(f"{n} Power Limit") for n in ("Current", "Default", "Max")] == [250, 250, 350]
    assert len(smi_text.parse_q(texts["q05"]).gpus) == 8
    nvl = smi_text.parse_q(texts["q06"]).gpus
    assert [(g.power("Default Power Limit"), g.power("Max Power Limit")) for g in nvl] == [(310, 400)] * 2
