"""The far end of a measurement: iperf3 (TCP and UDP), HTTP and TCP on one address, for a limited time, then gone.

It runs on the renter's own machine or any second host, never on the server that is judged. HTTP answers only below
a one-time token; what is sent is random bytes, what is received is thrown away.
"""

from __future__ import annotations

import hmac
import os
import socket
import socketserver
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Optional

from agent.host import Host

PIECE = 1 << 20
DOWNLOAD_BYTES = 4 << 30  # of one answer at most; a client stops when it has seen enough
SOCKET_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Ends:
    """What is offered where; a port of None is not offered. ``limit`` in bytes a second for all of HTTP."""

    bind: str
    seconds: float
    token: str
    iperf3_port: Optional[int] = 5201
    http_port: Optional[int] = 8080
    tcp_port: Optional[int] = 8081
    limit: Optional[float] = None


class Bucket:
    """A rate shared by all connections: ``take`` waits until the bytes are due."""

    def __init__(self, rate: Optional[float], clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._free_at = clock()
        self._lock = threading.Lock()

    def wait_for(self, count: int) -> float:
        """Seconds to wait before ``count`` bytes may pass."""
        if self._rate is None:
            return 0.0
        with self._lock:
            now = self._clock()
            self._free_at = max(self._free_at, now) + count / self._rate
            return max(0.0, self._free_at - now - count / self._rate)

    def take(self, count: int) -> None:
        """Wait as long as the rate asks."""
        pause = self.wait_for(count)
        if pause:
            time.sleep(pause)


class _Counter:
    def __init__(self) -> None:
        self.sent = 0
        self.received = 0
        self.refused = 0
        self.lock = threading.Lock()

    def add(self, sent: int = 0, received: int = 0, refused: int = 0) -> None:
        with self.lock:
            self.sent += sent
            self.received += received
            self.refused += refused


class HttpEnd(ThreadingHTTPServer):
    """``GET /TOKEN/download`` sends random bytes, ``PUT|POST /TOKEN/upload`` keeps none; anything else is 404."""

    daemon_threads = True

    def __init__(self, ends: Ends, ends_at: float) -> None:
        self.token = ends.token
        self.ends_at = ends_at
        self.bucket = Bucket(ends.limit)
        self.counter = _Counter()
        self.piece = os.urandom(PIECE)
        self.address_family = _family(ends.bind)
        super().__init__((ends.bind, ends.http_port or 0), _Answer)


class _Answer(BaseHTTPRequestHandler):
    server: HttpEnd
    protocol_version = "HTTP/1.1"
    timeout = SOCKET_TIMEOUT_S

    def do_GET(self) -> None:
        if not self._allowed("download"):
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(DOWNLOAD_BYTES))
        self.end_headers()
        left = DOWNLOAD_BYTES
        while left > 0 and time.monotonic() < self.server.ends_at:
            piece = self.server.piece[: min(left, PIECE)]
            self.server.bucket.take(len(piece))
            try:
                self.wfile.write(piece)
            except OSError:
                break  # the client has seen enough: that is how a timed download ends
            self.server.counter.add(sent=len(piece))
            left -= len(piece)
        self.close_connection = True

    def do_PUT(self) -> None:
        if not self._allowed("upload"):
            return
        length = self.headers.get("Content-Length", "")
        if not length.isdigit():
            self._refuse(411)
            return
        left = int(length)
        while left > 0 and time.monotonic() < self.server.ends_at:
            piece = self.rfile.read(min(left, PIECE))
            if not piece:
                break
            self.server.bucket.take(len(piece))
            self.server.counter.add(received=len(piece))
            left -= len(piece)
        self.send_response(201 if left == 0 else 400)
        self.send_header("Content-Length", "0")
        self.end_headers()
        self.close_connection = left > 0

    def do_POST(self) -> None:
        self.do_PUT()

    def do_DELETE(self) -> None:
        """Nothing was kept."""
        if self._allowed("upload"):
            self.send_response(204)
            self.end_headers()

    def _allowed(self, what: str) -> bool:
        parts = self.path.partition("?")[0].strip("/").split("/")
        given, named = [*parts, "", ""][:2]
        if hmac.compare_digest(given.encode(), self.server.token.encode()) and named == what:
            return True
        self._refuse(404)
        return False

    def _refuse(self, status: int) -> None:
        self.server.counter.add(refused=1)
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

    def log_message(self, *args: Any) -> None:
        """Strangers knock at any open port: they are counted, not printed."""


class TcpEnd(socketserver.ThreadingTCPServer):
    """Accepts and closes: for the time of a connection where ICMP is blocked."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, ends: Ends) -> None:
        self.address_family = _family(ends.bind)
        super().__init__((ends.bind, ends.tcp_port or 0), _Close)


class _Close(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        return


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


@dataclass
class Serving:
    """Running ends; ``close`` or the deadline ends them."""

    ends: Ends
    http: Optional[HttpEnd]
    tcp: Optional[TcpEnd]
    ends_at: float

    def wait(self) -> None:
        """Until the time is up."""
        while time.monotonic() < self.ends_at:
            time.sleep(min(0.5, max(0.0, self.ends_at - time.monotonic())))

    def close(self) -> None:
        """Stop listening; iperf3 ends with its own deadline or with this process."""
        self.ends_at = 0.0
        for server in (self.http, self.tcp):
            if server is not None:
                server.shutdown()
                server.server_close()


def start(ends: Ends, host: Host) -> Serving:
    """Listen on everything that is asked. Raises OSError where an address or port cannot be had."""
    ends_at = time.monotonic() + ends.seconds
    http = HttpEnd(ends, ends_at) if ends.http_port is not None else None
    try:
        tcp = TcpEnd(ends) if ends.tcp_port is not None else None
        if ends.iperf3_port is not None:
            _free(ends.bind, ends.iperf3_port)
    except OSError:
        if http is not None:
            http.server_close()
        raise
    serving = Serving(ends, http, tcp, ends_at)
    for server in (http, tcp):
        if server is not None:
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True).start()
    if ends.iperf3_port is not None:
        threading.Thread(target=_iperf3, args=(serving, host), daemon=True).start()
    return serving


def _free(bind: str, port: int) -> None:
    """Raise OSError now rather than let iperf3 fail where nobody looks: it takes the port for TCP and for UDP."""
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(_family(bind), kind) as trial:
            if kind == socket.SOCK_STREAM:
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind((bind, port))


def iperf3_argv(ends: Ends) -> list[str]:
    """The server; it serves one test after another, and is started anew should it die."""
    argv = ["iperf3", "-s", "-B", ends.bind, "-p", str(ends.iperf3_port)]
    if ends.limit is not None:
        argv += ["--server-bitrate-limit", str(int(ends.limit * 8))]
    return argv


def _iperf3(serving: Serving, host: Host) -> None:
    number = 0
    while (left := serving.ends_at - time.monotonic()) > 0:
        number += 1
        ran = host.run(f"iperf3.server.{number}", iperf3_argv(serving.ends), timeout_s=left)
        if ran.start_error is not None:
            return
        if ran.exit != 0:
            time.sleep(0.5)


def contract_lines(ends: Ends, address: str) -> list[str]:
    """What to paste into the contract, with this end's address as the rented server reaches it."""
    shown = f"[{address}]" if ":" in address else address
    lines = []
    if ends.iperf3_port is not None:
        lines += [
            "network:",
            f'  - {{name: to-my-end, servers: ["{shown}:{ends.iperf3_port}"], download: ">= 100 Mbit/s",'
            ' upload: ">= 100 Mbit/s",',
            '     udp_loss: "<= 0.5 %", udp_jitter: "<= 5 ms", udp_rate: 10 Mbit/s}',
        ]
    if ends.http_port is not None:
        base = f"http://{shown}:{ends.http_port}/{ends.token}"
        lines += [f'download: [{{url: "{base}/download", rate: ">= 10 MB/s"}}]']
        lines += [f'backup: [{{url: "{base}/upload", rate: ">= 10 MB/s"}}]']
    if ends.tcp_port is not None:
        lines += [f'reach: ["{shown}:{ends.tcp_port}"]']
    return lines
