"""Which of the trade's own measuring tools lie on this machine, and where: on PATH, or where images put them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agent.facts import Asked
from agent.facts._read import answer
from agent.host import Host
from agent.reading import Known, Reading
from agent.tools import ParseError

TIMEOUT_S = 10.0
NCCL_TESTS = ("all_reduce_perf", "all_gather_perf", "reduce_scatter_perf", "alltoall_perf")
# Where images and packages put them when they are not on PATH.
PLACES: Mapping[str, tuple[str, ...]] = {
    **{
        name: tuple(f"{folder}/{name}" for folder in ("/opt/nccl-tests/build", "/opt/nccl_tests/build",
                                                      "/usr/local/nccl-tests/build", "/root/nccl-tests/build"))
        for name in NCCL_TESTS
    },
    "nvbandwidth": ("/opt/nvbandwidth/nvbandwidth", "/usr/local/nvbandwidth/nvbandwidth",
                    "/root/nvbandwidth/nvbandwidth"),
    "gpu_burn": ("/opt/gpu-burn/gpu_burn", "/usr/local/gpu-burn/gpu_burn", "/root/gpu-burn/gpu_burn",
                 "/app/gpu_burn"),
    "dcgmi": ("/usr/bin/dcgmi",),
}  # fmt: skip
# Prints the real file of each that is there and may be executed: gpu_burn wants its kernels beside it.
SCRIPT = (
    'for tool in "$@"; do case "$tool" in '
    '/*) [ -f "$tool" ] && [ -x "$tool" ] || continue; found=$tool;; '
    '*) found=$(command -v "$tool") || continue;; esac; '
    'printf "%s\\t%s\\n" "${tool##*/}" "$(readlink -f "$found")"; done'
)


@dataclass(frozen=True)
class TradeTools:
    """``where``: tool → absolute path of its program, only of those that are there."""

    where: Reading[Mapping[str, str]]

    @property
    def found(self) -> Mapping[str, str]:
        """The tools that are there; empty where that could not be read: then nothing is taken beside ours."""
        return self.where.value if isinstance(self.where, Known) else {}


def collect(host: Host, asked: Asked) -> TradeTools:
    """One shell that looks for all of them and starts none."""
    wanted = [word for tool, places in PLACES.items() for word in (*places, tool)]
    ran = host.run("trade-tools", ["/bin/sh", "-c", f"{SCRIPT}; exit 0", "sh", *wanted], TIMEOUT_S)
    return TradeTools(answer(ran, parse))


def parse(text: str) -> Mapping[str, str]:
    """Lines of name, tab, path; the first line of a name counts."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, tab, path = line.partition("\t")
        if not tab or name not in PLACES or not path.startswith("/"):
            raise ParseError("unparsable", "not a tool and its path", line[:80])
        found.setdefault(name, path)
    return found
