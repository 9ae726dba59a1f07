"""User-visible sentences: an English template with named arguments, rendered in any language later.

A :class:`Text` travels through findings and ``result.json`` unrendered, so that a run made in Chinese can be
reported in English. ``msg("...")`` is also the keyword that the catalogue extraction looks for.
"""

from __future__ import annotations

import gettext
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Union

Translate = Callable[[str], str]
Plain = Union[str, int, float, bool, None]
LANGUAGES = ("en", "zh")
DOMAIN = "accept"


@dataclass(frozen=True)
class Text:
    """A template and its arguments; arguments may be texts themselves."""

    template: str
    args: tuple[tuple[str, Any], ...] = ()

    def render(self, translate: Translate = str) -> str:
        """The sentence in the language of ``translate`` (a gettext function); English by default."""
        filled = {k: _render_arg(v, translate) for k, v in self.args}
        return translate(self.template).format_map(filled) if filled else translate(self.template)

    def __str__(self) -> str:
        return self.render()


def msg(template: str, **args: Any) -> Text:
    """A sentence to be shown to a person: ``msg("{n} of {m} GPUs answered", n=7, m=8)``.

    Literal braces in a template without arguments stay as they are.
    """
    return Text(template, tuple(sorted(args.items())))


_SEPARATOR = msg(", ")


def _render_arg(value: Any, translate: Translate) -> Any:
    if isinstance(value, Text):
        return value.render(translate)
    if isinstance(value, (tuple, list)):
        return translate(_SEPARATOR.template).join(str(_render_arg(v, translate)) for v in value)
    return value


def text_to_json(text: Text) -> dict[str, Any]:
    """``{"template": …, "args": {…}}``; nested texts likewise."""
    return {"template": text.template, "args": {k: _arg_to_json(v) for k, v in text.args}}


def _arg_to_json(value: Any) -> Any:
    if isinstance(value, Text):
        return text_to_json(value)
    if isinstance(value, (tuple, list)):
        return [_arg_to_json(v) for v in value]
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    return str(value)


def text_from_json(data: Mapping[str, Any]) -> Text:
    """The inverse of :func:`text_to_json`."""
    return msg(data["template"], **{k: _arg_from_json(v) for k, v in data.get("args", {}).items()})


def _arg_from_json(value: Any) -> Any:
    if isinstance(value, dict) and "template" in value:
        return text_from_json(value)
    if isinstance(value, list):
        return tuple(_arg_from_json(v) for v in value)
    return value


def translator(language: str, locale_dir: Path) -> Translate:
    """gettext for ``language``; English is the templates themselves."""
    if language == "en":
        return str
    found = gettext.translation(DOMAIN, str(locale_dir), [language], fallback=True)
    return found.gettext
