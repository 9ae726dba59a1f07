"""A host of this machine that lets a test do something around each program that it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Optional

from agent.host import LiveHost, Ran

Go = Callable[[Sequence[str]], Ran]


class Hooked(LiveHost):
    """Subclasses say in :meth:`around` what happens before, after or in place of a program."""

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
        begin = super().run

        def go(given: Sequence[str]) -> Ran:
            return begin(probe, given, timeout_s, worker=worker, extra_env=extra_env, cwd=cwd, inputs=inputs)

        return self.around(probe, argv, go)

    def around(self, probe: str, argv: Sequence[str], go: Go) -> Ran:
        """``go`` runs the argv that it is given, once for each call."""
        return go(argv)


def without_fio(argv: Sequence[str]) -> Sequence[str]:
    """The same on a machine without fio."""
    return ["fio-that-is-not-there", *argv[1:]] if argv[0] == "fio" else argv
