"""Pages as a reader's browser shows them: width, first screen, console, accessibility (axe-core), print.

Chromium is the system's; ``npm ci --prefix tests/report/browser`` gets the driver and the rules.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent import report, resources
from agent.compare import compare
from agent.report import comparison
from agent.text import translator
from tests.report.large import large_run, write_large
from tests.report.samples import Case, sample_run, write_evidence

HERE = Path(__file__).parent / "browser"
PHONE, DESKTOP = 360, 1280
FIRST_SCREEN = 740
REPORTS: tuple[tuple[Case, str], ...] = (
    ("rejected", "en"),
    ("rejected", "zh"),
    ("accepted", "en"),
    ("accepted", "zh"),
    ("inconclusive", "zh"),
    ("hostile", "en"),
)
NAMES = [*(f"{case}-{language}" for case, language in REPORTS), "compare-zh", "large-en"]

pytestmark = [pytest.mark.chromium, pytest.mark.slow]


def _browser() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("no chromium")
    if shutil.which("node") is None:
        pytest.skip("no node")
    if not (HERE / "node_modules" / "axe-core").is_dir():
        pytest.skip("no axe-core: npm ci --prefix tests/report/browser")
    return found


def _pages(folder: Path) -> Iterator[tuple[str, str]]:
    for case, language in REPORTS:
        run = folder / f"{case}-{language}"
        run.mkdir()
        write_evidence(run, slow=case != "accepted")
        yield run.name, report.render(sample_run(case), "html", run, language)
    one, two = sample_run("accepted"), sample_run("rejected")
    translate = translator("zh", resources.locale_dir())
    yield "compare-zh", comparison.html(compare(one, two), one, two, translate, "zh")
    write_large(folder / "large", 8)
    yield "large-en", report.render(large_run(8), "html", folder / "large", "en")


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the browser found, by page and view; ``folder`` is where its pictures lie."""
    browser = _browser()
    folder = tmp_path_factory.mktemp("pages")
    (folder / "large").mkdir()
    files = []
    for name, html in _pages(folder):
        files.append(folder / f"{name}.html")
        files[-1].write_text(html, encoding="utf-8")
    argv = ["node", str(HERE / "look.mjs"), browser, str(folder), *map(str, files)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return {**found, "folder": folder}


@pytest.mark.parametrize("name", NAMES)
def test_nothing_scrolls_sideways(seen: dict[str, Any], name: str) -> None:
    assert seen[name]["phone"]["width"] <= PHONE
    assert seen[name]["desktop"]["width"] <= DESKTOP


@pytest.mark.parametrize("name", NAMES)
def test_the_verdict_is_in_the_first_screen_of_a_phone(seen: dict[str, Any], name: str) -> None:
    assert 0 < seen[name]["phone"]["verdictBottom"] < FIRST_SCREEN / 2


@pytest.mark.parametrize("view", ["desktop", "phone", "dark"])
@pytest.mark.parametrize("name", NAMES)
def test_nothing_runs_nothing_is_fetched_nothing_is_complained_of(seen: dict[str, Any], name: str, view: str) -> None:
    assert seen[name][view]["errors"] == []
    assert seen[name][view]["requests"] == []


@pytest.mark.parametrize("view", ["desktop", "phone", "dark"])
@pytest.mark.parametrize("name", NAMES)
def test_axe_finds_nothing_serious(seen: dict[str, Any], name: str, view: str) -> None:
    found = seen[name][view]["violations"]
    assert [v for v in found if v.startswith(("serious", "critical"))] == []


@pytest.mark.parametrize("name", NAMES)
def test_it_prints_on_a4(seen: dict[str, Any], name: str) -> None:
    data = (seen["folder"] / f"{name}-desktop.pdf").read_bytes()
    sizes = re.findall(rb"/MediaBox ?\[ ?0 0 ([\d.]+) ([\d.]+) ?\]", data)
    assert sizes
    assert all(abs(float(w) - 595.3) < 1 and abs(float(h) - 841.9) < 1 for w, h in sizes)
    assert len(sizes) < 40


@pytest.mark.parametrize("name", NAMES)
def test_pictures_of_the_pages_are_kept(seen: dict[str, Any], name: str) -> None:
    """What a person looks at after a change: each view as it is first seen, and whole."""
    for view in ("desktop", "phone", "dark"):
        for picture in (f"{name}-{view}-first.png", f"{name}-{view}.png")[: 1 if name == "large-en" else 2]:
            assert (seen["folder"] / picture).stat().st_size > 5_000
