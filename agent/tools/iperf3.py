"""iperf3: TCP and UDP throughput through the client's JSON.

Source command: ``iperf3 -c HOST -J …`` (:func:`client_argv`). Versions 3.0 to 3.21. The exit status says
little (3.12 exits 0 when refused); the ``error`` key tells.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any, Optional

from agent.tools import ParseError, _shell
from agent.tools._text import (
    clean,
    first_line,
    integer,
    json_documents,
    mapping,
    number,
    objects,
    recognise,
    text_or_none,
)

KIND = "iperf3"
# Beyond the test's own seconds: connecting, and the exchange of results at its end.
TIMEOUT_S = 30.0
_SIGN = re.compile(r'iperf|"start"|"event"|bits/sec')

_FAILURES: tuple[tuple[str, str], ...] = (
    (r"server is busy", "busy_server"),
    (r"Connection refused", "refused"),
    (
        r"Name or service not known|name resolution|No address associated|nodename nor servname|Unknown host"
        r"|Name does not resolve|Bad address|unable to resolve",
        "name_error",
    ),
    (r"No route to host|Network is unreachable|Host is unreachable|Network unreachable", "unreachable"),
    (r"timed out|timeout|Operation now in progress|no incoming data", "timeout"),
    (r"authorization|authentication|access denied", "denied"),
    (r"interrupt|client has terminated", "interrupted"),
    (r"server has terminated", "server_terminated"),
    (r"reset by peer|Broken pipe|closed unexpectedly|unable to (?:read|write|receive|send)", "connection_lost"),
    (r"parameter error|unrecognized option|invalid option|requires an argument|Usage: iperf3", "parameter"),
    (r"not supported on this host|[Nn]ot supported", "unsupported"),
    (r"Operation not permitted|Permission denied", "denied"),
)


@dataclass(frozen=True)
class Iperf3:
    """One client run; rates in bits a second over the whole test without the omitted seconds.

    ``sent`` is the sender's view, ``received`` the receiver's, whichever end that was (``reverse``: the
    server sent). What the far end did not report is None. ``error`` is set where the run ended early
    though it printed sums: such numbers cover only the part before. ``back_…`` is the way back of
    ``--bidir``. Of UDP alone: ``packets`` as the receiver counted them by their numbers, those that were lost too;
    ``sent_packets``, None before 3.10; ``jitter_ms`` as the receiver smoothed it (RFC 1889).
    """

    version: Optional[str]
    protocol: Optional[str]
    reverse: Optional[bool]
    streams: Optional[int]
    sent_bits_per_s: Optional[float]
    received_bits_per_s: Optional[float]
    retransmits: Optional[int]
    lost_percent: Optional[float]
    error: Optional[str]
    back_sent_bits_per_s: Optional[float] = None
    back_received_bits_per_s: Optional[float] = None
    packets: Optional[int] = None
    lost_packets: Optional[int] = None
    sent_packets: Optional[int] = None
    jitter_ms: Optional[float] = None


# Not part of the fixed shape of ``accept parse iperf3``.
_BEYOND_THE_SHAPE = frozenset(
    ("back_sent_bits_per_s", "back_received_bits_per_s", "packets", "lost_packets", "sent_packets", "jitter_ms")
)


def client_argv(
    *,
    server: str,
    port: int = 5201,
    seconds: int = 10,
    omit_s: int = 0,
    parallel: int = 1,
    reverse: bool = False,
    udp: bool = False,
    rate_bits_per_s: Optional[int] = None,
    connect_timeout_ms: int = 5000,
    length: Optional[int] = None,
) -> list[str]:
    """The client's argv; ``rate_bits_per_s`` is the target a stream (UDP without one sends 1 Mbit/s).

    ``length``: bytes of a UDP packet's content; before 3.2 iperf3 takes 8 KiB, which travel in pieces.

    ``connect_timeout_ms`` 0 leaves the option out: iperf3 before 3.3 refuses it.
    """
    argv = ["iperf3", "-c", server, "-p", str(port), "-t", str(seconds), "-P", str(parallel), "-J"]
    if omit_s:
        argv += ["-O", str(omit_s)]
    if reverse:
        argv.append("-R")
    if udp:
        argv.append("-u")
    if rate_bits_per_s is not None:
        argv += ["-b", str(rate_bits_per_s)]
    if length is not None:
        argv += ["-l", str(length)]
    if connect_timeout_ms:
        argv += ["--connect-timeout", str(connect_timeout_ms)]
    return argv


def parse(text: str) -> Iperf3:
    """The result of one iperf3 client run, from ``-J`` or ``--json-stream``.

    Raises :class:`ParseError` for a run without usable sums: ``busy_server``, ``refused``,
    ``name_error``, ``unreachable``, ``timeout``, ``connection_lost``, ``parameter``, ``truncated``,
    ``empty``, ``text_output`` (run without ``-J``).
    """
    recognise(text, "iperf3", _SIGN)
    text = clean(text)
    if not text.strip():
        raise ParseError("empty", "no iperf3 output: killed before the end, where it prints its JSON")
    documents, around = json_documents(text)
    if not documents:
        raise _not_json(text)
    document = _whole(documents, around)
    start, end = mapping(document.get("start")), mapping(document.get("end"))
    error = text_or_none(document.get("error"))
    if error is not None and "start" not in document and document.keys() <= {"error", "intervals", "end"}:
        raise _failure(error)
    if not isinstance(document.get("start"), dict) or ("end" not in document and error is None):
        raise ParseError("unparsable", "JSON, but not of an iperf3 client", first_line(text))
    sums = any(isinstance(end.get(key), dict) for key in ("sum_sent", "sum_received", "sum"))
    if not sums:
        raise _failure(error or "the test ended without a result")
    return _result(start, end, error)


def to_json(result: Iperf3) -> dict[str, Any]:
    """The fixed shape of ``accept parse iperf3``."""
    return {key: value for key, value in asdict(result).items() if key not in _BEYOND_THE_SHAPE}


def failure_kind(error: str) -> str:
    """The failure kind of an iperf3 error text; ``failed`` for one not known."""
    return next((kind for pattern, kind in _FAILURES if re.search(pattern, error, re.IGNORECASE)), "failed")


def _failure(error: str) -> ParseError:
    return ParseError(failure_kind(error), "iperf3 has no result", error)


def _not_json(text: str) -> ParseError:
    line = next((li for li in text.splitlines() if re.match(r"\s*(?:iperf3?|error): ", li)), None)
    shell = _shell.failure(text, "iperf3")
    if shell is not None and (line is None or shell.kind in ("broken_tool", "tool_missing")):
        return shell
    if line is not None:
        return _failure(line.strip())
    if re.search(r"^\[ *(?:\d+|ID|SUM)\]", text, re.MULTILINE):
        return ParseError("text_output", "iperf3's report for people; run it with -J")
    return ParseError("unparsable", "not iperf3 JSON", first_line(text))


def _whole(documents: list[Any], around: str) -> dict[str, Any]:
    """The one document, or the events of ``--json-stream`` put together as one."""
    events = [mapping(document) for document in documents]
    if "event" not in events[0]:
        if len(events) > 1:
            raise ParseError("several_results", f"{len(events)} iperf3 results; give one at a time")
        return events[0]
    if around.strip():
        raise ParseError("truncated", "an event of the stream is cut off or foreign", first_line(around))
    whole = {str(event.get("event")): event.get("data") for event in events}
    if sum(event.get("event") == "start" for event in events) > 1:
        raise ParseError("several_results", "more than one iperf3 run in the stream; give one at a time")
    if "end" not in whole and "error" not in whole:
        raise ParseError("truncated", "the stream stops before its end event")
    return whole


def _result(start: dict[str, Any], end: dict[str, Any], error: Optional[str]) -> Iperf3:
    setup = mapping(start.get("test_start"))
    protocol = text_or_none(setup.get("protocol"))
    sent = mapping(end.get("sum_sent")) or mapping(end.get("sum"))
    received = mapping(end.get("sum_received"))
    reverse = integer(setup.get("reverse"))
    retransmits = integer(sent.get("retransmits"))
    counted = _counted(end) if (protocol or "").upper() == "UDP" else {}
    return Iperf3(
        version=text_or_none(start.get("version")),
        protocol=protocol,
        reverse=None if reverse is None else bool(reverse),
        streams=integer(setup.get("num_streams")) or len(objects(end.get("streams"))) or None,
        sent_bits_per_s=_rate(sent),
        received_bits_per_s=_rate(received),
        retransmits=retransmits if retransmits is not None and retransmits >= 0 else None,
        lost_percent=_lost(received or mapping(end.get("sum"))),
        error=error,
        back_sent_bits_per_s=_rate(mapping(end.get("sum_sent_bidir_reverse"))),
        back_received_bits_per_s=_rate(mapping(end.get("sum_received_bidir_reverse"))),
        packets=integer(counted.get("packets")) or None,
        lost_packets=_not_negative(counted.get("lost_packets")),
        sent_packets=(integer(mapping(end.get("sum_sent")).get("packets")) or None) if counted else None,
        jitter_ms=_jitter(counted),
    )


def _counted(end: dict[str, Any]) -> dict[str, Any]:
    """What a UDP receiver counted: ``sum_received``, before 3.10 in the one ``sum``."""
    received = mapping(end.get("sum_received"))
    return received if number(received.get("packets")) else mapping(end.get("sum"))


def _jitter(counted: dict[str, Any]) -> Optional[float]:
    """Of no packets there is no jitter, though a 0 is printed."""
    return number(counted.get("jitter_ms")) if integer(counted.get("packets")) else None


def _not_negative(value: object) -> Optional[int]:
    """Packets that came twice or late make older versions count below 0."""
    found = integer(value)
    return None if found is None else max(found, 0)


def _rate(total: dict[str, Any]) -> Optional[float]:
    """iperf3 prints 0 for what the other end never reported, so 0 is "not measured"."""
    return number(total.get("bits_per_second")) or None


def _lost(total: dict[str, Any]) -> Optional[float]:
    """Loss of UDP packets; of no packets there is no loss."""
    return number(total.get("lost_percent")) if number(total.get("packets")) else None


@dataclass(frozen=True)
class Course:
    """What a report wants beside the rate: the addresses at both ends, the second by second, the CPU load.

    ``address`` is the server's, ``local`` this end's. ``series`` holds bits a second of every interval that counts
    (omitted ones left out), of all streams together. ``seconds`` is the receiver's time. CPU in percent of one core;
    ``far_cpu`` the other end's. ``moved``: bytes of all intervals, omitted ones too, as this end counted them.
    """

    address: Optional[str] = None
    series: tuple[float, ...] = ()
    seconds: Optional[float] = None
    cpu: Optional[float] = None
    far_cpu: Optional[float] = None
    moved: Optional[float] = None
    local: Optional[str] = None


def course(text: str) -> Course:
    """The course of a client run that :func:`parse` accepts; raises :class:`ParseError` like it."""
    documents, around = json_documents(clean(text))
    if not documents:
        raise _not_json(text)
    events = [mapping(document) for document in documents]
    document = _whole(documents, around)
    if "event" in events[0]:
        intervals = [mapping(e.get("data")) for e in events if e.get("event") == "interval"]
    else:
        intervals = objects(document.get("intervals"))
    sums = [mapping(interval.get("sum")) for interval in intervals]
    rates = [number(total.get("bits_per_second")) for total in sums if total.get("omitted") is not True]
    start, end = mapping(document.get("start")), mapping(document.get("end"))
    cpu = mapping(end.get("cpu_utilization_percent"))
    connected = objects(start.get("connected"))
    received = mapping(end.get("sum_received")) or mapping(end.get("sum"))
    return Course(
        address=text_or_none(connected[0].get("remote_host")) if connected else None,
        series=tuple(rate for rate in rates if rate is not None),
        seconds=number(received.get("seconds")) or None,
        cpu=number(cpu.get("host_total")),
        far_cpu=number(cpu.get("remote_total")),
        local=text_or_none(connected[0].get("local_host")) if connected else None,
        moved=sum(b for b in (number(total.get("bytes")) for total in sums) if b is not None) or None,
    )
