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
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Optional

from agent.bench.disk import step as disk_step
from agent.bench.step import Look
from agent.evidence import Store
from agent.host import LiveHost, Ran
from agent.model import Taken

LOW, HIGH = 0.97, 1.03
REPETITION = re.compile(r"\.(read|write)\.\d+$")


class Alternating(LiveHost):
    """Runs each repetition of the bench twice: for the bench, and bare."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.pairs: dict[str, list[float]] = {"read": [], "write": []}
        self.printed: dict[str, list[float]] = {"read": [], "write": []}

    def run(
        self,
        probe: str,
        argv: Sequence[str],
        timeout_s: float,
        *,
        worker: bool = False,
        extra_env: Optional[Mapping[str, str]] = None,
        cwd: Optional[str] = None,
        inputs: Optional[Mapping[str, bytes]] = None,
    ) -> Ran:
        found = REPETITION.search(probe)
        bare_first = found is not None and len(self.pairs[found.group(1)]) % 2 == 1
        theirs = bare(argv, found.group(1)) if found is not None and bare_first else None
        ran = super().run(probe, argv, timeout_s, worker=worker, extra_env=extra_env, cwd=cwd, inputs=inputs)
        if found is not None:
            direction = found.group(1)
            ours = rate(ran.stdout, direction)
            self.printed[direction].append(ours)
            self.pairs[direction].append(ours / (theirs or bare(argv, direction)))
        return ran


def bare(argv: Sequence[str], direction: str) -> float:
    """Bytes per second of the same command, started by hand."""
    with tempfile.TemporaryDirectory() as folder:
        command = [a.replace("{evidence}", folder) for a in argv]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    return rate(done.stdout, direction)


def rate(text: str, direction: str) -> float:
    """``bw_bytes`` of fio's JSON, read without the agent's parser."""
    document = json.loads(text[text.index("{\n") :])
    return float(document["jobs"][0][direction]["bw_bytes"])


def measure(path: Path, pairs: int) -> tuple[dict[str, list[float]], int]:
    """Ratios by direction, and how many of the bench's values are not those that fio printed."""
    ratios: dict[str, list[float]] = {"read": [], "write": []}
    differing = 0
    number = 0
    while len(ratios["read"]) < pairs:
        number += 1
        with tempfile.TemporaryDirectory() as run:
            host = Alternating(Store(Path(run)))
            results = disk_step(str(path), {"read": "read", "write": "write"}).execute(host, Look(number))
            for direction, found in host.pairs.items():
                taken = results[direction]
                if not isinstance(taken, Taken):
                    sys.exit(f"fio could not measure {path}: {taken.detail}")
                ratios[direction] += found
                differing += [b.value for b in taken.attempt.blocks] != host.printed[direction]
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
    for direction, values in ratios.items():
        ordered = sorted(values)
        spread = f"{ordered[0]:.3f} to {ordered[-1]:.3f}"
        print(
            f"fio {direction}, agent ÷ bare: median {statistics.median(values):.3f} of {len(values)} pairs ({spread}); "
            f"target {LOW} to {HIGH}"
        )
    print(f"series whose values are not those of fio's JSON: {differing}")
    within = all(LOW <= statistics.median(v) <= HIGH for v in ratios.values())
    return 0 if within and not differing else 1


if __name__ == "__main__":
    sys.exit(main())
