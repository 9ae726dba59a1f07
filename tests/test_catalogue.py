"""The catalogue of GPU models: its form, its arithmetic, its floors, and names as people and drivers write them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from agent import catalogue, resources, stats
from agent.catalogue import DTYPES, Catalogue, Dtype, Figure, Model, device_id
from agent.cli.main import cli
from agent.gpu_names import read_name
from agent.tools import ParseError, smi_xml

CATALOGUE = catalogue.load()
CORPUS = Path(__file__).parents[1].parent / "shared" / "corpus"
EVERY_RATE = [(m, d) for m in CATALOGUE.models for d in m.rates]


def ids(models: tuple[Model, ...]) -> list[str]:
    return [m.id for m in models]


def model(model_id: str) -> Model:
    found = CATALOGUE.get(model_id)
    assert found is not None
    return found


# --- the file ----------------------------------------------------------------------------------------------------


def test_file_has_the_form_of_its_schema() -> None:
    schema = json.loads(resources.path("contracts", "gpus.schema.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    problems = [
        f"{list(e.absolute_path)}: {e.message}"
        for e in Draft202012Validator(schema).iter_errors(catalogue.tree(catalogue.shipped()))
    ]
    assert problems == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"gpus": []}, "gpus"),
        ({"extra": 1}, "extra"),
        ({"sources": {"x": {"title": "t", "address": "ftp://x"}}}, "ftp"),
    ],
)
def test_schema_refuses_what_is_not_a_catalogue(change: dict[str, Any], said: str) -> None:
    schema = json.loads(resources.path("contracts", "gpus.schema.json").read_text(encoding="utf-8"))
    broken = {**catalogue.tree(catalogue.shipped()), **change}
    problems = [f"{list(e.absolute_path)} {e.message}" for e in Draft202012Validator(schema).iter_errors(broken)]
    assert any(said in p for p in problems)


def test_file_is_yaml_and_json_at_once() -> None:
    text = catalogue.shipped()
    assert YAML(typ="safe", pure=True).load(text) == catalogue.tree(text)


def test_loading_is_quick() -> None:
    text = catalogue.shipped()
    times = []
    for _ in range(5):
        start = time.perf_counter()
        catalogue.parse(text)
        times.append(time.perf_counter() - start)
    assert min(times) < 0.15


def test_a_text_that_is_no_mapping_is_refused() -> None:
    with pytest.raises(TypeError):
        catalogue.parse("[]")


def test_ids_names_and_pci_ids_belong_to_one_product_of_nvidia_each() -> None:
    own = [m for m in CATALOGUE.models if not m.modified]
    assert len({m.id for m in CATALOGUE.models}) == len(CATALOGUE.models)
    names = [n for m in own for n in m.nvml_names]
    assert len(set(names)) == len(names)
    devices = [p.device for m in own for p in m.pci_ids] + [p for o in CATALOGUE.others for p in o.pci_ids]
    assert len(set(devices)) == len(devices)


def test_siblings_are_models_and_are_told_apart_by_what_differs() -> None:
    differs = {
        "sm-count": lambda m: m.sm_count,
        "memory": lambda m: m.memory_mib(None),
        "bus-width": lambda m: m.bus_width_bits,
        "nvlink-links": lambda m: m.nvlink.links,
        "fp64": lambda m: m.peak("fp64"),
        "tensor-rate": lambda m: m.peak("bf16"),
        "memory-rate": lambda m: m.memory_spec_gbs.value,
        "power": lambda m: m.power_default_w.value,
        "fp8": lambda m: m.peak("fp8"),
        "int8": lambda m: m.peak("int8"),
        "form": lambda m: m.form,
    }
    for m in CATALOGUE.models:
        for sibling in m.siblings:
            other = model(sibling.id)
            assert other is not m
            for tell in sibling.tell:
                assert differs[tell](m) != differs[tell](other), (m.id, other.id, tell)


# --- numbers and their sources -----------------------------------------------------------------------------------


def figures(m: Model) -> Iterator[tuple[str, Figure]]:
    for name, groups in (("seen", m.seen), ("floors", m.floors)):
        for key, some in groups.items():
            yield from ((f"{name} {key}", f) for f in some)


def test_every_number_names_sources_that_the_file_lists() -> None:
    for m in CATALOGUE.models:
        cites = [*m.cites.values(), *(t.cite for t in m.memory), *(f.cite for _, f in figures(m))]
        cites += [r.peak.cite for r in m.rates.values() if r.peak is not None]
        assert {"sm_count", "cores", "max_clock_mhz", "memory_spec_gbs", "power_default_w"} <= set(m.cites)
        for cite in cites:
            assert cite.sources
            assert set(cite.sources) <= set(CATALOGUE.sources), (m.id, cite)


def test_sources_have_addresses_but_for_those_that_say_why_not() -> None:
    without = {label for label, s in CATALOGUE.sources.items() if not s.address}
    assert without == {"listing", "computed", "comm"}


def test_no_source_is_listed_in_vain() -> None:
    text = catalogue.shipped()
    for label in CATALOGUE.sources:
        assert text.count(f'"{label}"') > 1, label


@pytest.mark.parametrize(("m", "dtype"), EVERY_RATE, ids=[f"{m.id}-{d}" for m, d in EVERY_RATE])
def test_peak_is_within_one_percent_of_the_formula_or_says_why_not(m: Model, dtype: Dtype) -> None:
    rate, peak, formula = m.rates[dtype], m.peak(dtype), m.formula_peak(dtype)
    assert formula == pytest.approx(m.sm_count * rate.per_clock * rate.reference_clock_mhz / 1e6)
    if peak is None:
        assert rate.exception == ""
        return
    agrees = abs(formula / peak - 1) <= 0.01 if formula else False
    assert agrees is (rate.exception == ""), (formula, peak)


def test_exceptions_are_these_and_no_more() -> None:
    excepted = {(m.id, d) for m, d in EVERY_RATE if m.rates[d].exception}
    assert excepted == {
        *((m, d) for m in ("h20-96gb", "h20-141gb", "b200", "b300") for d in ("fp32", "fp64")),
        ("h800-pcie", "fp64"),
        ("h800-sxm5", "fp64"),
        ("gb200", "fp64"),
    }


def test_reference_clock_is_never_above_the_maximum() -> None:
    for m, d in EVERY_RATE:
        assert m.rates[d].reference_clock_mhz <= m.max_clock_mhz.value, (m.id, d)


def test_capped_rates_are_those_of_export_variants() -> None:
    assert {m.id for m, d in EVERY_RATE if m.rates[d].rate_cap} == {"h20-96gb", "h20-141gb", "h800-pcie", "h800-sxm5"}
    h20, h100 = model("h20-96gb"), model("h100-sxm5-80gb")
    assert h20.rates["bf16"].per_clock * 4 == h100.rates["bf16"].per_clock


def test_physical_bound_by_hand() -> None:
    # 132 SMs × 4096 operations × 1980 MHz; twice that with fp8; half rate of GeForce, but not with fp16 accumulate.
    h100, card = model("h100-sxm5-80gb"), model("rtx-4090")
    assert h100.physical_bound("bf16") == pytest.approx(1070.5, abs=0.1)
    assert h100.physical_bound("fp8") == pytest.approx(2141.0, abs=0.1)
    assert card.physical_bound("bf16") == pytest.approx(128 * 512 * 3165 / 1e6)
    assert card.physical_bound("fp16") == pytest.approx(128 * 1024 * 3165 / 1e6)
    assert model("v100-sxm2-32gb").physical_bound("bf16") is None
    assert model("t4").peak("tf32") is None


def test_nothing_published_or_measured_is_above_the_physical_bound() -> None:
    for m in CATALOGUE.models:
        for dtype in DTYPES:
            values = [f.value for f in m.seen.get(f"gemm.{dtype}", ())]
            for value in (*values, *filter(None, (m.peak(dtype),))):
                bound = m.physical_bound(dtype)
                assert bound is not None
                assert stats.void_above(value, bound) is None, (m.id, dtype, value, bound)
        for key in ("memory.triad", "memory.copy", "memory.read"):
            for figure in m.seen.get(key, ()):
                assert stats.void_above(figure.value, m.memory_spec_gbs.value) is None, (m.id, key)


def test_a_faster_model_is_void_for_the_slower_one_that_it_is_sold_as() -> None:
    # An H100 that says it is an H20, measured at 700 TFLOPS.
    assert stats.void_above(700.0, model("h20-96gb").physical_bound("bf16")) is not None


def test_cores_are_a_whole_number_per_multiprocessor() -> None:
    for m in CATALOGUE.models:
        assert m.cores == m.sm_count * (64 if m.compute_capability in ("7.0", "7.5", "8.0") else 128), m.id


# --- floors ------------------------------------------------------------------------------------------------------


def lowest(seen: tuple[Figure, ...], floor: Figure) -> tuple[float, set[str]]:
    """The lowest published value of that count and algorithm, and the sources of the floor's own method and of it."""
    measured = [f for f in seen if (f.count, f.by) == (floor.count, floor.by) and f.cite.confidence == "measured"]
    least = min(f.value for f in measured)
    cited = [f for f in measured if f.cite.method == floor.cite.method or f.value == least]
    return least, {s for f in cited for s in f.cite.sources}


def test_floor_rests_on_two_independent_sources_of_one_method_and_convicts_no_published_card() -> None:
    count = 0
    for m in CATALOGUE.models:
        for key, floors in m.floors.items():
            for floor in floors:
                value, sources = lowest(m.seen[key], floor)
                assert floor.value == value, (m.id, key)
                assert set(floor.cite.sources) == sources
                same = {s for f in m.seen[key] if f.cite.method == floor.cite.method for s in f.cite.sources}
                assert len(same - {"computed", "listing", "comm"}) >= 2, (m.id, key)
                assert floor.cite.confidence == "measured"
                count += 1
    assert count == 7


@pytest.mark.parametrize("tflops", [730.0, 783.7, 794.5, 821.2])
def test_no_healthy_h100_that_was_published_lies_below_its_floor(tflops: float) -> None:
    floor = model("h100-sxm5-80gb").floor("gemm.bf16")
    assert floor is not None
    assert tflops >= floor.value


def test_floors_of_host_copies_follow_the_same_rule() -> None:
    found = 0
    for link in CATALOGUE.host_copies:
        for seen, floor in ((link.h2d, link.h2d_floor), (link.d2h, link.d2h_floor)):
            if floor is not None:
                value, sources = lowest(seen, floor)
                assert (floor.value, set(floor.cite.sources)) == (value, sources)
                assert len(sources) >= 2
                found += 1
    assert found == 1


def test_floor_is_asked_for_with_its_count_and_algorithm() -> None:
    h100 = model("h100-sxm5-80gb")
    floor = h100.floor("allreduce", 8, "nvls")
    assert floor is not None
    assert floor.value == 478.9
    assert h100.floor("allreduce", 8, "ring") is None
    assert h100.floor("allreduce", 4, "nvls") is None
    assert h100.floor("gemm.tf32") is None
    link = CATALOGUE.host_copy(4, 16)
    assert link is not None
    assert CATALOGUE.host_copy(4, 4) is None


def test_pcie_only_models_have_no_allreduce_floor() -> None:
    for m in CATALOGUE.models:
        if m.nvlink.links == 0 or m.nvlink.optional:
            assert "allreduce" not in m.floors


# --- memory ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model_id", "ecc", "totals"),
    [
        ("rtx-4090", False, {24564}),
        ("rtx-4090", True, {23028}),
        ("a10", False, {24564}),
        ("a10", True, {23028}),
        ("h100-sxm5-80gb", True, {81559}),
        ("h100-sxm5-80gb", None, {81559}),
        ("a100-sxm4-80gb", False, {81920, 81251}),
        ("v100-sxm2-16gb", True, {16384, 16160, 16130}),
        ("rtx-3090", None, {24576}),
    ],
)
def test_memory_of_a_whole_card(model_id: str, ecc: Optional[bool], totals: set[int]) -> None:
    assert model(model_id).memory_mib(ecc) == totals


def test_no_slice_is_taken_for_a_whole_card() -> None:
    for m in CATALOGUE.models:
        for total in m.memory_mib(None):
            assert total * 2**20 > 0.9 * min(m.marketed_gb) * 1e9, (m.id, total)


# --- names -------------------------------------------------------------------------------------------------------

A100_80 = ["a100-pcie-80gb", "a100-sxm4-80gb"]
NAMES = {
    "H100 SXM5 80GB": ["h100-sxm5-80gb"],
    "h100 sxm": ["h100-sxm5-80gb"],
    "H100SXM5": ["h100-sxm5-80gb"],
    "NVIDIA HGX H100": ["h100-sxm5-80gb"],
    "H100": ["h100-pcie", "h100-sxm5-80gb", "h100-nvl-94"],
    "H100 80G": ["h100-pcie", "h100-sxm5-80gb"],
    "H100 80GB HBM3": ["h100-sxm5-80gb"],
    "H100 PCIe Gen5 x16 80GB": ["h100-pcie"],
    "H100 NVL": ["h100-nvl-94"],
    "H100 94GB": ["h100-nvl-94"],
    "A100 80G": A100_80,
    "Ａ１００　８０Ｇ": A100_80,
    "A100-80GB": A100_80,
    "A100 80GiB 显存": A100_80,
    "8×A100 80G SXM": ["a100-sxm4-80gb"],
    "8x A100 SXM4 80GB NVLink": ["a100-sxm4-80gb"],
    "A100-SXM4-80GB × 8": ["a100-sxm4-80gb"],
    "8卡 A100 40G PCIe版": ["a100-pcie-40gb"],
    "A100 80GB PCIe 4.0": ["a100-pcie-80gb"],
    "A100": ["a100-pcie-40gb", "a100-pcie-80gb", "a100-sxm4-40gb", "a100-sxm4-80gb"],
    "A800 80GB SXM": ["a800-sxm4-80gb"],
    "A800": ["a800-pcie-80gb", "a800-sxm4-80gb"],
    "RTX 4090": ["rtx-4090"],
    "RTX4090 24G": ["rtx-4090"],
    "NVIDIA GeForce RTX 4090": ["rtx-4090"],
    "英伟达 RTX 4090 显卡": ["rtx-4090"],
    "4090": ["rtx-4090"],
    "4090 D": ["rtx-4090-d"],
    "RTX4090D": ["rtx-4090-d"],
    "4090 48G": ["rtx-4090-48gb"],
    "魔改 4090": ["rtx-4090-48gb"],
    "4090D 48G 涡轮版": ["rtx-4090-d-48gb"],
    "H20 96GB": ["h20-96gb"],
    "H20 141G": ["h20-141gb"],
    "H20-3e": ["h20-141gb"],
    "H20": ["h20-96gb", "h20-141gb"],
    "L40S": ["l40s"],
    "L40": ["l40"],
    "NVIDIA L20 48GB": ["l20"],
    "L4": ["l4"],
    "H800": ["h800-pcie", "h800-sxm5"],
    "H800 PCIe": ["h800-pcie"],
    "H200": ["h200-sxm-141gb", "h200-nvl"],
    "H200 PCIe": ["h200-nvl"],
    "H200 SXM": ["h200-sxm-141gb"],
    "NVIDIA A100-SXM4-80GB": ["a100-sxm4-80gb"],
    "NVIDIA H100 80GB HBM3": ["h100-sxm5-80gb"],
    "NVIDIA A100 80GB PCIe": ["a100-pcie-80gb"],
    "Tesla V100-SXM2-32GB": ["v100-sxm2-32gb"],
    "V100 32G": ["v100-pcie-32gb", "v100-sxm2-32gb"],
    "Tesla T4": ["t4"],
    "A40 48GB GDDR6": ["a40"],
    "RTX A6000": ["rtx-a6000"],
    "RTX 6000 Ada": ["rtx-6000-ada"],
    "NVIDIA RTX 6000 Ada Generation": ["rtx-6000-ada"],
    "RTX PRO 6000 96G 服务器版": ["rtx-pro-6000-blackwell-server"],
    "RTX PRO 6000 Max-Q": ["rtx-pro-6000-blackwell-max-q"],
    "5090": ["rtx-5090"],
    "RTX 5090D": ["rtx-5090-d"],
    "5090 D V2": ["rtx-5090-d-v2"],
    "B200 192G": ["b200"],
    "NVIDIA B300 SXM6 AC": ["b300"],
    "GB200 NVL72": ["gb200"],
    "GH200 480GB": ["gh200"],
    "NVIDIA GH200 144G HBM3e": ["gh200-144gb"],
    "h100-sxm5-80gb": ["h100-sxm5-80gb"],
    "RTX-4090-D": ["rtx-4090-d"],
}
UNKNOWN = (
    "RTX 4090 Laptop",
    "RTX 4090 Ti",
    "3090 Ti",
    "RTX 6000",
    "A10G",
    "V100S",
    "A800 40G",
    "H100 96GB",
    "H20 NVL16",
    "H100 CNX",
    "MI300X",
    "昇腾 910B",
    "GPU",
    "80GB",
    "",
    "SXM5",
    "H1000",
    "A100 80GB A100 40GB",
    "A100 or A800",
)


@pytest.mark.parametrize(("written", "expected"), NAMES.items(), ids=list(NAMES))
def test_names_as_contracts_write_them(written: str, expected: list[str]) -> None:
    assert ids(CATALOGUE.match(written)) == expected


@pytest.mark.parametrize("written", UNKNOWN)
def test_names_of_other_products_are_unknown(written: str) -> None:
    assert CATALOGUE.match(written) == ()


def test_every_id_and_every_title_means_its_own_model() -> None:
    for m in CATALOGUE.models:
        assert ids(CATALOGUE.match(m.id)) == [m.id]
        assert m in CATALOGUE.by_name(m.nvml_names[0])
        if not m.modified:
            assert m in CATALOGUE.match(m.title), m.title


def test_names_of_the_driver_mean_their_model_in_a_contract_too() -> None:
    for m in CATALOGUE.models:
        for name in m.nvml_names:
            if not m.modified and not name.endswith(" LC"):
                assert m in CATALOGUE.match(name), name


@given(st.text(max_size=80))
def test_no_text_breaks_the_matcher(text: str) -> None:
    assert set(CATALOGUE.match(text)) <= set(CATALOGUE.models)
    assert device_id(text) == "" or len(device_id(text)) == 4


@pytest.mark.parametrize("word", [" Ti", " Laptop", " SUPER", "X", " MAX", " 二手平替", " 或 A10"])
def test_a_further_word_makes_a_name_unknown(word: str) -> None:
    for name in NAMES:
        assert not set(CATALOGUE.match(name + word)).intersection(CATALOGUE.match(name)), name + word


def test_parts_of_a_name() -> None:
    wanted = read_name("8×英伟达 A100 80G SXM4 版")
    assert (wanted.family, wanted.form, wanted.memory_gb) == ("A100", "sxm", 80)


def test_ambiguous_names_are_listed() -> None:
    assert set(CATALOGUE.ambiguous) == {"A100", "A800", "H100", "H800", "H20", "H200", "V100", "PRO6000"}


# --- what the machine says ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("written", ["0x2330", "2330", "0x233010DE", "10de:2330", "0x2330 ", "10DE:2330"])
def test_pci_ids_in_every_form(written: str) -> None:
    assert ids(CATALOGUE.by_pci(written)) == ["h100-sxm5-80gb"]


def test_a_modified_board_shares_the_pci_id_and_comes_last() -> None:
    assert ids(CATALOGUE.by_pci("0x2684")) == ["rtx-4090", "rtx-4090-48gb"]
    assert ids(CATALOGUE.by_name("NVIDIA GeForce RTX 4090 D")) == ["rtx-4090-d", "rtx-4090-d-48gb"]


@pytest.mark.parametrize(
    ("device", "subsystem", "name"),
    [
        ("0x2237", "", "NVIDIA A10G"),
        ("1df6", "", "Tesla V100S-PCIE-32GB"),
        ("20f6", "", "NVIDIA A800 40GB Active"),
        ("20bd", "", "NVIDIA A800-SXM4-40GB"),
        ("2339", "", "NVIDIA H100"),
        ("233a", "", "NVIDIA H800 NVL"),
        ("230e", "", "NVIDIA H20 NVL16"),
        ("20b2", "0x162510DE", "NVIDIA PG509-210"),
    ],
)
def test_ids_of_other_products_are_not_the_models(device: str, subsystem: str, name: str) -> None:
    assert CATALOGUE.by_pci(device, subsystem) == ()
    other = CATALOGUE.other(device, subsystem)
    assert other is not None
    assert other.name == name


@pytest.mark.parametrize(
    ("device", "model_id"),
    [("2348", "gh200-144gb"), ("2bb1", "rtx-pro-6000-blackwell-workstation"), ("2b8c", "rtx-5090-d-v2")],
)
def test_ids_that_were_lumped_together_are_told_apart(device: str, model_id: str) -> None:
    assert ids(CATALOGUE.by_pci(device)) == [model_id]


def test_a_subsystem_that_is_not_listed_is_no_fault() -> None:
    assert ids(CATALOGUE.by_pci("2330", "0x12341458")) == ["h100-sxm5-80gb"]


@pytest.mark.parametrize("written", ["", "zz", "0xffff", "[N/A]", "233", "Unknown"])
def test_unknown_pci_ids(written: str) -> None:
    assert CATALOGUE.by_pci(written) == ()
    assert CATALOGUE.other(written) is None


def test_names_of_the_driver_are_exact() -> None:
    assert ids(CATALOGUE.by_name("NVIDIA H800")) == ["h800-sxm5"]
    assert ids(CATALOGUE.by_name("A100-SXM4-40GB")) == ["a100-sxm4-40gb"]
    assert ids(CATALOGUE.by_name("NVIDIA A800-SXM...")) == ["a800-sxm4-80gb"]
    assert CATALOGUE.by_name("NVIDIA H100") == ()
    assert CATALOGUE.by_name("NVIDIA Graphics Device") == ()


# --- real listings -----------------------------------------------------------------------------------------------

SLICES = {"xml16_a100_80g_535_mig", "xml27_a100_40g_mig_510", "xml38_hami_shared_slice"}


def test_real_listings_agree_with_the_catalogue() -> None:
    if not CORPUS.is_dir():
        pytest.skip("1 check skipped: ../shared/corpus is not there")
    checked = 0
    for file in sorted((CORPUS / "smi_xml").glob("*.xml")):
        if file.stem in SLICES:
            continue
        try:
            listing = smi_xml.parse(file.read_text(encoding="utf-8", errors="replace"))
        except ParseError:
            continue
        checked += sum(_agrees(gpu, file.stem) for gpu in listing.gpus if not gpu.lost)
    assert checked >= 15


def _agrees(gpu: smi_xml.Gpu, where: str) -> bool:
    """Whether the card's name is known; then its PCI id and its memory must fit."""
    named = CATALOGUE.by_name(gpu.product_name or "")
    if not named or where.startswith(("xml08", "xml09")):  # made by a mock, with an id and a size of its own
        return False
    ecc = {"Enabled": True, "Disabled": False}.get(gpu.ecc_mode or "")
    assert any(gpu.memory_total_mib in m.memory_mib(ecc) for m in named), (where, gpu.product_name)
    if gpu.more.pci_device_id is not None and device_id(gpu.more.pci_device_id):
        assert set(CATALOGUE.by_pci(gpu.more.pci_device_id)) & set(named), (where, gpu.more.pci_device_id)
    clock = gpu.more.sm_clock_max_mhz
    if isinstance(clock, float):
        assert clock <= max(m.max_clock_mhz.value for m in named), (where, clock)
    return True


# --- accept gpus -------------------------------------------------------------------------------------------------


def run(*args: str) -> Any:
    return CliRunner().invoke(cli, ["gpus", *args])


def test_list_of_models() -> None:
    result = run()
    assert result.exit_code == 0
    for m in CATALOGUE.models:
        assert m.id in result.output
    assert "several products" in result.output


def test_details_name_sources_with_addresses() -> None:
    result = run("h100 sxm")
    assert result.exit_code == 0
    for expected in ("132 [", "81559 MiB", "989 TFLOPS @ 1830 MHz", "478.9 GB/s", "h800-sxm5", "https://github.com/"):
        assert expected in result.output


def test_an_ambiguous_name_shows_all() -> None:
    output = run("A100 80G").output
    assert "A100 PCIe 80GB" in output
    assert "A100 SXM4 80GB" in output


def test_json_has_the_entry_its_sources_and_what_is_computed() -> None:
    shown = json.loads(run("l40s", "--json").output)
    assert [g["id"] for g in shown["gpus"]] == ["l40s"]
    assert shown["gpus"][0]["computed"]["physical_bound_tflops"]["bf16"] == pytest.approx(142 * 1024 * 2520 / 1e6)
    text = json.dumps(shown["gpus"])
    assert all(f'"{label}"' in text for label in shown["sources"])
    assert len(json.loads(run("--json").output)["gpus"]) == len(CATALOGUE.models)


def test_unknown_name_says_the_nearest_and_ends_with_usage() -> None:
    result = run("h100-sxm5-85gb")
    assert result.exit_code == 2
    assert "h100-sxm5-80gb" in result.output
    assert run("昇腾 910B").exit_code == 2


def test_chinese_output() -> None:
    result = run("t4", "--lang", "zh")
    assert result.exit_code == 0
    assert "15360 MiB" in result.output


def test_catalogue_is_hashable_and_read_once() -> None:
    assert catalogue.load() is CATALOGUE
    assert isinstance(CATALOGUE, Catalogue)
