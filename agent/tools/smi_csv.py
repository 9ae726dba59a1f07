"""``nvidia-smi --query-gpu=... --format=csv``, with or without header and units, error lines mixed in.

Without a header the columns have no names but those that their contents prove (``index``, ``name``,
``uuid``, ``pci.bus_id``); the others are ``column5`` and so on, unless the caller knows what it asked for.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from agent.tools import ParseError
from agent.tools._nvidia import Value, complete, plain, quantity, word
from agent.tools._text import clean, recognise
from agent.tools.smi_errors import LostGpu, find_failure, lost_gpu, refuse

KIND = "smi-csv"
COLUMNS = (
    "index",
    "name",
    "uuid",
    "pci.bus_id",
    "serial",
    "memory.total",
    "memory.used",
    "power.draw",
    "power.limit",
    "power.default_limit",
    "temperature.gpu",
    "pcie.link.gen.current",
    "pcie.link.width.current",
    "utilization.gpu",
    "clocks.current.sm",
    "mig.mode.current",
)
ARGV = ("nvidia-smi", f"--query-gpu={','.join(COLUMNS)}", "--format=csv")
TIMEOUT_S = 60.0
_SIGN = re.compile(r"GPU|NVIDIA|MiB|[a-z]\.[a-z]|_|%|\bindex\b|\d, \d")
_SAMPLE = 2000


@dataclass(frozen=True)
class SmiCsv:
    """The rows by column name, each value a number in its column's unit, a text, None, or ``"error: ..."``."""

    columns: tuple[str, ...]
    named: bool
    """Whether the names come from a header (or the caller), not from the contents."""
    units: Mapping[str, str]
    gpus: tuple[Mapping[str, Value], ...]
    lost: tuple[LostGpu, ...]
    notes: tuple[str, ...]
    """Other lines of the text, such as warnings."""


def parse(text: str, columns: Optional[Sequence[str]] = None) -> SmiCsv:
    """The table; ``columns`` names what was asked for where the header was switched off."""
    recognise(text, "nvidia-smi --query-gpu", _SIGN)
    lines = [line.strip() for line in clean(text).split("\n")]
    if len(lines) > _SAMPLE + 1:  # a long foreign text is refused before all of it is looked at
        parse("\n".join(lines[:_SAMPLE]) + "\n", columns)
    lost = tuple(found for found in map(lost_gpu, lines) if found)
    rest = [line for line in lines if line and not lost_gpu(line)]
    notes = [line for line in rest if _is_note(line)]
    table = [line for line in rest if not _is_note(line)]
    if not table:
        raise refuse(text, "nvidia-smi --query-gpu")
    header = _header(table[0])
    rows = [_cells(line) for line in (table[1:] if header else table)]
    names = [name for name, _ in header] if header else list(columns or _guess(rows, text))
    _check_widths(names, rows, table[1:] if header else table, text)
    units = _units(names, [unit for _, unit in header] if header else [], rows)
    if not complete(text) and rows and not lost_gpu(lines[-1]) and lines[-1] not in notes:
        _check_open_end(names, rows, units, table[-1], bool(header or columns))
    gpus = tuple(_gpu(names, row, units) for row in rows)
    _check_count(gpus, lost, table[-1])
    return SmiCsv(tuple(names), bool(header or columns), units, gpus, lost, tuple(notes))


def to_json(result: SmiCsv) -> dict[str, Any]:
    """Columns, their units, one object a GPU, and the lost ones."""
    return {
        "columns": list(result.columns) if result.named else None,
        "units": dict(result.units),
        "gpus": [dict(gpu) for gpu in result.gpus],
        "lost": [{"index": g.index, "pci_bus_id": g.pci_bus_id, "text": g.text} for g in result.lost],
        "notes": list(result.notes),
    }


# --- header and cells ----------------------------------------------------------------------------------

_TITLE = re.compile(r"([a-z][\w.]*[a-zA-Z0-9])(?: \[([A-Za-z%/]+)\])?")
_TITLE_LIKE = re.compile(r"[a-z][a-z_]*(?:\.[\w.]+|_[\w.]+)(?: \[.*)?|index|name|uuid|count|timestamp|serial|pstate")
_UNIT = re.compile(r"-?\d+(?:\.\d+)? (MiB|W|MHz|%|us|ms|C|KB/s|MB/s|mV)")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,17})(?:\.\d{1,9})?")
_BRACKETED = re.compile(r"\[[^\[\]]*\]")
# Digits in these columns name something; they are not amounts (a serial may begin with zeros).
_TEXT = re.compile(
    r"serial|uuid|^name$|gpu_name|version|vbios|bus_id|pci\.|timestamp|inforom|compute_cap|part_number"
    r"|chassis|cliqueId|guid|process_name|reasons|driver|\bpdi\b|board_id|^column"
)
_UUID = re.compile(r"(?:GPU|MIG)-[0-9a-fA-F-]{36}")
_BUS = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]")
_PRODUCT = re.compile(r"(?:NVIDIA|Tesla|GeForce|Quadro|TITAN|GRID|Graphics Device)(?: [\w.()/-]+)*")
_ROW_ONLY = (_UNIT, _BUS, _BRACKETED, _UUID, _NUMBER)


def _is_note(line: str) -> bool:
    """A warning or failure sentence, not a row: a row holds values that no sentence has."""
    if re.match(r"(?:WARNING|NOTE|Note)\b", line):
        return True
    cells = _cells(line)
    values = any(pattern.fullmatch(cell) for cell in cells for pattern in _ROW_ONLY)
    return not values and not _is_header(cells) and find_failure(line) is not None


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split(",")]


def _header(line: str) -> Optional[list[tuple[str, str]]]:
    """Names and units of a header line; None where the first line is already a row."""
    cells = _cells(line)
    if not _is_header(cells):
        return None
    titles = [(_TITLE.fullmatch(cell), cell) for cell in cells]
    bad = next((cell for match, cell in titles if match is None), None)
    if bad is not None:
        raise ParseError("unparsable", f"{bad!r} is no column name", line)
    names = [match[1] for match, _ in titles if match]
    if len(set(names)) != len(names):
        raise ParseError("unparsable", "a column stands twice in the header", line)
    return [(match[1], match[2] or "") for match, _ in titles if match]


def _is_header(cells: Sequence[str]) -> bool:
    likely = sum(1 for cell in cells if _TITLE_LIKE.fullmatch(cell))
    return likely > 0 and likely * 2 >= len(cells)


def _guess(rows: Sequence[Sequence[str]], text: str) -> list[str]:
    """Names for a table without header, only where every row's content proves them."""
    width = max(len(row) for row in rows)
    columns = [[row[i] for row in rows if i < len(row)] for i in range(width)]
    names = [_prove(i, column) or f"column{i + 1}" for i, column in enumerate(columns)]
    if not set(names) & {"name", "uuid", "pci.bus_id"} and not _measured(rows):
        raise refuse(text, "nvidia-smi --query-gpu")
    times = Counter(names)
    return [name if times[name] == 1 else f"column{i + 1}" for i, name in enumerate(names)]


def _measured(rows: Sequence[Sequence[str]]) -> bool:
    """At least one cell that only this tool would print: a number with unit, or a bracketed non-value."""
    return any(_UNIT.fullmatch(cell) or _is_non_value(cell) for row in rows for cell in row)


def _is_non_value(cell: str) -> bool:
    if not _BRACKETED.fullmatch(cell):
        return False
    text = word(cell)
    return text is None or text.startswith("error: ")


def _prove(at: int, column: Sequence[str]) -> Optional[str]:
    for name, pattern in (("uuid", _UUID), ("pci.bus_id", _BUS), ("name", _PRODUCT)):
        if all(pattern.fullmatch(cell) for cell in column):
            return name
    numbers = [int(cell) for cell in column if re.fullmatch(r"\d{1,3}", cell)]
    rising = len(numbers) == len(column) and all(a < b for a, b in zip(numbers, numbers[1:]))
    return "index" if at == 0 and rising else None


# --- checks --------------------------------------------------------------------------------------------


def _check_widths(names: Sequence[str], rows: Sequence[list[str]], lines: Sequence[str], text: str) -> None:
    """Every row has the header's width; only a process name may hold commas itself."""
    for at, (row, line) in enumerate(zip(rows, lines)):
        if len(row) > len(names) and "process_name" in names:
            start, extra = names.index("process_name"), len(row) - len(names)
            row[start : start + extra + 1] = [", ".join(row[start : start + extra + 1])]
        if len(row) != len(names):
            failure = find_failure(line)
            if failure is not None and len(row) == 1:
                raise ParseError(failure.kind, failure.message, line)
            cut = at == len(rows) - 1 and len(row) < len(names) and not complete(text)
            kind = "truncated" if cut else "unparsable"
            raise ParseError(kind, f"{len(row)} of {len(names)} columns", line)
    if not rows and not (complete(text) and "pid" in names):
        # Only the list of processes may be empty; a GPU always has a row, if only of errors.
        raise ParseError("truncated", "the text ends after the header", ", ".join(names)[:200])


def _units(names: Sequence[str], titled: Sequence[str], rows: Sequence[Sequence[str]]) -> dict[str, str]:
    """The unit of each column: the header's, else the one behind every number of it."""
    units = {}
    for i, name in enumerate(names):
        seen = {match[1] for match in (_UNIT.fullmatch(row[i]) for row in rows) if match}
        unit = titled[i] if i < len(titled) else ""
        if len(seen) > 1 or (unit and seen - {unit}):
            raise ParseError("unparsable", f"{name}: units {sorted(seen | {unit} - {''})} in one column")
        if unit or seen:
            units[name] = unit or seen.pop()
    return units


def _check_open_end(
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    units: Mapping[str, str],
    line: str,
    named: bool,
) -> None:
    """A last cell without a line end behind it is whole only if it ends in its unit or bracket, or recurs."""
    cell = rows[-1][-1]
    closed = bool(_BRACKETED.fullmatch(cell) or _UNIT.fullmatch(cell) or cell in ("N/A", "Enabled", "Disabled"))
    above = [row[-1] for row in rows[:-1]]
    if units.get(names[-1]) and any(_UNIT.fullmatch(other) for other in above):
        above = []  # the column carries units, so a bare number has lost its own
    alone = not named and len(rows) == 1  # nothing says how many columns there should be
    if alone or (not closed and cell not in above):
        raise ParseError("truncated", "the last line has no line end: it may be cut", line)


def _check_count(gpus: Sequence[Mapping[str, Value]], lost: Sequence[LostGpu], line: str) -> None:
    """Where the query asked for ``count``, that many GPUs must be there or lost."""
    counts = {gpu.get("count") for gpu in gpus} - {None}
    promised = max((c for c in counts if isinstance(c, int)), default=0)
    indexes = [gpu.get("index") for gpu in gpus if gpu.get("index") is not None]
    if len(indexes) == len(gpus) and len(set(indexes)) < len(indexes) and "pid" not in (gpus or ({},))[0]:
        raise ParseError("several_results", "one GPU stands twice; give one output at a time", line)
    if len(gpus) + len(lost) < promised and len(set(indexes)) == len(gpus):
        raise ParseError("truncated", f"{len(gpus)} of {promised} GPUs", line)


# --- values --------------------------------------------------------------------------------------------


def _gpu(names: Sequence[str], row: Sequence[str], units: Mapping[str, str]) -> dict[str, Value]:
    return {name: _value(name, cell, units.get(name)) for name, cell in zip(names, row)}


def _value(name: str, cell: str, unit: Optional[str]) -> Value:
    if cell.startswith("[") and not _BRACKETED.fullmatch(cell):
        raise ParseError("truncated", f"{name}: a bracket is not closed", cell)
    if unit:
        return quantity(cell, unit)
    if not _TEXT.search(name) and _NUMBER.fullmatch(cell):
        return quantity(cell)
    if name.startswith("column") and re.fullmatch(r"0|[1-9]\d{0,8}", cell):
        return int(cell)
    return plain(cell) if name in ("name", "process_name") else word(cell)
