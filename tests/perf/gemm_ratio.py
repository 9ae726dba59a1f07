"""The GEMM worker's blocks against a bare ``torch.mm`` loop: same shape, same threads, alternating in one process.

``python -m tests.perf.gemm_ratio [--seconds 18] [--json FILE]`` needs torch in this Python. Blocks of the two follow
each other within a quarter of a second, so that what else the machine does touches both. Prints for fp32 and bf16 the
median of worker ÷ bare over the pairs; exit 1 where one is under 0.98.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from agent import resources

TARGET = 0.98
SHAPE = (1536, 1536, 1536)
SAMPLES = 3
SAMPLE_S = 0.02  # short blocks, many pairs: other load on the machine then touches both alike
KINDS = {"fp32": "float32", "bf16": "bfloat16"}


def bare(torch: Any, dtype: str) -> Callable[[], float]:
    """The loop that anybody would write, with as many samples of the same length: its median, in TFLOPS."""
    m, n, k = SHAPE
    kind = getattr(torch, KINDS[dtype])
    a, b, c = torch.randn(m, k).to(kind), torch.randn(k, n).to(kind), torch.empty(m, n, dtype=kind)

    def timed(calls: int) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            torch.mm(a, b, out=c)
        return (time.perf_counter() - start) / calls

    def measure() -> float:
        calls = max(1, int(SAMPLE_S / min(timed(1), timed(1))))
        seconds = [timed(calls) for _ in range(SAMPLES)]
        return 2 * m * n * k / statistics.median(seconds) / 1e12

    return measure


def worker(torch: Any, dtype: str) -> Callable[[], float]:
    """The timing of one block of ``benchmarks/gemm.py``: rotated operands, warm-up, samples."""
    sys.path.insert(0, str(resources.path("benchmarks")))
    gemm = importlib.import_module("gemm").Gemm(torch, "cpu", 0, dtype, 1)
    gemm.prepare(SHAPE)

    def measure() -> float:
        timing = gemm.time(0.0, SAMPLES, SAMPLE_S)
        return 2 * SHAPE[0] * SHAPE[1] * SHAPE[2] / float(statistics.median(timing["seconds"])) / 1e12

    return measure


def ratios(torch: Any, dtype: str, seconds: float) -> Iterator[float]:
    """worker ÷ bare; each goes first in every other pair, so that a machine that slows down favours neither."""
    ours, theirs = worker(torch, dtype), bare(torch, dtype)
    ours(), theirs()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        first = ours()
        yield first / theirs()
        second = theirs()
        yield ours() / second


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.perf.gemm_ratio", description=__doc__)
    parser.add_argument("--seconds", type=float, default=18.0, help="for each type of number")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if importlib.util.find_spec("torch") is None:
        print("gemm worker ÷ bare torch.mm: not measured, this Python has no torch")
        return 0
    torch: Any = importlib.import_module("torch")
    found = {dtype: sorted(ratios(torch, dtype, options.seconds)) for dtype in KINDS}
    for dtype, values in found.items():
        what = f"gemm worker ÷ bare torch.mm, {dtype}, {SHAPE[0]}³, {torch.get_num_threads()} threads"
        low, high = values[len(values) // 4], values[-len(values) // 4 - 1]
        middle = f"median {statistics.median(values):.3f} of {len(values)} pairs, half of them {low:.3f} to {high:.3f}"
        print(f"{what}: {middle}; target ≥ {TARGET}")
    if options.json:
        medians = {f"gemm_ratio_{d}": statistics.median(v) for d, v in found.items()}
        options.json.write_text(json.dumps({**medians, "target": TARGET}))
    return 0 if all(statistics.median(v) >= TARGET for v in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
