"""``accept serve``."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Optional

import click

from agent import serve
from agent.cli.commands.run import seconds
from agent.cli.shared import LANGUAGE, fail, fail_text, language_of, translate_for
from agent.cli.terminal import duration
from agent.evidence import Store
from agent.facts import Asked, network
from agent.host import Host, LiveHost
from agent.quantity import QuantityError, convert, format_quantity, parse_quantity
from agent.reading import Known
from agent.text import msg
from agent.tools import ParseError, iperf3

SELFTEST_S = 5
PREFIX = "accept-serve-"  # then the process's number


def rate(_ctx: click.Context, _param: click.Parameter, value: Optional[str]) -> Optional[float]:
    """``500 Mbit/s`` in bytes a second."""
    if value is None:
        return None
    try:
        quantity = parse_quantity(value, "rate")
        return convert(quantity.value, quantity.unit, "B/s")
    except QuantityError as error:
        raise click.BadParameter(str(error)) from error


PORT = click.IntRange(0, 65535)


@click.command(name="serve")
@click.option("--bind", default="0.0.0.0", show_default=True, help="Address to listen on.")  # noqa: S104
@click.option("--address", help="How the rented server reaches this end (default: the bound or the outgoing address).")
@click.option("--iperf3-port", type=PORT, default=5201, show_default=True, help="0: no iperf3.")
@click.option("--http-port", type=PORT, default=8080, show_default=True, help="0: no HTTP.")
@click.option("--tcp-port", type=PORT, default=8081, show_default=True, help="0: no TCP end.")
@click.option("--for", "length", callback=seconds, default="30m", show_default=True, help="Stop after this time.")
@click.option("--limit", callback=rate, help="At most this rate, such as 500 Mbit/s.")
@click.option("--selftest", is_flag=True, help="Only say what this end can do, as JSON: NIC, load, rate to itself.")
@LANGUAGE
def command(
    bind: str,
    address: Optional[str],
    iperf3_port: int,
    http_port: int,
    tcp_port: int,
    length: float,
    limit: Optional[float],
    selftest: bool,
    lang: Optional[str],
) -> None:
    """Be the far end to measure against: on your own machine or any second host, not on the rented server.

    Prints the lines to paste into the contract and stops by itself. HTTP answers only below a one-time token.
    """
    language = language_of(lang)
    translate = translate_for(language)
    sweep()
    for sign in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(sign, lambda number, _frame: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix=f"{PREFIX}{os.getpid()}-") as folder:
        host = LiveHost(Store(Path(folder)))
        if selftest:
            click.echo(json.dumps(capacity(host), indent=1))
            return
        ends = serve.Ends(
            bind,
            length,
            secrets.token_urlsafe(16),
            iperf3_port or None,
            http_port or None,
            tcp_port or None,
            limit,
        )
        if ends.iperf3_port and shutil.which("iperf3") is None:
            fail_text(msg("{tool} is not installed: install it, or --iperf3-port 0", tool="iperf3"), language)
        try:
            serving = serve.start(ends, host)
        except (OSError, OverflowError) as error:
            fail(f"accept: {bind}: {error}")
        shown = address or (bind if bind not in ("0.0.0.0", "::") else outgoing(bind))  # noqa: S104
        for line in serve.contract_lines(ends, shown):
            click.echo(line)
        if ends.iperf3_port is not None:
            opened = msg("port {port} must be open for TCP and for UDP on the way here", port=ends.iperf3_port)
            click.echo(opened.render(translate), err=True)
        click.echo(msg("listening for {time}; Ctrl-C stops", time=duration(length)).render(translate), err=True)
        try:
            serving.wait()
        finally:
            serving.close()
            host.stop_all()
        http = serving.http.counter if serving.http else None
        if http is not None:
            sent, received = (format_quantity(float(n), "B") for n in (http.sent, http.received))
            said = msg("sent {sent}, received {received}, refused {n}", sent=sent, received=received, n=http.refused)
            click.echo(said.render(translate), err=True)


def sweep() -> None:
    """Take away the folders of ours that a kill left behind: of processes that are no more."""
    for left in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        pid = left.name[len(PREFIX) :].partition("-")[0]
        try:
            ours = left.lstat().st_uid == os.getuid() and not left.is_symlink()
        except OSError:
            continue  # somebody else was quicker
        if ours and pid.isdigit() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(left, ignore_errors=True)


def outgoing(bind: str) -> str:
    """The address from which this host would speak to the outside; nothing is sent."""
    family, far = (socket.AF_INET6, "2001:db8::1") if ":" in bind else (socket.AF_INET, "192.0.2.1")
    with socket.socket(family, socket.SOCK_DGRAM) as trial:
        try:
            trial.connect((far, 9))
            return str(trial.getsockname()[0])
        except OSError:
            return socket.gethostname()


def capacity(host: Host) -> dict[str, object]:
    """What this end can do at most: its interfaces, its load, and iperf3 to itself for a few seconds."""
    facts = network.collect(host, Asked())
    speeds: dict[str, object] = {}
    for found in facts.interfaces.value.values() if isinstance(facts.interfaces, Known) else ():
        speeds[found.name] = found.speed.value if isinstance(found.speed, Known) else str(found.speed.detail)
    port = _free_port()
    ends = serve.Ends("127.0.0.1", SELFTEST_S + 10, "", port, None, None)
    serving = serve.start(ends, host)
    time.sleep(0.5)
    argv = iperf3.client_argv(server="127.0.0.1", port=port, seconds=SELFTEST_S)
    ran = host.run("iperf3.self", argv, timeout_s=SELFTEST_S + 15)
    serving.close()
    missing = ran.missing()
    try:
        own: object = str(missing.detail) if missing else iperf3.parse(ran.stdout).received_bits_per_s
    except ParseError as error:
        own = str(error)
    return {
        "schema": "accept.far-end/1",
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "host": socket.gethostname(),
        "interfaces_bit_per_s": speeds,
        "load_average": os.getloadavg()[0],
        "cpus": os.cpu_count(),
        "iperf3_to_itself_bit_per_s": own,
    }


def _free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1])
