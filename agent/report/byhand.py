"""How to reproduce a number by hand: with what every machine of this kind has, and nothing of this agent.

Plain commands, and for what a GPU computes or copies a line of Python for the torch that is there. What they print
need not agree to the digit: they show whether the figure of the report is of the right size. The holes are those of
:mod:`agent.report.industry`, and ``{python}``, ``{device}``, ``{second}`` (interpreter, a GPU, another one).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Optional

from agent.model import Finding, Run
from agent.report import industry
from agent.report.industry import filled, quoted
from agent.report.names import split

_QUERY = "nvidia-smi {i} --format=csv --query-gpu=index,"
_LIVE = "nvidia-smi {i} -l 1 --format=csv --query-gpu=index,"
_TORCH = "CUDA_DEVICE_ORDER=PCI_BUS_ID {python} -c "
# Warm, then timed between two synchronisations; operands that a compiler cannot leave out.
_TIMED = (
    "from time import time; s = torch.cuda.synchronize; [f() for _ in range({warm})]; s(d); t = time(); "
    "[f() for _ in range({n})]; s(d); t = (time() - t) / {n}; "
)
_OPERANDS = {
    "float": "a, b, c = (torch.randn(n, n, device=d).to(torch.{type}) for _ in range(3)); "
    "f = lambda: torch.mm(a, b, out=c); ",
    "int8": "a, b = (torch.randint(-9, 9, (n, n), device=d, dtype=torch.int8) for _ in range(2)); "
    "f = lambda: torch._int_mm(a, b); ",
    "fp8": "a, b = (torch.randn(n, n, device=d).to(torch.float8_e4m3fn) for _ in range(2)); "
    "o = torch.ones((), device=d); "
    "f = lambda: torch._scaled_mm(a, b.t(), scale_a=o, scale_b=o, out_dtype=torch.bfloat16); ",
}


def _gemm(kind: str, of: str = "float", before: str = "") -> str:
    multiply = _OPERANDS[of].replace("{type}", kind)
    timed = _TIMED.replace("{warm}", "20").replace("{n}", "100")
    unit = "TOPS" if of == "int8" else "TFLOPS"
    return (
        f"{_TORCH}\"import torch; d = '{{device}}'; n = 8192; {before}{multiply}{timed}print(2 * n**3 / t / 1e12, "
        f"'{unit}')\""
    )


def _moved(prepare: str, times: int) -> str:
    timed = _TIMED.replace("{warm}", "5").replace("{n}", "20")
    moved = f"{times} * n" if times > 1 else "n"
    return f"{_TORCH}\"import torch; d = '{{device}}'; n = 2**30; {prepare}{timed}print({moved} / t / 1e9, 'GB/s')\""


_PINNED = "h = torch.empty(n, dtype=torch.uint8).pin_memory(); g = torch.empty(n, dtype=torch.uint8, device=d); "
_FLOATS = "x, y, z = (torch.ones(n // 4, device=d) for _ in range(3)); f = lambda: torch.add(x, y, alpha=2, out=z); "
_PATTERN = (
    f"{_TORCH}\"import torch; d = '{{device}}'; n = int(torch.cuda.mem_get_info(d)[0] * 0.95) >> 28; "
    "x = [torch.full((1 << 28,), i % 251, dtype=torch.uint8, device=d) for i in range(n)]; "
    "print(n / 4, 'GiB written,', sum(int((t != i % 251).sum()) for i, t in enumerate(x)), 'bytes wrong')\""
)
_LOAD = (
    f"{_TORCH}\"import torch, time; d = '{{device}}'; end = time.time() + 600; a, b, c = (torch.randn(8192, 8192, "
    "device=d).bfloat16() for _ in range(3)); any(torch.mm(a, b, out=c) is None or torch.cuda.synchronize(d) "
    'for _ in iter(lambda: time.time() < end, False))" & '
)
_FILE = "{entry}/accept.bin"
_WRITE = f"dd if=/dev/zero of={_FILE} bs=1M count=4096 oflag=direct conv=fsync"
_READ = f"dd if={_FILE} of=/dev/null bs=1M iflag=direct"
_REMOVE = f"rm -f {_FILE}"
_ONE = "  # one request at a time: a fast disk does more"
_DISK = '"$(df --output=source {entry} | tail -n 1)"'

_COMMANDS: Mapping[str, str] = {
    "gpu.model": "nvidia-smi -L; lspci -nn -d 10de:",
    "gpu.count": "nvidia-smi -L; lspci -nn -d 10de:",
    "gpu.memory": _QUERY + "memory.total,memory.used",
    "gpu.driver": "nvidia-smi --format=csv --query-gpu=driver_version; cat /proc/driver/nvidia/version",
    "gpu.cuda": "nvidia-smi",
    "gpu.ecc": _QUERY + "ecc.mode.current,ecc.errors.uncorrected.aggregate.total",
    "gpu.mig": _QUERY + "mig.mode.current",
    "gpu.whole_card": "nvidia-smi; nvidia-smi --format=csv --query-compute-apps=gpu_bus_id,pid,name,used_memory",
    "gpu.power_limit": _QUERY + "enforced.power.limit,power.default_limit,power.max_limit",
    "gpu.clocks": _LIVE + "clocks.sm,clocks.max.sm,clocks_throttle_reasons.active  # beside a load",
    "gpu.pcie": _LIVE + "pcie.link.gen.current,pcie.link.width.current  # during a copy",
    "gpu.nvlink": "nvidia-smi nvlink -s {i}",
    "gpu.p2p": "nvidia-smi topo -p2p r",
    "gpu.condition": _QUERY
    + "ecc.errors.uncorrected.aggregate.total,remapped_rows.pending,remapped_rows.failure,vbios_version",
    "gpu.xid": "dmesg -T | grep -i xid",
    "gemm.fp64": _gemm("float64"),
    "gemm.fp32": _gemm("float32"),
    "gemm.tf32": _gemm("float32", before="torch.backends.cuda.matmul.allow_tf32 = True; "),
    "gemm.fp16": _gemm("float16"),
    "gemm.bf16": _gemm("bfloat16"),
    "gemm.fp8": _gemm("", "fp8") + "  # torch 2.5 or later",
    "gemm.int8": _gemm("", "int8"),
    "gemm.spread": _gemm("bfloat16") + "  # on each GPU",
    "memory_bandwidth": _moved(_FLOATS, 3),
    "memory_test": _PATTERN,
    "pcie_bandwidth.h2d": _moved(_PINNED + "f = lambda: g.copy_(h, non_blocking=True); ", 1),
    "pcie_bandwidth.d2h": _moved(_PINNED + "f = lambda: h.copy_(g, non_blocking=True); ", 1),
    "p2p_bandwidth": _moved(
        "a = torch.empty(n, dtype=torch.uint8, device=d); "
        "b = torch.empty(n, dtype=torch.uint8, device='{second}'); f = lambda: b.copy_(a); ", 1
    ),
    "burn.duration": _LOAD + _LIVE + "temperature.gpu,power.draw,clocks.sm",
    "burn.temperature": _LOAD + _LIVE + "temperature.gpu",
    "burn.throttled": _LOAD + _LIVE + "clocks_throttle_reasons.active,clocks.sm",
    "burn.power": _LOAD + _LIVE + "power.draw,enforced.power.limit",
    "burn.sag": _LOAD + _LIVE + "clocks.sm,temperature.gpu",
    "topology.gpu_gpu": "nvidia-smi topo -m",
    "topology.gpu_nic": "nvidia-smi topo -m",
    "topology.numa": "nvidia-smi topo -m; lscpu | grep -i numa",
    "cpu.model": "lscpu",
    "cpu.sockets": "lscpu | grep -i socket",
    "cpu.cores": "lscpu -p=CORE,SOCKET | grep -v '#' | sort -u | wc -l",
    "cpu.vcpus": "nproc; cat /sys/fs/cgroup/cpu.max",
    "cpu.per_gpu": "nproc; nvidia-smi -L | wc -l",
    "cpu.steal": "vmstat 5 13  # column st",
    "memory.size": "free -b; cat /sys/fs/cgroup/memory.max",
    "memory.per_vram": "free -b; nvidia-smi --format=csv --query-gpu=memory.total",
    "disk.kind": "lsblk -o NAME,MODEL,SIZE,ROTA,TRAN,MOUNTPOINT; df {entry}",
    "disk.size": "df -B1 {entry}; lsblk -b",
    "disk.raid": "cat /proc/mdstat; lsblk -o NAME,TYPE,SIZE,MODEL",
    "disk.wear": f"smartctl -a {_DISK}",
    "disk.hours": f"smartctl -a {_DISK}",
    "disk.read": f"{_WRITE}; {_READ}; {_REMOVE}{_ONE}",
    "disk.write": f"{_WRITE}; {_REMOVE}{_ONE}",
    "disk.checkpoint": f"{_WRITE.replace('bs=1M count=4096', 'bs=16M count=256')}; {_REMOVE}",
    "network.speed": "ethtool {entry}",
    "network.mtu": "ip link show {entry}",
    "ping.latency": "ping -n -c 100 -i 0.2 {entry}",
    "ping.loss": "ping -n -c 1000 -i 0.2 {entry}",
    "ping.jitter": "ping -n -c 300 -i 0.2 {entry}",
    "download.rate": "curl -o /dev/null -m 30 -w '%{speed_download} B/s\\n' {entry}",
    "backup.rate": "head -c 1G /dev/urandom > accept.bin; curl -T accept.bin -w '%{speed_upload} B/s\\n' {entry}",
    "reach": "curl -sv -m 30 {entry}",
    "rdma.devices": "ls /sys/class/infiniband; ibv_devinfo",
    "rdma.rate": "cat /sys/class/infiniband/*/ports/*/rate",
    "rdma.gpudirect": "lsmod | grep -E 'nvidia_peermem|nv_peer_mem'",
    "storage_path.gpudirect": "lsmod | grep nvidia_fs",
    "storage_path.gpu_nvme": "nvidia-smi topo -m; lspci -tv",
    "software.os": "cat /etc/os-release",
    "software.kernel": "uname -r",
    "software.python": "{python} --version",
    "software.python_path": "{python} --version",
    "software.torch": "{python} -c 'import torch; print(torch.__version__, torch.version.cuda)'",
    "software.nccl": "{python} -c 'import torch; print(torch.cuda.nccl.version())'",
    "software.cuda_toolkit": "nvcc --version",
    "software.docker": "docker info",
    "software.nvidia_container_toolkit": "docker info | grep -i nvidia",
    "software.shm": "df -B1 /dev/shm",
    "software.memlock": "ulimit -l",
    "software.nofile": "ulimit -n",
}  # fmt: skip
# What the agent starts and any reader can start as well.
_PLAIN = frozenset({"ping", "curl", "vmstat", "aws"})
_PAYLOAD = "FILE"


def command(finding: Finding, run: Run, several: bool = False) -> str:
    """What to type, or an empty text where this promise has nothing that can be typed.

    ``several``: for all GPUs of a row rather than for the finding's own.
    """
    argv = finding.reproduce
    if argv and argv[0] in _PLAIN:
        return _as_run(argv)
    key = split(finding.clause)[0]
    template = _COMMANDS.get(key)
    if template is None:
        # The worker itself: there is nothing simpler, and its request lies in the evidence.
        return " ".join(map(quoted, argv)) if argv and not industry.command(finding, run, several) else ""
    template = template.replace("{python}", quoted(_python(argv)))
    first, second = _devices(finding, run)
    # What computes does so on one GPU: for a row of several, on the first of them.
    return filled(template.replace("{device}", first).replace("{second}", second), finding, run, several)


def _as_run(argv: Sequence[str]) -> str:
    """A plain command of the agent's; with something to send, and with a rate in its output."""
    words = [quoted(word) if word != _PAYLOAD else "accept.bin" for word in argv]
    if argv[0] == "curl" and ("-T" in argv or "-o" in argv):
        words[1:1] = ["-w", "'%{speed_upload} B/s\\n'" if "-T" in argv else "'%{speed_download} B/s\\n'"]
    made = "head -c 1G /dev/urandom > accept.bin; " if _PAYLOAD in argv else ""
    timed = "time " if argv[0] == "aws" else ""
    return made + timed + " ".join(words)


def _python(argv: Sequence[str]) -> str:
    """The interpreter that measured, where one did: the one that has torch."""
    return argv[0] if len(argv) > 2 and argv[1] == "-s" else "python3"


def _devices(finding: Finding, run: Run) -> tuple[str, str]:
    """``cuda:3`` and ``cuda:5`` for a GPU or a pair; the first two where none is named."""
    numbers: dict[str, str] = {
        str(g.get("slot")): str(g.get("index"))
        for g in run.node.get("gpus") or ()
        if isinstance(g, dict) and str(g.get("index")).isdigit()
    }
    ends: list[Optional[str]] = [numbers.get(end) for end in (finding.subject or "").split(">")]
    first = ends[0] or "0"
    second = (ends[1] if len(ends) > 1 else None) or ("1" if first != "1" else "0")
    return f"cuda:{first}", f"cuda:{second}"
