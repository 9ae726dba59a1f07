"""Stand-alone scripts that read the machine in a child with a deadline and print JSON.

They import nothing of the agent; ``psutil`` where it is there, from the folder given as an argument, because an
isolated interpreter (``-I``) does not see the path that the agent itself was started with.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Optional

from agent.host import Host, Ran

_HERE = Path(__file__).resolve().parent


def ask(
    host: Host,
    probe: str,
    script: str,
    arguments: Sequence[str],
    timeout_s: float,
    extra_env: Optional[Mapping[str, str]] = None,
) -> Ran:
    """Run ``agent/probes/SCRIPT.py`` in the agent's own interpreter, shut off from the user's environment.

    The script is copied into the evidence, so that the recording shows what was run.
    """
    argv = [host.python(), "-I", f"{{evidence}}/{script}.py", *arguments]
    return host.run(probe, argv, timeout_s, inputs={f"{script}.py": source(script)}, extra_env=extra_env)


def source(script: str) -> bytes:
    """``agent/probes/SCRIPT.py``."""
    return (_HERE / f"{script}.py").read_bytes()


def pynvml_folder() -> str:
    """Where the agent's own nvidia-ml-py lies; empty where it has none."""
    found = importlib.util.find_spec("pynvml")
    return str(Path(found.origin).parent) if found is not None and found.origin else ""


def psutil_folder() -> str:
    """Where the agent's own psutil lies; empty where it has none."""
    found = importlib.util.find_spec("psutil")
    return str(Path(found.origin).parent.parent) if found is not None and found.origin else ""
