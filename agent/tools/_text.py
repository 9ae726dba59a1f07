"""What all text parsers share: clean text, JSON documents inside other text, and numbers that are numbers."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Optional

from agent.tools import ParseError

_BLANKS = str.maketrans({"\u00a0": " ", "\u202f": " ", "\u2007": " ", "\u3000": " "})

_OPENING = re.compile(r"^[ \t]*\{", re.MULTILINE)
_OPENING_BEHIND = re.compile(r"[ \t]*\{")
_LITERALS = ("true", "false", "null", "-", "\\u0000")


def clean(text: str) -> str:
    """The text without BOM, with LF line ends and plain blanks. A CR inside a line stays."""
    return text.lstrip("\ufeff").replace("\r\n", "\n").translate(_BLANKS)


LONG = 1 << 19  # characters: no failure text is as long, and most outputs are not
_LOOK = 1 << 17
_NOTHING = " \t\r\n\ufeff\x00"
# The longest that a regular expression may have to look at more than once: a pattern with two such parts is a square.
_ENDLESS = re.compile(r"(?<!\d)\d{300}|(?<![^\S\n])[^\S\n]{1000}")
_FIRST = re.compile(r"\S[^\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]{0,999}")


def recognise(text: str, tool: str, sign: re.Pattern[str], *, whole: bool = True) -> None:
    """Raise :class:`ParseError` for a long text that shows no ``sign`` of the tool at its beginning or end.

    So foreign text of any length is refused for the price of its ends. A text under :data:`LONG` is the parser's own.
    ``whole``: hundreds of digits or a thousand blanks in a row, which no tool prints, make all of it no output.
    """
    filled = text.strip(_NOTHING)
    if len(text) > LONG:
        if not filled:
            raise ParseError("empty", f"no {tool} output: the text is empty")
        if not sign.search(text[:_LOOK]) and not sign.search(text[-_LOOK:]):
            raise ParseError("unparsable", f"not {tool} output", first_line(text))
    endless = _ENDLESS.search(text) if whole and filled else None
    if endless is not None:
        what = "blanks" if endless[0].isspace() else "digits"
        raise ParseError("unparsable", f"more {what} in a row than {tool} prints", endless[0][:40])


def json_documents(text: str) -> tuple[list[Any], str]:
    """All JSON objects that start at a line's beginning, and the text around them.

    A document that starts and does not end raises ``truncated``; one that is broken in the middle
    raises ``unparsable``. Text without any object gives an empty list.
    """
    documents: list[Any] = []
    around: list[str] = []
    at = 0
    while (start := _object_start(text, at)) is not None:
        around.append(text[at:start])
        document, at = _decode(text, start)
        documents.append(document)
    around.append(text[at:])
    return documents, "\n".join(around)


def one_document(text: str, tool: str) -> dict[str, Any]:
    """The only JSON object of a text; anything else raises :class:`ParseError`."""
    if not text.strip():
        raise ParseError("empty", f"no {tool} output: the text is empty")
    documents, _ = json_documents(text)
    if not documents:
        raise ParseError("unparsable", f"not {tool} JSON", first_line(text))
    if len(documents) > 1:
        raise ParseError("several_results", f"{len(documents)} JSON documents; give one at a time")
    return dict(documents[0])


def first_line(text: str) -> str:
    """The first line that holds anything, or its first 1000 characters, for an error message."""
    found = _FIRST.search(text)
    return found[0].rstrip() if found else ""


def number(value: Any) -> Optional[float]:
    """A JSON number as float; None for anything else, NaN and infinities."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        result = float(value)
    except OverflowError:
        return None
    return result if math.isfinite(result) else None


def integer(value: Any) -> Optional[int]:
    """A whole JSON number as int; None for anything else."""
    result = number(value)
    return int(value) if result is not None and result == int(result) else None


def text_or_none(value: Any) -> Optional[str]:
    """A string that says something, stripped; None for anything else."""
    return value.strip() or None if isinstance(value, str) else None


def mapping(value: Any) -> dict[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects of a JSON array; nothing else in it."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _object_start(text: str, at: int) -> Optional[int]:
    """Where the next object opens: first thing on its line, or right behind the one before it."""
    match = _OPENING_BEHIND.match(text, at) or _OPENING.search(text, at)
    return match.end() - 1 if match else None


def _decode(text: str, start: int) -> tuple[Any, int]:
    decoder = json.JSONDecoder(parse_constant=lambda _: None)
    try:
        return decoder.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise _broken(text, error) from error
    except (RecursionError, ValueError) as error:
        raise ParseError("unparsable", f"JSON that cannot be read ({error})", first_line(text)) from error


def _broken(text: str, error: json.JSONDecodeError) -> ParseError:
    """A decoder that ran out of text, or into an open string, saw a cut; anything else is damage."""
    rest = text[error.pos :].strip()
    cut = error.msg.startswith("Unterminated string") or any(w.startswith(rest) for w in _LITERALS)
    line = text.splitlines()[error.lineno - 1] if error.lineno <= len(text.splitlines()) else ""
    kind, what = ("truncated", "JSON cut off") if cut else ("unparsable", "broken JSON")
    return ParseError(kind, f"{what} at line {error.lineno}: {error.msg}", line.strip())
