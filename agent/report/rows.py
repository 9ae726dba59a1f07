"""Findings as rows of a report: the same promise on eight GPUs with the same outcome is one row."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Optional
from urllib.parse import quote

from agent.checks._measured import CAUSES
from agent.model import Finding, Limit, Run
from agent.report import byhand, industry, looks, numbers
from agent.report.claims import Formula, claim
from agent.report.clean import one_line, shortened, visible
from agent.report.names import title
from agent.report.phrases import phrase
from agent.text import Text, Translate, msg

MANY = 12
_LONGEST_WORDS = 600
_LONGEST_REASON = 1500
# A margin beyond this says nothing: 25 GB where 1 MB was promised.
_FAR = 1.0
_EVIDENCE = re.compile(r"evidence(/(?!\.{1,2}(/|\Z))[^/\\\x00-\x1f]+)+\Z")


@dataclass(frozen=True)
class Link:
    """A place in the evidence: ``href`` is relative to the run folder, None where the name is no such place."""

    text: str
    href: Optional[str]
    probe: str
    sha256: str = ""


@dataclass(frozen=True)
class Extras:
    """What the run folder adds to findings: formulas of the contract by clause, the sha256 of a probe's main file."""

    formulas: Mapping[str, Formula] = field(default_factory=dict)
    hashes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Subject:
    """One subject of a row. ``gap`` is the distance to the promise in words, empty where there is none.

    ``why`` is its own reason, empty where all subjects of the row share one.
    """

    label: str
    measured: str
    interval: str
    gap: str
    evidence: tuple[Link, ...]
    why: str


@dataclass(frozen=True)
class Row:
    """One promise with one outcome on one or several subjects.

    ``name`` is the title with where it was found, ``said`` the finding in a line: the numbers where there are some,
    else why.
    """

    key: str
    title: str
    ref: str
    quote: str
    promised: str
    held_to: str
    measured: str
    interval: str
    rule: str
    gap: str
    look: looks.Look
    word: str
    code: str
    why: str
    notes: tuple[str, ...]
    grant: str
    remedy: str
    claim: str
    reproduce: str
    industry: str
    evidence: tuple[Link, ...]
    subjects: tuple[Subject, ...]
    places: str
    name: str
    said: str

    @property
    def several(self) -> bool:
        """More than one subject, each worth a line of its own."""
        return len(self.subjects) > 1

    @property
    def differ(self) -> bool:
        """Whether something else was measured on its subjects, or for another reason, than the row says."""
        return self.several and any(s.measured != self.measured or s.why for s in self.subjects)

    @property
    def many(self) -> bool:
        """More lines than a reader wants before he asks for them."""
        return len(self.subjects) > MANY


_NOTHING = Extras()


def rows(run: Run, findings: Iterable[Finding], translate: Translate, known: Extras = _NOTHING) -> tuple[Row, ...]:
    """Rows in the order in which their first finding comes."""
    groups: dict[tuple[Any, ...], list[Finding]] = {}
    for f in findings:
        key = (f.clause, f.outcome, f.severity, f.promised, f.reason_code, f.grant)
        groups.setdefault(key, []).append(f)
    return tuple(_row(group, run, translate, known) for group in groups.values())


def gpu_labels(run: Run) -> Mapping[str, str]:
    """A GPU's slot → ``GPU 5 · 0000:ab:00.0``; the slot alone where the index is not known."""
    gpus = run.node.get("gpus") or ()
    known = [g for g in gpus if isinstance(g, Mapping) and g.get("slot") is not None and g.get("index") is not None]
    return {str(g["slot"]): f"GPU {one_line(str(g['index']))} · {one_line(str(g['slot']))}" for g in known}


def label_of(subject: Optional[str], labels: Mapping[str, str]) -> str:
    """A subject in words: a GPU with its index, a pair of GPUs as ``GPU 0 → GPU 5``, anything else as it is."""
    if subject is None:
        return ""
    ends = subject.split(">")
    if len(ends) == 2 and all(end in labels for end in ends):
        return " → ".join(labels[end].partition(" · ")[0] for end in ends)
    return labels.get(subject, shortened(one_line(subject), 120))


def links(evidence: Iterable[str], known: Extras = _NOTHING) -> tuple[Link, ...]:
    """Evidence names as links; only what lies below ``evidence/`` becomes one."""
    return tuple(_link(name, known) for name in dict.fromkeys(evidence))


def _link(name: str, known: Extras) -> Link:
    inside = bool(_EVIDENCE.match(name))
    href = quote(name, errors="surrogateescape") if inside else None
    probe = name.split("/")[1] if inside else ""
    return Link(shortened(one_line(name), 120), href, probe, known.hashes.get(probe, ""))


def command(argv: tuple[str, ...]) -> str:
    """argv as it can be pasted into a shell."""
    return shortened(one_line(" ".join(shlex.quote(a) for a in argv)), _LONGEST_REASON)


def _pasted(line: str) -> str:
    return shortened(one_line(line), _LONGEST_REASON)


def _distance(f: Finding) -> Optional[tuple[float, float]]:
    """What the contract says before tolerance, and how much more was measured; None where these are no numbers."""
    promised = _promised_number(f.limit)
    if promised is None or not numbers.is_number(f.measured) or f.limit is None or f.limit.unit != f.unit:
        return None
    return promised, f.measured - promised


def shortfall(f: Finding) -> Optional[float]:
    """How far a broken promise was missed, as a fraction of it; None where that is no share of anything."""
    found = _distance(f)
    if f.outcome != "fail" or found is None or found[0] == 0 or f.unit == "%":
        return None
    return abs(found[1]) / abs(found[0])


def gap(f: Finding, translate: Translate) -> str:
    """The distance from the promise (before tolerance), in percent of it: ``21.2 % short``, ``+7.9 %``."""
    found = _distance(f)
    if found is None:
        return ""
    promised, more = found
    if f.unit == "%":
        return _points(more, translate)
    if promised == 0:
        return ""
    share = more / abs(promised)
    if f.outcome != "fail":
        if abs(share) > _FAR:
            return ""
        return numbers.signed(share)
    text = (
        msg("{share} short", share=numbers.percent(-share))
        if share < 0
        else msg("{share} over", share=numbers.percent(share))
    )
    return text.render(translate)


def _points(difference: float, translate: Translate) -> str:
    sign = "+" if difference >= 0 else "−"
    return msg("{n} points", n=f"{sign}{numbers.number(abs(difference), 3)}").render(translate)


def _promised_number(limit: Optional[Limit]) -> Optional[float]:
    """What the contract says, from the limit that has the tolerance in it."""
    if limit is None or not numbers.is_number(limit.value) or limit.op not in (">=", "<="):
        return None
    factor = 1 - limit.tolerance if limit.op == ">=" else 1 + limit.tolerance
    return float(limit.value) / factor


def _held_to(group: list[Finding], translate: Translate) -> str:
    """The limit, where it is not simply what the contract says."""
    limit = group[0].limit
    if limit is None or (not limit.tolerance and limit.origin.kind == "contract"):
        return ""
    value = f"{numbers.promise(limit.op)} {numbers.quantity(limit.value, limit.unit, translate, _of(group))}"
    origin = _ORIGINS[limit.origin.kind].render(translate)
    detail = f" ({one_line(limit.origin.detail)})" if limit.origin.detail else ""
    if limit.tolerance:
        text = msg("held to {limit}: {origin}, tolerance {share}", limit=value, origin=origin + detail,
                   share=numbers.percent(limit.tolerance))  # fmt: skip
    else:
        text = msg("held to {limit}: {origin}", limit=value, origin=origin + detail)
    return shortened(text.render(translate), _LONGEST_WORDS)


def _of(group: list[Finding]) -> list[float]:
    """What was measured against the limit of a group, in its unit."""
    limit = group[0].limit
    return [f.measured for f in group if limit and f.unit == limit.unit and numbers.is_number(f.measured)]


_ORIGINS: dict[str, Text] = {
    "contract": msg("the contract"),
    "catalogue": msg("the catalogue of GPU models"),
    "topology": msg("derived from the topology"),
    "agent": msg("a rule of this agent"),
}


def _claim(group: list[Finding], run: Run, translate: Translate, known: Extras) -> str:
    """What the worst of a broken group is worth by the contract's own formula; nothing without one."""
    formula = known.formulas.get(group[0].clause)
    missed = [s for f in group if (s := shortfall(f)) is not None]
    found = claim(formula, max(missed), run.contract_header) if formula and missed else None
    return say(found, translate) if found else ""


def _subject(f: Finding, labels: Mapping[str, str], translate: Translate, known: Extras, shared: bool) -> Subject:
    label = label_of(f.subject, labels)
    return Subject(
        label=label,
        measured=shortened(numbers.measured(f, translate), _LONGEST_WORDS),
        interval=shortened(_interval(f), 120),
        gap=gap(f, translate),
        evidence=links(f.evidence, known),
        why="" if shared else _why(f, translate),
    )


def _why(f: Finding, translate: Translate) -> str:
    return say(f.reason, translate).replace(">= ", "≥ ").replace("<= ", "≤ ")


def _interval(f: Finding) -> str:
    return numbers.interval(*f.interval, f.unit, numbers.ends(f.limit, f.unit)) if f.interval else ""


def _span(group: list[Finding], translate: Translate) -> str:
    """What was measured on all subjects of a row: the one value, or from the lowest to the highest."""
    shown = {numbers.measured(f, translate) for f in group}
    if len(shown) == 1:
        return shown.pop()
    values = [f.measured for f in group]
    if all(numbers.is_number(v) for v in values):
        first = group[0]
        return numbers.interval(min(values), max(values), first.unit, numbers.ends(first.limit, first.unit))
    return msg("{n} different values", n=len(shown)).render(translate)


def _gap_span(group: list[Finding], translate: Translate) -> str:
    shown = list(dict.fromkeys(gap(f, translate) for f in group))
    missed = [s for f in group if (s := shortfall(f)) is not None]
    if len(shown) == 1 or len(missed) < len(group):
        return shown[0] if len(shown) == 1 else ""
    share = f"{numbers.number(100 * min(missed), 3)}–{numbers.percent(max(missed))}"
    short = group[0].limit is not None and group[0].limit.op == ">="
    return (msg("{share} short", share=share) if short else msg("{share} over", share=share)).render(translate)


def _row(group: list[Finding], run: Run, translate: Translate, known: Extras) -> Row:
    first = group[0]
    labels = gpu_labels(run)
    look = looks.of_outcome(first.outcome, first.severity)
    reasons = list(dict.fromkeys(_why(f, translate) for f in group))
    subjects = tuple(_subject(f, labels, translate, known, len(reasons) == 1) for f in group)
    single = len(group) == 1
    causes = tuple(dict.fromkeys(say(c, translate) for f in group for c in _causes(f)))
    why = reasons[0]
    if len(reasons) > 1:
        why = msg("{why} (other reasons: {n})", why=why, n=len(reasons) - 1).render(translate)
    why = "; ".join((why, *(c for c in causes if c not in why)))
    measured = shortened(_span(group, translate), _LONGEST_WORDS)
    promised = shortened(numbers.promise(first.promised), _LONGEST_WORDS)
    distance = _gap_span(group, translate)
    name = shortened(title(first.clause, translate), 200)
    where = subjects[0].label if single else msg("{n} places", n=len(group))
    # Against "none" or "new" a count says little: why it was broken says which fault it is.
    numeric = all(numbers.is_number(f.measured) for f in group) and any(c.isdigit() for c in promised)
    said = _said(promised, measured if numeric else "", distance, why).render(translate)
    return Row(
        key=shortened(one_line(first.clause), 200),
        title=name,
        ref=shortened(one_line(first.ref or ""), 200),
        quote=shortened(visible(first.quote or ""), _LONGEST_WORDS),
        promised=promised,
        held_to=_held_to(group, translate),
        measured=measured,
        interval=subjects[0].interval if single else "",
        rule=shortened(phrase(first.interval_rule or "", translate), 200),
        gap=distance,
        look=look,
        word=look.word.render(translate),
        code=shortened(one_line(first.reason_code), 80),
        why=why,
        notes=tuple(dict.fromkeys(say(n, translate) for f in group for n in f.notes if n.template not in CAUSES)),
        grant=say(first.grant, translate) if first.grant else "",
        remedy=shortened(visible(first.remedy or ""), _LONGEST_WORDS),
        claim=_claim(group, run, translate, known),
        reproduce=_pasted(byhand.command(first, run, not single)),
        industry=_pasted(industry.command(first, run, not single)),
        evidence=links((e for f in group for e in f.evidence), known),
        subjects=subjects,
        places=msg("{n} places", n=len(subjects)).render(translate),
        name=msg("{title} ({where})", title=name, where=where).render(translate) if where else name,
        said="; ".join((said, *(c for c in causes if c not in said))),
    )


def _causes(f: Finding) -> Iterator[Text]:
    """What a check says of why a promise was missed: in a note, or as a part of its reason."""
    waiting: list[Any] = [f.reason, *f.notes] if f.outcome == "fail" else []
    while waiting:
        text = waiting.pop(0)
        if isinstance(text, Text):
            if text.template in CAUSES:
                yield text
            waiting += [value for _, value in text.args]


def _said(promised: str, number: str, distance: str, why: str) -> Text:
    """A finding in a line. A word that was found instead of another says little without the reason."""
    if not promised:
        return msg("{why}", why=why)
    if not number:
        return msg("promised {promised}; {why}", promised=promised, why=why)
    if not distance:
        return msg("promised {promised}, measured {measured}", promised=promised, measured=number)
    return msg("promised {promised}, measured {measured}, {gap}", promised=promised, measured=number, gap=distance)


def say(text: Text, translate: Translate) -> str:
    """A sentence of the result, safe to show and of bearable length."""
    return shortened(visible(text.render(translate)), _LONGEST_REASON)
