"""Matrix multiplication rate of each device, by type of number, with the result checked. See ``_protocol.py``.

Request: ``{"device": "cpu"|"cuda", "dtypes": ["bf16", …], "shapes": [[m, n, k], …], "search_s", "blocks", "samples",
"sample_s", "warmup_s", "pause_s", "limit_s", "seed", "tolerance": {"bf16": 0.03, …}, "threads": null,
"indexes": null}``. ``indexes`` picks devices (null: all), ``threads`` those of the CPU (null: torch's choice). With
several shapes the fastest on the first device within ``search_s`` is measured, on all devices.

Result: ``{"versions", "device", "threads", "devices": [{"index", "name", "uuid", "slot"}], "dtypes": {"bf16":
{"shape", "search": [{"shape", "tflops"}], "api", "operands", "stopped", "devices": [{"index", "blocks": [{"samples",
"warmup", "seconds", "calls", "started_at", "ended_at", "max_error", "row_error", "correct"}], "error"}]},
"fp8": {"unavailable": {"kind", "detail", "needs"}}}}``. Samples are TFLOPS (2·m·n·k operations), seconds are those of
one multiplication.

What makes it honest: random-normal data (zeros draw less power and run up to 15 % faster), several operand sets
taken in turn so that none is found in cache, every product written out, and after each block the last product compared
with float64: some rows × columns entry by entry on the CPU, all rows by their sums on the device.
"""

from __future__ import annotations

import itertools
import os
import statistics
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # `python -I` leaves the script's folder out

import _protocol as protocol

# name: (torch type, oldest CUDA compute capability with units for it, torch version that has the type)
DTYPES = {
    "fp64": ("float64", (0, 0), "2.0"),
    "fp32": ("float32", (0, 0), "2.0"),
    "tf32": ("float32", (8, 0), "2.0"),
    "fp16": ("float16", (5, 3), "2.0"),
    "bf16": ("bfloat16", (8, 0), "2.0"),
    "fp8": ("float8_e4m3fn", (8, 9), "2.1"),
    "int8": ("int8", (7, 2), "2.1"),
}
OPERAND_BYTES = 512 << 20  # several times the largest L2 of a GPU and the last-level cache of most CPUs
CPU_OPERAND_BYTES = 128 << 20
MOST_SETS = 16
CHECKED = 128  # rows and columns compared with float64
STRIP = 1024  # rows of a float64 copy
PROBE_SHAPE = (256, 256, 256)


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
    results = {g.index: {"index": g.index, "blocks": [], "error": None} for g in gemms}
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
    return {
        "shape": list(shape),
        "search": search,
        "api": gemms[0].api,
        "operands": len(gemms[0].sets),
        "stopped": stopped,
        "devices": list(results.values()),
    }


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


def tflops(shape, seconds):
    m, n, k = shape
    return 2.0 * m * n * k / seconds / 1e12


class Gemm:
    """One type of number on one device: its operands, its multiplication, its check."""

    def __init__(self, torch, kind, index, dtype, seed):
        if dtype not in DTYPES:
            raise protocol.Unable("bad-request", "dtypes: unknown type %r" % (dtype,))
        self.torch, self.kind, self.index, self.dtype, self.seed = torch, kind, index, dtype, seed
        self.device = "cpu" if kind == "cpu" else "cuda:%d" % index
        self.sync = protocol.synchronise(torch, kind, index)
        self.shape = None
        self.sets = []
        self.last = None
        self.api = {"fp8": "torch._scaled_mm", "int8": "torch._int_mm"}.get(dtype, "torch.mm")

    # -------------------------------------------------- what this torch and this device have

    def probe(self):
        """Unable where this torch or this device lacks the type: found out by calling."""
        name, capability, since = DTYPES[self.dtype]
        torch = self.torch
        if not hasattr(torch, name) or not hasattr(torch, self.api.split(".")[1]):
            raise protocol.Unable("needs-torch", "torch %s has no %s" % (torch.__version__, self.dtype), since)
        if self.kind == "cpu" and self.dtype == "tf32":
            raise protocol.Unable("needs-hardware", "tf32 is a type of NVIDIA GPUs", "8.0")
        if self.kind == "cuda" and torch.cuda.get_device_capability(self.index) < capability:
            needs = "%d.%d" % capability
            detail = "%s has no units for %s" % (torch.cuda.get_device_name(self.index), self.dtype)
            raise protocol.Unable("needs-hardware", detail, needs)
        try:
            with protocol.Guard():
                self.prepare(PROBE_SHAPE)
                self.multiply()
                self.sync()
        except (AttributeError, NotImplementedError, TypeError) as error:
            raise protocol.Unable("needs-torch", "%s: %s" % (self.api, protocol.first_line(error)), since) from error
        except RuntimeError as error:
            missing = "not implemented for" in str(error)
            kind = "needs-torch" if missing else "refused"
            raise protocol.Unable(kind, "%s: %s" % (self.api, protocol.first_line(error)), None) from error

    # -------------------------------------------------- operands

    def prepare(self, shape):
        """Random-normal operands of this shape, in as many sets as caches call for; kept until the shape changes."""
        if shape == self.shape:
            return
        self.sets, self.last, self.shape = [], None, None
        precision = "high" if self.dtype == "tf32" else "highest"
        self.torch.set_float32_matmul_precision(precision)
        # One generator for all sets: the same seed gives each device the same numbers.
        generator = self.torch.Generator(device=self.device).manual_seed(self.seed)
        m, n, k = shape
        with protocol.Guard():
            first = self.operands(generator, m, n, k)
            size = sum(t.numel() * t.element_size() for t in first)
            wanted = CPU_OPERAND_BYTES if self.kind == "cpu" else OPERAND_BYTES
            count = min(MOST_SETS, max(2, -(-wanted // size)))
            self.one = self.torch.ones((), device=self.device, dtype=self.torch.float32)
            self.sets = [first] + [self.operands(generator, m, n, k) for _ in range(count - 1)]
        self.turn = itertools.cycle(self.sets)
        self.shape = shape

    def operands(self, generator, m, n, k):
        """(A, B, C); C holds random numbers too, so that a product that is never written shows."""
        a = self.random(generator, m, k)
        if self.dtype in ("fp8", "int8"):
            # These take B by columns; C is what they return, newly allocated.
            return a, self.random(generator, n, k).t()
        return a, self.random(generator, k, n), self.random(generator, m, n)

    def random(self, generator, rows, columns):
        torch = self.torch
        kind = getattr(torch, DTYPES[self.dtype][0])
        drawn = torch.float64 if self.dtype == "fp64" else torch.float32
        values = torch.randn(rows, columns, generator=generator, device=self.device, dtype=drawn)
        if self.dtype == "int8":
            values = (values * 32).round_().clamp_(-127, 127)
        return values.to(kind)

    # -------------------------------------------------- multiplication

    def multiply(self):
        torch = self.torch
        operands = next(self.turn)
        a, b = operands[:2]
        if self.dtype == "fp8":
            product = self.scaled(a, b)
        elif self.dtype == "int8":
            product = torch._int_mm(a, b)
        else:
            product = torch.mm(a, b, out=operands[2])
        self.last = (a, b, product)

    def scaled(self, a, b):
        """``_scaled_mm`` with the keywords it has kept; up to torch 2.4 it returned (product, maximum)."""
        product = self.torch._scaled_mm(
            a,
            b,
            scale_a=self.one,
            scale_b=self.one,
            out_dtype=self.torch.bfloat16,
            use_fast_accum=self.kind == "cuda",  # 14-bit accumulation, as training libraries use it
        )
        return product[0] if isinstance(product, tuple) else product

    # -------------------------------------------------- blocks

    def time(self, warmup_s, samples, sample_s):
        with protocol.Guard():
            return protocol.timed_block(self.multiply, self.sync, warmup_s, samples, sample_s)

    def block(self, request, number, tolerance):
        timing = self.time(
            protocol.asked(request, "warmup_s", float),
            protocol.asked(request, "samples", int),
            protocol.asked(request, "sample_s", float),
        )
        with protocol.Guard():
            entry, row = self.entry_error(number), self.row_error(number)
        return {
            "started_at": timing["started_at"],
            "ended_at": timing["ended_at"],
            "calls": timing["calls"],
            "seconds": timing["seconds"],
            "samples": [tflops(self.shape, s) for s in timing["seconds"]],
            "warmup": [tflops(self.shape, s) for s in timing["warmup_s"]],
            "max_error": entry,
            "row_error": row,
            "correct": all(e is not None and e <= tolerance for e in (entry, row)),
        }

    def entry_error(self, number):
        """Largest deviation of some rows × columns from float64 on the CPU, in units of their root mean square.

        null: the product holds numbers that are not finite.
        """
        torch = self.torch
        a, b, product = self.last
        m, n, _ = self.shape
        chooser = torch.Generator().manual_seed(self.seed + 1 + number)
        rows = torch.randperm(m, generator=chooser)[:CHECKED]
        columns = torch.randperm(n, generator=chooser)[:CHECKED]
        got = self.picked(self.picked(product, 0, rows), 1, columns)
        expected = self.picked(a, 0, rows) @ self.picked(b, 1, columns)
        return finite(float((got - expected).abs().max()) / float(expected.square().mean().sqrt()))

    def row_error(self, number):
        """Largest deviation of any row's sum with random signs, C·x against A·(B·x), in float64 on the device.

        It covers every entry, coarsely: in units of the sum's own root mean square. null: not finite.
        """
        torch = self.torch
        a, b, product = self.last
        chooser = torch.Generator().manual_seed(self.seed + 1 + number)
        signs = (torch.randint(0, 2, (self.shape[1], 1), generator=chooser) * 2 - 1).double().to(product.device)
        expected = self.times(a, self.times(b, signs))
        got = self.times(product, signs)
        return finite(float((got - expected).abs().max()) / float(expected.square().mean().sqrt()))

    def times(self, matrix, vector):
        """matrix · vector in float64, a strip at a time: a whole copy would not fit beside the operands."""
        strips = []
        for start in range(0, matrix.shape[0], STRIP):
            strip = matrix[start : start + STRIP]
            if strip.element_size() == 1:
                strip = strip.float()
            strips.append(strip.double() @ vector)
        return self.torch.cat(strips)

    def picked(self, tensor, axis, which):
        """Rows or columns as float64 on the CPU."""
        if self.dtype == "fp8" and tensor.element_size() == 1:
            tensor = tensor.float()  # not every torch picks from fp8
        return tensor.index_select(axis, which.to(tensor.device)).cpu().double()


def finite(number):
    return number if number < float("inf") else None  # not a number fails the comparison too


if __name__ == "__main__":
    sys.exit(protocol.main("gemm", measure))
