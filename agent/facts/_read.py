"""From evidence to readings: parse, or say why not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Callable, Optional, TypeVar

from agent.host import Ran
from agent.reading import Known, Missing, MissingKind, Reading
from agent.text import Text, msg
from agent.tools import ParseError

T = TypeVar("T")
U = TypeVar("U")
# What a parser's failure is to a reader. All others are texts that are not what they should be.
_KINDS: dict[str, MissingKind] = {
    "denied": "denied",
    "absent": "not-there",
    "tool_missing": "no-tool",
    "option": "unsupported",
    "timeout": "timeout",
    **dict.fromkeys(
        ("broken_tool", "crashed", "failed", "busy", "io_error", "no_access", "open_failed", "out_of_memory"), "failed"
    ),
}
_DENIED = re.compile(r"permission denied|operation not permitted|must be root|access denied", re.IGNORECASE)


def parsed(reading: Reading[T], parse: Callable[[T], U], what: str) -> Reading[U]:
    """A text through its parser; what is not what it should be (or holds a bad number) is unparsable."""
    if isinstance(reading, Missing):
        return reading
    try:
        return Known(parse(reading.value), reading.evidence)
    except ParseError as error:
        detail = msg("{what} cannot be read: {why}", what=what, why=error.why)
        return Missing(kind_of(error), detail, reading.evidence, remedy(error.kind, what))
    except (ValueError, LookupError) as error:
        return unparsable(what, str(error), reading.evidence)


def kind_of(error: ParseError) -> MissingKind:
    """The reader's word for a parser's failure."""
    return _KINDS.get(error.kind, "unparsable")


def remedy(kind: str, tool: str) -> Optional[Text]:
    """What to do about a tool that is not there or cannot be loaded; None for other kinds of a parser's failure."""
    if kind == "tool_missing":
        return msg("install {tool}", tool=tool)
    if kind == "broken_tool":
        return msg("repair {tool}: it is installed and cannot be loaded", tool=tool)
    return None


def unparsable(what: str, why: str, evidence: tuple[str, ...]) -> Missing:
    """An answer that is not what it should be."""
    return Missing("unparsable", msg("{what} cannot be read: {why}", what=what, why=why), evidence)


def answer(ran: Ran, parse: Callable[[str], U], grant: str = "root") -> Reading[U]:
    """What a tool printed, parsed; a refusal names what to grant."""
    missing = ran.missing() or refused(ran, grant)
    if missing is not None:
        return missing
    return parsed(Known(ran.stdout, ran.cited), parse, ran.argv[0].rpartition("/")[2])


def refused(ran: Ran, grant: str = "root") -> Optional[Missing]:
    """Why a tool that ended with a failure has no answer; None when it ended well."""
    if ran.exit == 0:
        return None
    said = last_line(ran.stderr) or last_line(ran.stdout)
    kind: MissingKind = "denied" if _DENIED.search(said) else "failed"
    tool = ran.argv[0].rpartition("/")[2]
    detail = msg("{tool} ended with status {status}: {said}", tool=tool, status=ran.exit, said=said or "–")
    return Missing(kind, detail, ran.cited, msg("grant {what}", what=grant) if kind == "denied" else None)


def last_line(text: str) -> str:
    """The last line that holds anything, shortened to 200 characters."""
    return next((line.strip()[:200] for line in reversed(text.splitlines()) if line.strip()), "")


def whole(text: str) -> int:
    """A decimal number, as sysfs prints it."""
    if not re.fullmatch(r"\s*-?\d+\s*", text):
        raise ParseError("unparsable", "not a whole number", text[:80])
    return int(text)


def first_known(readings: Sequence[Reading[T]]) -> Reading[T]:
    """The first that is known, else the first reason why not."""
    return next((r for r in readings if isinstance(r, Known)), readings[0])


def cited(*readings: Reading[Any]) -> tuple[str, ...]:
    """The evidence of all of them, each once, in order."""
    return tuple(dict.fromkeys(e for r in readings for e in r.evidence))
