"""The command answers at once: it is also typed by people who wait."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

ROUNDS = 9
TRIES = 4
MOST = 2.0


def seconds(*argv: str) -> float:
    begun = time.perf_counter()
    subprocess.run([sys.executable, *argv], check=True, capture_output=True)
    return time.perf_counter() - begun


def ratio() -> float:
    """``accept --version`` over ``import click``, the median of pairs that follow each other."""
    return statistics.median(
        seconds("-m", "agent.cli.main", "--version") / seconds("-c", "import click") for _ in range(ROUNDS)
    )


def test_version_takes_at_most_twice_the_import_of_click() -> None:
    # A busy machine may spoil a round of pairs, not all of them: what is slow by itself is slow each time.
    found = [ratio()]
    while found[-1] > MOST and len(found) < TRIES:
        found.append(ratio())
    assert min(found) <= MOST, f"ratios {found}"


def test_version_loads_nothing_that_it_does_not_need() -> None:
    code = "import sys, agent.cli.main; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = set(done.stdout.split())
    assert "click" in loaded
    assert not loaded & {"rich", "jinja2", "ruamel.yaml", "psutil", "agent.contract", "agent.runner"}
