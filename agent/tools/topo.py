"""``nvidia-smi topo -m``: how GPUs and network cards reach each other, and which CPUs are near them.

The table is read by its own header: every name it prints must have one row, every row must have ``X``
under itself. So a shifted, fused or cut table is refused instead of read wrongly.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Callable, Optional, TypeVar

from agent.tools import ParseError
from agent.tools._text import clean, recognise
from agent.tools.smi_errors import refuse

KIND = "topo"
ARGV = ("nvidia-smi", "topo", "-m")
TIMEOUT_S = 60.0
_SIGN = re.compile(r"GPU\d")

LINKS = frozenset({"SYS", "SOC", "NODE", "PHB", "PXB", "PIX", "PSB"})
"""The PCIe paths, farthest first; ``NV<n>`` (n bonded NVLinks) comes beside them."""
P2P_STATES = frozenset({"OK", "CNS", "GNS", "TNS", "NS", "DR", "U"})
"""The cells of ``nvidia-smi topo -p2p``, a table of the same form that says nothing about links."""


@dataclass(frozen=True)
class Topology:
    """One matrix. Names as the header prints them; an affinity that is absent or ``N/A`` is None."""

    gpus: tuple[str, ...]
    nics: Mapping[str, Optional[str]]
    """Header name to device name, from the NIC legend; None where no legend names it."""
    links: Mapping[str, Mapping[str, str]]
    cpu_affinity: Mapping[str, Optional[str]]
    numa_affinity: Mapping[str, Optional[str]]
    gpu_numa_id: Mapping[str, Optional[str]]
    nvlink_shown: Optional[bool]
    """False for ``topo -mp``, which hides NVLink on purpose; None where the text does not say."""


@dataclass(frozen=True)
class P2pStatus:
    """``nvidia-smi topo -p2p``: for each pair of GPUs ``OK`` or why not (``NS``, ``GNS``, ``CNS`` ...)."""

    gpus: tuple[str, ...]
    states: Mapping[str, Mapping[str, str]]


def parse(text: str) -> Topology:
    """The matrix of ``topo -m`` or ``-mp``. ``topo -p2p`` raises ``p2p_status``."""
    recognise(text, "nvidia-smi topo -m", _SIGN)
    return _only([_topology(_table(part, _is_link), part) for part in _parts(text)])


def parse_p2p(text: str) -> P2pStatus:
    """The matrix of ``topo -p2p r`` (or w, n, a)."""
    recognise(text, "nvidia-smi topo -p2p", _SIGN)
    tables = [_table(part, P2P_STATES.__contains__) for part in _parts(text)]
    return _only([P2pStatus(table.gpus, table.cells) for table in tables])


def to_json(result: Topology) -> dict[str, Any]:
    """The fixed shape of ``accept parse topo``."""
    return {
        "gpus": list(result.gpus),
        "nics": dict(result.nics),
        "links": {name: dict(row) for name, row in result.links.items()},
        "cpu_affinity": dict(result.cpu_affinity),
        "numa_affinity": dict(result.numa_affinity),
    }


_IsCell = Callable[[str], bool]
_Result = TypeVar("_Result", Topology, P2pStatus)

# --- lines and headers ---------------------------------------------------------------------------------

# Underline codes are printed even into a file; copying may lose the ESC or write it as ^[.
_ANSI = re.compile(r"(?:\x1b|\u241b|\^\[)?\[(?:\d{1,2}(?:;\d{1,2})*)?m")
_LEAD = re.compile(r"^[\s#>*]+")
_TITLE = re.compile(r"(CPU|NUMA) +Affinity|GPU +NUMA +ID", re.I)
_GPU = re.compile(r"GPU\d{1,3}")
_NIC = re.compile(r"(?!GPU)(?=\D{0,63}\d)[A-Za-z][\w.-]{1,63}")
_FUSED_NAMES = re.compile(r"(?<=\d)(?=GPU\d|NIC\d|mlx\d_)")
_P2P_TABLE = "a peer-to-peer status table (topo -p2p), not topo -m"
_CODE = re.compile(r"\s*([A-Z][A-Z0-9]*#?)\s*=\s*(\S.*)")
_WHOLE_END = re.compile(r"(?:NVLinks|bridge|switch|NIC\d+: *\S+)\s*$")
_NIC_NAME = re.compile(r"\s*(NIC\d{1,3}):\s*(\S+)\s*")


@dataclass(frozen=True)
class _Header:
    names: tuple[str, ...]
    titles: tuple[str, ...]


@dataclass(frozen=True)
class _Part:
    """One table: its header, the lines below it, and whether the text's last line has its end."""

    header: _Header
    lines: tuple[str, ...]
    above: str
    whole_lines: bool


@dataclass(frozen=True)
class _Table:
    gpus: tuple[str, ...]
    nics: tuple[str, ...]
    cells: Mapping[str, Mapping[str, str]]
    affinity: Mapping[str, Mapping[str, Optional[str]]]


def _lines(text: str) -> list[str]:
    return [_tidy(line) for line in _ANSI.sub("", clean(text)).split("\n")]


def _tidy(line: str) -> str:
    """Without quoting and comment marks; a markdown table row becomes tabbed cells."""
    return _LEAD.sub("", line.replace("|", "\t") if line.count("|") > 2 else line).rstrip("\r")


def _parts(text: str) -> list[_Part]:
    """The tables of a text; one that has none, or none that nvidia-smi would print, is refused."""
    lines = _lines(text)
    headers = ((at, _header(line) or _lone_header(lines, at)) for at, line in enumerate(lines) if "GPU" in line)
    starts = [(at, header) for at, header in headers if header]
    if not starts:
        raise _no_header(lines, text)
    ends = [at for at, _ in starts[1:]] + [len(lines)]
    whole = text.endswith("\n")
    parts = []
    for (at, header), end in zip(starts, ends):
        above = lines[at - 1] if at else ""
        parts.append(_Part(header, tuple(lines[at + 1 : end]), above, whole or end < len(lines)))
    return parts


def _header(line: str) -> Optional[_Header]:
    names, titles = _split_header(line)
    if not names or not _GPU.fullmatch(names[0]) or not (titles or len(names) > 1):
        return None
    if not all(_GPU.fullmatch(name) or (_NIC.fullmatch(name) and not _is_link(name)) for name in names):
        return None
    return _Header(tuple(names), tuple(titles)) if len(set(names)) == len(names) else None


def _lone_header(lines: Sequence[str], at: int) -> Optional[_Header]:
    """The header of ``topo -p2p`` on a machine with one GPU: its name alone, above its own row."""
    name = lines[at].strip()
    if not _GPU.fullmatch(name) or at + 1 >= len(lines) or lines[at + 1].split() != [name, "X"]:
        return None
    return _Header((name,), ())


def _split_header(line: str) -> tuple[list[str], list[str]]:
    found = list(_TITLE.finditer(line))
    before = line[: found[0].start()] if found else line
    titles = [" ".join(match[0].lower().split()) for match in found]
    after = line[found[-1].end() :].strip() if found else ""
    names = _FUSED_NAMES.sub(" ", before).split()
    return ([] if after else names), titles


def _no_header(lines: Sequence[str], text: str) -> ParseError:
    """A line that begins like a header and is none is either cut off or foreign."""
    for at, line in enumerate(lines):
        words = _split_header(line)[0]
        if len(words) > 1 and _GPU.fullmatch(words[0]) and _GPU.fullmatch(words[1]):
            if not any(rest.strip() for rest in lines[at + 1 :]):
                return ParseError("truncated", "the table's header is cut off", line)
            return ParseError("unparsable", "a table header that nvidia-smi does not print", line)
    return refuse(text, "nvidia-smi topo -m")


# --- rows ----------------------------------------------------------------------------------------------

_NV = re.compile(r"NV\d{1,2}")
_CPUS = re.compile(r"\d{1,6}(?:-\d{1,6})?(?:,\d{1,6}(?:-\d{1,6})?)*")
_FUSED_CELLS = re.compile(r"NV\d{1,2}(?=[A-Z])|(?:SYS|SOC|NODE|PHB|PXB|PIX|PSB|X)(?=[A-Z\d])")


def _is_link(cell: str) -> bool:
    return cell in LINKS or _NV.fullmatch(cell) is not None


def _table(part: _Part, is_cell: _IsCell) -> _Table:
    names = part.header.names
    cells: dict[str, dict[str, str]] = {}
    affinity: dict[str, dict[str, Optional[str]]] = {}
    for at, line in enumerate(part.lines):
        name = _row_name(line, names)
        if name is None:
            continue
        last = not any(rest.strip() for rest in part.lines[at + 1 :])
        try:
            row, rest = _row(line, name, part.header, is_cell)
        except ParseError as error:
            if name in cells:  # the row is read; this is other text about the same device
                continue
            if last and error.kind == "unparsable":
                raise ParseError("truncated", f"{name}'s row is cut off", line) from error
            raise
        if cells.setdefault(name, row) is not row:
            raise ParseError("unparsable", f"two rows for {name}", line)
        affinity[name] = rest
        if at == len(part.lines) - 1 and not part.whole_lines:
            _check_open_end(name, line, cells, affinity)
    _check_rows(names, cells)
    gpus = tuple(name for name in names if _GPU.fullmatch(name))
    nics = tuple(name for name in names if not _GPU.fullmatch(name))
    return _Table(gpus, nics, {n: cells[n] for n in names}, {n: affinity[n] for n in gpus})


def _row_name(line: str, names: Sequence[str]) -> Optional[str]:
    """The header name a row begins with; a GPU row of another name is not this table's."""
    word = line.split(None, 1)[0] if line.strip() else ""
    if word in names:
        return word
    glued = re.match(r"(GPU\d{1,3})(?:X|NV\d|[A-Z]{3})", word)
    if glued or (_GPU.fullmatch(word) and re.search(r"\sX(\s|$)", line)):
        raise ParseError("unparsable", "a row that the table's header does not announce", line)
    return None


def _row(line: str, name: str, header: _Header, is_cell: _IsCell) -> tuple[dict[str, str], dict[str, Optional[str]]]:
    tabbed = [cell.strip() for cell in line.strip(" ").split("\t")][1:]
    count = len(header.names)
    if any(not is_cell(cell) and cell != "X" for cell in tabbed[:count]) or len(tabbed) < count:
        tabbed = []
    cells = tabbed or _words(line)
    row = _cells(cells[:count], line, name, header, is_cell)
    is_gpu = _GPU.fullmatch(name) is not None
    return row, _affinity(cells[count:], bool(tabbed), line, header.titles) if is_gpu else {}


def _words(line: str) -> list[str]:
    """The cells of a blank-separated row; two that grew together are parted where only one reading fits."""
    words: list[str] = []
    for word in line.split()[1:]:
        while fused := _FUSED_CELLS.match(word):
            words.append(fused[0])
            word = word[fused.end() :]
        words.append(word)
    return words


def _cells(cells: Sequence[str], line: str, name: str, header: _Header, is_cell: _IsCell) -> dict[str, str]:
    if len(cells) < len(header.names):
        raise ParseError("unparsable", f"{name}'s row has {len(cells)} of {len(header.names)} cells", line)
    row = {}
    for other, cell in zip(header.names, cells):
        if (cell == "X") != (other == name) or not (cell == "X" or is_cell(cell)):
            raise _bad_cell(name, other, cell, line)
        if cell != "X":
            row[other] = cell
    return row


def _bad_cell(name: str, other: str, cell: str, line: str) -> ParseError:
    if cell in P2P_STATES:
        return ParseError("p2p_status", _P2P_TABLE, line)
    if _is_link(cell):
        return ParseError("unparsable", f"{name}'s row: {cell} under {other} where X belongs", line)
    return ParseError("unparsable", f"{name}'s row: {cell!r} under {other} is no link", line)


def _affinity(cells: Sequence[str], tabbed: bool, line: str, titles: Sequence[str]) -> dict[str, Optional[str]]:
    """CPU list, NUMA nodes and the GPU's own NUMA node, by the header's titles."""
    values = _by_position(cells, titles) if tabbed else [cell for cell in cells if cell]
    if not tabbed and values and len(values) < len(titles) and set(values) == {"N/A"}:
        values = ["N/A"] * len(titles)  # Windows leaves cells empty: what is left of N/A fits any column
    if len(values) != len(titles):
        raise ParseError("unparsable", f"{len(values)} affinity cells for {len(titles)} columns", line)
    return {title: _cpus(value, line) for title, value in zip(titles, values)}


def _by_position(cells: Sequence[str], titles: Sequence[str]) -> list[str]:
    """Tabbed cells keep their places; most drivers print an extra tab before the GPU NUMA ID."""
    values = list(cells)
    if len(values) == len(titles) + 1 and titles and titles[-1] == "gpu numa id" and not values[-2]:
        del values[-2]
    while len(values) > len(titles) and not values[-1]:
        values.pop()
    return values


def _cpus(value: str, line: str) -> Optional[str]:
    if value in ("", "N/A"):
        return None
    ranges = [part.split("-") for part in value.split(",")]
    if not _CPUS.fullmatch(value) or any(int(r[0]) > int(r[-1]) for r in ranges):
        raise ParseError("unparsable", f"{value!r} is no list of CPUs or NUMA nodes", line)
    return value


def _check_rows(names: Sequence[str], cells: Mapping[str, object]) -> None:
    missing = [name for name in names if name not in cells]
    if not missing:
        return
    cut = list(names[-len(missing) :]) == missing
    kind = "truncated" if cut else "unparsable"
    raise ParseError(kind, f"the header announces {len(names)} rows, {len(missing)} are missing", missing[0])


def _check_open_end(
    name: str,
    line: str,
    cells: Mapping[str, Mapping[str, str]],
    affinity: Mapping[str, Mapping[str, Optional[str]]],
) -> None:
    """The last row without a line end: its last cell may have lost digits unless the rows above agree."""
    told_above = [values for other, values in affinity.items() if other != name]
    if any(v and not affinity[name].get(k) for values in told_above for k, v in values.items()):
        raise ParseError("truncated", "the text ends inside the last row", line)
    final = line.split()[-1]
    if not final[-1].isdigit():
        return
    others = [row for other, row in cells.items() if other != name]
    told = {value for values in told_above for value in values.values()}
    mirrored = any(row.get(name) == final for row in others)
    if final not in told and not (_is_link(final) and mirrored):
        raise ParseError("truncated", "the text ends inside the last row", line)


# --- the rest of the text ------------------------------------------------------------------------------


def _topology(table: _Table, part: _Part) -> Topology:
    if len(part.header.names) == 1 and not part.header.titles:
        raise ParseError("p2p_status", _P2P_TABLE)
    codes = [(match[1], match[2]) for match in map(_CODE.fullmatch, part.lines) if match]
    links = {link for row in table.cells.values() for link in row.values()}
    _check_legend(codes, part, any(_NV.fullmatch(link) for link in links))
    return Topology(
        gpus=table.gpus,
        nics=_nic_names(table.nics, part),
        links=table.cells,
        cpu_affinity={gpu: table.affinity[gpu].get("cpu affinity") for gpu in table.gpus},
        numa_affinity={gpu: table.affinity[gpu].get("numa affinity") for gpu in table.gpus},
        gpu_numa_id={gpu: table.affinity[gpu].get("gpu numa id") for gpu in table.gpus},
        nvlink_shown=_nvlink_shown(links, [code for code, _ in codes], part.above),
    )


def _nvlink_shown(links: set[str], codes: Sequence[str], above: str) -> Optional[bool]:
    if any(_NV.fullmatch(link) for link in links) or "NV#" in codes:
        return True
    return False if codes or re.search(r"\btopo\s+-mp\b", above) else None


def _check_legend(codes: Sequence[tuple[str, str]], part: _Part, has_nvlink: bool) -> None:
    """A legend that breaks off means a text that breaks off: NIC names may have stood below."""
    if any(code in P2P_STATES for code, _ in codes):
        raise ParseError("p2p_status", _P2P_TABLE)
    last = next((line for line in reversed(part.lines) if line.strip()), "")
    match = _CODE.fullmatch(last)
    at_heading = last.rstrip(": \t") in ("Legend", "NIC Legend")
    in_codes = match is not None and match[1] not in ("NV#", "PIX")
    before_nv = bool(codes) and has_nvlink and "NV#" not in (code for code, _ in codes)
    in_line = bool(codes) and not part.whole_lines and not _WHOLE_END.search(last)
    if at_heading or in_codes or before_nv or in_line:
        raise ParseError("truncated", "the legend is cut off", last)


def _nic_names(nics: Sequence[str], part: _Part) -> dict[str, Optional[str]]:
    """Old drivers print device names in the header itself, newer ones ``NIC<n>`` and a legend."""
    found = [match for match in map(_NIC_NAME.fullmatch, part.lines) if match]
    legend = {match[1]: match[2] for match in found}
    announced = any(line.strip() == "NIC Legend:" for line in part.lines)
    missing = [nic for nic in nics if nic.startswith("NIC") and nic not in legend]
    if (announced or legend) and missing:
        raise ParseError("truncated", f"the NIC legend does not name {missing[0]}", missing[0])
    if found and not part.whole_lines and part.lines[-1].strip() == found[-1][0].strip():
        _check_last_name(found[-1][2], [match[2] for match in found[:-1]], found[-1][0])
    return {nic: legend.get(nic, None if nic.startswith("NIC") else nic) for nic in nics}


def _check_last_name(name: str, others: Sequence[str], line: str) -> None:
    """A name at the text's open end may have lost its number."""
    shapes = {re.sub(r"\d+", "#", other) for other in others}
    if name in others or not name[-1].isdigit() or (shapes and re.sub(r"\d+", "#", name) not in shapes):
        raise ParseError("truncated", "the NIC legend is cut off", line)


def _only(tables: Sequence[_Result]) -> _Result:
    if any(table != tables[0] for table in tables[1:]):
        raise ParseError("several_results", f"{len(tables)} different topology tables; give one at a time")
    return tables[0]
