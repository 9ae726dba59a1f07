"""What ``accept run --profile facts`` adds to its tools, and how long NVML takes, on a fake node of eight GPUs.

``python -m tests.perf.facts_overhead [--runs 5] [--json FILE]``. The tools' own time is what the evidence says of each
program that was started, of our probes (NVML, CUDA, the network in Python children) too, together with the seconds
that the agent waits on purpose to see CPU time being stolen; what is left of the whole is the agent's: starting,
reading files, parsing, judging, the reports. The run in which it took least counts: the others were disturbed.
Exit 1 where the agent takes 1 s or more, or the child that reads eight GPUs through NVML 1.5 s or more.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.facts.cpu import STEAL_WINDOW_S
from tests.fakenode import healthy
from tests.fakenode.node import Built, build

CONTRACT = Path(__file__).parents[1] / "fakenode" / "contracts" / "h100.yaml"
MOST_AGENT_S = 1.0
MOST_NVML_S = 1.5
SYSTEM = "/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Spent:
    """Seconds of one run: all of it, in programs of the machine, in our own probes, in waiting; NVML's child alone."""

    whole: float
    tools: float
    probes: float
    nvml: float

    @property
    def agent(self) -> float:
        """What the agent itself adds."""
        return self.whole - self.tools - self.probes - STEAL_WINDOW_S


def run(node: Built, folder: Path) -> Spent:
    """One run; the machine's other interpreters are kept out of the PATH, they are tools like any other."""
    argv = [sys.executable, "-m", "agent", "run", str(CONTRACT), "--yes", "--profile", "facts"]
    argv += ["--root", str(node.root), "--out", str(folder)]
    # Compiled once, as in an installed package.
    compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder.parent / "compiled")}
    environment = {**node.environment(), **compiled, "PATH": f"{node.path / 'bin'}:{SYSTEM}"}
    begun = time.monotonic()
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    whole = time.monotonic() - begun
    if not (folder / "result.json").exists():
        raise SystemExit(f"no result (exit {done.returncode}):\n{done.stderr}")
    started = list(programs(folder))
    ours = [meta for meta in started if is_probe(meta)]
    seconds = sum(meta["seconds"] for meta in started)
    probes = sum(meta["seconds"] for meta in ours)
    nvml = sum(meta["seconds"] for meta in ours if meta["probe"].split(".")[0] == "nvml")
    return Spent(whole, seconds - probes, probes, nvml)


def programs(folder: Path) -> Iterator[dict[str, Any]]:
    """The record of every program that the run started."""
    for path in sorted((folder / "evidence").glob("*/meta.json")):
        meta = json.loads(path.read_text(encoding="utf-8"))
        if meta["kind"] == "run":
            yield meta


def is_probe(meta: dict[str, Any]) -> bool:
    """One of ours, by the agent's own interpreter; asking an interpreter for torch is the interpreter's time."""
    return bool(meta["argv"][:2] == [sys.executable, "-I"])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.perf.facts_overhead", description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        node = build(healthy.h100(), Path(folder) / "node")
        runs = [run(node, Path(folder) / f"run-{n}") for n in range(options.runs)]
    best = min(runs, key=lambda spent: spent.agent)
    nvml = min(spent.nvml for spent in runs)
    print(
        f"profile facts on 8 GPUs: {best.whole:.2f} s, of which {best.tools:.2f} s in the machine's tools, "
        f"{best.probes:.2f} s in probes of our own and {STEAL_WINDOW_S:g} s waiting for stolen CPU time; the agent "
        f"itself: {best.agent:.2f} s (target < {MOST_AGENT_S:g} s)"
    )
    print(f"NVML of 8 GPUs in a child: {nvml:.2f} s (target < {MOST_NVML_S:g} s)")
    if options.json:
        options.json.write_text(json.dumps({"facts_agent_s": best.agent, "nvml_8_gpus_s": nvml}))
    return 0 if best.agent < MOST_AGENT_S and nvml < MOST_NVML_S else 1


if __name__ == "__main__":
    sys.exit(main())
