"""Ends of a connection as contracts write them, and the network an address lies in. Pure."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Optional, Union

# Letters of any script (IDN). Nothing that a program could take for an option or a shell for a command.
_NAME = re.compile(r"\w(?:[\w.-]*[\w.])?")
_PORT = re.compile(r"\d{1,5}")
NETWORK_PREFIX = {4: 16, 6: 32}


@dataclass(frozen=True)
class Endpoint:
    """A host name or address, and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def endpoint(text: str, default_port: int) -> Endpoint:
    """``host``, ``host:port``, ``[v6]:port`` or a bare IPv6 address. ValueError for anything else."""
    text = text.strip()
    bracketed = re.fullmatch(r"\[([^\]]+)\](?::(\d{1,5}))?", text)
    if bracketed:
        return _checked(bracketed[1], bracketed[2], default_port)
    host, colon, port = text.rpartition(":")
    if not colon or ":" in host:
        return _checked(text, None, default_port)
    return _checked(host, port, default_port)


def host_name(text: str) -> str:
    """A host name or address, checked. ValueError for what is neither."""
    text = text.strip().strip("[]")
    if not _NAME.fullmatch(text) and address_of(text) is None:
        raise ValueError(f"not a host name or address: {text!r}")
    return text


def _checked(host: str, port: Optional[str], default_port: int) -> Endpoint:
    if port is not None and not _PORT.fullmatch(port):
        raise ValueError(f"not a port: {port!r}")
    number = default_port if port is None else int(port)
    if not 0 < number < 65536:
        raise ValueError(f"not a port: {number}")
    return Endpoint(host_name(host), number)


def address_of(text: str) -> Optional[Union[ipaddress.IPv4Address, ipaddress.IPv6Address]]:
    """The IP address that a text is, IPv4 where it is mapped into IPv6; None for a name."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return address if mapped is None else mapped


def network_of(address: Optional[str]) -> Optional[str]:
    """The /16 (IPv4) or /32 (IPv6) an address lies in: two ends in one of these are no two witnesses."""
    found = address_of(address or "")
    if found is None:
        return None
    plain = str(found).partition("%")[0]
    return str(ipaddress.ip_network(f"{plain}/{NETWORK_PREFIX[found.version]}", strict=False))


def this_machine(address: Optional[str], local: Optional[str]) -> bool:
    """Whether a connection to ``address`` never left the machine: the kernel speaks to itself from the same address.

    ``local`` is this end's address of the connection. False where nothing is known.
    """
    far, near = address_of(address or ""), address_of(local or "")
    return far is not None and (far.is_loopback or far.is_unspecified or far == near)


def metered(address: Optional[str]) -> bool:
    """Whether traffic to this address may be paid by the byte: anything but private and local addresses."""
    found = address_of(address or "")
    return found is None or not (found.is_private or found.is_loopback or found.is_link_local)
