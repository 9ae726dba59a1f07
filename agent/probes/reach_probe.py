"""One try to reach an address, stage by stage. Usage: reach_probe.py TARGET TIMEOUT_S

TARGET is an http(s) URL, or host[:port] (port 443 where none is given: TCP, and TLS on port 443). Prints JSON:
``reached``; ``stage`` that was reached or failed (proxy, dns, tcp, certificate, tls, http); ``error``; ``proxy``
(from the environment, for URLs, without its password); ``address``; ``dns_ms``, ``tcp_ms``, ``tls_ms``,
``http_ms`` (to the first byte of the answer) as far as they happened; ``status``; ``location`` of a redirect;
``name_servers`` of /etc/resolv.conf.
The certificate is verified against this machine's store.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import socket
import ssl
import sys
import threading
import time
from typing import Any, Optional
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass


class StageError(Exception):
    """Where it ended and why."""

    def __init__(self, stage: str, error: object) -> None:
        super().__init__(str(error))
        self.stage = stage


def main(target: str, timeout: float) -> dict[str, Any]:
    answer: dict[str, Any] = {"target": target, "reached": False, "stage": "dns", "error": None, "proxy": None}
    try:
        if "://" in target:
            reach_url(urlsplit(target), timeout, answer)
        else:
            reach_port(target, timeout, answer)
        answer["reached"] = answer["error"] is None
    except StageError as failure:
        answer.update(stage=failure.stage, error=str(failure))
    return answer


def reach_port(target: str, timeout: float, answer: dict[str, Any]) -> None:
    parts = urlsplit(f"//{target}")
    port = parts.port or 443
    connection = connect(parts.hostname or "", port, timeout, answer)
    with connection:
        if port == 443:
            secure(connection, parts.hostname or "", answer).close()


def reach_url(parts: SplitResult, timeout: float, answer: dict[str, Any]) -> None:
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    proxy = proxy_of(parts.scheme, host)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {"Host": parts.netloc.rpartition("@")[2], "User-Agent": "accept-probe", "Accept": "*/*"}
    if proxy is None:
        connection = connect(host, port, timeout, answer)
    else:
        answer["proxy"] = f"{proxy.hostname}:{proxy.port or 80}"
        connection = by_proxy(proxy, timeout, answer)
        if parts.scheme == "https":
            tunnel(connection, proxy, f"{host}:{port}")
        else:
            path = f"http://{headers['Host']}{path}"
            headers.update(authorization(proxy))
    with connection:
        spoken = secure(connection, host, answer) if parts.scheme == "https" else connection
        ask(spoken, host, path, headers, answer)


def proxy_of(scheme: str, host: str) -> Optional[SplitResult]:
    """The proxy that the environment names for this host, as curl and pip would use it."""
    proxies = getproxies()
    named = proxies.get(scheme) or proxies.get("all")
    if not named or proxy_bypass(host):
        return None
    return urlsplit(named if "://" in named else f"http://{named}")


def authorization(proxy: SplitResult) -> dict[str, str]:
    if not proxy.username:
        return {}
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


def by_proxy(proxy: SplitResult, timeout: float, answer: dict[str, Any]) -> socket.socket:
    if proxy.scheme not in ("http", ""):
        raise StageError("proxy", f"a proxy of the kind {proxy.scheme} is not supported")
    try:
        return connect(proxy.hostname or "", proxy.port or 80, timeout, answer)
    except StageError as failure:
        raise StageError("proxy", failure) from failure


def tunnel(connection: socket.socket, proxy: SplitResult, target: str) -> None:
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    lines += [f"{key}: {value}" for key, value in authorization(proxy).items()]
    try:
        connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        head = b""
        # Byte by byte: what follows the head belongs to TLS.
        while not head.endswith(b"\r\n\r\n") and len(head) < 65536:
            piece = connection.recv(1)
            if not piece:
                break
            head += piece
    except OSError as error:
        raise StageError("proxy", error) from error
    status = head.split(b"\r\n")[0].decode("latin-1")
    if " 200" not in status[:13]:
        raise StageError("proxy", f"the proxy says: {status or 'nothing'}")


def connect(host: str, port: int, timeout: float, answer: dict[str, Any]) -> socket.socket:
    """A TCP connection to the first address that answers."""
    addresses = resolve(host, port, timeout, answer)
    errors = []
    for family, kind, protocol, _, address in addresses[:4]:
        connection = socket.socket(family, kind, protocol)
        connection.settimeout(timeout)
        begun = time.perf_counter()
        try:
            connection.connect(address)
        except OSError as error:
            connection.close()
            errors.append(f"{address[0]} port {port}: {error}")
            continue
        answer.update(stage="tcp", address=address[0], tcp_ms=since(begun))
        return connection
    raise StageError("tcp", "; ".join(errors))


def resolve(host: str, port: int, timeout: float, answer: dict[str, Any]) -> list[Any]:
    """The host's addresses. In a thread: a name server that says nothing must not hold the probe up."""
    found: list[Any] = []
    begun = time.perf_counter()

    def ask_name_server() -> None:
        try:
            found.append(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            found.append(error)

    thread = threading.Thread(target=ask_name_server, daemon=True)
    thread.start()
    thread.join(timeout)
    answer.update(dns_ms=since(begun), name_servers=name_servers())
    if not found:
        raise StageError("dns", f"no name server answered in {timeout:g} s about {host}")
    if isinstance(found[0], Exception):
        raise StageError("dns", f"{host}: {found[0]}")
    return list(found[0])


def name_servers() -> list[str]:
    try:
        with open("/etc/resolv.conf", encoding="utf-8", errors="replace") as source:
            rows = [line.split() for line in source]
    except OSError:
        return []
    return [row[1] for row in rows if len(row) > 1 and row[0] == "nameserver"]


def secure(connection: socket.socket, host: str, answer: dict[str, Any]) -> ssl.SSLSocket:
    context = ssl.create_default_context()
    begun = time.perf_counter()
    try:
        wrapped = context.wrap_socket(connection, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        raise StageError("certificate", error.verify_message or error) from error
    except OSError as error:
        raise StageError("tls", error) from error
    answer.update(stage="tls", tls_ms=since(begun), tls=wrapped.version())
    return wrapped


def ask(connection: socket.socket, host: str, path: str, headers: dict[str, str], answer: dict[str, Any]) -> None:
    """The status of a GET; the body is not read."""
    client = http.client.HTTPConnection(host)
    client.sock = connection
    begun = time.perf_counter()
    try:
        client.request("GET", path, headers=headers)
        response = client.getresponse()
    except (OSError, http.client.HTTPException) as error:
        raise StageError("http", error or type(error).__name__) from error
    answer.update(stage="http", http_ms=since(begun), status=response.status, location=response.getheader("Location"))
    client.close()


def since(begun: float) -> float:
    return round((time.perf_counter() - begun) * 1e3, 3)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], float(sys.argv[2]))), flush=True)
    os._exit(0)  # a thread may still wait for a name server
