"""Telemetry and burns that are made up: cards that throttle, sag, heat up and err as a test wants."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any, Callable, Optional

START = datetime(2026, 11, 30, 8, 0, tzinfo=timezone.utc)
UUIDS = ("GPU-0", "GPU-1")
SLOTS = ("0000:1b:00.0", "0000:2b:00.0")
COUNTERS = 10

# (card, seconds since the load began) → value
Of = Callable[[int, float], float]


def moment(seconds: float) -> str:
    """As the worker and the telemetry write it."""
    return (START + timedelta(seconds=seconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def telemetry(
    seconds: float,
    reasons: Of = lambda card, t: 0x4,
    clock: Of = lambda card, t: 1755,
    temperature: Of = lambda card, t: 64,
    power: Of = lambda card, t: 690,
    counters: Optional[Callable[[int, float], list[Optional[float]]]] = None,
    enforced: float = 700,
    uuids: tuple[str, ...] = UUIDS,
    faults: tuple[tuple[float, int, int], ...] = (),
    step: float = 0.1,
) -> str:
    """What the probe prints over a load of so many seconds that begins two seconds after the telemetry."""
    cards = range(len(uuids))
    gpus = [
        {"uuid": u, "slot": s, "clock_sm_max_mhz": 1980, "power_enforced_w": enforced, "power_default_w": 700}
        for u, s in zip(uuids, SLOTS)
    ]
    lines: list[Mapping[str, Any]] = [
        {"telemetry": 1, "started_at": moment(-2), "interval_s": step, "gpus": gpus, "cpus": 8}
    ]
    for slot in range(int((seconds + 4) / step)):
        t = round(slot * step, 4)
        lines.append({"t": t, "f": [[clock(i, t - 2), int(reasons(i, t - 2))] for i in cards]})
        if slot % 10 == 0:
            lines.append({"t": t, "s": [[power(i, t - 2), temperature(i, t - 2), 70, 2619, 100, 60000] for i in cards]})
            host = {"cpu": 30.0, "own": 25.0, "steal": 0.1, "available_mib": 1000}
            rates = {"disk_read": 1.0, "disk_written": 2.0, "received": 0.5, "sent": 0.5}
            lines.append({"t": t, "h": {**host, **rates}})
        if slot % 100 == 0:
            rows = [counters(i, t - 2) if counters else [0.0] * COUNTERS for i in cards]
            lines.append({"t": t, "c": rows})
    lines += [{"t": t + 2, "x": [[card, xid]]} for t, card, xid in faults]
    lines.append({"t": seconds + 4, "c": [counters(i, seconds + 2) if counters else [0.0] * COUNTERS for i in cards]})
    lines.append({"t": seconds + 4, "done": True})
    return "".join(json.dumps(line) + "\n" for line in lines)


def burn(
    seconds: float, rate: Of = lambda card, t: 700.0, stretches: int = 12, cards: int = 2, wrong: tuple[int, ...] = ()
) -> dict[str, Any]:
    """A result file of the burn worker; ``wrong``: cards whose products are."""
    length = seconds / stretches
    return {
        "schema": "accept.worker/1",
        "worker": "burn",
        "device": "cuda",
        "devices": [{"index": i, "name": "NVIDIA Test", "uuid": UUIDS[i], "slot": SLOTS[i]} for i in range(cards)],
        "versions": {"torch": "2.4.1"},
        "dtype": "bf16",
        "shape": [8192, 8192, 8192],
        "burn": [
            {
                "index": card,
                "light": {"started_at": moment(-1.9), "ended_at": moment(-0.1)},
                "blocks": [
                    {
                        "started_at": moment(number * length),
                        "ended_at": moment((number + 1) * length),
                        "rates": [rate(card, number * length + second) for second in range(int(length))],
                        "seconds": [1.0] * int(length),
                        "max_error": 0.01,
                        "row_error": 0.01,
                        "correct": card not in wrong,
                    }
                    for number in range(stretches)
                ],
            }
            for card in range(cards)
        ],
        "stopped": None,
    }
