"""Which devices a worker will measure, and how a step names its keys by them."""

from __future__ import annotations

from typing import Union

from agent.facts.pythons import Interpreter
from agent.model import Result
from agent.reading import Missing, Reading
from agent.text import msg
from agent.tools.worker import Device


def devices(interpreter: Reading[Interpreter], device: str) -> Union[tuple[Device, ...], Missing]:
    """What will be measured (``device`` is ``cuda`` or ``cpu``), or why nothing can be."""
    if isinstance(interpreter, Missing):
        return interpreter
    if device == "cpu":
        return (Device(0, "cpu"),)
    found = interpreter.value
    if found.devices:
        return found.devices
    said = found.cuda_error or "—"
    detail = msg("torch {torch} of {path} sees no GPU: {said}", torch=found.torch, path=found.path, said=said)
    grant = msg("a GPU that CUDA {cuda} of this torch can use", cuda=found.cuda)
    if found.cuda is None:
        grant = msg("a torch that is built for CUDA, or --python with an interpreter that has one")
    return Missing("not-there", detail, interpreter.evidence, grant)


def keys(clause: str, found: Union[tuple[Device, ...], Missing]) -> tuple[str, ...]:
    """One key a device, ``memory_bandwidth@0000:1b:00.0``; the clause itself where there is none."""
    return (clause,) if isinstance(found, Missing) else tuple(f"{clause}@{d.subject}" for d in found)


def all_of(wanted: tuple[str, ...], why: Missing) -> dict[str, Result]:
    """The same reason for every key."""
    return dict.fromkeys(wanted, why)
