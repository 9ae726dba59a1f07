"""Taking names, addresses, serials, paths and secrets out of a run, so that it still judges to the same verdict."""

from __future__ import annotations

from pathlib import Path

REDACTION = "redaction.json"  # what a redacted copy says of itself


def is_redacted(folder: Path) -> bool:
    """Whether a run folder is a redacted copy."""
    return (folder / REDACTION).is_file()
