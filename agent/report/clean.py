"""Text from the machine or the contract made harmless to show: nothing invisible, nothing that moves the cursor."""

from __future__ import annotations

import re
import unicodedata

# C0 and C1 controls but tab and newline, DEL, lone surrogates, and the characters that reorder or hide text.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\U000e0000-\U000e0fff]"
)
_WORD = re.compile(r"[!-~]{2}\Z")
_LAST_WORD = re.compile(r"(?<![!-~])[!-~]{1,24}\Z")
_BREAK = re.compile(r"\s*[\r\n\t\u2028\u2029\x0b\x0c\x85]+\s*")


def visible(text: str) -> str:
    """``text`` with each character that is unsafe to show spelled out as in Python: ``\\x1b``, ``\\u202e``."""
    return _UNSAFE.sub(lambda m: _spelled(m[0]), text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """``text`` visible and without line breaks."""
    return visible(_BREAK.sub(" ", text)).strip()


def shortened(text: str, longest: int) -> str:
    """At most ``longest`` characters, the cut marked; not within a word or a number that could be read as another."""
    if len(text) <= longest:
        return text
    kept = text[: longest - 1]
    if _WORD.match(text[longest - 2 : longest]):
        whole = _LAST_WORD.sub("", kept)
        kept = whole if whole else kept
    return kept.rstrip() + "…"


def width(text: str) -> int:
    """Columns of a terminal: a Chinese character takes two."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def decoded(data: bytes) -> str:
    """Bytes of a tool as text, UTF-8; a byte that is none as ``\\xff``."""
    return data.decode("utf-8", errors="backslashreplace")


def _spelled(char: str) -> str:
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
