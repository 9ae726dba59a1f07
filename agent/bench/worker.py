"""Starting a worker in the vendor's Python, and reading what it left. Trouble of ours is never a fault of theirs.

The worker's own source goes into the probe's evidence folder with its request: the run holds the very code that
made each number, and a zip or a wheel needs no unpacking.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Optional, Union

from agent import resources
from agent.host import Host, Ran
from agent.probes import pynvml_folder, source
from agent.reading import Known, Missing, MissingKind, Reading
from agent.text import Text, msg
from agent.tools import ParseError
from agent.tools.telemetry import Telemetry, parse_gate
from agent.tools.telemetry import parse as parse_telemetry
from agent.tools.worker import Device, Unable, parse

RESULT = "result.json"
REQUEST = "request.json"
TELEMETRY = "telemetry.jsonl"
GATE = f"{TELEMETRY}.gate"
TELEMETRY_PROBE = "telemetry_probe.py"
SIGKILL = 9


@dataclass(frozen=True)
class WorkerResult:
    """A whole result file of a worker that could do its work. ``data`` is the file as it is."""

    worker: str
    data: Mapping[str, Any]
    versions: Mapping[str, Optional[str]]
    devices: tuple[Device, ...]
    argv: tuple[str, ...]
    started_at: str
    seconds: float
    evidence: tuple[str, ...]
    telemetry: Reading[Telemetry]


Outcome = Union[WorkerResult, Missing]


_SHARED = re.compile(rb"^(?:import|from) (_\w+)", re.MULTILINE)


def sources(worker: str) -> dict[str, bytes]:
    """A worker's script and what it imports of the files beside it, by file name."""
    found: dict[str, bytes] = {}
    waiting = [f"{worker}.py"]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = resources.path("benchmarks", name).read_bytes()
            imported = (module.decode() for module in _SHARED.findall(found[name]) if module != b"__future__")
            waiting += [f"{module}.py" for module in imported]
    return found


def launch(
    host: Host,
    probe: str,
    worker: str,
    request: Mapping[str, Any],
    python: str,
    timeout_s: float,
    watch: bool = False,
) -> Outcome:
    """Run ``benchmarks/<worker>.py`` under ``python``: its result, or a Missing with the reason.

    ``watch``: with telemetry beside it, from a second before its start to its end.
    """
    inputs = {REQUEST: (json.dumps(request, indent=1) + "\n").encode()}
    if host.live:
        inputs.update(sources(worker))
    # -B: no __pycache__ among the evidence.
    argv = [python, "-s", "-B", f"{{evidence}}/{worker}.py"]
    argv += ["--request", f"{{evidence}}/{REQUEST}", "--result", f"{{evidence}}/{RESULT}"]
    if watch:
        argv = [*_beside(host), "--", *argv]
        if host.live:
            inputs.update(sources("beside"), **{TELEMETRY_PROBE: source("telemetry_probe")})
    return read_result(host.run(probe, argv, timeout_s, worker=True, inputs=inputs), worker)


def _beside(host: Host) -> list[str]:
    """The program that starts telemetry in the agent's own Python, and then what follows."""
    python = host.python()
    watcher = [python, "-I", "-B", f"{{evidence}}/{TELEMETRY_PROBE}", pynvml_folder()]
    return [python, "-I", "-B", "{evidence}/beside.py", f"{{evidence}}/{TELEMETRY}", "--", *watcher]


def _own(argv: tuple[str, ...]) -> tuple[str, ...]:
    """The worker's part of a command line."""
    last = max((i for i, word in enumerate(argv) if word == "--"), default=-1)
    return argv[last + 1 :]


def _watched(ran: Ran) -> Reading[Telemetry]:
    if not ran.has(TELEMETRY):
        return Missing("left-out", msg("no telemetry was taken"), ran.cited)
    try:
        found = parse_telemetry(ran.bytes(TELEMETRY).decode("utf-8", "replace"))
        if ran.has(GATE):
            found = replace(found, busy=parse_gate(ran.bytes(GATE).decode("utf-8", "replace")))
        return Known(found, ran.cited)
    except ParseError as error:
        return Missing("unparsable", msg("the telemetry cannot be read: {error}", error=str(error)), ran.cited)


def read_result(ran: Ran, worker: str) -> Outcome:
    """What a worker left: its result file decides, whatever the exit status; without one, why there is none."""
    if not ran.has(RESULT):
        return no_result(ran, worker)
    try:
        found = parse(ran.bytes(RESULT), worker)
    except ParseError as error:
        return unreadable(worker, error, ran.cited)
    if found.error is not None:
        return as_missing(found.error, ran.cited)
    return WorkerResult(
        worker=worker,
        data=found.data,
        versions=found.versions,
        devices=found.devices,
        argv=_own(ran.argv),
        telemetry=_watched(ran),
        started_at=ran.started_at,
        seconds=ran.seconds,
        evidence=ran.cited,
    )


def unreadable(worker: str, error: ParseError, evidence: tuple[str, ...]) -> Missing:
    """A result that is not what the worker writes."""
    detail = msg("the result of our own {worker} test cannot be read: {error}", worker=worker, error=str(error))
    return Missing("unparsable", detail, evidence)


# ---------------------------------------------------------------- no result


def no_result(ran: Ran, worker: str) -> Missing:
    """Every way in which our own program can end without a result, said as our own trouble."""
    name = msg("our own {worker} test", worker=worker)
    if not ran.recorded or ran.start_error or ran.over_limit:
        found = ran.missing()
        assert found is not None
        return found
    if ran.abandoned:
        detail = msg("{name} hangs in the kernel and cannot be killed: a driver or device does not answer", name=name)
        return Missing("timeout", detail, ran.cited)
    if ran.timed_out:
        return Missing("timeout", msg("{name} gave no result in {s} s", name=name, s=f"{ran.seconds:.0f}"), ran.cited)
    if ran.signal == SIGKILL:
        detail = msg("{name} was killed from outside, most likely for lack of memory", name=name)
        return Missing("failed", detail, ran.cited, msg("free memory, or a larger memory limit"))
    if ran.signal is not None:
        return Missing("failed", msg("{name} was ended by signal {signal}", name=name, signal=ran.signal), ran.cited)
    said = _last_line(ran.stderr)
    if ran.exit:
        detail = msg("{name} ended with status {exit}: {said}", name=name, exit=ran.exit, said=said)
        return Missing("failed", detail, ran.cited)
    return Missing("failed", msg("{name} left no result: {said}", name=name, said=said), ran.cited)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "—"


_KINDS: Mapping[str, MissingKind] = {
    "no-torch": "no-tool",
    "torch-broken": "failed",
    "needs-torch": "unsupported",
    "needs-python": "unsupported",
    "needs-hardware": "unsupported",
    "needs-nccl": "unsupported",
    "no-driver": "no-tool",
    "no-cuda": "not-there",
    "hung": "timeout",
    "time-limit": "timeout",
}


def as_missing(unable: Unable, evidence: tuple[str, ...]) -> Missing:
    """A worker's typed error as the reason that a finding shows, with what would have to be installed."""
    detail: Text = msg("{detail}", detail=unable.detail)
    grant: Optional[Text] = None
    if unable.kind == "no-torch":
        grant = msg("torch in the delivered Python, or --python with an interpreter that has it")
    elif unable.kind == "torch-broken":
        detail = msg("torch is installed and cannot be imported ({detail})", detail=unable.detail)
        grant = msg("a torch that can be imported, or --python with an interpreter that has one")
    elif unable.kind == "needs-torch":
        needs = unable.needs or "newer"
        detail = msg("needs torch ≥ {needs} ({detail})", needs=needs, detail=unable.detail)
        grant = msg("torch {needs} or newer, or --python with an interpreter that has it", needs=needs)
    elif unable.kind == "needs-nccl":
        detail = msg("needs NCCL ({detail})", detail=unable.detail)
        grant = msg("NVIDIA GPUs and a torch that is built with NCCL, or --python with an interpreter that has one")
    elif unable.kind == "needs-python":
        detail = msg("needs Python ≥ {needs} ({detail})", needs=unable.needs, detail=unable.detail)
        grant = msg("Python {needs} or newer with torch", needs=unable.needs)
    elif unable.kind == "no-driver":
        detail = msg("the CUDA driver cannot be loaded ({detail})", detail=unable.detail)
        grant = msg("the NVIDIA driver with libcuda.so.1; in a container, the driver's capability “compute”")
    elif unable.kind == "out-of-memory":
        detail = msg("not enough memory for the test ({detail})", detail=unable.detail)
    elif unable.kind in ("rank-died", "hung", "time-limit"):
        detail = msg("the test's processes did not end well: {detail}", detail=unable.detail)
    elif unable.kind in ("refused", "cuda-error"):
        detail = msg("the software refused the test ({detail})", detail=unable.detail)
    return Missing(_KINDS.get(unable.kind, "failed"), detail, evidence, grant)
