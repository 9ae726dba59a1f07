"""A comparison of two runs as a page and as Markdown, in the same look as the report."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Optional

from agent.compare import Change, Comparison, Difference, Turn
from agent.model import Outcome, Run
from agent.quantity import format_quantity
from agent.report import looks, numbers
from agent.report.clean import one_line, shortened
from agent.report.names import title
from agent.report.rows import gpu_labels, label_of
from agent.report.to_html import compact, css_string, environment, html_language, style
from agent.report.to_md import escaped
from agent.text import Text, Translate, msg

_TEMPLATE = "compare.html.j2"
_LONGEST = 400
_WIDE = 0.5  # of the picture's half, at most: a change of 100 % fills it


@dataclass(frozen=True)
class Side:
    """One of the two runs."""

    name: str
    run_id: str
    verdict: str
    tone: str
    when: str
    server: str
    number: str


@dataclass(frozen=True)
class Pair:
    """Something before and after; ``tone`` colours the line."""

    name: str
    code: str
    before: str
    after: str
    tone: str
    why: str = ""


@dataclass(frozen=True)
class Moved:
    """A measurement in both runs: ``start`` and ``width`` of its bar in percent, zero change in the middle."""

    name: str
    code: str
    before: str
    after: str
    change: str
    p: str
    beyond: bool
    tone: str
    start: float
    width: float


@dataclass(frozen=True)
class Compared:
    """The whole comparison in the reader's language."""

    title: str
    verdict: str
    sigil: str
    tone: str
    headline: str
    remarks: tuple[str, ...]
    sides: tuple[Side, Side]
    parts: tuple[Pair, ...]
    turns: tuple[Pair, ...]
    facts: tuple[Pair, ...]
    moved: tuple[Moved, ...]
    still: tuple[Moved, ...]


def html(found: Comparison, before: Run, after: Run, translate: Translate, language: str) -> str:
    """One page without scripts, everything foreign escaped."""
    shown = view(found, before, after, translate, language)
    page = environment(translate).get_template(_TEMPLATE)
    running = "@page{@top-left{content:%s}@top-right{content:%s}}"
    rules = running % (css_string(shown.title), css_string(f"{shown.sigil} {shown.verdict}"))
    return compact(page.render(v=shown, style=style(rules), lang=html_language(language)))


def md(found: Comparison, before: Run, after: Run, translate: Translate, language: str) -> str:
    """For an issue or a wiki."""
    v = view(found, before, after, translate, language)
    lines = [f"# {v.sigil} {escaped(v.verdict)}: {escaped(v.headline)}", ""]
    lines += [f"- **{escaped(s.name)}**: {escaped(f'{s.run_id}, {s.verdict}, {s.when}')}" for s in v.sides]
    lines += ["", *(escaped(r) for r in v.remarks), ""]
    for heading, pairs in (
        (msg("Judged otherwise"), v.turns),
        (msg("Parts of the machine"), v.parts),
        (msg("Versions and facts"), v.facts),
    ):
        lines += _table(heading, [(p.name, p.before, p.after) for p in pairs], translate)
    heading = msg("Measurements beyond noise")
    lines += _table(heading, [(m.name, m.before, f"{m.after} ({m.change})") for m in v.moved], translate)
    return "\n".join(lines).rstrip("\n") + "\n"


def count(beyond: int, measured: int) -> Text:
    """How many measurements changed, of those that both runs have."""
    if not measured:
        return msg("no measurement is in both runs: only facts and findings were compared")
    return msg("{n} of {m} measurements changed beyond noise", n=beyond, m=measured)


def basis(found: Comparison) -> Iterable[Text]:
    """Whether the two can be compared, and whether they are of one contract and one machine."""
    if found.redacted[0] != found.redacted[1]:
        yield msg("one of the runs is redacted: what stands there for a name says nothing beside the name; "
                  "compare both as they were recorded, or both redacted")  # fmt: skip
    elif not found.comparable:
        yield msg("the runs have another contract and no measurement in common: not comparable")
    elif not found.same_contract:
        yield msg("the runs were judged by different contracts")
    if found.same_machine is None:
        yield msg("without the names it cannot be told whether this is the same machine")
    else:
        yield msg("the same machine") if found.same_machine else msg("not the same machine, or parts were exchanged:")


def left_out(found: Comparison) -> Text:
    """What one of the runs was told not to look at, by clause."""
    clauses = dict.fromkeys(i.partition("@")[0] for i in found.left_out)
    return msg("left out of one of the runs, so not compared: {what}", what=tuple(clauses))


def values(change: Change) -> tuple[str, str]:
    """A measurement before and after, with the digits that show the difference."""
    return (
        format_quantity(change.before, change.unit, (change.after,)),
        format_quantity(change.after, change.unit, (change.before,)),
    )


def _table(heading: Text, rows: Iterable[tuple[str, str, str]], translate: Translate) -> list[str]:
    found = [f"| {' | '.join(escaped(cell) for cell in row)} |" for row in rows]
    if not found:
        return []
    heads = (msg("What"), msg("Before"), msg("After"))
    first = "| " + " | ".join(escaped(h.render(translate)) for h in heads) + " |"
    return [f"## {escaped(heading.render(translate))} ({len(found)})", "", first, "|---|---|---|", *found, ""]


def view(found: Comparison, before: Run, after: Run, translate: Translate, language: str) -> Compared:
    """What both formats show."""
    labels = {**gpu_labels(before), **gpu_labels(after)}
    tone, sigil, verdict = _verdict(found)
    changes = [_moved(c, found.changes, labels, translate) for c in found.changes]
    beyond = [m for m in changes if m.beyond]
    headline = count(len(beyond), len(changes))
    return Compared(
        title=msg("Comparison of two runs").render(translate),
        verdict=verdict.render(translate),
        sigil=sigil,
        tone=tone,
        headline=headline.render(translate),
        remarks=tuple(t.render(translate) for t in _remarks(found)),
        sides=(
            _side(msg("Before"), before, translate, language),
            _side(msg("After"), after, translate, language),
        ),
        parts=tuple(_difference(d, "bad") for d in found.parts),
        turns=tuple(_turn(t, labels, translate) for t in found.turns),
        facts=tuple(_difference(d, "note") for d in found.facts),
        moved=tuple(beyond),
        still=tuple(m for m in changes if not m.beyond),
    )


def _verdict(found: Comparison) -> tuple[str, str, Text]:
    if not found.comparable:
        return "open", "?", msg("Not comparable")
    return ("bad", "≠", msg("Changed")) if found.changed else ("good", "=", msg("No change beyond noise"))


def _remarks(found: Comparison) -> Iterable[Text]:
    yield from basis(found)
    if found.left_out:
        yield left_out(found)
    yield msg(
        "A measurement counts as changed where its blocks differ by more than blocks and runs of one healthy machine "
        "do, corrected for the number of comparisons (Holm, 5 % in all)."
    )


def _side(name: Text, run: Run, translate: Translate, language: str) -> Side:
    look = looks.of_verdict(run.verdict if run.complete else None)
    return Side(
        name=name.render(translate),
        run_id=shortened(one_line(run.run_id), 120),
        verdict=look.word.render(translate),
        tone=look.tone,
        when=numbers.when(run.started_at, language),
        server=shortened(one_line(str(run.node.get("hostname") or "")), 120),
        number=f"{run.attempt.number}/{run.attempt.of}" if run.attempt else "",
    )


def _difference(found: Difference, tone: str) -> Pair:
    return Pair(shortened(one_line(found.where), 200), "", _shown(found.before), _shown(found.after), tone)


def _shown(value: Any) -> str:
    if value is None:
        return numbers.NONE
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return shortened(one_line(text), _LONGEST)


def _turn(found: Turn, labels: Any, translate: Translate) -> Pair:
    clause = found.reason.clause if found.reason else found.id
    subject = found.reason.subject if found.reason else None
    worse = found.after == "fail" or (found.before == "pass" and found.after != "pass")
    return Pair(
        name=_named(clause, subject, labels, translate),
        code=shortened(one_line(found.id), 200),
        before=_word(found.before, found, translate),
        after=_word(found.after, found, translate),
        tone="bad" if worse else ("good" if found.after == "pass" else "note"),
        why=shortened(one_line(found.reason.reason.render(translate)), _LONGEST) if found.reason else "",
    )


def _word(outcome: Optional[Outcome], found: Turn, translate: Translate) -> str:
    if outcome is None or found.reason is None:
        return numbers.NONE
    return looks.of_outcome(outcome, found.reason.severity).word.render(translate)


def _named(clause: str, subject: Optional[str], labels: Any, translate: Translate) -> str:
    name, where = title(clause, translate), label_of(subject, labels)
    return shortened(msg("{title} ({where})", title=name, where=where).render(translate) if where else name, 200)


def _moved(change: Change, among: Iterable[Change], labels: Any, translate: Translate) -> Moved:
    clause, _, subject = change.key.partition("@")
    most = max((abs(c.relative) for c in among if c.relative is not None), default=0.0) or 1.0
    share = (min(abs(change.relative) / max(most, 0.02), 1.0) if change.relative is not None else 1.0) * _WIDE * 100
    before, after = values(change)
    down = change.relative is not None and change.relative < 0
    return Moved(
        name=_named(clause, subject or None, labels, translate),
        code=shortened(one_line(change.key), 200),
        before=one_line(before),
        after=one_line(after),
        change=numbers.NONE if change.relative is None else numbers.signed(change.relative),
        p=numbers.number(change.p, 2) if change.p >= 1e-4 else "< 0.0001",
        beyond=change.beyond_noise,
        tone=("open" if change.beyond_noise else "mute"),
        start=round(50 - share if down else 50.0, 2),
        width=round(max(share, 0.3), 2),
    )
