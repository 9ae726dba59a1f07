"""Every ``tests/fixtures/tools/<kind>--<case>.txt`` against the ``.json`` beside it.

The JSON is what ``accept parse <kind>`` must print, or ``{"error": "<failure kind>"}`` alone where it
must refuse. Adding a case is adding two files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.tools import ParseError, parsers, to_json
from tests.tools.fuzz import FIXTURES, cases, read_case

CASES = cases()


def expected(path: Path) -> Any:
    return json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))


def test_each_text_has_its_json_and_the_reverse() -> None:
    texts = {p.stem for p in FIXTURES.glob("*.txt")}
    jsons = {p.stem for p in FIXTURES.glob("*.json")}
    assert texts == jsons
    assert texts, f"no fixtures below {FIXTURES}"


def test_each_fixture_names_a_kind() -> None:
    assert {p.name.split("--")[0] for p in CASES} <= set(parsers())


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_fixture(path: Path) -> None:
    module = parsers()[path.name.split("--")[0]]
    want = expected(path)
    if set(want) == {"error"}:
        with pytest.raises(ParseError) as caught:
            module.parse(read_case(path))
        assert caught.value.kind == want["error"]
        assert str(caught.value)
    else:
        got = to_json(module, module.parse(read_case(path)))
        assert json.loads(json.dumps(got)) == want
