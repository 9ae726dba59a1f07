"""Where the files that are not Python lie: beside the package in an install, in the top folders of a checkout."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_IN_CHECKOUT = {"templates": "reports/templates", "contracts": "contracts", "benchmarks": "benchmarks"}


def path(kind: str, *parts: str) -> Path:
    """``path("templates", "report.html.j2")``; kinds are templates, contracts and benchmarks.

    The file need not exist. Raises ``KeyError`` for another kind.
    """
    in_checkout = _PACKAGE.parent / _IN_CHECKOUT[kind]
    installed = _PACKAGE / "data" / kind
    root = installed if installed.is_dir() else in_checkout
    return root.joinpath(*parts)


def locale_dir() -> Path:
    """The gettext catalogues."""
    return path("templates", "locale")
