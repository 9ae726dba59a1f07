"""Judging what an interface is: its speed and MTU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Callable, Union

from agent.checks._judge import fact, unreadable
from agent.facts.network import Interface, NetworkFacts
from agent.model import Clause, Finding, Measurement
from agent.reading import Known, Missing
from agent.text import msg


def interface_of(clause: Clause, network: NetworkFacts) -> Union[Interface, Missing]:
    """The entry's ``interface``, else the one of the default route."""
    if isinstance(network.interfaces, Missing):
        return network.interfaces
    named = clause.settings.get("interface")
    if named is None:
        if isinstance(network.route, Missing):
            detail = msg("no interface is named, and there is no default route to tell it")
            return Missing(
                network.route.kind, detail, network.route.evidence, msg("name the interface in the contract")
            )
        named = network.route.value.interface
    found = network.interfaces.value.get(str(named))
    if found is None:
        have = ", ".join(sorted(network.interfaces.value))
        detail = msg("there is no interface {name}; there are {have}", name=str(named), have=have)
        return Missing("not-there", detail, network.interfaces.evidence, msg("correct the interface in the contract"))
    return found


def judge_speed(clause: Clause, network: NetworkFacts) -> Finding:
    """``speed``: what the driver states of the link; a virtual interface states nothing that could be believed."""
    found = interface_of(clause, network)
    if isinstance(found, Missing):
        return unreadable(clause, found)
    speed = found.speed
    if isinstance(speed, Known) and not found.members and _made_up(found):
        detail = msg("{name} is virtual: the speed it states is made up", name=found.name)
        speed = Missing("unsupported", detail, speed.evidence, msg("measure it: promise download and upload"))
    return fact(clause, speed, unit="bit/s", notes=(*_notes(found), *_duplex(found)))


def _made_up(found: Interface) -> bool:
    emulated = isinstance(found.driver, Known) and found.driver.value in EMULATED_DRIVERS
    return emulated or (isinstance(found.virtual, Known) and found.virtual.value)


# Interfaces of a virtual machine print a fixed or configured speed, whatever carries them.
EMULATED_DRIVERS = frozenset({"virtio_net", "vmxnet3", "hv_netvsc", "xen-netfront", "vif"})


def judge_mtu(clause: Clause, network: NetworkFacts) -> Finding:
    """``mtu`` in bytes."""
    found = interface_of(clause, network)
    if isinstance(found, Missing):
        return unreadable(clause, found)
    return fact(clause, found.mtu, notes=_notes(found))


def along_the_way(found: Finding, taken: object) -> Finding:
    """What large packets to the servers say beside the interface. A narrow way may be the far end's: no verdict."""
    if isinstance(taken, Missing):
        return replace(found, notes=(*found.notes, msg("the way was not seen: {why}", why=taken.detail)))
    if not isinstance(taken, Measurement):
        return found
    ends = [block.conditions for block in taken.attempts[-1].blocks]
    evidence = (*found.evidence, *taken.attempts[-1].evidence)
    found = replace(found, evidence=evidence, measurements=(*found.measurements, taken.key))
    passed = [str(e["server"]) for e in ends if e.get("large")]
    narrow = [str(e["server"]) for e in ends if e.get("small") and not e.get("large")]
    if passed:
        said = msg("packets of {n} bytes reach {ends} in one piece", n=ends[0]["size"], ends=", ".join(passed))
    elif narrow:
        said = msg(
            "packets of {n} bytes do not reach {ends} in one piece while small ones do: the way or the far end "
            "carries less than the interface",
            n=ends[0]["size"],
            ends=", ".join(narrow),
        )
        if found.outcome == "pass":
            return replace(found, outcome="inconclusive", reason_code="narrow-way", reason=said)
    else:
        said = msg("the way was not seen: no server answers such pings; judged is the interface")
    return replace(found, notes=(*found.notes, said))


def _notes(found: Interface) -> tuple[Any, ...]:
    return (msg("interface {name}", name=found.name),)


def _duplex(found: Interface) -> tuple[Any, ...]:
    """Half duplex halves what a link carries and breaks down under load: always worth a word."""
    if not isinstance(found.duplex, Known):
        return ()
    if found.duplex.value == "half":
        return (msg("{name} runs in half duplex: a cable, or the other end's setting", name=found.name),)
    return (msg("{duplex} duplex", duplex=found.duplex.value),)


FACT_JUDGES: Mapping[str, Callable[[Clause, NetworkFacts], Finding]] = {"speed": judge_speed, "mtu": judge_mtu}
