"""What each format tells of each finding, read back from the text that it is: for holding them against each other."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from typing import Any, Optional
from xml.etree import ElementTree

from agent.model import Finding, Run
from agent.quantity import QuantityError, convert, dimension_of
from agent.report.rows import gpu_labels, label_of

NARROW = "\u202f"
VOID = ("meta", "br", "circle", "line", "path", "rect")
_NUMBER = re.compile(r"−?-?[\d,]+(?:\.\d+)?(?:e[+-]?\d+)?")
_UNITS = {"°C": "C", "µs": "us"}


@dataclass(frozen=True)
class Told:
    """Of one finding: its sigil or word, what was promised and measured (with the interval), and why."""

    word: str
    promised: str
    measured: str
    interval: str = ""
    held_to: str = ""
    why: str = ""


def numbers_in(text: str, unit: str) -> list[float]:
    """The numbers of ``512.3 TFLOPS`` or ``508.9 – 515.0 TFLOPS`` in another unit of their kind."""
    text = text.replace(NARROW, " ")
    found = [float(m[0].replace(",", "").replace("−", "-")) for m in _NUMBER.finditer(text)]
    own = _NUMBER.sub("", text).replace("–", "").strip()
    own = _UNITS.get(own, own)
    return [_converted(value, own, unit) for value in found]


def _converted(value: float, own: str, unit: str) -> float:
    if own == unit:
        return value
    try:
        dimension_of(own)
    except QuantityError as error:
        raise AssertionError(f"{own!r} is no unit, beside {unit!r}") from error
    return convert(value, own, unit)


# ---- HTML


@dataclass
class Node:
    """An element with what is in it."""

    tag: str
    attrs: Mapping[str, str] = field(default_factory=dict)
    inner: list[Any] = field(default_factory=list)

    def all(self, tag: str, name: str = "") -> Iterator[Node]:
        for one in self.inner:
            if isinstance(one, Node):
                if one.tag == tag and (not name or name in one.attrs.get("class", "").split()):
                    yield one
                yield from one.all(tag, name)

    def first(self, tag: str, name: str = "") -> Optional[Node]:
        return next(self.all(tag, name), None)

    @property
    def text(self) -> str:
        return "".join(one.text if isinstance(one, Node) else one for one in self.inner).strip()


class _Tree(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open = [Node("")]
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, Optional[str]]]) -> None:
        node = Node(tag, {k: v or "" for k, v in attrs})
        self.open[-1].inner.append(node)
        if tag not in VOID:
            self.open.append(node)

    def handle_startendtag(self, tag: str, attrs: Sequence[tuple[str, Optional[str]]]) -> None:
        self.open[-1].inner.append(Node(tag, {k: v or "" for k, v in attrs}))

    def handle_endtag(self, tag: str) -> None:
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].inner.append(data)


def tree(page: str) -> Node:
    """A page as a tree."""
    return _Tree(page).open[0]


def of_html(page: str, run: Run) -> dict[str, Told]:
    """Findings of ``report.html`` by id."""
    found: dict[str, Told] = {}
    for row in tree(page).all("tbody", "row"):
        cells = list(row.all("td"))
        key = _text(row.first("span", "key"), "code")
        more = cells[3]
        told = Told(
            word=_text(cells[2].first("span", "outcome")),
            promised=_text(cells[0].first("span", "value")),
            measured=_text(cells[1].first("span", "measured")),
            interval="",
            held_to=_text(cells[0].first("small")),
            why=_text(more.first("p", "why")) or _text(more.first("summary")),
        )
        spans = [_text(s) for s in cells[1].all("small")]
        table = more.first("table", "subjects")
        where = more.first("p", "where")
        if table is not None:
            for line in table.all("tr"):
                inner = list(line.all("td"))
                if inner:
                    own = replace(told, why=_text(inner[0].first("small")) or told.why)
                    measured = _text(inner[0])[: -len(own.why)] if inner[0].first("small") else _text(inner[0])
                    _put(found, key, _text(line.first("th")), run, own, measured, _text(inner[1]))
        elif where is not None:
            for label in where.all("span"):
                _put(found, key, label.text, run, told, told.measured, spans[0] if spans else "")
        else:
            _put(found, key, "", run, told, told.measured, spans[0] if spans else "")
    return found


def _text(node: Optional[Node], tag: str = "") -> str:
    inner = node.first(tag) if node is not None and tag else node
    return inner.text if inner is not None else ""


def _put(
    found: dict[str, Told], key: str, label: str, run: Run, told: Told, measured: str, interval: str
) -> None:  # fmt: skip
    interval = interval if " – " in interval else ""
    one = Told(told.word, told.promised, measured, interval, told.held_to, told.why)
    id_ = next(f.id for f in run.findings if f.clause == key and f.id not in found and _label(f, run) == label)
    found[id_] = one


def _label(f: Finding, run: Run) -> str:
    return label_of(f.subject, gpu_labels(run))


def tally(page: str) -> dict[str, int]:
    """The counts at the head of the page and of its sections: ``{"broken": 1, "#broken": 1}``."""
    root = tree(page)
    counts = {}
    for item in (root.first("ul", "tally") or Node("")).all("li"):
        link, number = item.first("a"), item.first("b")
        assert link is not None
        assert number is not None
        counts[link.attrs["href"]] = int(number.text)
    for section in root.all("section"):
        heading = section.first("h2")
        count = heading.first("span", "count") if heading is not None else None
        if count is not None:
            counts[section.attrs["id"]] = int(count.text)
    return counts


# ---- Markdown


def of_md(text: str, run: Run) -> dict[str, Told]:
    """Findings of ``report.md`` by id."""
    found: dict[str, Told] = {}
    row: Optional[tuple[str, list[str], Told]] = None
    for line in text.splitlines():
        if not line.startswith("| ") or line.startswith("| |"):
            continue
        cells = [_plain(c) for c in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) != 7:
            continue
        if cells[0]:
            _, key, *places = cells[1].split("\n")
            measured, interval = _spread(cells[3])
            told = Told(cells[0], cells[2], measured, interval, "", cells[5])
            row = key, places[0].split(", ") if places else [], told
            for label in row[1]:
                _put(found, key, label, run, told, measured, interval)
            if not places and _alone(key, found, run):
                _put(found, key, "", run, told, measured, interval)
        else:
            assert row is not None
            measured, interval = _spread(cells[3])
            _put(found, row[0], cells[1], run, replace(row[2], why=cells[5] or row[2].why), measured, interval)
    return found


def _alone(key: str, found: Mapping[str, Told], run: Run) -> bool:
    return any(f.clause == key and f.subject is None and f.id not in found for f in run.findings)


def _spread(cell: str) -> tuple[str, str]:
    match = re.fullmatch(r"(.*?) \(([^()]* – [^()]*)\)", cell)
    return (match[1], match[2]) if match else (cell, "")


def _plain(cell: str) -> str:
    cell = re.sub(r"`+ ?(.*?) ?`+", r"\1", cell.strip().replace("<br>", "\n"))
    return re.sub(r"\\(.)", r"\1", cell)


def headings(text: str) -> list[int]:
    """The counts in the headings of ``report.md`` or ``txt``, in order."""
    return [int(m[1]) for m in re.finditer(r"(?m)^(?:## )?[^\n|]*?\\?\((\d+)\\?\)$", text)]


# ---- the others


def of_csv(text: str) -> dict[str, dict[str, str]]:
    """Lines of the table by id."""
    return {line["id"]: line for line in csv.DictReader(io.StringIO(text))}


def of_junit(text: str) -> dict[str, tuple[str, dict[str, str]]]:
    """Per finding the element that says what it is (``""`` for a pass) and its lines, by their place."""
    found = {}
    for case in ElementTree.fromstring(text).iter("testcase"):
        inner = next(iter(case), None)
        lines = [] if inner is None else [line.partition(": ") for line in (inner.text or "").splitlines()]
        found[str(case.get("name"))] = ("" if inner is None else inner.tag, {a: c for a, _, c in lines if a})
    return found


_SAMPLE = re.compile(r'(\w+)\{((?:\w+="(?:[^"\\]|\\.)*",?)*)\} (\S+)')


def of_prom(text: str, name: str) -> list[tuple[dict[str, str], float]]:
    """Samples of one metric: labels and value."""
    found = []
    for line in text.splitlines():
        match = _SAMPLE.fullmatch(line)
        if match and match[1] == name:
            labels = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', match[2]))
            found.append((labels, float(match[3])))
    return found
