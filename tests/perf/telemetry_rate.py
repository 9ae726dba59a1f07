"""The telemetry probe on a fake node of eight GPUs: its share of a core, and how punctual its samples are.

``python -m tests.perf.telemetry_rate [--seconds 30] [--json FILE]``. Exit 1 where it takes 3 % of a core or more, or
fewer than 99 % of its slots hold a sample within 20 ms. On a machine that is busy with other things the second figure
is theirs.
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

from agent import probes
from agent.tools import telemetry
from tests.fakenode import healthy
from tests.fakenode.node import build

MOST_CORE = 0.03
PUNCTUAL = 0.99
WITHIN_S = 0.02


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.perf.telemetry_rate", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        node = build(healthy.h100(), Path(folder))
        script = Path(probes.__file__).parent / "telemetry_probe.py"
        argv = [sys.executable, "-I", str(script), probes.pynvml_folder(), str(options.seconds)]
        environment = {**os.environ, **node.environment()}
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = telemetry.parse(done.stdout)
    slots = round(options.seconds / found.interval_s)
    punctual = sum(f.t % found.interval_s <= WITHIN_S for f in found.fast) / slots
    core = (usage.ru_utime + usage.ru_stime) / options.seconds  # building the node's libraries is in it, once
    size = len(done.stdout) / options.seconds
    print(
        f"telemetry of {len(found.gpus)} GPUs at {1 / found.interval_s:g} Hz for {options.seconds:g} s: "
        f"{100 * core:.2f} % of a core (target < {100 * MOST_CORE:g} %), {100 * punctual:.2f} % of the slots within "
        f"{1000 * WITHIN_S:g} ms (target ≥ {100 * PUNCTUAL:g} %), {size / 1000:.2f} kB/s"
    )
    if options.json:
        options.json.write_text(json.dumps({"telemetry_core": core, "telemetry_punctual": punctual}))
    return 0 if core < MOST_CORE and punctual >= PUNCTUAL else 1


if __name__ == "__main__":
    sys.exit(main())
