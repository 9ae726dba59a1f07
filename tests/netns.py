"""Two hosts on one machine: network namespaces joined by a veth pair or by a delayed virtual wire. Needs root.

Everything that is made here is taken away by the context manager, whatever happens inside.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from agent.evidence import Store
from agent.host import LiveHost, Ran

TOOLS = ("ip", "tc", "nft")
# A wire does not wait for its turn on a busy machine.
PROMPT = ("chrt", "--rr", "10")
_NUMBER = itertools.count(1)
# Four addresses of the far host, in three networks: the last two share theirs.
FAR = ("10.71.0.2", "10.72.0.2", "10.73.0.2", "10.73.0.3")
NEAR = ("10.71.0.1", "10.72.0.1", "10.73.0.1")
# A name server that knows one address for every name, and answers after a while; any other question has no answer.
NAME_SERVER = """
import socket, sys, threading, time
here, delay, address = sys.argv[1], float(sys.argv[2]), socket.inet_aton(sys.argv[3])
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind((here, 53))
def reply(asked, who):
    time.sleep(delay)
    end = asked.index(b"\\0", 12) + 5
    found = asked[end - 4 : end - 2] == b"\\0\\x01"
    head = asked[:2] + b"\\x81\\x80\\0\\x01" + (b"\\0\\x01" if found else b"\\0\\0") + b"\\0\\0\\0\\0"
    record = b"\\xc0\\x0c\\0\\x01\\0\\x01\\0\\0\\0\\x3c\\0\\x04" + address if found else b""
    server.sendto(head + asked[12:end] + record, who)
while True:
    threading.Thread(target=reply, args=server.recvfrom(512), daemon=True).start()
"""


def namespaces() -> str:
    """The namespaces there are, as ``ip netns`` prints them."""
    return subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True, env=_env()).stdout


def unavailable(*more: str) -> Optional[str]:
    """Why such hosts can't be made here, or None."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [tool for tool in (*TOOLS, *more) if shutil.which(tool, path=_path()) is None]
    if missing:
        return f"needs {', '.join(missing)}"
    probe = subprocess.run(["ip", "netns", "add", f"acc{os.getpid()}probe"], capture_output=True, env=_env())
    if probe.returncode:
        return f"no network namespaces: {probe.stderr.decode().strip()}"
    subprocess.run(["ip", "netns", "del", f"acc{os.getpid()}probe"], check=True, env=_env())
    return None


def _path() -> str:
    return f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


def _env() -> dict[str, str]:
    return {**os.environ, "PATH": _path()}


class NamespaceHost(LiveHost):
    """The machine as seen from inside one network namespace."""

    def __init__(self, store: Store, namespace: str) -> None:
        super().__init__(store)
        self.namespace = namespace

    def run(
        self,
        probe: str,
        argv: Sequence[str],
        timeout_s: float,
        *,
        worker: bool = False,
        extra_env: Optional[Mapping[str, str]] = None,
        cwd: Optional[str] = None,
        inputs: Optional[Mapping[str, bytes]] = None,
    ) -> Ran:
        inside = ["ip", "netns", "exec", self.namespace, *argv]
        return super().run(probe, inside, timeout_s, worker=worker, extra_env=extra_env, cwd=cwd, inputs=inputs)

    def sleep(self, seconds: float) -> None:
        """Settling has nothing to settle here."""
        super().sleep(min(seconds, 1.0))


@dataclass(frozen=True)
class TwoHosts:
    """``near`` is where the agent runs, ``far`` holds the servers; ``device`` is the wire's name on both."""

    near: str
    far: str
    device: str
    folder: Path
    stack: ExitStack

    def host(self, run: Path) -> NamespaceHost:
        """The near host, recording below ``run``."""
        return NamespaceHost(Store(run), self.near)

    def shell(self, namespace: str, *argv: str, given: str = "") -> str:
        """Run a command in a namespace and return what it printed."""
        command = ["ip", "netns", "exec", namespace, *argv]
        done = subprocess.run(command, input=given, capture_output=True, text=True, env=_env(), timeout=30, check=False)
        assert done.returncode == 0, f"{argv}: {done.stderr}"
        return done.stdout

    def spawn(self, namespace: str, *argv: str) -> subprocess.Popen[bytes]:
        """A process that lives until the hosts are taken down."""
        command = ["ip", "netns", "exec", namespace, *argv]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=_env()
        )
        self.stack.callback(_end, process)
        return process

    def iperf3(self, address: str, port: int = 5201) -> subprocess.Popen[bytes]:
        """An iperf3 server on the far host."""
        process = self.spawn(self.far, "iperf3", "-s", "-B", address, "-p", str(port))
        self.listening(port)
        return process

    def listening(self, port: int, protocol: str = "tcp") -> None:
        """Wait until something listens on the far host's port."""
        deadline = time.monotonic() + 10
        needle = f":{port:04X} "
        while time.monotonic() < deadline:
            rows = self.shell(self.far, "cat", f"/proc/net/{protocol}", f"/proc/net/{protocol}6").splitlines()
            if any(needle in row and (" 0A " in row or protocol == "udp") for row in rows):
                return
            time.sleep(0.05)
        raise AssertionError(f"nothing listens on port {port}")

    def names(self, address: str, delay_s: float = 0.0) -> None:
        """Give the near host a name server, on the far one: every name is ``address``, told after ``delay_s``."""
        own = Path("/etc/netns") / self.near
        own.mkdir(parents=True)
        self.stack.callback(_no_names, own)
        (own / "resolv.conf").write_text(f"nameserver {FAR[0]}\n")
        self.spawn(self.far, "python3", "-c", NAME_SERVER, FAR[0], str(delay_s), address)
        self.listening(53, "udp")

    def shape(self, namespace: str, rate: str) -> None:
        """Limit what this host sends (``200mbit``)."""
        limit = ("tbf", "rate", rate, "burst", "64kb", "latency", "50ms")
        self.shell(namespace, "tc", "qdisc", "replace", "dev", self.device, "root", *limit)

    def police(self, namespace: str, rate: str, burst: str = "256kb") -> None:
        """Drop what this host sends beyond the rate, with little queueing, as a policer does."""
        limit = ("tbf", "rate", rate, "burst", burst, "limit", "512kb")
        self.shell(namespace, "tc", "qdisc", "replace", "dev", self.device, "root", *limit)

    def filter(self, namespace: str, rules: str) -> None:
        """nftables rules for what arrives at this host, one a line."""
        table = f"table inet t {{ chain c {{ type filter hook input priority 0; policy accept;\n{rules}\n}}\n}}\n"
        self.shell(namespace, "nft", "-f", "-", given=table)


@contextmanager
def two_hosts(rate: Optional[str] = None, delay_ms: Optional[int] = None, spread_ms: int = 0) -> Iterator[TwoHosts]:
    """Two hosts, both directions limited to ``rate``, with ``delay_ms`` ± ``spread_ms`` one way (by vde2)."""
    tag = f"acc{os.getpid()}n{next(_NUMBER)}"
    near, far = f"{tag}a", f"{tag}b"
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="accns-")))
        for namespace in (near, far):
            _run("ip", "netns", "add", namespace)
            stack.callback(_run, "ip", "netns", "del", namespace)
            stack.callback(_end_all, namespace)
        hosts = TwoHosts(near, far, "t0", folder, stack)
        _wire(hosts) if delay_ms is None else _delayed(hosts, f"{delay_ms}+{spread_ms}" if spread_ms else f"{delay_ms}")
        for namespace, addresses in ((near, NEAR), (far, FAR)):
            hosts.shell(namespace, "ip", "link", "set", "lo", "up")
            for address in addresses:
                hosts.shell(namespace, "ip", "addr", "add", f"{address}/16", "dev", "t0")
            hosts.shell(namespace, "ip", "link", "set", "t0", "up")
            if rate is not None:
                hosts.shape(namespace, rate)
        yield hosts


def _wire(hosts: TwoHosts) -> None:
    peer = ("type", "veth", "peer", "name", "t0", "netns", hosts.far)
    _run("ip", "link", "add", "t0", "netns", hosts.near, *peer)


def _delayed(hosts: TwoHosts, delay_ms: str) -> None:
    """A virtual switch at each end and a delaying wire between them."""
    for namespace in (hosts.near, hosts.far):
        # The wire is made of datagram sockets; the default queue of ten drops whenever a core is busy.
        hosts.shell(namespace, "sh", "-c", "echo 2000 > /proc/sys/net/unix/max_dgram_qlen")
        pid = hosts.folder / f"{namespace}.pid"
        hosts.shell(
            namespace, *PROMPT, "vde_switch", "-s", str(hosts.folder / namespace), "-tap", "t0", "-d", "-p", str(pid)
        )
        hosts.stack.callback(_end_pid, pid)
    pid = hosts.folder / "wire.pid"
    ends = f"{hosts.folder / hosts.near}:{hosts.folder / hosts.far}"
    manage = ("-M", str(hosts.folder / "manage"))
    hosts.shell(
        hosts.near, *PROMPT, "wirefilter", "--daemon", "-v", ends, "-d", delay_ms, *manage, "--pidfile", str(pid)
    )
    hosts.stack.callback(_end_pid, pid)


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, env=_env(), stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 0, f"{argv}: {done.stderr}"


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(10)


def _no_names(own: Path) -> None:
    shutil.rmtree(own)
    with suppress(OSError):
        own.parent.rmdir()  # if it was ours alone


def _end_all(namespace: str) -> None:
    """Children of what was spawned, too: a shell that is killed leaves its own behind."""
    done = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, env=_env(), check=False)
    for pid in done.stdout.split():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def _end_pid(path: Path) -> None:
    with suppress(FileNotFoundError, ValueError, ProcessLookupError):
        os.kill(int(path.read_text()), signal.SIGKILL)


@contextmanager
def silent_server() -> Iterator[int]:
    """A port of this machine that accepts connections and never says a word."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0), backlog=16)) as listener:
        yield int(listener.getsockname()[1])
