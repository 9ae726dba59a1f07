"""What ``topo -m`` must say beyond the fixtures: whole matrices of the corpus, cuts, p2p tables."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.tools import ParseError, to_json, topo
from tests.tools.nvidia import attempt, corpus, corpus_file, cut_readings, fixture, survives


def test_damaged_text_is_read_or_refused() -> None:
    survives(topo)


@given(st.text(alphabet=" \t\n\x1b[4mXGPUNIC0189SYVODEAfinty,-/", max_size=400))
def test_arbitrary_text_is_read_or_refused(text: str) -> None:
    result = attempt(topo.parse, "\tGPU0\tGPU1\tCPU Affinity\n" + text)
    assert result is None or (set(result.links) == {"GPU0", "GPU1"})


@pytest.mark.parametrize("name", ["hgx-h100-full-ansi", "8gpu-mlx4-trailing-spaces", "a100x4-reversed-numa"])
def test_a_cut_never_changes_the_matrix(name: str) -> None:
    text = fixture(f"topo--{name}")
    whole = to_json(topo, topo.parse(text))
    for _, got in cut_readings(topo, text, count=2000):
        named = {nic: device for nic, device in got["nics"].items() if device is not None}
        assert {**got, "nics": whole["nics"]} == whole
        assert named.items() <= whole["nics"].items()


def test_nvlink_hidden_by_mp_is_told_from_missing_nvlink() -> None:
    assert topo.parse(fixture("topo--h800-topo-mp-gap")).nvlink_shown is False
    assert topo.parse(fixture("topo--8gpu-no-nvlink-all-sys-10nic")).nvlink_shown is True
    assert topo.parse(fixture("topo--7gpu-two-groups")).nvlink_shown is None


def test_gpu_numa_id() -> None:
    assert topo.parse(fixture("topo--gb200-numa-lists")).gpu_numa_id == {"GPU0": "2", "GPU1": "10"}
    assert topo.parse(fixture("topo--hgx-h100-full-ansi")).gpu_numa_id["GPU0"] is None


def test_p2p_status_is_its_own_reading() -> None:
    status = topo.parse_p2p(fixture("topo--p2p-read-indented"))
    assert status.states["GPU0"] == {"GPU1": "OK", "GPU2": "NS"}
    with pytest.raises(ParseError) as caught:
        topo.parse_p2p(fixture("topo--2x5090-phb"))
    assert caught.value.kind == "unparsable"


# nvidia-smi topo -p2p r on a machine with one GPU: the header is the name alone.
ALONE = (
    " \t\x1b[4mGPU0\tCPU Affinity\tNUMA Affinity\x1b[0m\nGPU0\t X \t0-31\t0\n",
    " \t\x1b[4mGPU0\x1b[0m\t\n GPU0\tX\t\n\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n"
    "  CNS  = Chipset not supported\n  GNS  = GPU not supported\n  TNS  = Topology not supported\n"
    "  NS   = Not supported\n  U    = Unknown\n",
)


def test_one_gpu_has_no_peer() -> None:
    matrix, status = ALONE
    assert topo.parse_p2p(status) == topo.P2pStatus(("GPU0",), {"GPU0": {}})
    assert topo.parse_p2p(status.partition("Legend")[0]).gpus == ("GPU0",)
    assert topo.parse(matrix).links == {"GPU0": {}}
    for text in (status, status.partition("Legend")[0], " \tGPU0\t\n GPU0\tX"):
        with pytest.raises(ParseError) as caught:
            topo.parse(text)
        assert caught.value.kind == "p2p_status"


@pytest.mark.parametrize("text", [" \tGPU0\t\n", " \tGPU0\t\n GPU1\tX\t\n", " \tGPU0\t\n GPU0\tOK\t\n", "GPU0\nX\n"])
def test_a_lone_name_is_no_table(text: str) -> None:
    with pytest.raises(ParseError):
        topo.parse_p2p(text)


def test_two_equal_tables_are_one_and_two_different_are_refused() -> None:
    one, other = fixture("topo--2x5090-phb"), fixture("topo--2x1080ti-prompt")
    assert topo.parse(one + one) == topo.parse(one)
    with pytest.raises(ParseError) as caught:
        topo.parse(one + other)
    assert caught.value.kind == "several_results"


def test_names_of_cards_below_the_table_are_no_rows() -> None:
    text = fixture("topo--4gpu-mixed-nv1-nv2")
    assert topo.parse(text + "mlx5_0 port 1 ==> ib0 (Up)\n") == topo.parse(text)


def _known(values: dict[str, str]) -> dict[str, Any]:
    return {name: None if value == "N/A" else value for name, value in values.items()}


def test_every_corpus_matrix() -> None:
    read = 0
    for case, (_, text) in corpus("topo").items():
        want = json.loads(corpus_file(f"topo/{case}.expected.json").read_text(encoding="utf-8"))
        if want.get("type") == "p2p":
            assert topo.parse_p2p(text).states == want["matrix"], case
        if "matrix" not in want or want.get("type") == "p2p" or want.get("suspicious"):
            with pytest.raises(ParseError) as caught:
                topo.parse(text)
            assert (caught.value.kind == "truncated") == bool(want.get("truncated")), case
            continue
        got = topo.parse(text)
        assert (len(got.gpus), list(got.nics), got.links) == (want["gpus"], want["nics"], want["matrix"]), case
        assert got.cpu_affinity == _known(want["cpu_affinity"]), case
        assert got.numa_affinity == _known(want.get("numa_affinity", dict.fromkeys(got.gpus, "N/A"))), case
        assert got.gpu_numa_id == _known(want.get("gpu_numa_id", dict.fromkeys(got.gpus, "N/A"))), case
        assert got.nics == want.get("nic_legend", got.nics), case
        read += 1
    assert read > 20
