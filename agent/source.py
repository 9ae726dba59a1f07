"""A contract file's bytes as a tree of texts with their places. Knows YAML's form, nothing of clauses.

Every scalar keeps its text: ``python: 3.10`` stays "3.10". Nothing is ever constructed from tags, and anchors are
refused, so that no file can grow in memory. Pure but for :func:`read_bytes`.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional, Union

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from agent.quantity import shown
from agent.text import Text, msg

MAX_BYTES = 1 << 20
MAX_DEPTH = 16
MAX_NODES = 20_000
MAX_PROBLEMS = 50  # of form alone: a bomb of references is not listed to its end


@dataclass(frozen=True)
class Problem:
    """One thing wrong in a file; ``line`` and ``column`` count from 1, 0 where the file itself is the problem."""

    file: str
    line: int
    column: int
    message: Text

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place}: {self.message}"


class ContractErrors(ValueError):
    """A contract that cannot be read: all its problems, in the order of the file."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__(problems)
        self.problems = problems

    def __str__(self) -> str:
        return "\n".join(str(p) for p in self.problems)


@dataclass(frozen=True)
class Place:
    """Line and column, both from 1."""

    line: int
    column: int


@dataclass(frozen=True)
class Scalar:
    text: str
    place: Place
    plain: bool = True

    @property
    def empty(self) -> bool:
        """Nothing was written (YAML's null)."""
        return self.plain and self.text in ("", "~", "null", "Null", "NULL")


@dataclass(frozen=True)
class Seq:
    items: tuple[Node, ...]
    place: Place


@dataclass(frozen=True)
class Map:
    pairs: tuple[tuple[Scalar, Node], ...]
    place: Place


@dataclass(frozen=True)
class Hole:
    """Stands where something was refused and already reported."""

    place: Place


Node = Union[Scalar, Seq, Map, Hole]


@dataclass(frozen=True)
class Source:
    """A parsed file: its root, what was wrong but left the tree whole, and notes for the reader of the report."""

    root: Node
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]


def read_bytes(path: Path) -> bytes:
    """The bytes of a contract file; ContractErrors where there is none, or more than MAX_BYTES."""
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise _file_error(path, msg("this is a directory, not a contract file"))
        if not stat.S_ISREG(status.st_mode):
            raise _file_error(path, msg("this is not a regular file"))
        if status.st_size > MAX_BYTES:
            raise _file_error(path, _too_large(status.st_size))
        # Some files of /proc call themselves regular and keep a reader waiting.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            return file.read(MAX_BYTES + 1) or b""
    except (OSError, ValueError) as error:
        if isinstance(error, ContractErrors):
            raise
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise _file_error(path, msg("cannot be read: {reason}", reason=str(reason))) from error


def _file_error(path: Path, message: Text) -> ContractErrors:
    return ContractErrors((Problem(shown(str(path), 400), 0, 0, message),))


def _too_large(size: int) -> Text:
    return msg("{mib} MiB is too large for a contract, the most is 1 MiB", mib=f"{size / (1 << 20):.1f}")


def parse(data: bytes, name: str) -> Source:
    """The tree of a file's bytes; ContractErrors where it has none."""
    text, notes = _decode(data, name)
    root, problems = _Builder(text, name).build()
    return Source(root, tuple(problems), notes)


# --- bytes to text -----------------------------------------------------------------------------------------------

_BOMS = (
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe\x00\x00", "utf-32-le"),
    (b"\x00\x00\xfe\xff", "utf-32-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
# Spaces that are none for YAML: copied from a chat or a word processor, they become part of a key.
_ODD_SPACES = "\xa0\u2002\u2003\u2009\u200b\u202f\u3000"
_NOT_TEXT = {b"PK\x03\x04": "Office/zip", b"\xd0\xcf\x11\xe0": "Office", b"%PDF-": "PDF", b"\x1f\x8b": "gzip"}
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_THREE_BYTE_UTF8 = re.compile(rb"[\xe1-\xec\xee\xef][\x80-\xbf]{2}")


def _decode(data: bytes, name: str) -> tuple[str, tuple[str, ...]]:
    if len(data) > MAX_BYTES:
        raise ContractErrors((Problem(name, 0, 0, _too_large(len(data))),))
    if not data.strip():
        raise ContractErrors((Problem(name, 1, 1, msg("the file is empty")),))
    for beginning, kind in _NOT_TEXT.items():
        if data.startswith(beginning):
            raise ContractErrors(
                (Problem(name, 1, 1, msg("this is a file of {kind}: save it as plain text", kind=kind)),)
            )
    text, encoding = _text(data, name)
    bad = _UNPRINTABLE.search(text)
    if bad is not None:
        place = _place(text, bad.start())
        code = f"U+{ord(bad.group()):04X}"
        message = msg("a control character ({code}) has no place in a contract", code=code)
        raise ContractErrors((Problem(name, place.line, place.column, message),))
    notes = () if encoding == "utf-8" else (f"the contract is encoded in {encoding.upper()}",)
    return text, notes


def _text(data: bytes, name: str) -> tuple[str, str]:
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            return _strict(data[len(bom) :], encoding, name), encoding
    try:
        return data.decode("utf-8"), "utf-8"
    except UnicodeDecodeError as error:
        if data[:400].count(b"\0") > len(data[:400]) // 4:
            raise _bad_bytes(data, 0, name, msg("this looks like UTF-16 without its mark: save it as UTF-8")) from error
        text = _gbk(data, error.start)
        if text is not None:
            return text, "gbk"
        message = msg("byte {offset} is neither UTF-8 nor GBK: save the file as UTF-8", offset=error.start)
        raise _bad_bytes(data, error.start, name, message) from error


def _strict(data: bytes, encoding: str, name: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        message = msg("byte {offset} is not {encoding}", offset=error.start, encoding=encoding.upper())
        raise _bad_bytes(data, error.start, name, message) from error


def _gbk(data: bytes, first_bad: int) -> Optional[str]:
    """The text if the bytes are GBK, None if they are more likely something else that is broken.

    Almost any pair of high bytes is some GBK character, so that a broken UTF-8 file would decode to nonsense:
    Chinese in valid UTF-8 before the bad byte, or characters outside everyday GB 2312, speak against it.
    """
    if _THREE_BYTE_UTF8.search(data[:first_bad]):
        return None
    try:
        text = data.decode("gb18030")
    except UnicodeDecodeError:
        return None
    wide = [c for c in text if ord(c) > 0x7F]
    common = sum(1 for c in wide if _in_gb2312(c))
    return text if common * 10 >= len(wide) * 9 else None


def _in_gb2312(c: str) -> bool:
    try:
        c.encode("gb2312")
    except UnicodeEncodeError:
        return False
    return True


def _bad_bytes(data: bytes, offset: int, name: str, message: Text) -> ContractErrors:
    before = data[:offset]
    line_start = before.rfind(b"\n") + 1
    return ContractErrors((Problem(name, before.count(b"\n") + 1, offset - line_start + 1, message),))


def _place(text: str, offset: int) -> Place:
    return Place(text.count("\n", 0, offset) + 1, offset - (text.rfind("\n", 0, offset) + 1) + 1)


# --- text to tree ------------------------------------------------------------------------------------------------


@dataclass
class _Open:
    """A collection that is not closed yet."""

    place: Place
    flow: bool
    mapping: bool
    refused: bool
    items: list[Any] = field(default_factory=list)
    keys: dict[str, Place] = field(default_factory=dict)
    key: Optional[Scalar] = None


class _Builder:
    """Builds the tree from parser events without recursion, so that no depth of nesting can exhaust the stack."""

    def __init__(self, text: str, name: str) -> None:
        self.text = text
        self.name = name
        self.problems: list[Problem] = []
        self.stack: list[_Open] = []
        self.root: Optional[Node] = None
        self.at = Place(1, 1)

    def build(self) -> tuple[Node, list[Problem]]:
        nodes = documents = 0
        for event in self._events():
            nodes += isinstance(event, (ScalarEvent, MappingStartEvent, SequenceStartEvent))
            documents += isinstance(event, DocumentStartEvent)
            if nodes > MAX_NODES:
                raise self._stop(self.at, msg("more than {n} values is too many for a contract", n=MAX_NODES))
            if len(self.stack) > MAX_DEPTH:
                raise self._stop(self.at, msg("nested more than {n} deep", n=MAX_DEPTH))
            if documents > 1:
                raise self._stop(self.at, msg("a second YAML document begins here: a contract is one"))
            self._take(event)
        if self.root is None:
            raise self._stop(Place(1, 1), msg("the file holds no contract, only comments or nothing"))
        return self.root, self.problems

    def _events(self) -> Iterator[Any]:
        try:
            for event in YAML(typ="safe", pure=True).parse(self.text):
                self.at = Place(event.start_mark.line + 1, event.start_mark.column + 1)
                yield event
        except MarkedYAMLError as error:
            raise self._syntax(error) from error
        except (YAMLError, ValueError, OverflowError) as error:
            if isinstance(error, ContractErrors):
                raise
            raise self._stop(self.at, msg("not readable as YAML: {reason}", reason=shown(str(error), 200))) from error

    def _take(self, event: Any) -> None:
        if isinstance(event, (MappingStartEvent, SequenceStartEvent)):
            refused = self._refuse(event)
            self.stack.append(_Open(self.at, bool(event.flow_style), isinstance(event, MappingStartEvent), refused))
        elif isinstance(event, ScalarEvent):
            refused = self._refuse(event)
            self._add(Hole(self.at) if refused else Scalar(event.value, self.at, event.style is None))
        elif isinstance(event, AliasEvent):
            self._say(self.at, msg("references (*{name}) are not allowed in a contract", name=shown(event.anchor, 30)))
            self._add(Hole(self.at))
        elif isinstance(event, (MappingEndEvent, SequenceEndEvent)):
            done = self.stack.pop()
            kind = Map if done.mapping else Seq
            self._add(Hole(done.place) if done.refused else kind(tuple(done.items), done.place))

    def _refuse(self, event: Any) -> bool:
        """Say what YAML feature this node uses that a contract may not; True if its value is not to be read."""
        if event.anchor is not None:
            self._say(self.at, msg("anchors (&{name}) are not allowed in a contract", name=shown(event.anchor, 30)))
        if event.tag is not None:
            self._say(self.at, msg("tags ({tag}) are not allowed in a contract", tag=shown(str(event.tag), 60)))
        return event.tag is not None

    def _add(self, node: Node) -> None:
        if not self.stack:
            self.root = node
            return
        top = self.stack[-1]
        if not top.mapping:
            top.items.append(node)
        elif top.key is None:
            top.key = self._key(node, top)
        else:
            top.items.append((top.key, node))
            top.key = None

    def _key(self, node: Node, mapping: _Open) -> Scalar:
        if not isinstance(node, Scalar):
            if not isinstance(node, Hole):
                self._say(node.place, msg("a key is a word, not a list or a mapping"))
            return Scalar("x-refused", node.place)
        if node.plain and node.text[:1] in _ODD_SPACES and node.text:
            code = f"U+{ord(node.text[0]):04X}"
            raise self._stop(
                node.place, msg("a space of another kind ({code}) cannot indent here: use plain spaces", code=code)
            )
        first = mapping.keys.setdefault(node.text, node.place)
        if first != node.place:
            self._say(
                node.place, msg("{key} is here twice, first in line {line}", key=shown(node.text), line=first.line)
            )
        return node

    def _say(self, place: Place, message: Text) -> None:
        self.problems.append(Problem(self.name, place.line, place.column, message))
        if len(self.problems) >= MAX_PROBLEMS:
            raise ContractErrors(tuple(self.problems))

    def _stop(self, place: Place, message: Text) -> ContractErrors:
        return ContractErrors((*self.problems, Problem(self.name, place.line, place.column, message)))

    # --- syntax errors, in words a reader of contracts understands

    def _syntax(self, error: MarkedYAMLError) -> ContractErrors:
        problem = str(error.problem)
        mark, context = error.problem_mark, error.context_mark
        if context is not None and ("expected ':'" in problem or "end of stream" in problem):
            mark = context  # where the key or the quote began, not where the file ended
        place = Place(mark.line + 1, mark.column + 1) if mark is not None else self.at
        if "<stream end>" in problem and any(o.flow for o in self.stack):
            opened = next(o for o in reversed(self.stack) if o.flow)
            bracket = "{" if opened.mapping else "["
            return self._stop(opened.place, msg("this {bracket} is never closed", bracket=bracket))
        for line in (place.line, place.line - 1):  # YAML takes a line without a colon on into the next
            if _WIDE_COLON.match(self._line(line)):
                column = self._line(line).index("：") + 1
                message = msg("a full-width colon does not end a key: write “: ” with a space")
                return self._stop(Place(line, column), message)
        return self._stop(place, _in_words(problem, self._line(place.line)))

    def _line(self, number: int) -> str:
        lines = self.text.splitlines()
        return lines[number - 1] if 0 < number <= len(lines) else ""


_NAKED_COMPARISON = re.compile(r"[:,\[{-]\s*([>][=\s]*[0-9][^,}\]#]*)")
_KEY = re.compile(r"\s*[\w.-]{1,64}\s*:(?:\s|$)")
_WIDE_COLON = re.compile(r"^\s*[\w.-]{1,64}\s*：")


def _in_words(problem: str, line: str) -> Text:
    naked = _NAKED_COMPARISON.search(line)
    if naked is not None:
        return msg('a comparison stands in quotes here: "{value}"', value=shown(naked.group(1).strip()))
    if "'\\t'" in problem or line.startswith("\t"):
        return msg("a tab cannot indent here: use spaces")
    if "mapping values are not allowed" in problem:
        if _KEY.match(line) and ": " not in line.split(":", 1)[1].strip():
            return msg("a key cannot stand here: indent it like the key above it")
        return msg("a second colon in one line: put the value in quotes")
    if "cannot start any token" in problem:
        return msg("{problem}: put the value in quotes", problem=shown(problem, 200))
    return msg("not readable as YAML: {reason}", reason=shown(problem, 200))
