"""iperf3 through the agent's bench against the bare command with the same arguments, alternating in one run.

``python -m tests.perf.iperf3_ratio [--pairs 5]`` measures, in under a minute, over a line of 200 Mbit/s between two
network namespaces. Beside each repetition of the bench the very same command is started from a plain ``subprocess``,
before or after it by turns. Prints the median of agent ÷ bare for each direction, and whether the bench's values are
those of iperf3's JSON; exit 1 where a median is outside 0.97 to 1.03 or a value differs.

Without root the line is bare loopback, whose rate is the scheduler's mood (two runs of the same command differ by a
third on a busy machine): the ratio is then printed and does not decide.
"""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Optional

from agent.bench import network
from agent.bench.step import Look
from agent.evidence import Store
from agent.model import Taken
from tests import netns
from tests.perf._pairs import Alternating, ended, told

DIRECTIONS = ("download", "upload")
SECONDS, OMIT_S = 1, 1


def series(probe: str, argv: Sequence[str]) -> Optional[str]:
    """The repetitions of either direction."""
    if ".rep" not in probe:
        return None
    return "download" if "-R" in argv else "upload"


def rate(text: str) -> float:
    """What the receiver counted, read without the agent's parser."""
    document, _ = json.JSONDecoder().raw_decode(text)
    return float(document["end"]["sum_received"]["bits_per_second"])


@contextmanager
def server() -> Iterator[int]:
    """An iperf3 server on a free port of loopback."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    command = ["iperf3", "-s", "-B", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        time.sleep(0.3)  # the server has to notice that this was no client
        yield port
    finally:
        process.kill()
        process.wait(10)


def measure(far: str, prefix: Sequence[str], pairs: int) -> tuple[dict[str, list[float]], int]:
    """Ratios by direction, and how many of the bench's series are not what iperf3 printed."""
    network.PLANS = {"standard": network.Plan(pairs, SECONDS, OMIT_S)}
    entry = network.Entry("line", (far,), dict.fromkeys(DIRECTIONS, 2e8))
    with tempfile.TemporaryDirectory() as run:
        host = Alternating(Store(Path(run)), series, rate, prefix=prefix)
        results = network.step(entry).execute(host, Look())
    differing = 0
    for direction in DIRECTIONS:
        taken = results[entry.key(direction)]
        if not isinstance(taken, Taken):
            sys.exit(f"iperf3 could not measure: {taken.detail}")
        differing += host.differ(direction, taken.attempt.blocks, 1 / 8)
    return host.ratios, differing


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.perf.iperf3_ratio", description=__doc__)
    parser.add_argument("--pairs", type=int, default=5, help="for each direction")
    options = parser.parse_args()
    if shutil.which("iperf3") is None:
        print("iperf3, agent ÷ bare: not measured, iperf3 is not installed")
        return 0
    why_not = netns.unavailable("iperf3")
    prefix: tuple[str, ...] = ()
    with ExitStack() as stack:
        if why_not is None:
            hosts = stack.enter_context(netns.two_hosts(rate="200mbit"))
            hosts.iperf3(netns.FAR[0])
            line, far, prefix = "shaped line", f"{netns.FAR[0]}:5201", ("ip", "netns", "exec", hosts.near)
        else:
            line, far = f"loopback ({why_not})", f"127.0.0.1:{stack.enter_context(server())}"
        ratios, differing = measure(far, prefix, options.pairs)
    within = [told(f"iperf3 {direction}, {line}", values) for direction, values in ratios.items()]
    return ended("iperf3's JSON", all(within), differing, decides=why_not is None)


if __name__ == "__main__":
    sys.exit(main())
