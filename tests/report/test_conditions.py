"""What others did beside a measurement: in its own unit, and a percentage only once."""

from __future__ import annotations

import pytest

from agent.report.strips import _conditions


@pytest.mark.parametrize(
    ("foreign", "shown"),
    [
        ({"steal_percent": 0.0099265}, "others stolen CPU time 0.00993 %"),
        ({"steal_percent": 1.0, "cpu_percent": 35.0}, "others stolen CPU time 1 %, CPU 35 %"),
        ({"disk_bytes_per_s": 5590636.130674308}, "others disk 5.59 MB/s"),
        ({"own_bytes_per_s": 2e9}, "others of it your own work 2 GB/s"),
        ({"network_mb_s": 0.5, "gpu_busy_percent": 97}, "others network 0.5 MB/s, GPU busy 97 %"),
        ({"net_bytes_per_s": 0.0}, ""),
        ({"something new": "0.5 of it"}, "others something new 0.5 of it"),
    ],
)
def test_others(foreign: dict[str, float], shown: str) -> None:
    assert _conditions({"foreign": foreign}, str).replace("\u202f", " ") == shown


def test_a_share_of_the_time_is_a_percentage() -> None:
    assert (
        _conditions({"throttle": {"sw_power_cap": 0.25}}, str).replace("\u202f", " ") == "slowed down sw_power_cap 25 %"
    )
