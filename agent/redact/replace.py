"""Replacing what was found: the same value becomes the same token everywhere in one run, another one in the next."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address
from typing import Union
from urllib.parse import quote

from agent.redact.addresses import V4, V6, Addresses, kept4, kept6, parse4, parse6, same_spelling
from agent.redact.find import GUID, HOME, HOMES, MAC, MAC_IN_NAME, UUID, Found, Kind, find, program
from agent.redact.words import PATH_ENDING, PATH_PART, PROGRAM, distinctive, plain

_ESCAPED = re.compile(r"(?<!\\)((?:\\\\)*)((?:\\u[0-9a-fA-F]{4})+)")
_DEEPEST = 200  # characters of a literal that goes into the tree of literals


_NUMBERS = ("uuid", "mac", "guid")
_IN_PLACE = ("host", "user", "secret", "serial", "process")


class Names:
    """Tokens by kind, counted in the order of asking, never equal to something that is to be replaced."""

    def __init__(self, originals: Iterable[str]) -> None:
        self._originals = frozenset(originals)
        self._digits = frozenset(_digits(o) for o in self._originals)
        self._given: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}

    @property
    def counts(self) -> Mapping[str, int]:
        """How many values of each kind were replaced."""
        return dict(sorted(self._counts.items()))

    def token(self, kind: str, value: str) -> str:
        """The token of a value."""
        key = kind, _canonical(kind, value)
        while key not in self._given:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            made = _made(kind, self._counts[kind], value)
            if made not in self._originals and not (kind in _NUMBERS and self._digits & _spellings(made)):
                self._given[key] = made
        return self._given[key]


def _special(name: str) -> bool:
    """Whether a program's name may be replaced wherever it stands: many are words."""
    return distinctive(name) and (not plain(name) or len(name) >= 10)


def _digits(value: str) -> str:
    return re.sub(r"[^0-9a-f]", "", value.lower())


def _spellings(made: str) -> frozenset[str]:
    """What a made number of 32 digits becomes as a UUID, MAC (6, 8, 20 bytes) or GUID."""
    return frozenset({made, *("02" + made.rjust(40, "0")[-n:] for n in (10, 14, 38))})


def _canonical(kind: str, value: str) -> str:
    if kind in _NUMBERS:
        return _digits(value)
    if kind == "process":
        return value[:15]  # the kernel keeps no more (prctl(2) PR_SET_NAME)
    return value.lower() if kind == "host" else value


def _made(kind: str, number: int, value: str) -> str:
    if kind == "machine":
        return f"{number:016x}"
    if kind in _NUMBERS:
        return f"{number:032x}"
    if kind == "serial":
        hexadecimal = value.startswith("0x")
        digits = value.isdigit() or hexadecimal
        lead = "0x" if hexadecimal else ("9" if digits else "S")
        return lead + f"{number:0{max(len(value) - len(lead), 3)}d}"
    return f"{kind}-{number}"


class Redactor:
    """Built from all texts of a run; then replaces in any of them."""

    def __init__(self, found: Iterable[Found], texts: Iterable[str]) -> None:
        values: dict[str, Kind] = {}
        for one in found:
            values.setdefault(one.value, one.kind)
        self._values = values
        shapes, addresses = _shapes(texts)
        self.names = Names({*values, *shapes})
        self._addresses = Addresses(frozenset(addresses))
        self.originals = frozenset({
            *(v for v, k in values.items() if self._everywhere(k, v)), *shapes, *map(str, addresses)
        })  # fmt: skip
        # Names too ordinary to be replaced everywhere: replaced where they are known to be names.
        self._ordinary = frozenset(v for v, k in values.items() if k in _IN_PLACE and not self._everywhere(k, v))
        self._fixed: dict[str, str] = {}
        self._literals = self._all_literals()
        self._pattern = self._compiled()

    def fix(self, names: Mapping[str, str]) -> None:
        """Literal replacements on top, such as folder names that have to change."""
        self._fixed = dict(names)
        self._literals = {**self._literals, **names}
        self._pattern = self._compiled()

    def _everywhere(self, kind: Kind, value: str) -> bool:
        if kind in ("host", "user"):
            return distinctive(value)
        if kind == "process":
            return " " in value or _special(program(value))
        if kind == "secret":
            return len(value) >= 10 or not plain(value)
        return len(value) >= 6 or kind == "words"

    def _all_literals(self) -> dict[str, str]:
        literals: dict[str, str] = {}
        for value, kind in sorted(self._values.items(), key=lambda i: (-len(i[0]), i[0])):
            if self._everywhere(kind, value):
                for spelled, token in self._spelled(kind, value):
                    literals.setdefault(spelled, token)
        return literals

    def _spelled(self, kind: Kind, value: str) -> Iterable[tuple[str, str]]:
        """All spellings of a value that a text may have, each with what replaces it."""
        if kind == "process":
            yield from self._command(value)
            return
        token = self._token(kind, value)
        yield value, token
        for spell in (str.lower, str.upper) if kind == "host" else ():
            yield spell(value), token
        raw = html.unescape(value)
        yield from ((other, token) for other in (raw, html.escape(raw), quote(raw), quote(raw, safe="")))
        yield from ((json.dumps(raw, ensure_ascii=only)[1:-1], token) for only in (True, False))

    def _token(self, kind: str, value: str) -> str:
        made = self.names.token(kind, value)
        return made[: len(value)] if kind == "uuid" and len(value) == 32 else made

    def _command(self, command: str) -> Iterable[tuple[str, str]]:
        """A command line: its program by a name of at most 15 characters, its arguments as one word."""
        own = program(command)
        known = bool(PROGRAM.fullmatch(own))
        token = own if known else self.names.token("process", own)
        first, _, arguments = html.unescape(command).partition(" ")
        if arguments.strip():
            folder = first[: len(first) - len(own)]
            whole = f"{self._path(folder)}{token} {self.names.token('arguments', arguments)}"
            yield command, whole
            yield html.unescape(command), whole
            yield json.dumps(html.unescape(command), ensure_ascii=False)[1:-1], whole
        if not known and _special(own):
            yield own, token
            yield own[:15], token

    def _compiled(self) -> re.Pattern[str]:
        # Long ones with letters and digits are also replaced inside longer words (nvme-SAMSUNG_MZQL2_S64HNE0R).
        free = {v for v in self._literals if len(v) >= 8 and re.search(r"\d", v) and not v.isdigit()} | set(self._fixed)
        bounded = set(self._literals) - free
        parts = []
        if free:
            parts.append(f"(?P<free>{_alternatives(free)})")
        if bounded:
            parts.append(f"(?P<bounded>(?<![A-Za-z0-9])(?:{_alternatives(bounded)})(?![A-Za-z0-9]))")
        shapes = {"home": HOME, "uuid": UUID, "mac": MAC, "guid": GUID, "inname": MAC_IN_NAME, "v6": V6, "v4": V4}
        parts += [f"(?P<{name}>{shape.pattern})" for name, shape in shapes.items()]
        return re.compile("|".join(parts))

    def text(self, text: str, name: str = "", *, ps: bool = False) -> str:
        """The text without what was found. ``name`` and ``ps`` as for :func:`agent.redact.find.find`."""
        text = unescaped(text)
        text = _hexadecimal(text, name, self._addresses)
        if not any(value in text for value in self._ordinary):
            return self._swept(text)
        pieces, done = [], 0
        for one in sorted(find(text, name, ps=ps), key=lambda f: (f.start, -f.end)):
            if one.start >= done and one.value in self._ordinary:
                token = self.names.token(one.kind, program(one.value) if one.kind == "process" else one.value)
                pieces += [self._swept(text[done : one.start]), token]
                done = one.end
        return "".join([*pieces, self._swept(text[done:])])

    def _swept(self, text: str) -> str:
        return self._pattern.sub(self._replacement, text)

    def _replacement(self, match: re.Match[str]) -> str:
        kind, value = match.lastgroup, match[0]
        if kind in ("free", "bounded"):
            return self._literals[value]
        shapes: dict[str, Callable[[str], str]] = {
            "home": self._path, "uuid": self._uuid, "mac": self._mac, "guid": self._guid, "inname": self._in_name,
            "v6": self._v6,
        }  # fmt: skip
        if kind in shapes:
            return shapes[kind](value)
        address = parse4(value, match.string[max(0, match.start() - 40) : match.start()])
        return value if address is None else str(self._addresses.v4(address))

    def _path(self, value: str) -> str:
        start = HOMES.match(value)
        if start is None:
            return value
        parts = value[start.end() :].split("/")
        first = [] if start[0] == "/root/" else [self.names.token("user", parts[0])]
        return start[0] + "/".join([*first, *(self._part(p) for p in parts[len(first) :])])

    def _part(self, part: str) -> str:
        if not part or PATH_PART.fullmatch(part):
            return part
        ending = PATH_ENDING.search(part)
        end = ending[0] if ending else ""
        return self.names.token("path", part[: len(part) - len(end)]) + end

    def _uuid(self, value: str) -> str:
        if _empty(value):
            return value  # a fabric without a cluster has this one (nvidia-smi, ClusterUUID)
        digits = self.names.token("uuid", value)
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    def _mac(self, value: str) -> str:
        if _empty(value):
            return value
        digits = _digits(value)
        made = "02" + self.names.token("mac", value).rjust(40, "0")[-len(digits) + 2 :]
        return value[2].join(made[i : i + 2] for i in range(0, len(digits), 2))

    def _in_name(self, value: str) -> str:
        return value[:3] + "02" + self.names.token("mac", value[3:])[-10:]

    def _guid(self, value: str) -> str:
        if _empty(value):
            return value
        made = "02" + self.names.token("guid", value)[-14:]
        return ":".join(made[i : i + 4] for i in range(0, 16, 4))

    def _v6(self, value: str) -> str:
        address = parse6(value)
        return value if address is None else same_spelling(value, self._addresses.v6(address))

    def left(self, text: str, *, prose: bool = False) -> list[str]:
        """Originals that still stand in a text: none, unless a rule is wrong. ``prose``: words are allowed."""
        found = {m[0] for m in self._pattern.finditer(unescaped(text))}
        return sorted(v for v in found if v in self.originals and not (prose and plain(v)))


def unescaped(text: str) -> str:
    """``\\u4e3b`` of a JSON text as the character, so that a name has one spelling. Control characters stay."""

    def character(match: re.Match[str]) -> str:
        raw: str = json.loads(f'"{match[2]}"')
        safe = all(ord(c) >= 0xA0 and not 0xD800 <= ord(c) <= 0xDFFF for c in raw)
        return match[1] + (raw if safe else match[2])

    return _ESCAPED.sub(character, text) if "\\u" in text else text


def _shapes(texts: Iterable[str]) -> tuple[set[str], set[Union[IPv4Address, IPv6Address]]]:
    """What is recognised by its shape alone: unique numbers as they stand, and addresses."""
    numbers: set[str] = set()
    addresses: set[Union[IPv4Address, IPv6Address]] = set()
    for text in texts:
        for shape in (UUID, MAC, GUID, MAC_IN_NAME):
            numbers.update(m[0] for m in shape.finditer(text) if not _empty(m[0]))
        for match in V4.finditer(text):
            four = parse4(match[0], text[max(0, match.start() - 40) : match.start()])
            if four is not None and not kept4(four):
                addresses.add(four)
        for match in V6.finditer(text):
            six = parse6(match[0])
            if six is not None and not kept6(six):
                addresses.add(six)
    return numbers, addresses


def _empty(number: str) -> bool:
    """All zeros or all ones: a number that nobody has."""
    return {*number.lower()} - {":", "-"} in ({"0"}, {"f"})


_ROUTE = re.compile(r"proc__net__route\Z")
_ROUTE6 = re.compile(r"proc__net__(?:ipv6_route|if_inet6)\Z")


def _hexadecimal(text: str, name: str, addresses: Addresses) -> str:
    """The kernel's tables of routes, which hold addresses as hexadecimal numbers (proc(5))."""
    if _ROUTE6.search(name):
        return re.sub(r"\b[0-9a-f]{32}\b", lambda m: addresses.v6(IPv6Address(int(m[0], 16))).packed.hex(), text)
    if not _ROUTE.search(name):
        return text

    def line(match: re.Match[str]) -> str:
        return match[1] + match[2] + "".join(_little_endian(match[i], addresses) for i in (3, 4))

    return re.sub(r"(?m)^(\S+)(\s+)([0-9A-F]{8}\s+)([0-9A-F]{8})", line, text)


def _little_endian(field: str, addresses: Addresses) -> str:
    raw = bytes.fromhex(field[:8])[::-1]
    new = addresses.v4(IPv4Address(raw)).packed[::-1]
    return new.hex().upper() + field[8:]


class _Tree(dict[str, "_Tree"]):
    """Literals by their characters; the key ``""`` says that one ends here."""


def _alternatives(values: Iterable[str]) -> str:
    """A pattern for many literals: the longest wins, and shared beginnings are looked at once."""
    tree, long = _Tree(), []
    for value in values:
        if len(value) > _DEEPEST:
            long.append(value)
            continue
        node = tree
        for character in value:
            node = node.setdefault(character, _Tree())
        node[""] = _Tree()
    rare = [re.escape(v) for v in sorted(long, key=len, reverse=True)]
    return "|".join([*rare, _branch(tree)] if tree else rare)


def _branch(tree: _Tree) -> str:
    ends = "" in tree
    branches = [re.escape(c) + _branch(rest) for c, rest in sorted(tree.items()) if c]
    if not branches:
        return ""
    joined = branches[0] if len(branches) == 1 and not ends else f"(?:{'|'.join(branches)})"
    return joined + "?" if ends else joined
