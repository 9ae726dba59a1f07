"""Matrix multiplication on all devices at once for a stated time, with a rate for each second. See ``_ranks.py``.

Request: ``{"device": "cpu"|"cuda", "ranks", "dtype", "shape": [m, n, k], "seconds", "blocks", "light_s", "batch_s",
"limit_s", "stall_s", "seed", "tolerance": {dtype: …}}``. One process for each device; the time is cut into ``blocks``
stretches of equal length, after each of which the last product is checked as ``gemm.py`` does.

Result: ``{"versions", "device", "devices" (in the order of ranks), "dtype", "shape", "burn": [{"index", "light":
{"started_at", "ended_at"}, "blocks": [{"started_at", "ended_at", "rates", "seconds", "max_error", "row_error",
"correct"}]}], "stopped": {"kind", "detail", "rank", "needs"}}``. ``rates`` are TFLOPS of about a second each,
``seconds`` how long each really was. ``light``: a small load before, in which nothing but a setting holds a clock down.
"""

from __future__ import annotations

import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import _gemm
import _protocol as protocol
import _ranks as ranks

LIGHT_NUMBERS = 1 << 16  # a few thread blocks: the GPU is busy and draws little


def measure(request, folder):
    count = protocol.asked(request, "ranks", int)
    limit_s, stall_s = protocol.asked(request, "limit_s", float), protocol.asked(request, "stall_s", float)
    said, stopped = ranks.run(__file__, folder, count, limit_s, stall_s)
    started = [next((line for line in one if "device" in line), None) for one in said]
    if not all(started):
        raise stopped.as_unable()
    return {
        "device": request["device"],
        "devices": [{**line["device"], "index": rank} for rank, line in enumerate(started)],
        "versions": started[0]["versions"],
        "dtype": request["dtype"],
        "shape": request["shape"],
        "burn": [one_device(rank, lines) for rank, lines in enumerate(said)],
        "stopped": stopped.as_json() if stopped else None,
    }


def one_device(rank, lines):
    light = next((line["light"] for line in lines if "light" in line), None)
    return {"index": rank, "light": light, "blocks": [line["block"] for line in lines if "block" in line]}


# ---------------------------------------------------------------- one rank


def one_rank(request, rank):
    torch = protocol.import_torch()
    kind = protocol.asked(request, "device", str)
    count = protocol.asked(request, "ranks", int)
    index = rank.number if kind == "cuda" else 0
    if kind == "cuda":
        torch.cuda.set_device(index)
    else:
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // count))
    device = protocol.devices(torch, kind)[index]
    rank.say({"device": device, "versions": protocol.versions(torch, kind), "at": "preparing"})
    gemm = _gemm.Gemm(torch, kind, index, protocol.asked(request, "dtype", str), protocol.asked(request, "seed", int))
    gemm.probe()
    with protocol.Guard():
        light(torch, gemm, rank, protocol.asked(request, "light_s", float))
        gemm.prepare(tuple(protocol.asked(request, "shape", list)))
        gemm.multiply()
        gemm.sync()
        ranks.meet(rank, "ready", count, protocol.asked(request, "limit_s", float))
        blocks = protocol.asked(request, "blocks", int)
        for block in range(blocks):
            burn(gemm, rank, request, block, protocol.asked(request, "seconds", float) / blocks)


def light(torch, gemm, rank, seconds):
    values = torch.rand(LIGHT_NUMBERS, device=gemm.device)
    begun, end = protocol.utc_now(), time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(64):
            values.sin_()
        gemm.sync()
    rank.say({"light": {"started_at": begun, "ended_at": protocol.utc_now()}, "at": "the light load"})


def burn(gemm, rank, request, number, seconds):
    batch_s = protocol.asked(request, "batch_s", float)
    operations = 2.0 * gemm.shape[0] * gemm.shape[1] * gemm.shape[2]
    rates, lengths = [], []
    begun, end = protocol.utc_now(), time.monotonic() + seconds
    calls, done, since = 1, 0, time.perf_counter()
    while time.monotonic() < end:
        took = batch(gemm, calls)
        done += calls
        calls = protocol.calls_for(batch_s, took / calls)
        elapsed = time.perf_counter() - since
        # The last second of a stretch is cut where the stretch ends.
        if elapsed >= 1.0 or (time.monotonic() >= end and (elapsed >= 0.5 or not rates)):
            rates.append(operations * done / elapsed / 1e12)
            lengths.append(elapsed)
            rank.say({"at": "second %d of stretch %d" % (len(rates), number)})
            done, since = 0, time.perf_counter()
    ended = protocol.utc_now()
    block = {"started_at": begun, "ended_at": ended, "rates": rates, "seconds": lengths}
    block.update(gemm.checked(number, protocol.asked(request["tolerance"], request["dtype"], float)))
    rank.say({"block": block, "at": "the end of stretch %d" % number})


def batch(gemm, calls):
    start = time.perf_counter()
    for _ in range(calls):
        gemm.multiply()
    gemm.sync()
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(ranks.main("burn", measure, one_rank))
