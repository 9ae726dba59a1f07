"""A bench's repetitions beside the bare command, by turns before and after it."""

from __future__ import annotations

import re
import statistics
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Optional

from agent.evidence import Store
from agent.host import LiveHost, Ran

LOW, HIGH = 0.97, 1.03
Reader = Callable[[str], float]


class Alternating(LiveHost):
    """Runs each repetition of the bench twice: for the bench, and bare.

    ``wanted`` finds the repetitions by their probe's name, ``bare`` makes the bare command of theirs, and ``ours`` and
    ``theirs`` read the number out of what each printed, without the agent's parsers.
    """

    def __init__(
        self,
        store: Store,
        wanted: re.Pattern[str],
        ours: Reader,
        bare: Callable[[Sequence[str]], Sequence[str]] = list,
        theirs: Optional[Reader] = None,
        prefix: Sequence[str] = (),
    ) -> None:
        super().__init__(store)
        self.wanted = wanted
        self.ours = ours
        self.bare = bare
        self.theirs = theirs or ours
        self.prefix = prefix
        self.ratios: list[float] = []
        self.printed: list[float] = []

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
        measured = self.wanted.search(probe) is not None
        before = self._bare(argv) if measured and len(self.ratios) % 2 == 1 else None
        command = [*self.prefix, *argv]
        ran = super().run(probe, command, timeout_s, worker=worker, extra_env=extra_env, cwd=cwd, inputs=inputs)
        if measured:
            self.printed.append(self.ours(f"{ran.stdout}\n{ran.stderr}"))
            self.ratios.append(self.printed[-1] / (before or self._bare(argv)))
        return ran

    def _bare(self, argv: Sequence[str]) -> float:
        done = subprocess.run([*self.prefix, *self.bare(argv)], check=True, capture_output=True, text=True)
        return self.theirs(f"{done.stdout}\n{done.stderr}")


def told(what: str, ratios: Sequence[float]) -> bool:
    """Print the median and the spread; whether the median is within the target."""
    middle = statistics.median(ratios)
    print(
        f"{what}, agent ÷ bare: median {middle:.3f} of {len(ratios)} pairs ({min(ratios):.3f} to {max(ratios):.3f}); "
        f"target {LOW} to {HIGH}"
    )
    return LOW <= middle <= HIGH
