"""On the limit is kept, in whatever unit it was written, and a hair beside it is told from it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.checks._judge import fact, limit_of
from agent.model import Clause, Op, Promise
from agent.quantity import DIMENSIONS, convert
from agent.reading import Known
from agent.stats import Attempt, Interval, decide

UNITS = [
    (one, other)
    for d in DIMENSIONS.values()
    if d.name in ("size", "rate", "time", "flops")
    for one in d.units
    for other in d.units
]


def clause(op: Op, value: float, unit: str, tolerance: float = 0.0) -> Clause:
    return Clause("x.y", "x", "y", Promise(op, value, unit, f"{op} {value} {unit}"), 1, 1, tolerance=tolerance)


@given(st.sampled_from(UNITS), st.integers(1, 10**6).map(lambda n: n / 1000), st.sampled_from([">=", "<=", "=="]))
def test_what_is_promised_is_kept_in_every_unit(units: tuple[str, str], value: float, op: Op) -> None:
    promised, found = units
    reading = Known(convert(value, promised, found), ("evidence/1",))
    assert fact(clause(op, value, promised), reading, unit=found).outcome == "pass"


@given(st.integers(1, 10**6).map(lambda n: n / 1000), st.sampled_from([1e-3, 1e-6, 1e-9]))
def test_a_millionth_short_is_short_and_says_so(value: float, share: float) -> None:
    found = fact(clause(">=", value, "GB"), Known(value * (1 - share), ()), unit="GB")
    assert found.outcome == "fail"
    args = dict(found.reason.args)
    number, unit = str(args["found"]).split(" ")
    assert convert(float(number), unit, "GB") < value


@pytest.mark.parametrize(
    ("op", "value", "tolerance", "limit"),
    [
        (">=", 650.0, 0.05, 617.5),
        ("<=", 60.0, 0.10, 66.0),
        (">=", 1.1, 0.10, 0.99),
        ("<=", 3.0, 0.10, 3.3),
        (">=", 500.0, 0.0, 500.0),
        (">=", 500.0, 1.0, 0.0),
    ],
)
def test_a_limit_is_the_number_that_a_person_calculates(op: Op, value: float, tolerance: float, limit: float) -> None:
    assert limit_of(clause(op, value, "ms", tolerance)).value == limit


@given(st.integers(1, 10**9), st.sampled_from([">=", "<="]))
def test_an_interval_that_ends_on_the_limit_is_on_its_good_side(count: int, op: str) -> None:
    """Nanoseconds of a tool, milliseconds of a contract: the last bit of the conversion decides nothing."""
    value = convert(float(count), "ns", "ms")
    limit = count / 1e6
    for end in (
        (value, math.nextafter(value, 0.0), math.nextafter(value, math.inf)) if hasattr(math, "nextafter") else (value,)
    ):
        attempt = Attempt(end, Interval(end, end, "exact"))
        assert decide(">=" if op == ">=" else "<=", limit, [attempt]).outcome == "pass"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("op", [">=", "<=", "=="])
def test_what_is_no_number_keeps_nothing(value: float, op: Op) -> None:
    found = fact(clause(op, 1.0, "GB"), Known(value, ("evidence/1",)), unit="GB")
    assert (found.outcome, found.reason_code, found.evidence) == ("inconclusive", "unparsable", ("evidence/1",))
    assert decide(">=", 1.0, [Attempt(value, Interval(value, value, "exact"))]).outcome == "inconclusive"
