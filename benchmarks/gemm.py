"""Matrix multiplication rate of each device, by type of number, with the result checked. See ``_protocol.py``.

Request: ``{"device": "cpu"|"cuda", "dtypes": ["bf16", …], "shapes": [[m, n, k], …], "search_s", "blocks", "samples",
"sample_s", "warmup_s", "pause_s", "together_s", "beside", "limit_s", "seed", "tolerance": {"bf16": 0.03, …},
"threads": null, "indexes": null}``. ``indexes`` picks devices (null: all), ``threads`` those of the CPU (null: torch's
choice). With several shapes the fastest on the first device within ``search_s`` is measured, on all devices.
``together_s`` (0 where it is left out): afterwards for so long on all devices at once. ``beside`` (null where it is
left out): last of all one block of this [m, n, k] on each device, where the measured shape is another.

Result: ``{"versions", "device", "threads", "devices": [{"index", "name", "uuid", "slot"}], "dtypes": {"bf16":
{"shape", "search": [{"shape", "tflops"}], "api", "operands", "stopped", "devices": [{"index", "blocks": [{"samples",
"warmup", "seconds", "calls", "started_at", "ended_at", "max_error", "row_error", "correct"}], "together" (TFLOPS beside
all others, null), "bits": {"inputs", "product"} (null), "beside": {"shape", as a block or "error"} (null), "error"}],
"fast_accumulation"},
"fp8": {"unavailable": {"kind", "detail", "needs"}}}}``. Samples are TFLOPS (2·m·n·k operations), seconds are those of
one multiplication.

What makes it honest: random-normal data (zeros draw less power and run up to 15 % faster), several operand sets
taken in turn so that none is found in cache, every product written out, and after each block the last product compared
with float64: some rows × columns entry by entry on the CPU, all rows by their sums on the device.
"""

from __future__ import annotations

import os
import statistics
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # `python -I` leaves the script's folder out

import _protocol as protocol
from _gemm import Gemm, tflops


def measure(request):
    torch = protocol.import_torch()
    kind = protocol.asked(request, "device", str)
    clock = protocol.Clock(protocol.asked(request, "limit_s", float))
    if request.get("threads") is not None:
        torch.set_num_threads(protocol.asked(request, "threads", int))
    found = protocol.chosen(protocol.devices(torch, kind), request)
    return {
        "device": kind,
        "devices": found,
        "threads": torch.get_num_threads(),
        "dtypes": {
            dtype: one_dtype(torch, kind, found, dtype, request, clock)
            for dtype in protocol.asked(request, "dtypes", list)
        },
        "versions": protocol.versions(torch, kind),
    }


def one_dtype(torch, kind, found, dtype, request, clock):
    try:
        gemms = [Gemm(torch, kind, d["index"], dtype, protocol.asked(request, "seed", int)) for d in found]
        for gemm in gemms:
            gemm.probe()
    except protocol.Unable as unable:
        return {"unavailable": unable.as_json()}
    shape, search = best_shape(gemms[0], request, clock)
    empty = {"together": None, "bits": None, "beside": None, "error": None}
    results = {g.index: {"index": g.index, "blocks": [], **empty} for g in gemms}
    by_index = {g.index: g for g in gemms}
    tolerance = protocol.asked(protocol.asked(request, "tolerance", dict), dtype, float)

    def one(index, block):
        result = results[index]
        if result["error"] is not None:
            return
        try:
            by_index[index].prepare(shape)
            result["blocks"].append(by_index[index].block(request, block, tolerance))
        except protocol.Unable as unable:
            result["error"] = unable.as_json()

    stopped = protocol.interleaved(
        list(by_index),
        protocol.asked(request, "blocks", int),
        protocol.asked(request, "pause_s", float),
        clock,
        one,
    )
    whole = [by_index[i] for i, r in results.items() if r["error"] is None and r["blocks"]]
    for gemm in whole:
        try:
            results[gemm.index]["bits"] = gemm.bits()
        except protocol.Unable:
            continue  # no memory for it: the blocks stand
    seconds = float(request.get("together_s") or 0)
    if stopped is None and len(whole) > 1 and 0 < seconds < clock.left():
        for index, rate in together(whole, seconds).items():
            results[index]["together"] = rate
    if stopped is None and request.get("beside") is not None:
        other = tuple(protocol.asked(request, "beside", list))
        for gemm in whole if other != shape else ():
            results[gemm.index]["beside"] = beside(gemm, other, request, tolerance, clock)
    return {
        "shape": list(shape),
        "search": search,
        "api": gemms[0].api,
        "operands": len(gemms[0].sets),
        "fast_accumulation": gemms[0].fast_accumulation,
        "stopped": stopped,
        "devices": list(results.values()),
    }


def beside(gemm, shape, request, tolerance, clock):
    """One block of another shape, or why there is none: the blocks before it stand."""
    try:
        if clock.left() <= 0:
            raise protocol.Unable("time-limit", "no time was left for it")
        gemm.prepare(shape)
        return {"shape": list(shape), **gemm.block(request, 0, tolerance)}
    except protocol.Unable as unable:
        return {"shape": list(shape), "error": unable.as_json()}


def together(gemms, seconds):
    """TFLOPS of each device while all of them multiply, by index; a device that errs meanwhile is left out."""
    rates = {}
    barrier = threading.Barrier(len(gemms))

    def one(gemm):
        barrier.wait()
        try:
            timing = gemm.time(seconds / 2, 5, seconds / 10)
        except protocol.Unable:
            return
        rates[gemm.index] = statistics.median(tflops(gemm.shape, s) for s in timing["seconds"])

    threads = [threading.Thread(target=one, args=(gemm,)) for gemm in gemms]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return rates


def best_shape(gemm, request, clock):
    """(shape, what each candidate reached). A single candidate is not searched."""
    shapes = [tuple(s) for s in protocol.asked(request, "shapes", list)]
    if not shapes:
        raise protocol.Unable("bad-request", "shapes: none given")
    if len(shapes) == 1:
        return shapes[0], []
    limit = protocol.Clock(min(protocol.asked(request, "search_s", float), clock.left()))
    sample_s = protocol.asked(request, "sample_s", float)
    tried = []
    for shape in shapes:
        if tried and limit.left() <= 0:
            break
        try:
            gemm.prepare(shape)
            timing = gemm.time(0.2, 3, sample_s)
        except protocol.Unable as unable:
            if unable.kind != "out-of-memory":
                raise
            tried.append({"shape": list(shape), "tflops": None})
            continue
        rate = statistics.median(tflops(shape, s) for s in timing["seconds"])
        tried.append({"shape": list(shape), "tflops": rate})
    reached = [t for t in tried if t["tflops"] is not None]
    if not reached:
        return shapes[0], tried
    return tuple(max(reached, key=lambda t: t["tflops"])["shape"]), tried


if __name__ == "__main__":
    sys.exit(protocol.main("gemm", measure))
