"""Which Python interpreters lie on this machine, likely ones first. Starts none of them.

Prints JSON: ``{"pythons": ["/opt/conda/bin/python", …]}``, one path for each environment. A venv's python is a link to
its base interpreter and yet another environment, while python3 and python3.11 of one folder are one.
"""

from __future__ import annotations

import glob
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping

MOST = 32
ACTIVE = ("VIRTUAL_ENV", "CONDA_PREFIX")
ON_PATH = ("python3", "python", "python3.[0-9]", "python3.[0-9][0-9]")
BASES = ("/root", "~", "/opt", "/usr/local")
CONDAS = ("conda", "miniconda3", "anaconda3", "miniforge3", "mambaforge", "micromamba")
CONDA = [f"{base}/{name}{env}/bin/python" for base in BASES for name in CONDAS for env in ("", "/envs/*")]
FOLDERS = (
    "/venv /.venv /opt/venv /opt/.venv /workspace/venv /workspace/.venv ~/venv ~/.venv /opt/* /opt/*/venv /opt/venvs/* "
    "~/.virtualenvs/* ~/.pyenv/versions/*"
).split()
USUAL = [*CONDA, "/usr/local/bin/python3*", "/usr/bin/python3*", *(f"{folder}/bin/python" for folder in FOLDERS)]


def candidates(environ: Mapping[str, str]) -> Iterator[str]:
    """Paths in order of likelihood, with repetitions."""
    for name in ACTIVE:
        if environ.get(name):
            yield os.path.join(environ[name], "bin", "python")
    yield sys.executable
    for name in ON_PATH:
        for folder in environ.get("PATH", "").split(os.pathsep):
            yield from sorted(glob.glob(os.path.join(folder, name)), reverse=True)
    for pattern in USUAL:
        yield from sorted(glob.glob(os.path.expanduser(pattern)))


def identity(path: str) -> str:
    """The same for two names of one environment."""
    folder = os.path.dirname(path)
    if os.path.basename(folder) == "shims":  # each of pyenv's or asdf's starts the version that is switched on
        return folder
    if os.path.exists(os.path.join(os.path.dirname(folder), "pyvenv.cfg")):
        return os.path.realpath(folder)
    return os.path.realpath(path)


def is_python(path: str) -> bool:
    """Neither python3-config nor a folder nor something that may not be started."""
    plain = re.fullmatch(r"python[\d.]*", os.path.basename(path))
    return plain is not None and os.path.isfile(path) and os.access(path, os.X_OK)


def pythons(environ: Mapping[str, str]) -> list[str]:
    """The first name of each environment, in order."""
    found: dict[str, str] = {}
    for path in candidates(environ):
        if path and is_python(path):
            found.setdefault(identity(path), path)
    return list(found.values())[:MOST]


if __name__ == "__main__":
    print(json.dumps({"pythons": pythons(os.environ)}))
