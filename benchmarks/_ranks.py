"""One process for each device, watched: a rank that dies or hangs ends the others and is named. Python 3.8+.

A worker that needs several processes starts its own script once more for each rank. A rank writes what it has, as
JSON lines, into ``rank-N.jsonl`` beside the request, and its streams go to ``rank-N.log``: what was measured before
something went wrong is kept. No rank outlives the worker.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import _protocol as protocol

PR_SET_PDEATHSIG = 1
LAST_WORDS_S = 2.0  # for the other ranks to say what they saw
END_S = 5.0
POLL_S = 0.02
LOG_LIMIT = 256 << 10  # of one log inside the result; the file itself is evidence whole


def main(worker, measure, one_rank):
    """The worker itself (``measure(request, folder)``), or one of its ranks (``one_rank(request, rank)``)."""
    if "--rank" not in sys.argv:
        folder = os.path.dirname(os.path.abspath(sys.argv[sys.argv.index("--request") + 1]))
        return protocol.main(worker, lambda request: measure(request, folder))
    parser = argparse.ArgumentParser()
    parser.add_argument("--request", required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--meet", required=True)
    options = parser.parse_args()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    with open(options.request, encoding="utf-8") as source:
        request = json.load(source)
    with open(path(os.path.dirname(options.request), options.rank, "jsonl"), "w", encoding="utf-8") as out:
        rank = Rank(options.rank, options.meet, out)
        try:
            one_rank(request, rank)
            rank.say({"done": True})
        except protocol.Unable as unable:
            rank.say({"error": unable.as_json()})
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # all is said; taking a communicator down may hang, and threads of libraries may not end


def path(folder, rank, ending):
    return os.path.join(folder, "rank-%d.%s" % (rank, ending))


class Rank:
    """What one rank knows of itself. ``meet`` is an empty folder that all ranks see."""

    def __init__(self, number, meet, out):
        self.number = number
        self.meet = meet
        self.out = out

    def say(self, value):
        """A line for the worker; whatever follows, it is kept. Any line counts as a sign of life."""
        self.out.write(json.dumps(value, allow_nan=False) + "\n")
        self.out.flush()


def meet(rank, name, count, limit_s):
    """Until all ranks have come here, without a word between their devices."""
    with open(os.path.join(rank.meet, "%s-%d" % (name, rank.number)), "w"):
        pass
    end_at = time.monotonic() + limit_s
    while time.monotonic() < end_at:
        if all(os.path.exists(os.path.join(rank.meet, "%s-%d" % (name, r))) for r in range(count)):
            return
        time.sleep(POLL_S)
    raise protocol.Unable("time-limit", "the other ranks did not come")


class Stopped:
    """Why the ranks did not all end by themselves: ``kind`` is rank-died, hung, time-limit or a rank's own error."""

    def __init__(self, kind, detail, rank=None, needs=None):
        self.kind, self.detail, self.rank, self.needs = kind, detail, rank, needs

    def as_json(self):
        return {"kind": self.kind, "detail": self.detail, "rank": self.rank, "needs": self.needs}

    def as_unable(self):
        return protocol.Unable(self.kind, self.detail, self.needs)


def run(script, folder, count, limit_s, stall_s, environment=None):
    """(lines of each rank, Stopped or null). ``stall_s``: so long without a line from any rank is a hang."""
    meet = tempfile.mkdtemp(prefix="accept-ranks-")  # not in the evidence: that may be a network file system
    environment = {**os.environ, **(environment or {})}
    processes = []
    try:
        for rank in range(count):
            processes.append(start(script, folder, rank, meet, environment))
        stopped = watch(processes, folder, limit_s, stall_s)
    finally:
        end(processes)
        shutil.rmtree(meet, ignore_errors=True)
    return [lines(folder, rank) for rank in range(count)], stopped


def start(script, folder, rank, meet, environment):
    argv = [sys.executable, "-s", "-B", os.path.abspath(script), "--request", os.path.join(folder, "request.json")]
    argv += ["--rank", str(rank), "--meet", meet]
    with open(path(folder, rank, "log"), "wb") as log:
        # In the worker's own process group: who ends the worker ends its ranks.
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)


def watch(processes, folder, limit_s, stall_s):
    """Until all ranks are done, or why not."""
    end_at = time.monotonic() + limit_s
    heard, quiet_since = -1, time.monotonic()
    while True:
        ended = [p.poll() is not None for p in processes]
        stopped = failure(processes, folder)
        if stopped is not None or all(ended):
            return stopped
        total = sum(size(path(folder, rank, "jsonl")) for rank in range(len(processes)))
        if total != heard:
            heard, quiet_since = total, time.monotonic()
        if time.monotonic() > end_at:
            return Stopped(
                "time-limit", "stopped by its own time limit of %.0f s; %s" % (limit_s, whereabouts(folder, ended))
            )
        if time.monotonic() - quiet_since > stall_s:
            return Stopped("hung", "no rank got on for %.0f s; %s" % (stall_s, whereabouts(folder, ended)))
        time.sleep(POLL_S)


def failure(processes, folder):
    """The first rank that ended without being done: what it said, or how it died."""
    for rank, process in enumerate(processes):
        if process.poll() is None:
            continue
        last = (lines(folder, rank) or [{}])[-1]
        if "error" in last:
            found = last["error"]
            return Stopped(found["kind"], "rank %d: %s" % (rank, found["detail"]), rank, found["needs"])
        if "done" not in last:
            time.sleep(LAST_WORDS_S)
            return Stopped("rank-died", "rank %d %s" % (rank, how(process.returncode, folder, rank)), rank)
    return None


def how(code, folder, rank):
    if code < 0:
        return "was ended by signal %d" % -code
    return "ended with status %d: %s" % (code, last_line(path(folder, rank, "log")))


def whereabouts(folder, ended):
    """What each rank that still runs said last."""
    running = [rank for rank, over in enumerate(ended) if not over]
    said = ((rank, (lines(folder, rank) or [{}])[-1].get("at", "the start")) for rank in running)
    return "; ".join("rank %d is at %s" % pair for pair in said)


def lines(folder, rank):
    """What a rank has said so far; a line that is still being written is not said yet."""
    try:
        with open(path(folder, rank, "jsonl"), encoding="utf-8") as source:
            return [json.loads(line) for line in source if line.endswith("\n")]
    except FileNotFoundError:
        return []


def size(file):
    try:
        return os.stat(file).st_size
    except FileNotFoundError:
        return 0


def text(file):
    """The beginning of a log, for the result; empty where there is none."""
    try:
        with open(file, encoding="utf-8", errors="replace") as source:
            return source.read(LOG_LIMIT)
    except FileNotFoundError:
        return ""


def last_line(file):
    said = [line.strip() for line in text(file).splitlines() if line.strip()]
    return said[-1][:300] if said else "-"


def end(processes):
    """TERM, then KILL; what hangs in the kernel is left to whoever started the worker."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        alive = [p for p in processes if p.poll() is None]
        for process in alive:
            process.send_signal(sign)
        give_up = time.monotonic() + END_S
        while any(p.poll() is None for p in alive) and time.monotonic() < give_up:
            time.sleep(POLL_S)
