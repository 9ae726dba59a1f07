"""What lies behind one path: resolved name, device, space. Writes nothing. Usage: path_probe.py PATH

Prints JSON: ``realpath``, ``exists``, ``error`` (errno name) where it may not be looked at, else ``device``
(``major:minor``), ``directory``, ``writable`` (by this user's permissions), ``read_only``, ``total_bytes``,
``free_bytes`` (for this user), ``inodes_free``. For a path that is not there the numbers are those of the nearest
folder above it (``asked_above``).
"""

from __future__ import annotations

import errno
import json
import os
import sys


def main(path: str) -> None:
    here = os.path.realpath(path)
    answer: dict[str, object] = {"path": path, "realpath": here, "exists": True}
    try:
        try:
            os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            answer["exists"] = False
            while not os.path.isdir(here):
                here = os.path.dirname(here)
        stat, space = os.stat(here), os.statvfs(here)
    except OSError as error:
        # Not allowed to look is not the same as not there.
        answer["error"] = errno.errorcode.get(error.errno or 0, "EIO")
        print(json.dumps(answer))
        return
    answer.update(
        asked_above=here,
        device=f"{os.major(stat.st_dev)}:{os.minor(stat.st_dev)}",
        directory=os.path.isdir(here),
        writable=os.access(here, os.W_OK),
        read_only=bool(space.f_flag & os.ST_RDONLY),
        total_bytes=space.f_blocks * space.f_frsize,
        free_bytes=space.f_bavail * space.f_frsize,
        inodes_free=space.f_favail,
    )
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1])
