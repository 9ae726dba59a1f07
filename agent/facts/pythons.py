"""The interpreters of this machine that can import torch: each asked in a child of its own, with a deadline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

from agent import resources
from agent.facts import Asked
from agent.facts._read import answer, unparsable
from agent.host import Host, Ran
from agent.probes import ask
from agent.reading import Known, Missing, Reading
from agent.text import msg
from agent.tools import ParseError, worker
from agent.tools._text import one_document
from agent.tools.worker import Device, Unable

SCHEMA = "accept.torch/1"
LIST_TIMEOUT_S = 15.0
TORCH_TIMEOUT_S = 60.0  # a cold torch on a network file system takes half a minute
TOTAL_S = 150.0
RESULT = "result.json"


@dataclass(frozen=True)
class Interpreter:
    """A Python with a torch that can be imported.

    ``cuda`` is the CUDA version that torch was built with, ``devices`` what it sees through it (with PCI slots), and
    ``cuda_error`` its own words when it sees none. ``cublas`` and ``nccl`` are what it works with on GPUs.
    """

    path: str
    python: str
    prefix: str
    torch: str
    cuda: Optional[str] = None
    hip: Optional[str] = None
    devices: tuple[Device, ...] = ()
    cuda_error: Optional[str] = None
    cublas: Optional[str] = None
    nccl: Optional[str] = None


@dataclass(frozen=True)
class Tried:
    """An interpreter that was asked, and what it said."""

    path: str
    reading: Reading[Interpreter]


@dataclass(frozen=True)
class Pythons:
    """``chosen`` runs the workers: the one asked for, else the first that sees a GPU, else the first with torch."""

    chosen: Reading[Interpreter]
    tried: tuple[Tried, ...] = ()

    def stack(self) -> dict[str, Optional[str]]:
        """Versions for the result: of what the workers run in."""
        chosen = self.chosen.value if isinstance(self.chosen, Known) else None
        return {name: getattr(chosen, name, None) for name in ("python", "torch", "cuda", "cublas", "nccl")}


def collect(host: Host, asked: Asked) -> Pythons:
    """The interpreter asked for and no other; without one, all likely ones until a torch sees a GPU."""
    if asked.python is not None:
        only = Tried(asked.python, question(host, asked.python))
        return Pythons(only.reading, (only,))
    listed = listing(host)
    if isinstance(listed, Missing):
        return Pythons(listed)
    tried: list[Tried] = []
    spent = 0.0
    for path in listed.value:
        if spent >= TOTAL_S:
            detail = msg("not asked: the {s} s for asking interpreters were used up", s=f"{TOTAL_S:.0f}")
            tried.append(Tried(path, Missing("left-out", detail)))
            continue
        ran = run(host, path)
        spent += ran.seconds
        tried.append(Tried(path, read(ran, path)))
        if sees_gpu(tried[-1]):
            break
    return Pythons(choose(tuple(tried), listed.evidence), tuple(tried))


def listing(host: Host) -> Reading[tuple[str, ...]]:
    """The interpreters that lie on this machine, likely ones first."""
    return answer(ask(host, "pythons", "python_probe", [], LIST_TIMEOUT_S), parse_listing)


def parse_listing(text: str) -> tuple[str, ...]:
    """``{"pythons": [path]}``."""
    found = worker.sequence(one_document(text, "python_probe").get("pythons"), "pythons")
    return tuple(worker.text(p, "pythons") for p in found)


def question(host: Host, path: str) -> Reading[Interpreter]:
    """What torch one interpreter has."""
    return read(run(host, path), path)


def run(host: Host, path: str) -> Ran:
    """Ask one interpreter, as the workers will be started."""
    names = ("ask_torch.py", "_protocol.py") if host.live else ()
    inputs = {n: resources.path("benchmarks", n).read_bytes() for n in names}
    argv = [path, "-s", "-B", "{evidence}/ask_torch.py", "--result", f"{{evidence}}/{RESULT}"]
    return host.run(f"torch of {path}", argv, TORCH_TIMEOUT_S, worker=True, inputs=inputs)


def read(ran: Ran, path: str) -> Reading[Interpreter]:
    """The answer of one interpreter, or why there is none."""
    if not ran.has(RESULT):
        missing = ran.missing()
        if missing is not None:
            return missing
        said = (ran.stderr.strip().splitlines() or ["–"])[-1][:200]
        detail = msg("{path} ended with status {status}: {said}", path=path, status=ran.exit, said=said)
        return Missing("failed", detail, ran.cited)
    try:
        return found(worker.document(ran.bytes(RESULT), SCHEMA), path, ran.cited)
    except ParseError as error:
        return unparsable(f"ask_torch ({path})", str(error), ran.cited)


def found(data: Mapping[str, Any], path: str, evidence: tuple[str, ...]) -> Reading[Interpreter]:
    """The answer's JSON as a reading; raises :class:`ParseError` where it is not what ``ask_torch.py`` writes."""
    if data.get("error") is not None:
        return refusal(worker.unable(data["error"], "error"), path, evidence)
    torch = worker.mapping(data.get("torch"), "torch")
    return Known(
        Interpreter(
            path=path,
            python=worker.text(data.get("python"), "python"),
            prefix=worker.text(data.get("prefix"), "prefix"),
            torch=worker.text(torch.get("version"), "torch.version"),
            cuda=worker.optional_text(torch.get("cuda"), "torch.cuda"),
            hip=worker.optional_text(torch.get("hip"), "torch.hip"),
            devices=worker.devices(torch["devices"]) if torch.get("devices") else (),
            cuda_error=worker.optional_text(torch.get("cuda_error"), "torch.cuda_error"),
            cublas=worker.optional_text(torch.get("cublas"), "torch.cublas"),
            nccl=worker.optional_text(torch.get("nccl"), "torch.nccl"),
        ),
        evidence,
    )


def refusal(unable: Unable, path: str, evidence: tuple[str, ...]) -> Missing:
    """Why this interpreter cannot run a worker."""
    grant = msg("torch 2.0 or newer in {path}, or --python with an interpreter that has it", path=path)
    if unable.kind == "no-torch":
        return Missing("no-tool", msg("{path} has no torch", path=path), evidence, grant)
    if unable.kind in ("needs-torch", "needs-python"):
        detail = msg("{path} is too old for the tests: {detail}", path=path, detail=unable.detail)
        return Missing("unsupported", detail, evidence, grant)
    detail = msg("torch of {path} cannot be imported: {detail}", path=path, detail=unable.detail)
    return Missing("failed", detail, evidence, grant)


def sees_gpu(tried: Tried) -> bool:
    """Whether its torch sees a CUDA device."""
    return isinstance(tried.reading, Known) and bool(tried.reading.value.devices)


def choose(tried: tuple[Tried, ...], evidence: tuple[str, ...]) -> Reading[Interpreter]:
    """The first that sees a GPU, else the first with torch, else why none: a torch that fails says most."""
    usable = [t.reading for t in tried if isinstance(t.reading, Known)]
    for reading in [t.reading for t in tried if sees_gpu(t)] + usable:
        return reading
    failed = [t.reading for t in tried if isinstance(t.reading, Missing) and t.reading.kind != "no-tool"]
    telling = next((m for m in failed if m.kind in ("unsupported", "timeout") or m.grant is not None), None)
    if telling is not None:
        return telling
    detail = msg("none of the {n} Python interpreters found has torch", n=len(tried))
    return Missing("no-tool", detail, evidence, msg("torch in the delivered Python, or --python with one that has it"))
