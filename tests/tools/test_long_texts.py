"""Text of any length and shape is read or refused in time that grows with its length, and not with its square.

Held by comparing a text with one twice as long: a limit in seconds would hold nothing but the machine.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType

import pytest

from agent.tools import ParseError, parsers
from agent.tools._text import LONG, first_line
from agent.tools.smi_errors import find_failure, lost_gpus, refuse
from tests.tools.fuzz import cases, read_case

KINDS = sorted(parsers())
MOST = 2.6  # times as long for a text twice as long
NOISE_S = 0.02  # what is quicker says nothing of its growth
SHAPES: dict[str, Callable[[int], str]] = {
    "one word": lambda n: "a" * n,
    "empty lines": lambda n: "\n" * n,
    "short lines": lambda n: "ab\n" * (n // 3),
    "prose": lambda n: ("lorem ipsum dolor " * 8 + "\n") * (n // 145),
    "prose in one line": lambda n: "lorem ipsum " * (n // 12),
    "digits": lambda n: "1" * n,
    "columns of numbers": lambda n: ("1234567890 " * 6 + "\n") * (n // 67),
    "numbers in one line": lambda n: "1 " * (n // 2),
    "braces": lambda n: "{" * n,
    "a brace a line": lambda n: "{\n" * (n // 2),
    "brackets": lambda n: "[" * n,
    "open objects": lambda n: '{"a":' * (n // 5),
    "open string": lambda n: '{"a": "' + "x" * n,
    "an object a line": lambda n: '{"a": 1}\n' * (n // 9),
    "open list": lambda n: '{"a": [' + "1," * (n // 2),
    "blanks": lambda n: " " * n,
    "blank lines": lambda n: ("    " * 20 + "\n") * (n // 81),
    "blanks and a word": lambda n: " " * n + "x",
    "carriage returns": lambda n: "a\r" * (n // 2),
    "pairs": lambda n: "a: b\n" * (n // 5),
    "pairs in one line": lambda n: "a:" * (n // 2),
    "comments": lambda n: "# " * (n // 2),
    "open elements": lambda n: "<a>" * (n // 3),
    "flat elements": lambda n: "<r>" + "<a>1</a>" * (n // 8),
    "table": lambda n: "| a | b |\n" * (n // 10),
    "bars": lambda n: "|" * n,
    "dashes": lambda n: "-" * n,
    "stamps": lambda n: "[    1.0" * (n // 8),
    "escapes": lambda n: "\x1b[" * (n // 2),
    "addresses": lambda n: "0a:" * (n // 3),
    "Chinese": lambda n: ("文字测试 " * 10 + "\n") * (n // 51),
}


def cost(read: Callable[[str], object], text: str, tries: int = 1) -> float:
    """CPU seconds, the least of some tries."""

    def once() -> float:
        begun = time.process_time()
        with suppress(ParseError):
            read(text)
        return time.process_time() - begun

    return min(once() for _ in range(tries))


def grows(read: Callable[[str], object], short: str, long: str) -> bool:
    """Whether the longer one of two texts, twice as long, costs far more than twice."""
    if cost(read, long) <= NOISE_S:
        return False
    return cost(read, long, 3) > MOST * cost(read, short, 3)


@pytest.mark.parametrize("kind", KINDS)
def test_foreign_text(kind: str) -> None:
    read = parsers()[kind].parse
    slow = [name for name, make in SHAPES.items() if grows(read, make(10_000), make(20_000))]
    assert slow == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["empty lines", "short lines", "a brace a line", "open list", "prose in one line"])
def test_long_foreign_text_costs_its_ends(kind: str, name: str) -> None:
    """What is longer than any failure text is refused without being read through: in the time of a tenth of it."""
    module, make = parsers()[kind], SHAPES[name]
    with pytest.raises(ParseError) as caught:
        module.parse(make(4 * LONG))
    assert caught.value.kind == ("empty" if name == "empty lines" else "unparsable")
    assert cost(module.parse, make(4 * LONG)) < NOISE_S + 2 * cost(module.parse, make(LONG // 2))


def pumped(text: str, at: int, what: str, n: int) -> str:
    return text[:at] + what * n + text[at:]


@pytest.mark.parametrize("kind", KINDS)
def test_a_tools_own_text_with_a_swollen_place(kind: str) -> None:
    """Where a pattern could try two ways to share what repeats, a thousand of it are a million tries."""
    module, draw = parsers()[kind], random.Random(f"swollen {kind}")
    texts = [text for text in map(read_case, cases(kind)) if len(text) < 30_000]
    slow = []
    for text in draw.sample(texts, min(4, len(texts))):
        places = list(re.finditer(r"[ \t]+|\d+|[^\s\w]|[a-zA-Z]+|\n", text))
        for place in draw.sample(places, min(6, len(places))):
            for what in {place[0][0], " "}:
                short, long = (pumped(text, place.end(), what, n) for n in (2000, 4000))
                if grows(module.parse, short, long):
                    slow.append((text[max(0, place.start() - 20) : place.end() + 10], what))
    assert slow == []


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_without_end_are_refused_and_crash_nothing(kind: str) -> None:
    """Beyond the digits of a float, and beyond what Python turns into an integer."""
    module, draw = parsers()[kind], random.Random(f"digits {kind}")
    texts = [text for text in map(read_case, cases(kind)) if len(text) < 30_000]
    for text in draw.sample(texts, min(8, len(texts))):
        places = list(re.finditer(r"\d+", text))
        for place in draw.sample(places, min(4, len(places))):
            for n in (320, 5000):
                _read(module, pumped(text, place.end(), "9", n))


def _read(module: ModuleType, text: str) -> None:
    with suppress(ParseError):
        module.parse(text)


@pytest.mark.parametrize("read", [find_failure, lost_gpus, lambda text: refuse(text, "x"), first_line])
def test_failure_texts(read: Callable[[str], object]) -> None:
    own = "Unable to determine the device handle for GPU"
    shapes: dict[str, Callable[[int], str]] = {
        **SHAPES,
        "lost and blanks": lambda n: own + " " * n,
        "lost and digits": lambda n: own + "0" * n,
        "lost, lost": lambda n: (own + " 0000:01:00.0: ") * (n // 60),
        "mig": lambda n: "mig " * (n // 4),
        "gpu": lambda n: "gpu not " * (n // 8),
    }
    assert [name for name, make in shapes.items() if grows(read, make(20_000), make(40_000))] == []
