"""A download through the agent's bench against curl with as many connections, alternating in one run.

``python -m tests.perf.download_ratio [--pairs 6]`` measures, in under two minutes, a line of 200 Mbit/s between two
network namespaces. Both count the bytes that arrive; curl's start and end are part of its time, so it runs longer than
the bench's repetition. Prints the median of agent ÷ bare, and whether the bench's values are bytes over seconds as the
probe printed them; exit 1 where the median is outside 0.97 to 1.03 or a value differs. Needs root and curl.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Optional

from agent.bench import download
from agent.bench.step import Look
from agent.evidence import Store
from agent.model import Taken
from tests import netns
from tests.perf._pairs import Alternating, ended, told

SIZE = 40_000_000  # of the file that each of curl's connections fetches whole
PORT = 8099
DOWNLOAD = "download"
SERVER = """
import http.server, sys, threading
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        size = int(self.path.rpartition("/")[2])
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        piece = bytes(1 << 16)
        try:
            while size > 0:
                self.wfile.write(piece[:min(size, len(piece))])
                size -= len(piece)
        except OSError:
            pass
    def log_message(self, *args):
        pass
http.server.ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Answer).serve_forever()
"""


def series(probe: str, argv: Sequence[str]) -> Optional[str]:
    """The repetitions of the bench."""
    return DOWNLOAD if re.search(r"\.rep\d+$", probe) else None


def ours(text: str) -> float:
    """Bytes a second of the probe's JSON."""
    said = json.loads(text)
    return float(said["bytes"]) / float(said["seconds"])


def theirs(text: str) -> float:
    """Bytes of all of curl's connections over the time of the longest."""
    rows = [line.split() for line in text.splitlines() if line.startswith("got ")]
    return sum(float(row[1]) for row in rows) / max(float(row[2]) for row in rows)


def curl(address: str) -> Sequence[str]:
    """Eight parallel downloads of a whole file."""
    url = f"http://{address}:{PORT}/{SIZE}"
    each = ["-o", "/dev/null", url]
    written = "got %{size_download} %{time_total}\\n"
    return ["curl", "-s", "--parallel", "--parallel-immediate", "-w", written, *each * download.CONNECTIONS]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.perf.download_ratio", description=__doc__)
    parser.add_argument("--pairs", type=int, default=6)
    options = parser.parse_args()
    why_not = netns.unavailable() if shutil.which("curl") else "curl is not installed"
    if why_not is not None:
        print(f"download, agent ÷ bare: not measured, {why_not}")
        return 0
    download.REPEATS = {"standard": options.pairs}
    url = f"http://{netns.FAR[0]}:{PORT}/1000000000"
    with ExitStack() as stack:
        run = stack.enter_context(tempfile.TemporaryDirectory())
        hosts = stack.enter_context(netns.two_hosts(rate="200mbit"))
        hosts.spawn(hosts.far, sys.executable, "-c", SERVER, netns.FAR[0], str(PORT))
        hosts.listening(PORT)
        prefix = ("ip", "netns", "exec", hosts.near)
        host = Alternating(Store(Path(run)), series, ours, lambda argv: curl(netns.FAR[0]), theirs, prefix)
        taken = download.step(download.Entry(url, 25e6)).execute(host, Look())[f"download[{url}].rate"]
    if not isinstance(taken, Taken):
        sys.exit(f"nothing was downloaded: {taken.detail}")
    within = told("download over 200 Mbit/s", host.ratios[DOWNLOAD])
    return ended("the probe's JSON", within, host.differ(DOWNLOAD, taken.attempt.blocks))


if __name__ == "__main__":
    sys.exit(main())
