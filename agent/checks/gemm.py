"""The ``gemm`` clauses: matrix multiplication on each GPU; ``spread`` is (median - slowest) / median."""

from __future__ import annotations

from agent.grammar import Section, flops, percent

GRAMMAR = Section(
    clauses={
        **{precision: flops() for precision in ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")},
        "spread": percent(),
    },
)
