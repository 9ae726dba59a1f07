"""Which of some programs lie on the PATH of this process. Usage: programs_probe.py NAME…

Prints a JSON object: name → where it lies, null where it lies nowhere. Whether it can be executed shows when it is.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Optional


def where(name: str) -> Optional[str]:
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    paths = [os.path.join(folder, name) for folder in folders if folder]
    return next((path for path in paths if os.path.exists(path)), None)


if __name__ == "__main__":
    print(json.dumps({name: where(name) for name in sys.argv[1:]}))
