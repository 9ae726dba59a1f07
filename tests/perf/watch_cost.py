"""``accept watch`` on a fake node of eight GPUs: its share of a core, agent and child together.

``python -m tests.perf.watch_cost [--looks 30] [--json FILE]``. What a look costs is the difference of a long and a
short watch, so that starting is not in it; the share is of the default of one look in five seconds, shown as plain
lines and with the log written. Exit 1 where it takes 1 % of a core or more.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.fakenode import healthy
from tests.fakenode.node import build

MOST_CORE = 0.01
EVERY_S = 5.0
FEW = 2


def spent(looks: int, environment: dict[str, str], folder: Path) -> float:
    """CPU seconds of a watch of so many looks."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    argv = [sys.executable, "-m", "agent", "watch", "--every", "1s", "--for", f"{looks}s", "--dir", str(folder)]
    subprocess.run(argv, env=environment, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.perf.watch_cost", description=__doc__)
    parser.add_argument("--looks", type=int, default=30)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        node = build(healthy.h100(), Path(folder) / "node")
        environment = {**os.environ, **node.environment()}
        short = spent(FEW, environment, Path(folder) / "log")
        long = spent(FEW + options.looks, environment, Path(folder) / "log")
        size = (Path(folder) / "log" / "watch.jsonl").stat().st_size / (2 * FEW + options.looks)
    look = (long - short) / options.looks
    core = look / EVERY_S
    print(
        f"accept watch of 8 GPUs: {1000 * look:.1f} ms of CPU a look, {100 * core:.2f} % of a core at one look in "
        f"{EVERY_S:g} s (target < {100 * MOST_CORE:g} %), {size * 86400 / EVERY_S / 1e6:.0f} MB of log a day"
    )
    if options.json:
        options.json.write_text(json.dumps({"watch_core": core}))
    return 0 if core < MOST_CORE else 1


if __name__ == "__main__":
    sys.exit(main())
