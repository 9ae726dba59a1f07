"""The contract file: from its tree of texts to typed clauses, and every problem of the file at once.

The grammars of the clause families are given, so that contracts know no checks. The JSON Schema is built from the
same grammars in :mod:`agent.contract_schema`.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Optional

from agent.contract_keys import (
    ACCESS,
    ALIASES,
    FORM,
    FORMULA,
    HEADER,
    OWN,
    PRICE,
    TERM,
    TOLERANCE,
    TOP,
    VERSION,
    share_of_price,
)
from agent.contract_schema import schema
from agent.contradictions import contradictions
from agent.grammar import GrammarError, Kind, ListKind, QuantityKind, Section, plain
from agent.model import Access, Clause, Contract, Promise
from agent.quantity import DIMENSIONS, convert, shown
from agent.source import ContractErrors, Hole, Map, Node, Place, Problem, Scalar, Seq, parse, read_bytes
from agent.text import Text, msg

__all__ = ["ContractErrors", "Problem", "contradictions", "load", "loads", "schema", "written_language"]

DEFAULT_TOLERANCE = 0.05
_LANGUAGE = re.compile(
    rb"""^[ \t{,]*(?:contract[ \t]*:.*[{,][ \t]*)?language[ \t]*:[ \t]*["']?(zh|en)\b""", re.MULTILINE
)
_LARGEST = 1 << 20


def load(path: Path, families: Mapping[str, Section]) -> Contract:
    """Read the contract file at ``path``; ContractErrors with all its problems."""
    return loads(read_bytes(path), shown(str(path), 400), families)


def loads(data: bytes, name: str, families: Mapping[str, Section]) -> Contract:
    """Read a contract from its bytes; ``name`` is the file's name in messages."""
    source = parse(data, name)
    reader = _Reader(name, families, list(source.problems))
    contract = reader.contract(source.root, data, source.notes)
    if reader.problems:
        raise ContractErrors(tuple(sorted(reader.problems, key=lambda p: (p.line, p.column))))
    return contract


def written_language(path: Path) -> Optional[str]:
    """The language that a contract names, sound or not; None where it names none that is known, or is not there."""
    try:
        if not path.is_file():  # a pipe would never end
            return None
        with path.open("rb") as file:
            found = _LANGUAGE.search(file.read(_LARGEST))
    except (OSError, ValueError):
        return None
    return found[1].decode() if found else None


@dataclass
class _Entry:
    """One entry of a family while it is read: its clauses wait until all settings are known."""

    settings: dict[str, Any] = field(default_factory=dict)
    waiting: list[tuple[str, Scalar, Node]] = field(default_factory=list)
    names: int = 0  # clauses and settings that were recognised, right or wrong


@dataclass
class _Reader:
    name: str
    families: Mapping[str, Section]
    problems: list[Problem]
    clauses: list[Clause] = field(default_factory=list)
    tolerance: float = DEFAULT_TOLERANCE

    # --- the whole file

    def contract(self, root: Node, data: bytes, notes: tuple[str, ...]) -> Contract:
        pairs = self._own(self._mapping(root, msg("a contract is a mapping of families such as “gpu:” or “disk:”")))
        top = {key.text: node for key, node in pairs if key.text in TOP}
        if "version" in top:
            self._value(VERSION, top["version"], "version")
        if "tolerance" in top:
            self.tolerance = self._fraction(top["tolerance"], "tolerance")
        header = self._header(top["contract"]) if "contract" in top else {}
        access = self._access(top["access"]) if "access" in top else Access()
        terms = self._terms(top["terms"]) if "terms" in top else ()
        trial: Mapping[str, Any] = {}
        for key, node in pairs:
            if key.text in self.families:
                settings = self._family(key, node, self.families[key.text])
                trial = settings if key.text == "trial" else trial
            elif key.text not in TOP:
                self._unknown(key, "", [*self.families, *TOP])
        if not self.clauses and not self.problems:
            self._say(root.place, msg("the contract promises nothing: it has no clause"))
        language = header.get("language")
        if notes:
            header["notes"] = notes
        return Contract(
            clauses=tuple(self.clauses),
            source=data,
            sha256=hashlib.sha256(data).hexdigest(),
            header=header,
            access=access,
            tolerance=self.tolerance,
            language=language,
            trial=trial,
            terms=terms,
        )

    def _header(self, node: Node) -> dict[str, Any]:
        header = self._fields(node, "contract", HEADER, also=("price",))
        for key, child in self._pairs(node):
            if key.text == "price":
                header["price"] = self._price(child)
        return header

    def _price(self, node: Node) -> dict[str, Any]:
        price = self._fields(node, "contract.price", PRICE)
        if isinstance(node, Map) and "amount" not in {k.text for k, _ in node.pairs}:
            self._say(node.place, msg("contract.price needs an amount"))
        return price

    def _access(self, node: Node) -> Access:
        given = self._fields(node, "access", ACCESS)
        return Access(given.get("kind"), given.get("root"))

    def _terms(self, node: Node) -> tuple[Mapping[str, Any], ...]:
        items = node.items if isinstance(node, Seq) else (node,)
        return tuple(self._term(item) for item in items)

    def _term(self, node: Node) -> Mapping[str, Any]:
        if isinstance(node, Scalar):
            return {"text": self._value(TERM["text"], node, "terms")}
        term = self._fields(node, "terms", TERM)
        if isinstance(node, Map) and "text" not in {k.text for k, _ in node.pairs}:
            self._say(node.place, msg("a term needs its text"))
        return term

    # --- families and their entries

    def _family(self, key: Scalar, node: Node, section: Section) -> Mapping[str, Any]:
        if isinstance(node, Scalar) and node.empty:
            self._say(key.place, msg("{key} has no value", key=key.text))
            return {}
        if section.each:
            self._each(key, node, section)
        elif section.bare is not None:
            self._clause(key.text, key.text, section, section.bare, key, node, {})
        elif section.many is not None:
            self._many(key, node, section, section.many)
        else:
            return self._single(key, node, section)
        return {}

    def _each(self, key: Scalar, node: Node, section: Section) -> None:
        """A list of values, each a clause with the value as its name."""
        assert section.bare is not None
        seen: dict[str, Place] = {}
        for item in self._items(key, node):
            before = len(self.clauses)
            self._clause(key.text, key.text, section, section.bare, Scalar(key.text, item.place), item, {})
            for clause in self.clauses[before:]:
                self._once(seen, str(clause.promise.value), item.place, key.text)
                self.clauses[-1] = _with_key(clause, f"{key.text}[{clause.promise.value}]")

    def _many(self, key: Scalar, node: Node, section: Section, field_name: str) -> None:
        seen: dict[str, Place] = {}
        for item in self._items(key, node):
            label = self._label(item, field_name)
            where = key.text if label is None else f"{key.text}[{shown(label, 300)}]"
            entry = self._entry(key.text, where, item, section)
            if entry is None:
                continue
            if label is None:
                self._say(item.place, msg("this entry of {family} needs {field}", family=key.text, field=field_name))
            else:
                self._once(seen, label, item.place, key.text)
            self._read_entry(key.text, where, section, entry, item)

    def _label(self, item: Node, field_name: str) -> Optional[str]:
        """What names this entry, before it is known to be right."""
        found = [child for key, child in self._pairs(item) if key.text == field_name]
        return _unquoted(found[0]) if found and isinstance(found[0], Scalar) else None

    def _single(self, key: Scalar, node: Node, section: Section) -> Mapping[str, Any]:
        entry = self._entry(key.text, key.text, node, section)
        if entry is None:
            return {}
        self._read_entry(key.text, key.text, section, entry, node)
        return entry.settings

    def _entry(self, family: str, where: str, node: Node, section: Section) -> Optional[_Entry]:
        if not isinstance(node, Map):
            self._not_a_mapping(family, node, section)
            return None
        entry = _Entry()
        self._walk(where, "", node, section, entry)
        return entry

    def _walk(self, where: str, prefix: str, node: Map, section: Section, entry: _Entry) -> None:
        """Sort an entry's keys into clauses and settings, following nested mappings such as fleet.allreduce."""
        names = [*section.clauses, *section.settings]
        for key, child in self._own(node.pairs):
            name = prefix + key.text
            entry.names += 1
            if name in section.clauses:
                entry.waiting.append((name, key, child))
            elif name in section.settings:
                value = self._setting(section.settings[name], child, f"{where}.{name}", key)
                if value is not None:
                    entry.settings[name] = value
            elif isinstance(child, Map) and any(n.startswith(f"{name}.") for n in names):
                self._walk(where, f"{name}.", child, section, entry)
            else:
                known = [n[len(prefix) :].split(".")[0] for n in names if n.startswith(prefix)]
                self._unknown(key, f"{where}.{prefix}", known)

    def _read_entry(self, family: str, prefix: str, section: Section, entry: _Entry, node: Node) -> None:
        if not entry.waiting and not section.quiet and entry.names == len(entry.settings):
            some = list(section.clauses)[:4]
            self._say(node.place, msg("{key} promises nothing: add a clause such as {some}", key=prefix, some=some))
        for name, key, child in entry.waiting:
            self._clause(family, f"{prefix}.{name}", section, name, key, child, entry.settings)

    def _not_a_mapping(self, family: str, node: Node, section: Section) -> None:
        some = [*section.clauses, *section.settings][:4]
        if isinstance(node, Scalar):
            message = msg(
                "{key} holds clauses such as {some}, not {found}", key=family, some=some, found=shown(node.text)
            )
            self._say(node.place, _with_hint(message, _colon_hint(node.text)))
        elif isinstance(node, Seq):
            self._say(
                node.place, msg("{key} is a mapping of clauses such as {some}, not a list", key=family, some=some)
            )

    # --- one clause

    def _clause(
        self, family: str, key: str, section: Section, name: str, at: Scalar, node: Node, settings: Mapping[str, Any]
    ) -> None:
        kind = section.clauses[name]
        form: dict[str, Any] = {}
        if isinstance(node, Map):
            form = self._form(key, kind, node)
            node = next((child for k, child in node.pairs if k.text == "is"), Hole(node.place))
        promise = self._promise(kind, node, key, at)
        if promise is None:
            return
        agreed = bool(form.get("agreed", False))
        usual = "advisory" if name in section.advisory else "breach"
        severity = form.get("severity", usual)
        if promise.op == "auto" and not agreed:
            if form.get("severity") == "breach":
                self._say(at.place, msg("{key}: auto can be a breach only with “agreed: true”", key=key))
            severity = "advisory"  # the vendor never signed a number
        tolerance = form.get("tolerance", self.tolerance) if kind.measured else 0.0
        self.clauses.append(
            Clause(
                key=key,
                family=family,
                name=name,
                promise=promise,
                line=at.place.line,
                column=at.place.column,
                settings=settings,
                tolerance=tolerance,
                severity=severity,
                if_unreadable=form.get("if_unreadable", "inconclusive"),
                agreed=agreed,
                ref=form.get("ref"),
                text=form.get("text"),
                remedy=form.get("remedy"),
            )
        )

    def _form(self, key: str, kind: Kind, node: Map) -> dict[str, Any]:
        """The mapping form ``{is: …, ref: …}`` but for its ``is``."""
        keys = {k.text: child for k, child in node.pairs}
        if "is" not in keys:
            self._say(node.place, msg("{key}: the mapping form needs “is”, the promised value", key=key))
        allowed = {n: k for n, k in FORM.items() if n != "tolerance" or kind.measured}
        if "tolerance" in keys and not kind.measured:
            message = msg("{key}: a tolerance applies to measured rates only", key=key)
            self._say(keys["tolerance"].place, message)
        form = self._fields(node, key, allowed, also=("is", "remedy", "tolerance"))
        if kind.measured and "tolerance" in keys:
            form["tolerance"] = self._fraction(keys["tolerance"], f"{key}.tolerance")
        if "remedy" in keys:
            form["remedy"] = self._remedy(keys["remedy"], f"{key}.remedy")
        return form

    def _remedy(self, node: Node, key: str) -> Mapping[str, str]:
        """The contract's own words on what is owed: any fields, kept as text; a bare text is ``{text: …}``."""
        if isinstance(node, Scalar):
            return {"text": node.text}
        remedy = {}
        for name, child in self._own(self._mapping(node, msg("{key} is a text or a mapping of texts", key=key))):
            if isinstance(child, Scalar):
                remedy[name.text] = child.text
                self._formula(name, child, key)
            elif not isinstance(child, Hole):
                self._say(child.place, msg("{key} is a text or a mapping of texts", key=key))
        if "at_most" in remedy and "per_percent" not in remedy:
            self._say(node.place, msg("{key}: at_most caps a formula, and there is no per_percent", key=key))
        return remedy

    def _formula(self, name: Scalar, value: Scalar, key: str) -> None:
        """A figure that money is reckoned with must be one: a typing error would show as no claim at all."""
        if name.text not in FORMULA or 0 < (share_of_price(value.text) or 0) <= 1:
            return
        self._say(
            value.place,
            msg(
                "{key}.{name}: {text} is no share of the price: write 2 %, above 0 % and up to 100 %",
                key=key, name=name.text, text=f"“{value.text[:40]}”",
            ),
        )  # fmt: skip

    # --- values

    def _promise(self, kind: Kind, node: Node, key: str, at: Scalar) -> Optional[Promise]:
        """The typed value of a scalar or, where the kind is a list, a sequence; None after a problem was said."""
        if isinstance(node, Hole):
            return None
        if isinstance(node, Scalar) and node.empty:
            self._say(at.place, msg("{key} has no value", key=key))
            return None
        try:
            if isinstance(node, Scalar):
                return kind.parse(_unquoted(node))
            if isinstance(node, Seq) and isinstance(kind, ListKind):
                return self._list(kind, node, key)
        except GrammarError as error:
            assert isinstance(node, Scalar)
            self._say(node.place, _unlike(key, error, node.text))
            return None
        found = msg("a list") if isinstance(node, Seq) else msg("a mapping")
        self._say(
            node.place, msg("{key}: expected {expected}, not {found}", key=key, expected=kind.expected, found=found)
        )
        return None

    def _list(self, kind: ListKind, node: Seq, key: str) -> Optional[Promise]:
        texts = []
        for item in node.items:
            if self._promise(kind.item, item, key, Scalar(key, item.place)) is not None:
                assert isinstance(item, Scalar)
                texts.append(_unquoted(item))
        if not node.items:
            self._say(node.place, msg("{key}: the list is empty", key=key))
        return kind.parse_items(texts) if texts and len(texts) == len(node.items) else None

    def _setting(self, kind: Kind, node: Node, key: str, at: Scalar) -> Any:
        """A setting's plain value, None after a problem: quantities in canonical units (B, B/s, s), counts as int."""
        promise = self._promise(plain(kind), node, key, at)
        if promise is None:
            return None
        if isinstance(kind, ListKind):
            return tuple(_canonical(kind.item, value, "") for value in promise.value)
        return _canonical(kind, promise.value, promise.unit)

    def _value(self, kind: Kind, node: Node, key: str) -> Any:
        promise = self._promise(kind, node, key, Scalar(key, node.place))
        return None if promise is None else promise.value

    def _fraction(self, node: Node, key: str) -> float:
        value = self._value(TOLERANCE, node, key)
        return DEFAULT_TOLERANCE if value is None else float(value) / 100

    def _fields(self, node: Node, where: str, kinds: Mapping[str, Kind], also: tuple[str, ...] = ()) -> dict[str, Any]:
        """A mapping of plain values with known keys; ``also`` are keys that the caller reads."""
        values = {}
        for key, child in self._own(self._mapping(node, _such(where))):
            if key.text in kinds:
                promise = self._promise(kinds[key.text], child, f"{where}.{key.text}", key)
                if promise is not None:
                    values[key.text] = promise.value
            elif key.text not in also:
                self._unknown(key, f"{where}.", [*kinds, *also])
        return values

    # --- shapes

    def _mapping(self, node: Node, otherwise: Text) -> tuple[tuple[Scalar, Node], ...]:
        if isinstance(node, Map):
            return node.pairs
        if isinstance(node, Scalar):
            self._say(node.place, _with_hint(otherwise, _colon_hint(node.text)))
        elif isinstance(node, Seq):
            self._say(node.place, otherwise)
        return ()

    def _pairs(self, node: Node) -> tuple[tuple[Scalar, Node], ...]:
        return node.pairs if isinstance(node, Map) else ()

    def _own(self, pairs: Iterable[tuple[Scalar, Node]]) -> list[tuple[Scalar, Node]]:
        """Without the user's own ``x-…`` keys."""
        return [(key, node) for key, node in pairs if not key.text.startswith(OWN)]

    def _items(self, key: Scalar, node: Node) -> tuple[Node, ...]:
        if not isinstance(node, Seq):
            return (node,)
        if not node.items:
            self._say(key.place, msg("{key} has no entries", key=key.text))
        return node.items

    def _once(self, seen: dict[str, Place], label: str, place: Place, family: str) -> None:
        first = seen.setdefault(label, place)
        if first is not place:
            label = shown(label)
            self._say(
                place,
                msg(
                    "{family}[{label}] is here twice, first in line {line}", family=family, label=label, line=first.line
                ),
            )

    # --- problems

    def _say(self, place: Place, message: Text) -> None:
        self.problems.append(Problem(self.name, place.line, place.column, message))

    def _unknown(self, key: Scalar, prefix: str, known: list[str]) -> None:
        named = shown(f"{prefix}{key.text}")
        if _AFTER_COMMA.match(key.text):
            message = msg("a comma ends a value here: write the number without it, or in quotes")
        else:
            elsewhere = self._elsewhere(key.text)
            nearest = [prefix + near for near in self._meant(key.text, known)]
            nearest = nearest if prefix else [*elsewhere, *nearest]
            if nearest:
                message = msg("unknown key {key}; the nearest known key is {nearest}", key=named, nearest=nearest)
            else:
                message = msg("unknown key {key}; known here: {known}", key=named, known=sorted(set(known)))
            if prefix and elsewhere and not nearest:  # in the wrong place, or another thing of the same name
                message = _with_hint(message, msg("elsewhere: {keys}", keys=elsewhere))
        self._say(key.place, message)

    def _meant(self, name: str, known: Iterable[str]) -> list[str]:
        """Keys that stand for ``name`` here: what people call them, else the one that is spelled most alike."""
        there = set(known)
        said = ALIASES.get(_folded(name), ())
        clauses = {f"{family}.{c}" for family, s in self.families.items() for c in s.clauses}
        meant = [k for k in said if k in there or (there >= set(self.families) and k in clauses)]
        close = _nearest(name, there)
        return meant[:2] if meant else [close] if close is not None else []

    def _elsewhere(self, name: str) -> list[str]:
        """Places where this very key is known: ``count`` at the top is ``gpu.count``."""
        found = [f"{family}.{name}" for family, s in self.families.items() if name in s.clauses and s.bare is None]
        return ([name] if name in self.families else []) + found[:3]


_AFTER_COMMA = re.compile(r"[0-9]{3}(?![0-9])")  # in {amount: 60,000} the rest is read as a key


def _folded(name: str) -> str:
    return name[:64].lower().strip().replace("-", "_").replace(" ", "_")


def _nearest(name: str, known: Iterable[str]) -> Optional[str]:
    folded = {k.lower(): k for k in sorted(known)}
    wanted = _folded(name)
    close = difflib.get_close_matches(wanted, list(folded), n=1, cutoff=0.6)
    longer = [k for k in folded if wanted and k.startswith(f"{wanted}_")]
    return folded[[*close, *longer][0]] if close or longer else None


_EXAMPLES = {
    "contract": "{id: A-17, vendor: Example Cloud}",
    "contract.price": "{amount: 60000, currency: CNY, per: month}",
    "access": "{kind: container, root: false}",
    "terms": "{text: …, check_by: 2026-12-20}",
}


def _such(key: str) -> Text:
    example = _EXAMPLES.get(key)
    if example is None:
        return msg("{key} is a mapping", key=key)
    return msg("{key} is a mapping such as {example}", key=key, example=example)


def _unquoted(node: Scalar) -> str:
    """Typographic quotes that a word processor put around a value are not part of it."""
    text = node.text.strip()
    if node.plain and len(text) >= 2 and text[0] in "“”\u2018「＂" and text[-1] in "“”\u2019」＂":
        return text[1:-1]
    return text


def _unlike(key: str, error: GrammarError, found: str) -> Text:
    message = msg(
        '{key}: expected {expected}, not "{found}"', key=shown(key), expected=error.expected, found=shown(found)
    )
    return _with_hint(message, error.hint)


def _with_hint(message: Text, hint: Optional[Text]) -> Text:
    return message if hint is None else msg("{message}; {hint}", message=message, hint=hint)


def _colon_hint(text: str) -> Optional[Text]:
    head, colon, _ = text.partition("：" if "：" in text else ":")
    if colon and head.replace("_", "").replace("-", "").isalnum():
        return msg("write a colon and a space after {key}", key=shown(head))
    return None


def _canonical(kind: Kind, value: Any, unit: str) -> Any:
    if not isinstance(kind, QuantityKind) or not isinstance(value, float):
        return value
    return int(value) if kind.whole else convert(value, unit, DIMENSIONS[kind.dimension].unit)


def _with_key(clause: Clause, key: str) -> Clause:
    return replace(clause, key=key)
