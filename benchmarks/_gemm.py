"""One multiplication on one device: its operands, its call, its check. For ``gemm.py`` and ``burn.py``."""

from __future__ import annotations

import itertools

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
DIGESTED = 1 << 24  # numbers of a digest's strip
STRIP = 1024  # rows of a float64 copy
PROBE_SHAPE = (256, 256, 256)


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
        # 14-bit accumulation, as training libraries use it; null for types that have no such choice.
        self.fast_accumulation = kind == "cuda" if dtype == "fp8" else None
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
        self.last = self.product(next(self.turn))

    def product(self, operands):
        """(A, B, their product)"""
        torch = self.torch
        a, b = operands[:2]
        if self.dtype == "fp8":
            product = self.scaled(a, b)
        elif self.dtype == "int8":
            product = torch._int_mm(a, b)
        else:
            product = torch.mm(a, b, out=operands[2])
        return a, b, product

    def scaled(self, a, b):
        """``_scaled_mm`` with the keywords it has kept; up to torch 2.4 it returned (product, maximum)."""
        product = self.torch._scaled_mm(
            a,
            b,
            scale_a=self.one,
            scale_b=self.one,
            out_dtype=self.torch.bfloat16,
            use_fast_accum=self.fast_accumulation,
        )
        return product[0] if isinstance(product, tuple) else product

    # -------------------------------------------------- the same bits

    def bits(self):
        """Digests of the first operands and of their product: the same on all GPUs that compute alike."""
        with protocol.Guard():
            a, b, product = self.product(self.sets[0])
            inputs = (self.digest(a) * 31 + self.digest(b)) % (1 << 64)
            return {"inputs": "%016x" % inputs, "product": "%016x" % self.digest(product)}

    def digest(self, tensor):
        """A sum of all bit patterns, each weighted by its place, modulo 2^64: any order of summing gives the same."""
        torch = self.torch
        whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
        flat = tensor.t() if tensor.dim() == 2 and not tensor.is_contiguous() else tensor
        flat = flat.contiguous().view(whole).reshape(-1)
        total = 0
        for start in range(0, flat.numel(), DIGESTED):
            part = flat[start : start + DIGESTED].to(torch.int64)
            place = torch.arange(start, start + part.numel(), device=part.device, dtype=torch.int64)
            total += int((part * (place * 2654435761 * 2 + 1)).sum())
        return total % (1 << 64)

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
        return {
            "started_at": timing["started_at"],
            "ended_at": timing["ended_at"],
            "calls": timing["calls"],
            "seconds": timing["seconds"],
            "samples": [tflops(self.shape, s) for s in timing["seconds"]],
            "warmup": [tflops(self.shape, s) for s in timing["warmup_s"]],
            **self.checked(number, tolerance),
        }

    def checked(self, number, tolerance):
        """The last product against float64."""
        with protocol.Guard():
            entry, row = self.entry_error(number), self.row_error(number)
        correct = all(e is not None and e <= tolerance for e in (entry, row))
        return {"max_error": entry, "row_error": row, "correct": correct}

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
