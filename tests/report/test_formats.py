"""The plain formats: each valid for its readers, whatever the machine said."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import get_args
from xml.etree import ElementTree

import pytest
import xmlschema

from agent import report
from agent.model import Outcome, Run, Scope, ScopeEntry, Severity, Verdict
from agent.report import numbers
from agent.report.clean import decoded, one_line, shortened, visible, width
from agent.report.looks import of_outcome, of_verdict
from agent.report.rows import links
from agent.report.to_csv import COLUMNS
from agent.report.to_md import escaped
from agent.report.view import View, view
from agent.text import Text, msg
from tests.report.evidence import CONTRACT_SHA256
from tests.report.samples import CASES, HOSTILE, Case, sample_run

XSD = xmlschema.XMLSchema(str(Path(__file__).parent / "junit.xsd"))
UNSAFE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


def test_all_formats_are_registered() -> None:
    assert {"csv", "html", "json", "junit", "md", "txt"} <= set(report.renderers())
    assert report.renderers()["junit"].extension == "xml"
    with pytest.raises(KeyError):
        report.render(sample_run("accepted"), "docx")


@pytest.mark.parametrize("name", ["csv", "md", "txt", "junit"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_nothing_invisible_gets_out(case: Case, name: str, language: str) -> None:
    text = report.render(sample_run(case), name, None, language)
    assert UNSAFE.findall(text) == []
    text.encode("utf-8")


@pytest.mark.parametrize("case", CASES)
def test_junit_is_valid_and_never_green_without_proof(case: Case) -> None:
    run = sample_run(case)
    text = report.render(run, "junit")
    XSD.validate(text)
    suite = ElementTree.fromstring(text)[0]
    problems = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
    assert (problems == 0) == (run.verdict == "accepted" and run.complete)
    failed = sum((f.outcome, f.severity) == ("fail", "breach") for f in run.findings)
    unclear = sum((f.outcome, f.severity) == ("inconclusive", "breach") for f in run.findings)
    assert (suite.get("failures"), suite.get("errors")) == (str(failed), str(unclear + (not run.complete)))
    assert int(suite.get("tests", 0)) == len(run.findings) + (not run.complete)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_txt_fits_a_ticket(case: Case, language: str) -> None:
    text = report.render(sample_run(case), "txt", None, language)
    lines = text.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 240
    assert CONTRACT_SHA256[:8] in text


def test_txt_of_a_node_where_everything_is_broken() -> None:
    run = sample_run("rejected")
    broken = next(f for f in run.findings if f.outcome == "fail")
    many = tuple(replace(broken, id=f"c{n}.x", clause=f"c{n}.x", remedy=f"repair {n}") for n in range(90))
    text = report.render(replace(run, findings=many), "txt")
    assert len(text.splitlines()) <= 40
    assert "BROKEN (90)" in text
    assert len(re.findall("^✗ c", text, re.MULTILINE)) == 18
    assert "72 more are in the report." in text
    assert text.splitlines()[-1].startswith("run digest")


@pytest.mark.parametrize("name", ["html", "md", "txt", "junit", "prom", "csv"])
def test_a_clock_that_was_set_back_gives_no_negative_time(name: str) -> None:
    run = replace(sample_run("accepted"), started_at="2026-11-30T12:04:11Z", finished_at="2026-11-30T11:00:00Z")
    text = report.render(run, name)
    assert not re.search(r"-38\d\d|-3851|−3851", text)
    assert "accept_duration_seconds" not in text
    if name == "junit":
        assert ' time="0"' in text


def test_words_of_ours_are_said_in_the_language_of_the_report() -> None:
    chinese = {"whole": "整卡", "{n} of {m} pairs": "{m} 对中的 {n} 对"}
    said = [numbers.quantity(v, "", lambda t: chinese.get(t, t)) for v in ("whole", "7 of 56 pairs", "NVIDIA H100")]
    assert said == ["整卡", "56 对中的 7 对", "NVIDIA H100"]


def test_csv_opens_without_formulas() -> None:
    text = report.render(sample_run("hostile"), "csv")
    table = list(csv.reader(io.StringIO(text)))
    assert table[0] == list(COLUMNS)
    assert {len(line) for line in table} == {len(COLUMNS)}
    cells = [c for line in table[1:] for c in line]
    assert [
        c for c in cells if c.startswith(("=", "+", "@", "\t", "|", "%")) or (c.startswith("-") and not _is_number(c))
    ] == []


@pytest.mark.parametrize("start", ["=1+1", "+1", "-1+cmd", "@SUM(A1)", "\t=1", "|x", "＝1"])
def test_a_cell_that_would_be_a_formula_is_a_text(start: str) -> None:
    finding = replace(sample_run("accepted").findings[0], measured=start)
    text = report.render(replace(sample_run("accepted"), findings=(finding,)), "csv")
    cell = list(csv.reader(io.StringIO(text)))[1][COLUMNS.index("measured")]
    assert cell[0] in "'1="
    assert not cell.startswith(("=", "+", "-", "@", "|", "＝")) or (cell == "=1" and start == "\t=1")


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?[\d.]+(e[+-]?\d+)?", text) is not None


def test_markdown_has_no_foreign_markup() -> None:
    text = report.render(sample_run("hostile"), "md")
    outside = re.sub(r"(`+).*?(?<!`)\1(?!`)", "", text)
    assert "<script" not in outside.replace(r"\<", "")
    assert not re.search(r"(?<!\\)<(?!br>|/?details>|/?summary>|evidence/)", outside)
    assert re.findall(r"(?<!\\)\]\((?!<evidence/)", outside) == []
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert {len(re.findall(r"(?<!\\)\|", r)) for r in rows} <= {5, 8}


def test_markdown_escapes_an_address_once() -> None:
    """No link is made of it, and a reader sees no backslash: what is escaped once reads as it was."""
    url = "https://mirror.example.com/simple"
    run = sample_run("rejected")
    named = replace(run.findings[0], reason=msg("{url} does not answer", url=url), outcome="fail")
    text = report.render(replace(run, findings=(named,)), "md")
    assert url not in text
    assert f"{url} does not answer" in re.sub(r"\\(.)", r"\1", text)


def test_json_is_in_the_language_asked_for() -> None:
    data = json.loads(report.render(sample_run("rejected"), "json", None, "zh"))
    assert data["language"] == "zh"
    assert data["headline"].startswith("66 项达标，17 项未达标")


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, "0"), (81559, "81,559"), (512.34, "512.3"), (1234.5, "1,234"), (0.012346, "0.01235"), (1e-6, "1.000e-06"),
     (float("nan"), "—"), (float("inf"), "—"), (-2.5, "-2.5"), (2.0, "2"), (1e20, "100,000,000,000,000,000,000")],
)  # fmt: skip
def test_numbers(value: float, expected: str) -> None:
    assert numbers.number(value) == expected


@pytest.mark.parametrize(
    ("stamp", "en", "zh"),
    [
        ("2026-11-30T12:04:11Z", "30 Nov 2026, 12:04 UTC", "2026年11月30日 12:04 UTC"),
        ("2026-01-02T03:04:05.678+08:00", "2 Jan 2026, 03:04 UTC+08:00", "2026年1月2日 03:04 UTC+08:00"),
        ("yesterday", "yesterday", "yesterday"),
        (None, "—", "—"),
    ],
)
def test_times(stamp: str, en: str, zh: str) -> None:
    assert (numbers.when(stamp, "en"), numbers.when(stamp, "zh")) == (en, zh)


@pytest.mark.parametrize(
    ("seconds", "expected"), [(1.25, "1.25 s"), (59.99, "60 s"), (61, "1 min 1 s"), (3720, "1 h 2 min"), (None, "—")]
)
def test_durations(seconds: float, expected: str) -> None:
    assert str(numbers.duration(seconds)) == expected


@pytest.mark.parametrize(
    "name",
    ["../etc/passwd", "/etc/passwd", "javascript:alert(1)", "evidence/../x", "evidence/..", "evidence", "evidence//x",
     "http://evidence/x", "evidence/a\nb", "evidence\\x", ""],
)  # fmt: skip
def test_only_evidence_becomes_a_link(name: str) -> None:
    assert links([name])[0].href is None


def test_links_are_quoted() -> None:
    link = links(['evidence/0001-a"b<c#?%/std out'])[0]
    assert link.href == "evidence/0001-a%22b%3Cc%23%3F%25/std%20out"
    assert link.probe == '0001-a"b<c#?%'


def test_clean_text() -> None:
    assert visible("a\x1b[31m\r\nb\u202e\ud800") == "a\\x1b[31m\nb\\u202e\\ud800"
    assert one_line(" a\n\n b\u2028c ") == "a b c"
    assert decoded(b"ok \xff") == "ok \\xff"
    assert width("显存 GB") == 7
    assert UNSAFE.findall(visible(HOSTILE)) == []


def test_every_finding_has_a_look() -> None:
    for outcome in get_args(Outcome):
        for severity in get_args(Severity):
            look = of_outcome(outcome, severity)
            assert look.sigil
            assert (look.junit is None) == (outcome == "pass")
    assert of_outcome("inconclusive", "breach").junit == "error"
    assert {of_verdict(v).sigil for v in get_args(Verdict)} == {"✓", "✗", "?"}


def test_lists_are_joined_as_the_language_does() -> None:
    text = msg("{parts}", parts=(msg("{n} kept", n=2), msg("{n} broken", n=1)))
    assert isinstance(text, Text)
    assert str(text) == "2 kept, 1 broken"


def _view(run: Run) -> View:
    return view(run, None, str, "en")


def test_what_is_asked_for_is_said_once_for_all_that_need_it() -> None:
    """Eleven promises that wait for one permission are one line; what waits for us is not asked of the vendor."""
    run = sample_run("inconclusive")
    first = next(f for f in run.findings if f.outcome == "inconclusive")
    keys = ("gpu.model", "gpu.memory", "gpu.ecc", "gpu.mig", "gpu.nvlink", "gpu.p2p", "gpu.condition", "gpu.xid")
    waiting = tuple(
        replace(first, id=k, clause=k, subject=None, severity="breach", grant=msg("root"), reason_code="denied")
        for k in keys
    )
    short = replace(waiting[0], id="disk.read", clause="disk.read", grant=None, reason_code="shortened")
    mute = replace(waiting[0], id="cpu.vcpus", clause="cpu.vcpus", grant=None, reason_code="failed")
    asked = _view(replace(run, findings=(*waiting, short, mute))).asked
    assert len(asked) == 3
    assert asked[0].startswith("To verify GPU model, GPU memory,")
    assert asked[0].endswith("3 more: root")
    assert asked[1].startswith("Say why this could not be measured, and make it measurable: Usable CPU threads")
    assert asked[2] == "Ours to do: measure in full (Disk, sequential read)."


def test_scope_says_what_lacks_and_no_more() -> None:
    run = sample_run("accepted")
    entry = ScopeEntry("disk.read", msg("kept"))
    short = replace(run, scope=Scope((), (entry,), ()))
    left = replace(run, scope=Scope((entry,), (), ()))
    assert _view(replace(run, scope=Scope())).partial == ()
    assert _view(short).partial == ("Some tests were shortened: they can show a breach, but prove nothing kept.",)
    assert _view(left).partial == ("Parts of the contract were left out of this run.",)


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (0.02528, "TB", "25.28\u202fGB"),
        (0.036, "ms", "36\u202fµs"),
        (0.05, "Gbit/s", "50\u202fMbit/s"),
        (0.0, "ms", "0\u202fms"),
        (3.35, "TB/s", "3.35\u202fTB/s"),
        (0.02, "%", "0.02\u202f%"),
    ],
)
def test_a_small_fraction_of_a_unit_is_told_in_a_smaller_one(value: float, unit: str, shown: str) -> None:
    assert numbers.quantity(value, unit, str) == shown


@pytest.mark.parametrize(
    ("text", "longest", "cut"),
    [
        ("measured 1234567 of them", 13, "measured…"),
        ("measured 1234567", 16, "measured 1234567"),
        ("x" * 50, 30, "x" * 29 + "…"),
    ],
)
def test_a_cut_leaves_no_half_number(text: str, longest: int, cut: str) -> None:
    assert shortened(text, longest) == cut


def _with_silent(*silent: int) -> Run:
    run = sample_run("rejected")
    gpus = [{**g, "uuid": None, "answers": False} if n in silent else g for n, g in enumerate(run.node["gpus"])]
    return replace(run, node={**run.node, "gpus": gpus})


def test_a_card_that_does_not_answer_is_not_counted_as_found() -> None:
    whole = sample_run("rejected")
    name, count = str(whole.node["gpus"][0]["name"]), len(whole.node["gpus"])
    slot = str(whole.node["gpus"][2]["slot"])
    head = f"{count - 1} × {name} ({count - 1} of {count} GPUs answer; silent: {slot})"
    md = report.render(_with_silent(2), "md", None, "en")
    assert escaped(head) in md
    assert escaped(f"{count} × {name}") not in md
    assert head in report.render(_with_silent(2), "txt", None, "en")
    page = report.render(_with_silent(2), "html", None, "en")
    assert head in page
    assert f"{name}: does not answer" in page
    assert f"{count} × {name}" not in page
    data = json.loads(report.render(_with_silent(2), "json", None, "en"))
    assert [g.get("answers") for g in data["node"]["gpus"]] == [False if n == 2 else None for n in range(count)]


def test_no_card_that_answers() -> None:
    count = len(sample_run("rejected").node["gpus"])
    text = report.render(_with_silent(*range(count)), "md", None, "en")
    assert f"none of {count} GPUs answers" in text


def test_a_ticket_names_cards_only_where_one_is_silent() -> None:
    assert "GPUs:" not in report.render(sample_run("rejected"), "txt", None, "en")
