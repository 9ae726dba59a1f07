"""The ``rdma`` clauses: InfiniBand and RoCE devices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Optional

from agent.bench import rdma as bench
from agent.bench import rdma_peer, unable
from agent.bench.step import Step
from agent.checks import _far_end
from agent.checks._api import Case
from agent.checks._judge import compare_values, fact, finding, unreadable, unsupported
from agent.checks._judge import rate as measured_rate
from agent.facts import programs
from agent.facts.gpus import GpusFacts
from agent.facts.rdma import Hca, Port, RdmaFacts
from agent.grammar import Section, count, flag, host, list_of, rate
from agent.model import Clause, Finding, Limit
from agent.quantity import convert
from agent.reading import Known, Missing, Reading
from agent.text import Text, msg

GRAMMAR = Section(
    clauses={
        "devices": count(),
        "rate": rate(measured=False, such="400 Gbit/s"),
        "write_bandwidth": rate(such="380 Gbit/s"),
        "gpudirect": flag(),
    },
    settings={"peer": list_of(host())},
)

FACTS = ("gpus", "programs", "rdma")
PEER_MODULES = ("nvidia_peermem", "nv_peer_mem")


def steps(clauses: Sequence[Clause], case: Case) -> Iterable[Step]:
    """One for all cards that count and have a link, where a program can use them."""
    rdma: Optional[RdmaFacts] = case.facts.get("rdma")
    if rdma is None or not any(c.name == "write_bandwidth" for c in clauses) or _no_verbs(rdma):
        return
    cards = [bench.Card(name, _speed(device)) for name, device in _counting(case, rdma) if _up(device)]
    if cards:
        peers = _peers(clauses)
        one = rdma_peer.step(cards, peers) if peers else bench.step(cards)
        why = programs.absent(case.facts, "ib_write_bw")
        yield unable.step(one.name, one.keys, one.load, why) if why else one


def judge(clauses: Sequence[Clause], case: Case) -> Iterator[Finding]:
    """Devices as the kernel shows them, and what they carry."""
    rdma: RdmaFacts = case.facts["rdma"]
    for clause in clauses:
        if clause.name == "devices":
            yield _devices(clause, case, rdma)
        elif clause.name == "rate":
            yield from _rates(clause, case, rdma)
        elif clause.name == "write_bandwidth":
            yield from _bandwidths(clause, case, rdma)
        elif clause.name == "gpudirect":
            yield _gpudirect(clause, case, rdma)
        else:
            yield unsupported(clause)


def _hardware(case: Case) -> Reading[Mapping[str, Hca]]:
    """Devices on the PCI bus; software ones (rxe, siw) are no promise kept.

    None at all is a fact where the kernel shows its PCI devices. Where it shows nothing, nothing was seen.
    """
    devices: Reading[Mapping[str, Hca]] = case.facts["rdma"].devices
    if isinstance(devices, Missing) and devices.kind == "not-there":
        bus: Reading[tuple[str, ...]] = case.facts["gpus"].pci.gpus
        if isinstance(bus, Known):
            return Known({}, devices.evidence)
        evidence = tuple(dict.fromkeys((*devices.evidence, *bus.evidence)))
        return Missing("not-there", msg("no RDMA device is to be seen: {why}", why=bus.detail), evidence, _SHOW)
    if isinstance(devices, Missing):
        return devices
    return Known({n: h for n, h in devices.value.items() if h.slot is not None}, devices.evidence)


_SHOW = msg("show /sys of the host to this environment")


def _promised(case: Case, key: str) -> Optional[Clause]:
    return next((c for c in case.contract.clauses if c.key == key), None)


def _devices(clause: Clause, case: Case, rdma: RdmaFacts) -> Finding:
    """Where a rate is promised too, slower cards (for storage or management) beside the promised ones don't count."""
    found = _hardware(case)
    if isinstance(found, Missing):
        return unreadable(clause, found)
    number = len(found.value)
    wanted = _promised(case, "rdma.rate")
    if wanted is not None and not compare_values(clause.promise, number):
        able = [h for h in found.value.values() if _reaches(h, wanted)]
        number = len(able) if compare_values(clause.promise, len(able)) else number
    return fact(clause, Known(number, found.evidence), notes=(*_named(found.value), *_unusable(rdma)))


def _named(devices: Mapping[str, Hca]) -> tuple[Text, ...]:
    listed = ", ".join(f"{n} ({_best(h)})" for n, h in sorted(devices.items()))
    return (msg("devices: {devices}", devices=listed),) if listed else ()


def _unusable(rdma: RdmaFacts) -> tuple[Text, ...]:
    if isinstance(rdma.verbs, Known) and not rdma.verbs.value:
        return (msg("this environment has no /dev/infiniband/uverbs*: programs cannot use them here"),)
    return ()


def _best(device: Hca) -> str:
    port = _port(device)
    if port is None:
        return "?"
    state = port.state.value if isinstance(port.state, Known) else "?"
    speed = f"{port.rate.value / 1e9:g} Gbit/s" if isinstance(port.rate, Known) else "?"
    return f"{speed}, {state}"


def _port(device: Hca) -> Optional[Port]:
    """The port that counts: the fastest of those that are up, else of all."""
    up = [p for p in device.ports if isinstance(p.state, Known) and p.state.value == "ACTIVE"]
    return max(up or device.ports, key=lambda p: p.rate.value if isinstance(p.rate, Known) else 0.0, default=None)


def _reaches(device: Hca, wanted: Clause) -> bool:
    port = _port(device)
    if port is None or isinstance(port.rate, Missing):
        return False
    value = convert(port.rate.value, "bit/s", wanted.promise.unit)
    return compare_values(wanted.promise, value)


def _rates(clause: Clause, case: Case, rdma: RdmaFacts) -> Iterator[Finding]:
    """Each device; of more than promised only the fastest ones, as the others are for something else."""
    found = _hardware(case)
    if isinstance(found, Missing):
        yield unreadable(clause, found)
        return
    if not found.value:
        yield _none(clause, found)
        return
    for name, device in _counting(case, rdma):
        yield _rate(clause, name, device, found.evidence)


def _counting(case: Case, rdma: RdmaFacts) -> list[tuple[str, Hca]]:
    """The devices that are promised by name: of more than promised the fastest ones."""
    found = _hardware(case)
    if isinstance(found, Missing):
        return []
    ordered = sorted(found.value, key=lambda n: (-_speed(found.value[n]), n))
    number = _promised(case, "rdma.devices")
    many = int(number.promise.value) if number is not None and isinstance(number.promise.value, (int, float)) else 0
    return [(name, found.value[name]) for name in sorted(ordered[: many or len(ordered)])]


def _bandwidths(clause: Clause, case: Case, rdma: RdmaFacts) -> Iterator[Finding]:
    """Each card by what it wrote to another one, of this machine or of the one that the contract names."""
    found = _hardware(case)
    if isinstance(found, Missing):
        yield unreadable(clause, found)
        return
    if not found.value:
        yield _none(clause, found)
        return
    for name, device in _counting(case, rdma):
        if not _up(device):
            detail = msg("{name} has no link, so that nothing could be sent", name=name)
            yield unreadable(clause, Missing("not-there", detail, found.evidence), name)
        elif _no_verbs(rdma):
            detail = msg("this environment has no /dev/infiniband/uverbs*: programs cannot use them here")
            grant = msg("/dev/infiniband in this environment, and memlock unlimited")
            yield unreadable(clause, Missing("denied", detail, rdma.verbs.evidence, grant), name)
        elif _peers([clause]):
            yield _far_end.judge(clause, case, subject=name)
        else:
            inside = measured_rate(clause, case, subject=name)
            yield replace(inside, grant=_PEER) if inside.reason_code == bench.LOOPBACK else inside


_PEER = msg("name another machine that has such a card under “peer” of rdma")


def _peers(clauses: Sequence[Clause]) -> tuple[str, ...]:
    """The other machines that the contract names; none: this machine's cards write to each other."""
    return next((tuple(map(str, c.settings["peer"])) for c in clauses if c.settings.get("peer")), ())


def _up(device: Hca) -> bool:
    port = _port(device)
    return port is not None and isinstance(port.state, Known) and port.state.value == "ACTIVE"


def _no_verbs(rdma: RdmaFacts) -> bool:
    return isinstance(rdma.verbs, Known) and not rdma.verbs.value


def _none(clause: Clause, found: Known[Mapping[str, Hca]]) -> Finding:
    reason = msg("the kernel shows no RDMA device on the PCI bus")
    return finding(clause, "fail", "below-limit", reason, measured=0, evidence=found.evidence)


def _speed(device: Hca) -> float:
    port = _port(device)
    return port.rate.value if port is not None and isinstance(port.rate, Known) else 0.0


def _rate(clause: Clause, name: str, device: Hca, evidence: tuple[str, ...]) -> Finding:
    """The rate that the port negotiated, provided that it is up."""
    port = _port(device)
    if port is None:
        return unreadable(clause, Missing("not-there", msg("{name} shows no port", name=name), evidence), name)
    for reading in (port.state, port.rate):
        if isinstance(reading, Missing):
            return unreadable(clause, reading, name)
    state = port.state.value if isinstance(port.state, Known) else ""
    notes = tuple(_link(port))
    if state != "ACTIVE":
        physical = port.physical.value if isinstance(port.physical, Known) else "?"
        reason = msg("{name} is {state} ({physical}): no link", name=name, state=state, physical=physical)
        limit = Limit(clause.promise.op, clause.promise.value, clause.promise.unit)
        fields: dict[str, Any] = {"subject": name, "measured": state, "limit": limit, "evidence": evidence}
        return finding(clause, "fail", "link-down", reason, notes=notes, **fields)
    return fact(clause, port.rate, subject=name, unit="bit/s", notes=notes)


def _link(port: Port) -> Iterator[Text]:
    if isinstance(port.speed, Known) and isinstance(port.link_layer, Known):
        yield msg("{layer}, {speed}", layer=port.link_layer.value, speed=port.speed.value)
    errors = {
        n: r.value for n, r in port.counters.items() if isinstance(r, Known) and r.value and n != "port_xmit_wait"
    }
    if errors:
        counted = ", ".join(f"{n} {k}" for n, k in sorted(errors.items()))
        yield msg("counters since the driver was loaded, of which only growth means something: {c}", c=counted)


def _gpudirect(clause: Clause, case: Case, rdma: RdmaFacts) -> Finding:
    """The module that lets network cards into GPU memory. Without it dma-buf may do, which only a transfer shows."""
    modules = rdma.modules
    if isinstance(modules, Missing):
        return unreadable(clause, modules)
    loaded = [m for m in PEER_MODULES if modules.value.get(m)]
    if loaded:
        notes = (msg("{module} is loaded", module=loaded[0]),)
        return fact(clause, Known(True, modules.evidence), notes=notes)
    gpus: GpusFacts = case.facts["gpus"]
    if isinstance(gpus.kernel_module, Known) and gpus.kernel_module.value == "open":
        evidence = (*modules.evidence, *gpus.kernel_module.evidence)
        detail = msg("nvidia_peermem is not loaded; the open driver may do it through dma-buf, which a transfer shows")
        return unreadable(clause, Missing("unsupported", detail, evidence, msg("load nvidia_peermem")))
    reason = msg("neither nvidia_peermem nor nv_peer_mem is loaded")
    return fact(clause, Known(False, modules.evidence), reason=reason)
