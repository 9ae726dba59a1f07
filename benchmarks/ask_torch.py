"""Which torch this interpreter has, and what CUDA devices it sees. Starts in any Python, 2.7 included.

``ask_torch.py --result FILE`` writes ``{"schema": "accept.torch/1", "python", "prefix", "torch": {"version", "cuda",
"hip", "cublas", "nccl", "cuda_error", "devices": [{"index", "name", "uuid", "slot"}]}, "error": {"kind", "detail",
"needs"}}``; one of torch and error is null. Kinds: no-torch, torch-broken, needs-torch, needs-python. An import that
crashes or hangs leaves no file.
"""

import json
import os
import platform
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # "python -I" leaves the script's folder out


def ask():
    """(torch's description, error): one of them is None."""
    if sys.version_info < (3, 8):
        return None, old_python()
    import _protocol as protocol

    try:
        torch = protocol.import_torch()
    except protocol.Unable as unable:
        return None, unable.as_json()
    available = bool(torch.cuda.is_available())
    versions = protocol.versions(torch, "cuda" if available else "cpu")
    return {
        "version": str(torch.__version__),
        "cuda": torch.version.cuda,
        "hip": getattr(torch.version, "hip", None),
        "cublas": versions["cublas"],
        "nccl": versions["nccl"],
        "devices": protocol.devices(torch, "cuda") if available else [],
        "cuda_error": None if available else protocol.why_no_cuda(torch),
    }, None


def old_python():
    """An old Python with torch is worth saying; without, it is one without torch."""
    try:
        import torch
    except ImportError:
        return {"kind": "no-torch", "detail": "no torch in this Python", "needs": "2.0"}
    detail = "torch %s in Python %s" % (torch.__version__, platform.python_version())
    return {"kind": "needs-python", "detail": detail, "needs": "3.8"}


def main(result):
    torch, error = ask()
    found = {
        "schema": "accept.torch/1",
        "python": platform.python_version(),
        "prefix": sys.prefix,
        "torch": torch,
        "error": error,
    }
    with open(result + ".tmp", "w") as out:
        json.dump(found, out)
    os.rename(result + ".tmp", result)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[2]))
