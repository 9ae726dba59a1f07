"""One file a tool: its argv, its deadline, and a pure ``parse(text)``.

A parser never starts a process and never guesses: text that is not what it claims raises
:class:`ParseError`. Modules that can be used through ``accept parse`` set ``KIND``.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import Any, Optional, Union

from agent.text import Text, msg

LONGEST_LINE = 200  # characters of a tool's text that an error message quotes


@dataclass
class ParseError(Exception):
    """Text that is not the tool's output, is cut off, or is the tool's own failure.

    ``kind`` is ``unparsable`` for text that is not what it claims, ``truncated`` for a text cut in the
    middle, or the failure's own name (``driver_mismatch``, ``gpu_lost``, ``busy_server``, ``enospc`` ...).
    ``line`` is the offending line as found, shortened to 200 characters. A ``message`` that a renter meets is a
    :class:`~agent.text.Text`, so that a report can say it in his language.
    """

    kind: str
    message: Union[str, Text]
    line: Optional[str] = None

    def __post_init__(self) -> None:
        if self.line is not None:
            self.line = self.line[:LONGEST_LINE]

    def __str__(self) -> str:
        where = f": {self.line!r}" if self.line else ""
        return f"{self.message}{where}"

    @property
    def why(self) -> Text:
        """What :meth:`__str__` says, to be said in any language."""
        message = self.message if isinstance(self.message, Text) else msg("{text}", text=self.message)
        return msg("{message}: {line}", message=message, line=repr(self.line)) if self.line else message


def parsers() -> dict[str, ModuleType]:
    """Every tool module that ``accept parse KIND`` offers, by its ``KIND``."""
    found = {}
    for info in sorted(pkgutil.iter_modules(__path__), key=lambda m: m.name):
        if info.name.startswith("_"):
            continue
        module = importlib.import_module(f"{__name__}.{info.name}")
        kind = getattr(module, "KIND", None)
        if kind is not None:
            found[kind] = module
    return found


def to_json(module: ModuleType, result: Any) -> Any:
    """The JSON value that ``accept parse`` prints; a module may define its own ``to_json(result)``."""
    custom = getattr(module, "to_json", None)
    return custom(result) if custom is not None else asdict(result)
