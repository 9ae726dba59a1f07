"""The headline: what is open for ever is not announced as coming in a later version."""

from __future__ import annotations

from agent.model import UNBUILT, Finding
from agent.text import Text, msg
from agent.verdict import headline


def open_(reason: Text) -> Finding:
    return Finding("gpu.xid", "gpu.xid", "inconclusive", "breach", "none", "unsupported", reason)


def test_unsupported_by_the_hardware_and_not_built_yet_are_two_things() -> None:
    found = [open_(UNBUILT), open_(msg("{path} shows no block devices", path="/sys/class/block")), open_(msg("no MIG"))]
    assert str(headline(found)) == "0 kept, 0 broken, 1 not supported yet, 2 could not be verified"
