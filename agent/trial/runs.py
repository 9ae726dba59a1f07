"""What a trial keeps of each run: outcomes, numbers, parts, counters. Read straight from ``result.json``.

Samples are dropped while reading, so that five hundred runs fit into memory and are read in seconds.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any, Optional

from agent.evidence import RESULT, read_json
from agent.result import sentence
from agent.text import Text, msg
from agent.trial.schedule import moment

JOB = "run.json"  # written first, so a run without a result is known as one
# Parts with one name for the whole machine.
WHOLE = ("identity", "product", "cpu")


@dataclass(frozen=True)
class Point:
    """One run's number for one measurement. ``weak``: why it cannot convict (a far end not shown capable)."""

    value: float
    low: float
    high: float
    unit: str
    depth: str
    weak: Optional[str] = None
    network: Optional[str] = None
    subject: Optional[str] = None


@dataclass(frozen=True)
class Outcome:
    """One finding of one run, as far as the trial needs it. ``limit`` is what the value was held against."""

    clause: str
    outcome: str
    severity: str
    code: str
    reason: Text
    promised: str
    measured: bool
    subject: Optional[str] = None
    limit: Optional[float] = None
    limit_unit: str = ""


@dataclass(frozen=True)
class TrialRun:
    """One run folder. ``parts``: what it is made of, ``{"gpu 0000:1b:00.0": "GPU-…"}``; ``counters`` by part."""

    folder: str
    at: datetime
    complete: bool
    profile: str
    verdict: Optional[str]
    contract_sha256: str
    boot_id: Optional[str] = None
    hostname: Optional[str] = None
    parts: Mapping[str, str] = field(default_factory=dict)
    counters: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    points: Mapping[str, Point] = field(default_factory=dict)


@dataclass(frozen=True)
class Unread:
    """A folder that looks like a run and has no result that can be read."""

    folder: str
    why: Text


def load_runs(folder: Path) -> tuple[tuple[TrialRun, ...], tuple[Unread, ...]]:
    """Every run below a folder, in the order of the folders' names, which begin with number or time."""
    runs: list[TrialRun] = []
    unread: list[Unread] = []
    known: dict[str, str] = {}  # folders by run: a copy would let one breach count as two
    folders = (p for p in folder.iterdir() if p.is_dir() and ((p / RESULT).exists() or (p / JOB).exists()))
    with _no_collection():
        for run in sorted(folders):
            try:
                data = read_json(run / RESULT, _without_samples)
                first = known.setdefault(str(data["run_id"]), run.name)
                if first != run.name:
                    unread.append(Unread(run.name, msg("the same run as {folder}, which counts once", folder=first)))
                    continue
                runs.append(run_of(run.name, data))
            except FileNotFoundError:
                unread.append(Unread(run.name, msg("no result.json")))
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                unread.append(Unread(run.name, msg("{error}", error=f"{type(error).__name__}: {error}")))
    return tuple(runs), tuple(unread)


# Inside a string of JSON the quote behind the word would be escaped, so that this is the key and nothing else.
_SAMPLES = re.compile(rb'"(samples|warmup)": ?\[[^\]"\[{]*\]')


def _without_samples(text: bytes) -> bytes:
    """Most of a result is samples, which no trial looks at."""
    return _SAMPLES.sub(rb'"\1":[]', text)


@contextmanager
def _no_collection() -> Iterator[None]:
    """JSON has no cycles, and looking for them among ever more runs takes longer with each."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def run_of(folder: str, data: Mapping[str, Any]) -> TrialRun:
    """The run that a ``result.json`` tells of. KeyError, TypeError or ValueError for another shape."""
    node = data["node"]
    return TrialRun(
        folder=folder,
        at=moment(data["started_at"]),
        complete=bool(data["complete"]),
        profile=str(data["profile"]),
        verdict=data["verdict"],
        contract_sha256=str(data["contract"]["sha256"]),
        boot_id=next((s["boot_id"] for s in reversed(data["sessions"])), None),
        hostname=node.get("hostname"),
        parts=_parts(node),
        counters=_counters(node),
        outcomes={f["id"]: _outcome(f) for f in data["findings"]},
        points={m["key"]: p for m in data["measurements"] if (p := _point(m)) is not None},
    )


def _parts(node: Mapping[str, Any]) -> dict[str, str]:
    parts = {name: str(node[name]) for name in WHOLE if node.get(name)}
    for gpu in node.get("gpus") or ():
        known = gpu.get("uuid") or gpu.get("serial")
        if gpu.get("slot") and known:
            parts[f"gpu {gpu['slot']}"] = str(known)
    # By serial, not by name: the names of disks may turn around at a reboot.
    serials = sorted(str(d["serial"]) for d in node.get("disks") or () if d.get("serial"))
    if serials:
        parts["disks"] = ", ".join(serials)
    macs = sorted(str(n["mac"]) for n in node.get("network") or () if n.get("mac"))
    if macs:
        parts["network cards"] = ", ".join(macs)
    return parts


def _counters(node: Mapping[str, Any]) -> dict[str, Mapping[str, int]]:
    """A disk's by its serial: names such as nvme0n1 may turn around at a reboot."""
    serials = {d["name"]: str(d["serial"]) for d in node.get("disks") or () if d.get("name") and d.get("serial")}
    return {
        f"disk {serials[owner]}" if owner in serials else owner: dict(counts)
        for owner, counts in (node.get("counters") or {}).items()
    }


def _outcome(found: Mapping[str, Any]) -> Outcome:
    held = found.get("limit") or {}
    limit = held.get("value")
    return Outcome(
        clause=found["clause"],
        outcome=found["outcome"],
        severity=found["severity"],
        code=found["reason_code"],
        reason=sentence(found, "reason"),
        promised=found["promised"],
        measured=bool(found["measurement_ids"]),
        subject=found.get("subject"),
        limit=float(limit) if isinstance(limit, (int, float)) and not isinstance(limit, bool) else None,
        limit_unit=str(held.get("unit") or ""),
    )


def _point(taken: Mapping[str, Any]) -> Optional[Point]:
    """The last attempt that counts, as the result's own value is made."""
    counted = [a for a in taken["attempts"] if a["void"] is None and a["blocks"]]
    if not counted:
        return None
    values = [float(b["value"]) for b in counted[-1]["blocks"] if b["value"] is not None]
    if not values:
        return None
    weak = counted[-1].get("weak")
    network = (counted[-1]["blocks"][0].get("conditions") or {}).get("network")
    return Point(
        median(values),
        min(values),
        max(values),
        taken["unit"],
        counted[-1]["depth"],
        weak["code"] if weak else None,
        network,
        taken.get("subject"),
    )
