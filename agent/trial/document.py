"""The trial's report: one structure, written as JSON, Markdown or HTML. Everything from the machine is escaped."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any, Optional, Union

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from agent import __version__, resources
from agent.model import Finding
from agent.report import looks, numbers
from agent.report.clean import one_line, visible
from agent.report.names import title
from agent.report.phrases import PROFILES, STATES, VERDICTS
from agent.text import Text, Translate, msg
from agent.trial.judge import FALSE_FAIL, Judged, Series, Trial, local_hour, needed
from agent.trial.runs import TrialRun
from agent.trial.series import ERROR, EVENING_RUNS, EVENINGS, Drift, Drop

SCHEMA = "accept.trial-report/1"
FORMATS = ("html", "md", "json")
NOT_IN_RUN = "–"
SIGNS = {"pass": "✓", "fail": "✗", "inconclusive": "?", "not-asked": "·", NOT_IN_RUN: "·"}
TONES = {"pass": "good", "fail": "bad", "inconclusive": "open"}
WIDTH, HEIGHT, MARGIN = 640.0, 120.0, 8.0
LEFT = 84.0  # where the pictures begin: the numbers of the scale stand before it

Data = dict[str, Any]


def rules(trial: Trial) -> tuple[Text, ...]:
    """How the verdict came about, with this trial's own numbers."""
    measured = sum(any(r.outcomes[i].measured for r in trial.runs if i in r.outcomes) for i in _ids(trial.runs))
    return (
        msg("A fact is exact: broken in one run, it is broken."),
        msg(
            "A measured promise is broken when at least {k} of {n} runs broke it: a healthy machine breaks it by "
            "chance in {q} % of looks at the most, and chance may reject {error} % of trials over {m} such promises.",
            k=needed(len(trial.runs), max(1, measured)),
            n=len(trial.runs),
            q=f"{100 * FALSE_FAIL:g}",
            error=f"{100 * ERROR:g}",
            m=measured,
        ),
        msg("A promise is kept when no run broke it and the last standard run found it kept."),
        msg(
            "The evening is held against the rest by a t interval of the logarithms, its error of {error} % shared by "
            "{m} series; it needs {n} runs on {days} evenings.",
            error=f"{100 * ERROR:g}",
            m=len(trial.series),
            n=EVENING_RUNS,
            days=EVENINGS,
        ),
        msg("A part that was exchanged leaves the trial open: earlier runs do not cover the new part."),
    )


def _ids(runs: Sequence[TrialRun]) -> list[str]:
    return list(dict.fromkeys(key for run in runs for key in run.outcomes))


def _strip(key: str, runs: Sequence[TrialRun]) -> list[str]:
    return [r.outcomes[key].outcome if key in r.outcomes else NOT_IN_RUN for r in runs]


def data_of(trial: Trial, translate: Translate) -> Data:
    """Everything as JSON-ready data, sentences in the reader's language."""
    return {
        "schema": SCHEMA,
        "agent_version": __version__,
        "contract": {"id": trial.contract_id},
        "verdict": trial.verdict,
        "headline": trial.headline.render(translate),
        "evening": trial.evening,
        "timezone": trial.timezone,
        "runs": [_run(n, r) for n, r in enumerate(trial.runs, 1)],
        "slots": _slots(trial),
        "unread": [{"folder": u.folder, "why": u.why.render(translate)} for u in trial.unread],
        "findings": [_finding(j, translate) for j in trial.judged],
        "strips": {i: _strip(i, trial.runs) for i in _ids(trial.runs)},
        "series": [_series(s, trial) for s in trial.series],
        "events": [
            {"kind": e.kind, "run": e.run, "subject": e.subject, "said": e.said.render(translate)} for e in trial.events
        ],
        "rules": [r.render(translate) for r in rules(trial)],
    }


def _run(number: int, run: TrialRun) -> Data:
    return {
        "number": number,
        "folder": run.folder,
        "at": f"{run.at:%Y-%m-%dT%H:%M:%SZ}",
        "profile": run.profile,
        "complete": run.complete,
        "verdict": run.verdict,
        "boot_id": run.boot_id,
        "hostname": run.hostname,
    }


def _slots(trial: Trial) -> list[Data]:
    slots = trial.schedule.slots if trial.schedule is not None else ()
    return [
        {
            "number": s.number,
            "at": f"{s.at:%Y-%m-%dT%H:%M:%SZ}",
            "profile": s.profile,
            "state": s.state,
            "folder": s.folder,
            "note": s.note,
        }
        for s in slots
    ]


def _finding(judged: Judged, translate: Translate) -> Data:
    f: Finding = judged.finding
    return {
        "id": f.id,
        "clause": f.clause,
        "subject": f.subject,
        "outcome": f.outcome,
        "severity": f.severity,
        "promised": f.promised,
        "measured": f.measured,
        "unit": f.unit,
        "interval": None if f.interval is None else list(f.interval),
        "limit": None if f.limit is None else {"op": f.limit.op, "value": f.limit.value, "unit": f.limit.unit},
        "reason_code": f.reason_code,
        "reason": f.reason.render(translate),
        "ref": f.ref,
        "runs": list(judged.runs),
    }


def _series(one: Series, trial: Trial) -> Data:
    hours: dict[int, list[float]] = {}
    for number, point in one.points:
        hours.setdefault(local_hour(trial.runs[number - 1], trial.timezone), []).append(point.value)
    evening = {s.run for s in one.samples if s.evening}
    return {
        "key": one.key,
        "unit": one.unit,
        "limit": one.limit,
        "points": [
            {
                "run": n,
                "value": p.value,
                "interval": [p.low, p.high],
                "depth": p.depth,
                "weak": p.weak,
                "evening": n in evening,
            }
            for n, p in one.points
        ],
        "hours": [{"hour": h, "runs": len(v), "median": median(v)} for h, v in sorted(hours.items())],
        "evening_drop": None
        if one.drop is None
        else {
            "share": one.drop.share,
            "interval": [one.drop.low, one.drop.high],
            "evening_runs": one.drop.evening_runs,
        },
        "drift": None
        if one.drift is None
        else {"share": one.drift.share, "interval": [one.drift.low, one.drift.high], "since_run": one.drift.since},
    }


def _shares(found: Union[Drop, Drift], **more: Optional[int]) -> Data:
    return {"share": found.share, "interval": [found.low, found.high], **more}


def render(trial: Trial, name: str, translate: Translate, language: str) -> str:
    """``html``, ``md`` or ``json``. KeyError for another name."""
    data = data_of(trial, translate)
    if name == "json":
        return json.dumps(data, ensure_ascii=False, indent=1, allow_nan=False) + "\n"
    return {"md": _markdown, "html": _html}[name](data, translate, language)


# ---- Markdown


def _markdown(data: Data, translate: Translate, language: str) -> str:
    return "\n".join(_lines(data, translate)) + "\n"


def _lines(data: Data, t: Translate) -> Iterator[str]:
    title = msg("Trial: {verdict}", verdict=VERDICTS[data["verdict"]])
    yield f"# {_say(t, title)}"
    yield ""
    yield _cell(data["headline"])
    yield ""
    yield from _table(
        [msg("Promise"), msg("Outcome"), msg("Runs"), msg("Why")], (_finding_row(f, t) for f in data["findings"]), t
    )
    if data["events"]:
        happened = msg("What happened")
        yield f"## {_say(t, happened)}"
        yield ""
        for e in data["events"]:
            run = msg("run {n}", n=e["run"])
            owner = f" ({_cell(e['subject'])})" if e["kind"] in ("growth", "cleared") else ""
            yield f"- {_say(t, run)}: {_cell(e['said'])}{owner}"
        yield ""
    if data["series"]:
        heads = [msg("Number"), msg("Median"), msg("Limit"), msg("Evening drop"), msg("Change over the trial")]
        yield from _table(heads, (_series_row(s, t) for s in data["series"]), t)
    heads = [msg("Run"), msg("Begun (UTC)"), msg("Profile"), msg("Verdict"), msg("Folder")]
    rows = (
        [r["number"], r["at"], _worded(PROFILES, r["profile"], t), _worded(VERDICTS, r["verdict"], t), r["folder"]]
        for r in data["runs"]
    )
    yield from _table(heads, rows, t)
    missed = [s for s in data["slots"] if s["state"] != "done" or s["note"]]
    if missed:
        rows = ([s["number"], s["at"], _worded(STATES, s["state"], t), s["note"] or ""] for s in missed)
        yield from _table([msg("Slot"), msg("Planned (UTC)"), msg("State"), msg("Note")], rows, t)
    for u in data["unread"]:
        unread = msg("{folder} cannot be read: {why}", folder=u["folder"], why=u["why"])
        yield f"- {_say(t, unread)}"
    rules = msg("Rules")
    yield f"## {_say(t, rules)}"
    yield ""
    for rule in data["rules"]:
        yield f"- {_cell(rule)}"


def _finding_row(f: Data, t: Translate) -> list[Any]:
    runs = ", ".join(map(str, f["runs"]))
    return [f"{f['id']} {f['promised']}".strip(), f"{SIGNS[f['outcome']]} {_outcome(f, t)}", runs, f["reason"]]


def _outcome(f: Data, t: Translate) -> str:
    """The word that the reports of single runs have for it."""
    return looks.of_outcome(f["outcome"], f["severity"]).word.render(t)


def _worded(of: Mapping[str, Text], word: Optional[str], t: Translate) -> str:
    """One of our own words (a verdict, a profile, a state) in the reader's language."""
    return NOT_IN_RUN if word is None else of[word].render(t) if word in of else word


def _number(value: float, s: Data, t: Translate) -> str:
    """A number of a series, on the side of the limit where it lies."""
    return numbers.quantity(value, s["unit"], t, [] if s["limit"] is None else [s["limit"]])


def _limit(s: Data, t: Translate) -> str:
    if s["limit"] is None:
        return NOT_IN_RUN
    return numbers.quantity(s["limit"], s["unit"], t, [_middle(s)])


def _middle(s: Data) -> float:
    return float(median(p["value"] for p in s["points"]))


def _series_row(s: Data, t: Translate) -> list[Any]:
    return [s["key"], _number(_middle(s), s, t), _limit(s, t), _share(s["evening_drop"]), _share(s["drift"])]


def _share(found: Optional[Data]) -> str:
    if found is None:
        return NOT_IN_RUN
    low, high = found["interval"]
    return f"{100 * found['share']:+.1f} % ({100 * low:+.1f} … {100 * high:+.1f})"


def _table(heads: Sequence[Text], rows: Any, t: Translate) -> Iterator[str]:
    yield "| " + " | ".join(_say(t, h) for h in heads) + " |"
    yield "|" + "---|" * len(heads)
    for row in rows:
        yield "| " + " | ".join(_cell(str(c)) for c in row) + " |"
    yield ""


def _say(t: Translate, text: Text) -> str:
    return _cell(text.render(t))


def _cell(text: str) -> str:
    safe = one_line(text).replace("&", "&amp;").replace("<", "&lt;")
    return safe.replace("\\", "\\\\").replace("|", "\\|").replace("`", "\\`")


# ---- HTML


def _html(data: Data, translate: Translate, language: str) -> str:
    environment = Environment(
        loader=FileSystemLoader(str(resources.path("templates"))),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.i18n"],
        finalize=_harmless,
    )
    environment.globals.update(_=translate, gettext=translate)
    style = Markup(resources.path("templates", "report.css").read_text(encoding="utf-8"))  # noqa: S704 - our own file
    return environment.get_template("trial.html.j2").render(
        d=data,
        verdict=VERDICTS[data["verdict"]].render(translate),
        tone={"accepted": "good", "rejected": "bad"}.get(data["verdict"], "open"),
        tones=TONES,
        signs=SIGNS,
        charts=[chart(s, len(data["runs"]), translate) for s in data["series"]],
        outcome=lambda f: _outcome(f, translate),
        number=lambda value, s: _number(value, s, translate),
        limit=lambda s: _limit(s, translate),
        profile=lambda word: _worded(PROFILES, word, translate),
        judged=lambda word: _worded(VERDICTS, word, translate),
        state=lambda word: _worded(STATES, word, translate),
        share=_share,
        middle=_middle,
        title=lambda key: title(key.partition("@")[0], translate),
        style=style,
        lang={"zh": "zh-Hans"}.get(language, language),
    )


def _harmless(value: Any) -> Any:
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def chart(series: Mapping[str, Any], runs: int, translate: Translate = str) -> Data:
    """Coordinates of a picture of 640 × 120: each run's interval as a bar, its value as a dot, the limit as a line.

    ``high`` and ``low``: the numbers at the ends of the scale, which begins at ``left``.
    """
    points = series["points"]
    ends = [end for p in points for end in p["interval"]] + ([] if series["limit"] is None else [series["limit"]])
    low, high = min(ends), max(ends)
    top, bottom = (_number(end, dict(series), translate) for end in (high, low))
    room = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    ends_of = (low, high)
    low, high = low - room, high + room

    def across(run: int) -> float:
        return round(LEFT + (WIDTH - LEFT - MARGIN) * (run - 0.5) / max(1, runs), 1)

    def down(value: float) -> float:
        return float(round(MARGIN + (HEIGHT - 2 * MARGIN) * (high - value) / (high - low), 1))

    return {
        "width": WIDTH,
        "height": HEIGHT,
        "left": LEFT,
        "high": {"y": down(ends_of[1]), "text": top},
        "low": {"y": down(ends_of[0]), "text": bottom},
        "limit": None if series["limit"] is None else down(series["limit"]),
        "dots": [
            {
                "x": across(p["run"]),
                "y": down(p["value"]),
                "top": down(p["interval"][1]),
                "bottom": down(p["interval"][0]),
                "evening": p["evening"],
                "title": f"{p['run']}: {_number(p['value'], dict(series), translate)}",
            }
            for p in points
        ],
    }
