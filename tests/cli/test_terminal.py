"""What is printed is short, and a command that is printed can be pasted."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from agent.bench.step import Cost, Look, Step
from agent.cli.terminal import Terminal, plan_lines
from agent.model import ScopeEntry
from agent.plan import Plan, Planned
from agent.text import msg
from tests.runs import CHECKOUT, FACTS_ONLY, WRITES, accept, contract, environment, until


def test_one_line_for_a_reason_however_many_clauses_it_meets() -> None:
    quick, budget = msg("shortened by --profile {profile}", profile="quick"), msg("left out to fit --budget")
    plan = Plan(
        (),
        left_out=(ScopeEntry("training", budget),),
        shortened=tuple(ScopeEntry(k, quick) for k in ("gemm.bf16@0000:1b:00.0", "gemm.bf16@0000:3b:00.0", "burn.sag")),
    )
    said = [str(line) for line in plan_lines(plan, {})][1:]
    assert said == ["left out to fit --budget: training", "shortened by --profile quick: gemm.bf16, burn.sag"]


def test_a_folder_with_a_space_is_quoted_in_the_command_to_paste(tmp_path: Path) -> None:
    contract(tmp_path, FACTS_ONLY)
    done = accept("run", "contract.yaml", "--out", "验收 第一天/run 1", "--detach", cwd=tmp_path)
    (line,) = [row for row in done.out.splitlines() if "accept status" in row]
    words = shlex.split(line.partition("accept status")[2])
    assert words == ["验收 第一天/run 1"]
    until(lambda: "finished" in accept("status", words[0], "--lang", "en", cwd=tmp_path).out)


def test_a_package_of_the_users_own_called_agent_is_not_started(tmp_path: Path) -> None:
    """``--detach`` starts accept again where the user stands, who may have an ``agent`` there himself."""
    contract(tmp_path, FACTS_ONLY)
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "__main__.py").write_text("raise SystemExit('the user’s own')\n")
    script = tmp_path / "bin" / "accept"
    script.parent.mkdir()
    script.write_text(f"import sys\nsys.path.insert(0, {str(CHECKOUT)!r})\nfrom agent.cli.main import main\nmain()\n")
    env = {k: v for k, v in environment().items() if k != "PYTHONPATH"}
    argv = [sys.executable, str(script), "run", "contract.yaml", "--out", "run", "--detach", "--lang", "en"]
    started = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
    assert started.returncode == 0, started.stderr
    until(lambda: "finished" in accept("status", "run", "--lang", "en", cwd=tmp_path).out)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_trial_names_the_option_that_moves_it(tmp_path: Path) -> None:
    """A run's folder lies below ``--dir`` there, and ``--out`` is no option of it."""
    contract(tmp_path, FACTS_ONLY)
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)], check=True)
    try:
        trial = ("--dir", str(small / "trial"), "--for", "2h", "--every", "1h", "--due", "--lang", "en")
        done = accept("trial", "run", "contract.yaml", *trial, cwd=tmp_path)
        assert "name another place with --dir" in done.out
        assert "--out" not in done.said
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def test_only_without_the_entry_means_every_entry_and_a_typing_error_is_answered_with_the_keys(tmp_path: Path) -> None:
    contract(tmp_path, WRITES)
    done = accept("plan", "contract.yaml", "--only", "disk.write", "--lang", "en", cwd=tmp_path)
    assert "disk[.].write" in done.out
    assert done.code == 0, done.said
    wrong = accept("run", "contract.yaml", "--only", "disk.wriet", "--lang", "en", cwd=tmp_path)
    assert wrong.code == 2
    assert "no clause of the contract matches “disk.wriet”; it has disk[.].write" in wrong.err


def test_what_was_promised_and_found_is_said_once(tmp_path: Path) -> None:
    contract(tmp_path, "version: 1\ncpu: {vcpus: 100000}\n")
    done = accept("run", "contract.yaml", "--out", "run", "--lang", "en", cwd=tmp_path)
    assert done.code == 1
    (line,) = [row for row in done.out.splitlines() if "cpu.vcpus" in row]
    assert line.count("promised") == 1
    assert line == f"✗ cpu.vcpus  promised 100000  measured {os.cpu_count()}"


def drawn(at: float) -> str:
    """The last picture of the bar, ``at`` seconds after a step of 100 s began; 200 s are planned."""
    out, seconds = StringIO(), [1000.0]
    console = Console(file=out, force_terminal=True, width=80, color_system=None)
    terminal = Terminal(str, console, clock=lambda: seconds[0])
    steps = tuple(
        Planned(Step(name, (name,), "disk", lambda depth: Cost(100.0), lambda host, look: {}), "standard")
        for name in ("disk[/a]", "disk[/b]")
    )
    terminal.planned(Plan(steps))
    terminal.begins(steps[0], Look())
    assert terminal._bar is not None
    out.truncate(out.seek(0))
    seconds[0] += at
    terminal._bar.refresh()
    shown = out.getvalue()
    terminal.close()
    return shown


@pytest.mark.parametrize(("at", "left"), [(0.0, "3.3 min"), (50.0, "2.5 min"), (99.0, "1.7 min"), (500.0, "1.7 min")])
def test_the_time_left_falls_while_a_step_runs(at: float, left: str) -> None:
    """A step that takes longer than planned holds it up; it never promises an end that is not near."""
    assert f"about {left} left" in drawn(at)
