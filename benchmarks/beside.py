"""Two programs, the second beside the first: a worker with the telemetry that watches it. Python 3.8+, no torch.

Usage: ``beside.py OUTPUT -- WATCHER… -- WORKER…``. The watcher's stdout goes to the file OUTPUT, its stderr to
OUTPUT.log. It has a second to take samples of the idle machine, and some more until no GPU is busy; then the worker
starts, with our own stdout and stderr. OUTPUT.gate says how busy the GPUs still were and how long it waited.
When that ends the watcher gets TERM, and KILL where it does not end; what hangs in the kernel is left alone. Ends as
the worker did, by status or by signal. All are one process group: who ends this ends all.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

IDLE_S = 1.2
FIRST_LINE_S = 5.0  # a driver without persistence mode wakes up first
END_S = 3.0
GATE_S = 20.0  # until somebody else's work on a GPU is no longer waited for
BUSY_PERCENT = 10
UTILISATION = 4  # among a card's values in a line "s" of telemetry


def main(argv):
    output, watcher, worker = parts(argv)
    with open(output, "wb") as out, open(output + ".log", "wb") as log:
        watching = subprocess.Popen(watcher, stdin=subprocess.DEVNULL, stdout=out, stderr=log)
    wait_for_samples(output, watching)
    if watching.poll() is None:
        gate(output)
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


def gate(output):
    """Wait until the GPUs are idle, not for ever: whoever works there is then part of what is measured, and named."""
    begun = time.monotonic()
    busy = utilisation(output)
    while any(b is not None and b > BUSY_PERCENT for b in busy) and time.monotonic() - begun < GATE_S:
        time.sleep(0.2)
        busy = utilisation(output)
    with open(output + ".gate", "w") as out:
        json.dump({"busy_percent": busy, "waited_s": round(time.monotonic() - begun, 3)}, out)


def utilisation(output):
    """Of each GPU in %, from the last whole line of telemetry that holds it; null where the driver does not tell."""
    with open(output, "rb") as source:
        lines = source.read().split(b"\n")[:-1]
    for line in reversed(lines):
        try:
            found = json.loads(line).get("s")
            if found:
                return [card[UTILISATION] for card in found]
        except (ValueError, AttributeError, TypeError, IndexError, KeyError):
            continue
    return []


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
