"""dd: the argv, and the real tool."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from agent.tools import ParseError, dd


def test_argv() -> None:
    write = dd.write_argv(file="/d/t", block_bytes=1 << 20, count=64, direct=True)
    assert write == ["dd", "of=/d/t", "bs=1048576", "count=64", "iflag=fullblock", "oflag=direct"]
    assert "conv=fdatasync" in dd.write_argv(file="/d/t", block_bytes=1, count=1, direct=False)
    assert dd.read_argv(file="/d/t", block_bytes=4096, count=2, direct=True)[-1] == "iflag=direct"
    assert "of=/dev/null" in dd.read_argv(file="/d/t", block_bytes=4096, count=2, direct=False)


def test_real_dd(tmp_path: Path) -> None:
    command = dd.write_argv(file=str(tmp_path / "t"), block_bytes=1 << 16, count=16, direct=False)
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        command, capture_output=True, timeout=60, check=True, env=environment, input=os.urandom(1 << 20)
    )
    result = dd.parse(done.stderr.decode())
    assert result.bytes == 1 << 20
    assert result.seconds
    assert result.bytes_per_s == result.bytes / result.seconds


def test_real_dd_into_a_missing_folder(tmp_path: Path) -> None:
    command = dd.write_argv(file=str(tmp_path / "no" / "t"), block_bytes=512, count=1, direct=False)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    with pytest.raises(ParseError) as caught:
        dd.parse(done.stderr)
    assert caught.value.kind == "open_failed"


@pytest.mark.parametrize("unit", ["GB/s", "MB/秒", "kB/s", "B/s", "ГБ/с"])
def test_rate_is_bytes_over_seconds_whatever_the_unit(unit: str) -> None:
    assert dd.parse(f"1000 bytes copied, 0.5 s, 9.9 {unit}\n") == dd.Dd(1000, 0.5, 2000.0)


@pytest.mark.parametrize(
    "text",
    [
        "1073741824 bytes (1.1 GB, 1.0 GiB) copied, 1 s, 1.1 GB/s",
        "1073741824 bytes (1.1 GB, 1.0 GiB) copied, 1 s, 1.1 GB/s\r",
        "128+0 records in\n128+0 rec",
        "128+0 records in\n128+0 records out\n1342",
    ],
)
def test_unfinished_text_is_refused(text: str) -> None:
    with pytest.raises(ParseError) as caught:
        dd.parse(text)
    assert caught.value.kind == "truncated"


def test_truncated_input_records_are_no_truncated_output() -> None:
    text = (
        "10+0 records in\n10+0 records out\n5 truncated records\n10240 bytes (10 kB, 10 KiB) copied, 0.5 s, 20 kB/s\n"
    )
    assert dd.parse(text) == dd.Dd(10240, 0.5, 20480.0)
