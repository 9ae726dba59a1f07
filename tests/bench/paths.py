"""What the promises of one path come to on this machine, with shorter and smaller measurements."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from agent.bench import disk_files, disk_random, disk_rig, disk_sequential
from agent.checks import disk
from agent.evidence import Store
from agent.host import Ran
from agent.model import Depth, Finding
from tests import media
from tests.bench.driven import clause, judged
from tests.hooked import Go, Hooked, without_fio
from tests.media import MIB

ALL_DEPTHS: tuple[Depth, ...] = ("quick", "standard", "deeper")


def shorten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same repetitions, shorter and smaller."""
    for module, name, value in (
        (disk_sequential, "SECONDS", 1),
        (disk_sequential, "WRITE_CAP", 6 * 40 * MIB),
        (disk_random, "SECONDS", 1),
        (disk_random, "WRITE_CAP", 6 * 8 * MIB),
        (disk_rig, "FILE_BYTES", 128 * MIB),
        (disk_files, "CHECKPOINT_BYTES", 16 * MIB),
        (disk_files, "SMALL_FILES", 100),
    ):
        monkeypatch.setattr(module, name, dict.fromkeys(ALL_DEPTHS, value))
    monkeypatch.setattr(disk_random, "MIXED_S", 1)


class Host(Hooked):
    """This machine, without waiting between attempts."""

    def sleep(self, seconds: float) -> None:
        """Nothing settles here."""


class NoFio(Host):
    """A machine without fio."""

    def around(self, probe: str, argv: Sequence[str], go: Go) -> Ran:
        return go(without_fio(argv))


def looked(run: Path, path: Path, machine: type[Host] = Host, **promises: str) -> dict[str, Finding]:
    """Findings by the clause's name; the path's tree is as it was before."""
    host = machine(Store(run))
    before = media.snapshot(path)
    asked = [clause(disk, name, promise, path=str(path)) for name, promise in promises.items()]
    found = judged(disk, asked, host, facts=True)
    assert media.snapshot(path) == before
    return {f.clause.rpartition(".")[2]: f for f in found.values()}
