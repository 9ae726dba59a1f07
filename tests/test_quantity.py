"""Numbers with units: what is read, what is refused, and what never changes under conversion and printing."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.quantity import (
    DIMENSIONS,
    Quantity,
    QuantityError,
    compare,
    convert,
    dimension_of,
    format_quantity,
    parse_quantity,
    shown,
    unit_pattern,
)

READ = [
    ("80 GB", "size", 80, "GB"),
    ("80G", "size", 80, "GB"),
    ("80g", "size", 80, "GB"),
    ("1 GiB", "size", 1, "GiB"),
    ("1,500 GB", "size", 1500, "GB"),
    ("３．３５　ＴＢ", "size", 3.35, "TB"),
    ("3.35 TB/s", "rate", 3.35, "TB/s"),
    ("100 Gbit/s", "rate", 100, "Gbit/s"),
    ("100 Gbps", "rate", 100, "Gbit/s"),
    ("400 Gb/sec", "rate", 400, "Gbit/s"),
    ("500 Mb/s", "rate", 500, "Mbit/s"),
    ("500 MBps", "rate", 500, "MB/s"),
    ("2 GB/秒", "rate", 2, "GB/s"),
    ("1.5e3 MiB/s", "rate", 1500, "MiB/s"),
    ("650 TFLOPS", "flops", 650, "TFLOPS"),
    ("650 TFLOP/s", "flops", 650, "TFLOPS"),
    ("1979 TOPS", "flops", 1979, "TOPS"),
    ("300k", "per_second", 300_000, "/s"),
    ("300k IOPS", "per_second", 300_000, "IOPS"),
    ("30万", "per_second", 300_000, "/s"),
    ("20000 /s", "per_second", 20_000, "/s"),
    ("300000 tokens/s", "per_second", 300_000, "tokens/s"),
    ("10 ms", "time", 10, "ms"),
    ("10 毫秒", "time", 10, "ms"),
    ("250 µs", "time", 250, "us"),
    ("10 min", "time", 10, "min"),
    ("30 天", "time", 30, "d"),
    ("5％", "percent", 5, "%"),
    ("0.5 %", "percent", 0.5, "%"),
    ("85 ℃", "temperature", 85, "C"),
    ("85°C", "temperature", 85, "C"),
    ("700W", "power", 700, "W"),
    ("10 kW", "power", 10, "kW"),
    ("8", "count", 8, ""),
    ("8 张", "count", 8, ""),
    ("8 GPUs", "count", 8, ""),
    ("7B", "count", 7e9, ""),
    ("3000亿", "count", 3e11, ""),
    ("2 倍", "count", 2, ""),
    ("18 links", "links", 18, "links"),
]

REFUSED = [
    ("500M", "rate", "write 500 Mbit/s or 500 MB/s"),
    ("500 m", "rate", "write 500 Mbit/s or 500 MB/s"),
    ("500 mb/s", "rate", "write 500 Mbit/s or 500 MB/s"),
    ("500 Mbit", "rate", "write 500 Mbit/s or 500 MB/s"),
    ("500 兆", "rate", "write 500 Mbit/s or 500 MB/s"),
    ("10 GBPS", "rate", "write 10 Gbit/s or 10 GB/s"),
    ("80 GB", "rate", "GB is a size, not a rate; write it like 80 GB/s"),
    ("80 GB/s", "size", "GB/s is a rate, not a size; write it like 80 GB"),
    ("80 Gb", "size", "write 80 GB"),
    ("80", "size", "it has no unit"),
    ("85", "temperature", "it has no unit"),
    ("185 F", "temperature", "write 185 C"),
    ("10 m", "time", "write 10 min or 10 ms"),
    ("650 T", "flops", "write 650 TFLOPS"),
    ("1,5 GB", "size", "a comma is not a decimal point"),
    ("GB", "size", "it does not begin with a number"),
    ("-5 GB", "size", "it does not begin with a number"),
    ("1.2.3 GB", "size", ".3GB is not a unit of a size"),
    ("nan GB", "size", "it does not begin with a number"),
    ("1e999 GB", "size", "the number is too large"),
    ("10 bananas", "time", "bananas is not a unit of a time"),
    ("80 GB x8", "size", "GBx8 is not a unit of a size"),
]


@pytest.mark.parametrize(("text", "dimension", "value", "unit"), READ)
def test_read(text: str, dimension: str, value: float, unit: str) -> None:
    quantity = parse_quantity(text, dimension)
    assert quantity.unit == unit
    assert quantity.value == pytest.approx(value)


@pytest.mark.parametrize(("text", "dimension", "said"), REFUSED)
def test_refused(text: str, dimension: str, said: str) -> None:
    with pytest.raises(QuantityError, match=re.escape(said)):
        parse_quantity(text, dimension)


def test_bits_and_bytes_are_one_dimension() -> None:
    assert convert(8, "Gbit/s", "GB/s") == 1
    assert convert(100, "MB/s", "Mbit/s") == 800
    assert convert(1, "GiB/s", "B/s") == 2**30


def test_unlike_dimensions_are_not_compared() -> None:
    with pytest.raises(QuantityError, match="cannot be compared"):
        convert(1, "GB", "GB/s")
    with pytest.raises(QuantityError, match="cannot be compared"):
        compare(Quantity(1, "ms"), Quantity(1, "%"))
    with pytest.raises(QuantityError, match="is not a unit"):
        convert(1, "parsec", "s")


def test_compare() -> None:
    assert compare(Quantity(1, "GB/s"), Quantity(8, "Gbit/s")) == 0
    assert compare(Quantity(1, "GB"), Quantity(1, "GiB")) == -1
    assert compare(Quantity(1, "min"), Quantity(59, "s")) == 1


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (3.35e12, "B/s", "3.35 TB/s"),
        (512.3, "TFLOPS", "512.3 TFLOPS"),
        (5.123e14, "FLOPS", "512.3 TFLOPS"),
        (0.0023, "s", "2.3 ms"),
        (600, "s", "10 min"),
        (100, "s", "100 s"),
        (500e6, "bit/s", "500 Mbit/s"),
        (2**30, "B", "1.074 GB"),
        (1024, "MiB", "1 GiB"),
        (12.3456, "%", "12.35 %"),
        (300000, "", "300000"),
        (312345.6, "tokens/s", "312346 tokens/s"),
        (0, "GB/s", "0 GB/s"),
        (85, "C", "85 C"),
        (1e-9, "GB/s", "1 B/s"),
        (999.99, "GB/s", "1 TB/s"),
        (float("inf"), "GB/s", "inf GB/s"),
    ],
)
def test_format(value: float, unit: str, text: str) -> None:
    assert format_quantity(value, unit) == text


UNITS = sorted({unit for d in DIMENSIONS.values() for unit in d.units})
NUMBERS = st.floats(min_value=1e-3, max_value=1e9, allow_nan=False)


@settings(deadline=None)  # a busy machine is no failure
@given(st.sampled_from(sorted(DIMENSIONS)), st.data())
def test_every_spelling_is_read_and_stands_in_the_pattern(name: str, data: st.DataObject) -> None:
    dimension = DIMENSIONS[name]
    spelling = data.draw(st.sampled_from(sorted(dimension.spellings)))
    factor, unit = dimension.spellings[spelling]
    if spelling:
        assert parse_quantity(f"3 {spelling}", name) == Quantity(3 * factor, unit)
    assert re.fullmatch(unit_pattern(name), spelling) or dimension.bare is None


@settings(deadline=None)  # a busy machine is no failure
@given(NUMBERS, st.sampled_from(UNITS))
def test_printed_is_read_back(value: float, unit: str) -> None:
    printed = format_quantity(value, unit)
    back = parse_quantity(printed, dimension_of(unit))
    assert convert(back.value, back.unit, unit) == pytest.approx(value, rel=1e-3)


@settings(deadline=None)  # a busy machine is no failure
@given(NUMBERS, st.sampled_from(UNITS), st.sampled_from(UNITS))
def test_conversion_goes_there_and_back_or_nowhere(value: float, a: str, b: str) -> None:
    if dimension_of(a) != dimension_of(b):
        with pytest.raises(QuantityError):
            convert(value, a, b)
    else:
        assert convert(convert(value, a, b), b, a) == pytest.approx(value)


@settings(deadline=None)  # a busy machine is no failure
@given(st.text(max_size=40), st.sampled_from(sorted(DIMENSIONS)))
def test_any_text_is_a_finite_quantity_or_one_kind_of_error(text: str, name: str) -> None:
    try:
        quantity = parse_quantity(text, name)
    except QuantityError as error:
        said = str(error)
    else:
        said = ""
        assert 0 <= quantity.value < 1e31
        assert quantity.unit in DIMENSIONS[name].units
    assert said == "" or said.isprintable()


def test_no_doubtful_spelling_is_also_read() -> None:
    for dimension in DIMENSIONS.values():
        assert not set(dimension.doubtful) & set(dimension.spellings)


def test_shown_is_safe_for_a_terminal() -> None:
    assert shown("a\x1b[31mb\n") == "a\\x1b[31mb\\n"
    assert len(shown("x" * 1000)) == 61
