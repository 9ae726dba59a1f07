"""Other addresses in the place of a machine's own, of the same kind and with the same neighbours.

What a judgement asks of an address stays answered as before: whether it is private, local or public
(``ipaddress.is_private``), and, outside of a few networks that IANA has divided, whether two lie in one /16 (IPv4) or
/32 (IPv6). For public addresses that needs ranges
that are neither private nor anybody's: 100.64.0.0/10 (RFC 6598) and the abandoned fec0::/10 (RFC 3879).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import IPv4Address as IPv4
from ipaddress import IPv6Address as IPv6
from typing import Optional, Union

V4 = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w]|\.\d)")
V6 = re.compile(r"(?<![\w:.])(?=[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:)[0-9A-Fa-f:]+(?:\.\d{1,3}){0,4}(?![\w:])")
# Four numbers with dots are also how libraries and firmware count their versions.
_VERSION = re.compile(r"(?i)(?:version|cublas|cudnn|nccl|driver|firmware|fw|vbios|release|lib[\w+-]*|\bv)[\"'\s:=(]*\Z")
_KEPT = {"169.254.169.254"}  # every cloud's metadata service


def parse4(text: str, before: str = "") -> Optional[IPv4]:
    """The address that a match of :data:`V4` is, unless the text before it says that it is a version."""
    parts = text.split(".")
    if any(len(p) > 1 and p[0] == "0" for p in parts) or _VERSION.search(before[-40:]):
        return None
    try:
        return IPv4(text)
    except ValueError:
        return None


def parse6(text: str) -> Optional[IPv6]:
    """The address that a match of :data:`V6` is; None for times, PCI slots and the like."""
    if "::" not in text and text.count(":") < 6:
        return None
    try:
        return IPv6(text.rstrip(".") if not text.endswith("::") else text)
    except ValueError:
        return None


def kept4(address: IPv4) -> bool:
    """Addresses and masks that every machine has."""
    first = int(address) >> 24
    return address.is_loopback or first in (0, 255) or address.is_multicast or str(address) in _KEPT


def kept6(address: IPv6) -> bool:
    """``::``, ``::1``, multicast, and prefixes that say nothing (``fe80::``)."""
    return int(address) in (0, 1) or address.is_multicast or int(address) & ((1 << 112) - 1) == 0


class Addresses:
    """Replacements in the order of asking; never one of the addresses ``taken``, which are the originals."""

    def __init__(self, taken: frozenset[Union[IPv4, IPv6]]) -> None:
        self._taken = taken
        self._given: dict[Union[IPv4, IPv6], Union[IPv4, IPv6]] = {}
        self._networks: dict[tuple[str, int], int] = {}
        self._hosts: dict[tuple[str, int], Iterator[int]] = {}

    def v4(self, address: IPv4) -> IPv4:
        """The address that stands for this one."""
        if kept4(address):
            return address
        if address not in self._given:
            self._given[address] = self._free4(address)
        return IPv4(int(self._given[address]))

    def v6(self, address: IPv6) -> IPv6:
        """The address that stands for this one."""
        if address.ipv4_mapped is not None:
            return IPv6(f"::ffff:{self.v4(address.ipv4_mapped)}")
        if kept6(address):
            return address
        if address not in self._given:
            self._given[address] = self._free6(address)
        return IPv6(int(self._given[address]))

    def _free4(self, address: IPv4) -> IPv4:
        if address.is_link_local:
            kind, base, most = "link4", int(IPv4("169.254.0.0")), 1
        elif address.is_private:
            kind, base, most = "private4", int(IPv4("10.0.0.0")), 256
        else:
            kind, base, most = "public4", int(IPv4("100.64.0.0")), 64
        network = self._network(kind, int(address) >> 16) % most
        return next(a for a in (IPv4(base + (network << 16) + n) for n in self._numbers(kind, network)) if self._ok(a))

    def _free6(self, address: IPv6) -> IPv6:
        if address.is_link_local:
            kind, base, network = "link6", int(IPv6("fe80::")), 0
        elif address.is_private:
            kind, base = "private6", int(IPv6("fd00::"))
            network = self._network(kind, int(address) >> 96)
        else:
            kind, base = "public6", int(IPv6("fec0::"))
            network = self._network(kind, int(address) >> 96)
        return next(a for a in (IPv6(base + (network << 96) + n) for n in self._numbers(kind, network)) if self._ok(a))

    def _network(self, kind: str, prefix: int) -> int:
        of_kind = sum(k == kind for k, _ in self._networks)
        return self._networks.setdefault((kind, prefix), of_kind)

    def _numbers(self, kind: str, network: int) -> Iterator[int]:
        return self._hosts.setdefault((kind, network), iter(range(1, 1 << 16)))

    def _ok(self, address: Union[IPv4, IPv6]) -> bool:
        return address not in self._taken


def same_spelling(original: str, new: IPv6) -> str:
    """Written out where the original was, in its case."""
    text = new.exploded if len(original) == 39 else str(new)
    return text.upper() if original.isupper() else text
