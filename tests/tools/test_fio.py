"""fio: the argv, the bandwidth log, and the real tool where it is installed."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from agent.tools import ParseError, fio


def test_argv_of_a_timed_job() -> None:
    got = fio.job_argv(
        file="/data/t", rw="read", bs="1M", iodepth=32, size=1 << 30, runtime_s=30, engine="libaio", direct=True
    )
    assert got[0] == "fio"
    assert {"--filename=/data/t", "--rw=read", "--bs=1M", "--iodepth=32", "--size=1073741824"} <= set(got)
    assert {"--direct=1", "--ioengine=libaio", "--output-format=json", "--time_based", "--runtime=30"} <= set(got)
    assert not any("log" in arg or "ramp" in arg for arg in got)


def test_argv_once_over_the_size_buffered_with_log() -> None:
    got = fio.job_argv(
        file="/data/t",
        rw="write",
        bs="1M",
        iodepth=1,
        size=1 << 30,
        runtime_s=0,
        engine="psync",
        direct=False,
        bw_log="/out/w",
        ramp_s=5,
    )
    assert "--time_based" not in got
    assert {"--direct=0", "--write_bw_log=/out/w", "--log_avg_msec=1000", "--ramp_time=5"} <= set(got)


def test_bandwidth_log() -> None:
    samples = fio.parse_bw_log("1000, 2048, 0, 1048576, 0\n2000, 1024, 1, 1048576, 0, 0\n")
    assert samples == (fio.LogSample(1000, 2097152.0, "read"), fio.LogSample(2000, 1048576.0, "write"))


@pytest.mark.parametrize(("text", "kind"), [("1000, 20", "truncated"), ("1000, x, 0\n", "unparsable")])
def test_bandwidth_log_refused(text: str, kind: str) -> None:
    with pytest.raises(ParseError) as caught:
        fio.parse_bw_log(text)
    assert caught.value.kind == kind


def test_engine_text_in_a_job_that_succeeded_is_no_failure() -> None:
    note = "fio: cache invalidation of /data/t failed: Operation not permitted\n"
    text = (Path(__file__).parents[1] / "fixtures/tools/fio--325_randread.txt").read_text()
    assert fio.parse(note + text) == fio.parse(text)


def test_a_failed_job_beside_a_good_one_voids_both() -> None:
    path = Path(__file__).parents[1] / "fixtures/tools/fio--multijob_stonewall.txt"
    document = json.loads(path.read_text())
    document["jobs"][1]["error"] = 5
    with pytest.raises(ParseError) as caught:
        fio.parse(json.dumps(document))
    assert caught.value.kind == "io_error"


def test_numbers_that_are_none() -> None:
    text = (Path(__file__).parents[1] / "fixtures/tools/fio--325_randread.txt").read_text()
    broken = text.replace('"bw_agg" : 100.000000', '"bw_agg" : -nan').replace('"iops_mean" : 81729.333333', '"x" : inf')
    assert broken.count("nan") == 1
    assert broken.count(": inf") == 1
    assert fio.parse(broken) == fio.parse(text)


@pytest.mark.fio
@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
def test_real_fio_equals_its_own_json(tmp_path: Path) -> None:
    log = tmp_path / "w"
    command = fio.job_argv(
        file=str(tmp_path / "t"),
        rw="write",
        bs="128k",
        iodepth=1,
        size=8 << 20,
        runtime_s=1,
        engine="psync",
        direct=False,
        bw_log=str(log),
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    (job,) = fio.parse(done.stdout).jobs
    printed = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]["write"]
    assert job.write.bytes_per_s == printed["bw_bytes"]
    assert job.write.lat_ns_p99 == printed["clat_ns"]["percentile"]["99.000000"]
    assert job.read == fio.NO_IO
    assert all(s.direction == "write" for s in fio.parse_bw_log(Path(f"{log}_bw.1.log").read_text()))


def test_a_second_without_a_sample_is_a_zero_and_the_tail_is_none() -> None:
    text = "1000, 100, 1, 0\n2001, 90, 1, 0\n4002, 120, 1, 0\n5000, 1, 1, 0\n"
    assert [v / 1024 for v in fio.per_second(fio.parse_bw_log(text), 4)] == [100, 90, 0, 120]
    assert fio.per_second((), 4) == ()


@pytest.mark.parametrize(
    ("shared", "own", "ran_ms", "whole"),
    [
        ({"runtime": "1m", "time_based": "1"}, {}, 60010, True),
        ({"runtime": "1m", "time_based": "1"}, {}, 10000, False),
        ({"runtime": "60"}, {"time_based": ""}, 10000, False),
        ({"runtime": "60s"}, {}, 10000, True),
        ({"runtime": "60", "time_based": "0"}, {}, 10000, True),
        ({"runtime": "1m"}, {"runtime": "10", "time_based": "1"}, 10001, True),
    ],
)
def test_a_timed_job_under_its_time_is_no_result(
    shared: dict[str, str], own: dict[str, str], ran_ms: int, whole: bool
) -> None:
    idle = {"io_bytes": 0, "bw_bytes": 0, "iops": 0.0, "runtime": 0}
    job = {
        "jobname": "a",
        "error": 0,
        "eta": 0,
        "job options": own,
        "job_runtime": ran_ms,
        "read": {"io_bytes": 1 << 30, "bw_bytes": 1 << 20, "iops": 1.0, "runtime": ran_ms},
        "write": idle,
    }
    text = json.dumps({"fio version": "fio-3.36", "global options": shared, "jobs": [job]})
    if whole:
        assert fio.parse(text).jobs[0].read.bytes_per_s == 1 << 20
        return
    with pytest.raises(ParseError) as caught:
        fio.parse(text)
    assert caught.value.kind == "interrupted"
    steady = json.dumps({"fio version": "fio-3.36", "global options": shared, "jobs": [{**job, "steadystate": {}}]})
    assert fio.parse(steady).jobs[0].read.bytes_per_s == 1 << 20
