"""What a clause's key means, in words that somebody who reads no YAML understands."""

from __future__ import annotations

import re
from typing import Optional, Union

from agent.report.clean import one_line
from agent.text import Text, Translate, msg

# By key without the entry: ``disk[/data].read`` is looked up as ``disk.read``.
_CLAUSES: dict[str, Text] = {
    "gpu.model": msg("GPU model"),
    "gpu.count": msg("Number of GPUs"),
    "gpu.memory": msg("GPU memory"),
    "gpu.driver": msg("NVIDIA driver"),
    "gpu.cuda": msg("CUDA version of the driver"),
    "gpu.ecc": msg("GPU memory error correction (ECC)"),
    "gpu.mig": msg("GPU partitioning (MIG)"),
    "gpu.whole_card": msg("Whole card, not shared"),
    "gpu.power_limit": msg("GPU power limit"),
    "gpu.clocks": msg("GPU clocks not locked down"),
    "gpu.pcie": msg("PCIe link of the GPU under load"),
    "gpu.nvlink": msg("NVLink between the GPUs"),
    "gpu.p2p": msg("Direct access between GPUs (P2P)"),
    "gpu.condition": msg("Condition of the GPU"),
    "gpu.xid": msg("GPU faults in the kernel log (Xid)"),
    "gemm.fp64": msg("Matrix multiplication, FP64"),
    "gemm.fp32": msg("Matrix multiplication, FP32"),
    "gemm.tf32": msg("Matrix multiplication, TF32"),
    "gemm.fp16": msg("Matrix multiplication, FP16"),
    "gemm.bf16": msg("Matrix multiplication, BF16"),
    "gemm.fp8": msg("Matrix multiplication, FP8"),
    "gemm.int8": msg("Matrix multiplication, INT8"),
    "gemm.fp4": msg("Matrix multiplication, FP4"),
    "gemm.spread": msg("Slowest GPU against the others"),
    "memory_bandwidth": msg("GPU memory bandwidth"),
    "memory_test": msg("GPU memory written and verified"),
    "pcie_bandwidth.h2d": msg("Copy from host to GPU"),
    "pcie_bandwidth.d2h": msg("Copy from GPU to host"),
    "p2p_bandwidth": msg("Copy between GPUs"),
    "allreduce.busbw": msg("All-reduce over the GPUs (bus bandwidth)"),
    "collectives.all_gather": msg("All-gather over the GPUs (bus bandwidth)"),
    "collectives.reduce_scatter": msg("Reduce-scatter over the GPUs (bus bandwidth)"),
    "collectives.all_to_all": msg("All-to-all over the GPUs (bus bandwidth)"),
    "burn.duration": msg("Full load, duration"),
    "burn.temperature": msg("Temperature under full load"),
    "burn.throttled": msg("Time slowed down under full load"),
    "burn.power": msg("Power drawn under full load"),
    "burn.sag": msg("Loss of speed under full load"),
    "training.model": msg("Training test, model"),
    "training.tokens_per_second": msg("Training speed"),
    "workload": msg("The job the customer needs to run"),
    "workload.within": msg("The customer's job finishes in time"),
    "topology.gpu_gpu": msg("How the GPUs are connected"),
    "topology.gpu_nic": msg("Way from GPU to network card"),
    "topology.numa": msg("GPUs spread over the CPU sockets"),
    "cpu.model": msg("CPU model"),
    "cpu.sockets": msg("CPU sockets"),
    "cpu.cores": msg("CPU cores"),
    "cpu.vcpus": msg("Usable CPU threads (vCPU)"),
    "cpu.per_gpu": msg("CPU threads for each GPU"),
    "cpu.steal": msg("CPU time taken by others (steal)"),
    "memory.size": msg("Main memory"),
    "memory.per_vram": msg("Main memory against GPU memory"),
    "memory.bandwidth": msg("Main memory bandwidth"),
    "disk.kind": msg("Kind of disk"),
    "disk.size": msg("Disk size"),
    "disk.read": msg("Disk, sequential read"),
    "disk.write": msg("Disk, sequential write"),
    "disk.read_iops": msg("Disk, random reads per second"),
    "disk.write_iops": msg("Disk, random writes per second"),
    "disk.read_p99": msg("Disk, slowest 1 % of reads"),
    "disk.write_p99": msg("Disk, slowest 1 % of writes"),
    "disk.raid": msg("Disk redundancy (RAID)"),
    "disk.wear": msg("Disk wear"),
    "disk.hours": msg("Disk hours in use"),
    "disk.sustained": msg("Disk speed held over time"),
    "disk.checkpoint": msg("Writing a training checkpoint"),
    "disk.small_files": msg("Reading many small files"),
    "network.download": msg("Network, download"),
    "network.upload": msg("Network, upload"),
    "network.dedicated": msg("Network bandwidth not shared"),
    "network.evening_drop": msg("Network, loss of speed in the evening"),
    "network.udp_loss": msg("Network, packets lost (UDP)"),
    "network.udp_jitter": msg("Network, jitter (UDP)"),
    "network.speed": msg("Speed of the network card"),
    "network.mtu": msg("Largest packet (MTU)"),
    "ping.latency": msg("Network latency"),
    "ping.loss": msg("Packet loss"),
    "ping.jitter": msg("Latency variation (jitter)"),
    "download.rate": msg("Download speed"),
    "backup.rate": msg("Backup upload speed"),
    "reach": msg("Address can be reached"),
    "rdma.devices": msg("RDMA network cards"),
    "rdma.rate": msg("RDMA link speed"),
    "rdma.write_bandwidth": msg("RDMA write bandwidth"),
    "rdma.gpudirect": msg("GPUDirect RDMA"),
    "storage_path.gpudirect": msg("GPUDirect Storage"),
    "storage_path.gpu_nvme": msg("Way from GPU to NVMe disk"),
    "software.os": msg("Operating system"),
    "software.kernel": msg("Linux kernel"),
    "software.python": msg("Python"),
    "software.python_path": msg("Python environment"),
    "software.torch": msg("PyTorch"),
    "software.cuda_toolkit": msg("CUDA toolkit"),
    "software.nccl": msg("NCCL"),
    "software.docker": msg("Docker"),
    "software.nvidia_container_toolkit": msg("NVIDIA Container Toolkit"),
    "software.shm": msg("Shared memory (/dev/shm)"),
    "software.memlock": msg("Limit of locked memory"),
    "software.nofile": msg("Limit of open files"),
    "trial.availability": msg("Availability during the trial"),
    "fleet.nodes": msg("Number of nodes"),
    "fleet.identical": msg("Nodes all alike"),
    "fleet.allreduce.busbw": msg("All-reduce over the nodes"),
    "fleet.pairs": msg("Bandwidth between pairs of nodes"),
    "fleet.clock_offset": msg("Clocks of the nodes agree"),
    "integrity": msg("Integrity of the machine"),
    "integrity.oversold_cpu": msg("CPU not sold more than once"),
    "integrity.steal": msg("CPU time taken by others while this machine rests"),
    "integrity.small_shm": msg("Shared memory large enough for training"),
    "integrity.engineering_cpu": msg("No pre-production processor"),
    "integrity.few_processes": msg("Processes and threads allowed"),
    "integrity.nvidia_smi": msg("nvidia-smi is NVIDIA's own"),
    "integrity.driver_library": msg("Driver libraries are NVIDIA's own"),
    "integrity.driver_age": msg("Driver young enough for the GPU"),
    "integrity.gpu_identity": msg("The GPU is what it says it is"),
    "integrity.gpu_bus": msg("Every GPU of the bus answers"),
    "integrity.mixed_gpus": msg("GPUs all alike"),
    "integrity.gpu_sample": msg("No sample, no changed board"),
    "integrity.gpu_wear": msg("GPU memory not worn"),
    "integrity.gpu_recovery": msg("GPU needs no reset"),
    "integrity.power_default": msg("Default power limit of the GPU"),
    "integrity.pcie_width": msg("PCIe width against the other GPUs"),
    "integrity.gpu_throttled": msg("GPU clocks free at rest"),
    "integrity.gpu_fabric": msg("GPU on the NVLink fabric"),
    "integrity.patched_driver": msg("Driver not changed by others"),
    "integrity.virtual_gpu": msg("No virtual GPU"),
    "integrity.sliced_gpu": msg("No sliced GPU"),
    "integrity.gpu_interception": msg("Nothing between programs and GPUs"),
    "integrity.foreign_process": msg("Programs of others on the GPUs"),
    "integrity.memory_without_owner": msg("GPU memory in use without an owner"),
    "integrity.hard_faults": msg("Hardware faults in the kernel log"),
    "integrity.load_errors": msg("New GPU errors under load"),
    "integrity.disk": msg("Health of the disk by its own account"),
    "integrity.drift": msg("Change over the trial"),
    "integrity.parts": msg("Parts exchanged during the trial"),
    "integrity.trial": msg("Enough runs in the trial"),
    "integrity.agent": msg("The agent itself"),
}
_ENTRY = re.compile(r"\[(.*)\]", re.DOTALL)


def split(key: str) -> tuple[str, Optional[str]]:
    """``disk[/data].read`` → (``disk.read``, ``/data``)."""
    found = _ENTRY.search(key)
    return (_ENTRY.sub("", key, count=1), found[1]) if found else (key, None)


def title(key: str, translate: Translate) -> str:
    """The clause in words, with its entry: ``Disk, sequential read: /data``; the key itself if it has no name."""
    plain, entry = split(key)
    name = _CLAUSES.get(plain)
    if name is None:
        return one_line(key)
    return pair(name, one_line(entry), translate) if entry else name.render(translate)


def pair(name: Union[Text, str], entry: str, translate: Translate) -> str:
    """A name and what belongs to it, with the colon of the language."""
    return msg("{name}: {entry}", name=name, entry=entry).render(translate)
