"""How to reproduce a number with the tool that the trade knows: by clause a command to paste, its holes filled.

The agent does not run these: they are what a vendor's engineer trusts. Where the agent itself measured with such a
tool (fio, iperf3), the command is the one it ran, with a file and an output that suit a person. Holes are ``{i}``
(the option that names the GPU), ``{entry}`` (path, host or address of the clause), ``{gpus}`` (how many the machine
has) and ``{seconds}`` (how long the burn lasted).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from agent.model import Finding, Run
from agent.report.clean import one_line, shortened
from agent.report.names import split
from agent.tools import ParseError
from agent.tools.telemetry import epoch

# A path or host longer than this is nobody's; the command is cut with a visible mark.
_LONGEST = 200
_FILE = "{entry}/accept.fio"
_FIO = f"fio --name=accept --filename={_FILE} --direct=1 --ioengine=libaio --time_based --runtime=30 --group_reporting"
_STREAM = "--bs=1M --iodepth=32 --size=8G"
_RANDOM = "--bs=4k --iodepth=64 --numjobs=4 --size=8G"
_REMOVE = f"; rm -f {_FILE}"
_IPERF3 = "iperf3 -c SERVER -p 5201 -t 30 -O 2 -P 8"
_UDP = "iperf3 -c SERVER -p 5201 -u -b 10M -l 1200 -t 30  # and with -R"

# No hole for a GPU's number here: what it tells each GPU, it tells all of them.
_TOOLS: Mapping[str, str] = {
    "gpu.pcie": "nvbandwidth -t host_to_device_memcpy_ce & sleep 5; lspci -vv -d 10de: | grep LnkSta:",
    "gpu.nvlink": "dcgmi nvlink -s",
    "gpu.condition": "dcgmi diag -r 1",
    "gpu.clocks": "dcgmi dmon -e 100,112,155 -c 30",
    "gemm.fp64": "dcgmproftester12 --no-dcgm-validation -t 1006 -d 60 {i}",
    "gemm.fp32": "dcgmproftester12 --no-dcgm-validation -t 1007 -d 60 {i}",
    "gemm.fp16": "dcgmproftester12 --no-dcgm-validation -t 1004 -d 60 {i}",
    "gemm.bf16": "dcgmproftester12 --no-dcgm-validation -t 1004 -d 60 {i}  # FP16 tensor cores: the same peak",
    "gemm.spread": "dcgmproftester12 --no-dcgm-validation -t 1004 -d 60  # all GPUs at once",
    "memory_bandwidth": "nvbandwidth -t device_local_copy",
    "memory_test": "dcgmi diag -r memory {i}",
    "pcie_bandwidth.h2d": "nvbandwidth -t host_to_device_memcpy_ce",
    "pcie_bandwidth.d2h": "nvbandwidth -t device_to_host_memcpy_ce",
    "p2p_bandwidth": "nvbandwidth -t device_to_device_memcpy_read_ce",
    "allreduce.busbw": "all_reduce_perf -b 1G -e 1G -g {gpus} -n 20 -c 1",
    "collectives.all_gather": "all_gather_perf -b 1G -e 1G -g {gpus} -n 20 -c 1",
    "collectives.reduce_scatter": "reduce_scatter_perf -b 1G -e 1G -g {gpus} -n 20 -c 1",
    "collectives.all_to_all": "alltoall_perf -b 1G -e 1G -g {gpus} -n 20 -c 1",
    "burn.duration": "gpu_burn -tc {seconds}",
    "burn.temperature": "gpu_burn -tc {seconds} & dcgmi dmon -e 150,155,100 -c {seconds}",
    "burn.throttled": "gpu_burn -tc {seconds} & dcgmi dmon -e 112,100,155 -c {seconds}",
    "burn.power": "gpu_burn -tc {seconds} & dcgmi dmon -e 155,100 -c {seconds}",
    "burn.sag": "gpu_burn -tc {seconds} & dcgmi dmon -e 100,150 -c {seconds}",
    "cpu.steal": "sar -u 1 60",
    "memory.bandwidth": "gcc -O3 -fopenmp -mcmodel=medium -DSTREAM_ARRAY_SIZE=400000000 stream.c -o stream; ./stream",
    "disk.read": f"{_FIO} --rw=read {_STREAM}{_REMOVE}",
    "disk.write": f"{_FIO} --rw=write {_STREAM}{_REMOVE}",
    "disk.sustained": f"{_FIO} --rw=write {_STREAM}{_REMOVE}".replace("--runtime=30", "--runtime=600"),
    "disk.checkpoint": f"{_FIO} --rw=write --bs=16M --iodepth=8 --size=8G --end_fsync=1{_REMOVE}",
    "disk.read_iops": f"{_FIO} --rw=randread {_RANDOM}{_REMOVE}",
    "disk.write_iops": f"{_FIO} --rw=randwrite {_RANDOM}{_REMOVE}",
    "disk.read_p99": f"{_FIO} --rw=randread --bs=4k --iodepth=1 --size=8G{_REMOVE}",
    "disk.write_p99": f"{_FIO} --rw=randwrite --bs=4k --iodepth=1 --size=8G{_REMOVE}",
    "disk.small_files": (
        "fio --name=accept --directory={entry} --nrfiles=2000 --filesize=100k --openfiles=64 --rw=read --bs=100k "
        "--direct=1 --ioengine=psync --numjobs=4 --group_reporting; rm -f {entry}/accept.*.*"
    ),
    "network.download": f"{_IPERF3} -R",
    "network.upload": _IPERF3,
    "network.udp_loss": _UDP,
    "network.udp_jitter": _UDP,
    "network.dedicated": f"{_IPERF3} -R  # at several hours of several days",
    "network.evening_drop": f"{_IPERF3} -R  # by day and in the evening",
    "ping.latency": "mtr -rwbc 100 {entry}",
    "ping.loss": "mtr -rwbc 1000 {entry}",
    "ping.jitter": "mtr -rwbc 300 -o LSDJ {entry}",
    "rdma.rate": "ibstat",
    "rdma.write_bandwidth": "ib_write_bw -F --report_gbits -D 10  # on the other end; here with its address behind",
    "rdma.gpudirect": "ib_write_bw -F --report_gbits --use_cuda=0 -D 10  # on the other end; here with its address",
    "storage_path.gpudirect": "/usr/local/cuda/gds/tools/gdscheck.py -p",
    "software.nvidia_container_toolkit": "nvidia-ctk --version; nvidia-container-cli info",
}  # fmt: skip
# Tools of the trade with which the agent itself measures.
_OWN = frozenset({"fio", "iperf3", "all_reduce_perf", "all_gather_perf", "reduce_scatter_perf", "alltoall_perf"})
# What serves a program that reads the output, or files of a run that are gone.
_FOR_PROGRAMS = re.compile(r"--(output-format=|write_bw_log=|log_avg_msec=|thread\Z|size=100%|fallocate=)")
_BYTES = re.compile(r"\d{7,}\Z")
_UNITS = (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10))


def command(finding: Finding, run: Run, several: bool = False) -> str:
    """What to run, or an empty text where the trade has no tool of its own for this promise.

    ``several``: for all GPUs of a row rather than for the finding's own.
    """
    argv = finding.reproduce
    if argv and argv[0] in _OWN:
        return _as_measured(argv, split(finding.clause)[1])
    return filled(_TOOLS.get(split(finding.clause)[0], ""), finding, run, several)


def filled(template: str, finding: Finding, run: Run, several: bool = False) -> str:
    """A template with its holes filled, quoted for a shell. What is not known leaves its option out, or stays a
    visible hole in capitals.
    """
    gpus = [g for g in run.node.get("gpus") or () if isinstance(g, dict)]
    slot = None if several else finding.subject
    index = next((g.get("index") for g in gpus if slot and str(g.get("slot")) == slot), None)
    template = template.replace("{i} ", "" if index is None else "-i {index} ").replace(
        " {i}", "" if index is None else " -i {index}"
    )
    holes = {"{index}": index, "{entry}": split(finding.clause)[1], "{gpus}": len(gpus) or None}
    if "{seconds}" in template:
        holes["{seconds}"] = _burn_s(run)
    for hole, value in holes.items():
        shown = hole[1:-1].upper() if value is None else quoted(str(value))
        template = template.replace(hole, shown)
    return template


def _burn_s(run: Run) -> int:
    """How long the longest burn of the run lasted, in whole seconds; ten minutes where none did."""
    attempts = (a for m in run.measurements if m.key.startswith("burn.") for a in m.attempts if a.blocks)
    lasted = (
        _between(a.blocks[0].conditions.get("started_at"), a.blocks[-1].conditions.get("ended_at")) for a in attempts
    )
    return round(max((s for s in lasted if s is not None), default=600.0))


def _between(start: Any, end: Any) -> Optional[float]:
    """Seconds between two moments of a result, which may hold anything there."""
    try:
        return epoch(str(end)) - epoch(str(start))
    except ParseError:
        return None


def quoted(text: str) -> str:
    """A word of a command for a shell."""
    return shlex.quote(shortened(one_line(text), _LONGEST))


def _as_measured(argv: Sequence[str], entry: Optional[str]) -> str:
    """The very job, with a file of the reader's and the tool's own words for output."""
    file = f"{entry}/accept.fio" if entry else "accept.fio"
    words: list[str] = []
    for word in argv:
        if _FOR_PROGRAMS.match(word) or word == "-J":
            continue
        name, sign, value = word.partition("=")
        if name in ("--filename", "--directory"):
            word = f"--filename={file}"
        elif _BYTES.match(value if sign else word):
            word = f"{name}{sign}{_short_size(int(value))}" if sign else _short_size(int(word))
        words.append(quoted(word))
    removed = f"; rm -f {quoted(file)}" if argv[0] == "fio" else ""
    return " ".join(words) + removed


def _short_size(count: int) -> str:
    return next((f"{count // size}{unit}" for unit, size in _UNITS if count % size == 0), str(count))
