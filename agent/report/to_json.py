"""``result.json`` itself, with its sentences in the language asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Optional

from agent.model import Run
from agent.result import dumps, to_json
from agent.text import Translate

FORMAT = "json"
EXTENSION = "json"


def render(run: Run, folder: Optional[Path], translate: Translate, language: str) -> str:
    """The result as JSON text."""
    del folder, translate  # the result renders its own sentences
    return dumps(to_json(replace(run, language=language)))
