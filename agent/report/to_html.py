"""``report.html``: one file without scripts that opens offline, prints on A4 and fits a phone."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any, Optional

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from agent import resources
from agent.model import Run
from agent.report.clean import shortened, visible
from agent.report.numbers import duration
from agent.report.view import View, view
from agent.text import Text, Translate

FORMAT = "html"
EXTENSION = "html"
_TEMPLATE = "report.html.j2"
_STYLE = "report.css"
_BETWEEN = re.compile(r">\s*\n\s*<")


def render(run: Run, folder: Optional[Path], translate: Translate, language: str) -> str:
    """The page; everything from the machine or the contract is escaped."""
    shown = view(run, folder, translate, language)
    page = environment(translate).get_template(_TEMPLATE)
    return compact(page.render(v=shown, style=style(_running(shown)), lang=html_language(language)))


def compact(page: str) -> str:
    """Without the templates' indentation between tags; raw output keeps its own. A ``>`` in a text is escaped."""
    parts = page.split("<pre")
    return "<pre".join([_squeezed(parts[0]).lstrip(), *(_after_pre(part) for part in parts[1:])])


def _after_pre(part: str) -> str:
    raw, end, rest = part.partition("</pre>")
    return raw + end + _squeezed(rest)


def _squeezed(text: str) -> str:
    return _BETWEEN.sub(">\n<", text)


@lru_cache(maxsize=4)
def environment(translate: Translate) -> Environment:
    """Templates in one language, escaping everything."""
    environment = Environment(
        loader=FileSystemLoader(str(resources.path("templates"))),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.i18n"],
        finalize=_harmless,
    )
    # Plain functions: what they return is text that is escaped like any other, and a % in it is only a %.
    environment.globals.update(_=translate, gettext=translate, ngettext=_plural(translate))
    environment.filters["say"] = lambda text: text.render(translate) if isinstance(text, Text) else text
    environment.filters["lasts"] = lambda seconds: duration(seconds).render(translate)
    return environment


def _plural(translate: Translate) -> Any:
    return lambda one, many, n: translate(one if n == 1 else many)


def _harmless(value: Any) -> Any:
    """The last guard: no control or reordering character reaches the page, whatever a view forgot."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _running(v: View) -> str:
    """The header and footer of every printed page: what it is of, the verdict, the digest."""
    left = shortened(v.title, 60) + (f" · {shortened(v.server, 40)}" if v.server else "")
    foot = f"{shortened(v.run_id, 50)}" + (f" · sha256 {v.digest[:16]}…" if v.digest else "")
    boxes = {"top-left": left, "top-right": f"{v.look.sigil} {v.verdict}", "bottom-left": foot}
    rules = "".join(f"@{name}{{content:{css_string(text)}}}" for name, text in boxes.items())
    return f"@page{{{rules}}}"


def css_string(text: str) -> str:
    """A CSS string in which everything but letters and digits of ASCII is spelled by its code: nothing can end it."""
    return '"' + "".join(c if c.isascii() and c.isalnum() else f"\\{ord(c):x} " for c in text) + '"'


def style(more: str = "") -> Markup:
    """Our own style sheet and rules that :func:`css_string` made harmless: the one thing that is not escaped."""
    return Markup(_sheet() + more)  # noqa: S704


@lru_cache(maxsize=1)
def _sheet() -> str:
    return resources.path("templates", _STYLE).read_text(encoding="utf-8")


def html_language(language: str) -> str:
    """The ``lang`` of a page."""
    return {"zh": "zh-Hans"}.get(language, language)
