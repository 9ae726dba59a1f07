"""Write data that no file system can shrink to a pipe, until nobody reads any more.

Usage: feed_probe.py | { read -r ready; COMMAND…; }. A first, empty line says that the data is ready.

Zeros would do for a plain disk; what compresses, shares equal blocks or keeps no zeros stores next to nothing of them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys

MIB = 1 << 20
PIECES = 8
SECTOR = 4096
FRESH = 4  # bytes of each sector that are new each time, so that no two are ever equal
SET_PIPE_SIZE = 1031  # F_SETPIPE_SZ of fcntl(2), which Python names from 3.10 on


def feed(pipe: int) -> None:
    pieces = [bytearray(os.urandom(MIB)) for _ in range(PIECES)]
    os.write(pipe, b"\n")
    while True:
        for piece in pieces:
            for at in range(FRESH):
                piece[at::SECTOR] = os.urandom(MIB // SECTOR)
            left = memoryview(piece)
            while left:
                left = left[os.write(pipe, left) :]


if __name__ == "__main__":
    out = sys.stdout.fileno()
    with contextlib.suppress(OSError):  # a smaller pipe is only filled more often
        fcntl.fcntl(out, SET_PIPE_SIZE, MIB)
    with contextlib.suppress(BrokenPipeError):
        feed(out)
