"""The commands with which a report says how to repeat a number: whole, quoted, and doing what they say."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from agent.model import Attempt, Block, Finding, Measurement, Run
from agent.report import byhand, industry
from agent.report.names import _CLAUSES
from agent.text import msg
from tests.report.samples import sample_run

# What nobody can repeat with one command: days of a trial, many machines, the customer's own job.
_NOT_ONE_COMMAND = ("trial.", "fleet.", "integrity", "training.", "workload")
_WITHOUT_A_TOOL = {"gemm.fp4"}
KEYS = [k for k in _CLAUSES if not k.startswith(_NOT_ONE_COMMAND) and k not in _WITHOUT_A_TOOL]


@pytest.fixture(scope="module")
def run() -> Run:
    return sample_run("rejected")


def _finding(key: str, entry: str = "", reproduce: tuple[str, ...] = (), subject: str = "") -> Finding:
    family, dot, name = key.partition(".")
    clause = f"{family}[{entry}]{dot}{name}" if entry else key
    return Finding(
        id=clause,
        clause=clause,
        outcome="fail",
        severity="breach",
        promised=">= 1",
        reason_code="below-limit",
        reason=msg("kept"),
        subject=subject or None,
        reproduce=reproduce,
    )


def _shell(line: str, where: Path, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", line], cwd=where, capture_output=True, text=True, timeout=timeout, check=False)


def _needs_torch() -> None:
    # Found, not imported: it would stay in the memory of every test that follows.
    if importlib.util.find_spec("torch") is None:
        pytest.skip("no torch")


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("several", [False, True])
def test_every_promise_has_a_whole_command(key: str, several: bool, run: Run) -> None:
    slot = str(run.node["gpus"][5]["slot"])
    finding = _finding(key, "/data;x y", subject="" if several else slot)
    lines = [byhand.command(finding, run, several), industry.command(finding, run, several)]
    assert any(lines)
    for line in filter(None, lines):
        assert not re.search(r"\{[a-z]+\}", line), line
        assert subprocess.run(["bash", "-n", "-c", line], check=False).returncode == 0, line


def test_a_row_of_one_gpu_names_it_and_a_row_of_several_names_none(run: Run) -> None:
    gpu = run.node["gpus"][5]
    one = _finding("gpu.ecc", subject=str(gpu["slot"]))
    assert f"-i {gpu['index']} " in byhand.command(one, run)
    assert " -i " not in byhand.command(one, run, several=True)
    assert f"cuda:{gpu['index']}" in byhand.command(_finding("gemm.bf16", subject=str(gpu["slot"])), run)


def test_the_interpreter_that_measured_is_the_one_that_is_named(run: Run) -> None:
    worker = ("/opt/conda/bin/python", "-s", "/x/gemm.py", "--request", "/x/request.json")
    said = byhand.command(_finding("gemm.bf16", reproduce=worker), run)
    assert "/opt/conda/bin/python -c" in said
    assert "request.json" not in said


def test_our_jobs_are_given_with_a_file_and_an_output_of_the_readers(run: Run) -> None:
    argv = (
        "fio", "--name=accept", "--filename=/data/.accept-test-1/seq.dat", "--rw=read", "--bs=1M", "--iodepth=32",
        "--size=2147483648", "--ioengine=psync", "--direct=1", "--output-format=json",
        "--write_bw_log=/run/evidence/0079/series", "--log_avg_msec=1000", "--thread", "--size=100%", "--time_based",
        "--runtime=2",
    )  # fmt: skip
    said = industry.command(_finding("disk.read", "/data", argv), run)
    assert said == (
        "fio --name=accept --filename=/data/accept.fio --rw=read --bs=1M --iodepth=32 --size=2G --ioengine=psync "
        "--direct=1 --time_based --runtime=2; rm -f /data/accept.fio"
    )
    net = ("iperf3", "-c", "203.0.113.9", "-p", "5201", "-t", "10", "-P", "8", "-J", "-O", "2", "-R")
    assert industry.command(_finding("network.download", "public", net), run) == (
        "iperf3 -c 203.0.113.9 -p 5201 -t 10 -P 8 -O 2 -R"
    )
    nccl = ("all_reduce_perf", "-b", "1073741824", "-e", "1073741824", "-g", "8", "-n", "20", "-c", "1")
    assert industry.command(_finding("allreduce.busbw", reproduce=nccl), run) == (
        "all_reduce_perf -b 1G -e 1G -g 8 -n 20 -c 1"
    )


def test_an_upload_has_something_to_send_and_prints_a_rate(run: Run) -> None:
    put = ("curl", "-T", "FILE", "https://s3.example/b/")
    said = byhand.command(_finding("backup.rate", "https://s3.example/b/", put), run)
    assert said == (
        "head -c 1G /dev/urandom > accept.bin; curl -w '%{speed_upload} B/s\\n' -T accept.bin https://s3.example/b/"
    )


@pytest.mark.parametrize("key", ["disk.read", "disk.write", "disk.checkpoint"])
def test_dd_as_it_is_pasted(key: str, tmp_path: Path, run: Run) -> None:
    line = byhand.command(_finding(key, str(tmp_path)), run)
    line = re.sub(r"bs=16M|bs=1M", "bs=64K", re.sub(r"count=\d+", "count=16", line))
    done = _shell(line, tmp_path)
    if "Invalid argument" in done.stderr:
        pytest.skip("no O_DIRECT here")
    assert done.returncode == 0, done.stderr
    assert re.search(r"1048576|1\.0 MB", done.stderr)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("key", ["read", "write", "read_iops", "write_iops", "read_p99", "checkpoint", "small_files"])
def test_fio_as_it_is_pasted(key: str, tmp_path: Path, run: Run) -> None:
    if shutil.which("fio") is None:
        pytest.skip("no fio")
    line = industry.command(_finding(f"disk.{key}", str(tmp_path)), run)
    for long, short in (
        ("8G", "32M"),
        ("runtime=30", "runtime=1"),
        ("nrfiles=2000", "nrfiles=20"),
        ("libaio", "psync"),
    ):
        line = line.replace(long, short)
    done = _shell(line, tmp_path)
    assert re.search(r"(READ|WRITE): bw=", done.stdout), done.stdout + done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("key", ["gemm.fp32", "gemm.bf16", "gemm.fp64", "memory_bandwidth", "gemm.int8", "gemm.fp8"])
def test_a_line_of_torch_computes_on_whatever_device(key: str, tmp_path: Path, run: Run) -> None:
    """On the CPU, small: the arithmetic of the line is the same."""
    _needs_torch()
    line = byhand.command(_finding(key), run)
    assert "cuda:0" in line
    line = line.replace("cuda:0", "cpu").replace("torch.cuda.synchronize", "(lambda d: None)")
    line = line.replace("n = 8192", "n = 64").replace("2**30", "2**20")
    line = line.replace("python3 -c", "python -c")
    python = Path(sys.executable)
    done = _shell(f"PATH={python.parent}:$PATH; {line}", tmp_path)
    assert done.returncode == 0, done.stderr[-800:]
    assert re.match(r"[\d.e-]+ (TFLOPS|TOPS|GB/s)\n", done.stdout)
    assert float(done.stdout.split()[0]) > 0


def test_memory_that_forgets_a_byte_is_found_by_the_line(tmp_path: Path, run: Run) -> None:
    _needs_torch()
    line = byhand.command(_finding("memory_test"), run).replace("cuda:0", "cpu")
    line = line.replace("int(torch.cuda.mem_get_info(d)[0] * 0.95) >> 28", "3").replace("1 << 28", "1 << 10")
    python = Path(sys.executable)
    good = _shell(f"PATH={python.parent}:$PATH; {line.replace('python3 -c', 'python -c')}", tmp_path)
    assert good.stdout.strip() == "0.75 GiB written, 0 bytes wrong", good.stderr[-500:]
    bad = line.replace("print(", "x[1][7] = 9; print(", 1)
    done = _shell(f"PATH={python.parent}:$PATH; {bad.replace('python3 -c', 'python -c')}", tmp_path)
    assert done.stdout.strip().endswith("1 bytes wrong")


def test_hostile_paths_stay_one_word(run: Run, tmp_path: Path) -> None:
    hostile = "/data; touch owned; $(touch owned) `touch owned` ' \" \x1b[2J"
    finding = _finding("disk.size", hostile)
    _shell(byhand.command(finding, run), tmp_path)
    _shell(industry.command(replace(finding, reproduce=("fio", f"--filename={hostile}")), run), tmp_path, 20)
    assert not (tmp_path / "owned").exists()


def test_a_burn_by_hand_lasts_as_long_as_ours(run: Run) -> None:
    finding = _finding("burn.throttled")
    assert industry.command(finding, run).startswith("gpu_burn -tc 600 & ")
    minutes = [f"2026-11-30T00:{m:02d}:00.000Z" for m in range(31)]
    blocks = tuple(Block(0.0, conditions={"started_at": a, "ended_at": b}) for a, b in zip(minutes, minutes[1:]))
    burnt = Measurement("burn.throttled@0000:1b:00.0", "%", "share of time", (Attempt(blocks, "standard", minutes[0]),))
    longer = replace(run, measurements=(*run.measurements, burnt))
    assert industry.command(finding, longer) == "gpu_burn -tc 1800 & dcgmi dmon -e 112,100,155 -c 1800"
