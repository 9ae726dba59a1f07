"""Upload test objects over several connections for a time, then delete them.

Usage: backup_probe.py URL ENDPOINT CONNECTIONS WARMUP_S SECONDS MAX_BYTES TIMEOUT_S

URL is ``s3://bucket/prefix`` or an http(s) address below which objects may be PUT; ENDPOINT an S3 service's address
(empty: Amazon's of the region). S3 requests are signed (AWS Signature Version 4) with AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN and AWS_REGION of the environment; http(s) ones carry
ACCEPT_UPLOAD_AUTHORIZATION where it is set. Neither is printed.

Prints JSON: ``bytes`` and ``seconds`` after the warm-up, ``series`` (bytes of each second), ``total_bytes``,
``objects`` that the server confirmed, ``status`` (the last one), ``address``, ``proxy``, ``cpu_share`` (of one core),
``capped``, ``errors``, ``refused`` (a 401 or 403 was among them), ``left`` (names that could not be deleted). Where
no object was confirmed, ``bytes`` is null.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import secrets
import socket
import struct
import sys
import termios
import threading
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import lru_cache
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, Optional
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

PIECE = 256 << 10
MIB = 1 << 20
LARGEST = 64 * MIB
OBJECT_S = 1.0  # how long one object is meant to take
GROWTH = 4  # the next object is at most so many times as large: the first ones fit into buffers on the way
ERRORS_MAX = 20
# Random, so that nothing on the way can shrink it.
DATA = os.urandom(8 * MIB)


@dataclass(frozen=True)
class Target:
    """Where objects go. ``path`` ends in a slash; ``keys`` are those of S3, None for plain HTTP."""

    scheme: str
    host: str
    port: Optional[int]
    path: str
    keys: Optional[dict[str, str]]

    @property
    def netloc(self) -> str:
        return self.host if self.port is None else f"{self.host}:{self.port}"


def target_of(url: str, endpoint: str) -> Target:
    """Raises ValueError with a sentence where credentials are missing."""
    parts = urlsplit(url)
    if parts.scheme != "s3":
        path = parts.path.rstrip("/") + "/"
        return Target(parts.scheme, parts.hostname or "", parts.port, path, None)
    found = {
        name: os.environ.get(f"AWS_{name}", "") for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN")
    }
    found["REGION"] = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    if not found["ACCESS_KEY_ID"] or not found["SECRET_ACCESS_KEY"]:
        raise ValueError("no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
    bucket = parts.netloc
    service = urlsplit(endpoint or f"https://{bucket}.s3.{found['REGION']}.amazonaws.com")
    folder = [part for part in parts.path.split("/") if part]
    # Some services name the bucket in the host only.
    below = folder if (service.hostname or "").startswith(f"{bucket}.") else [bucket, *folder]
    path = "/".join([service.path.rstrip("/"), *(quote(part, safe="-_.~") for part in below), ""])
    return Target(service.scheme, service.hostname or "", service.port, path, found)


class BrokenOff(Exception):
    """The time is over: nobody's fault."""


class State:
    """What the connections share. Each has a counter of its own, so that none waits for another."""

    def __init__(self, target: Target, connections: int, timeout: float) -> None:
        self.target = target
        self.timeout = timeout
        self.name = f"accept-test-{secrets.token_hex(4)}"
        self.counts = [0] * connections
        self.confirmed = [0] * connections
        self.sockets: list[Optional[socket.socket]] = [None] * connections
        self.stop = threading.Event()
        self.first = threading.Event()
        self.abort = threading.Event()
        self.errors: list[str] = []
        self.left: list[str] = []
        self.status: Optional[int] = None
        self.refused = False
        self.address: Optional[str] = None
        self.hashes: dict[int, str] = {}

    def total(self) -> int:
        """Bytes that have left this machine: handed to a socket, less what still waits or is not acknowledged."""
        return sum(self.counts) - sum(waiting(s) for s in self.sockets if s is not None)

    def digest(self, size: int) -> str:
        """SHA-256 of an object of that size; over TLS the payload needs no signature of its own."""
        if self.target.scheme == "https":
            return "UNSIGNED-PAYLOAD"
        if size not in self.hashes:
            content = hashlib.sha256()
            for start in range(0, size, len(DATA)):
                content.update(DATA[: min(len(DATA), size - start)])
            self.hashes[size] = content.hexdigest()
        return self.hashes[size]


def waiting(connection: socket.socket) -> int:
    """Bytes in a TCP socket's send queue (SIOCOUTQ of tcp(7)); none of a closed one."""
    try:
        return int(struct.unpack("i", fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4)))[0])
    except (OSError, ValueError):
        return 0


# ---------------------------------------------------------------- requests


def connect(target: Target, timeout: float) -> HTTPConnection:
    proxy = proxy_of(target)
    maker = HTTPSConnection if target.scheme == "https" else HTTPConnection
    if proxy is None:
        return maker(target.host, target.port, timeout=timeout)
    via = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    connection = maker(via.hostname or "", via.port or 80, timeout=timeout)
    if target.scheme == "https":
        connection.set_tunnel(target.host, target.port)
    return connection


def proxy_of(target: Target) -> Optional[str]:
    named = getproxies().get(target.scheme)
    return None if not named or proxy_bypass(target.host) else named


def request(state: State, connection: HTTPConnection, method: str, name: str, size: int) -> None:
    """The head of a request; the body follows."""
    target = state.target
    path = target.path + name
    absolute = target.scheme == "http" and proxy_of(target) is not None
    connection.putrequest(method, f"http://{target.netloc}{path}" if absolute else path, skip_host=True)
    headers = {"Host": target.netloc, "Content-Length": str(size), "User-Agent": "accept-probe"}
    if target.keys is not None:
        headers.update(signed(target, method, path, state.digest(size), datetime.now(timezone.utc)))
    elif os.environ.get("ACCEPT_UPLOAD_AUTHORIZATION"):
        headers["Authorization"] = os.environ["ACCEPT_UPLOAD_AUTHORIZATION"]
    for key, value in headers.items():
        connection.putheader(key, value)
    connection.endheaders()


def signed(target: Target, method: str, path: str, digest: str, now: datetime) -> dict[str, str]:
    """The headers of AWS Signature Version 4 for a request without a query."""
    keys = target.keys or {}
    stamp, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
    headers = {"host": target.netloc, "x-amz-content-sha256": digest, "x-amz-date": stamp}
    if keys.get("SESSION_TOKEN"):
        headers["x-amz-security-token"] = keys["SESSION_TOKEN"]
    names = ";".join(sorted(headers))
    lines = [method, path, "", *(f"{name}:{headers[name]}" for name in sorted(headers)), "", names, digest]
    scope = f"{day}/{keys['REGION']}/s3/aws4_request"
    hashed = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    key = f"AWS4{keys['SECRET_ACCESS_KEY']}".encode()
    for part in (day, keys["REGION"], "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashed])
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    credential = f"{keys['ACCESS_KEY_ID']}/{scope}"
    value = f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}"
    return {**{n: v for n, v in headers.items() if n != "host"}, "Authorization": value}


def ended(state: State, response: HTTPResponse) -> None:
    """The answer's status; raises OSError for a refusal."""
    text = response.read(4096).decode("utf-8", "replace")
    state.status = response.status
    if response.status // 100 != 2:
        state.refused |= response.status in (401, 403)
        code = text.partition("<Code>")[2].partition("</Code>")[0]
        raise OSError(f"HTTP {response.status} {response.reason} {code}".strip())


# ---------------------------------------------------------------- one connection


def upload(state: State, number: int) -> None:
    """Objects of one name, one after the other, until told to stop; then the name is deleted."""
    name = f"{state.name}-{number}"
    size = MIB
    perhaps = False  # whether an object of that name may be there
    connection: Optional[HTTPConnection] = None
    while not state.stop.is_set():
        begun = time.perf_counter()
        try:
            connection = connection or connect(state.target, state.timeout)
            put(state, connection, number, name, size)
            perhaps = True
        except BrokenOff:
            perhaps, connection = True, None
            continue
        except (OSError, ValueError, HTTPException) as error:
            state.errors.append(str(error) or type(error).__name__)
            if connection is not None:
                connection.close()
            connection = None
            if len(state.errors) > ERRORS_MAX or state.refused:
                break
            state.stop.wait(0.5)
            continue
        took = max(time.perf_counter() - begun, 1e-3)
        size = min(LARGEST, GROWTH * size, max(MIB, round_down(int(size * OBJECT_S / took))))
    if perhaps:
        delete(state, connection, name)


def round_down(size: int) -> int:
    """To a power of two: few sizes, few hashes."""
    return 1 << max(size.bit_length() - 1, 0)


def put(state: State, connection: HTTPConnection, number: int, name: str, size: int) -> None:
    request(state, connection, "PUT", name, size)
    state.sockets[number] = connection.sock
    if state.address is None and connection.sock is not None:
        state.address = str(connection.sock.getpeername()[0])
    left = size
    view = memoryview(DATA)
    while left > 0:
        if state.abort.is_set():
            connection.close()
            raise BrokenOff
        start = (size - left) % len(DATA)
        piece = view[start : start + min(PIECE, left)]
        try:
            connection.send(piece)
        except (BrokenPipeError, ConnectionResetError):
            break  # a server that refuses says so before it hangs up
        state.counts[number] += len(piece)
        state.first.set()
        left -= len(piece)
    with connection.getresponse() as response:
        ended(state, response)
    state.confirmed[number] += 1


def delete(state: State, connection: Optional[HTTPConnection], name: str) -> None:
    """Our own object; a server that has none of that name is as good."""
    try:
        connection = connection or connect(state.target, state.timeout)
        request(state, connection, "DELETE", name, 0)
        with connection.getresponse() as response:
            response.read()
            if response.status // 100 != 2 and response.status != 404:
                state.left.append(name)
    except (OSError, ValueError, HTTPException):
        state.left.append(name)


# ---------------------------------------------------------------- all together


def measure(state: State, seconds: float, max_bytes: int) -> dict[str, Any]:
    """Count what goes out each second from now on."""
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


def main(url: str, endpoint: str, connections: int, warmup: float, seconds: float, cap: int, timeout: float) -> Any:
    answer: dict[str, Any] = {"bytes": None, "seconds": None, "series": [], "capped": False, "cpu_share": None}
    try:
        target = target_of(url, endpoint)
    except ValueError as error:
        return {**answer, "errors": [str(error)], "refused": True, "proxy": None, "objects": 0, "left": []}
    ask_names_once()
    state = State(target, connections, timeout)
    threads = [threading.Thread(target=upload, args=(state, n), daemon=True) for n in range(connections)]
    for thread in threads:
        thread.start()
    give_up = time.monotonic() + 2 * timeout
    while not state.first.wait(0.1) and time.monotonic() < give_up and len(state.errors) < connections:
        pass
    if state.first.is_set():
        time.sleep(warmup)
        answer.update(measure(state, seconds, cap))
    finish(state, threads)
    if not sum(state.confirmed):
        answer.update(bytes=None, seconds=None)
    proxy = proxy_of(target)
    return {
        **answer,
        "total_bytes": state.total(),
        "objects": sum(state.confirmed),
        "status": state.status,
        "address": state.address,
        "proxy": None if proxy is None else proxy.rpartition("@")[2],
        "errors": sorted(set(state.errors)),
        "refused": state.refused,
        "left": sorted(state.left),
    }


def finish(state: State, threads: list[threading.Thread]) -> None:
    """Objects under way may end, for as long as one connection's timeout; then they are broken off."""
    state.stop.set()
    for grace in (state.timeout, state.timeout):
        deadline = time.monotonic() + grace
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        state.abort.set()


if __name__ == "__main__":
    url, endpoint, connections, warmup, seconds, cap, timeout = sys.argv[1:]
    answer = main(url, endpoint, int(connections), float(warmup), float(seconds), int(cap), float(timeout))
    print(json.dumps(answer), flush=True)
    os._exit(0)  # connections may still wait for an answer
