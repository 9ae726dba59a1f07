"""Small HTTP(S) servers on loopback: files, status codes, redirects, a CONNECT proxy."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Optional

PIECE = b"\0" * (1 << 20)


class Handler(BaseHTTPRequestHandler):
    """``/status/N`` answers N; ``/size/N`` sends N bytes; anything else is a small page."""

    def do_GET(self) -> None:
        kind, _, number = self.path.rpartition("/")
        size = int(number) if kind.endswith("/size") else 5
        self.send_response(int(number) if kind.endswith("/status") else 200)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        left = size
        try:
            while left > 0:
                self.wfile.write(PIECE[:left])
                left -= len(PIECE)
        except OSError:
            return  # the client has seen enough

    def do_CONNECT(self) -> None:
        self.send_error(403, "not through here")

    def log_message(self, *args: object) -> None:
        """Quiet."""


@contextmanager
def http_server(certificate: Optional[Path] = None) -> Iterator[int]:
    """A server on a free port of 127.0.0.1; with TLS where a file of key and certificate is given."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
