"""Download one URL over several connections for a time. Nothing is kept.

Usage: download_probe.py URL CONNECTIONS WARMUP_S SECONDS MAX_BYTES TIMEOUT_S

Prints JSON: ``bytes`` and ``seconds`` after the warm-up, ``series`` (bytes of each second), ``total_bytes`` with
the warm-up, ``requests``, ``file_bytes`` (as announced), ``status``, ``address``, ``proxy``, ``cpu_share`` (of one
core), ``capped`` (MAX_BYTES ended it), ``errors``. Where nothing came at all, ``bytes`` is null. Each connection
asks again when the file ends.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from functools import lru_cache
from http.client import HTTPException
from typing import Any, Optional
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, getproxies, proxy_bypass, urlopen

BUFFER = 1 << 20


class State:
    """What the connections share. Each has a counter of its own, so that none waits for another."""

    def __init__(self, connections: int) -> None:
        self.counts = [0] * connections
        self.stop = threading.Event()
        self.first = threading.Event()
        self.facts: dict[str, Any] = {"status": None, "address": None, "file_bytes": None}
        self.requests = 0
        self.errors: list[str] = []

    def total(self) -> int:
        return sum(self.counts)


def fetch(state: State, number: int, url: str, timeout: float) -> None:
    buffer = bytearray(BUFFER)
    request = Request(url, headers={"User-Agent": "accept-probe", "Accept-Encoding": "identity"})  # noqa: S310
    while not state.stop.is_set():
        try:
            with urlopen(request, timeout=timeout) as response:  # noqa: S310
                state.requests += 1
                note_facts(state, response)
                while not state.stop.is_set() and (got := response.readinto(buffer)):
                    state.counts[number] += got
                    state.first.set()
        except (OSError, ValueError, HTTPException) as error:
            state.errors.append(said(error))
            if len(state.errors) > 20:
                return
            state.stop.wait(0.5)


def note_facts(state: State, response: Any) -> None:
    if state.facts["status"] is None:
        length = response.headers.get("Content-Length")
        size = int(length) if length and length.isdigit() else None
        state.facts.update(status=response.status, address=peer(response), file_bytes=size)


def peer(response: Any) -> Optional[str]:
    """The address at the other end of the connection; the socket lies below what urllib gives out."""
    raw = getattr(getattr(response, "fp", None), "raw", None)
    connection = getattr(raw, "_sock", None)
    return str(connection.getpeername()[0]) if isinstance(connection, socket.socket) else None


def said(error: Exception) -> str:
    if isinstance(error, HTTPError):
        return f"HTTP {error.code} {error.reason}"
    return str(error.reason if isinstance(error, URLError) else error) or type(error).__name__


def measure(state: State, seconds: float, max_bytes: int) -> dict[str, Any]:
    """Count what arrives each second from now on."""
    before, begun = state.total(), time.perf_counter()
    cpu = time.process_time()
    series: list[float] = []
    last, last_at = before, begun
    while True:
        left = begun + seconds - time.perf_counter()
        capped = state.total() >= max_bytes
        if left <= 0 or capped:
            break
        time.sleep(min(left, 0.05))
        now = time.perf_counter()
        if now - last_at >= 1.0 or now - begun >= seconds:
            count = state.total()
            series.append((count - last) / (now - last_at))
            last, last_at = count, now
    took = time.perf_counter() - begun
    used = time.process_time() - cpu
    return {
        "bytes": state.total() - before,
        "seconds": took,
        "series": series,
        "capped": capped,
        "cpu_share": used / took,
    }


def ask_names_once() -> None:
    """How long a name takes is no part of a rate: connections that are opened again do not wait for it again."""
    asked, one_at_a_time = lru_cache(maxsize=None)(socket.getaddrinfo), threading.Lock()

    def getaddrinfo(*arguments: Any, **named: Any) -> Any:
        with one_at_a_time:
            return asked(*arguments, **named)

    socket.getaddrinfo = getaddrinfo


def main(url: str, connections: int, warmup: float, seconds: float, max_bytes: int, timeout: float) -> dict[str, Any]:
    ask_names_once()
    state = State(connections)
    for number in range(connections):
        threading.Thread(target=fetch, args=(state, number, url, timeout), daemon=True).start()
    answer: dict[str, Any] = {"bytes": None, "seconds": None, "series": [], "capped": False, "cpu_share": None}
    give_up = time.monotonic() + 2 * timeout
    while not state.first.wait(0.1) and time.monotonic() < give_up and len(state.errors) < connections:
        pass
    if state.first.is_set():
        time.sleep(warmup)
        answer.update(measure(state, seconds, max_bytes))
    state.stop.set()
    answer.update(state.facts, total_bytes=state.total(), requests=state.requests, errors=sorted(set(state.errors)))
    answer["proxy"] = proxy_of(url)
    return answer


def proxy_of(url: str) -> Optional[str]:
    parts = urlsplit(url)
    named = getproxies().get(parts.scheme)
    if not named or proxy_bypass(parts.hostname or ""):
        return None
    return named.rpartition("@")[2]


if __name__ == "__main__":
    url, connections, warmup, seconds, max_bytes, timeout = sys.argv[1:]
    answer = main(url, int(connections), float(warmup), float(seconds), int(max_bytes), float(timeout))
    print(json.dumps(answer), flush=True)
    os._exit(0)  # connections may still wait for data
