"""How to reproduce a number with the tool that the trade knows: by clause a command to paste, its holes filled.

The agent does not run these: they are what a vendor's engineer trusts. Holes are ``{slot}`` (PCI slot of the GPU),
``{entry}`` (path, host or address of the clause) and ``{gpus}`` (how many the machine has).
"""

from __future__ import annotations

import shlex
from typing import Optional

from agent.model import Finding, Run
from agent.report.clean import one_line, shortened
from agent.report.names import split

_QUERY = "nvidia-smi -i {slot} --format=csv --query-gpu="
_LIVE = "-l 1 --format=csv --query-gpu=index,"
_FIO = "fio --directory={entry} --ioengine=libaio --direct=1 --runtime=60 --time_based --group_reporting"
_STREAM = "--bs=1M --iodepth=32 --size=16G"
_RANDOM = "--bs=4k --iodepth=64 --numjobs=4 --size=4G"

_TOOLS: dict[str, str] = {
    "gpu.model": "nvidia-smi -L; lspci -nn -d 10de:",
    "gpu.count": "nvidia-smi -L; lspci -nn -d 10de:",
    "gpu.memory": "nvidia-smi --format=csv --query-gpu=index,memory.total,memory.used",
    "gpu.driver": "nvidia-smi --format=csv --query-gpu=driver_version; cat /proc/driver/nvidia/version",
    "gpu.cuda": "nvidia-smi",
    "gpu.ecc": _QUERY + "ecc.mode.current,ecc.errors.uncorrected.aggregate.total",
    "gpu.mig": _QUERY + "mig.mode.current",
    "gpu.whole_card": "nvidia-smi; nvidia-smi --format=csv --query-compute-apps=gpu_bus_id,pid,name,used_memory",
    "gpu.power_limit": _QUERY + "enforced.power.limit,power.default_limit,power.max_limit",
    "gpu.clocks": _QUERY + "clocks.applications.graphics,clocks.max.graphics,clocks_event_reasons.active",
    "gpu.pcie": f"nvidia-smi -i {{slot}} {_LIVE}pcie.link.gen.current,pcie.link.width.current  # during a copy",
    "gpu.nvlink": "nvidia-smi nvlink -s -i {slot}",
    "gpu.p2p": "nvidia-smi topo -p2p r",
    "gpu.condition": _QUERY + "ecc.errors.uncorrected.aggregate.total,remapped_rows.pending,remapped_rows.failure",
    "gpu.xid": "dmesg -T | grep -i xid",
    "gemm.fp64": "dcgmproftester12 --no-dcgm-validation -t 1006 -d 60 -i {index}",
    "gemm.fp32": "dcgmproftester12 --no-dcgm-validation -t 1007 -d 60 -i {index}",
    "gemm.fp16": "dcgmproftester12 --no-dcgm-validation -t 1004 -d 60 -i {index}",
    "gemm.bf16": "dcgmproftester12 --no-dcgm-validation -t 1004 -d 60 -i {index}  # FP16 tensor cores: the same peak",
    "memory_bandwidth": "nvbandwidth -t device_local_copy",
    "memory_test": "dcgmi diag -r memory -i {index}",
    "pcie_bandwidth.h2d": "nvbandwidth -t host_to_device_memcpy_ce",
    "pcie_bandwidth.d2h": "nvbandwidth -t device_to_host_memcpy_ce",
    "p2p_bandwidth": "nvbandwidth -t device_to_device_memcpy_read_ce",
    "allreduce.busbw": "all_reduce_perf -b 1G -e 1G -g {gpus} -n 20 -c 1",
    "burn.temperature": f"gpu_burn 600 & nvidia-smi {_LIVE}temperature.gpu",
    "burn.throttled": f"gpu_burn 600 & nvidia-smi {_LIVE}clocks_event_reasons.active,clocks.sm",
    "burn.power": f"gpu_burn 600 & nvidia-smi {_LIVE}power.draw,enforced.power.limit",
    "burn.sag": f"gpu_burn 600 & nvidia-smi {_LIVE}clocks.sm",
    "topology.gpu_gpu": "nvidia-smi topo -m",
    "topology.gpu_nic": "nvidia-smi topo -m",
    "topology.numa": "nvidia-smi topo -m; numactl --hardware",
    "cpu.model": "lscpu",
    "cpu.sockets": "lscpu",
    "cpu.cores": "lscpu",
    "cpu.vcpus": "nproc; lscpu",
    "cpu.steal": "vmstat 1 60",
    "memory.size": "free -b; dmidecode -t memory",
    "memory.bandwidth": "stream_c.exe",
    "disk.kind": "lsblk -o NAME,MODEL,SIZE,ROTA,TRAN",
    "disk.size": "df -B1 {entry}; lsblk -b",
    "disk.raid": "cat /proc/mdstat; lsblk -o NAME,TYPE,SIZE,MODEL",
    "disk.wear": "smartctl -a /dev/nvme0",
    "disk.hours": "smartctl -a /dev/nvme0",
    "disk.read": f"{_FIO} --name=r --rw=read {_STREAM}",
    "disk.write": f"{_FIO} --name=w --rw=write {_STREAM}",
    "disk.read_iops": f"{_FIO} --name=rr --rw=randread {_RANDOM}",
    "disk.write_iops": f"{_FIO} --name=rw --rw=randwrite {_RANDOM}",
    "disk.read_p99": f"{_FIO} --name=rr --rw=randread {_RANDOM}",
    "network.speed": "ethtool {entry}",
    "network.mtu": "ip link show {entry}",
    "ping.latency": "mtr -rwc 100 {entry}",
    "ping.loss": "mtr -rwc 1000 {entry}",
    "ping.jitter": "ping -c 300 -i 0.2 {entry}",
    "rdma.devices": "ibv_devinfo",
    "rdma.rate": "ibstat",
    "rdma.write_bandwidth": "ib_write_bw -F --report_gbits",
    "software.os": "cat /etc/os-release",
    "software.kernel": "uname -r",
    "software.torch": "python3 -c 'import torch; print(torch.__version__, torch.version.cuda)'",
    "software.cuda_toolkit": "nvcc --version",
    "software.docker": "docker info",
    "software.shm": "df -B1 /dev/shm",
    "software.memlock": "ulimit -l",
    "software.nofile": "ulimit -n",
}  # fmt: skip


def command(finding: Finding, run: Run) -> str:
    """What to run, or an empty text where the trade has no tool of its own for this promise."""
    key, entry = split(finding.clause)
    template = _TOOLS.get(key, "")
    gpus = [g for g in run.node.get("gpus") or () if isinstance(g, dict)]
    index = next((g.get("index") for g in gpus if finding.subject and str(g.get("slot")) == finding.subject), None)
    holes = {"{slot}": finding.subject, "{index}": index, "{entry}": entry, "{gpus}": len(gpus) or None}
    for hole, value in holes.items():
        if hole in template:
            template = _filled(template, hole, value)
    return template


def _filled(template: str, hole: str, value: Optional[object]) -> str:
    """Quoted for a shell. A GPU that is not known leaves its option out; anything else stays a visible hole."""
    if value is not None:
        return template.replace(hole, shlex.quote(shortened(one_line(str(value)), 200)))
    return template.replace(f" -i {hole}", "").replace(hole, hole[1:-1].upper())
