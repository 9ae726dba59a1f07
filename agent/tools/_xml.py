"""A small, safe XML tree on expat: no entity is ever declared or expanded, depth and size are bounded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Optional
from xml.parsers import expat

from agent.tools import ParseError

_MAX_DEPTH = 64
_CUT = frozenset(
    {
        expat.errors.codes[expat.errors.XML_ERROR_NO_ELEMENTS],
        expat.errors.codes[expat.errors.XML_ERROR_UNCLOSED_TOKEN],
        expat.errors.codes[expat.errors.XML_ERROR_UNCLOSED_CDATA_SECTION],
        expat.errors.codes[expat.errors.XML_ERROR_PARTIAL_CHAR],
    }
)


@dataclass
class Node:
    """An element: its name, attributes, own text and children in order."""

    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    text: str = ""
    children: list[Node] = field(default_factory=list)

    def child(self, tag: str) -> Optional[Node]:
        """The first child of that name."""
        return next((node for node in self.children if node.tag == tag), None)

    def all(self, tag: str) -> Iterator[Node]:
        """The children of that name."""
        return (node for node in self.children if node.tag == tag)

    def find(self, path: str) -> Optional[str]:
        """The text at a path such as ``pci/pci_bus_id``; None where it is absent.

        A whole branch may be replaced by a text (``<remapped_rows>GPU is lost</remapped_rows>``): then
        that text stands for everything below it.
        """
        node = self
        for tag in path.split("/"):
            below = node.child(tag)
            if below is None:
                return node.text.strip() or None if not node.children and node is not self else None
            node = below
        return node.text.strip()


def parse_xml(document: str) -> Node:
    """The root of a document; broken or cut text and any entity declaration raise :class:`ParseError`."""
    parser = expat.ParserCreate()
    builder = _Builder()
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.characters
    parser.EntityDeclHandler = builder.entity
    parser.buffer_text = True
    try:
        parser.Parse(document.encode("utf-8", errors="replace"), True)
    except expat.ExpatError as error:
        raise _broken(document, error) from error
    return builder.root.children[0]


class _Builder:
    """Grows the tree from expat's events without recursion."""

    def __init__(self) -> None:
        self.root = Node("")
        self.open = [self.root]

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if len(self.open) > _MAX_DEPTH:
            raise ParseError("unparsable", f"XML nested deeper than {_MAX_DEPTH}", tag)
        node = Node(tag, attributes)
        self.open[-1].children.append(node)
        self.open.append(node)

    def end(self, _tag: str) -> None:
        self.open.pop()

    def characters(self, text: str) -> None:
        self.open[-1].text += text

    def entity(self, name: str, *_rest: object) -> None:
        raise ParseError("unparsable", "XML that declares entities is refused", f"<!ENTITY {name}")


def _broken(document: str, error: expat.ExpatError) -> ParseError:
    lines = document.split("\n")
    line = lines[error.lineno - 1].strip() if error.lineno <= len(lines) else ""
    kind, what = ("truncated", "XML cut off") if error.code in _CUT else ("unparsable", "broken XML")
    return ParseError(kind, f"{what} at line {error.lineno}: {expat.ErrorString(error.code)}", line)
