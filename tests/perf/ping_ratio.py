"""ping through the agent's bench against the bare command with the same arguments, alternating in one run.

``python -m tests.perf.ping_ratio [--pairs 6]`` measures, in under a minute, the round trip over a wire of 10 ms one way
between two network namespaces. Prints the median of agent ÷ bare, and whether the bench's values are those that ping
printed; exit 1 where the median is outside 0.97 to 1.03 or a value differs. Without root or vde2 it measures loopback,
whose round trip is the scheduler's mood: the ratio is then printed and does not decide.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Optional

from agent.bench import ping
from agent.bench.step import Look
from agent.evidence import Store
from agent.model import Taken
from tests import netns
from tests.perf._pairs import Alternating, ended, told

PING = "ping"
AVERAGE = re.compile(r"= [0-9.]+/([0-9.]+)/")


def series(probe: str, argv: Sequence[str]) -> Optional[str]:
    """The repetitions of the bench."""
    return PING if re.search(r"\.rep\d+$", probe) else None


def average(text: str) -> float:
    """Milliseconds, as ping prints them."""
    found = AVERAGE.search(text)
    if found is None:
        sys.exit(f"ping printed no average: {text}")
    return float(found[1])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.perf.ping_ratio", description=__doc__)
    parser.add_argument("--pairs", type=int, default=6)
    options = parser.parse_args()
    if shutil.which("ping") is None:
        print("ping, agent ÷ bare: not measured, ping is not installed")
        return 0
    why_not = netns.unavailable("ping", "vde_switch", "wirefilter")
    prefix: tuple[str, ...] = ()
    ping.REPEATS = {"standard": options.pairs}
    with ExitStack() as stack:
        run = stack.enter_context(tempfile.TemporaryDirectory())
        line, far = f"loopback ({why_not})", "127.0.0.1"
        if why_not is None:
            hosts = stack.enter_context(netns.two_hosts(delay_ms=10))
            line, far, prefix = "a wire of 10 ms", netns.FAR[0], ("ip", "netns", "exec", hosts.near)
        host = Alternating(Store(Path(run)), series, average, prefix=prefix)
        taken = ping.step(ping.Entry(far, ("latency",))).execute(host, Look())[f"ping[{far}].latency"]
    if not isinstance(taken, Taken):
        sys.exit(f"ping could not measure: {taken.detail}")
    within = told(f"ping, {line}", host.ratios[PING])
    return ended("ping's summary", within, host.differ(PING, taken.attempt.blocks), decides=why_not is None)


if __name__ == "__main__":
    sys.exit(main())
