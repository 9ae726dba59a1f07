"""The way between GPUs and drives, on fake nodes: the kernel's files through the facts to the findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from agent import facts
from agent.checks import storage_path
from agent.checks._api import Case
from agent.facts import Asked
from agent.host import Host
from agent.model import Clause, Contract, Finding
from tests.facts import fake
from tests.fakenode import healthy
from tests.fakenode.node import Node

STATS = "GDS Version: 1.11.1.6\nNVFS statistics(ver: 4.0)\nNVFS Driver(version: 2.22.3)\nMellanox PeerDirect: True\n"
GDS = {"/sys/module/nvidia_fs/refcnt": "0\n", "/proc/driver/nvidia-fs/stats": STATS}


def judged(host: Host, **promised: str) -> dict[str, Finding]:
    clauses = [
        Clause(f"storage_path.{n}", "storage_path", n, storage_path.GRAMMAR.clauses[n].parse(text), 1, 1)
        for n, text in promised.items()
    ]
    read = facts.collect(storage_path.FACTS, host, Asked())
    found = storage_path.judge(clauses, Case(Contract(tuple(clauses), b"", ""), read))
    return {f.id: f for f in found}


def on(node: Node, folder: Path, patch: pytest.MonkeyPatch, **promised: str) -> dict[str, Finding]:
    """The findings on a node, which its recording gives again."""
    found = judged(fake.start(node, folder, patch), **promised)
    (folder / "node").rename(folder / "gone")
    assert judged(fake.replay(folder), **promised) == found
    return found


@pytest.mark.parametrize(
    ("files", "promise", "outcome"),
    [
        (GDS, "true", "pass"),
        (GDS, "false", "fail"),
        ({"/sys/module/nvidia_fs/version": "2.22.3\n"}, "true", "pass"),
    ],
)
def test_gpudirect_storage_by_its_module(
    files: Mapping[str, str], promise: str, outcome: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = healthy.rtx4090().with_files(dict(files))
    (found,) = on(node, tmp_path, monkeypatch, gpudirect=promise).values()
    assert found.outcome == outcome, found
    assert found.evidence
    if outcome == "pass":
        assert "2.22.3" in str(found.notes[0])


def test_without_the_module_the_driver_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proprietary driver cannot do it otherwise; the open one may, which nobody can see at rest."""
    for kind, outcome in (("", "fail"), ("Open ", "inconclusive")):
        said = f"NVRM version: NVIDIA UNIX {kind}x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"
        if kind:
            said = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\n"
        folder = tmp_path / outcome
        folder.mkdir()
        with monkeypatch.context() as patch:
            node = healthy.h100().with_files({"/proc/driver/nvidia/version": said})
            (found,) = on(node, folder, patch, gpudirect="true").values()
        assert found.outcome == outcome, found
        assert "nvidia_fs" in str(found.reason)


def test_each_card_has_its_nearest_drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = healthy.h100()
    found = on(node, tmp_path, monkeypatch, gpu_nvme="<= PXB")
    near = {card.slot for card in node.cards if any(d.parents[:2] == card.parents[:2] for d in node.drives)}
    assert {i.partition("@")[2] for i, f in found.items() if f.outcome == "pass"} == near
    assert {str(f.measured) for f in found.values() if f.outcome == "fail"} <= {"NODE", "SYS", "PHB"}
    assert len(found) == 8
    assert len(near) == 4


@pytest.mark.parametrize(("vm", "drives"), [(True, True), (False, False)])
def test_a_guest_and_a_machine_without_drives_give_no_verdict(
    vm: bool, drives: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = healthy.h100()
    if vm:
        node = healthy.vm()
    found = on(replace(node, drives=node.drives if drives else ()), tmp_path, monkeypatch, gpu_nvme="<= PXB")
    assert {f.outcome for f in found.values()} == {"inconclusive"}
    assert {f.reason_code for f in found.values()} <= {"unsupported", "not-there"}


def test_a_recording_without_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    promised = {"gpudirect": "true"}
    fake.start(healthy.h100(), tmp_path, monkeypatch)
    (found,) = judged(fake.replay(tmp_path), **promised).values()
    assert (found.outcome, found.reason_code) == ("inconclusive", "not-recorded")
