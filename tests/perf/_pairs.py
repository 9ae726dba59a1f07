"""A bench's repetitions beside the bare command, by turns before and after it."""

from __future__ import annotations

import statistics
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from typing import Optional

from agent.evidence import Store
from agent.host import Ran
from agent.model import Block
from tests.hooked import Go, Hooked

LOW, HIGH = 0.97, 1.03
Reader = Callable[[str], float]


class Alternating(Hooked):
    """Runs each repetition of the bench twice: for the bench, and bare.

    ``series`` names the series that a run belongs to by its probe and argv, or says None; ``bare`` makes the bare
    command of the bench's, and ``ours`` and ``theirs`` read the number out of what each printed, without the agent's
    parsers.
    """

    def __init__(
        self,
        store: Store,
        series: Callable[[str, Sequence[str]], Optional[str]],
        ours: Reader,
        bare: Callable[[Sequence[str]], Sequence[str]] = list,
        theirs: Optional[Reader] = None,
        prefix: Sequence[str] = (),
    ) -> None:
        super().__init__(store)
        self.series = series
        self.ours = ours
        self.bare = bare
        self.theirs = theirs or ours
        self.prefix = prefix
        self.ratios: dict[str, list[float]] = {}
        self.printed: dict[str, list[float]] = {}

    def around(self, probe: str, argv: Sequence[str], go: Go) -> Ran:
        name = self.series(probe, argv)
        if name is None:
            return go([*self.prefix, *argv])
        ratios, printed = self.ratios.setdefault(name, []), self.printed.setdefault(name, [])
        before = self._bare(argv) if len(ratios) % 2 == 1 else None
        ran = go([*self.prefix, *argv])
        printed.append(self.ours(f"{ran.stdout}\n{ran.stderr}"))
        ratios.append(printed[-1] / (before or self._bare(argv)))
        return ran

    def differ(self, name: str, blocks: Sequence[Block], factor: float = 1.0) -> bool:
        """Whether the bench's values are not those that were printed, to the last digit."""
        return [b.value for b in blocks] != [v * factor for v in self.printed[name]]

    def _bare(self, argv: Sequence[str]) -> float:
        with tempfile.TemporaryDirectory() as folder:
            command = [*self.prefix, *(a.replace("{evidence}", folder) for a in self.bare(argv))]
            # In a session of its own as the agent's are: the scheduler shares the CPUs by sessions.
            done = subprocess.run(command, check=True, capture_output=True, text=True, start_new_session=True)
        return self.theirs(f"{done.stdout}\n{done.stderr}")


def told(what: str, ratios: Sequence[float]) -> bool:
    """Print the median and the spread; whether the median is within the target."""
    middle = statistics.median(ratios)
    print(
        f"{what}, agent ÷ bare: median {middle:.3f} of {len(ratios)} pairs ({min(ratios):.3f} to {max(ratios):.3f}); "
        f"target {LOW} to {HIGH}"
    )
    return LOW <= middle <= HIGH


def ended(what: str, within: bool, differing: int, decides: bool = True) -> int:
    """Print how many series hold other values than ``what`` did; the exit status."""
    print(f"series whose values are not those of {what}: {int(differing)}")
    return 0 if (within or not decides) and not differing else 1
