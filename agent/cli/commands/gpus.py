"""``accept gpus [ID]``: the catalogue of GPU models, with sources."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Optional

import click

from agent import catalogue
from agent.catalogue import DTYPES, Catalogue, Cite, Figure, Model
from agent.cli.shared import LANGUAGE, fail_text, language_of, translate_for
from agent.cli.terminal import Terminal
from agent.text import Text, msg

Row = tuple[Text, str]


@click.command(name="gpus")
@click.argument("name", metavar="[ID]", required=False)
@click.option("--json", "as_json", is_flag=True, help="As JSON, with every source.")
@LANGUAGE
def command(name: Optional[str], as_json: bool, lang: Optional[str]) -> None:
    """The catalogue of GPU models, with sources.

    ID is an id of the list or a product name as a contract writes it: "H100 SXM5 80GB", "A100 80G". A name that can
    mean several products shows them all.
    """
    language = language_of(lang)
    known = catalogue.load()
    models = known.models if name is None else known.match(name)
    if not models:
        _unknown(str(name), known, language)
    if as_json:
        click.echo(json.dumps(_tree(models, whole=name is None), ensure_ascii=False, indent=1))
        return
    terminal = Terminal(translate_for(language))
    if name is None:
        _list(known, terminal)
        return
    for model in models:
        _details(model, terminal)
    _sources(models, known, terminal)


def _unknown(name: str, known: Catalogue, language: str) -> None:
    called = {word.lower(): m.id for m in known.models for word in (m.id, m.title)}
    near = tuple(dict.fromkeys(called[word] for word in get_close_matches(name.lower(), list(called), 4, 0.5)))[:3]
    if near:
        fail_text(msg("the catalogue has no “{name}”; the nearest are {near}", name=name, near=near), language)
    fail_text(msg("the catalogue has no “{name}”", name=name), language)


def _tree(models: tuple[Model, ...], whole: bool) -> Mapping[str, Any]:
    """The entries as the file has them, with the numbers that are computed from them and the sources they name."""
    top = catalogue.tree(catalogue.shipped())
    wanted = {m.id: m for m in models}
    gpus = [{**g, "computed": _computed(wanted[g["id"]])} for g in top["gpus"] if g["id"] in wanted]
    if whole:
        return {**top, "gpus": gpus}
    named = set(_labels(models))
    return {"sources": {k: s for k, s in top["sources"].items() if k in named}, "gpus": gpus}


def _computed(model: Model) -> Mapping[str, Any]:
    return {
        "formula_peak_tflops": {d: model.formula_peak(d) for d in model.rates},
        "physical_bound_tflops": {d: model.physical_bound(d) for d in model.rates},
    }


# --- the list ----------------------------------------------------------------------------------------------------


def _list(known: Catalogue, terminal: Terminal) -> None:
    width = max(len(m.id) for m in known.models)
    for m in known.models:
        size = f"{m.marketed_gb[0]} GB"
        terminal.raw(f"{m.id:<{width}}  {size:>6}  {m.sm_count:>3} SM  {m.power_default_w.value:>5g} W  {m.title}")
    terminal.say(msg("names that mean several products, of which a contract gets the weakest:"))
    for models in known.ambiguous.values():
        terminal.raw(f"  {_bare(models[0])}: {', '.join(m.id for m in models)}")


def _bare(model: Model) -> str:
    return model.family.replace("PRO6000", "RTX PRO 6000")


# --- one model ---------------------------------------------------------------------------------------------------


def _details(model: Model, terminal: Terminal) -> None:
    terminal.raw(f"{model.id}  {model.title}")
    for label, value in (*_identity(model), *_arithmetic(model), *_links(model), *_measured(model)):
        terminal.raw(f"  {label.render(terminal.translate)}: {value}")


def _identity(model: Model) -> Iterator[Row]:
    yield msg("name in the driver"), ", ".join(model.nvml_names)
    ids = (p.device + (f" ({' '.join(p.subsystems)})" if p.subsystems else "") for p in model.pci_ids)
    yield msg("PCI device (subsystems)"), ", ".join(ids)
    for total in model.memory:
        state = {"on": "ECC on", "off": "ECC off", "any": "ECC on, off"}[total.ecc]
        yield msg("memory"), f"{total.mib} MiB, {state} {_origin(total.cite)}"
    yield msg("kind of memory"), model.memory_type
    yield msg("multiprocessors"), f"{model.sm_count} {_origin(model.cites['sm_count'])}"
    yield msg("cores"), f"{model.cores} {_origin(model.cites['cores'])}"
    if model.bus_width_bits is not None:
        yield msg("memory bus"), f"{model.bus_width_bits} bit {_origin(model.cites['bus_width_bits'])}"
    yield msg("compute capability"), model.compute_capability
    yield msg("ECC"), model.ecc
    yield msg("MIG"), "+" if model.mig else "-"
    for sibling in model.siblings:
        note = f" ({sibling.note})" if sibling.note else ""
        yield msg("told apart from {other} by", other=sibling.id), f"{', '.join(sibling.tell)}{note}"
    if model.note:
        yield msg("note"), model.note


def _arithmetic(model: Model) -> Iterator[Row]:
    yield msg("maximum clock"), f"{model.max_clock_mhz.value:g} MHz {_origin(model.max_clock_mhz.cite)}"
    for dtype in DTYPES:
        rate = model.rates.get(dtype)
        if rate is None:
            continue
        unit = "TOPS" if dtype == "int8" else "TFLOPS"
        bound = f"{model.physical_bound(dtype):.4g} {unit}"
        yield msg("{dtype}, physical bound", dtype=dtype), bound
        if rate.peak is not None:
            clock = f"{rate.reference_clock_mhz:g} MHz"
            why = f" ({rate.exception})" if rate.exception else ""
            peak = f"{rate.peak.value:g} {unit} @ {clock}{why} {_origin(rate.peak.cite)}"
            yield msg("{dtype}, published peak", dtype=dtype), peak
    yield msg("memory rate, published"), f"{model.memory_spec_gbs.value:g} GB/s {_origin(model.memory_spec_gbs.cite)}"


def _links(model: Model) -> Iterator[Row]:
    power = model.power_default_w
    yield msg("power limit by default"), f"{power.value:g} W {_origin(power.cite)}"
    if model.power_seen_w:
        seen = ", ".join(f"{w} W" for w in model.power_seen_w)
        yield msg("other power limits seen"), f"{seen} {_origin(model.cites['power_seen_w'])}"
    if model.pcie_gen is not None:
        narrow = "".join(f", x{w}" for w in model.pcie_widths_seen)
        yield msg("PCIe"), f"Gen{model.pcie_gen} x{model.pcie_width}{narrow} {_origin(model.cites['pcie'])}"
    link = model.nvlink
    if link.links:
        yield msg("NVLink"), f"{link.links} × {link.total_gbs / link.links:g} GB/s, {link.layout} {_origin(link.cite)}"
    yield msg("P2P over PCIe"), f"{'+' if model.p2p_pcie else '-'} {_origin(model.cites['p2p_pcie'])}"


def _measured(model: Model) -> Iterator[Row]:
    for key, floors in model.floors.items():
        for figure in floors:
            yield msg("floor of {key}", key=_key(key, figure)), _value(key, figure)
    for key, seen in model.seen.items():
        for figure in seen:
            yield msg("seen, {key}", key=_key(key, figure)), _value(key, figure)


def _key(key: str, figure: Figure) -> str:
    return f"{key} {figure.count} GPU {figure.by}" if key == "allreduce" else key


def _value(key: str, figure: Figure) -> str:
    unit = ("TOPS" if key == "gemm.int8" else "TFLOPS") if key.startswith("gemm.") else "GB/s"
    return f"{figure.value:g} {unit} {_origin(figure.cite)}"


def _origin(cite: Cite) -> str:
    """Sources, confidence, method and note in one bracket."""
    words = (", ".join(cite.sources), cite.confidence, cite.method, cite.note)
    return f"[{'; '.join(w for w in words if w)}]"


def _labels(models: tuple[Model, ...]) -> Iterator[str]:
    """Every source that the entries name, more than once where it is named so."""
    for model in models:
        cites = [*model.cites.values(), *(m.cite for m in model.memory)]
        cites += [r.peak.cite for r in model.rates.values() if r.peak is not None]
        cites += [f.cite for group in (model.seen, model.floors) for figures in group.values() for f in figures]
        yield from model.pci_sources
        for cite in cites:
            yield from cite.sources


def _sources(models: tuple[Model, ...], known: Catalogue, terminal: Terminal) -> None:
    terminal.say(msg("sources:"))
    named = set(_labels(models))
    for label, source in known.sources.items():
        if label in named:
            terminal.raw(f"  {label}: {source.title}{' ' + source.address if source.address else ''}")
