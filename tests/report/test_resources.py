"""Files that are not Python are found in a checkout and in an install."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent import resources


def test_in_a_checkout() -> None:
    assert resources.path("templates", "report.html.j2").is_file()
    assert resources.path("contracts", "result.schema.json").is_file()
    assert resources.path("benchmarks").is_dir()
    assert (resources.locale_dir() / "zh" / "LC_MESSAGES" / "accept.mo").is_file()


def test_in_an_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages" / "agent"
    (package / "data" / "templates").mkdir(parents=True)
    monkeypatch.setattr(resources, "_PACKAGE", package)
    assert resources.path("templates", "a.css") == package / "data" / "templates" / "a.css"
    assert resources.path("contracts", "x") == tmp_path / "site-packages" / "contracts" / "x"


def test_another_kind_is_an_error() -> None:
    with pytest.raises(KeyError):
        resources.path("secrets")
