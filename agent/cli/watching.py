"""What ``accept watch`` shows: a table that stands still on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Optional

from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from agent.bench.telemetry import FAULTS, POWER_CAP
from agent.cli.terminal import Terminal
from agent.report.clean import visible
from agent.text import Text, Translate, msg
from agent.tools.telemetry import REASONS
from agent.tools.watch import Card
from agent.watch.events import CAUSES, COUNTERS, GRAVE, Event, lasted, words
from agent.watch.log import Begun, Seen
from agent.watch.summary import OfCard, Span, Summary
from agent.watch.watching import Told, Trouble

EVENTS_SHOWN = 8
LINE_EVERY_S = 60.0  # where nobody watches: one line a minute, and every event
DASH = "-"
CAP = msg("power limit")


def clock(t: float) -> str:
    """Local date and time of seconds since 1970."""
    return f"{datetime.fromtimestamp(t):%m-%d %H:%M:%S}"


class View:
    """Shows what :class:`agent.watch.watching.Watching` tells."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal
        self.translate = terminal.translate
        self.cards: Sequence[Card] = ()
        self.events: deque[Event] = deque(maxlen=EVENTS_SHOWN)
        self.error: Optional[str] = None
        self._live: Optional[Live] = None
        self._line_at: Optional[float] = None
        self._nvlink: dict[int, tuple[float, Optional[float], Optional[float]]] = {}

    def tell(self, told: Told) -> None:
        """One thing, as it comes."""
        if isinstance(told, Begun):
            self.cards, self.error = told.cards, told.error
            if told.error is not None:
                self.terminal.say(msg("no GPU to watch: {why}; the host is watched", why=told.error))
        elif isinstance(told, Trouble):
            self.terminal.say(
                msg("{path} cannot be written: {error}; watching goes on", path=told.path, error=told.error), "yellow"
            )
        elif isinstance(told, Event):
            self.events.append(told)
            if not self.terminal.live:
                self.terminal.raw(event_line(told, self.translate))
        else:
            self._seen(told)

    def close(self) -> None:
        """Leave the last table standing."""
        with suppress(OSError):
            if self._live is not None:
                self._live.stop()
        self._live = None

    def _seen(self, seen: Seen) -> None:
        if not self.terminal.live:
            if self._line_at is None or seen.t - self._line_at >= LINE_EVERY_S:
                self._line_at = seen.t
                self.terminal.raw(f"{clock(seen.t)}  {self._host(seen)}")
                for card, values in zip(self.cards, seen.look.gpus):
                    self.terminal.raw(f"  {card.slot or '?'}  {'  '.join(self._cells(values, None))}")
            return
        with suppress(OSError):
            if self._live is None:
                self._live = Live(console=self.terminal.console, auto_refresh=False)
                self._live.start()
            self._live.update(self._picture(seen), refresh=True)

    def _picture(self, seen: Seen) -> Group:
        table = Table(title=f"{clock(seen.t)}   {self._host(seen)}", title_justify="left", box=None, padding=(0, 1))
        for heading in HEADINGS:
            table.add_column(heading.render(self.translate), justify="right", no_wrap=True)
        for number, (card, values) in enumerate(zip(self.cards, seen.look.gpus)):
            rates = self._rates(number, seen.t, values)
            bad = any(int(values.get("reasons") or 0) & bit for bit, name in REASONS.items() if name in FAULTS)
            table.add_row(card.slot or "?", *self._cells(values, rates), style="red" if bad else "")
        lines = [escape(visible(event_line(e, self.translate))) for e in self.events]
        return Group(table, *lines)

    def _rates(self, number: int, t: float, values: Mapping[str, Optional[float]]) -> tuple[str, str]:
        """NVLink sent and received since the last look, in GB/s."""
        sent, received = values.get("nvlink_sent_kib"), values.get("nvlink_received_kib")
        before = self._nvlink.get(number)
        self._nvlink[number] = (t, sent, received)
        if before is None or t <= before[0]:
            return DASH, DASH
        return _rate(before[1], sent, t - before[0]), _rate(before[2], received, t - before[0])

    def _cells(self, values: Mapping[str, Optional[float]], links: Optional[tuple[str, str]]) -> list[str]:
        def shown(name: str, unit: str, factor: float = 1.0, digits: int = 0) -> str:
            value = values.get(name)
            return DASH if value is None else f"{value * factor:.{digits}f} {unit}"

        bits = values.get("reasons")
        held = [
            (CAP if name == POWER_CAP else CAUSES[name]).render(self.translate)
            for bit, name in REASONS.items()
            if name in (*FAULTS, POWER_CAP) and int(bits or 0) & bit
        ]
        return [
            shown("utilization", "%"),
            shown("memory_used_mib", "GiB", 1 / 1024, 1),
            shown("temperature_c", "°C"),
            shown("power_w", "W"),
            shown("sm_mhz", "MHz"),
            shown("pcie_received_kb_s", "GB/s", 1e-6, 1),
            shown("pcie_sent_kb_s", "GB/s", 1e-6, 1),
            *(links or ()),
            ", ".join(held) or DASH,
        ]

    def _host(self, seen: Seen) -> str:
        values = seen.look.host

        def of(name: str, digits: int = 0) -> str:
            value = values.get(name)
            return DASH if value is None else f"{value:.{digits}f}"

        free = values.get("available_mib")
        return msg(
            "CPU {cpu} %, stolen {steal} %, memory free {free} GiB, disk {read}/{written} MB/s, net {rx}/{tx} MB/s",
            cpu=of("cpu"),
            steal=of("steal", 1),
            free=DASH if free is None else f"{free / 1024:.0f}",
            read=of("disk_read"),
            written=of("disk_written"),
            rx=of("received"),
            tx=of("sent"),
        ).render(self.translate)


HEADINGS = (
    msg("GPU"),
    msg("busy"),
    msg("memory"),
    msg("temp."),
    msg("power"),
    msg("SM clock"),
    msg("PCIe in"),
    msg("PCIe out"),
    msg("NVLink out"),
    msg("NVLink in"),
    msg("held down by"),
)


def _rate(before: Optional[float], now: Optional[float], seconds: float) -> str:
    if before is None or now is None or now < before:
        return DASH
    return f"{(now - before) * 1024 / 1e9 / seconds:.1f} GB/s"


def event_line(event: Event, translate: Translate) -> str:
    """Time, card and what happened."""
    sign = "!" if event.kind in GRAVE else "·"
    subject = f"{event.subject}  " if event.subject else ""
    return f"{clock(event.t)} {sign} {subject}{words(event).render(translate)}"


def summary_lines(found: Summary) -> list[Text]:
    """A span of the log as sentences."""
    if found.begin is None or found.end is None:
        return [msg("nothing was watched in that span")]
    lines = [
        msg(
            "{begin} to {end}: {n} looks, {watched} watched",
            begin=clock(found.begin),
            end=clock(found.end),
            n=found.looks,
            watched=lasted(found.watched_s),
        )
    ]
    lines += [msg("not watched: {begin} to {end}", begin=clock(a), end=clock(b)) for a, b in found.gaps]
    if found.unread:
        lines.append(msg("{n} lines of the log cannot be read and are left out", n=found.unread))
    for slot, one in sorted(found.cards.items()):
        lines += _card_lines(slot, one, found.watched_s)
    lines.append(
        msg(
            "host: CPU {cpu} %, stolen {steal} %, disk read {read} MB/s, written {written} MB/s, "
            "received {rx} MB/s, sent {tx} MB/s",
            cpu=_span(found.host_span("cpu")),
            steal=_span(found.host_span("steal")),
            read=_span(found.host_span("disk_read")),
            written=_span(found.host_span("disk_written")),
            rx=_span(found.host_span("received")),
            tx=_span(found.host_span("sent")),
        )
    )
    lines.append(msg("(least / median / most of what was seen)"))
    return lines


def _card_lines(slot: str, one: OfCard, watched_s: float) -> list[Text]:
    lines = [
        msg(
            "{slot} {name}: {c} °C, {w} W, {mhz} MHz, {busy} % busy, {mib} MiB",
            slot=slot,
            name=one.card.name or "",
            c=_span(one.span("temperature_c")),
            w=_span(one.span("power_w")),
            mhz=_span(one.span("sm_mhz")),
            busy=_span(one.span("utilization")),
            mib=_span(one.span("memory_used_mib")),
        )
    ]
    for cause, seconds in one.held.items():
        share = f"{100 * seconds / watched_s:.1f}" if watched_s else DASH
        lines.append(
            msg(
                "  clock held down {time} ({share} %): {cause}",
                time=lasted(seconds),
                share=share,
                cause=CAP if cause == POWER_CAP else CAUSES[cause],
            )
        )
    for counter, by in one.grew.items():
        lines.append(msg("  {counter}: {by} more", counter=COUNTERS[counter], by=f"{by:.0f}"))
    return lines


def _span(span: Optional[Span]) -> str:
    if span is None:
        return DASH
    return " / ".join(
        f"{v:.0f}" if abs(v) >= 10 or v == int(v) else f"{v:.1f}" for v in (span.least, span.median, span.most)
    )
