"""dd, where there is no fio, through the agent's bench against the bare command, alternating in one run.

``python -m tests.perf.dd_ratio [--path DIR] [--pairs 6]`` writes up to some 30 GiB below DIR. Prints the median of
agent ÷ bare for each direction, and whether the bench's values are bytes over seconds as dd printed them; exit 1 where
a median is outside 0.97 to 1.03 or a value differs.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from agent import probes
from agent.bench.disk import step as disk_step
from agent.bench.step import Look
from agent.evidence import Store
from agent.host import Ran
from agent.model import Taken
from tests.hooked import Go, without_fio
from tests.perf._pairs import Alternating, ended, told

COPIED = re.compile(r"^(\d+) bytes .*copied, ([0-9.e+-]+) s", re.MULTILINE)


class NoFio(Alternating):
    """A machine without fio."""

    def around(self, probe: str, argv: Sequence[str], go: Go) -> Ran:
        return super().around(probe, without_fio(argv), go)


def series(probe: str, argv: Sequence[str]) -> Optional[str]:
    """The repetitions of either direction."""
    found = re.search(r"\.(read|write)\.\d+$", probe)
    return found.group(1) if found else None


def fed(argv: Sequence[str]) -> Sequence[str]:
    """With the script that feeds dd from where it lies."""
    return [a.replace("{evidence}", str(Path(probes.__file__).parent)) for a in argv]


def rate(text: str) -> float:
    """Bytes over seconds."""
    found = COPIED.search(text)
    if found is None:
        sys.exit(f"dd printed no statistics: {text}")
    return int(found[1]) / float(found[2])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.perf.dd_ratio", description=__doc__)
    parser.add_argument("--path", type=Path, default=Path())
    parser.add_argument("--pairs", type=int, default=6, help="at least so many for each direction")
    options = parser.parse_args()
    within, differing = True, 0
    for direction in ("read", "write"):
        ratios: list[float] = []
        number = 0
        while len(ratios) < options.pairs:
            number += 1
            with tempfile.TemporaryDirectory() as run:
                host = NoFio(Store(Path(run)), series, rate, fed)
                taken = disk_step(str(options.path), {direction: direction}).execute(host, Look(number))[direction]
            if not isinstance(taken, Taken):
                sys.exit(f"dd could not measure {options.path}: {taken.detail}")
            if taken.attempt.blocks[0].conditions.get("tool") != "dd":
                sys.exit("this was not dd")
            ratios += host.ratios[direction]
            differing += host.differ(direction, taken.attempt.blocks)
        within = told(f"dd {direction}", ratios) and within
    return ended("dd's statistics", within, differing)


if __name__ == "__main__":
    sys.exit(main())
