"""Probes of our own: small scripts of the standard library, run in a child with a deadline, answering in JSON."""

from __future__ import annotations

import json
import pkgutil
from collections.abc import Sequence
from typing import Any

from agent.host import Host, Ran
from agent.reading import Known, Missing, Reading
from agent.text import msg


def run_probe(host: Host, probe: str, script: str, args: Sequence[str], timeout_s: float) -> tuple[Ran, Reading[Any]]:
    """Run ``agent/probes/<script>`` and read the JSON object it prints.

    The script is copied into the evidence, so that the recording shows what was run and the agent may lie in a
    zip. ``-I``: nothing of the user's Python environment may change what is measured.
    """
    source = pkgutil.get_data("agent.probes", script)
    if source is None:
        raise FileNotFoundError(script)
    argv = [host.python(), "-I", f"{{evidence}}/{script}", *args]
    ran = host.run(probe, argv, timeout_s, inputs={script: source})
    return ran, answer(ran)


def answer(ran: Ran) -> Reading[Any]:
    """The JSON object on stdout, or why there is none."""
    missing = ran.missing()
    if missing is not None:
        return missing
    try:
        value = json.loads(ran.stdout)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        said = (ran.stderr.strip().splitlines() or [ran.stdout[:200]])[-1]
        return Missing("unparsable", msg("a probe of accept gave no answer: {said}", said=said), ran.cited)
    return Known(value, ran.cited)
