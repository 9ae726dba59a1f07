"""``accept parse`` from outside: encodings, size, and one line on stderr for whatever is not that."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

DD = "1024+0 records in\n1024+0 records out\n1073741824 bytes (1.1 GB, 1.0 GiB) copied, 0.5 s, 2.1 GB/s\n"
KINDS = (
    "topo smi-xml smi-csv smi-table nvlink fio iperf3 dd ping dmesg lspci smart nccl-tests mdstat lsblk dmidecode"
).split()


def parse(kind: str, data: bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "agent", "parse", kind], input=data, capture_output=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    "data",
    [
        DD.encode(),
        DD.replace("\n", "\r\n").encode("utf-8-sig"),
        DD.replace("\n", "\r\n").encode("utf-16"),
        b"\xfe\xff" + DD.encode("utf-16-be"),
        "记录了1024+0 的读入\n记录了1024+0 的写出\n1073741824字节(1.1 GB)已复制，0.5 秒，2.1 GB/秒\n".encode("gb18030"),
        DD.replace("copied", "copi\u00e9s").encode("latin-1"),
    ],
    ids=["utf-8", "bom", "powershell", "utf-16-be", "gb18030", "latin-1"],
)
def test_one_reading_in_every_encoding(data: bytes) -> None:
    done = parse("dd", data)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"bytes": 1073741824, "seconds": 0.5, "bytes_per_s": 2147483648.0}


def test_a_failure_in_a_chinese_encoding_has_its_kind() -> None:
    done = parse("dd", "dd: 写入 'x' 出错: 设备上没有空间\n".encode("gb18030"))
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"enospc: ")


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_that_are_no_text(kind: str) -> None:
    done = parse(kind, bytes(range(256)) * 40 + b"\0" * 500)
    assert (done.returncode, done.stdout) == (1, b"")
    assert len(done.stderr.decode().splitlines()) == 1
    assert b"Traceback" not in done.stderr


def test_more_than_is_read_is_refused(tmp_path: Path) -> None:
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(100 << 20)
    done = subprocess.run(
        [sys.executable, "-m", "agent", "parse", "fio", str(large)], capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.decode() == "unparsable: more than 64 MiB\n"
