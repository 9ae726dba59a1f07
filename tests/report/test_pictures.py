"""Pictures: drawn only where there are data, right in their places, short, and never fooled by what a file holds."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from agent.model import Attempt, Block, Measurement, Run
from agent.report import courses, links, scale
from agent.report.pictures import pictures
from agent.report.timelines import state
from agent.tools.topo import parse
from tests.report import evidence
from tests.report.large import large_run, write_large
from tests.report.samples import SLOW, sample_run, write_evidence

FIXTURES = Path(__file__).parents[1] / "fixtures" / "tools"
READABLE = [p for p in sorted(FIXTURES.glob("topo--*.json")) if "gpus" in json.loads(p.read_text(encoding="utf-8"))]


def _end(d: str) -> tuple[int, int]:
    x, y = re.findall(r"[ML](\d+) (\d+)", d)[-1]
    return int(x), int(y)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 100.0, (0.0, 20.0, 40.0, 60.0, 80.0, 100.0)),
        (34.2, 91.0, (20.0, 40.0, 60.0, 80.0, 100.0)),
        (0.0, 0.0007, (0.0, 0.0002, 0.0004, 0.0006, 0.0008)),
        (5.0, 5.0, ()),
        (0.0, float("inf"), ()),
    ],
)
def test_ticks_are_round_and_cover(low: float, high: float, expected: tuple[float, ...]) -> None:
    assert scale.ticks(low, high) == pytest.approx(expected)


def test_a_path_lifts_the_pen_where_nothing_was_measured() -> None:
    x, y = scale.Axis(0, 10), scale.Axis(0, 10)
    assert scale.path([(0, 0), (5, 10), (6, float("nan")), (10, 5)], x, y) == "M0 200L500 0M1000 100"


def test_buckets_keep_what_is_extreme() -> None:
    points = [(float(t), 100.0) for t in range(1000)]
    points[500] = (500.0, 3.0)
    found = scale.buckets(points, 0.0, 999.0, 50)
    assert len(found) == 50
    assert min(b.low for b in found) == 3.0
    assert {b.middle for b in found} == {100.0}


def test_one_bad_sample_colours_its_stretch() -> None:
    samples = [(float(t), "bad" if t == 5 else "cap") for t in range(10)]
    found = scale.stretches(samples, 0.0, 9.0, 3, ("cap", "bad").index)
    assert [kind for _, _, kind in found] == ["cap", "bad", "cap"]


@pytest.mark.parametrize(
    ("bits", "expected"),
    [(0x0, None), (0x1, None), (0x4, "cap"), (0x4 | 0x20, "bad"), (0x40, "bad"), (0x80, "bad"), (None, None)],
)
def test_states_of_a_clock(bits: int, expected: str) -> None:
    assert state(bits) == expected


def test_all_pictures_of_a_rejected_node(tmp_path: Path) -> None:
    write_evidence(tmp_path)
    found = pictures(sample_run("rejected"), tmp_path, str)
    assert found.graph
    assert [b.label for b in found.graph.boxes if "gpu" in b.kind] == [f"GPU{i}" for i in range(8)]
    assert [b.label for b in found.graph.boxes if b.kind == "gpu bad"] == ["GPU5"]
    assert any("NV18" in line.label for line in found.graph.lines)
    assert found.copies
    row = dict(found.copies.rows)["GPU 5"]
    assert [c.heat for c in row] == ["bad"] * 5 + ["self"] + ["bad"] * 2
    assert len(found.sweeps) == len(found.timelines) == len(found.series) == 1
    sweep = found.sweeps[0]
    assert [k.label for k in sweep.keys] == ["all_reduce, 2 GPUs", "all_reduce, 4 GPUs", "all_reduce, 8 GPUs"]
    assert [t.label for t in sweep.x] == ["32 B", "1 KiB", "32 KiB", "1 MiB", "32 MiB", "1 GiB"]


def test_other_collectives_have_their_sizes_drawn_too(tmp_path: Path) -> None:
    write_evidence(tmp_path)
    run = sample_run("rejected")

    def named(op: str) -> Run:
        """As if not the all-reduce had been promised but this."""
        key = f"collectives.{op}"
        measurements = tuple(replace(m, key=key) if m.key == "allreduce.busbw" else m for m in run.measurements)
        findings = tuple(replace(f, clause=key) if f.clause == "allreduce.busbw" else f for f in run.findings)
        return replace(run, measurements=measurements, findings=findings)

    (one,) = pictures(named("all_gather"), tmp_path, str).sweeps
    assert (one.code, len(one.panels[0].levels)) == ("collectives", 1)
    again = named("all_gather")
    twice = replace(again, findings=(*again.findings, *named("all_to_all").findings))
    (both,) = pictures(twice, tmp_path, str).sweeps
    assert both.panels[0].levels == (), "two collectives have a limit each: none is drawn through both"


def test_the_timeline_singles_out_the_hot_card(tmp_path: Path) -> None:
    write_evidence(tmp_path)
    (plot,) = pictures(sample_run("rejected"), tmp_path, str).timelines
    assert [p.title for p in plot.panels] == ["Temperature, °C", "Power, W", "Clock, MHz"]
    assert [[c.kind for c in p.curves] for p in plot.panels] == [["each"] * 7 + ["bad"]] * 3
    hot = plot.panels[0].curves[-1]
    assert hot.label == "GPU 5"
    assert _end(hot.d)[1] < _end(plot.panels[0].curves[0].d)[1], "hotter is higher"
    held = {row.label: {b.kind for b in row.bands} for row in plot.rows}
    assert {label for label, kinds in held.items() if "bad" in kinds} == {"GPU 5"}
    table = {row[0]: row for row in plot.table.rows}
    assert float(table["GPU 5"][1].split("\u202f")[0]) > 85
    assert table["GPU 0"][4] == "0\u202f%"


def test_a_series_names_its_steps(tmp_path: Path) -> None:
    (plot,) = courses.series(sample_run("rejected"), str)
    assert plot.panels[0].levels[0].label == "≥ 1.9"
    assert [m.label for m in plot.panels[0].marks] == ["1", "2", "3", "4", "5", "6"]
    assert "1: at 24 s from 2.893 GB/s to 1.284 GB/s" in plot.notes[0]
    (steady,) = courses.series(sample_run("accepted"), str)
    assert steady.notes == ()


def test_a_stall_of_one_second_is_drawn() -> None:
    rates = [1e9] * 600
    rates[300] = 0.0
    attempt = Attempt((Block(1e9, tuple(rates)),), "standard", "2026-11-30T12:00:00Z")
    measurement = Measurement("disk[/d].read", "B/s", "median of repetitions", (attempt,))
    run = replace(sample_run("accepted"), measurements=(measurement,), findings=())
    (plot,) = courses.series(run, str)
    lowest = max(int(y) for _, y in re.findall(r"[ML](\d+) (\d+)", plot.panels[0].curves[0].d))
    assert lowest == scale.HIGH


@pytest.mark.parametrize("case", ["accepted", "rejected"])
def test_nothing_is_drawn_without_data(case: str) -> None:
    run = replace(sample_run("accepted"), measurements=())
    found = pictures(run, None, str)
    assert (found.graph, found.links, found.copies) == (None, None, None)
    assert found.sweeps == found.timelines == found.series == ()
    assert not found.connections


@pytest.mark.parametrize(
    "raw",
    [b"", b"{}", b"\xff\xfe", b'{"telemetry":1}\n', b"[" * 10000, b'{"rows": [{}]}', b'{"rows": "x", "log": 1}'],
    ids=["empty", "object", "bytes", "no header", "deep", "no row", "no rows"],
)
def test_a_broken_file_is_not_drawn(raw: bytes, tmp_path: Path) -> None:
    write_evidence(tmp_path)
    for name in ("0014-burn/telemetry.jsonl", "0020-allreduce/result.json", "0005-topo-m/stdout"):
        (tmp_path / "evidence" / name).write_bytes(raw)
    found = pictures(sample_run("rejected"), tmp_path, str)
    assert (found.graph, found.sweeps, found.timelines) == (None, (), ())
    assert found.copies, "what the result holds is drawn all the same"


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    write_evidence(tmp_path / "run")
    place = tmp_path / "run" / "evidence" / "0005-topo-m"
    outside = tmp_path / "elsewhere"
    (place / "stdout").rename(outside)
    (place / "stdout").symlink_to(outside)
    assert links.topology(tmp_path / "run") is None


@pytest.mark.parametrize("fixture", READABLE, ids=lambda p: p.stem)
def test_every_topology_that_can_be_read_can_be_drawn(fixture: Path) -> None:
    found = parse(fixture.with_suffix(".txt").read_bytes().decode("utf-8", "replace"))
    graph = links.graph(found, sample_run("accepted"), str)
    if graph is None:
        assert not 2 <= len(found.gpus) <= 16
        return
    assert sum("gpu" in b.kind for b in graph.boxes) == len(found.gpus)
    assert all(b.x >= 0 and b.x + b.w <= graph.w and b.y + b.h <= graph.h for b in graph.boxes)
    linked = any(re.match(r"NV\d", w) for row in found.links.values() for w in row.values())
    assert any(line.kind == "nvlink" for line in graph.lines) == linked


def test_no_card_is_blamed_for_an_advisory(tmp_path: Path) -> None:
    run = sample_run("rejected")
    findings = tuple(replace(f, severity="advisory") for f in run.findings)
    graph = links.graph(parse(evidence.topology()), replace(run, findings=findings), str)
    assert graph
    assert SLOW not in {b.label for b in graph.boxes if b.kind == "gpu bad"}
    assert not any(b.kind == "gpu bad" for b in graph.boxes)


@pytest.mark.slow
@pytest.mark.parametrize(("cards", "most"), [(8, 600_000), (72, 1_200_000)])
def test_a_full_run_stays_small(cards: int, most: int, tmp_path: Path) -> None:
    """Six thousand samples of every card; in a process of its own, for its memory."""
    write_large(tmp_path, cards)
    code = (
        "import re, sys, time; from pathlib import Path; from agent import report; "
        f"from tests.report.large import large_run; run = large_run({cards}); "
        "report.render(run, 'html'); before = time.process_time(); "
        "page = report.render(run, 'html', Path(sys.argv[1]), 'en'); "
        # Not ru_maxrss: a child inherits there what the process that started it had in memory.
        "peak = re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1]; "
        "print(len(page.encode()), time.process_time() - before, peak)"
    )
    argv = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    size, seconds, kib = done.stdout.split()
    assert int(size) < most
    if cards == 8:
        assert float(seconds) < 1.5
        assert int(kib) < 200 * 1024


def test_many_cards_are_a_range_with_the_odd_one_above(tmp_path: Path) -> None:
    write_evidence(tmp_path)
    text = evidence.telemetry(60, 2, slow=5, cards=72)
    (tmp_path / "evidence" / "0014-burn" / "telemetry.jsonl").write_text(text, encoding="utf-8")
    (plot,) = pictures(large_run(72), tmp_path, str).timelines
    assert [c.kind for c in plot.panels[0].curves] == ["range", "each", "odd"]
    assert [row.label for row in plot.rows] == ["GPU 5"]
    assert [k.label for k in plot.keys][:2] == ["GPU 5", "the other 71 GPUs"]
