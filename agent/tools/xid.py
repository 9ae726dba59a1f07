"""What NVIDIA's Xid and SXid numbers in the kernel log mean, and whose trouble they are.

Source: NVIDIA's Xid catalog (docs.nvidia.com/deploy/xid-errors) for Ampere and later. The classes are
this project's reading of its "immediate" and "investigatory" actions:

=========== =========================================================================
application the program's own bug comes first (a bad kernel, an illegal address)
hardware    the card, its memory, power, bus or micro-controller failed
nvlink      NVLink, NVSwitch or the CPU-GPU link
driver      driver, GSP firmware or licence software
side-effect says that another Xid came before
wear        a sign of age that the card handled itself
info        a message, no trouble
unknown     not in the table
=========== =========================================================================
"""

from __future__ import annotations

_TABLE: dict[str, tuple[int, ...]] = {
    "application": (
        13, 31, 32, 43, *range(39, 42), *range(68, 73), *range(75, 78), 80, *range(82, 92),
        *range(96, 106), *range(126, 136),
    ),
    "hardware": (
        46, 48, 54, 56, 57, 58, 61, 62, 64, 65, 79, 95, 109, 110, 140, 143, 156, 157, 158, 160, 161, 169,
        171, 172,
    ),
    "nvlink": (74, 121, 136, *range(144, 151), 155),
    "driver": (78, 119, 120),
    "side-effect": (45,),
    "wear": (63, 92, 93, 94, 163, 164, 165),
    "info": (154,),
}  # fmt: skip

XID_CLASS: dict[int, str] = {number: name for name, numbers in _TABLE.items() for number in numbers}

MEANING: dict[int, str] = {
    13: "graphics engine exception",
    31: "MMU page fault",
    32: "push buffer corrupted",
    43: "GPU stopped processing for one program",
    45: "preemptive cleanup after another error",
    46: "GPU stopped processing",
    48: "double-bit ECC error",
    54: "auxiliary power not connected",
    61: "internal micro-controller breakpoint",
    62: "internal micro-controller halt",
    63: "memory row remapped",
    64: "memory row remapping failed",
    74: "NVLink error",
    78: "vGPU start failed",
    79: "GPU fell off the bus",
    92: "high rate of single-bit ECC errors",
    93: "inforom wear",
    94: "contained ECC error",
    95: "uncontained ECC error",
    109: "context switch timeout",
    110: "security fault",
    119: "GSP RPC timeout",
    120: "GSP error",
    121: "C2C link error",
    136: "NVLink training failed",
    140: "unrecovered ECC error",
    143: "GPU initialisation failed",
    154: "recovery action changed",
    158: "fatal timeout",
    169: "internal micro-controller halt",
    171: "uncorrectable DRAM error",
    172: "uncorrectable SRAM error",
}


def xid_class(number: int) -> str:
    """The class of an Xid; ``unknown`` for a number that is not in the table."""
    return XID_CLASS.get(number, "unknown")


def sxid_class(text: str) -> str:
    """The class of an NVSwitch message: ``nvlink`` where it says Fatal, else ``info``.

    NVSwitch prints ``SXid (PCI:…): 20034, Fatal, Link 30 …`` or ``Non-fatal``; the word decides, the
    switch's numbers are many and change with its generation.
    """
    words = text.lower()
    return "info" if "non-fatal" in words or "nonfatal" in words or "fatal" not in words else "nvlink"
