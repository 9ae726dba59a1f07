"""A timestamp authority of our own: ``openssl ts`` behind a small HTTP server."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Union

# ``certs`` stays out: openssl would then send the named file instead of the signer's own certificate.
CONFIG = """
[tsa]
default_tsa = main
[main]
serial = {folder}/serial
signer_cert = {folder}/tsa.pem
signer_key = {folder}/tsa.key
signer_digest = sha256
default_policy = 1.3.6.1.4.1.13762.3
digests = sha256
accuracy = secs:1
ordering = yes
tsa_name = yes
ess_cert_id_chain = no
ess_cert_id_alg = sha256
[usage]
extendedKeyUsage = critical,timeStamping
basicConstraints = critical,CA:false
"""


@dataclass(frozen=True)
class Authority:
    """Its files, and the address it answers at while :meth:`serving`."""

    folder: Path

    @property
    def root(self) -> Path:
        return self.folder / "ca.pem"

    def answer(self, query: bytes) -> bytes:
        """A TimeStampResp for a TimeStampReq."""
        asked, answered = self.folder / "asked.tsq", self.folder / "answered.tsr"
        asked.write_bytes(query)
        _openssl(
            "ts", "-reply", "-config", str(self.folder / "ts.cnf"), "-queryfile", str(asked), "-out", str(answered)
        )
        return answered.read_bytes()

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Answer over HTTP; yields the URL."""
        authority = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = authority.answer(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.send_header("Content-Type", "application/timestamp-reply")
                self.end_headers()
                self.wfile.write(body)

            def log_request(self, code: Union[int, str] = "-", size: Union[int, str] = "-") -> None:
                return

        server = HTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


def make(folder: Path, name: str) -> Authority:
    """A root and a certificate for timestamps below it."""
    folder.mkdir()
    (folder / "ts.cnf").write_text(CONFIG.format(folder=folder))
    (folder / "serial").write_text("01\n")
    at = {n: str(folder / n) for n in ("ca.key", "ca.pem", "tsa.key", "tsa.csr", "tsa.pem", "ts.cnf")}
    new = ("req", "-newkey", "rsa:2048", "-nodes", "-subj")
    _openssl(*new, f"/CN={name} Root", "-x509", "-days", "30", "-keyout", at["ca.key"], "-out", at["ca.pem"])
    _openssl(*new, f"/CN={name} Time", "-keyout", at["tsa.key"], "-out", at["tsa.csr"])
    _openssl("x509", "-req", "-in", at["tsa.csr"], "-CA", at["ca.pem"], "-CAkey", at["ca.key"], "-CAcreateserial",
             "-days", "30", "-extfile", at["ts.cnf"], "-extensions", "usage", "-out", at["tsa.pem"])  # fmt: skip
    return Authority(folder)


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
