"""Reports: one renderer a format. A module here with ``FORMAT``, ``EXTENSION`` and ``render`` is one.

``render(run, folder, translate, language) -> str``: ``folder`` is the run folder where there is one (evidence is
read from it), ``translate`` a gettext function for ``language``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Callable, Optional

from agent import resources
from agent.model import Run
from agent.text import Translate, translator

Render = Callable[[Run, Optional[Path], Translate, str], str]


@dataclass(frozen=True)
class Renderer:
    """A format by its name (``html``), the extension of its files (without dot) and its function."""

    format: str
    extension: str
    render: Render


@lru_cache(maxsize=1)
def renderers() -> Mapping[str, Renderer]:
    """All formats by name."""
    modules = [importlib.import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__)]
    found = [Renderer(m.FORMAT, m.EXTENSION, m.render) for m in modules if hasattr(m, "FORMAT")]
    return {r.format: r for r in sorted(found, key=lambda r: r.format)}


def render(run: Run, name: str, folder: Optional[Path] = None, language: Optional[str] = None) -> str:
    """``run`` as the format ``name``, in ``language`` or the run's own. Raises ``KeyError`` for another format."""
    chosen = language or run.language
    return renderers()[name].render(run, folder, translator(chosen, resources.locale_dir()), chosen)
