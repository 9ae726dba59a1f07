"""The keys of a contract that are not clauses: who promised what to whom, and the fields of the mapping form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Optional

from agent.grammar import Kind, day, flag, label, one_of, percent, plain, ratio, text

# A tolerance is for the noise of a measurement; half of the promise is not noise.
TOLERANCE = plain(percent("at_most", most=50))

VERSION = one_of("1")

HEADER: Mapping[str, Kind] = {
    "id": label(),
    "vendor": label(),
    "customer": label(),
    "signed": day(),
    "site": label(),
    "language": one_of("zh", "en", aliases={"zh-CN": "zh", "中文": "zh", "英文": "en"}),
}

PRICE: Mapping[str, Kind] = {
    "amount": plain(ratio("at_most")),
    "currency": label(),
    "per": one_of(
        *("hour", "day", "week", "month", "year"),
        aliases={"时": "hour", "小时": "hour", "天": "day", "日": "day", "周": "week", "月": "month", "年": "year"},
    ),
}

ACCESS: Mapping[str, Kind] = {
    "kind": one_of(
        *("container", "vm", "bare-metal"),
        aliases={"容器": "container", "虚拟机": "vm", "裸金属": "bare-metal", "物理机": "bare-metal"},
    ),
    "root": flag(),
}

# ``is`` and ``remedy`` (the user's own fields) come on top; ``tolerance`` only where something is measured.
FORM: Mapping[str, Kind] = {
    "ref": label(),
    "text": text(),
    "tolerance": TOLERANCE,
    "severity": one_of("breach", "advisory"),
    "if_unreadable": one_of("inconclusive", "advisory"),
    "agreed": flag(),
}

TERM: Mapping[str, Kind] = {"text": text(), "check_by": day(), "ref": label()}

# What people write for a key, in capitals or not, and the keys that may be meant: the known ones are offered.
ALIASES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("显卡", "gpu卡"), ("gpu",)),
    **dict.fromkeys(("处理器", "processor"), ("cpu",)),
    **dict.fromkeys(("内存", "ram", "显存", "vram"), ("memory",)),
    **dict.fromkeys(("硬盘", "磁盘", "存储", "storage", "ssd", "nvme", "disks"), ("disk",)),
    **dict.fromkeys(("网络", "net", "ethernet"), ("network",)),
    **dict.fromkeys(("带宽", "速率", "bandwidth"), ("download", "upload", "speed", "write_bandwidth", "network")),
    **dict.fromkeys(("速度", "speed", "throughput"), ("read", "write", "download", "upload", "rate")),
    **dict.fromkeys(("算力", "flops", "tflops"), ("gemm",)),
    **dict.fromkeys(("软件",), ("software",)),
    **dict.fromkeys(("延迟", "时延", "rtt"), ("latency", "ping")),
    **dict.fromkeys(("丢包", "丢包率", "packet_loss"), ("loss",)),
    **dict.fromkeys(("infiniband", "ib", "roce"), ("rdma",)),
    **dict.fromkeys(("试用", "试用期"), ("trial",)),
    **dict.fromkeys(("可用性", "sla", "uptime"), ("availability", "trial.availability")),
    **dict.fromkeys(("合同",), ("contract",)),
    **dict.fromkeys(("供应商", "甲方", "seller", "provider"), ("vendor",)),
    **dict.fromkeys(("价格", "cost"), ("price",)),
    **dict.fromkeys(("金额",), ("amount",)),
    **dict.fromkeys(("语言", "lang"), ("language",)),
    **dict.fromkeys(("型号", "名称"), ("model", "name")),
    **dict.fromkeys(("数量", "number", "quantity", "num"), ("count", "devices", "nodes")),
    **dict.fromkeys(("容量", "大小", "capacity"), ("size", "memory")),
    **dict.fromkeys(("类型", "type"), ("kind",)),
    **dict.fromkeys(("路径", "挂载点", "mount", "mountpoint", "dir"), ("path",)),
    **dict.fromkeys(("读", "读取"), ("read",)),
    **dict.fromkeys(("写", "写入"), ("write",)),
    **dict.fromkeys(("iops",), ("read_iops", "write_iops")),
    **dict.fromkeys(("下载", "下行", "down"), ("download",)),
    **dict.fromkeys(("上传", "上行", "up"), ("upload",)),
    **dict.fromkeys(("独享",), ("dedicated",)),
    **dict.fromkeys(("驱动", "驱动版本"), ("driver",)),
    **dict.fromkeys(("系统", "操作系统", "distribution"), ("os", "software.os")),
    **dict.fromkeys(("内核",), ("kernel",)),
    **dict.fromkeys(("核心", "核数", "物理核"), ("cores",)),
    **dict.fromkeys(("线程", "threads", "vcpu"), ("vcpus",)),
    **dict.fromkeys(("主机", "地址", "ip", "address", "server"), ("host", "servers", "url")),
    **dict.fromkeys(("value", "值"), ("is",)),
}

TOP = ("version", "contract", "access", "tolerance", "terms")
OWN = "x-"  # keys that begin so are the user's own, at every level

# What a clause's remedy may reckon with, beside words: ``remedy: {text: …, per_percent: 2 %, at_most: 30 %}``.
FORMULA = frozenset({"per_percent", "at_most"})
_SHARE = re.compile(r"\s*(\d{1,3}(?:\.\d{1,6})?)\s*[%％]\s*\Z")


def share_of_price(written: str) -> Optional[float]:
    """``2.5 %`` → 0.025; None for what is no percentage."""
    found = _SHARE.match(written)
    return float(found[1]) / 100 if found else None
