"""Our own probes as measurements use them: the run, and the JSON object that it printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional

from agent import probes
from agent.facts import _read
from agent.host import Host, Ran
from agent.reading import Reading
from agent.tools._text import one_document


def run_probe(
    host: Host,
    probe: str,
    script: str,
    args: Sequence[str],
    timeout_s: float,
    extra_env: Optional[Mapping[str, str]] = None,
) -> tuple[Ran, Reading[dict[str, Any]]]:
    """Run ``agent/probes/<script>.py`` in a child; see :func:`agent.probes.ask`."""
    ran = probes.ask(host, probe, script, args, timeout_s, extra_env)
    return ran, answer(ran)


def answer(ran: Ran) -> Reading[dict[str, Any]]:
    """The JSON object on stdout, or why there is none."""
    return _read.answer(ran, lambda text: one_document(text, "the probe's"))
