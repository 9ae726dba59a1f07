"""How a training job meets a file system: a checkpoint written with fsync, a data set of small files read back.

    files_probe.py checkpoint DIR BYTES
    files_probe.py small DIR FILES BYTES READERS

Prints one JSON object. Standard library only; writes only below DIR, in files named ``*.dat``, and removes them.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import random
import sys
import threading
import time
from typing import Any

CHUNK = 8 << 20
SECTOR = 4096
FRESH = 4  # bytes of each sector that are new each time: what shares equal blocks would store the first only


def checkpoint(folder: str, size: int) -> dict[str, Any]:
    """Buffered writes and one fsync, as torch.save does it; then the pages dropped and the file read back."""
    path = os.path.join(folder, "checkpoint.dat")
    chunk = bytearray(os.urandom(CHUNK))
    started = time.perf_counter()
    with open(path, "wb", buffering=0) as out:
        left = size
        while left > 0:
            for at in range(FRESH):
                chunk[at::SECTOR] = os.urandom(CHUNK // SECTOR)
            left -= out.write(memoryview(chunk)[: min(left, CHUNK)])
        written = time.perf_counter()
        os.fsync(out.fileno())
        synced = time.perf_counter()
        os.posix_fadvise(out.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    read_started = time.perf_counter()
    total = 0
    with open(path, "rb", buffering=0) as source:
        while True:
            piece = source.read(CHUNK)
            if not piece:
                break
            total += len(piece)
    read_s = time.perf_counter() - read_started
    os.unlink(path)
    return {
        "bytes": size,
        "write_s": written - started,
        "fsync_s": synced - written,
        "seconds": synced - started,
        "read_bytes": total,
        "read_s": read_s,
    }


def resident_share(paths: list[str]) -> float:
    """Share of the files' pages that lie in the page cache (mincore(2))."""
    libc = ctypes.CDLL(None, use_errno=True)
    inside = pages = 0
    for path in paths:
        with open(path, "r+b") as source, mmap.mmap(source.fileno(), 0) as view:
            count = -(-len(view) // mmap.PAGESIZE)
            found = (ctypes.c_ubyte * count)()
            start = ctypes.c_char.from_buffer(view)
            failed = libc.mincore(ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(len(view)), found)
            del start  # the view cannot be closed while something points into it
            if failed:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            inside += sum(page & 1 for page in found)
            pages += count
    return inside / pages


def small(folder: str, files: int, size: int, readers: int) -> dict[str, Any]:
    """Write the files once, drop their pages, then read all of them in random order with several readers."""
    paths = [os.path.join(folder, f"small-{number:06d}.dat") for number in range(files)]
    try:
        for path in paths:
            with open(path, "wb", buffering=0) as out:
                out.write(os.urandom(size))
                os.fdatasync(out.fileno())
                os.posix_fadvise(out.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        resident = resident_share(paths)
        order = list(paths)
        random.shuffle(order)
        wrong: list[str] = []

        def read(mine: list[str]) -> None:
            for path in mine:
                descriptor = os.open(path, os.O_RDONLY)
                try:
                    if len(os.read(descriptor, size + 1)) != size:
                        wrong.append(path)
                finally:
                    os.close(descriptor)

        threads = [threading.Thread(target=read, args=(order[n::readers],)) for n in range(readers)]
        cpu = time.process_time()
        started = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - started
        cpu_s = time.process_time() - cpu
    finally:
        for path in paths:
            try:
                os.unlink(path)
            except FileNotFoundError:
                continue
    return {
        "files": files,
        "bytes_each": size,
        "resident_share": resident,
        "seconds": seconds,
        "cpu_s": cpu_s,
        "wrong": len(wrong),
    }


def main(arguments: list[str]) -> None:
    what, folder = arguments[0], arguments[1]
    numbers = [int(a) for a in arguments[2:]]
    result = checkpoint(folder, *numbers) if what == "checkpoint" else small(folder, *numbers)
    print(json.dumps(result))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except OSError as error:
        print(json.dumps({"error": error.strerror, "errno": error.errno}))
        sys.exit(1)
