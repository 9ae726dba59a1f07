"""A scripted hour on a fake node of eight GPUs, in virtual time: every event once, at its time."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.watch import log
from agent.watch.events import words
from agent.watch.log import Seen
from agent.watch.summary import summarise
from tests.fakenode import healthy
from tests.fakenode.node import build
from tests.watch.scripted import EPOCH, Busy, Change, Script, events, watched

EVERY_S = 5.0
LOST = "error NVML_ERROR_GPU_IS_LOST"


def test_each_event_of_an_hour_appears_once_at_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = build(healthy.h100(), tmp_path / "node")
    for name, value in node.env.items():
        monkeypatch.setenv(name, value)
    slots = [card.slot for card in node.node.cards]
    ecc = ("3 nvmlDeviceGetTotalEccErrors.0.0 5",)
    more_ecc = ("3 nvmlDeviceGetTotalEccErrors.0.0 9", "3 nvmlDeviceGetTotalEccErrors.1.0 1")
    replays = (*more_ecc, "4 nvmlDeviceGetPcieReplayCounter 3")
    crc = (*replays, "7 nvmlDeviceGetFieldValues.38.0 12")
    changes: dict[float, list[Change]] = {
        600: [("2 nvmlDeviceGetTemperature.0 85",)],
        700: [("2 nvmlDeviceGetTemperature.0 83",)],  # not yet cool enough to be told
        900: [()],
        1200: [("5 nvmlDeviceGetCurrentClocksEventReasons 64",)],
        1260: [()],
        1501: [f"NVRM: Xid (PCI:{slots[1][:-2]}): 63, pid=77, name=python, Row Remapper: New row"],
        1800: [ecc],
        1860: [("3 nvmlDeviceGetTotalEccErrors.0.0 9",)],  # within ten minutes: told together at their end
        2000: [Busy(steal=10)],
        2100: [Busy(), more_ecc],
        2400: [replays],
        2700: [
            (*replays, f"6 nvmlDevice* {LOST}"),
            f"NVRM: Xid (PCI:{slots[6][:-2]}): 79, pid=77, name=python, GPU has fallen off the bus.",
        ],
        3000: [crc],
        3300: [(*crc, "0 nvmlDeviceGetUtilizationRates 10 5"), Busy(disk=95)],
        3420: [crc, Busy()],
    }
    told = watched(Script(node, changes), EVERY_S, 720, tmp_path)
    found = [(e.t - EPOCH, e.kind, e.subject) for e in events(told)]
    assert found == [
        (600, "hot", slots[2]),
        (900, "cooled", slots[2]),
        (1200, "held", slots[5]),
        (1260, "released", slots[5]),
        (1505, "xid", slots[1]),
        (1800, "grew", slots[3]),
        (2015, "stolen", None),  # the third look in a row
        (2100, "grew", slots[3]),
        (2105, "given", None),
        (2400, "grew", slots[3]),
        (2400, "grew", slots[4]),
        (2700, "xid", slots[6]),
        (2700, "lost", slots[6]),
        (3000, "back", slots[6]),
        (3000, "grew", slots[7]),
        (3315, "waits", slots[0]),
        (3420, "fed", slots[0]),
    ]
    assert sum(isinstance(t, Seen) for t in told) == 720
    said = {e.kind: str(words(e)) for e in events(told)}
    assert said["waits"] == "GPU waits for data: disk nvme0n1 (95 % busy); 10 % utilized"
    assert said["xid"].startswith("Xid 79, GPU fell off the bus (hardware)")
    assert list(log.read(tmp_path)) == told
    total = summarise(log.read(tmp_path))
    assert total.looks == 720
    assert total.watched_s == pytest.approx(3600)
    assert total.cards[slots[5]].held == {"hw_thermal": 60.0}
    assert total.cards[slots[6]].looks == 720
    span = total.cards[slots[6]].span("temperature_c")
    assert span is not None
    assert len(total.cards[slots[6]].values["temperature_c"]) == 720 - 60
