"""``gpu_ratios.py [cuda|cpu] [SECONDS]``: the workers' rates against bare loops, alternating in one process.

GEMM by ``benchmarks/_gemm.py`` against ``torch.mm``; copies to and from the first GPU, with the link watched as the
worker does, against the same calls of the driver in a plain loop. Prints medians of worker ÷ bare over the pairs.
Status 1 where one is below its target, 2 where one cannot be run. For the Python that has torch; standard library else.
"""

from __future__ import annotations

import os
import statistics
import sys
import time

BENCHMARKS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "benchmarks")
sys.path.insert(0, BENCHMARKS)

import _copies as copies  # noqa: E402 - they lie in the folder that was just named
import _cuda as cuda  # noqa: E402
import _protocol as protocol  # noqa: E402
from _gemm import Gemm  # noqa: E402

GEMM_TARGET, COPY_TARGET = 0.98, 0.95
SHAPES = {"cuda": (8192, 8192, 8192), "cpu": (1024, 1024, 1024)}
COPY_BYTES = 64 << 20
SAMPLE_S = 0.05


def pairs(ours, bare, seconds):
    """worker ÷ bare; each goes first in every other pair."""
    ours(), bare()
    found, end = [], time.monotonic() + seconds
    while time.monotonic() < end or len(found) < 4:
        first = ours()
        found.append(first / bare())
        second = bare()
        found.append(ours() / second)
    return found


def rate(call, wait):
    """Calls a second in one plain loop."""
    start = time.perf_counter()
    call()
    wait()
    calls = max(1, int(SAMPLE_S / (time.perf_counter() - start)))
    start = time.perf_counter()
    for _ in range(calls):
        call()
    wait()
    return calls / (time.perf_counter() - start)


def gemm(kind, seconds):
    torch = protocol.import_torch()
    if kind == "cuda" and not torch.cuda.is_available():
        raise protocol.Unable("no-cuda", protocol.why_no_cuda(torch))
    m, n, k = SHAPES[kind]
    dtype = "fp16" if kind == "cuda" else "fp32"
    worker = Gemm(torch, kind, 0, dtype, 1)
    worker.probe()
    worker.prepare((m, n, k))
    of = {"dtype": torch.float16 if kind == "cuda" else torch.float32, "device": worker.device}
    a, b, c = torch.randn(m, k, **of), torch.randn(k, n, **of), torch.empty(m, n, **of)

    def ours():
        return 1 / statistics.median(worker.time(0.0, 1, SAMPLE_S)["seconds"])

    return pairs(ours, lambda: rate(lambda: torch.mm(a, b, out=c), worker.sync), seconds)


def both_ways(seconds):
    driver = cuda.Driver()
    copier = copies.Copier(driver, driver.devices()[0], COPY_BYTES, "/sys", {})
    copier.gpu.use()
    request = {"warmup_s": 0.0, "samples": 1, "sample_s": SAMPLE_S}
    found = {}
    for name, call in (("h2d", copier.h2d), ("d2h", copier.d2h)):
        copier.run_for(call, copies.WAKE_S)

        def ours(call=call):
            return copier.timed(call, request)["samples"][0] * 1e9 / COPY_BYTES

        found[name] = pairs(ours, lambda call=call: rate(call, copier.gpu.wait), seconds)
    return found


def told(name, values, target):
    middle = statistics.median(values)
    verdict = "met" if middle >= target else "NOT MET"
    print(f"{name} worker / bare: median {middle:.3f} of {len(values)} pairs (>= {target:.2f}: {verdict})")
    return middle >= target


def main(kind="cuda", seconds="10"):
    status, seconds = 0, float(seconds)
    for name, measure in (("gemm", lambda: {"gemm": gemm(kind, seconds)}), ("copies", lambda: both_ways(seconds / 2))):
        target = GEMM_TARGET if name == "gemm" else COPY_TARGET
        try:
            for key, values in measure().items():
                status = status if told(key, values, target) else max(status, 1)
        except protocol.Unable as unable:
            print(f"{name}: cannot be run: {unable.as_json()['detail']}")
            status = 2
    return status


if __name__ == "__main__":
    cuda.leave(main(*sys.argv[1:]))
