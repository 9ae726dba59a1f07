"""The ``__main__.py`` of ``accept.pyz``: unpack once into a cache, then start.

Unpacked, because a compiled module, the workers and the templates need real files, and so that Python keeps its
byte code. Nothing but the standard library; written so that an old Python still reads it and is told what it lacks.
"""

import atexit
import os
import platform
import shutil
import sys
import tempfile
import zipfile

DIGEST = "@DIGEST@"  # set by the build: the name of the unpacked folder, another one for each build
OLDEST = (3, 9)
LIBRARIES = "lib"
NATIVE = "native"


def unpacked():
    """The unpacked files: kept in the user's cache, else in a temporary folder that ends with this process.

    ``ACCEPT_CACHE`` names another place for the cache. What neither place allows (no room, no permission, mounted
    without the right to execute) is tried in the folder where the runs go.
    """
    archive = os.path.dirname(os.path.abspath(__file__))
    problems = []
    for cache in caches():
        target = os.path.join(cache, DIGEST)
        if os.path.isdir(target) and safe(cache):
            return target
        try:
            prepare(cache)
            return unpack(archive, cache, target)
        except (OSError, ValueError) as error:
            problems.append("{}: {}".format(cache, error))
    for parent in (tempfile.gettempdir(), os.getcwd()):
        try:
            executable(parent)
            folder = tempfile.mkdtemp(prefix=".accept-", dir=parent)
            atexit.register(shutil.rmtree, folder, True)
            return unpack(archive, folder, os.path.join(folder, DIGEST))
        except (OSError, ValueError) as error:
            problems.append("{}: {}".format(parent, error))
    lines = "\n  ".join(problems)
    sys.exit("accept cannot unpack itself; name a writable folder in ACCEPT_CACHE:\n  " + lines)


def caches():
    """Where the files may stay, best first; none where there is no home."""
    named = os.environ.get("ACCEPT_CACHE")
    if named:
        return [os.path.abspath(named)]
    home = os.path.expanduser("~")
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    # An empty HOME expands to "/", where nobody keeps a cache.
    return [os.path.join(cache, "accept")] if home != "/" and os.path.isabs(cache) else []


def prepare(cache):
    """Make the folder; ValueError where another user could put code into it or nothing may be executed."""
    os.makedirs(cache, 0o700, exist_ok=True)
    if not safe(cache):
        raise ValueError("belongs to somebody else, or others may write to it")
    executable(cache)


def safe(folder):
    """Whether only this user (or root) can have put files there."""
    found = os.stat(folder)
    return found.st_uid == os.getuid() and not found.st_mode & 0o022


def executable(folder):
    """ValueError on a file system from which no compiled module may be loaded."""
    if os.statvfs(folder).f_flag & os.ST_NOEXEC:
        raise ValueError("is mounted noexec")


def unpack(archive, parent, target):
    """All files under a temporary name, renamed last: the folder is whole or it is not there."""
    temporary = tempfile.mkdtemp(prefix=".new-", dir=parent)
    try:
        with zipfile.ZipFile(archive) as source:
            source.extractall(temporary)
        os.rename(temporary, target)
    except OSError:
        if not os.path.isdir(target):  # else another start was faster
            raise
    finally:
        shutil.rmtree(temporary, True)
    return target


def main():
    """Put the unpacked files first on the path and hand over to the command line."""
    if sys.version_info < OLDEST:
        sys.exit("accept needs Python 3.9 or newer; this is {}".format(platform.python_version()))
    root = unpacked()
    # In front of what is installed here: an old click of the machine must not be met.
    sys.path[:0] = [os.path.join(root, LIBRARIES), os.path.join(root, NATIVE, platform.machine())]
    from agent.cli.main import main as start

    start()


if __name__ == "__main__":
    main()
