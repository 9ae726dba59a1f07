"""Prometheus text, and PDF with and without the library that makes it."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest

from agent import report
from agent.report import pdf
from agent.report.to_html import css_string
from agent.result import dumps, to_json
from tests.report.samples import CASES, Case, sample_run
from tests.runs import accept

# The text format's own grammar, one line.
LINE = re.compile(r'[a-z_]+\{([a-z_]+="(\\["\\n]|[^"\\\n])*"(,|(?=\})))*\} -?[0-9.e+-]+\Z')


@pytest.mark.parametrize("case", CASES)
def test_prom_obeys_its_format(case: Case) -> None:
    text = report.render(sample_run(case), "prom")
    assert text.endswith("\n")
    seen: list[str] = []
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            seen.append(line.split()[2])
        elif not line.startswith("# HELP "):
            assert LINE.match(line), line
            assert line.partition("{")[0] == seen[-1], "lines of one metric stand together"
    assert len(seen) == len(set(seen))
    assert len(set(text.splitlines())) == len(text.splitlines()), "no series twice"


def test_prom_says_what_was_measured_and_leaves_out_what_was_not() -> None:
    text = report.render(sample_run("rejected"), "prom")
    assert 'accept_verdict{contract="SD-2026-1130-07",node="gpu-node-17",verdict="rejected"} 1\n' in text
    assert 'verdict="accepted"} 0\n' in text
    assert 'clause="gemm.bf16",subject="0000:ab:00.0",unit="TFLOPS"} 512.5\n' in text
    assert not re.search(r'accept_measured\{[^}]*clause="gpu.xid"', text)
    assert 'verdict="rejected"} 0' in report.render(sample_run("incomplete"), "prom")


def test_a_css_string_cannot_be_left() -> None:
    text = css_string('"</style>}\\\n')
    assert re.fullmatch(r'"(\\[0-9a-f]+ |[A-Za-z0-9])*"', text)
    assert css_string("ab1 é") == '"ab1\\20 \\e9 "'


def test_every_page_of_print_names_contract_machine_and_verdict() -> None:
    html = report.render(sample_run("rejected"), "html")
    rule = html[html.rindex("@page{") : html.index("</style>")]
    assert css_string("Acceptance report SD-2026-1130-07 · gpu-node-17") in rule
    assert css_string("✗ Rejected") in rule


def _folder(tmp_path: Path) -> str:
    (tmp_path / "result.json").write_text(dumps(to_json(sample_run("rejected"))), encoding="utf-8")
    return str(tmp_path)


def test_without_weasyprint_one_line_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "weasyprint", None)
    with pytest.raises(pdf.PdfError, match=r"gpu-accept\[pdf\]"):
        pdf.pdf("<p>")
    done = accept("report", _folder(tmp_path), "--format", "pdf", cwd=tmp_path)
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert "-o report.pdf" in done.err


def test_the_library_gets_the_page_and_fetches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Html:
        def __init__(self, string: str, url_fetcher: object) -> None:
            assert callable(url_fetcher)
            with pytest.raises(ValueError, match="not fetched"):
                url_fetcher("http://example.invalid/x")
            self.string = string

        def write_pdf(self) -> bytes:
            return b"%PDF-" + self.string.encode()

    fake = types.ModuleType("weasyprint")
    monkeypatch.setattr(fake, "HTML", Html, raising=False)
    monkeypatch.setitem(sys.modules, "weasyprint", fake)
    assert pdf.pdf("<p>x") == b"%PDF-<p>x"


def test_a_pdf_with_the_real_library(tmp_path: Path) -> None:
    pytest.importorskip("weasyprint")
    done = accept("report", _folder(tmp_path), "--format", "pdf", "--lang", "zh", "-o", "r.pdf", cwd=tmp_path)
    assert done.code == 0, done.err
    data = (tmp_path / "r.pdf").read_bytes()
    assert data.startswith(b"%PDF-")
    assert len(data) > 20_000


def test_a_missing_chinese_font_is_said(tmp_path: Path) -> None:
    assert pdf.missing_font("only Latin", [str(tmp_path)]) is None
    said = pdf.missing_font("验收", [str(tmp_path)])
    assert said is not None
    assert "fonts-noto-cjk" in str(said)
    (tmp_path / "opentype").mkdir()
    (tmp_path / "opentype" / "NotoSansCJK-Regular.ttc").touch()
    assert pdf.missing_font("验收", [str(tmp_path)]) is None
