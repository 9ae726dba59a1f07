"""The statistics of the verdict: known figures, every row of the decision's table, series, a fast simulation."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace
from typing import Callable, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import stats
from agent.stats import Attempt, Interval, Op, Repetition, Step
from tests.perf import simulate_nodes, simulate_stats

LIMIT = 100.0


def attempt(low: float, high: float, look: int = 1, void: Optional[str] = None) -> Attempt:
    return Attempt((low + high) / 2, Interval(low, high, "test", 0.99), look, void)


# One letter an attempt, then its look, as in the table of `decide`. V: void.
def course(text: str) -> list[Attempt]:
    made = {
        "P": lambda look: attempt(101, 103, look),
        "F": lambda look: attempt(90, 95, look),
        "S": lambda look: attempt(98, 102, look),
        "V": lambda look: attempt(101, 103, look, "disturbed"),
    }
    return [made[token[0]](int(token[1])) for token in text.split()]


# ---------------------------------------------------------------- numbers


def test_median_of_odd_and_even() -> None:
    assert stats.median([3.0, 1.0, 2.0]) == 2.0
    assert stats.median([4.0, 1.0, 2.0, 3.0]) == 2.5


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([], "no-samples"),
        ([1.0, math.nan], "not-a-number"),
        ([1.0, math.inf], "not-a-number"),
        ([1.0, -0.5], "negative"),
    ],
)
def test_bad_numbers_are_refused_by_name(values: list[float], reason: str) -> None:
    assert stats.problem(values) == reason
    with pytest.raises(ValueError, match=reason):
        stats.median(values)
    with pytest.raises(ValueError, match=reason):
        stats.order_interval(values)


def test_percentile_is_a_nearest_rank() -> None:
    samples = [float(i) for i in range(1, 101)]
    assert stats.percentile(samples, 0.99) == 99.0
    assert stats.percentile(samples, 1.0) == 100.0
    assert stats.percentile([7.0], 0.5) == 7.0
    with pytest.raises(ValueError, match="percentile"):
        stats.percentile(samples, 99)


@pytest.mark.parametrize(
    ("value", "bound", "code"),
    [
        (1039.0, 989.5, None),
        (1038.9, 989.5, None),
        (1039.1, 989.5, "above-physical-limit"),
        (5.0, None, None),
        (math.nan, 989.5, None),
    ],
)
def test_void_above_the_physical_bound(value: float, bound: Optional[float], code: Optional[str]) -> None:
    if value == 1039.0:
        value = 989.5 * 1.05
    assert stats.void_above(value, bound) == code


# ---------------------------------------------------------------- intervals


@pytest.mark.parametrize(
    ("count", "rank", "coverage"),
    [(1, 1, 0.0), (3, 1, 0.75), (5, 1, 0.9375), (6, 1, 0.96875), (11, 2, 0.98828125), (12, 2, 0.99365234375)],
)
def test_order_coverage_is_the_binomial_sum(count: int, rank: int, coverage: float) -> None:
    assert stats.order_coverage(count, rank) == coverage


def test_six_blocks_span_minimum_to_maximum() -> None:
    blocks = [[500.0, 510.0, 505.0], [520.0], [515.0, 513.0], [509.0], [508.9, 508.9], [512.0]]
    found = stats.block_attempt(blocks)
    assert found.value == pytest.approx((509.0 + 512.0) / 2)
    assert found.interval == Interval(505.0, 520.0, "min–max of 6 blocks, 96.9 %", 0.96875)


@pytest.mark.parametrize(
    ("count", "look", "ends", "rule"),
    [
        (14, 2, (2.0, 11.0), "3rd lowest–3rd highest of 14 blocks, 98.7 %"),
        (11, 2, (1.0, 9.0), "2nd lowest–2nd highest of 11 blocks, 98.8 %"),
        (5, 1, (0.0, 4.0), "min–max of 5 blocks, 93.8 %"),
        (1, 1, (0.0, 0.0), "min–max of 1 blocks, 0.0 %"),
    ],
)
def test_other_numbers_of_blocks_state_their_coverage(
    count: int, look: int, ends: tuple[float, float], rule: str
) -> None:
    found = stats.median_attempt([float(i) for i in range(count)], look)
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == ends
    assert found.interval.rule == rule


def test_the_defaults_keep_the_error_budget() -> None:
    first = stats.order_interval([float(i) for i in range(stats.BLOCKS)], stats.CONFIDENCE).coverage
    for count in (stats.BLOCKS_DEEPER, stats.REPETITIONS_DEEPER):
        values = [float(i) for i in range(count)]
        second = stats.order_interval(values, stats.CONFIDENCE_DEEPER).coverage
        assert (1 - first) + (1 - second) <= stats.ERROR_BUDGET
    assert stats.REPETITIONS >= stats.BLOCKS
    assert (1 - stats.SHARE_CONFIDENCE) / 2 + (1 - stats.SHARE_CONFIDENCE_DEEPER) / 2 <= 0.001 + 1e-12


@given(st.lists(st.floats(0, 1e12), min_size=1, max_size=40), st.sampled_from((1, 2)))
def test_the_median_lies_in_its_interval(values: list[float], look: int) -> None:
    found = stats.median_attempt(values, look)
    assert found.value is not None
    assert found.interval is not None
    assert found.interval.low <= found.value <= found.interval.high


def test_order_interval_covers_as_it_says() -> None:
    rng = random.Random(1)
    covered = 0
    for _ in range(4000):
        interval = stats.order_interval([rng.expovariate(1.0) for _ in range(6)])
        covered += interval.low <= math.log(2) <= interval.high
    assert covered / 4000 == pytest.approx(0.96875, abs=0.01)


def test_spread_is_taken_round_by_round() -> None:
    # The whole node slows down from round to round; the second card lags by a tenth in each.
    gpus = [[[rate * factor] for rate in (100.0, 90.0, 80.0, 70.0, 60.0, 50.0)] for factor in (1.0, 0.9, 1.0, 1.0)]
    found = stats.spread_attempt(gpus)
    assert found.value == pytest.approx(0.1)
    assert found.interval is not None
    assert [found.interval.low, found.interval.high] == pytest.approx([0.1, 0.1])
    assert found.interval.rule == "min–max of 6 rounds, 96.9 %"


@pytest.mark.parametrize(
    ("gpus", "void"),
    [
        ([], "no-samples"),
        ([[[1.0]] * 6], "no-samples"),
        ([[[1.0]] * 6, [[1.0]] * 5], "uneven-blocks"),
        ([[[1.0]] * 6, []], "uneven-blocks"),
        ([[[0.0]] * 6, [[0.0]] * 6], "not-a-number"),
        ([[[1.0]] * 6, [[math.nan]] * 6], "not-a-number"),
    ],
)
def test_a_spread_that_cannot_be_computed_is_void(gpus: list[list[list[float]]], void: str) -> None:
    assert stats.spread_attempt(gpus) == Attempt(None, None, 1, void)


# ---------------------------------------------------------------- shares

# scipy.stats.binomtest(k, n).proportion_ci(0.95, "exact"), as printed in many tables
CLOPPER_PEARSON = [
    (0, 10, 0.0, 0.30849710781876083),
    (1, 10, 0.0025285785444617, 0.4450161174016265),
    (5, 100, 0.0164318791820518, 0.1128349111054629),
    (10, 10, 0.6915028921812392, 1.0),
]


@pytest.mark.parametrize(("count", "trials", "low", "high"), CLOPPER_PEARSON)
def test_clopper_pearson_against_published_figures(count: int, trials: int, low: float, high: float) -> None:
    found = stats.share_interval(count, trials, 0.95)
    assert found.low == pytest.approx(low, abs=1e-9)
    assert found.high == pytest.approx(high, abs=1e-9)


@given(st.integers(1, 40), st.data(), st.floats(0.001, 0.999))
def test_binomial_tail_is_the_plain_sum(trials: int, data: st.DataObject, p: float) -> None:
    count = data.draw(st.integers(0, trials))
    plain = math.fsum(math.comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(count + 1))
    assert stats.tail_at_most(count, trials, p) == pytest.approx(plain, abs=1e-12)
    assert stats.tail_at_least(count + 1, trials, p) == pytest.approx(1 - plain, abs=1e-9)


def test_large_trials_stay_exact_and_quick() -> None:
    found = stats.share_interval(50_000, 100_000, 0.95)
    assert found.low == pytest.approx(0.496896, abs=1e-6)
    assert found.high == pytest.approx(0.503104, abs=1e-6)
    assert stats.tail_at_most(90_000, 100_000, 1e-3) == 1.0


@pytest.mark.parametrize(("limit", "op"), [(0.005, "<="), (0.01, "<="), (0.1, "<="), (0.5, "<="), (0.995, ">=")])
def test_planned_trials_decide_zero_and_a_clear_violation(limit: float, op: Op) -> None:
    trials = stats.trials_for(limit, op)
    allowed = limit if op == "<=" else 1 - limit
    none_bad, worst = (0, 1) if op == "<=" else (trials, -1)
    assert stats.decide(op, limit, [stats.share_attempt(none_bad, trials)]).outcome == "pass"
    if trials == math.ceil(math.log(0.000625) / math.log1p(-allowed)):  # else the violation asked for more
        fewer = trials - 1
        short = stats.share_attempt(0 if op == "<=" else fewer, fewer)
        assert stats.decide(op, limit, [short]).outcome == "inconclusive"
    violation = min(4 * allowed, (1 + allowed) / 2)
    caught = [
        bad
        for bad in range(trials + 1)
        if stats.decide(op, limit, [stats.share_attempt(none_bad + worst * bad, trials)]).again == "repeat"
    ]
    assert stats.tail_at_least(min(caught), trials, violation) >= 0.95


def test_planned_trials_of_the_usual_clause() -> None:
    assert stats.trials_for(0.005) == 1472
    assert stats.trials_for(0.005, look=2) == 4 * 1472


@pytest.mark.parametrize(("limit", "op"), [(0.0, "<="), (1.0, ">="), (1.0, "<="), (0.5, "=="), (math.nan, "<=")])
def test_what_trials_cannot_show_is_refused(limit: float, op: Op) -> None:
    with pytest.raises(ValueError, match="can't be shown"):
        stats.trials_for(limit, op)


@pytest.mark.parametrize(
    ("count", "trials", "void"), [(0, 0, "no-samples"), (5, 4, "not-a-number"), (-1, 4, "negative")]
)
def test_impossible_shares_are_void(count: int, trials: int, void: str) -> None:
    assert stats.share_attempt(count, trials).void == void
    with pytest.raises(ValueError, match="not a share"):
        stats.share_interval(count, trials)


T_TABLE = [(1, 0.975, 12.7062), (2, 0.975, 4.3027), (5, 0.975, 2.5706), (11, 0.999, 4.0247), (23, 0.975, 2.0687)]


@pytest.mark.parametrize(("degrees", "probability", "value"), T_TABLE)
def test_students_t_against_the_table(degrees: int, probability: float, value: float) -> None:
    assert stats.t_quantile(probability, degrees) == pytest.approx(value, abs=5e-5)


# Exact 95 % limits of a Poisson count, from any table; Byar's form is within 1 % of them.
POISSON = [(5, 1.623, 11.668), (10, 4.795, 18.390), (50, 37.111, 65.919)]


@pytest.mark.parametrize(("count", "low", "high"), POISSON)
def test_gamma_ends_are_poisson_limits_of_rare_events(count: int, low: float, high: float) -> None:
    assert stats.gamma_ends(count, count, 1.95996) == pytest.approx((low, high), rel=0.01)


def test_gamma_ends_of_many_events_are_symmetric() -> None:
    assert stats.gamma_ends(0.5, 1e-8, 3.0) == pytest.approx((0.4997, 0.5003), abs=1e-6)
    assert stats.gamma_ends(0.5, 0.0, 3.0) == (0.5, 0.5)


def test_time_share_is_the_share_of_the_whole_time() -> None:
    found = stats.time_share_attempt([0.0, 0.0, *[0.3] * 10])
    assert found.value == pytest.approx(0.25)
    assert found.interval is not None
    assert 0.01 < found.interval.low < 0.25 < found.interval.high <= 1
    assert stats.decide("<=", 0.01, [found, found]).outcome == "fail"


def test_one_bad_block_of_twelve_does_not_convict() -> None:
    found = stats.time_share_attempt([1.0, *[0.0] * 11])
    assert stats.decide("<=", 0.01, [found]).again == "deeper"


def test_no_throttling_at_all_passes_and_full_throttling_fails() -> None:
    assert stats.decide("<=", 0.01, [stats.time_share_attempt([0.0] * 12)]).outcome == "pass"
    full = stats.time_share_attempt([1.0] * 12)
    assert full.interval == Interval(1.0, 1.0, "gamma interval of 12 blocks, 99.95 %", stats.TIME_CONFIDENCE)
    assert stats.decide("<=", 0.01, [full, full]).reason_code == "above-limit"


@pytest.mark.parametrize(
    ("shares", "reason"),
    [
        ([], "no-samples"),
        ([math.nan] * 12, "not-a-number"),
        ([1.2] * 12, "not-a-number"),
        ([-0.1] * 12, "negative"),
        ([0.0] * 11, "too-few-samples"),
    ],
)
def test_bad_or_too_few_time_blocks_never_pass(shares: list[float], reason: str) -> None:
    decision = stats.decide("<=", 0.5, [stats.time_share_attempt(shares)])
    assert (decision.outcome, decision.reason_code) == ("inconclusive", reason)


# ---------------------------------------------------------------- decide: the table

TABLE = [
    # row, attempts, outcome, reason, again
    (1, "", "inconclusive", "no-measurement", None),
    (2, "V1", "inconclusive", "disturbed", None),
    (2, "V1 V2", "inconclusive", "disturbed", None),
    (3, "F1 P1", "inconclusive", "unstable", None),
    (3, "P1 F1", "inconclusive", "unstable", None),
    (3, "S1 F2 P2", "inconclusive", "unstable", None),
    (3, "F1 S1 P2", "inconclusive", "unstable", None),
    (3, "F1 F1 P1", "inconclusive", "unstable", None),
    (4, "S1", "inconclusive", "too-close", "deeper"),
    (4, "S1 P1", "inconclusive", "too-close", "deeper"),
    (4, "P1 S1", "inconclusive", "too-close", "deeper"),
    (4, "S1 F1 F1", "inconclusive", "too-close", "deeper"),
    (4, "F1 S1", "inconclusive", "too-close", "deeper"),
    (5, "S1 S2", "inconclusive", "too-close", None),
    (5, "S2", "inconclusive", "too-close", None),
    (5, "S2 P2", "inconclusive", "too-close", None),
    (5, "S1 S2 P1", "inconclusive", "too-close", None),
    (5, "F2 S2", "inconclusive", "too-close", None),
    (5, "S1 F2 S2", "inconclusive", "too-close", None),
    (5, "F1 S1 S2", "inconclusive", "too-close", None),
    (5, "S1 V2", "inconclusive", "too-close", None),
    (6, "F1", "inconclusive", "fail-not-repeated", "repeat"),
    (6, "F2", "inconclusive", "fail-not-repeated", "repeat"),
    (6, "S1 F2", "inconclusive", "fail-not-repeated", "repeat"),
    (6, "V1 F1", "inconclusive", "fail-not-repeated", "repeat"),
    (6, "F1 V1", "inconclusive", "fail-not-repeated", None),
    (7, "F1 F1", "fail", "below-limit", None),
    (7, "F1 V1 F1", "fail", "below-limit", None),
    (7, "S1 F2 F2", "fail", "below-limit", None),
    (7, "F1 S1 F2", "fail", "below-limit", None),
    (8, "P1", "pass", "kept", None),
    (8, "P1 P1", "pass", "kept", None),
    (8, "V1 P1", "pass", "kept", None),
    (8, "P1 V1", "pass", "kept", None),
    (8, "S1 P2", "pass", "kept", None),
    (8, "S1 S1 P2", "pass", "kept", None),
]


@pytest.mark.parametrize(("row", "attempts", "outcome", "reason", "again"), TABLE)
def test_every_row_of_the_table(row: int, attempts: str, outcome: str, reason: str, again: Optional[str]) -> None:
    decision = stats.decide(">=", LIMIT, course(attempts))
    assert (decision.outcome, decision.reason_code, decision.again) == (outcome, reason, again), row


def test_the_table_in_the_docstring_has_the_tested_rows() -> None:
    text = stats.decide.__doc__ or ""
    rows = {int(line.split("|")[1]) for line in text.splitlines() if line.strip()[:3] in [f"| {n}" for n in range(10)]}
    assert rows == {row for row, *_ in TABLE} == set(range(1, 9))


def test_every_course_that_is_followed_ends_within_three_attempts() -> None:
    endings = set()
    for outcomes in itertools.product("PFSV", repeat=3):
        attempts: list[Attempt] = []
        look = 1
        for letter in outcomes:
            attempts += course(f"{letter}{look}")
            decision = stats.decide(">=", LIMIT, attempts)
            if decision.again is None:
                break
            look = 2 if decision.again == "deeper" else look
        assert decision.again is None, outcomes
        endings.add((decision.outcome, decision.reason_code))
    assert endings == {
        ("pass", "kept"),
        ("fail", "below-limit"),
        ("inconclusive", "unstable"),
        ("inconclusive", "too-close"),
        ("inconclusive", "fail-not-repeated"),
        ("inconclusive", "disturbed"),
    }


@given(st.lists(st.sampled_from(["P1", "F1", "S1", "V1", "P2", "F2", "S2", "V2"]), max_size=6))
def test_no_list_passes_with_a_fail_in_it_or_fails_on_one(tokens: list[str]) -> None:
    decision = stats.decide(">=", LIMIT, course(" ".join(tokens)))
    fails = sum(token[0] == "F" for token in tokens)
    if decision.outcome == "pass":
        assert fails == 0
        assert any(token[0] == "P" for token in tokens)
    if decision.outcome == "fail":
        assert fails >= 2
        assert not any(token[0] == "P" for token in tokens)


@given(st.lists(st.sampled_from(["P1", "F1", "S1", "P2", "F2", "S2"]), min_size=1, max_size=5), st.integers(0, 5))
def test_a_void_attempt_changes_no_outcome(tokens: list[str], place: int) -> None:
    without = stats.decide(">=", LIMIT, course(" ".join(tokens)))
    tokens.insert(min(place, len(tokens)), "V1")
    with_void = stats.decide(">=", LIMIT, course(" ".join(tokens)))
    assert replace(with_void, again=None) == replace(without, again=None)


SIDES = [
    (">=", 100.0, 101.0, "pass"),
    (">=", 99.0, 100.0, "too-close"),
    (">=", 98.0, 99.9, "fail-not-repeated"),
    ("<=", 99.0, 100.0, "pass"),
    ("<=", 100.0, 101.0, "too-close"),
    ("<=", 100.1, 101.0, "fail-not-repeated"),
    ("==", 100.0, 100.0, "pass"),
    ("==", 99.0, 100.0, "too-close"),
    ("==", 99.0, 99.0, "fail-not-repeated"),
    ("==", 101.0, 102.0, "fail-not-repeated"),
]


@pytest.mark.parametrize(("op", "low", "high", "expected"), SIDES)
def test_the_limit_itself_is_on_the_good_side(op: Op, low: float, high: float, expected: str) -> None:
    decision = stats.decide(op, LIMIT, [attempt(low, high)])
    assert expected in (decision.outcome, decision.reason_code)


@pytest.mark.parametrize(
    ("op", "low", "code"), [(">=", 90.0, "below-limit"), ("<=", 110.0, "above-limit"), ("==", 110.0, "not-equal")]
)
def test_a_fail_names_its_side_and_shows_its_last_attempt(op: Op, low: float, code: str) -> None:
    second = attempt(low + 1, low + 2)
    decision = stats.decide(op, LIMIT, [attempt(low, low + 1), second])
    assert (decision.outcome, decision.reason_code) == ("fail", code)
    assert (decision.value, decision.interval) == (second.value, second.interval)


BAD = [
    (Attempt(math.nan, Interval(101, 103, "")), "not-a-number"),
    (Attempt(math.inf, Interval(101, math.inf, "")), "not-a-number"),
    (Attempt(102, Interval(101, math.nan, "")), "not-a-number"),
    (Attempt(102, Interval(103, 101, "")), "not-a-number"),
    (Attempt(110, Interval(101, 103, "")), "not-a-number"),
    (Attempt(-1, Interval(-2, 103, "")), "negative"),
    (Attempt(None, None), "no-samples"),
    (Attempt(102, None), "no-samples"),
    (Attempt(102, Interval(101, 103, ""), void=""), "void"),
    (Attempt(102, Interval(101, 103, "", 0.9375)), "too-few-samples"),
    (Attempt(102, Interval(101, 103, "", math.nan)), "too-few-samples"),
    (Attempt(102, Interval(101, 103, "", 0.96875), look=2), "too-few-samples"),
    (stats.block_attempt([]), "no-samples"),
    (stats.block_attempt([[200.0], []]), "no-samples"),
    (stats.block_attempt([[200.0]] * 5 + [[math.nan]]), "not-a-number"),
    (stats.block_attempt([[200.0]] * 5 + [[-1.0]]), "negative"),
    (stats.block_attempt([[200.0]] * 5), "too-few-samples"),
    (stats.percentile_attempt([200.0] * 3), "too-few-samples"),
    (stats.rate_attempt([]), "no-samples"),
    (stats.rate_attempt([Repetition(1e12, 0.0)] * 6), "not-a-number"),
    (stats.rate_attempt([Repetition(1e12, -1.0)] * 6), "negative"),
    (stats.rate_attempt([Repetition(1e12, 1.0, (math.inf,))] * 6), "not-a-number"),
]


@pytest.mark.parametrize(("bad", "reason"), BAD)
@pytest.mark.parametrize("op", [">=", "<="])
def test_what_is_no_measurement_never_decides_and_says_why(bad: Attempt, reason: str, op: Op) -> None:
    decision = stats.decide(op, LIMIT, [bad, bad])
    assert (decision.outcome, decision.reason_code, decision.again) == ("inconclusive", reason, None)
    assert decision.value is None


@pytest.mark.parametrize("limit", [math.nan, math.inf, -math.inf])
def test_a_limit_that_is_no_number_decides_nothing(limit: float) -> None:
    decision = stats.decide("<=", limit, course("P1"))
    assert (decision.outcome, decision.reason_code) == ("inconclusive", "not-a-number")


def test_an_unknown_order_is_an_error() -> None:
    with pytest.raises(ValueError, match="unknown order"):
        stats.decide(">", LIMIT, [])  # type: ignore[arg-type]  # what an unchecked caller could pass


# ---------------------------------------------------------------- series


def noisy(seed: int, level: Callable[[int], float], seconds: int = 300, sd: float = 0.03) -> list[float]:
    """Autocorrelation 0.6, about one dip to 30 % in 30 s."""
    rng = random.Random(seed)
    values = [level(i) * max(0.0, 1 + sd * z) for i, z in enumerate(simulate_stats.normals(rng, seconds))]
    for _ in range(seconds // 30):
        values[rng.randrange(seconds)] *= 0.3
    return values


@pytest.mark.parametrize("sd", [0.0, 0.03, 0.1])
def test_steady_series_have_no_steps(sd: float) -> None:
    assert [seed for seed in range(100) if stats.steps(noisy(seed, lambda i: 900.0, sd=sd))] == []


@pytest.mark.parametrize(("at", "after"), [(35, 1 / 3), (12, 0.5), (150, 0.7), (285, 0.2), (60, 1.6)])
def test_a_step_is_found_where_it_is(at: int, after: float) -> None:
    for seed in range(20):
        found = stats.steps(noisy(seed, lambda i: 2000.0 if i < at else 2000.0 * after))
        assert len(found) == 1, seed
        assert abs(found[0].at_s - at) <= 5  # dips beside the step pull it
        assert found[0].before == pytest.approx(2000, rel=0.08)
        assert found[0].after == pytest.approx(2000 * after, rel=0.08)


def test_a_cache_then_a_throttle_are_two_falls() -> None:
    series = noisy(3, lambda i: 3000.0 if i < 35 else 1500.0 if i < 200 else 500.0)
    assert [step.at_s for step in stats.steps(series)] == pytest.approx([35, 200], abs=5)
    fall = stats.lasting_fall(series)
    assert fall is not None
    assert fall.before == pytest.approx(3000, rel=0.05)
    assert fall.after == pytest.approx(500, rel=0.05)


def test_a_recurring_throttle_is_a_series_of_steps_and_no_lasting_fall() -> None:
    series = noisy(4, lambda i: 2000.0 if i % 60 < 30 else 800.0)
    found = stats.steps(series)
    assert len(found) == 9
    assert [step.after < step.before for step in found] == [True, False] * 4 + [True]
    assert stats.lasting_fall(series) is None


def test_exact_series_give_exact_steps() -> None:
    assert stats.steps([900.0] * 35 + [300.0] * 65) == (Step(35, 900.0, 300.0),)
    assert stats.steps([900.0] * 35 + [0.0] * 65) == (Step(35, 900.0, 0.0),)
    assert stats.steps([0.0] * 100) == ()
    assert stats.steps([900.0] * 10 + [300.0] * 9) == ()
    assert stats.steps([]) == ()


def test_a_change_of_less_than_a_fifth_is_no_step() -> None:
    assert stats.steps([1000.0] * 60 + [810.0] * 60) == ()
    assert stats.steps([1000.0] * 60 + [790.0] * 60) == (Step(60, 1000.0, 790.0),)
    assert stats.steps([810.0] * 60 + [1000.0] * 60) == ()


def test_short_levels_and_slopes_are_no_steps() -> None:
    assert stats.steps([900.0] * 100 + [0.0] * 4 + [900.0] * 100) == ()
    assert stats.steps([1000.0 - i for i in range(300)]) == ()


@given(st.lists(st.floats(0, 1e9), min_size=20, max_size=80))
def test_steps_are_ordered_and_apart_in_any_series(series: list[float]) -> None:
    places = [0, *(step.at_s for step in stats.steps(series)), len(series)]
    assert all(later - earlier >= stats.LEVEL_S for earlier, later in zip(places, places[1:]))


def test_series_with_bad_numbers_are_refused() -> None:
    for bad in (math.nan, math.inf, -1.0):
        with pytest.raises(ValueError, match=r"not-a-number|negative"):
            stats.steps([900.0] * 30 + [bad])


def test_sustained_share_compares_the_ends() -> None:
    assert stats.sustained_share([900.0] * 35 + [300.0] * 265) == pytest.approx(1 / 3)
    assert stats.sustained_share([900.0] * 35 + [300.0] * 25) == pytest.approx(1 / 3)
    assert stats.sustained_share([1000.0 - i for i in range(300)]) == pytest.approx((1000 - 284.5) / (1000 - 14.5))
    for bad, reason in (([1.0] * 5, "no-samples"), ([], "no-samples"), ([0.0] * 60, "nothing was transferred")):
        with pytest.raises(ValueError, match=reason):
            stats.sustained_share(bad)


# ---------------------------------------------------------------- disk and network rates


def repetition(series: list[float]) -> Repetition:
    return Repetition(math.fsum(series), float(len(series)), tuple(series))


def test_a_rate_is_bytes_over_seconds_with_its_stalls() -> None:
    steady = [100.0, 0.0, 100.0, 100.0] * 5
    assert stats.judged_rates([repetition(steady)] * 3) == (75.0, 75.0, 75.0)
    assert stats.judged_rates([Repetition(1000.0, 8.0)]) == (125.0,)


def test_a_disk_fast_for_35_s_does_not_pass_by_its_median() -> None:
    disk = [900.0] * 35 + [300.0] * 25
    one_long_write = [repetition(disk)] * 6
    assert stats.judged_rates(one_long_write) == (300.0,) * 6
    cut_up = [repetition(disk[i : i + 10]) for i in range(0, 60, 10)]
    assert stats.median([r.transferred / r.seconds for r in cut_up]) == 750.0
    assert stats.judged_rates(cut_up) == (300.0,) * 6
    for repetitions in (one_long_write, cut_up):
        once = stats.rate_attempt(repetitions)
        assert stats.decide(">=", 400.0, [once]).reason_code == "fail-not-repeated"
        assert stats.decide(">=", 400.0, [once, once]).outcome == "fail"
        assert stats.decide(">=", 300.0, [once]).outcome == "pass"


def test_a_fall_in_one_repetition_counts_for_that_one() -> None:
    mixed = [repetition([900.0] * 60)] * 5 + [repetition([900.0] * 35 + [300.0] * 25)]
    assert stats.judged_rates(mixed) == (900.0,) * 5 + (300.0,)


def test_a_rhythm_is_judged_by_bytes_over_seconds() -> None:
    rhythm = ([900.0] * 30 + [300.0] * 30) * 4
    assert stats.judged_rates([repetition(rhythm)]) == (600.0,)


def test_a_rise_does_not_flatter() -> None:
    rising = [300.0] * 30 + [900.0] * 30
    assert stats.judged_rates([repetition(rising)]) == (600.0,)


# ---------------------------------------------------------------- policers


@pytest.mark.parametrize(
    ("level", "unit", "limit"),
    [
        (191.0, "Mbit/s", 200.0),  # tbf 200mbit
        (100.8, "Mbit/s", 100.0),  # nftables 12500 kbytes/second
        (0.957e9, "bit/s", 1000.0),
        (60e6, "B/s", 500.0),
        (60.0, "MB/s", 500.0),
        (9.6, "Mbit/s", 10.0),
    ],
)
def test_a_flat_line_at_a_round_number_is_named(level: float, unit: str, limit: float) -> None:
    rng = random.Random(7)
    found = stats.policer([level * rng.uniform(0.99, 1.01) for _ in range(60)], unit)
    assert found is not None
    assert found.limit_mbit == pytest.approx(limit)
    assert found.level_mbit == pytest.approx(level * stats.MBIT_PER_S[unit], rel=0.01)


def test_what_is_no_policer() -> None:
    assert stats.policer([175.0] * 60, "Mbit/s") is None
    assert stats.policer([0.0] * 60, "Mbit/s") is None
    assert stats.policer([191.0] * 9, "Mbit/s") is None
    assert stats.policer(noisy(5, lambda i: 191.0, 60, 0.1), "Mbit/s") is None
    with pytest.raises(ValueError, match="unknown unit"):
        stats.policer([1.0] * 60, "Mbps")


# ---------------------------------------------------------------- the simulation, small

# Fixed seeds, so the figures are fixed; `make perf` runs twenty times as many.
NODES = 500


@pytest.mark.parametrize("kind", simulate_stats.KINDS, ids=lambda kind: kind.name)
def test_simulated_nodes_are_not_judged_wrong(kind: simulate_stats.Kind) -> None:
    healthy = simulate_stats.tally(kind, simulate_stats.level_at(kind, simulate_stats.HEALTHY), NODES)
    bad = simulate_stats.tally(kind, simulate_stats.level_at(kind, -simulate_stats.BAD), NODES)
    assert healthy.failed <= 1
    assert bad.passed <= 1


def test_simulated_device_rates_are_decided() -> None:
    kind = simulate_stats.KINDS[0]
    assert simulate_stats.tally(kind, 1.05, NODES).inconclusive <= 0.02 * NODES
    assert simulate_stats.tally(kind, 0.92, NODES).failed >= 0.99 * NODES


@pytest.mark.parametrize("kind", simulate_stats.FALLING_DISKS, ids=lambda kind: kind.name)
def test_simulated_falling_disks_fail(kind: simulate_stats.Kind) -> None:
    assert simulate_stats.tally(kind, 1.0, 30).failed == 30


def test_simulated_nodes_are_kept_and_slow_cards_found() -> None:
    healthy = simulate_nodes.shares(0.0, 200)
    assert [limit for limit, (failed, _) in healthy.items() if failed and limit >= 0.05] == []
    assert healthy[0.06] == (0.0, 0.0)
    assert simulate_nodes.shares(0.12, 100)[0.05][0] >= 0.99
