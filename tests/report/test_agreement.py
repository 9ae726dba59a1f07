"""One finding says the same in every format and both languages: outcome, promised, measured, interval, counts.

And what was measured never reads as if it lay on the other side of its limit: 617.49 that had to be 617.5 is a breach
that nobody should have to explain.
"""

from __future__ import annotations

import html
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent import report, resources
from agent.cli.terminal import finding_line
from agent.model import Finding, Limit, Op, Run
from agent.quantity import convert, format_quantity
from agent.report import looks, numbers
from agent.report.rows import gap, rows
from agent.report.view import partial
from agent.result import from_json, to_json
from agent.text import msg, translator
from agent.verdict import fold, headline
from tests.fakenode import judging, wrong
from tests.report import told
from tests.report.samples import CASES, Case, sample_run, write_evidence

LANGUAGES = ("en", "zh")
ROUNDED = 5.1e-4  # of a number: half a unit of the fourth digit


def texts(run: Run, folder: Optional[Path], language: str) -> dict[str, str]:
    """The run in every text format."""
    return {name: report.render(run, name, folder, language) for name in report.renderers()}


def side(value: float, limit: float) -> int:
    return 0 if math.isclose(value, limit, rel_tol=1e-11) else (1 if value > limit else -1)


def agrees(shown: str, value: Any, f: Finding, translate: Any) -> None:
    """A measured value as it is shown: the same number, on the same side of the limit."""
    if not numbers.is_number(value):
        assert shown == numbers.quantity(value, f.unit, translate)
        return
    read = told.numbers_in(shown, f.unit)
    assert len(read) == 1, shown
    assert math.isclose(read[0], value, rel_tol=ROUNDED, abs_tol=1e-12), (shown, value)
    for limit in numbers.ends(f.limit, f.unit):
        assert side(read[0], limit) == side(value, limit), (shown, value, limit)


def spread_agrees(shown: str, f: Finding) -> None:
    """Both ends of an interval as they are shown."""
    if f.interval is None:
        assert not shown
        return
    read = told.numbers_in(shown, f.unit)
    assert len(read) == 2, shown
    top = max(map(abs, f.interval))
    for end, value in zip(read, f.interval):
        assert math.isclose(end, value, rel_tol=ROUNDED, abs_tol=1e-6 * top), (shown, f.interval)
        for limit in numbers.ends(f.limit, f.unit):
            assert side(end, limit) == side(value, limit), (shown, f.interval, limit)


def check(run: Run, folder: Optional[Path], language: str) -> None:
    """Every format against the run itself."""
    written = texts(run, folder, language)
    translate = translator(language, resources.locale_dir())
    _pages(run, written, translate)
    _tables(run, written, translate)
    _counts(run, written)
    _scope(run, written, translate)


def _scope(run: Run, written: dict[str, str], translate: Any) -> None:
    """A verdict over a part of the contract says so wherever the verdict stands."""
    whole = run.scope.full and run.complete
    parts = [t.render(translate) for t in partial(run)]
    assert bool(parts) == (run.complete and not run.scope.full)
    for name in ("html", "md", "txt"):
        text = re.sub(r"\\(.)", r"\1", html.unescape(written[name]))
        assert all(p in text for p in parts)
    assert f'name="scope" value="{"full" if whole else "partial"}"' in written["junit"]
    assert [v for _, v in told.of_prom(written["prom"], "accept_scope_full")] == [float(run.scope.full)]


def _pages(run: Run, written: dict[str, str], translate: Any) -> None:
    page, md = told.of_html(written["html"], run), told.of_md(written["md"], run)
    assert set(page) == {f.id for f in run.findings}
    assert set(md) == {f.id for f in run.findings if f.outcome != "not-asked"}
    for f in run.findings:
        look = looks.of_outcome(f.outcome, f.severity)
        why = f.reason.render(translate).replace(">= ", "≥ ").replace("<= ", "≤ ")
        assert page[f.id].word == look.word.render(translate)
        for one in (page[f.id], *([md[f.id]] if f.id in md else [])):
            assert one.promised == numbers.promise(f.promised)
            agrees(one.measured, f.measured, f, translate)
            spread_agrees(one.interval, f)
        if f.outcome != "pass":
            assert why in page[f.id].why
        if f.id in md:
            assert md[f.id].word == look.sigil
            assert why in md[f.id].why
        _held_to(page[f.id].held_to, f)
        line = finding_line(f, translate)
        assert line.startswith(f"{look.sigil} {f.id}")
        if f.measured is not None:
            agrees(_after(line, msg("measured {value}", value="\0").render(translate)), f.measured, f, translate)


def _after(line: str, template: str) -> str:
    """What stands in the place of the zero in the part of a terminal's line that begins like the template."""
    before, _, behind = template.partition("\0")
    part = next(p for p in line.split("  ") if p.startswith(before))
    return part[len(before) : len(part) - len(behind)]


_BOUND = re.compile(r"[≥≤] ([\d.,]+\d|\d)[\u202f ]?([^\s:,：，]*)")


def _held_to(shown: str, f: Finding) -> None:
    """The limit beside the promise, where it is another one: what was measured lies on the same side of it."""
    bound = _BOUND.search(shown)
    if bound is None or f.limit is None or f.unit != f.limit.unit or not numbers.is_number(f.measured):
        return
    limit = told.numbers_in(f"{bound[1]} {bound[2]}".strip(), f.unit)[0]
    assert side(f.measured, limit) == side(f.measured, float(f.limit.value)), (shown, f.measured)


def _tables(run: Run, written: dict[str, str], translate: Any) -> None:
    again = from_json(json.loads(written["json"]))
    assert again.findings == tuple(replace(f, again=None) for f in run.findings)
    table, cases = told.of_csv(written["csv"]), told.of_junit(written["junit"])
    outcomes = {(d["clause"], d.get("subject")): d for d, _ in told.of_prom(written["prom"], "accept_finding")}
    values = _at(written, "accept_measured")
    limits = _at(written, "accept_limit")
    assert len(table) == len(outcomes) == len(run.findings)
    for f in run.findings:
        look, line = looks.of_outcome(f.outcome, f.severity), table[f.id]
        assert (line["outcome"], line["severity"], line["word"]) == (f.outcome, f.severity, look.word.render(translate))
        assert line["reason_code"] == f.reason_code
        assert line["gap"].lstrip("'") == gap(f, translate)
        element, said = cases[f.id]
        assert element == (look.junit or "")
        if element and f.measured is not None:
            agrees(said[msg("measured").render(translate)], f.measured, f, translate)
        at = (f.clause, f.subject)
        assert (outcomes[at]["outcome"], outcomes[at]["severity"]) == (f.outcome, f.severity)
        if numbers.is_number(f.measured):
            assert float(line["measured"]) == f.measured
            assert math.isclose(values[at], f.measured, rel_tol=1e-11)
        else:
            assert at not in values
        if f.limit is not None and numbers.is_number(f.limit.value):
            assert float(line["limit"]) == f.limit.value
            assert math.isclose(limits[at], f.limit.value, rel_tol=1e-11)


def _at(written: dict[str, str], name: str) -> dict[tuple[str, Optional[str]], float]:
    return {(d["clause"], d.get("subject")): v for d, v in told.of_prom(written["prom"], name)}


def _counts(run: Run, written: dict[str, str]) -> None:
    """The numbers at the head of everything, of the headline, and of the rows below them."""
    of = {(o, s): sum((f.outcome, f.severity) == (o, s) for f in run.findings)
          for o in ("pass", "fail", "inconclusive", "not-asked") for s in ("breach", "advisory")}  # fmt: skip
    kept, broken, open_ = of["pass", "breach"], of["fail", "breach"], of["inconclusive", "breach"]
    beside = of["fail", "advisory"] + of["inconclusive", "advisory"]
    sections = {"broken": broken, "open": open_, "remarks": beside, "kept": kept, "fine": of["pass", "advisory"]}
    tally = told.tally(written["html"])
    assert {k: tally.get(k, 0) for k in sections} == sections
    assert {k[1:]: v for k, v in tally.items() if k.startswith("#")} == {
        k: v for k, v in sections.items() if v and k in ("kept", "broken", "open")
    }
    wanted = [n for n in (broken, open_, beside, kept, of["pass", "advisory"]) if n]
    assert told.headings(written["md"])[: len(wanted)] == wanted
    assert told.headings(written["txt"])[:3] == [n for n in (broken, open_, beside) if n]
    counted = {(d["outcome"], d["severity"]): v for d, v in told.of_prom(written["prom"], "accept_findings")}
    assert counted == {k: float(v) for k, v in of.items()}
    cases = [element for element, _ in told.of_junit(written["junit"]).values()]
    assert cases.count("failure") == broken
    assert cases.count("error") == open_ + (not run.complete)
    args = dict(headline(run.findings).args)
    said = {part.template: dict(part.args)["n"] for part in args["parts"]}
    assert (said["{n} kept"], said["{n} broken"]) == (kept, broken)
    assert sum(n for t, n in said.items() if t not in ("{n} kept", "{n} broken", "{n} to note")) == open_


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("case", [c for c in CASES if c != "hostile"])
def test_every_format_tells_the_same(case: Case, language: str, tmp_path: Path) -> None:
    write_evidence(tmp_path)
    check(sample_run(case), tmp_path, language)


@pytest.mark.parametrize("name", ["8 H100", "NICs far away", "450 W cap", "Xid 48", "container without root"])
def test_every_format_tells_the_same_of_a_node(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = judging.run(wrong.CASES[name], tmp_path, monkeypatch)
    for language in LANGUAGES:
        check(run, tmp_path / "run", language)


def test_each_place_has_its_own_reason() -> None:
    """Two cards broke one promise for two reasons: neither is told for the other, in no format."""
    run = sample_run("rejected")
    first, second = (
        Finding(f"gpu.xid@{slot}", "gpu.xid", "fail", "breach", "none", "xid", msg("Xid {n}", n=n), slot, 1)
        for slot, n in (("0000:1b:00.0", 48), ("0000:3d:00.0", 79))
    )
    (row,) = rows(run, (first, second), str)
    assert [s.why for s in row.subjects] == ["Xid 48", "Xid 79"]
    assert row.why == "Xid 48 (other reasons: 1)"
    both = (first, second)
    check(replace(run, findings=both, headline=headline(both), verdict=fold(both)), None, "en")


# ---- near the limit

UNITS = ("TFLOPS", "GB/s", "Mbit/s", "ms", "%", "B/s", "TB", "GB", "W", "C", "tokens/s", "")
NEAR = (0.0, 1e-15, 1e-13, 1e-10, 3e-8, 1e-6, 2e-5, 1e-4, 4e-4, 1e-3, 0.02, 0.3)


def near(limit: float, distance: float, op: Op) -> Finding:
    """A finding whose number lies that share of the limit on the wrong side, or on it."""
    measured = limit * (1 - distance) if op == ">=" else limit * (1 + distance)
    kept = math.isclose(measured, limit, rel_tol=1e-12)
    return Finding(
        "gemm.bf16", "gemm.bf16", "pass" if kept else "fail", "breach", f"{op} {limit!r}", "kept" if kept else "far",
        msg("measured below the limit, twice"), measured=measured, unit="GB/s", limit=Limit(op, limit, "GB/s"),
    )  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(
    limit=st.one_of(
        st.floats(1e-6, 1e12), st.integers(1, 10**7).map(lambda n: n / 1000), st.integers(1, 10**12).map(float)
    ),
    distance=st.sampled_from(NEAR),
    above=st.booleans(),
    unit=st.sampled_from(UNITS),
)  # fmt: skip
def test_a_number_is_read_on_the_side_where_it_lies(limit: float, distance: float, above: bool, unit: str) -> None:
    op: Op = "<=" if above else ">="
    f = replace(near(limit, distance, op), unit=unit, limit=Limit(op, limit, unit))
    value = f.measured
    agrees(numbers.measured(f, str), value, f, str)
    spread_agrees(numbers.interval(value, value * 1.0001, unit, (limit,)), replace(f, interval=(value, value * 1.0001)))
    shown, bound = numbers.measured(f, str), numbers.quantity(limit, unit, str, (value,))
    read = [told.numbers_in(t, unit)[0] for t in (shown, bound)]
    assert side(*read) == side(value, limit), (shown, bound)
    if unit:
        terminal = [told.numbers_in(t, unit)[0] for t in (format_quantity(value, unit, (limit,)),
                                                         format_quantity(limit, unit, (value,)))]  # fmt: skip
        assert side(*terminal) == side(value, limit)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    ("measured", "limit", "op", "unit"),
    [
        (617.49, 617.5, ">=", "TFLOPS"),
        (617.4999, 617.5, ">=", "TFLOPS"),
        (10.501, 10.5, "<=", "ms"),
        (0.99996, 1.0, ">=", "GB/s"),
        (99.999, 100.0, ">=", "Gbit/s"),
        (79.9996, 80.0, ">=", "GB"),
        (0.09999999, 0.1, ">=", "TB"),
        (299999.6, 300000.0, ">=", "tokens/s"),
    ],
)
def test_a_narrow_breach_reads_as_one_everywhere(
    measured: float, limit: float, op: Op, unit: str, language: str
) -> None:
    run = sample_run("rejected")
    tight = Finding(
        "gemm.fp16@0000:5d:00.0", "gemm.fp16", "fail", "breach", f"{op} {limit:.12g} {unit}", "below-limit",
        msg("measured below the limit, twice"), "0000:5d:00.0", measured, unit, (measured * 0.999, measured)
        if op == ">=" else (measured, measured * 1.001), "min–max of 6 blocks, 96.9 %", Limit(op, limit, unit, 0.05),
    )  # fmt: skip
    findings = (*run.findings, tight)
    check(replace(run, findings=findings, headline=headline(findings), verdict=fold(findings)), None, language)
    (row,) = rows(run, (tight,), str)
    assert numbers.promise(f"{op} ") in row.held_to
    assert f"{limit:.12g}" in row.held_to.replace(",", "") or unit == "TB"


def test_a_result_keeps_the_number_whole() -> None:
    run = sample_run("rejected")
    exact = replace(run.findings[0], id="x", clause="x", measured=617.4999999, unit="TFLOPS", interval=None)
    again = from_json(json.loads(json.dumps(to_json(replace(run, findings=(exact,))))))
    assert again.findings[0].measured == 617.4999999


def test_units_of_one_kind_meet_at_the_limit() -> None:
    assert convert(12.5, "GB/s", "Gbit/s") == pytest.approx(100.0, rel=1e-15)
