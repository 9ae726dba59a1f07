"""Rates over time: the per-second series of disks and networks with their named steps, and busbw over message size."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Optional

from agent import stats
from agent.evidence import EVIDENCE
from agent.model import Finding, Measurement, Run
from agent.quantity import QuantityError, convert, dimension_of, format_quantity
from agent.report import numbers
from agent.report.clean import one_line, shortened
from agent.report.figures import Curve, Key, Mark, Panel, Plot, Table, Tick
from agent.report.names import title
from agent.report.places import folders, whole
from agent.report.scale import Axis, axis_over, buckets, path, ticks
from agent.result import clause_of, last_counted
from agent.text import Translate, msg
from agent.tools import ParseError
from agent.tools.allreduce import Allreduce
from agent.tools.allreduce import parse as parse_allreduce

_FAMILIES = ("disk[", "network[", "download[", "backup[")
_MOST_PLOTS = 16
_BUCKETS = 300
_SHORTEST = 10  # seconds: fewer are no series
_MOST_MARKS = 8
_RESULT = "result.json"
_LARGEST = 32 << 20
_LINES = 6


def series(run: Run, translate: Translate) -> tuple[Plot, ...]:
    """One picture for each disk or network measurement that has a per-second series."""
    findings = {key: f for f in run.findings for key in f.measurements}
    plots = (_series(m, findings.get(m.key), translate) for m in run.measurements if m.key.startswith(_FAMILIES))
    return tuple([p for p in plots if p is not None][:_MOST_PLOTS])


def _samples(m: Measurement) -> tuple[list[tuple[float, ...]], str]:
    """The series of the attempt that counts, one for each repetition, and their unit."""
    counted = last_counted(m)
    parts = [b for b in (counted.blocks if counted else ()) if len(b.samples) >= _SHORTEST]
    unit = str(parts[0].conditions.get("series") or m.unit) if parts else m.unit
    return [b.samples for b in parts], unit


def _series(m: Measurement, judged: Optional[Finding], translate: Translate) -> Optional[Plot]:
    parts, unit = _samples(m)
    rates = [v for part in parts for v in part]
    if not rates or not _is_rate(unit) or not all(math.isfinite(v) and v >= 0 for v in rates):
        return None
    shown = _unit(max(rates), unit, judged)
    factor = convert(1.0, unit, shown)
    limit = _limit(judged, shown)
    y, marks = axis_over([v * factor for v in rates] + ([limit] if limit is not None else []), zero=True)
    length = float(len(rates))
    x = Axis(0.0, length)
    steps = list(_steps(parts, unit))
    sign = numbers.promise(judged.limit.op) if judged and judged.limit else ""
    panel = Panel(
        title=one_line(shown),
        y=tuple(Tick(y.percent(v), numbers.number(v)) for v in marks),
        curves=tuple(_repetitions(parts, factor, x, y)),
        levels=(Mark(y.percent(limit), f"{sign} {numbers.number(limit)}", "limit"),) if limit is not None else (),
        marks=tuple(Mark(x.percent(at), str(i)) for i, (at, _, _) in enumerate(steps[:_MOST_MARKS], 1)),
    )
    return Plot(
        title=shortened(title(clause_of(m), translate), 200),
        code=shortened(one_line(clause_of(m)), 80),
        says=_says(rates, parts, unit, translate),
        panels=(panel,),
        x=tuple(Tick(x.percent(t), numbers.number(t)) for t in ticks(0.0, length, 6) if t <= length),
        x_title=msg("seconds, {n} repetitions one after the other", n=len(parts)).render(translate),
        table=_repetition_table(parts, unit, translate),
        notes=_named_steps(steps[:_MOST_MARKS], translate),
    )


def _is_rate(unit: str) -> bool:
    try:
        return dimension_of(unit) == dimension_of("B/s")
    except QuantityError:
        return False


def _unit(most: float, unit: str, judged: Optional[Finding]) -> str:
    if judged and judged.limit and judged.limit.unit and _is_rate(judged.limit.unit):
        return judged.limit.unit
    return format_quantity(most, unit).rpartition(" ")[2] or unit


def _limit(judged: Optional[Finding], unit: str) -> Optional[float]:
    limit = judged.limit if judged else None
    if (
        limit is None
        or limit.unit != unit
        or isinstance(limit.value, bool)
        or not isinstance(limit.value, (int, float))
    ):
        return None
    return float(limit.value) if math.isfinite(limit.value) else None


def _repetitions(parts: Sequence[tuple[float, ...]], factor: float, x: Axis, y: Axis) -> Iterable[Curve]:
    """Each repetition a line of its own, so that no line is drawn over the pause between two."""
    start = 0.0
    for part in parts:
        points = [(start + i + 0.5, v * factor) for i, v in enumerate(part)]
        room = max(20, _BUCKETS // len(parts))
        if len(points) > 2 * room:
            found = buckets(points, start, start + len(part), room)
            # Both ends of each part: a stall of one second must not vanish.
            points = [p for b in found for p in ((b.t, b.low), (b.t, b.high))]
        yield Curve(path(points, x, y), "each")
        start += len(part)


def _steps(parts: Sequence[tuple[float, ...]], unit: str) -> Iterable[tuple[int, str, str]]:
    start = 0
    for part in parts:
        for step in stats.steps(part):
            yield start + step.at_s, format_quantity(step.before, unit), format_quantity(step.after, unit)
        start += len(part)


def _named_steps(steps: Sequence[tuple[int, str, str]], translate: Translate) -> tuple[str, ...]:
    """All steps as one line: the numbers stand in the picture."""
    said = (
        msg("{i}: at {s} s from {before} to {after}", i=i, s=at, before=before, after=after).render(translate)
        for i, (at, before, after) in enumerate(steps, 1)
    )
    return (msg("Steps: {steps}", steps=tuple(said)).render(translate),) if steps else ()


def _repetition_table(parts: Sequence[tuple[float, ...]], unit: str, translate: Translate) -> Table:
    heads = (msg("Repetition"), msg("Lowest second"), msg("Median"), msg("Highest second"))
    rows = (
        (str(i), *(format_quantity(v, unit) for v in (min(part), median(part), max(part))))
        for i, part in enumerate(parts, 1)
    )
    return Table(tuple(h.render(translate) for h in heads), tuple(rows))


def _says(rates: Sequence[float], parts: Sequence[Sequence[float]], unit: str, translate: Translate) -> str:
    low, middle, high = (format_quantity(v, unit) for v in (min(rates), median(rates), max(rates)))
    text = msg(
        "{n} repetitions, {s} seconds in all: lowest second {low}, median {middle}, highest {high}",
        n=len(parts), s=len(rates), low=low, middle=middle, high=high,
    )  # fmt: skip
    return text.render(translate)


# ---------------------------------------------------------------- busbw over message size


def sweeps(run: Run, folder: Optional[Path], translate: Translate) -> tuple[Plot, ...]:
    """Bus bandwidth over message size, from the worker's own result; one picture an execution."""
    plots: list[Optional[Plot]] = []
    for code in ("allreduce.busbw", "collectives"):
        asked = [f for f in run.findings if f.clause.startswith(code)]
        # Several collectives in one picture have a limit each.
        judged = asked[0] if len(asked) == 1 else None
        plots += [_sweep(one, code, judged, translate) for one in _measured(run, folder, code)]
    return tuple(p for p in plots if p is not None)


def _measured(run: Run, folder: Optional[Path], code: str) -> Iterable[Allreduce]:
    cited = {e for m in run.measurements if m.key.startswith(code) for a in m.attempts for e in a.evidence}
    for place in folders(folder):
        raw = whole(place / _RESULT, _LARGEST) if f"{EVIDENCE}/{place.name}" in cited else None
        if raw is None:
            continue
        try:
            data: Any = json.loads(raw)
            yield parse_allreduce(data if isinstance(data, Mapping) else {})
        except (ValueError, RecursionError, ParseError):
            continue  # the finding that rests on it says so


def _sweep(measured: Allreduce, code: str, judged: Optional[Finding], translate: Translate) -> Optional[Plot]:
    lines: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for row in measured.rows:
        if row.block is None and row.busbw and row.bytes > 0:
            lines.setdefault((row.op, row.count), []).append((float(row.bytes), median(row.busbw)))
    lines = dict([(k, sorted(v)) for k, v in lines.items() if len(v) > 1][-_LINES:])
    if not lines:
        return None
    sizes = sorted({size for points in lines.values() for size, _ in points})
    x = Axis(sizes[0], sizes[-1], log=True)
    limit = _limit(judged, "GB/s")
    y, marks = axis_over([v for p in lines.values() for _, v in p] + ([limit] if limit is not None else []), zero=True)
    names = {key: _named(key, translate) for key in lines}
    panel = Panel(
        title="GB/s",
        y=tuple(Tick(y.percent(v), numbers.number(v)) for v in marks),
        curves=tuple(Curve(path(p, x, y), f"line-{i}", names[k]) for i, (k, p) in enumerate(lines.items())),
        levels=(Mark(y.percent(limit), f"≥ {numbers.number(limit)}", "limit"),) if limit is not None else (),
    )
    best = max(v for p in lines.values() for _, v in p)
    shown = numbers.quantity(best, "GB/s", translate)
    heads = (msg("Message size").render(translate), *names.values())
    return Plot(
        title=msg("Bus bandwidth over message size").render(translate),
        code=code,
        says=msg("{n} sizes; highest {best}", n=len(sizes), best=shown).render(translate),
        panels=(panel,),
        x=tuple(Tick(x.percent(s), binary(s)) for s in _round_sizes(sizes)),
        x_title=msg("message size").render(translate),
        keys=tuple(Key(f"line-{i}", n) for i, n in enumerate(names.values())),
        table=Table(heads, tuple(_row(s, lines.values()) for s in sizes)),
    )


def _named(key: tuple[str, int], translate: Translate) -> str:
    return msg("{op}, {n} GPUs", op=one_line(key[0]), n=key[1]).render(translate)


def _row(size: float, lines: Iterable[list[tuple[float, float]]]) -> tuple[str, ...]:
    values = (dict(points).get(size) for points in lines)
    return (binary(size), *(numbers.NONE if v is None else numbers.number(v) for v in values))


def _round_sizes(sizes: Sequence[float]) -> list[float]:
    """1 KiB, 1 MiB, 1 GiB and what lies between in steps of 32."""
    powers = [float(1 << p) for p in range(0, 61, 5)]
    return [p for p in powers if sizes[0] <= p <= sizes[-1]]


def binary(size: float) -> str:
    """A message size as it is written everywhere: ``32 MiB``."""
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << power:
            return f"{size / (1 << power):g} {unit}"
    return f"{size:g} B"
