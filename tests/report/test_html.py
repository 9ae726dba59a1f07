"""The page: whole, without scripts, and deaf to whatever a machine or a contract puts into it."""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Optional

import pytest

from agent import report, resources
from tests.report.samples import CASES, HOSTILE, Case, sample_run, write_evidence

VOID = frozenset({"meta", "br", "circle", "line", "path", "rect"})
TAGS = VOID | frozenset(
    """html head title style body a header p h1 h2 h3 span ul ol li b main section dl div dt dd table caption
    thead tbody tr th td code q details summary article small svg text pre footer figure figcaption""".split()
)
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")
# Colours that must be told apart in both schemes: foreground on background.
PAIRS = (
    ("ink", "paper"), ("ink", "page"), ("soft", "paper"), ("soft", "page"), ("link", "paper"), ("soft", "quiet"),
    ("ink", "quiet"), *((f"{t}", f"{t}-bg") for t in ("bad", "good", "open", "note", "mute")), ("bad", "paper"),
    ("good", "paper"), ("open", "paper"), ("note", "paper"),
)  # fmt: skip


class Page(HTMLParser):
    """Tags, attributes and text of a page; fails on tags that do not match."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, Optional[str]]]] = []
        self.text: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, Optional[str]]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, Optional[str]]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def _page(case: Case, folder: Path, language: str = "en") -> str:
    write_evidence(folder)
    return report.render(sample_run(case), "html", folder, language)


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("case", CASES)
def test_nothing_foreign_becomes_markup(case: Case, language: str, tmp_path: Path) -> None:
    html = _page(case, tmp_path, language)
    page = Page(html)
    assert {tag for tag, _ in page.tags} <= TAGS
    names = {name for _, attrs in page.tags for name in attrs}
    assert not {n for n in names if n.startswith("on")}
    links = [attrs["href"] for tag, attrs in page.tags if tag == "a"]
    assert links
    assert [h for h in links if not h or not re.match(r"#[a-z0-9-]+\Z|evidence/[\w%./=-]+\Z", h)] == []
    styles = [attrs["style"] for _, attrs in page.tags if "style" in attrs]
    assert [s for s in styles if not s or not re.match(r"((left|bottom):[\d.]+%|flex-grow:\d+)\Z", s)] == []
    assert UNSAFE.findall(html) == []
    assert html.count("<style>") == 1
    assert len(html.encode()) < 600_000


def test_the_hostile_text_is_there_to_be_read(tmp_path: Path) -> None:
    text = "".join(Page(_page("hostile", tmp_path)).text)
    assert "<script>alert(1)</script>" in text
    assert r"\x1b[31mred" in text
    assert r"\u202eevil" in text
    assert r"\xff\xfe" in text
    assert "{{ 7*7 }}" in text
    assert HOSTILE.count("49") == text.count("49 %") == 0


def test_anchors_lead_somewhere(tmp_path: Path) -> None:
    page = Page(_page("rejected", tmp_path))
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    wanted = {
        (attrs["href"] or "")[1:] for tag, attrs in page.tags if tag == "a" and (attrs["href"] or "").startswith("#")
    }
    assert wanted <= set(ids)
    labelled = {attrs["aria-labelledby"] for _, attrs in page.tags if "aria-labelledby" in attrs}
    assert labelled <= set(ids)


def test_what_a_reader_needs_is_in_order(tmp_path: Path) -> None:
    html = _page("rejected", tmp_path)
    text = "".join(Page(html[html.index("<body>") : html.index("</html>")]).text)
    order = ["Rejected", "66 kept, 17 broken", "3 of 4 of this contract", "In plain words", "What is asked for",
             "Broken promises", "below-limit", "What could not be verified", "To be granted or installed",
             "Answers to objections", "Kept promises", "How the machine hangs together", "Full load",
             "Measurements", "another program of yours was writing", "second by second", "Waits for the trial",
             "Terms no agent can verify", "The machine", "Raw output", "Digest of the run", "none yet"]  # fmt: skip
    at = 0
    for words in order:
        assert words in text[at:], words
        at += text[at:].index(words) + len(words)


def test_raw_output_is_cut_and_named(tmp_path: Path) -> None:
    text = "".join(Page(_page("rejected", tmp_path)).text)
    size = (tmp_path / "evidence/0001-dmesg/stdout").stat().st_size
    assert f"⋯ {size - 4096:,} B ⋯" in text
    assert "sha256 " in text


def test_a_page_without_a_folder(tmp_path: Path) -> None:
    html = report.render(sample_run("rejected"), "html")
    assert "evidence/0031-fio-read" in html
    assert "Raw output" not in html


def test_the_digest_is_shown_once_there_is_one(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}", encoding="utf-8")
    digest = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert digest in report.render(sample_run("rejected"), "html", tmp_path)
    assert digest in report.render(sample_run("rejected"), "txt", tmp_path)


def _schemes() -> dict[str, dict[str, str]]:
    style = resources.path("templates", "report.css").read_text(encoding="utf-8")
    roots = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    assert len(roots) == 3
    return dict(zip(("light", "dark", "print"), (dict(re.findall(r"--([\w-]+): (#\w+)", r)) for r in roots)))


def _luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(c * 2 for c in colour[1:])
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark", "print"])
@pytest.mark.parametrize(("front", "back"), PAIRS)
def test_contrast_is_enough_to_read(scheme: str, front: str, back: str) -> None:
    """WCAG AA: 4.5 to 1."""
    colours = _schemes()[scheme]
    low, high = sorted(_luminance(colours[name]) for name in (front, back))
    assert (high + 0.05) / (low + 0.05) >= 4.5


@pytest.mark.chromium
@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("case", CASES)
def test_no_sideways_scroll_on_a_phone(case: Case, language: str, tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("no chromium")
    page = base64.b64encode(_page(case, tmp_path, language).encode()).decode()
    frame = tmp_path / "frame.html"
    # The page holds no script; the frame around it measures how wide its content is.
    frame.write_text(
        f"""<meta charset="utf-8"><body><iframe id="f" style="width:360px;height:700px;border:0"></iframe><p id="w"></p>
        <script>const f = document.getElementById("f");
        f.onload = () => document.getElementById("w").textContent =
          "width=" + f.contentDocument.documentElement.scrollWidth;
        f.srcdoc = new TextDecoder().decode(Uint8Array.from(atob("{page}"), c => c.charCodeAt(0)));</script>""",
        encoding="utf-8",
    )
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--dump-dom"]
    argv = [browser, *options, f"--user-data-dir={tmp_path}/profile", "--virtual-time-budget=4000", frame.as_uri()]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    found = re.search(r"width=(\d+)", done.stdout.split("<p id=")[1])
    assert found
    assert int(found[1]) <= 360
