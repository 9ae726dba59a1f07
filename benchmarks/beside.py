"""Two programs, the second beside the first: a worker with the telemetry that watches it. Python 3.8+, no torch.

Usage: ``beside.py OUTPUT -- WATCHER… -- WORKER…``. The watcher's stdout goes to the file OUTPUT, its stderr to
OUTPUT.log. It has a second to take samples of the idle machine, then the worker starts, with our own stdout and stderr.
When that ends the watcher gets TERM, and KILL where it does not end; what hangs in the kernel is left alone. Ends as
the worker did, by status or by signal. All are one process group: who ends this ends all.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

IDLE_S = 1.2
FIRST_LINE_S = 5.0  # a driver without persistence mode wakes up first
END_S = 3.0


def main(argv):
    output, watcher, worker = parts(argv)
    with open(output, "wb") as out, open(output + ".log", "wb") as log:
        watching = subprocess.Popen(watcher, stdin=subprocess.DEVNULL, stdout=out, stderr=log)
    wait_for_samples(output, watching)
    try:
        code = subprocess.call(worker, stdin=subprocess.DEVNULL)
    finally:
        end(watching)
    if code < 0:
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def parts(argv):
    """(output, watcher's argv, worker's argv)."""
    first = argv.index("--")
    second = argv.index("--", first + 1)
    return argv[0], argv[first + 1 : second], argv[second + 1 :]


def wait_for_samples(output, watching):
    give_up = time.monotonic() + FIRST_LINE_S
    while os.stat(output).st_size == 0 and watching.poll() is None and time.monotonic() < give_up:
        time.sleep(0.02)
    if watching.poll() is None:
        time.sleep(IDLE_S)


def end(watching):
    for sign in (signal.SIGTERM, signal.SIGKILL):
        if watching.poll() is not None:
            return
        watching.send_signal(sign)
        try:
            watching.wait(END_S)
        except subprocess.TimeoutExpired:
            continue


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
