"""The picture of a series: a scale with its numbers, inside which every run lies."""

from __future__ import annotations

from typing import Any, Optional

import pytest

from agent.trial.document import LEFT, WIDTH, chart


def series(limit: Optional[float], *intervals: tuple[float, float]) -> dict[str, Any]:
    points = [
        {"run": n, "value": (low + high) / 2, "interval": [low, high], "evening": False}
        for n, (low, high) in enumerate(intervals, 1)
    ]
    return {"key": "disk[/data].read", "unit": "GB/s", "limit": limit, "points": points}


@pytest.mark.parametrize(
    ("limit", "high", "low"),
    [(None, "1.77 GB/s", "1.19 GB/s"), (2.0, "2 GB/s", "1.19 GB/s"), (0.5, "1.77 GB/s", "0.5 GB/s")],
)
def test_the_scale_reaches_from_the_lowest_to_the_highest_and_says_so(
    limit: Optional[float], high: str, low: str
) -> None:
    drawn = chart(series(limit, (1.19, 1.5), (1.3, 1.77)), 2)
    assert drawn["high"]["text"].replace("\u202f", " ") == high
    assert drawn["low"]["text"].replace("\u202f", " ") == low
    for dot in drawn["dots"]:
        assert LEFT < dot["x"] < WIDTH
        assert drawn["high"]["y"] <= dot["top"] <= dot["y"] <= dot["bottom"] <= drawn["low"]["y"]


def test_one_number_alone_has_a_scale_too() -> None:
    drawn = chart(series(None, (1.5, 1.5)), 1)
    assert drawn["high"] == drawn["low"]
    assert 0 < drawn["low"]["y"] < drawn["height"]
