"""``report.html`` as a PDF, with WeasyPrint where it is installed (``pip install 'gpu-accept[pdf]'``).

Not a renderer of text like the others: a PDF is bytes. A browser's own printing gives the same pages.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Optional

from agent import resources
from agent.text import Text, msg

_RULES = "pdf-svg.css"
# An opening tag of ours: what is foreign in its attributes is escaped, so that no ">" stands in them.
_SVG = re.compile(r"<svg\b[^>]*>")
_CHINESE = re.compile("[\u4e00-\u9fff]")
# Families that hold Chinese, by the beginning of their files' names.
_FONTS = (
    "notosanscjk", "notoserifcjk", "notosanssc", "notosanshans", "sourcehansans", "sourcehanserif", "wqy-", "msyh",
    "simsun", "simhei", "simkai", "pingfang", "stheiti", "songti", "droidsansfallback", "uming", "ukai", "harmonyos",
)  # fmt: skip
_FOLDERS = ("/usr/share/fonts", "/usr/local/share/fonts", "~/.fonts", "~/.local/share/fonts", "/Library/Fonts")


class PdfError(Exception):
    """There is no PDF; ``text`` says why and what to do."""

    def __init__(self, text: Text) -> None:
        super().__init__(str(text))
        self.text = text


def pdf(html: str) -> bytes:
    """The page as a PDF. :class:`PdfError` where the library is not there or cannot work."""
    try:
        weasyprint = importlib.import_module("weasyprint")
    except ImportError as error:
        raise PdfError(
            msg("a PDF needs WeasyPrint: pip install 'gpu-accept[pdf]', or print report.html from a browser")
        ) from error
    except OSError as error:
        # WeasyPrint loads Pango when it is imported.
        raise PdfError(
            msg("WeasyPrint lacks a library of the system ({error}): apt install libpango-1.0-0 libpangoft2-1.0-0",
                error=str(error)[:160])
        ) from error  # fmt: skip
    made: bytes = weasyprint.HTML(string=_dressed(html), url_fetcher=_nothing).write_pdf()
    return made


def _dressed(html: str) -> str:
    """The page with the rules for pictures inside each of them: WeasyPrint takes none from the page."""
    rules = resources.path("templates", _RULES).read_text(encoding="utf-8")
    return _SVG.sub(lambda m: f"{m[0]}<style>{rules}</style>", html)


def _nothing(url: str, *_: object, **__: object) -> dict[str, object]:
    """A report refers to nothing outside itself; what a hostile text might smuggle in is not fetched."""
    raise ValueError(f"not fetched: {url}")


def missing_font(html: str, folders: Optional[Iterable[str]] = None) -> Optional[Text]:
    """What to say where the page holds Chinese and no font of this machine does; None where all is well."""
    if not _CHINESE.search(html) or any(map(_has_chinese, _FOLDERS if folders is None else folders)):
        return None
    return msg("no Chinese font was found: Chinese characters will be empty boxes; apt install fonts-noto-cjk")


def _has_chinese(folder: str) -> bool:
    for _, _, files in os.walk(Path(folder).expanduser()):
        if any(name.lower().startswith(_FONTS) for name in files):
            return True
    return False
