"""Markdown (GitHub flavour) for issues and wikis; everything from the machine is escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Optional

from agent.model import Run
from agent.report.clean import one_line, shortened
from agent.report.rows import Link, Row
from agent.report.strips import Chart
from agent.report.view import Named, View, view
from agent.text import Text, Translate, msg

FORMAT = "md"
EXTENSION = "md"
# No more than has to be: the text is also read, and pasted, as it is.
_MARKUP = re.compile(r"([\\`*_\[\]<>#|~&$@]|:(?=[A-Za-z0-9_+-]+:)|(?<=www)\.|^[-+=])", re.IGNORECASE)
_NUMBERED = re.compile(r"^(\d+)([.)])(?=\s|$)")
_LONGEST = 600


def render(run: Run, folder: Optional[Path], translate: Translate, language: str) -> str:
    """The report without pictures and raw output."""
    v = view(run, folder, translate, language)
    parts = [*_head(v), *_sections(v, translate), *_charts(v, translate), *_scope(v, translate), *_foot(v, translate)]
    return "\n".join(parts) + "\n"


def escaped(text: str) -> str:
    """No character of ``text`` is markup, a link or a mention."""
    plain = _MARKUP.sub(r"\\\1", shortened(one_line(text), _LONGEST)).replace("://", r":\/\/")
    return _NUMBERED.sub(r"\1\\\2", plain)


def _code(text: str) -> str:
    """Inline code that no backtick inside can end."""
    text = shortened(one_line(text), _LONGEST)
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}" if text else ""


def _cell_code(text: str) -> str:
    return _code(text).replace("|", r"\|")


def _head(v: View) -> Iterable[str]:
    yield f"# {v.look.sigil} {escaped(v.verdict)}: {escaped(v.headline)}"
    yield ""
    if v.partial:
        yield from (f"**{escaped(' '.join(v.partial))}**", "")
    yield from (f"- **{escaped(f.label)}**: {escaped(f.value)}" for f in v.facts)
    yield ""
    yield " ".join(escaped(s) for s in v.summary.sentences)
    yield ""


def _heading(text: Text, translate: Translate, count: Optional[int] = None) -> str:
    return f"## {escaped(text.render(translate))}" + (f" ({count})" if count is not None else "")


def _list(heading: Text, lines: Iterable[str], translate: Translate) -> Iterable[str]:
    listed = [f"- {line}" for line in lines]
    if listed:
        yield from (_heading(heading, translate), "", *listed, "")


def _sections(v: View, translate: Translate) -> Iterable[str]:
    yield from _list(msg("What is asked for"), map(escaped, v.asked), translate)
    for heading, rows in (
        (msg("Broken promises"), v.broken),
        (msg("What could not be verified"), v.unverified),
        (msg("Remarks that do not decide"), v.remarks),
        (msg("Kept promises"), v.kept),
        (msg("Also looked at, nothing wrong"), v.fine),
    ):
        yield from _table(heading, rows, translate)


def _table(heading: Text, rows: tuple[Row, ...], translate: Translate) -> Iterable[str]:
    if not rows:
        return
    names = (msg("Promise"), msg("Promised"), msg("Measured"), msg("Against the promise"), msg("Why"), msg("Evidence"))
    yield from (_heading(heading, translate, sum(len(row.subjects) for row in rows)), "")
    yield "| | " + " | ".join(escaped(n.render(translate)) for n in names) + " |"
    yield "|---" * (len(names) + 1) + "|"
    for row in rows:
        yield from _row(row, translate)
    yield ""


def _row(row: Row, translate: Translate) -> Iterable[str]:
    ref = f" ({escaped(row.ref)})" if row.ref else ""
    asked = msg("To be granted: {what}", what=row.grant or "").render(translate)
    grant = f" **{escaped(asked)}**" if row.grant else ""
    name = f"{escaped(row.title)}{ref}<br>{_cell_code(row.key)}{_where(row)}"
    spread = f" ({escaped(row.interval)})" if row.interval else ""
    yield _cells(row.look.sigil, name, escaped(row.promised), escaped(row.measured) + spread, escaped(row.gap),
                 escaped(row.why) + grant, _links(row.evidence))  # fmt: skip
    if row.differ:
        for s in row.subjects:
            spread = f" ({escaped(s.interval)})" if s.interval else ""
            yield _cells("", escaped(s.label), "", escaped(s.measured) + spread, escaped(s.gap), escaped(s.why),
                         _links(s.evidence))  # fmt: skip


def _where(row: Row) -> str:
    """The places of a row that has no line for each of them."""
    labels = [] if row.differ else [s.label for s in row.subjects if s.label]
    return f"<br>{', '.join(map(escaped, labels))}" if labels else ""


def _cells(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _links(links: tuple[Link, ...]) -> str:
    return " ".join(f"[{escaped(e.text)}](<{e.href}>)" if e.href else _cell_code(e.text) for e in links)


def _charts(v: View, translate: Translate) -> Iterable[str]:
    for chart in v.charts:
        yield from _chart(chart, translate)


def _chart(chart: Chart, translate: Translate) -> Iterable[str]:
    heading = msg("Measured: {what}", what=chart.title)
    names = (msg("Where"), msg("Attempt and depth"), msg("Block"), msg("Conditions"))
    yield from (f"<details><summary>{escaped(heading.render(translate))}</summary>", "")
    yield "| " + " | ".join(escaped(n.render(translate)) for n in names) + " |"
    yield "|---" * len(names) + "|"
    for strip in chart.strips:
        for b in strip.blocks:
            yield _cells(
                escaped(strip.label), escaped(b.attempt), escaped(f"{b.value} {chart.unit}"), escaped(b.conditions)
            )
    yield from ("", "</details>", "")


def _scope(v: View, translate: Translate) -> Iterable[str]:
    def lines(entries: tuple[Named, ...]) -> Iterable[str]:
        return (f"{escaped(e.title)} {_code(e.key)}: {escaped(e.why)}" for e in entries)

    yield from _list(msg("Left out of this run"), lines(v.left_out), translate)
    yield from _list(msg("Shortened"), lines(v.shortened), translate)
    yield from _list(msg("Waits for the trial"), lines(v.pending), translate)
    yield from _list(msg("Terms no agent can verify"), (escaped(t.text) for t in v.terms), translate)
    yield from _list(msg("Notes"), map(escaped, v.notes), translate)


def _foot(v: View, translate: Translate) -> Iterable[str]:
    yield escaped(msg("contract: sha256 {digest}", digest=v.contract_sha256).render(translate)) + "  "
    digest = msg("run digest: sha256 {digest}", digest=v.digest) if v.digest else msg(
        "run digest: the sha256 of manifest.json, printed when the run ends"
    )  # fmt: skip
    yield escaped(digest.render(translate))
