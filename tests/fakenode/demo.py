"""Judge several servers that are not there, and say where the reports are.

    python -m tests.fakenode.demo [FOLDER] [NAME]…

``FOLDER`` (default ``demo``) gets one folder a server; names are those of ``tests/fakenode/wrong.py``.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.fakenode import wrong
from tests.fakenode.node import build

HERE = Path(__file__).parent
MARK = "made-by-demo"
SHOWN = (
    "8 H100",
    "container without root",
    "card lost",
    "450 W cap",
    "A800 called A100",
    "4090 D called 4090 everywhere",
    "HAMi slice",
    "driver mismatch",
)


def main(folder: Path, names: Sequence[str]) -> int:
    """1 where a server was not judged at all; verdicts of whatever kind are what the demo is for."""
    unknown = [name for name in names if name not in wrong.CASES]
    if unknown:
        print(f"no such server: {', '.join(unknown)}; there are: {', '.join(wrong.CASES)}", file=sys.stderr)
        return 2
    if folder.exists() and not (folder / MARK).exists():
        print(f"{folder} exists and was not made by this demo", file=sys.stderr)
        return 2
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / MARK).touch()
    return max(show(folder, name) for name in names)


def show(folder: Path, name: str) -> int:
    """Build one server, run the agent on it, print one line."""
    case = wrong.CASES[name]
    place = folder.resolve() / "".join(c if c.isalnum() else "-" for c in name).strip("-").lower()
    built = build(case.node(), place / "node")
    argv = [sys.executable, "-m", "agent.cli.main", "run", str(HERE / "contracts" / case.contract), "--yes"]
    argv += ["--profile", "facts", "--root", str(built.root), "--out", str(place / "run")]
    done = subprocess.run(argv, env=built.environment(), capture_output=True, text=True, check=False)
    result = place / "run" / "result.json"
    if not result.exists():
        print(f"{name:32} not judged (exit {done.returncode})\n{done.stdout}{done.stderr}")
        return 1
    found = json.loads(result.read_text(encoding="utf-8"))
    print(f"{name:32} {found['verdict']:13} {found['headline']:44} {place / 'run' / 'report.html'}", flush=True)
    return 0


if __name__ == "__main__":
    arguments = sys.argv[1:]
    sys.exit(main(Path(arguments[0] if arguments else "demo"), arguments[1:] or SHOWN))
