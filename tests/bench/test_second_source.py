"""The trade's tools beside our numbers: shims that print what they print, and what becomes of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.bench import second_burn, second_source
from agent.bench.p2p_bandwidth import pair_subject
from agent.bench.step import Look
from agent.evidence import Store
from agent.facts import Asked, trade_tools
from agent.host import Host, LiveHost, ReplayHost
from agent.model import Attempt, Block, Result, Taken
from agent.reading import Missing
from agent.text import msg
from agent.tools import ParseError, dcgmi, gpu_burn, nvbandwidth

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
    monkeypatch.setattr(trade_tools, "PLACES", dict.fromkeys(trade_tools.PLACES, ()))
    return LiveHost(Store(tmp_path / "run"))


def where(host: Host) -> Mapping[str, str]:
    """The tools as the facts find them."""
    return trade_tools.collect(host, Asked()).found


def all_reduce(host: Host, look: Look, ours: Result) -> Result:
    return second_source.collective(host, look, where(host), "all_reduce", 8, SIZE, ours)


def install(folder: Path, name: str, text: str, code: int = 0) -> None:
    """A tool that prints a text and its own arguments to a file."""
    path = folder / "bin" / name
    asked = folder / f"{name}.asked"
    path.write_text(f"#!/bin/sh\necho \"$@\" > {asked}\ncat <<'THE-END'\n{text}\nTHE-END\nexit {code}\n")
    path.chmod(0o755)


def test_nccl_tests_at_the_same_size_and_number(host: LiveHost, tmp_path: Path) -> None:
    install(tmp_path, "all_reduce_perf", NCCL.replace("RATE", "367.01"))
    found = all_reduce(host, Look(), taken(365.0))
    assert "all_reduce_perf on this machine: 367 GB/s, 100.5 % of ours" in notes(found)
    assert "advisory" not in notes(found)
    assert (tmp_path / "all_reduce_perf.asked").read_text().split() == f"-b {SIZE} -e {SIZE} -g 8 -n 20 -c 1".split()
    assert isinstance(found, Taken)
    assert len(found.attempt.evidence) == 2
    assert found.attempt.blocks == taken(365.0).attempt.blocks, "ours is what is judged"
    replayed: Host = ReplayHost(Store(tmp_path / "run"))
    assert all_reduce(replayed, Look(), taken(365.0)) == found


def test_a_difference_beyond_noise_is_told(host: LiveHost, tmp_path: Path) -> None:
    install(tmp_path, "all_reduce_perf", NCCL.replace("RATE", "480.20"))
    found = all_reduce(host, Look(), taken(365.0))
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
    found = all_reduce(host, Look(), taken(365.0))
    assert said in notes(found)
    assert isinstance(found, Taken)
    assert found.attempt.void is None


def test_a_tool_that_hangs_is_ended(host: LiveHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second_source, "TIMEOUT_S", 0.5)
    path = tmp_path / "bin" / "all_reduce_perf"
    path.write_text("#!/bin/sh\nsleep 60\n")
    path.chmod(0o755)
    assert "gave no number" in notes(all_reduce(host, Look(), taken(365.0)))


def test_without_the_tool_nothing_is_said(host: LiveHost) -> None:
    ours = taken(365.0)
    assert all_reduce(host, Look(), ours) == ours
    keys = {"h2d": "h@{slot}", "d2h": "d@{slot}"}
    assert second_source.pcie(host, Look(), where(host), SLOTS, {f"h@{A}": ours}, keys) == {f"h@{A}": ours}


@pytest.mark.parametrize("look", [Look(1, "quick"), Look(2), Look(tools=frozenset())])
def test_once_and_where_there_is_time(host: LiveHost, tmp_path: Path, look: Look) -> None:
    install(tmp_path, "all_reduce_perf", NCCL.replace("RATE", "367.01"))
    assert all_reduce(host, look, taken(365.0)) == taken(365.0)
    assert not (tmp_path / "all_reduce_perf.asked").exists()


def test_what_could_not_be_measured_stays_so(host: LiveHost, tmp_path: Path) -> None:
    install(tmp_path, "all_reduce_perf", NCCL.replace("RATE", "367.01"))
    missing = Missing("failed", msg("no"))
    assert all_reduce(host, Look(), missing) is missing


def test_nvbandwidth_by_pci_address(host: LiveHost, tmp_path: Path) -> None:
    install(tmp_path, "nvbandwidth", BOTH_WAYS)
    ours: Mapping[str, Result] = {k: taken(55.0) for k in (f"h@{A}", f"h@{B}", f"d@{A}", f"d@{B}")}
    found = second_source.pcie(host, Look(), where(host), SLOTS, ours, {"h2d": "h@{slot}", "d2h": "d@{slot}"})
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
        host, Look(), where(host), SLOTS, dict.fromkeys(keys, taken(350.0)), f"p@{pair_subject('{source}', '{target}')}"
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


# ---------------------------------------------------------------- which are there


def test_what_is_there_is_found_with_its_real_file(host: LiveHost, tmp_path: Path) -> None:
    assert where(host) == {}
    install(tmp_path, "gpu_burn", "")
    (tmp_path / "bin" / "gpu_burn").rename(tmp_path / "gpu_burn")
    (tmp_path / "bin" / "gpu_burn").symlink_to(tmp_path / "gpu_burn")
    (tmp_path / "bin" / "dcgmi").write_text("not to be executed")
    assert where(host) == {"gpu_burn": str(tmp_path / "gpu_burn")}
    assert not (tmp_path / "gpu_burn.asked").exists(), "nothing is started"


def test_a_usual_place_outside_path(host: LiveHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "nvbandwidth", "")
    (tmp_path / "bin" / "nvbandwidth").rename(tmp_path / "nvbandwidth")
    monkeypatch.setattr(trade_tools, "PLACES", {"nvbandwidth": (str(tmp_path / "nvbandwidth"),), "dcgmi": ()})
    assert where(host) == {"nvbandwidth": str(tmp_path / "nvbandwidth")}


def test_a_listing_that_is_none_gives_no_tool() -> None:
    for text in ("hello", "gpu_burn\tbin/gpu_burn\n", "rm\t/bin/rm\n"):
        with pytest.raises(ParseError):
            trade_tools.parse(text)


# ---------------------------------------------------------------- other collectives


@pytest.mark.parametrize(
    ("op", "program"),
    [("all_gather", "all_gather_perf"), ("reduce_scatter", "reduce_scatter_perf"), ("all_to_all", "alltoall_perf")],
)
def test_each_collective_has_its_program(host: LiveHost, tmp_path: Path, op: str, program: str) -> None:
    rounded = SIZE - 96  # for seven GPUs: whole elements for each rank
    text = NCCL.replace(f"  {SIZE}     268435456", f"  {rounded}      38347920").replace("RATE", "340.00")
    install(tmp_path, program, text)
    found = second_source.collective(host, Look(), where(host), op, 7, SIZE, taken(338.0))
    assert f"{program} on this machine: 340 GB/s" in notes(found)
    assert (tmp_path / f"{program}.asked").read_text().split() == f"-b {SIZE} -e {SIZE} -g 7 -n 20 -c 1".split()


# ---------------------------------------------------------------- gpu_burn


def burnt(errors: str = "0 - 0 ", verdict: str = "OK", rates: str = "15210", done: str = "1740") -> str:
    """As gpu_burn prints for two GPUs: progress overwritten, a summary each tenth, the verdict."""
    head = (
        "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\nGPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-2)\n"
        "Initialized device 0 with 81079 MB of memory (80500 MB available, using 72450 MB of it), using FLOATS\n"
    )
    one = f"proc'd: {done} ({rates} Gflop/s) - 1740 (15188 Gflop/s)   errors: {errors}  temps: 61 C - 58 C "
    none = "proc'd: 0 (0 Gflop/s) - 0 (0 Gflop/s)   errors: 0 - 0   temps: -- - -- "
    return (
        head
        + f"\r5.0%  {none}\r50.0%  {one}"
        + "\n\tSummary at:   Tue Dec  1 05:00:00 UTC 2026\n\n"
        + "\r100.0%  proc'd: 3480 (15230 Gflop/s) - 3480 (15150 Gflop/s)   errors: 0 - 0   temps: 63 C - 59 C "
        + "  power: 690 W - 688 W "
        + f"\nKilling processes with SIGTERM (soft kill)\ndone\n\nTested 2 GPUs:\n\tGPU 0: {verdict}\n\tGPU 1: OK\n"
    )


def burn_results() -> dict[str, Result]:
    return {f"burn.{name}@{slot}": taken(0.5) for slot in (A, B) for name in ("temperature", "sag")}


def beside(host: Host, tensor: bool = True, look: Look = Look(), ours: Any = None) -> dict[str, Result]:  # noqa: B008
    return second_burn.beside(host, look, where(host), SLOTS, tensor, burn_results() if ours is None else ours)


def test_gpu_burn_beside_the_burn(host: LiveHost, tmp_path: Path) -> None:
    install(tmp_path, "gpu_burn", burnt())
    found = beside(host)
    said = notes(found[f"burn.temperature@{A}"])
    assert "gpu_burn beside for 20 s: 15.22 TFLOPS of fp32 products, 0 errors; the hottest GPU 63 °C" in said
    assert "15.17 TFLOPS" in notes(found[f"burn.temperature@{B}"])
    assert "gpu_burn" not in notes(found[f"burn.sag@{A}"]), "once a GPU"
    assert "advisory" not in said
    assert (tmp_path / "gpu_burn.asked").read_text().split() == ["-tc", "20"]
    assert beside(ReplayHost(Store(tmp_path / "run"))) == found
    beside(host, tensor=False)
    assert (tmp_path / "gpu_burn.asked").read_text().split() == ["20"]


def test_gpu_burn_runs_where_its_kernels_lie(host: LiveHost, tmp_path: Path) -> None:
    (tmp_path / "burn").mkdir()
    path = tmp_path / "burn" / "gpu_burn"
    path.write_text(f"#!/bin/sh\n[ -f compare.ptx ] || exit 1\ncat <<'THE-END'\n{burnt()}\nTHE-END\n")
    path.chmod(0o755)
    (path.parent / "compare.ptx").write_text("")
    (tmp_path / "bin" / "gpu_burn").symlink_to(path)
    assert "0 errors" in notes(beside(host)[f"burn.temperature@{A}"])


def test_errors_that_only_gpu_burn_sees_are_told_and_judge_nothing(host: LiveHost, tmp_path: Path) -> None:
    install(tmp_path, "gpu_burn", burnt(errors="1579  (WARNING!)- 0 ", verdict="FAULTY"))
    found = beside(host)
    bad, good = notes(found[f"burn.temperature@{A}"]), notes(found[f"burn.temperature@{B}"])
    assert "1579 errors" in bad
    assert "advisory: gpu_burn calls this GPU faulty, accept's own products were right; ours is judged" in bad
    assert "advisory" not in good
    judged = found[f"burn.temperature@{A}"]
    assert isinstance(judged, Taken)
    assert (judged.attempt.void, judged.attempt.blocks) == (None, taken(0.5).attempt.blocks)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hello", "not the output of gpu_burn"),
        ("", "not the output of gpu_burn"),
        (burnt().split("Tested")[0], "did not come to its end"),
        (burnt().replace("\tGPU 1: OK\n", ""), "not whole"),
        ("Couldn't init a GPU test: Error in \"load module\": file not found\n", "could not be prepared"),
        ("\r10.0%  proc'd: -1 (0 Gflop/s)   errors: -5  (DIED!)  temps: --\n\nNo clients are alive!  Aborting\n",
         "no GPU could be tested"),
    ],
)  # fmt: skip
def test_a_gpu_burn_that_fails_leaves_ours(host: LiveHost, tmp_path: Path, text: str, said: str) -> None:
    install(tmp_path, "gpu_burn", text, 1)
    found = notes(beside(host)[f"burn.temperature@{A}"])
    assert "gpu_burn beside gave no number" in found
    assert said in found


def test_a_process_of_gpu_burn_that_died_accuses_nobody(host: LiveHost, tmp_path: Path) -> None:
    install(tmp_path, "gpu_burn", burnt(errors="-524288000  (DIED!)- 0 ", verdict="FAULTY", rates="0", done="-1"))
    found = notes(beside(host)[f"burn.temperature@{A}"])
    assert "its own process for this GPU ended early" in found
    assert "faulty" not in found


def test_tools_that_hang_are_ended(host: LiveHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second_burn, "BURN_TIMEOUT_S", 0.5)
    monkeypatch.setattr(dcgmi, "DISCOVERY_TIMEOUT_S", 0.5)
    for name in ("gpu_burn", "dcgmi"):
        path = tmp_path / "bin" / name
        path.write_text("#!/bin/sh\nsleep 60\n")
        path.chmod(0o755)
    found = notes(beside(host)[f"burn.temperature@{A}"])
    assert "gpu_burn beside gave no number: gpu_burn gave no answer in" in found
    assert "dcgmi beside gave no number: dcgmi gave no answer in" in found


def test_nothing_runs_where_there_is_no_time_or_no_number(host: LiveHost, tmp_path: Path) -> None:
    install(tmp_path, "gpu_burn", burnt())
    missing: dict[str, Result] = {f"burn.sag@{A}": Missing("failed", msg("no"))}
    assert beside(host, ours=missing) == missing
    assert beside(host, look=Look(tools=frozenset())) == burn_results()
    assert beside(host, look=Look(1, "quick")) == burn_results()
    assert not (tmp_path / "gpu_burn.asked").exists()


# ---------------------------------------------------------------- dcgmi

DISCOVERY = """2 GPUs found.
+--------+----------------------------------------------------------------------+
| GPU ID | Device Information                                                   |
+--------+----------------------------------------------------------------------+
| 0      | Name: NVIDIA H100 80GB HBM3                                          |
|        | PCI Bus ID: 00000000:43:00.0                                         |
|        | Device UUID: GPU-00000000-0000-0000-0000-000000000043                |
+--------+----------------------------------------------------------------------+
| 1      | Name: NVIDIA H100 80GB HBM3                                          |
|        | PCI Bus ID: 00000000:1B:00.0                                         |
|        | Device UUID: GPU-00000000-0000-0000-0000-00000000001b                |
+--------+----------------------------------------------------------------------+
0 NvSwitches found.
"""
NO_ENGINE = """Error: unable to establish a connection to the specified host: localhost
Error: Unable to connect to host engine. Host engine connection invalid/disconnected.
"""


def third(*results: Mapping[str, Any]) -> str:
    """DCGM 3: one entry a test, GPUs in a list of numbers."""
    tests = [
        {"name": "NVML Library", "results": [{"gpu_ids": "0,1", "status": "Pass"}]},
        None,
        {"name": "Page Retirement/Row Remap", "results": list(results)},
    ]
    found = {"test_categories": [{"category": "Deployment", "tests": tests}], "version": "3.3.9"}
    return json.dumps({"DCGM GPU Diagnostic": found}, indent=2)


def fourth(*results: Mapping[str, Any], summary: str = "Pass") -> str:
    """DCGM 4: one test, an entry for each entity, a summary; the version apart."""
    test = {"name": "software", "results": list(results), "test_summary": {"status": summary}}
    found = {"test_categories": [{"category": "Deployment", "tests": [test]}]}
    return json.dumps({"DCGM Diagnostic": found, "metadata": {"version": "4.4.1"}}, indent=2)


def entity(number: int, status: str, *warnings: str) -> dict[str, Any]:
    found: dict[str, Any] = {"entity_group": "GPU", "entity_group_id": 1, "entity_id": number, "status": status}
    if warnings:
        found["warnings"] = [{"error_category": 7, "error_id": 3, "error_severity": 2, "warning": w} for w in warnings]
    return found


def diagnostics(folder: Path, diag: str, discovery: str = DISCOVERY, code: int = 0) -> None:
    """A dcgmi that answers its two questions, and keeps what it was asked."""
    path = folder / "bin" / "dcgmi"
    path.write_text(
        f'#!/bin/sh\necho "$@" >> {folder / "dcgmi.asked"}\n'
        f"if [ $1 = discovery ]; then cat <<'THE-END'\n{discovery}\nTHE-END\nexit 0; fi\n"
        f"cat <<'THE-END'\n{diag}\nTHE-END\nexit {code}\n"
    )
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("text", "version", "count"),
    [
        (third({"gpu_ids": "0,1", "status": "PASS"}), "3.3.9", 2),
        (fourth(entity(0, "Pass"), entity(1, "Pass")), "4.4.1", 1),
    ],
)
def test_dcgmi_beside_the_burn(host: LiveHost, tmp_path: Path, text: str, version: str, count: int) -> None:
    diagnostics(tmp_path, text)
    found = beside(host)
    for slot in (A, B):
        said = notes(found[f"burn.temperature@{slot}"])
        assert f"dcgmi diag -r 1 beside (DCGM {version}): {count} of {count} checks passed" in said
        assert "advisory" not in said
    assert (tmp_path / "dcgmi.asked").read_text() == "discovery -l\ndiag -r 1 -j\n"
    assert beside(ReplayHost(Store(tmp_path / "run"))) == found


@pytest.mark.parametrize(
    "text",
    [
        third({"gpu_ids": "0", "status": "Pass"}, {"gpu_ids": 1, "status": "Fail", "warnings": ["Pending row remap"]}),
        fourth(entity(0, "Pass"), entity(1, "Fail", "Pending row remap"), summary="Fail"),
    ],
)
def test_what_dcgmi_finds_is_told_of_its_gpu_alone(host: LiveHost, tmp_path: Path, text: str) -> None:
    diagnostics(tmp_path, text, code=226)
    found = beside(host)
    bad, good = notes(found[f"burn.temperature@{A}"]), notes(found[f"burn.temperature@{B}"])
    assert "fail: Pending row remap" in bad, "DCGM's GPU 1 is the card in slot 1b"
    assert "advisory: dcgmi reports a failure, see its output; ours is judged" in bad
    assert "fail" not in good
    assert "advisory" not in good


def test_checks_that_were_left_out_are_no_checks(host: LiveHost, tmp_path: Path) -> None:
    diagnostics(tmp_path, fourth(entity(0, "Pass"), entity(1, "Skip")))
    found = beside(host)
    assert "dcgmi diag -r 1 beside: no check of this GPU was run" in notes(found[f"burn.temperature@{A}"])
    assert "1 of 1 checks passed" in notes(found[f"burn.temperature@{B}"])


def test_without_a_host_engine_dcgmi_is_not_asked_to_start_one(host: LiveHost, tmp_path: Path) -> None:
    diagnostics(tmp_path, fourth(entity(0, "Pass")), discovery=NO_ENGINE)
    said = notes(beside(host)[f"burn.temperature@{A}"])
    assert "dcgmi beside gave no number: nv-hostengine does not run" in said
    assert (tmp_path / "dcgmi.asked").read_text() == "discovery -l\n"


@pytest.mark.parametrize(
    ("diag", "said"),
    [
        ("hello", "not the JSON of dcgmi diag"),
        (fourth(entity(0, "Pass"))[:-40], "cut off"),
        ("Error: Diagnostic could not be run because the recommended driver is not being used.", "reports an error"),
        (json.dumps({"DCGM Diagnostic": {"runtime_error": "cannot load plugins"}}), "could not run"),
        (json.dumps({"DCGM GPU Diagnostic": {"version": "3.1.0"}}), "without a result"),
    ],
)
def test_a_dcgmi_that_fails_leaves_ours(host: LiveHost, tmp_path: Path, diag: str, said: str) -> None:
    diagnostics(tmp_path, diag, code=1)
    found = notes(beside(host)[f"burn.temperature@{A}"])
    assert "dcgmi beside gave no number" in found
    assert said in found


def test_a_status_that_is_not_known_is_no_pass() -> None:
    found = dcgmi.parse_diag(fourth(entity(0, "Pass"), entity(1, "Excellent"), summary="Excellent"))
    assert [r.status for r in found.of(1)] == ["not run"]
    only = dcgmi.parse_diag(fourth(summary="Skip"))
    assert [(r.gpus, r.status) for r in only.results] == [((), "skip")]


def test_a_list_of_gpus_that_is_not_whole_is_refused() -> None:
    with pytest.raises(ParseError, match="2 GPUs found, 1 listed"):
        dcgmi.parse_discovery(DISCOVERY.split("| 1 ")[0])
    with pytest.raises(ParseError, match="not the output"):
        dcgmi.parse_discovery("hello")


@pytest.mark.parametrize("parse", [gpu_burn.parse, dcgmi.parse_diag, dcgmi.parse_discovery])
def test_damaged_text_gives_a_reading_or_an_error(parse: Any) -> None:
    for text in (burnt(), third({"gpu_ids": [], "status": None}), fourth(entity(0, "Fail", "x")), DISCOVERY):
        for cut in range(0, len(text), 7):
            for damaged in (text[:cut], text[cut:], text[:cut] + "\x00{" + text[cut + 1 :]):
                try:
                    parse(damaged)
                except ParseError:
                    continue
