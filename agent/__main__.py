"""``python -m agent`` is ``accept``."""

from __future__ import annotations

from agent.cli.main import main

main()
