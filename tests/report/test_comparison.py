"""Two runs side by side, as a page and as Markdown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent import resources
from agent.compare import compare
from agent.model import Run
from agent.report import comparison
from agent.result import dumps, to_json
from agent.text import translator
from tests.report.samples import HOSTILE, Case, sample_run
from tests.report.test_html import TAGS, UNSAFE, Page
from tests.runs import accept

CHANGED: tuple[Case, Case] = ("accepted", "rejected")


def _html(one: Run, two: Run, language: str = "en") -> str:
    return comparison.html(compare(one, two), one, two, translator(language, resources.locale_dir()), language)


def _text(html: str) -> str:
    return "".join(Page(html[html.index("<body>") : html.index("</html>")]).text)


def test_what_changed_is_in_order() -> None:
    text = _text(_html(sample_run("accepted"), sample_run("rejected")))
    order = ["Changed", "16 of 66 measurements", "Accepted", "Rejected", "the same machine", "Judged otherwise",
             "GPU 0 → GPU 5", "Measurements beyond noise", "−54", "Measurements within noise"]  # fmt: skip
    at = 0
    for words in order:
        assert words in text[at:], words
        at += text[at:].index(words) + len(words)


def test_a_swapped_card_and_a_new_driver_are_named() -> None:
    one = sample_run("accepted")
    gpus = [{**g, "uuid": "GPU-other"} if g["index"] == 5 else g for g in one.node["gpus"]]
    two = replace(one, node={**one.node, "gpus": gpus}, stack={**one.stack, "driver": "575.1"})
    text = _text(_html(one, two))
    assert "not the same machine" in text
    assert "GPU-other" in text
    assert "575.1" in text
    assert "Judged otherwise" not in text


def test_runs_without_a_common_measurement_count_nothing() -> None:
    one, two = (replace(sample_run("accepted"), measurements=()) for _ in range(2))
    text = _text(_html(one, two))
    assert "no measurement is in both runs" in text
    assert "0 of 0" not in text


def test_no_change_is_no_change() -> None:
    run = sample_run("accepted")
    text = _text(_html(run, run))
    assert "No change beyond noise" in text
    assert "Measurements beyond noise" not in text


@pytest.mark.parametrize("language", ["en", "zh"])
def test_nothing_foreign_becomes_markup(language: str) -> None:
    for html in (_html(sample_run("rejected"), sample_run("hostile"), language),
                 _html(sample_run("hostile"), sample_run("rejected"), language)):  # fmt: skip
        page = Page(html)
        assert {tag for tag, _ in page.tags} <= TAGS
        assert not {n for _, attrs in page.tags for n in attrs if n.startswith("on")}
        assert UNSAFE.findall(html) == []
        assert html.count("<style>") == html.count("</style>") == 1
        assert "<script>alert(1)</script>" in _text(html)


def test_markdown_escapes_and_counts() -> None:
    one, two = sample_run("accepted"), sample_run("rejected")
    text = comparison.md(compare(one, two), one, two, str, "en")
    assert text.startswith("# ≠ Changed: 16 of 66")
    assert "## Judged otherwise (21)" in text
    assert all(line.count("|") - line.count(r"\|") == 4 for line in text.splitlines() if line.startswith("|"))
    hostile = comparison.md(compare(one, sample_run("hostile")), one, sample_run("hostile"), str, "en")
    assert "<script>" not in hostile
    assert HOSTILE[:8] not in hostile


@pytest.mark.parametrize(("name", "first"), [("html", "<!doctype html>"), ("md", "# ≠ Changed")])
def test_by_command(name: str, first: str, tmp_path: Path) -> None:
    for case in CHANGED:
        (tmp_path / case).mkdir()
        data = dumps(to_json(sample_run(case)))
        (tmp_path / case / "result.json").write_text(data, encoding="utf-8")
    folders = [str(tmp_path / case) for case in CHANGED]
    done = accept("compare", *folders, "--format", name, "--lang", "en", "-o", "out", cwd=tmp_path)
    assert done.code == 1, done.err
    assert (tmp_path / "out").read_text(encoding="utf-8").startswith(first)
