"""``report.html``: one file without scripts that opens offline, prints on A4 and fits a phone."""

from __future__ import annotations

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


def render(run: Run, folder: Optional[Path], translate: Translate, language: str) -> str:
    """The page; everything from the machine or the contract is escaped."""
    shown = view(run, folder, translate, language)
    page = environment(translate).get_template(_TEMPLATE)
    return page.render(v=shown, style=style(), running=_running(shown), lang=html_language(language))


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


def _running(v: View) -> Markup:
    """The header and footer of every printed page: what it is of, the verdict, the digest."""
    left = shortened(v.title, 60) + (f" · {shortened(v.server, 40)}" if v.server else "")
    foot = f"{shortened(v.run_id, 50)}" + (f" · sha256 {v.digest[:16]}…" if v.digest else "")
    boxes = {"top-left": left, "top-right": f"{v.look.sigil} {v.verdict}", "bottom-left": foot}
    rules = "".join(f"@{name}{{content:{css_string(text)}}}" for name, text in boxes.items())
    return Markup("@page{{{}}}").format(Markup(rules))  # noqa: S704


def css_string(text: str) -> str:
    """A CSS string in which everything but letters and digits of ASCII is spelled by its code: nothing can end it."""
    return '"' + "".join(c if c.isascii() and c.isalnum() else f"\\{ord(c):x} " for c in text) + '"'


@lru_cache(maxsize=1)
def style() -> Markup:
    """Our own style sheet, the one thing that is not escaped."""
    return Markup(resources.path("templates", _STYLE).read_text(encoding="utf-8"))  # noqa: S704


def html_language(language: str) -> str:
    """The ``lang`` of a page."""
    return {"zh": "zh-Hans"}.get(language, language)
