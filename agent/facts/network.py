"""Network interfaces as the kernel shows them, the way out, and the name servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

from agent import probes
from agent.facts import Asked
from agent.facts._read import answer, first_known, parsed, whole
from agent.host import Files, Host
from agent.reading import Known, Missing, Reading, fmap
from agent.text import msg
from agent.tools import proc
from agent.tools._text import mapping, objects, one_document, text_or_none
from agent.tools.proc import Route

PROBE_TIMEOUT_S = 10.0
_NET = "/sys/class/net"


@dataclass(frozen=True)
class Interface:
    """One interface. ``speed`` in bit/s as the driver states it; ``virtual``: no device of its own is behind it.

    A virtual machine's interface has a device, whose driver is virtio or the like and states no real speed.
    """

    name: str
    speed: Reading[float]
    duplex: Reading[str]
    mtu: Reading[int]
    state: Reading[str]
    driver: Reading[str]
    mac: Reading[str]
    virtual: Reading[bool]
    members: tuple[str, ...] = ()


@dataclass(frozen=True)
class NetworkFacts:
    """``interfaces`` by name; ``route`` is the default route, IPv4 before IPv6; ``addresses`` by interface."""

    interfaces: Reading[Mapping[str, Interface]]
    route: Reading[Route]
    name_servers: Reading[tuple[str, ...]]
    addresses: Reading[Mapping[str, tuple[str, ...]]]


_FILES = "speed duplex mtu operstate address bonding/slaves".split()


def collect(host: Host, asked: Asked) -> NetworkFacts:
    """Reads files; the addresses come from a child with psutil."""
    files = host.read(
        "network",
        [
            *(f"{_NET}/*/{name}" for name in _FILES),
            "/proc/net/route",
            "/proc/net/ipv6_route",
            "/etc/resolv.conf",
        ],
        links=[f"{_NET}/*", f"{_NET}/*/device/driver"],
    )
    ran = probes.ask(host, "host-network", "host_probe", [probes.psutil_folder()], PROBE_TIMEOUT_S)
    return NetworkFacts(
        interfaces=_interfaces(files),
        route=_route(files),
        name_servers=parsed(files.text("/etc/resolv.conf"), proc.resolv_conf, "/etc/resolv.conf"),
        addresses=_addresses(answer(ran, lambda text: one_document(text, "host_probe"))),
    )


def _interfaces(files: Files) -> Reading[Mapping[str, Interface]]:
    names = [path.split("/")[-2] for path in files.match(f"{_NET}/*/address")]
    if not names:
        return Missing("not-there", msg("{path} shows no network interfaces", path=_NET), files.cited)
    return Known({name: _interface(files, name) for name in names}, files.cited)


def _interface(files: Files, name: str) -> Interface:
    at = f"{_NET}/{name}"
    bonded = files.text(f"{at}/bonding/slaves")
    return Interface(
        name=name,
        speed=_speed(files, at, name),
        duplex=_stated(files, f"{at}/duplex"),
        mtu=parsed(files.text(f"{at}/mtu"), whole, "mtu"),
        state=files.text(f"{at}/operstate"),
        driver=fmap(lambda target: target.rpartition("/")[2], files.link(f"{at}/device/driver")),
        mac=files.text(f"{at}/address"),
        virtual=fmap(lambda target: "/virtual/" in target, files.link(at)),
        members=tuple(bonded.value.split()) if isinstance(bonded, Known) else (),
    )


def _speed(files: Files, at: str, name: str) -> Reading[float]:
    """``speed`` is in Mbit/s; -1 or an error where the driver knows none (virtual, or no link)."""
    stated = parsed(files.text(f"{at}/speed"), whole, "speed")
    if isinstance(stated, Known) and 0 < stated.value < 1 << 31 and stated.value != 0xFFFFFFFF:
        return Known(stated.value * 1e6, stated.evidence)
    if isinstance(stated, Missing) and stated.kind in ("denied", "not-recorded", "unparsable"):
        return stated
    state = files.text(f"{at}/operstate")
    if isinstance(state, Known) and state.value in ("down", "lowerlayerdown", "notpresent"):
        grant = msg("connect {name} and bring it up", name=name)
        return Missing("not-there", msg("{name} has no link", name=name), stated.evidence, grant)
    return Missing("unsupported", msg("the driver of {name} states no speed", name=name), stated.evidence)


def _stated(files: Files, path: str) -> Reading[str]:
    reading = files.text(path)
    if isinstance(reading, Known) and reading.value in ("unknown", ""):
        return Missing("unsupported", msg("{path} says “unknown”", path=path), reading.evidence)
    return reading


def _route(files: Files) -> Reading[Route]:
    four = parsed(files.text("/proc/net/route"), proc.default_routes, "/proc/net/route")
    six = parsed(files.text("/proc/net/ipv6_route"), proc.default_routes6, "/proc/net/ipv6_route")
    return first_known([_first(four), _first(six)])


def _first(routes: Reading[tuple[Route, ...]]) -> Reading[Route]:
    if isinstance(routes, Known) and not routes.value:
        return Missing("not-there", msg("there is no default route"), routes.evidence)
    return fmap(lambda found: found[0], routes)


def _addresses(answered: Reading[dict[str, Any]]) -> Reading[Mapping[str, tuple[str, ...]]]:
    if isinstance(answered, Missing):
        return answered
    listed: Optional[Any] = answered.value.get("interfaces")
    if not isinstance(listed, dict):
        detail = msg("psutil is not there: addresses are not read")
        return Missing("no-tool", detail, answered.evidence, msg("install {tool}", tool="psutil"))
    found = {
        str(name): tuple(a for a in (text_or_none(o.get("address")) for o in objects(rows)) if a)
        for name, rows in mapping(listed).items()
    }
    return Known(found, answered.evidence)
