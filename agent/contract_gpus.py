"""What a contract promises that no card of the named model can do, by the catalogue. Pure.

A name that several products share ("A100 80G") is contradicted only where every one of them is. Each sentence names
the catalogue's number and its source, so that the renter can hold it against the vendor's own sheet.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Optional, cast

from agent import catalogue as catalogues
from agent.bench.device_copies import LANES, line_rate
from agent.catalogue import Cite, Dtype, Model
from agent.model import Clause
from agent.quantity import convert
from agent.text import Text, msg

Clauses = Mapping[str, Clause]
Found = Iterator[tuple[Clause, Text]]
NOMINAL = 1.12  # "80 GB" and 81559 MiB are one card's memory
SPARSE = (1.9, 2.1)  # times the dense figure: a sheet's number "with sparsity"
POWER = 1.4  # makers of boards raise the limit by less than this
# The oldest compute capability whose tensor cores have the type.
SINCE = {"tf32": 8.0, "bf16": 8.0, "fp8": 8.9}


def beyond_the_model(clauses: Clauses) -> Found:
    """Every clause that the model of ``gpu.model`` cannot keep; nothing where the catalogue does not know it."""
    named = clauses.get("gpu.model")
    models = catalogues.load().match(str(named.promise.value)) if named is not None else ()
    if not models:
        return
    for rule in (_memory, _modes, _power, _link, _nvlink, _arithmetic, _bandwidth, _peers, _allreduce, _collectives):
        yield from rule(clauses, models)


def _least(clause: Optional[Clause], unit: str) -> Optional[float]:
    """The least that an "at least" or "exactly" promises, in ``unit``; None for any other promise."""
    if clause is None or clause.promise.op not in (">=", "==") or not isinstance(clause.promise.value, float):
        return None
    return convert(clause.promise.value, clause.promise.unit, unit)


def _names(models: Sequence[Model]) -> str:
    return " / ".join(m.title for m in models)


def _source(cite: Optional[Cite]) -> Text:
    if cite is None or not cite.sources:
        return msg("the catalogue: accept gpus")
    known = catalogues.load().sources
    return msg("{source}, {confidence}", source=known[cite.sources[0]].label, confidence=cite.confidence)


def _above(
    clause: Optional[Clause],
    unit: str,
    models: Sequence[Model],
    most: Callable[[Model], Optional[float]],
    cite: Callable[[Model], Optional[Cite]],
    slack: float = 1.0,
) -> Found:
    """Where even the best of the models stays below what is promised; ``slack`` times its figure is still believed."""
    wanted, bounds = _least(clause, unit), [most(m) for m in models]
    if clause is None or wanted is None or None in bounds:
        return
    best = max(models, key=lambda m: cast(float, most(m)))
    if wanted > slack * cast(float, most(best)):
        yield clause, _more_than(clause, models, f"{most(best):.4g} {unit}", _source(cite(best)))


def _more_than(clause: Clause, models: Sequence[Model], bound: str, source: Text) -> Text:
    return msg(
        "{key} promises {value}, but {model} has {bound} ({source})",
        key=clause.key,
        value=clause.promise.written,
        model=_names(models),
        bound=bound,
        source=source,
    )


def _memory(clauses: Clauses, models: Sequence[Model]) -> Found:
    clause = clauses.get("gpu.memory")
    totals = {m: [t.mib / 1024 for t in m.memory] or [float(n) for n in m.marketed_gb] for m in models}
    if clause is None or any(not t for t in totals.values()):
        return
    yield from _above(
        clause, "GiB", models, lambda m: max(totals[m]), lambda m: m.memory[0].cite if m.memory else None, NOMINAL
    )
    wanted = _least(clause, "GiB")
    smallest = min(min(t) for t in totals.values())
    if wanted is not None and wanted * NOMINAL * 1.1 < smallest and not clause.promise.written.lstrip().startswith(">"):
        yield (
            clause,
            msg(
                "{key} promises {value}, but a whole {model} has {bound} GiB ({source}): is a slice of a card meant?",
                key=clause.key,
                value=clause.promise.written,
                model=_names(models),
                bound=f"{smallest:.4g}",
                source=_source(models[0].memory[0].cite if models[0].memory else None),
            ),
        )


def _modes(clauses: Clauses, models: Sequence[Model]) -> Found:
    for key, cannot in (
        ("gpu.ecc", all(m.ecc == "none" for m in models)),
        ("gpu.mig", not any(m.mig for m in models)),
        ("gpu.p2p", not any(m.p2p_pcie or (m.nvlink.links > 0) for m in models)),
    ):
        clause = clauses.get(key)
        if clause is not None and clause.promise.value is True and cannot:
            yield clause, msg("{key} is promised, but {model} has none", key=key, model=_names(models))


def _power(clauses: Clauses, models: Sequence[Model]) -> Found:
    def most(model: Model) -> float:
        return max(model.power_default_w.value, *model.power_seen_w, 0)

    yield from _above(clauses.get("gpu.power_limit"), "W", models, most, lambda m: m.power_default_w.cite, POWER)


def _link(clauses: Clauses, models: Sequence[Model]) -> Found:
    clause = clauses.get("gpu.pcie")
    read = re.search(r"Gen(\d)(?:\s*x(\d+))?", str(clause.promise.value)) if clause is not None else None
    known = [(m.pcie_gen, m.pcie_width) for m in models]
    if clause is None or read is None or any(g is None or w is None for g, w in known):
        return
    wanted = (int(read[1]), int(read[2] or 0))
    if not any(wanted[0] <= cast(int, g) and wanted[1] <= cast(int, w) for g, w in known):
        has = " / ".join(dict.fromkeys(f"Gen{g} x{w}" for g, w in known))
        yield clause, _more_than(clause, models, has, _source(models[0].cites.get("pcie")))


def _nvlink(clauses: Clauses, models: Sequence[Model]) -> Found:
    clause = clauses.get("gpu.nvlink")
    if clause is not None and isinstance(clause.promise.value, float):
        unit = clause.promise.unit
        most: Callable[[Model], float] = (
            (lambda m: float(m.nvlink.links)) if unit == "links" else (lambda m: m.nvlink.total_gbs)
        )
        unit = "links" if unit == "links" else "GB/s"
        if all(m.nvlink.links == 0 for m in models):
            yield clause, _unlinked(clause, models)
        else:
            yield from _above(clause, unit, models, most, lambda m: m.nvlink.cite)
    pairs = clauses.get("topology.gpu_gpu")
    if pairs is not None and pairs.promise.value == "NVLink" and all(m.nvlink.links == 0 for m in models):
        yield pairs, _unlinked(pairs, models)


def _unlinked(clause: Clause, models: Sequence[Model]) -> Text:
    return msg(
        "{key} promises {value}, but {model} has no NVLink ({source})",
        key=clause.key,
        value=clause.promise.written,
        model=_names(models),
        source=_source(models[0].nvlink.cite),
    )


def _arithmetic(clauses: Clauses, models: Sequence[Model]) -> Found:
    for key, clause in clauses.items():
        if clause.family != "gemm" or clause.name == "spread":
            continue
        since = SINCE.get(clause.name)
        if since is not None and all(float(m.compute_capability) < since for m in models):
            yield clause, msg("{key} is promised, but {model} has none", key=key, model=_names(models))
            continue
        dtype = cast(Dtype, clause.name)
        wanted = _least(clause, "TFLOPS")
        peaks = {m: p for m in models if (p := m.rates[dtype].peak if dtype in m.rates else None) is not None}
        bounds = [m.physical_bound(dtype) for m in models]
        if wanted is None or len(peaks) < len(models) or any(b is None or wanted <= b for b in bounds):
            continue
        best = max(peaks.values(), key=lambda p: p.value)
        said = _more_than(clause, models, f"{best.value:.4g} TFLOPS", _source(best.cite))
        sparse = any(SPARSE[0] <= wanted / p.value <= SPARSE[1] for p in peaks.values())
        yield clause, msg("{said}; the promised figure is the one with sparsity", said=said) if sparse else said


def _bandwidth(clauses: Clauses, models: Sequence[Model]) -> Found:
    clause = clauses.get("memory_bandwidth")
    yield from _above(clause, "GB/s", models, lambda m: m.memory_spec_gbs.value, lambda m: m.memory_spec_gbs.cite)
    for way in ("h2d", "d2h"):
        copies = clauses.get(f"pcie_bandwidth.{way}")
        yield from _above(copies, "GB/s", models, _line, lambda m: m.cites.get("pcie"))


def _line(model: Model) -> Optional[float]:
    """GB/s one way over the whole PCIe link; None for a card that has another host link."""
    if model.pcie_gen is None or model.pcie_width is None or model.pcie_gen not in LANES:
        return None
    return line_rate(model.pcie_gen, model.pcie_width)


def _peers(clauses: Clauses, models: Sequence[Model]) -> Found:
    """One way between two cards: half of NVLink's total, else the PCIe link."""

    def most(model: Model) -> Optional[float]:
        line = _line(model)
        return max(model.nvlink.total_gbs / 2, line) if line is not None else None

    yield from _above(clauses.get("p2p_bandwidth"), "GB/s", models, most, lambda m: m.nvlink.cite)


def _allreduce(clauses: Clauses, models: Sequence[Model]) -> Found:
    """busbw above all links both ways: not even with sums made in the switch."""

    def most(model: Model) -> Optional[float]:
        line = _line(model)
        return max(model.nvlink.total_gbs, 2 * line) if line is not None else None

    yield from _above(clauses.get("allreduce.busbw"), "GB/s", models, most, lambda m: m.nvlink.cite)


def _collectives(clauses: Clauses, models: Sequence[Model]) -> Found:
    """busbw above all links one way: what a GPU gets or gives crosses them, whatever the switch adds up."""

    def most(model: Model) -> Optional[float]:
        line = _line(model)
        return max(model.nvlink.total_gbs / 2, line) if line is not None else None

    for key in ("collectives.all_gather", "collectives.reduce_scatter", "collectives.all_to_all"):
        yield from _above(clauses.get(key), "GB/s", models, most, lambda m: m.nvlink.cite)
