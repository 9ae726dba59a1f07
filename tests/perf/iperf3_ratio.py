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
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Optional

from agent.bench import network
from agent.bench.step import Look
from agent.evidence import Store
from agent.host import LiveHost, Ran
from agent.model import Taken
from tests import netns

LOW, HIGH = 0.97, 1.03
DIRECTIONS = ("download", "upload")
SECONDS, OMIT_S = 1, 1


class Alternating(LiveHost):
    """Runs each repetition of the bench twice: for the bench, and bare."""

    def __init__(self, store: Store, prefix: Sequence[str]) -> None:
        super().__init__(store)
        self.prefix = prefix
        self.pairs: dict[str, list[float]] = {d: [] for d in DIRECTIONS}
        self.printed: dict[str, list[float]] = {d: [] for d in DIRECTIONS}

    def run(
        self,
        probe: str,
        argv: Sequence[str],
        timeout_s: float,
        *,
        worker: bool = False,
        extra_env: Optional[Mapping[str, str]] = None,
        cwd: Optional[str] = None,
        inputs: Optional[Mapping[str, bytes]] = None,
    ) -> Ran:
        measured = ".rep" in probe
        direction = "download" if "-R" in argv else "upload"
        command = [*self.prefix, *argv]
        bare_first = len(self.pairs[direction]) % 2 == 1
        theirs = bare(command) if measured and bare_first else None
        ran = super().run(probe, command, timeout_s, worker=worker, extra_env=extra_env, cwd=cwd, inputs=inputs)
        if measured:
            ours = rate(ran.stdout)
            self.printed[direction].append(ours)
            self.pairs[direction].append(ours / (theirs or bare(command)))
        return ran


def bare(argv: Sequence[str]) -> float:
    """Bits per second of the same command, started by hand."""
    return rate(subprocess.run(list(argv), check=True, capture_output=True, text=True).stdout)


def rate(text: str) -> float:
    """What the receiver counted, read without the agent's parser."""
    return float(json.loads(text)["end"]["sum_received"]["bits_per_second"])


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
        host = Alternating(Store(Path(run)), prefix)
        results = network.step(entry).execute(host, Look())
    differing = 0
    for direction in DIRECTIONS:
        taken = results[entry.key(direction)]
        if not isinstance(taken, Taken):
            sys.exit(f"iperf3 could not measure: {taken.detail}")
        differing += [b.value for b in taken.attempt.blocks] != [r / 8 for r in host.printed[direction]]
    return host.pairs, differing


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
    for direction, values in ratios.items():
        ordered = sorted(values)
        print(
            f"iperf3 {direction}, {line}, agent ÷ bare: median {statistics.median(values):.3f} of {len(values)} pairs "
            f"({ordered[0]:.3f} to {ordered[-1]:.3f}); target {LOW} to {HIGH}"
        )
    print(f"series whose values are not those of iperf3's JSON: {differing}")
    within = why_not is not None or all(LOW <= statistics.median(v) <= HIGH for v in ratios.values())
    return 0 if within and not differing else 1


if __name__ == "__main__":
    sys.exit(main())
