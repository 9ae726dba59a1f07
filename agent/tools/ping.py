"""ping: loss and round-trip time.

Source command: ``ping -n -c COUNT -i SECONDS HOST`` (:func:`argv`). Reads iputils in any language,
busybox, FreeBSD and macOS.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

from agent.tools import ParseError, _shell
from agent.tools._text import clean, first_line, recognise

KIND = "ping"
# Beyond count x interval: the answer to the last request and a name server that is slow.
TIMEOUT_S = 20.0
_SIGN = re.compile(r"(?i:ping)|ttl=|icmp")

_FAILURES: tuple[tuple[str, str], ...] = (
    (
        r"Name or service not known|name resolution|unknown host|Unknown host|bad address|cannot resolve"
        r"|No address associated|Name does not resolve|未知的名称或服务|域名解析|名称解析"
        r"|Name oder Dienst|Nom ou service",
        "name_error",
    ),
    (r"Network is unreachable|No route to host|网络不可达|没有到主机的路由|Das Netzwerk ist nicht", "unreachable"),
    (
        r"Operation not permitted|[Pp]ermission denied|cap_net_raw|are you root|Lacking privilege"
        r"|不允许的操作|权限不够",
        "denied",
    ),
    (
        r"invalid option|unrecognized option|usage: ping|Usage: ping|usage error|bad number|bad value"
        r"|[Ii]nvalid argument|unknown iface|ping broadcast\?",
        "option",
    ),
)
_HEADER = re.compile(r"^-{2,3} .*-{2,3}\s*$")
_LOSS = re.compile(r"(\d+(?:[.,]\d+)?)\s*%")
_EXTRA_COUNT = re.compile(r"\+\d+\s*\S+")
_VALUE = r"(\d+(?:[.,]\d+)?)"
_RTT = re.compile(rf"=\s*{_VALUE}/{_VALUE}/{_VALUE}(?:/(\d+(?:[.,]\d+)?|nan))?\s*(?:ms|毫秒)(?![a-z])")
_RTT_WORDS = re.compile(r"min/avg/max")
_TIMED_REPLY = re.compile(r"\b(?:time|时间|Zeit|temps|tiempo)\s*[=<＝]")


@dataclass(frozen=True)
class Ping:
    """Counts, loss in percent as printed, round-trip times in ms (None without an answer).

    ``rtt_mdev_ms`` is None for busybox, which does not print it. Duplicates are not counted as received.
    """

    sent: int
    received: int
    loss_percent: Optional[float]
    rtt_min_ms: Optional[float]
    rtt_avg_ms: Optional[float]
    rtt_max_ms: Optional[float]
    rtt_mdev_ms: Optional[float]


def argv(host: str, *, count: int, interval_s: float = 1.0, deadline_s: Optional[int] = None) -> list[str]:
    """``deadline_s`` ends ping whatever was answered. Intervals under 0.2 s need root on older iputils."""
    args = ["ping", "-n", "-c", str(count), "-i", f"{interval_s:g}"]
    if deadline_s is not None:
        args += ["-w", str(deadline_s)]
    return [*args, host]


def parse(text: str) -> Ping:
    """The summary of a ping; the lines before it are not counted.

    Raises :class:`ParseError`: ``name_error``, ``unreachable``, ``denied``, ``truncated`` (no or half a
    summary), ``several_results``, ``empty``, ``unparsable``.
    """
    recognise(text, "ping", _SIGN)
    text = clean(text)
    if not text.strip():
        raise ParseError("empty", "no ping output: the text is empty")
    lines = [part.rstrip() for line in text.split("\n") for part in line.split("\r")]
    headers = [at for at, line in enumerate(lines) if _HEADER.match(line) and _next_counts(lines, at)]
    if not headers:
        raise _no_summary(text, lines)
    if len(headers) > 1:
        raise ParseError("several_results", f"{len(headers)} ping summaries; give one at a time")
    at = headers[0]
    sent, received, loss = _counts(lines[at + 1])
    return Ping(sent, received, loss, *_rtt(lines, at, received, text))


def address(text: str) -> Optional[str]:
    """The address that was pinged, from the first line: ``PING host (1.2.3.4) …``; None where none is shown."""
    first = next((line for line in clean(text).split("\n") if line.strip()), "")
    found = re.search(r"\(([0-9.]{7,15}|[0-9a-fA-F:.]*:[0-9a-fA-F:.]*(?:%\w+)?)\)", first)
    return found[1] if found else None


def _next_counts(lines: list[str], at: int) -> bool:
    return at + 1 < len(lines) and re.search(r"\d", lines[at + 1]) is not None


def _counts(line: str) -> tuple[int, int, Optional[float]]:
    """Sent and received are the first two numbers in every language; loss is the one with ``%``."""
    plain = _EXTRA_COUNT.sub("", line)
    loss = _LOSS.search(plain)
    head = plain[: loss.start()] if loss else plain
    counts = [int(n) for n in re.findall(r"\d+", head)]
    if loss is None and counts[:1] != [0]:
        raise ParseError("truncated", "ping's summary is cut off", line)
    if len(counts) < 2:
        raise ParseError("unparsable", "not a ping summary", line)
    sent, received = counts[0], counts[1]
    percent = _decimal(loss[1]) if loss else None
    if not _agree(sent, received, percent):
        raise ParseError("unparsable", "ping's counts and its loss contradict each other", line)
    return sent, received, percent


def _agree(sent: int, received: int, percent: Optional[float]) -> bool:
    """Some versions print whole percent, rounded down."""
    if percent is None or sent == 0:
        return received == 0
    return received <= sent and abs(percent - 100 * (sent - received) / sent) <= 1


def _rtt(lines: list[str], at: int, received: int, text: str) -> tuple[Optional[float], ...]:
    for line in lines[at + 2 :]:
        match = _RTT.search(line)
        if match is not None:
            low, mean, high = (_decimal(value) for value in match.group(1, 2, 3))
            if not low <= mean <= high:
                raise ParseError("unparsable", "ping's round-trip times are out of order", line)
            return low, mean, high, _decimal(match[4]) if match[4] and match[4] != "nan" else None
        if _RTT_WORDS.search(line):
            raise ParseError("truncated", "ping's round-trip line is cut off", line)
    if received and (_TIMED_REPLY.search(text) or not re.search(r"icmp_seq|seq=", text)):
        raise ParseError("truncated", "answers were received, but the round-trip line is missing", lines[at + 1])
    return None, None, None, None


def _no_summary(text: str, lines: list[str]) -> ParseError:
    for pattern, kind in _FAILURES:
        line = next((li for li in lines if re.search(pattern, li)), None)
        if line is not None:
            return ParseError(kind, f"ping failed ({kind})", line.strip())
    if re.search(r"^PING\b|icmp_seq|bytes from", text, re.MULTILINE):
        return ParseError("truncated", "ping was cut off before its summary", lines[-1] or lines[0])
    return _shell.failure(text, "ping") or ParseError("unparsable", "not ping output", first_line(text))


def _decimal(value: str) -> float:
    return float(value.replace(",", "."))
