"""What a product name of a contract says: "8×A100 80G SXM 版", "RTX4090D", "英伟达 H20 141GB". Pure.

Reads words, knows no products: the catalogue compares what is read with its models. A word that is not understood
makes the whole name unknown, so that an "RTX 4090 Laptop" is never taken for an RTX 4090.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

from agent.quantity import normal


@dataclass(frozen=True)
class Wanted:
    """The parts of a name; "" and None where it does not say. ``family``: letters and digits, "H100", "4090D"."""

    family: str
    form: str = ""  # "sxm", "pcie" or "nvl"
    memory_gb: Optional[int] = None
    memory_type: str = ""  # "HBM3"
    edition: str = ""  # of the RTX PRO 6000: "server", "workstation" or "max-q"
    modified: bool = False  # says that a third party changed the board


_COUNT = re.compile(r"^\d+\s*[x×*]\s*|(?<![a-z])\s*[x×*]\s*\d{1,3}$|(?<!\d)\d{1,4}\s*[张块卡片颗]")
_MEMORY = re.compile(r"(?<![\d.])(\d{1,3})\s*g(?:i?b)?(?![a-z0-9])")
_TYPE = re.compile(r"(?:hbm\d?e?|gddr\d?x?)(?![a-z0-9])")
_LINK = re.compile(r"(?:pcie|pci-e|pci express)\s*(?:gen\s*)?(?:[3-6](?:\.0)?)?(?:\s*x16)?(?![0-9])")
_SXM = re.compile(r"sxm\s?[2-6]?(?![0-9])|(?:hgx|dgx)(?![a-z])")
_NVL = re.compile(r"nvl(?![a-z0-9])")
_EDITION = re.compile(r"(?:server|workstation|max-?q(?: workstation)?)(?![a-z])|服务器版|工作站版")
_MODIFIED = re.compile(r"魔改|改版|改装|modified|modded")
# What says nothing about which product it is.
_NOISE = re.compile(
    r"nvidia|英伟达|辉达|geforce|tesla|quadro|tensor ?core|core gpu|\bgpus?(?![a-z])|graphics cards?|accelerators?|"
    r"nvlink|nvswitch|edition|generation|blackwell|rtx|显卡|显存|内存|算力卡|加速卡|计算卡|涡轮|公版|满血|版本|版|卡|模组|原装|全新|单"
)
_JOINTS = re.compile(r"[\s_/,;:()\[\]{}·、，。（）-]+")
_EDITIONS = {"服务器版": "server", "工作站版": "workstation", "maxq": "max-q"}
# The same product in other words.
_FAMILIES = {
    "ADA6000": "6000ADA",
    "6000PRO": "PRO6000",
    "A6000AMPERE": "A6000",
    "GB200NVL72": "GB200",
    "B300AC": "B300",
    "H203E": "H20",
}


def read_name(text: str) -> Wanted:
    """The parts of a product name. ``family`` holds every word that was not understood, so that it matches nothing."""
    rest = " ".join(_COUNT.sub(" ", normal(text).lower()).split())
    modified, rest = _take(_MODIFIED, rest)
    edition, rest = _take(_EDITION, rest)
    memory_type, rest = _take(_TYPE, rest)
    link, rest = _take(_LINK, rest)
    sxm, rest = _take(_SXM, rest)
    memory, rest = _take(_MEMORY, rest)
    nvl, rest = _take(_NVL, rest)
    family = _JOINTS.sub("", _NOISE.sub(" ", rest)).upper()
    size = _MEMORY.match(memory)
    short = edition.split(" ")[0].replace("-", "")
    return Wanted(
        family=_FAMILIES.get(family, family),
        form="sxm" if sxm else "nvl" if nvl else "pcie" if link else "",
        memory_gb=int(size.group(1)) if size else (141 if family == "H203E" else None),
        memory_type=memory_type.upper().replace("HBM3E", "HBM3e").replace("HBM2E", "HBM2e"),
        edition=_EDITIONS.get(short, short),
        modified=bool(modified),
    )


def _take(pattern: re.Pattern[str], text: str) -> tuple[str, str]:
    """The first match and the text without any."""
    found = pattern.search(text)
    return (found.group().strip() if found else ""), pattern.sub(" ", text)
