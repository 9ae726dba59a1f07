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

from agent.text import Text, msg

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

MEANING: dict[int, Text] = {
    13: msg("graphics engine exception"),
    31: msg("MMU page fault"),
    32: msg("push buffer corrupted"),
    43: msg("GPU stopped processing for one program"),
    45: msg("preemptive cleanup after another error"),
    46: msg("GPU stopped processing"),
    48: msg("double-bit ECC error"),
    54: msg("auxiliary power not connected"),
    56: msg("display engine error"),
    57: msg("memory interface could not be set up"),
    58: msg("unstable memory interface"),
    61: msg("internal micro-controller breakpoint"),
    62: msg("internal micro-controller halt"),
    63: msg("memory row remapped"),
    64: msg("memory row remapping failed"),
    65: msg("video processor exception"),
    74: msg("NVLink error"),
    78: msg("vGPU start failed"),
    79: msg("GPU fell off the bus"),
    92: msg("high rate of single-bit ECC errors"),
    93: msg("inforom wear"),
    94: msg("contained ECC error"),
    95: msg("uncontained ECC error"),
    109: msg("context switch timeout"),
    110: msg("security fault"),
    119: msg("GSP RPC timeout"),
    120: msg("GSP error"),
    121: msg("C2C link error"),
    136: msg("NVLink training failed"),
    140: msg("unrecovered ECC error"),
    143: msg("GPU initialisation failed"),
    **dict.fromkeys(range(144, 151), msg("NVLink error")),
    154: msg("recovery action changed"),
    155: msg("NVLink error"),
    156: msg("memory resource retired"),
    157: msg("memory resource could not be retired"),
    158: msg("fatal timeout"),
    160: msg("memory channel retired"),
    161: msg("memory channel could not be retired"),
    **dict.fromkeys(range(163, 166), msg("power-smoothing lifetime reached")),
    169: msg("internal micro-controller halt"),
    171: msg("uncorrectable DRAM error"),
    172: msg("uncorrectable SRAM error"),
}


CLASSES: dict[str, Text] = {
    "application": msg("the program's own"),
    "hardware": msg("hardware"),
    "nvlink": msg("NVLink"),
    "driver": msg("driver"),
    "side-effect": msg("follows another"),
    "wear": msg("wear"),
    "info": msg("a message only"),
    "unknown": msg("of unknown kind"),
}


def xid_words(number: int) -> Text:
    """``Xid 79: GPU fell off the bus``; the number alone where the table has no words for it."""
    meaning = MEANING.get(number)
    return (
        msg("Xid {number}: {meaning}", number=number, meaning=meaning)
        if meaning
        else msg("Xid {number}", number=number)
    )


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
