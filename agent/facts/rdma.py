"""InfiniBand and RoCE devices as sysfs shows them, and the kernel modules of GPUDirect."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

from agent.facts import Asked
from agent.facts._read import parsed, whole
from agent.host import Files, Host
from agent.reading import Known, Missing, Reading, fmap
from agent.text import msg
from agent.tools import ParseError

_CLASS = "/sys/class/infiniband"
_SLOT = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
COUNTERS = (
    "symbol_error link_error_recovery link_downed port_rcv_errors port_rcv_remote_physical_errors "
    "local_link_integrity_errors excessive_buffer_overrun_errors port_xmit_discards port_xmit_wait"
).split()
HW_COUNTERS = (
    "out_of_sequence packet_seq_err local_ack_timeout_err rnr_nak_retry_err roce_adp_retrans rx_icrc_encapsulated"
).split()
_MODULES = ("nvidia_peermem", "nv_peer_mem", "gdrdrv", "ib_uverbs", "mlx5_ib")


@dataclass(frozen=True)
class Port:
    """One port. ``rate`` in bit/s as negotiated; ``speed`` its name (``4X NDR``); ``state``: ACTIVE, INIT, DOWN …;
    ``physical``: LinkUp, Polling …; ``link_layer``: InfiniBand or Ethernet (RoCE). ``counters`` since the driver was
    loaded: only their growth means something."""

    number: int
    state: Reading[str]
    physical: Reading[str]
    rate: Reading[float]
    speed: Reading[str]
    link_layer: Reading[str]
    counters: Mapping[str, Reading[int]]


@dataclass(frozen=True)
class Hca:
    """One device. ``slot`` is None for software devices (rxe, siw); ``virtual``: an SR-IOV function.

    ``interfaces``: its network interfaces.
    """

    name: str
    slot: Optional[str]
    virtual: bool
    type: Reading[str]
    firmware: Reading[str]
    board: Reading[str]
    interfaces: tuple[str, ...]
    ports: tuple[Port, ...]


@dataclass(frozen=True)
class RdmaFacts:
    """``devices`` by name; Missing as ``not-there`` where the kernel shows no RDMA devices.

    ``modules``: which of nvidia_peermem, nv_peer_mem, gdrdrv, ib_uverbs, mlx5_ib are loaded. GPUDirect through
    dma-buf needs none of the first three. ``verbs``: whether this environment has device files of its own for them.
    """

    devices: Reading[Mapping[str, Hca]]
    modules: Reading[Mapping[str, bool]]
    verbs: Reading[bool]


def collect(host: Host, asked: Asked) -> RdmaFacts:
    """Reads sysfs."""
    port = f"{_CLASS}/*/ports/*"
    files = host.read(
        "rdma",
        [
            *(f"{_CLASS}/*/{name}" for name in ("hca_type", "fw_ver", "board_id")),
            *(f"{port}/{name}" for name in ("state", "phys_state", "rate", "link_layer")),
            *(f"{port}/counters/{name}" for name in COUNTERS),
            *(f"{port}/hw_counters/{name}" for name in HW_COUNTERS),
        ],
        links=[f"{_CLASS}/*", f"{_CLASS}/*/device/physfn"],
        names=[
            "/sys/module",
            *(f"/sys/module/{name}" for name in _MODULES),
            f"{_CLASS}/*/device/net/*",
            "/dev/infiniband/uverbs*",
        ],
    )
    return RdmaFacts(devices=_devices(files), modules=_modules(files), verbs=_verbs(files))


def rate(text: str) -> float:
    """``400 Gb/sec (4X NDR)`` in bit/s."""
    found = re.match(r"(\d+(?:\.\d+)?) Gb/sec", text)
    if found is None:
        raise ParseError("unparsable", "not the rate of an RDMA port", text)
    return float(found[1]) * 1e9


def _devices(files: Files) -> Reading[Mapping[str, Hca]]:
    if not files.recorded:
        return _not_recorded(files)
    names = [path.rpartition("/")[2] for path in files.match(f"{_CLASS}/*")]
    if not names and not files.exists("/sys/module"):
        # A hidden or unmounted /sys lists nothing at all: that no card is there would be our guess.
        grant = msg("mount {path} so that it can be read", path="/sys")
        return Missing("denied", msg("{path} is hidden in this environment", path="/sys"), files.cited, grant)
    if not names:
        return Missing("not-there", msg("the kernel shows no RDMA devices"), files.cited)
    return Known({name: _device(files, name) for name in names}, files.cited)


def _device(files: Files, name: str) -> Hca:
    at = f"{_CLASS}/{name}"
    target = files.link(at)
    slots = _SLOT.findall(target.value) if isinstance(target, Known) else []
    states = files.match(f"{at}/ports/*/state")
    return Hca(
        name=name,
        slot=slots[-1] if slots else None,
        virtual=isinstance(files.link(f"{at}/device/physfn"), Known),
        type=files.text(f"{at}/hca_type"),
        firmware=files.text(f"{at}/fw_ver"),
        board=files.text(f"{at}/board_id"),
        interfaces=tuple(path.rpartition("/")[2] for path in files.match(f"{at}/device/net/*")),
        ports=tuple(_port(files, path.rpartition("/")[0]) for path in states),
    )


def _port(files: Files, at: str) -> Port:
    rated = files.text(f"{at}/rate")
    counted = [*(f"counters/{n}" for n in COUNTERS), *(f"hw_counters/{n}" for n in HW_COUNTERS)]
    return Port(
        number=int(at.rpartition("/")[2]),
        state=fmap(_word, files.text(f"{at}/state")),
        physical=fmap(_word, files.text(f"{at}/phys_state")),
        rate=parsed(rated, rate, "rate"),
        speed=parsed(rated, _speed, "rate"),
        link_layer=files.text(f"{at}/link_layer"),
        counters={
            path.rpartition("/")[2]: parsed(files.text(f"{at}/{path}"), whole, path)
            for path in counted
            if files.exists(f"{at}/{path}")
        },
    )


def _word(text: str) -> str:
    """``4: ACTIVE`` without its number."""
    return text.rpartition(":")[2].strip()


def _speed(text: str) -> str:
    found = re.search(r"\((.+)\)", text)
    if found is None:
        raise ParseError("unparsable", "no name of the speed", text)
    return found[1]


def _modules(files: Files) -> Reading[Mapping[str, bool]]:
    if not files.recorded:
        return _not_recorded(files)
    if not files.exists("/sys/module"):
        return Missing("not-there", msg("{path} does not exist", path="/sys/module"), files.cited)
    return Known({name: files.exists(f"/sys/module/{name}") for name in _MODULES}, files.cited)


def _verbs(files: Files) -> Reading[bool]:
    if not files.recorded:
        return _not_recorded(files)
    return Known(bool(files.match("/dev/infiniband/uverbs*")), files.cited)


def _not_recorded(files: Files) -> Missing:
    return Missing("not-recorded", msg("the recording holds no “{probe}”", probe=files.probe))
