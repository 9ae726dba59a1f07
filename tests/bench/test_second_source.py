"""The trade's tools beside our numbers: shims that print what they print, and what becomes of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from agent.bench import second_source
from agent.bench.p2p_bandwidth import pair_subject
from agent.bench.step import Look
from agent.evidence import Store
from agent.host import Host, LiveHost, ReplayHost
from agent.model import Attempt, Block, Result, Taken
from agent.reading import Missing
from agent.text import msg
from agent.tools import ParseError, nvbandwidth

SIZE = 1 << 30
A, B = "0000:1b:00.0", "0000:43:00.0"
SLOTS = {0: A, 1: B}
NCCL = f"""# nThread 1 nGpus 8 minBytes {SIZE} maxBytes {SIZE} step: 1048576(bytes)
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
  {SIZE}     268435456     float     sum      -1   5120.0  209.72  RATE      0   5125.0  209.51  366.65      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 366.8
#
"""
BOTH_WAYS = """nvbandwidth Version: v0.8
Built from Git version: v0.8

CUDA Runtime Version: 12080
CUDA Driver Version: 12080
Driver Version: 570.133.20

node7
Device 0: NVIDIA H100 80GB HBM3 (00000000:43:00)
Device 1: NVIDIA H100 80GB HBM3 (00000000:1b:00)

Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0     40.00     55.50

SUM host_to_device_memcpy_ce 95.50

Running device_to_host_memcpy_ce.
memcpy CE CPU(row) <- GPU(column) bandwidth (GB/s)
           0         1
 0     54.10     54.20

SUM device_to_host_memcpy_ce 108.30
"""
PEERS = """Running device_to_device_memcpy_read_ce.
memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)
           0         1
 0       N/A    360.10
 1    361.20       N/A

SUM device_to_device_memcpy_read_ce 721.30
"""


def taken(value: float) -> Taken:
    blocks = tuple(Block(value + i / 10, (value,)) for i in range(6))
    attempt = Attempt(blocks, "standard", "2026-11-30T00:00:00Z", evidence=("evidence/0001-x",))
    return Taken(attempt, "GB/s", "median of block medians")


def notes(result: Result) -> str:
    assert isinstance(result, Taken), result
    return "\n".join(map(str, result.attempt.notes))


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LiveHost:
    """A machine without these tools until a test puts them on PATH."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr(second_source, "PLACES", dict.fromkeys(second_source.PLACES, ()))
    return LiveHost(Store(tmp_path / "run"))


def install(folder: Path, name: str, text: str, code: int = 0) -> None:
    """A tool that prints a text and its own arguments to a file."""
    path = folder / "bin" / name
    asked = folder / f"{name}.asked"
    path.write_text(f"#!/bin/sh\necho \"$@\" > {asked}\ncat <<'THE-END'\n{text}\nTHE-END\nexit {code}\n")
    path.chmod(0o755)


def test_nccl_tests_at_the_same_size_and_number(host: LiveHost, tmp_path: Path) -> None:
    install(tmp_path, "all_reduce_perf", NCCL.replace("RATE", "367.01"))
    found = second_source.all_reduce(host, Look(), 8, SIZE, taken(365.0))
    assert "all_reduce_perf on this machine: 367 GB/s, 100.5 % of ours" in notes(found)
    assert "advisory" not in notes(found)
    assert (tmp_path / "all_reduce_perf.asked").read_text().split() == f"-b {SIZE} -e {SIZE} -g 8 -n 20 -c 1".split()
    assert isinstance(found, Taken)
    assert len(found.attempt.evidence) == 2
    assert found.attempt.blocks == taken(365.0).attempt.blocks, "ours is what is judged"
    replayed: Host = ReplayHost(Store(tmp_path / "run"))
    assert second_source.all_reduce(replayed, Look(), 8, SIZE, taken(365.0)) == found


def test_a_difference_beyond_noise_is_told(host: LiveHost, tmp_path: Path) -> None:
    install(tmp_path, "all_reduce_perf", NCCL.replace("RATE", "480.20"))
    found = second_source.all_reduce(host, Look(), 8, SIZE, taken(365.0))
    assert "advisory: all_reduce_perf and accept differ by more than noise; ours is judged" in notes(found)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("all_reduce_perf: Test NCCL failure common.cu:958 'unhandled cuda error'", "gave no number"),
        (NCCL.replace("RATE", "367.01").replace("values : 0 OK", "values : 3 FAILED"), "3 wrong results"),
        ("hello", "gave no number"),
    ],
)
def test_a_tool_that_fails_leaves_our_number(host: LiveHost, tmp_path: Path, text: str, said: str) -> None:
    install(tmp_path, "all_reduce_perf", text, 1)
    found = second_source.all_reduce(host, Look(), 8, SIZE, taken(365.0))
    assert said in notes(found)
    assert isinstance(found, Taken)
    assert found.attempt.void is None


def test_a_tool_that_hangs_is_ended(host: LiveHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second_source, "TIMEOUT_S", 0.5)
    path = tmp_path / "bin" / "all_reduce_perf"
    path.write_text("#!/bin/sh\nsleep 60\n")
    path.chmod(0o755)
    assert "gave no number" in notes(second_source.all_reduce(host, Look(), 8, SIZE, taken(365.0)))


def test_without_the_tool_nothing_is_said(host: LiveHost) -> None:
    ours = taken(365.0)
    assert second_source.all_reduce(host, Look(), 8, SIZE, ours) == ours
    keys = {"h2d": "h@{slot}", "d2h": "d@{slot}"}
    assert second_source.pcie(host, Look(), SLOTS, {f"h@{A}": ours}, keys) == {f"h@{A}": ours}


@pytest.mark.parametrize("look", [Look(1, "quick"), Look(2)])
def test_once_and_where_there_is_time(host: LiveHost, tmp_path: Path, look: Look) -> None:
    install(tmp_path, "all_reduce_perf", NCCL.replace("RATE", "367.01"))
    assert second_source.all_reduce(host, look, 8, SIZE, taken(365.0)) == taken(365.0)
    assert not (tmp_path / "all_reduce_perf.asked").exists()


def test_what_could_not_be_measured_stays_so(host: LiveHost, tmp_path: Path) -> None:
    install(tmp_path, "all_reduce_perf", NCCL.replace("RATE", "367.01"))
    missing = Missing("failed", msg("no"))
    assert second_source.all_reduce(host, Look(), 8, SIZE, missing) is missing


def test_nvbandwidth_by_pci_address(host: LiveHost, tmp_path: Path) -> None:
    install(tmp_path, "nvbandwidth", BOTH_WAYS)
    ours: Mapping[str, Result] = {k: taken(55.0) for k in (f"h@{A}", f"h@{B}", f"d@{A}", f"d@{B}")}
    found = second_source.pcie(host, Look(), SLOTS, ours, {"h2d": "h@{slot}", "d2h": "d@{slot}"})
    assert "nvbandwidth on this machine: 55.5 GB/s" in notes(found[f"h@{A}"])
    assert "40 GB/s" in notes(found[f"h@{B}"])
    assert "advisory" in notes(found[f"h@{B}"])
    assert "54.2 GB/s" in notes(found[f"d@{A}"])
    asked = (tmp_path / "nvbandwidth.asked").read_text().split()
    assert asked == ["-t", "host_to_device_memcpy_ce", "-t", "device_to_host_memcpy_ce"]


def test_nvbandwidth_reads_from_the_column_into_the_row(host: LiveHost, tmp_path: Path) -> None:
    install(tmp_path, "nvbandwidth", PEERS)
    keys = [f"p@{pair_subject(*pair)}" for pair in ((A, B), (B, A))]
    found = second_source.peers(
        host, Look(), SLOTS, dict.fromkeys(keys, taken(350.0)), f"p@{pair_subject('{source}', '{target}')}"
    )
    assert "361.2 GB/s" in notes(found[keys[0]])
    assert "360.1 GB/s" in notes(found[keys[1]])


def test_nvbandwidth_texts() -> None:
    found = nvbandwidth.parse(BOTH_WAYS)
    assert found.devices == {0: "00000000:43:00", 1: "00000000:1b:00"}
    assert found.tests["device_to_host_memcpy_ce"] == {(0, 0): 54.1, (0, 1): 54.2}
    assert nvbandwidth.parse(PEERS).tests["device_to_device_memcpy_read_ce"] == {(0, 1): 360.1, (1, 0): 361.2}
    waived = nvbandwidth.parse("Running device_to_device_memcpy_read_ce.\nWAIVED\n")
    assert waived.tests == {}
    with pytest.raises(ParseError, match="error"):
        nvbandwidth.parse(
            "Running host_to_device_memcpy_ce.\n[CUDA_ERROR_NOT_READY] device not ready in cuEventQuery\n"
        )
    with pytest.raises(ParseError, match="cut"):
        nvbandwidth.parse(PEERS.replace(" 1    361.20       N/A", " 1    361.2"))
    for foreign in ("", "hello", "0 1 2"):
        with pytest.raises(ParseError):
            nvbandwidth.parse(foreign)
