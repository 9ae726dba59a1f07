"""What ``nvlink -s`` must say beyond the fixtures, and the corpus."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.tools import ParseError, nvlink
from tests.tools.nvidia import attempt, corpus, cut_readings, fixture, survives


def test_damaged_text_is_read_or_refused() -> None:
    survives(nvlink)


@given(st.text(alphabet="GPU 0123:Link.B/s<inactve>\n\tNVML", max_size=200))
def test_arbitrary_lines_are_read_or_refused(text: str) -> None:
    attempt(nvlink.parse, "GPU 0: NVIDIA A100 (UUID: GPU-00000000-0000-0000-0000-000000000000)\n" + text)


def test_a_cut_never_takes_links_from_a_gpu_that_others_compare_with() -> None:
    for cut, got in cut_readings(nvlink, fixture("nvlink--h100x2"), count=3000):
        counts = [gpu["active_links"] for gpu in got["gpus"]]
        assert counts[1:] in ([], [18]), cut[-60:]
        assert cut.endswith("\n") or counts in ([None], [18, 18]), cut[-60:]


def test_no_output_is_not_no_nvlink() -> None:
    with pytest.raises(ParseError) as caught:
        nvlink.parse("")
    assert caught.value.kind == "empty"


def test_unlisted_links_are_unknown_unless_all_are_inactive() -> None:
    silent = nvlink.parse("GPU 0: NVIDIA A10 (UUID: GPU-00000000-0000-0000-0000-000000000000)\n").gpus[0]
    assert (silent.state, silent.links, silent.active) == ("not_shown", None, None)
    inactive = nvlink.parse(fixture("nvlink--one-gpu-all-inactive")).gpus[1]
    assert (inactive.state, inactive.active) == ("all_inactive", 0)


def test_a_lost_gpu_beside_the_others() -> None:
    text = "Unable to determine the device handle for GPU1: 0000:0A:00.0: Unknown Error\n"
    got = nvlink.parse(fixture("nvlink--h100x2") + text)
    assert (len(got.gpus), got.lost[0].index, got.lost[0].pci_bus_id) == (2, 1, "0000:0A:00.0")


def test_every_corpus_status() -> None:
    texts = {case: text for case, (_, text) in corpus("nvlink").items()}
    a100 = nvlink.parse(texts["nvlink06_a100x8"]).gpus
    assert [(gpu.active, len(gpu.links or ())) for gpu in a100] == [(12, 12)] * 8
    assert {link.gb_per_s for gpu in a100 for link in gpu.links or ()} == {25.0}
    part = nvlink.parse(texts["nvlink08_partly_inactive"]).gpus[0]
    assert (part.active, len(part.links or ())) == (8, 12)
    assert nvlink.parse(texts["nvlink04_2080s_inactive"]).gpus[0].state == "all_inactive"
    assert nvlink.parse(texts["nvlink05_l40s_none"]).gpus[0].state == "not_supported"


@pytest.mark.parametrize(
    ("name", "links", "whole"),
    [
        ("NVIDIA H100 80GB HBM3", 17, False),
        ("NVIDIA H100 80GB HBM3", 18, True),
        ("NVIDIA H200", 9, False),
        ("NVIDIA H200 NVL", 12, True),
        ("NVIDIA A100-SXM4-80GB", 11, False),
        ("NVIDIA A100-PCIE-40GB", 4, True),
        ("Tesla V100-SXM2-32GB", 5, False),
        ("NVIDIA RTX A6000", 4, True),
    ],
)
def test_one_gpu_with_fewer_links_than_its_kind_lists_is_a_cut_text(name: str, links: int, whole: bool) -> None:
    text = f"GPU 0: {name} (UUID: GPU-00000000-0000-0000-0000-000000000001)\n"
    text += "".join(f"\t Link {number}: 25 GB/s\n" for number in range(links))
    got = attempt(nvlink.parse, text)
    assert (got is not None) == whole
    assert got is None or got.gpus[0].active == links


@pytest.mark.parametrize(
    "line",
    [
        "\t Link 0: Replay Errors: 0",
        "\t Link 0, P2P is supported: true",
        "\t Link 0: Remote Device 00000000:C8:00.0: Link 12",
    ],
)
def test_other_listings_of_the_same_tool_are_not_cut_but_something_else(line: str) -> None:
    text = f"GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-00000000-0000-0000-0000-000000000001)\n{line}\n"
    with pytest.raises(ParseError) as caught:
        nvlink.parse(text)
    assert caught.value.kind == "unparsable"
    with pytest.raises(ParseError) as caught:
        nvlink.parse(text.rstrip("\n"))
    assert caught.value.kind == "truncated"
