"""The contract format as JSON Schema 2020-12, built from the same grammars that the loader reads with.

The schema speaks of YAML scalars by their type (``count: 8`` is a number, ``memory: 80 GB`` a text). What it cannot
say, so that only the loader rejects it:

* encodings, characters that cannot be seen, length of values, size and depth of the file, anchors, documents;
* duplicate keys, two entries with the same path or name;
* a range that is upside down or whose ends don't fit together, days that no calendar has, numbers beyond 1e30;
* a breach by ``auto`` without ``agreed``, a contract of nothing but trial days.

The other way round, the loader also folds full-width Latin letters in units, and reads every scalar as text (a host
called 8, a model called true), where the schema takes numbers and booleans only where they are usual.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agent.contract_keys import ACCESS, FORM, HEADER, OWN, PRICE, TERM, TOLERANCE, VERSION
from agent.grammar import Kind, Section, plain

_OWN_KEYS = {f"^{OWN}": True}


def schema(families: Mapping[str, Section]) -> dict[str, Any]:
    """JSON Schema of a contract with these families."""
    definitions = _Definitions()
    properties: dict[str, Any] = {
        "version": definitions.of(VERSION),
        "contract": _object({**definitions.all(HEADER), "price": _object(definitions.all(PRICE), ["amount"])}),
        "access": _object(definitions.all(ACCESS)),
        "tolerance": definitions.of(TOLERANCE),
        "terms": _one_or_more(
            {"anyOf": [definitions.of(TERM["text"]), _object(definitions.all(TERM), ["text"])]}, empty=True
        ),
    }
    properties.update({name: _family(section, definitions) for name, section in families.items()})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:gpu-accept:contract:1",
        "title": "What a vendor promised about a rented GPU server",
        **_object(properties),
        "anyOf": [{"required": [name]} for name in families],
        "$defs": definitions.made,
    }


class _Definitions:
    """Each different kind once, under its name and a number."""

    def __init__(self) -> None:
        self.made: dict[str, Any] = {}
        self._names: dict[str, str] = {}

    def of(self, kind: Kind) -> dict[str, Any]:
        """A reference to the schema of a value of ``kind``."""
        return self._reference(kind.name, kind.schema())

    def all(self, kinds: Mapping[str, Kind]) -> dict[str, Any]:
        """References to several, by key."""
        return {name: self.of(kind) for name, kind in kinds.items()}

    def clause(self, kind: Kind) -> dict[str, Any]:
        """A clause: the value itself, or the mapping form around it."""
        extra = {name: k for name, k in FORM.items() if name != "tolerance" or kind.measured}
        remedy = {"anyOf": [{"type": "string"}, {"type": "object", "additionalProperties": _SCALAR}]}
        form = _object({"is": self.of(kind), **self.all(extra), "remedy": remedy}, ["is"])
        return self._reference(f"{kind.name}-clause", {"anyOf": [self.of(kind), form]})

    def _reference(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        text = json.dumps(body, sort_keys=True)
        if text not in self._names:
            taken = sum(1 for made in self.made if made.rstrip("0123456789-") == name)
            self._names[text] = f"{name}-{taken + 1}" if taken else name
            self.made[self._names[text]] = body
        return {"$ref": f"#/$defs/{self._names[text]}"}


_SCALAR = {"type": ["string", "number", "boolean"]}


def _object(properties: Mapping[str, Any], required: Any = ()) -> dict[str, Any]:
    body: dict[str, Any] = {
        "type": "object",
        "properties": dict(properties),
        "patternProperties": _OWN_KEYS,
        "additionalProperties": False,
    }
    return {**body, "required": list(required)} if required else body


def _one_or_more(item: dict[str, Any], empty: bool = False) -> dict[str, Any]:
    several: dict[str, Any] = {"type": "array", "items": item, "minItems": 0 if empty else 1}
    return {"anyOf": [item, several]}


def _family(section: Section, definitions: _Definitions) -> dict[str, Any]:
    if section.bare is not None:
        clause = definitions.clause(section.clauses[section.bare])
        return _one_or_more(clause) if section.each else clause
    entry = _entry(section, definitions)
    return _one_or_more(entry) if section.many else entry


def _entry(section: Section, definitions: _Definitions) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for name, kind in section.clauses.items():
        _plant(tree, name, definitions.clause(kind))
    for name, kind in section.settings.items():
        _plant(tree, name, definitions.of(plain(kind)))
    body = _object(_grown(tree), [section.many] if section.many else [])
    if section.quiet:
        return body
    tops = dict.fromkeys(name.split(".")[0] for name in section.clauses)
    return {**body, "anyOf": [{"required": [name]} for name in tops]}


def _plant(tree: dict[str, Any], dotted: str, body: dict[str, Any]) -> None:
    head, dot, rest = dotted.partition(".")
    if not dot:
        tree[head] = body
    else:
        _plant(tree.setdefault(head, {}), rest, body)


def _grown(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Nested names become objects; a leaf is what refers to a definition."""
    return {name: body if "$ref" in body else _object(_grown(body)) for name, body in tree.items()}
