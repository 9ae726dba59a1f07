"""What each kind of clause value may look like, what it means, and that its JSON Schema agrees."""

from __future__ import annotations

import re
from typing import Any, Optional

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from agent import grammar as g
from agent.model import Promise

MEANS: list[tuple[g.Kind, str, str, Any, str]] = [
    (g.rate(), "2 GB/s", ">=", 2.0, "GB/s"),
    (g.rate(), ">= 2 GB/s", ">=", 2.0, "GB/s"),
    (g.rate(), "≥2GB/s", ">=", 2.0, "GB/s"),
    (g.rate(), "＞＝ ２ GB/s", ">=", 2.0, "GB/s"),
    (g.rate(), "> 2 GB/s", ">=", 2.0, "GB/s"),
    (g.rate(), "=> 2 GB/s", ">=", 2.0, "GB/s"),
    (g.rate(), "大于等于 2 GB/s", ">=", 2.0, "GB/s"),
    (g.rate(), "不低于2 GB/s", ">=", 2.0, "GB/s"),
    (g.rate(), "至少 500 Mbit/s", ">=", 500.0, "Mbit/s"),
    (g.rate(), "500 Mbit/s 以上", ">=", 500.0, "Mbit/s"),
    (g.rate(), "at least 500 Mbps", ">=", 500.0, "Mbit/s"),
    (g.rate(), "500 Mbit/s or more", ">=", 500.0, "Mbit/s"),
    (g.rate(), "2 GB/s+", ">=", 2.0, "GB/s"),
    (g.rate(), "1-2 GB/s", "range", (1.0, 2.0), "GB/s"),
    (g.rate(), "900 MB/s - 1 GB/s", "range", (0.9, 1.0), "GB/s"),
    (g.rate(auto=True), "auto", "auto", None, ""),
    (g.rate(auto=True), "自动", "auto", None, ""),
    (g.duration(), "10 ms", "<=", 10.0, "ms"),
    (g.duration(), "<= 10 ms", "<=", 10.0, "ms"),
    (g.duration(), "≤10毫秒", "<=", 10.0, "ms"),
    (g.duration(), "＜ 10 ms", "<=", 10.0, "ms"),
    (g.duration(), "10 ms 以内", "<=", 10.0, "ms"),
    (g.duration(), "不超过 10 ms", "<=", 10.0, "ms"),
    (g.duration(), "within 30 d", "<=", 30.0, "d"),
    (g.duration(), "10-20 ms", "range", (10.0, 20.0), "ms"),
    (g.duration(), "10..20 ms", "range", (10.0, 20.0), "ms"),
    (g.duration(), "10 ms ~ 20 ms", "range", (10.0, 20.0), "ms"),
    (g.duration(), "10 至 20 毫秒", "range", (10.0, 20.0), "ms"),
    (g.duration(), "1e-3 s", "<=", 0.001, "s"),
    (g.duration(unit="h"), "1000", "<=", 1000.0, "h"),
    (g.percent(), "5％", "<=", 5.0, "%"),
    (g.percent(), "<= 0 %", "<=", 0.0, "%"),
    (g.percent("at_least"), "99.5 %", ">=", 99.5, "%"),
    (g.size(), "80G", ">=", 80.0, "GB"),
    (g.size(), "= 80 GB", "==", 80.0, "GB"),
    (g.size(words={"unlimited": "unlimited"}), "Unlimited", "==", "unlimited", ""),
    (g.count(), "8", "==", 8.0, ""),
    (g.count(), "8 张", "==", 8.0, ""),
    (g.count(), ">= 8", ">=", 8.0, ""),
    (g.count(), "> 7", ">=", 8.0, ""),
    (g.count("at_least"), "96", ">=", 96.0, ""),
    (g.count("at_least"), "96+", ">=", 96.0, ""),
    (g.count(), "7B", "==", 7e9, ""),
    (g.ratio(), "2.5", ">=", 2.5, ""),
    (g.per_second(), ">= 300k", ">=", 300_000.0, "/s"),
    (g.flops(), "650 TFLOPS", ">=", 650.0, "TFLOPS"),
    (g.temperature(), "<= 85 C", "<=", 85.0, "C"),
    (g.power(words={"default": "default"}), "default", "==", "default", ""),
    (g.power(words={"default": "default"}), "700 W", ">=", 700.0, "W"),
    (g.rate(measured=False, also=("links",), words={"none": "none"}), "18 links", ">=", 18.0, "links"),
    (g.rate(measured=False, also=("links",), words={"none": "none"}), "900 GB/s", ">=", 900.0, "GB/s"),
    (g.rate(measured=False, also=("links",), words={"none": "none"}), "none", "==", "none", ""),
    (g.version(), "550.54", ">=", "550.54", ""),
    (g.version(), ">= 550.54.14", ">=", "550.54.14", ""),
    (g.version("equal"), "3.10", "==", "3.10", ""),
    (g.version("equal"), "12.x", "==", "12", ""),
    (g.version("equal"), "2.4.0+cu121", "==", "2.4.0+cu121", ""),
    (g.version("equal"), "<= 2.6", "<=", "2.6", ""),
    (g.version("equal"), "3.9 - 3.12", "range", ("3.9", "3.12"), ""),
    (g.version(), "5.15.0-91-generic", ">=", "5.15.0-91-generic", ""),
    (g.version(), "535 以上", ">=", "535", ""),
    (g.os_release(), "Ubuntu  22.04", "==", "Ubuntu 22.04", ""),
    (g.os_release(), ">= Ubuntu 22.04", ">=", "Ubuntu 22.04", ""),
    (g.os_release(), "openEuler 22.03 LTS SP3", "==", "openEuler 22.03 LTS SP3", ""),
    (g.os_release(), "银河麒麟 V10", "==", "银河麒麟 V10", ""),
    (g.flag(), "on", "==", True, ""),
    (g.flag(), "True", "==", True, ""),
    (g.flag(), "YES", "==", True, ""),
    (g.flag(), "开", "==", True, ""),
    (g.flag(), "是", "==", True, ""),
    (g.flag(), "off", "==", False, ""),
    (g.flag(), "关闭", "==", False, ""),
    (g.link(), "Gen5 x16", ">=", "Gen5 x16", ""),
    (g.link(), "PCIe 5.0 x16", ">=", "Gen5 x16", ""),
    (g.link(), "pcie gen 4 ×8", ">=", "Gen4 x8", ""),
    (g.link(), "x16", ">=", "x16", ""),
    (g.link(), ">= Gen4", ">=", "Gen4", ""),
    (g.raid(), "1", "==", "1", ""),
    (g.raid(), "RAID-10", "==", "10", ""),
    (g.raid(), "RAID 1+0", "==", "10", ""),
    (g.raid(), "none", "==", "none", ""),
    (g.distance(), "<= PXB", "<=", "PXB", ""),
    (g.distance(), "pxb", "<=", "PXB", ""),
    (g.distance("NVLink"), "NVLINK", "<=", "NVLink", ""),
    (g.one_of("bare-metal", aliases={"裸金属": "bare-metal"}), "Bare Metal", "==", "bare-metal", ""),
    (g.one_of("bare-metal", aliases={"裸金属": "bare-metal"}), "裸金属", "==", "bare-metal", ""),
    (g.model_name(), "ＲＴＸ　4090", "==", "RTX 4090", ""),
    (g.server(), "203.0.113.9:5201", "==", "203.0.113.9:5201", ""),
    (g.server(), "[2001:db8::1]:5201", "==", "[2001:db8::1]:5201", ""),
    (g.host(), "2001:db8::1", "==", "2001:db8::1", ""),
    (g.endpoint(), "https://mirror.example.cn/simple", "==", "https://mirror.example.cn/simple", ""),
    (g.endpoint(), "registry.example.cn:443", "==", "registry.example.cn:443", ""),
    (g.hours_of_day(), "19:00-23:00", "==", "19:00-23:00", ""),
    (g.day(), "2026-11-20", "==", "2026-11-20", ""),
    (g.day(), "2026年11月20日", "==", "2026-11-20", ""),
]

MEANS_NOTHING: list[tuple[g.Kind, str, str]] = [
    (g.rate(), "<= 2 GB/s", 'write ">= 2 GB/s"'),
    (g.rate(), "up to 2 GB/s", "more is better here"),
    (g.rate(), "= 2 GB/s", "never exactly equal"),
    (g.rate(), "约 2 GB/s", "approximate"),
    (g.rate(), "2 GB/s 左右", "approximate"),
    (g.rate(), "2 GB/s ± 5 %", "not a unit"),
    (g.rate(), "0 GB/s", "zero promises nothing"),
    (g.rate(), "auto", "does not begin with a number"),
    (g.rate(), ">= 1-2 GB/s", "a range takes no comparison"),
    (g.rate(), ">=", "does not begin with a number"),
    (g.rate(), "", "a rate"),
    (g.duration(), ">= 10 ms", 'write "<= 10 ms"'),
    (g.duration(), "不低于 10 ms", 'write "<= 10 ms"'),
    (g.duration(), "20-10 ms", "upside down"),
    (g.duration(), "10", "it has no unit"),
    (g.percent(), "101 %", "no more than 100"),
    (g.percent(), "0.05", "it has no unit"),
    (g.count(), "8.5", "whole number"),
    (g.count(), "<= 8", "cannot be limited from above"),
    (g.count(), "0", "zero"),
    (g.version(), "> 550", 'write ">= 550"'),
    (g.version(), "newest", "a version such as"),
    (g.os_release(), "Ubuntu", "a distribution and its release"),
    (g.os_release(), "22.04", "a distribution and its release"),
    (g.flag(), "maybe", "on or off"),
    (g.link(), "16", "a PCIe generation and width"),
    (g.link(), "Gen5 x3", "a PCIe generation and width"),
    (g.link(), "<= Gen5 x16", 'write ">= Gen5 x16"'),
    (g.raid(), "7", "one of"),
    (g.distance(), ">= PXB", "nearer is better"),
    (g.distance(), "NVLink", "one of"),
    (g.model_name(), ">= H100", "a product name"),
    (g.server(), "-b:5201", "a server"),
    (g.server(), "host:0", "a server"),
    (g.server(), "host:65536", "a server"),
    (g.server(), "two words", "a server"),
    (g.url(), "example.cn/file", "an address"),
    (g.hours_of_day(), "19:00", "hours of the day"),
    (g.hours_of_day(), "19:00-25:00", "hours of the day"),
    (g.day(), "2026-02-30", "no such day"),
    (g.day(), "20.11.2026", "a date"),
    (g.interface(), "--help", "a network interface"),
]

# The loader alone can say these, see agent/contract_schema.py.
ONLY_THE_LOADER = {"upside down", "no such day", "a range takes no comparison"}


def named(kind: Any) -> str:
    return kind.name if isinstance(kind, g.Kind) else repr(kind)


@pytest.mark.parametrize(("kind", "text", "op", "value", "unit"), MEANS, ids=named)
def test_means(kind: g.Kind, text: str, op: str, value: Any, unit: str) -> None:
    promise = kind.parse(text)
    assert (promise.op, promise.value, promise.unit, promise.written) == (op, value, unit, text)
    assert type(promise.value) is type(value)
    if not re.search("[ａ-ｚＡ-Ｚ]", text):
        assert Draft202012Validator(kind.schema()).is_valid(text)


@pytest.mark.parametrize(("kind", "text", "said"), MEANS_NOTHING, ids=named)
def test_means_nothing(kind: g.Kind, text: str, said: str) -> None:
    with pytest.raises(g.GrammarError, match=re.escape(said)):
        kind.parse(text)
    if said not in ONLY_THE_LOADER:
        assert not Draft202012Validator(kind.schema()).is_valid(text)


def test_lists() -> None:
    kind = g.list_of(g.server())
    assert kind.parse_items(["a:1", "b"]) == Promise("one_of", ("a:1", "b"), "", "a:1, b")
    assert kind.parse("a:1").value == ("a:1",)
    schema = Draft202012Validator(kind.schema())
    assert schema.is_valid(["a:1", "b"])
    assert schema.is_valid("a:1")
    assert not schema.is_valid([])
    assert not schema.is_valid(["-x"])


def test_numbers_and_booleans_of_yaml_are_in_the_schema() -> None:
    assert Draft202012Validator(g.count().schema()).is_valid(8)
    assert not Draft202012Validator(g.count().schema()).is_valid(8.5)
    assert not Draft202012Validator(g.count().schema()).is_valid(0)
    assert Draft202012Validator(g.flag().schema()).is_valid(True)
    assert Draft202012Validator(g.version().schema()).is_valid(3.1)
    assert Draft202012Validator(g.raid().schema()).is_valid(10)
    assert not Draft202012Validator(g.raid().schema()).is_valid(7)
    assert not Draft202012Validator(g.rate().schema()).is_valid(500)


def test_links_are_read_back() -> None:
    assert g.parse_link("Gen5 x16") == g.Link(5, 16)
    assert g.parse_link("x8") == g.Link(None, 8)
    assert str(g.parse_link("PCIe 4.0")) == "Gen4"
    assert g.parse_link("USB") is None


KINDS = list({id(kind): kind for kind, *_ in MEANS}.values())


def parsed(kind: g.Kind, text: str) -> tuple[Optional[Promise], Optional[str]]:
    """The promise, or the error's words."""
    try:
        return kind.parse(text), None
    except g.GrammarError as error:
        return None, str(error)


@settings(deadline=None)  # a busy machine is no failure
@given(st.sampled_from(KINDS), st.text(max_size=40))
def test_any_text_is_a_promise_or_a_grammar_error(kind: g.Kind, text: str) -> None:
    promise, error = parsed(kind, text)
    assert promise is None or promise.written == text.strip()
    assert error is None or error.startswith("expected ")


@settings(deadline=None)  # a busy machine is no failure
@given(
    st.sampled_from(["", ">= ", "≥", "至少", "> ", "<= ", "≤ ", "= "]),
    st.decimals(min_value=0, max_value=10000, places=2).map(lambda d: format(d.normalize(), "f")),
    st.sampled_from(["", " ms", "GB/s", " GB", " %", "W", " M", "k", "C", " 张"]),
    st.sampled_from(["", "以内", " 以上", " or more", "+"]),
    st.sampled_from([k for k in KINDS if isinstance(k, g.QuantityKind)]),
)
def test_schema_and_parser_agree_on_quantities(sign: str, number: str, unit: str, after: str, kind: g.Kind) -> None:
    """The loader accepts nothing that the schema rejects, nor the other way round."""
    text = f"{sign}{number}{unit}{after}"
    valid = Draft202012Validator(kind.schema()).is_valid(text)
    _, error = parsed(kind, text)
    assert valid == (error is None), text
