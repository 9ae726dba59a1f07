"""Markdown: what comes from a machine is text and nothing else, and is escaped no more than that takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from agent.report.to_md import escaped

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
PLACES = ("{}", "before {}", "- {}", "- **label**: {}", "## {} (3)")
SIGNS = "\\`*_{}[]()<>#+-=.!|~&$@:;/\"'^ ab1wh"


def read(markdown: str) -> tuple[str, set[str]]:
    """The text that a reader sees, and the names of all that is not text."""
    words, others = [], set()
    for token in PARSER.parse(markdown):
        for child in token.children or ():
            if child.type in ("text", "text_special"):
                words.append(child.content)
            else:
                others.add(child.type)
        if token.type not in ("inline", "paragraph_open", "paragraph_close"):
            others.add(token.type)
    return "".join(words), others


@pytest.mark.parametrize("place", PLACES)
@given(text=st.text(SIGNS, min_size=1, max_size=30).map(str.strip).filter(bool))
def test_nothing_of_it_is_markup(place: str, text: str) -> None:
    _, usual = read(place.format("word"))
    said, found = read(place.format(escaped(text)))
    assert found == usual
    assert " ".join(text.split()) in " ".join(said.split())


@pytest.mark.parametrize(
    "text",
    ["1 Dec 2026, 05:20 UTC", "SD-2026-1130-07", "6.18.44-fc-v657", "+100 %", "8 GPUs (2 sockets)", "−5 points!"],
)
def test_what_is_no_markup_stays_as_it_is(text: str) -> None:
    assert escaped(f"x {text}") == f"x {text}"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://a.example", r"https:\/\/a.example"),
        ("see www.example.com", r"see www\.example.com"),
        ("x :smile: y", r"x \:smile: y"),
        ("@you and #7", r"\@you and \#7"),
        ("1. first", r"1\. first"),
        ("12) twelfth", r"12\) twelfth"),
        ("- item", r"\- item"),
    ],
)
def test_what_a_site_makes_of_text_is_stopped(text: str, shown: str) -> None:
    assert escaped(text) == shown
