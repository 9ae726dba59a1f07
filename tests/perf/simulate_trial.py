"""How often a healthy noisy trial is rejected, and a bad one found.

    python -m tests.perf.simulate_trial [--seeds N]

18 runs over three days, each judged as a real run is; noise from run to run 1 % for GPUs, 3 % for the network. Trial k
uses seed k, so each figure can be had again. Exit 1 when more than 0.5 % of healthy trials are rejected.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.trial.simulated import World, contract, trial

WORST = 0.005
WORLDS = {
    "healthy": World(),
    "evening 3 % lower": World(evening_drop=0.03),
    "evening 20 % lower": World(evening_drop=0.2),
    "drift of 4 %": World(drift=0.04),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    seeds = parser.parse_args().seeds
    rejected = 0
    with TemporaryDirectory() as folder:
        signed = contract(Path(folder))
        for name, world in WORLDS.items():
            trials = [trial(signed, world, seed) for seed in range(seeds)]
            verdicts = Counter(t.verdict for t in trials)
            drifting = sum(any(j.finding.clause == "integrity.drift" for j in t.judged) for t in trials)
            counted = ", ".join(f"{n} {v}" for v, n in sorted(verdicts.items()))
            print(f"{name:20} {counted}; drift called in {drifting} of {seeds}", flush=True)
            if name == "healthy":
                rejected = verdicts["rejected"]
    return 1 if rejected > WORST * seeds else 0


if __name__ == "__main__":
    sys.exit(main())
