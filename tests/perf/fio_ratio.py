"""fio through the agent's bench against the bare command with the same arguments, alternating in one run.

``python -m tests.perf.fio_ratio [--path DIR] [--pairs 6]`` writes up to 64 GiB below DIR. The bench runs as in a real
run; beside each of its repetitions the very same command is started from a plain ``subprocess``, before or after it by
turns, so that a disk that slows down favours neither. Prints the median of agent ÷ bare for each direction, and
whether the bench's values are those of fio's JSON; exit 1 where a median is outside 0.97 to 1.03 or a value differs.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from agent.bench.disk import step as disk_step
from agent.bench.step import Look
from agent.evidence import Store
from agent.model import Taken
from tests.perf._pairs import Alternating, ended, told

DIRECTIONS = ("read", "write")


def series(probe: str, argv: Sequence[str]) -> Optional[str]:
    """The repetitions of either direction."""
    found = re.search(r"\.(read|write)\.\d+$", probe)
    return found.group(1) if found else None


def rate(text: str) -> float:
    """``bw_bytes`` of the one direction of fio's JSON, read without the agent's parser."""
    document, _ = json.JSONDecoder().raw_decode(text[text.index("{\n") :])
    job = document["jobs"][0]
    return float(sum(job[direction]["bw_bytes"] for direction in DIRECTIONS))


def measure(path: Path, pairs: int) -> tuple[dict[str, list[float]], int]:
    """Ratios by direction, and how many of the bench's values are not those that fio printed."""
    ratios: dict[str, list[float]] = {d: [] for d in DIRECTIONS}
    differing = 0
    number = 0
    while len(ratios["read"]) < pairs:
        number += 1
        with tempfile.TemporaryDirectory() as run:
            host = Alternating(Store(Path(run)), series, rate)
            results = disk_step(str(path), {d: d for d in DIRECTIONS}).execute(host, Look(number))
            for direction in DIRECTIONS:
                taken = results[direction]
                if not isinstance(taken, Taken):
                    sys.exit(f"fio could not measure {path}: {taken.detail}")
                ratios[direction] += host.ratios[direction]
                differing += host.differ(direction, taken.attempt.blocks)
    return ratios, differing


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.perf.fio_ratio", description=__doc__)
    parser.add_argument("--path", type=Path, default=Path())
    parser.add_argument("--pairs", type=int, default=6, help="at least so many for each direction")
    options = parser.parse_args()
    if shutil.which("fio") is None:
        print("fio, agent ÷ bare: not measured, fio is not installed")
        return 0
    ratios, differing = measure(options.path, options.pairs)
    within = [told(f"fio {direction}", values) for direction, values in ratios.items()]
    return ended("fio's JSON", all(within), differing)


if __name__ == "__main__":
    sys.exit(main())
