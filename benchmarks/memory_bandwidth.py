"""Rate of the memory of each GPU: the triad a = b + s·c, both reads and the write counted. See ``_protocol.py``.

Request: ``{"device": "cpu"|"cuda", "buffer_bytes", "blocks", "samples", "sample_s", "warmup_s", "pause_s",
"limit_s", "seed", "indexes": null}``. ``buffer_bytes`` is the size of each of the three arrays of fp32 numbers.

Result: ``{"versions", "device", "devices": [{"index", "name", "uuid", "slot"}], "buffer_bytes", "stopped",
"triad": [{"index", "blocks": [{"samples", "warmup", "seconds", "calls", "started_at", "ended_at", "max_error",
"correct"}], "error"}]}``. Samples are GB/s: 3 · buffer_bytes a call.

What makes it honest: arrays far larger than any cache, random numbers, and after each block the whole result compared
with the same sum made another way; it is filled with NaN before, so that a triad that never ran shows.
"""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # `python -I` leaves the script's folder out

import _protocol as protocol

SCALE = 3.0
STRIP = 1 << 24  # numbers compared at a time
TOLERANCE = 1e-6  # fp32 rounds to 6e-8 of the largest term


def measure(request):
    torch = protocol.import_torch()
    kind = protocol.asked(request, "device", str)
    clock = protocol.Clock(protocol.asked(request, "limit_s", float))
    found = protocol.chosen(protocol.devices(torch, kind), request)
    size = protocol.asked(request, "buffer_bytes", int)
    results = {d["index"]: {"index": d["index"], "blocks": [], "error": None} for d in found}

    def one(index, block):
        result = results[index]
        if result["error"] is not None:
            return
        try:
            with protocol.Guard():
                # Made anew for each block, so that other devices' host memory and a shared card are left free.
                result["blocks"].append(Triad(torch, kind, index, size, request).block(request))
        except protocol.Unable as unable:
            result["error"] = unable.as_json()

    blocks, pause_s = protocol.asked(request, "blocks", int), protocol.asked(request, "pause_s", float)
    stopped = protocol.interleaved(list(results), blocks, pause_s, clock, one)
    return {
        "device": kind,
        "devices": found,
        "buffer_bytes": size,
        "stopped": stopped,
        "triad": list(results.values()),
        "versions": protocol.versions(torch, kind),
    }


class Triad:
    """Three arrays on one device."""

    def __init__(self, torch, kind, index, size, request):
        self.torch = torch
        self.device = "cpu" if kind == "cpu" else "cuda:%d" % index
        self.sync = protocol.synchronise(torch, kind, index)
        generator = torch.Generator(device=self.device).manual_seed(protocol.asked(request, "seed", int))
        count = size // 4
        self.b = torch.randn(count, generator=generator, device=self.device)
        self.c = torch.randn(count, generator=generator, device=self.device)
        self.a = torch.full((count,), float("nan"), device=self.device)

    def run(self):
        self.torch.add(self.b, self.c, alpha=SCALE, out=self.a)

    def block(self, request):
        timing = protocol.timed_block(
            self.run,
            self.sync,
            protocol.asked(request, "warmup_s", float),
            protocol.asked(request, "samples", int),
            protocol.asked(request, "sample_s", float),
        )
        moved = 3 * 4 * self.a.numel()
        error = self.max_error()
        return {
            "started_at": timing["started_at"],
            "ended_at": timing["ended_at"],
            "calls": timing["calls"],
            "seconds": timing["seconds"],
            "samples": [moved / s / 1e9 for s in timing["seconds"]],
            "warmup": [moved / s / 1e9 for s in timing["warmup_s"]],
            "max_error": error,
            "correct": error is not None and error <= TOLERANCE,
        }

    def max_error(self):
        """Largest deviation of any number, as a share of the largest of its strip; null: not finite."""
        worst = 0.0
        for start in range(0, self.a.numel(), STRIP):
            a, b, c = (t[start : start + STRIP] for t in (self.a, self.b, self.c))
            expected = c.double().mul_(SCALE).add_(b)
            deviation = float((expected - a).abs_().max()) / float(expected.abs_().max())
            if not deviation < float("inf"):
                return None
            worst = max(worst, deviation)
        return worst


if __name__ == "__main__":
    sys.exit(protocol.main("memory_bandwidth", measure))
