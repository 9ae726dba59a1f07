"""The all-reduce worker's timing against a bare loop over gloo: same ranks, same size, alternating in one process.

``python -m tests.perf.allreduce_ratio [--seconds 20] [--json FILE]`` needs torch in this Python. Two ranks; samples of
the two follow each other, so that what else the machine does touches both. Prints the median of worker ÷ bare over
the pairs; exit 1 where it is under 0.97.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent import resources

TARGET = 0.97
RANKS = 2
SIZE = 8 << 20
CALLS = 8
ROUNDS = 400  # as many as the seconds allow


def bare(torch: Any, group: Any) -> Callable[[], float]:
    """The loop that anybody would write; seconds a call."""
    tensor = torch.ones(SIZE // 4)

    def measure() -> float:
        torch.distributed.barrier(group=group)
        start = time.perf_counter()
        for _ in range(CALLS):
            torch.distributed.all_reduce(tensor, group=group)
        seconds = (time.perf_counter() - start) / CALLS
        tensor.fill_(1.0)
        return seconds

    return measure


def worker(torch: Any, group: Any, rank: int) -> Callable[[], float]:
    """The timing of ``benchmarks/allreduce.py``; seconds a call."""
    sys.path.insert(0, str(resources.path("benchmarks")))
    module = importlib.import_module("allreduce")

    class Number:
        """What the collective asks of its rank."""

        number = rank

    class Node:
        """This rank, as the worker knows itself."""

        def __init__(self) -> None:
            self.torch, self.dist, self.device, self.rank = torch, torch.distributed, "cpu", Number

        def sync(self) -> None:
            """The CPU is done when the call returns."""

    collective = module.Collective(Node(), group, RANKS, "all_reduce", SIZE)
    return lambda: float(collective.sample(CALLS))


def one_rank(rank: int, meet: str, seconds: float) -> None:
    """Rank 0 writes the ratios of its own times, one a line."""
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(1)
    dist = torch.distributed
    dist.init_process_group("gloo", init_method=f"file://{meet}/store", rank=rank, world_size=RANKS)
    ours, theirs = worker(torch, None, rank), bare(torch, None)
    ours(), theirs()
    end, go = time.monotonic() + seconds, torch.ones(1)
    for turn in range(ROUNDS):
        go.fill_(float(time.monotonic() < end))
        dist.broadcast(go, 0)
        if not go.item():
            break
        first, second = (ours, theirs) if turn % 2 else (theirs, ours)
        a, b = first(), second()
        if rank == 0:
            print(b / a if turn % 2 else a / b, flush=True)  # rates: their seconds over ours


def ratios(seconds: float) -> list[float]:
    """worker ÷ bare of each pair, as rates."""
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    with tempfile.TemporaryDirectory() as meet:
        argv = [sys.executable, "-m", "tests.perf.allreduce_ratio", "--seconds", str(seconds), "--meet", meet, "--rank"]
        others = [subprocess.Popen([*argv, str(r)], env=environment) for r in range(1, RANKS)]
        done = subprocess.run([*argv, "0"], env=environment, stdout=subprocess.PIPE, text=True, check=True)
        for other in others:
            other.wait(30)
    return sorted(float(line) for line in done.stdout.splitlines())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.perf.allreduce_ratio", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--meet", help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if importlib.util.find_spec("torch") is None:
        print("all-reduce worker ÷ bare loop: not measured, this Python has no torch")
        return 0
    if options.meet is not None:
        one_rank(options.rank, options.meet, options.seconds)
        return 0
    values = ratios(options.seconds)
    middle, low, high = statistics.median(values), values[len(values) // 4], values[-len(values) // 4 - 1]
    print(
        f"all-reduce worker ÷ bare loop, gloo, {RANKS} ranks, {SIZE >> 20} MiB: median {middle:.3f} "
        f"of {len(values)} pairs, half of them {low:.3f} to {high:.3f}; target ≥ {TARGET}"
    )
    if options.json:
        options.json.write_text(json.dumps({"allreduce_ratio": middle, "target": TARGET}))
    return 0 if middle >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
