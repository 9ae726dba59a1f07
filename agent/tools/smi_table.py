"""Plain ``nvidia-smi``: the boxed table that people paste.

Its layout changed many times (width, one or two lines more, renamed headings), so the rows are found by
what their cells hold, wherever the lines break.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Optional

from agent.tools import ParseError
from agent.tools._nvidia import Value, quantity, version, word
from agent.tools._text import clean, recognise
from agent.tools.smi_errors import LostGpu, find_failure, lost_gpu, lost_gpus, refuse

KIND = "smi-table"
ARGV = ("nvidia-smi",)
TIMEOUT_S = 60.0
_SIGN = re.compile(r"NVIDIA-SMI")


@dataclass(frozen=True)
class Gpu:
    """One GPU: MiB, W, degrees C, percent. ``N/A`` is None; ``ERR!`` is ``"error: ERR!"``."""

    index: int
    product_name: Optional[str]
    name_truncated: bool
    """The layout cuts long names and ends them in dots: not a name to identify a card by."""
    pci_bus_id: Optional[str]
    persistence_mode: Optional[str]
    """On or Off; on Windows the driver model (WDDM, TCC, MCDM) stands in its place."""
    fan_percent: Value
    temperature_c: Value
    performance_state: Optional[str]
    power_draw_w: Value
    power_limit_w: Value
    memory_used_mib: Value
    memory_total_mib: Value
    utilization_percent: Value
    compute_mode: Optional[str]
    ecc_uncorrected_volatile: Value
    """The count; ``On`` or ``Off`` where the cell tells the mode instead; None where there is no ECC."""
    mig_mode: Optional[str]


@dataclass(frozen=True)
class MigDevice:
    """A row of the MIG table; its memory is part of its GPU's."""

    gpu: int
    gpu_instance: int
    compute_instance: int
    mig_device: int
    memory_used_mib: Value
    memory_total_mib: Value


@dataclass(frozen=True)
class Process:
    """A row of the process table."""

    gpu: int
    gpu_instance: Value
    compute_instance: Value
    pid: int
    type: str
    name: Optional[str]
    used_mib: Value


@dataclass(frozen=True)
class SmiTable:
    """The tables. ``processes`` is None where the process table is not in the text: then more GPUs may be cut."""

    smi_version: Optional[str]
    driver_version: Optional[str]
    cuda_version: Optional[str]
    gpus: tuple[Gpu, ...]
    mig_devices: tuple[MigDevice, ...]
    processes: Optional[tuple[Process, ...]]
    lost: tuple[LostGpu, ...]
    notes: tuple[str, ...]


def parse(text: str) -> SmiTable:
    """One output of plain nvidia-smi, with or without text around it."""
    recognise(text, "nvidia-smi table", _SIGN)
    flat = clean(text)
    head = _HEAD.search(flat)
    if head is None:
        raise refuse(text, "nvidia-smi table")
    if len(_HEAD.findall(flat)) > 1:
        raise ParseError("several_results", "more than one nvidia-smi table; give one at a time")
    body = flat[head.start() :]
    rows, mig, processes = _sections(body)
    gpus = _gpus(rows, body)
    before = [line.strip() for line in flat[: head.start()].splitlines()]
    header = body[: body.find("Bus-Id")]
    return SmiTable(
        smi_version=version(head[1]),
        driver_version=_heading(header, "KMD Version", "Driver Version"),
        cuda_version=_heading(header, "CUDA UMD Version", "CUDA Version"),
        gpus=gpus,
        mig_devices=_mig_devices(mig, closed=processes is not None),
        processes=_processes(processes),
        lost=lost_gpus(flat),
        notes=tuple(line for line in before if _is_note(line)),
    )


def to_json(result: SmiTable) -> dict[str, Any]:
    """The dataclass as it is."""
    return asdict(result)


# --- sections ------------------------------------------------------------------------------------------

_HEAD = re.compile(r"NVIDIA-SMI\s+(\d+(?:\.\d+)+)")
_ERR = r"\[?(?:Unknown Error|GPU is lost\.?|Not Supported)\]?"
_CELL = rf"(?:{_ERR}|\S+)"
_ROW = re.compile(
    r"\|\s*(?P<index>\d{1,3})\s+(?P<name>\S[^|\n]*?)\s+(?P<mode>On|Off|WDDM|TCC|MCDM|N/A|ERR!)\s*"
    r"\|\s*(?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]|N/A|ERR!)\s+(?:On|Off|N/A|ERR!)\s*"
    r"\|\s*(?P<ecc>[^|\n]*?)\s*\|\s*"
    rf"\|\s*(?P<fan>{_CELL})\s+(?P<temp>{_CELL})\s+(?P<perf>P\d{{1,2}}|N/A|ERR!|\?|{_ERR})\s+"
    rf"(?P<draw>{_CELL})\s*/\s*(?P<cap>{_CELL})\s*"
    r"\|\s*(?:(?P<used>[^|/\n]*?)\s*/\s*(?P<total>[^|/\n]*?)|(?P<memory>[^|/\n]*?|N/A))\s*"
    rf"\|\s*(?P<util>{_CELL})\s+(?P<compute>[^|\n]*?)\s*\|"
)
_MIG_CELL = re.compile(r"\s*\|\s*\|\s*\|\s*(Enabled\*?|Disabled\*?|N/A|ERR!)\s*\|")
_ROW_START = re.compile(r"\|\s*\d{1,3}\s+\S[^|\n]*?\|\s*[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.")
_MIG_ROW = re.compile(r"\|\s*(\d{1,3})\s+(\d{1,3})\s+(\d{1,3})\s+(\d{1,3})\s*\|\s*(\S+)\s*/\s*(\S+)\s*\|")
_PROCESS = re.compile(
    r"\|\s*(\d{1,3})\s+(?:(\d{1,5}|N/A)\s+(\d{1,5}|N/A)\s+)?(\d{1,10})\s+([CGM+/]+|N/A)\s+"
    r"([^|\n]*?)\s+(\d{1,9}MiB|N/A|ERR!)\s*\|"
)
_RULE = re.compile(r"\+[-=+]{20,}\+(?![-=+])")
_NONE_RUNNING = re.compile(r"No running (?:compute )?processes found|Not Supported", re.I)


def _sections(body: str) -> tuple[str, str, Optional[str]]:
    """The GPU table, the MIG table, and the process table if it is there."""
    processes = re.search(r"\|\s*(?:Compute )?[Pp]rocesses:", body)
    process_at = processes.start() if processes else len(body)
    mig = re.search(r"\|\s*MIG devices:", body[:process_at])
    mig_at = mig.start() if mig else process_at
    return body[:mig_at], body[mig_at:process_at], body[process_at:] if processes else None


def _gpus(rows: str, body: str) -> tuple[Gpu, ...]:
    """All GPU rows; one that looks like a row and cannot be read is refused, not left out."""
    found = list(_ROW.finditer(rows))
    for start in _ROW_START.finditer(rows):
        if not any(row.start() <= start.start() < row.end() for row in found):
            raise _bad_row(start, rows)
    if not found:
        raise _no_rows(body)
    modes = _mig_modes(found, rows)
    _check_closed(rows[found[-1].end() :], _line(found[-1][0]), "MIG M." in rows)
    gpus = tuple(_gpu(row, mode) for row, mode in zip(found, modes))
    if len({gpu.index for gpu in gpus}) != len(gpus):
        raise ParseError("several_results", "one GPU stands twice; give one output at a time")
    return gpus


def _check_closed(rest: str, line: str, has_mig_line: bool) -> None:
    """Behind the last GPU the table closes, and no row or rule begins that does not end."""
    rest = _MIG_CELL.sub("", rest, count=1) if has_mig_line else rest
    if not _RULE.search(rest) or re.search(r"\||\+[-=]", _RULE.sub("", rest)):
        raise ParseError("truncated", "the table is not closed", line)


def _bad_row(start: re.Match[str], rows: str) -> ParseError:
    if not _RULE.search(rows, start.end()):
        return ParseError("truncated", "the text ends inside a GPU's rows", _line(rows[start.start() :]))
    return ParseError("unparsable", "a GPU row that cannot be read", _line(rows[start.start() :]))


def _no_rows(body: str) -> ParseError:
    failure = find_failure(body)
    if failure is not None:
        return ParseError(failure.kind, failure.message, failure.line)
    return ParseError("truncated", "the table has no GPU row", _line(body))


def _line(text: str) -> str:
    return text.split("\n", 1)[0].strip()


def _mig_modes(found: Sequence[re.Match[str]], rows: str) -> list[Optional[str]]:
    """The third line of each GPU, where the heading has one."""
    if "MIG M." not in rows:
        return [None] * len(found)
    cells = [_MIG_CELL.match(rows, row.end()) for row in found]
    if not all(cells):
        raise ParseError("truncated", "a GPU's MIG line is missing", _line(found[-1][0]))
    return [word(cell[1]) for cell in cells if cell]


def _gpu(row: re.Match[str], mig_mode: Optional[str]) -> Gpu:
    name = word(row["name"])
    used, total = (row["used"], row["total"]) if row["total"] else (row["memory"], row["memory"])
    ecc = word(row["ecc"])
    return Gpu(
        index=int(row["index"]),
        product_name=name,
        name_truncated=(name or "").endswith("..."),
        pci_bus_id=word(row["bus"]),
        persistence_mode=word(row["mode"]),
        fan_percent=quantity(row["fan"], "%"),
        temperature_c=quantity(row["temp"], "C"),
        performance_state=word(row["perf"]),
        power_draw_w=quantity(row["draw"], "W"),
        power_limit_w=quantity(row["cap"], "W"),
        memory_used_mib=quantity(used, "MiB"),
        memory_total_mib=quantity(total, "MiB"),
        utilization_percent=quantity(row["util"], "%"),
        compute_mode=word(row["compute"]),
        ecc_uncorrected_volatile=ecc if ecc in ("On", "Off") else quantity(row["ecc"]),
        mig_mode=mig_mode,
    )


# --- the rest ------------------------------------------------------------------------------------------


def _heading(header: str, *names: str) -> Optional[str]:
    """A version in the table's first line; since 610 under other names than before."""
    for name in names:
        match = re.search(rf"\b{name}:\s*(\S+)", header)
        if match:
            return version(match[1])
    return None


def _mig_devices(section: str, *, closed: bool) -> tuple[MigDevice, ...]:
    """The MIG rows; ``closed`` where the process table follows: the rules between rows end nothing."""
    if section and (not _RULE.search(section) or not closed):
        raise ParseError("truncated", "the MIG table is not closed", _line(section))
    return tuple(
        MigDevice(
            gpu=int(row[1]),
            gpu_instance=int(row[2]),
            compute_instance=int(row[3]),
            mig_device=int(row[4]),
            memory_used_mib=quantity(row[5], "MiB"),
            memory_total_mib=quantity(row[6], "MiB"),
        )
        for row in _MIG_ROW.finditer(section)
    )


def _processes(section: Optional[str]) -> Optional[tuple[Process, ...]]:
    """The process rows; no table is not the same as no process."""
    if section is None:
        return None
    if not _RULE.search(section):
        raise ParseError("truncated", "the process table is not closed", _line(section))
    found = list(_PROCESS.finditer(section))
    for line in section.splitlines():
        if re.match(r"\s*\|\s*\d{1,3}\s", line) and not _PROCESS.search(line):
            raise ParseError("unparsable", "a process row that cannot be read", line.strip())
    if not found and not _NONE_RUNNING.search(section):
        return None  # WSL and old drivers print an empty table: nothing is said
    return tuple(
        Process(
            gpu=int(row[1]),
            gpu_instance=quantity(row[2]),
            compute_instance=quantity(row[3]),
            pid=int(row[4]),
            type=row[5],
            name=word(row[6]),
            used_mib=quantity(row[7], "MiB"),
        )
        for row in found
    )


def _is_note(line: str) -> bool:
    return bool(re.match(r"(?:WARNING|Note|NOTE)\b", line)) and lost_gpu(line) is None
