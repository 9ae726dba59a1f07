"""The plan of a trial and going through it, on a clock that does not wait."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Callable, Optional

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.trial import presence
from agent.trial.drive import drive, recover
from agent.trial.presence import Boot
from agent.trial.schedule import FILE, Evening, Schedule, ScheduleError, Slot, evening_of, plan, read, write, zone_of

START = datetime(2026, 11, 30, 2, 0, tzinfo=timezone.utc)


@pytest.fixture(autouse=True)
def long_naps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half an hour between two looks at the clock, so that three days are not 8,640 writes."""
    monkeypatch.setattr("agent.trial.drive.NAP_S", 1800.0)


def made(every_h: float = 4, days: float = 3, start: datetime = START, zone: str = "Asia/Shanghai") -> Schedule:
    return plan("c" * 64, start, every_h * 3600, days * 86400, "19:00-23:00", zone)


class Clock:
    """Time passes only by waiting, and by what a run takes."""

    def __init__(self, now: datetime) -> None:
        self.time = now
        self.up_s = 600.0  # what nobody sets

    def now(self) -> datetime:
        return self.time

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.time += timedelta(seconds=seconds)
        self.up_s += seconds

    def boot(self) -> Boot:
        return Boot("boot-1", self.up_s)


def through(
    folder: Path, schedule: Schedule, clock: Clock, act: Callable[[Slot, Path], Optional[str]], due: bool = False
) -> list[Slot]:
    return [s for _, s in drive(folder, schedule, clock, act, due, boot=clock.boot)]


def finishing(clock: Clock, minutes: float = 10) -> Callable[[Slot, Path], Optional[str]]:
    def act(slot: Slot, folder: Path) -> Optional[str]:
        folder.mkdir()
        clock.sleep(minutes * 60)
        (folder / "result.json").write_text(json.dumps({"complete": True}))
        return None

    return act


def test_the_usual_trial_has_18_runs_standard_first_and_last() -> None:
    slots = made().slots
    assert [s.profile for s in slots] == ["standard", *["quick"] * 16, "standard"]
    assert slots[0].at == START
    assert all(one.at < two.at for one, two in zip(slots, slots[1:]))
    assert len({s.at.minute for s in slots}) > 5, "jitter"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    every=st.floats(0.5, 24), days=st.floats(2.5, 7), hour=st.integers(0, 23),
    zone=st.sampled_from(["Asia/Shanghai", "America/New_York", "UTC"]),
)  # fmt: skip
def test_every_whole_evening_within_the_trial_has_a_run(every: float, days: float, hour: int, zone: str) -> None:
    found = made(every, days, START.replace(hour=hour), zone)
    times = [s.at for s in found.slots]
    assert times == sorted(times)
    if every > 8:
        return  # fewer runs than evenings and neighbours allow
    evening, at = found.hours, times[0].astimezone(found.zone).date()
    while at <= times[-1].astimezone(found.zone).date():
        begin, end = evening.bounds(at, found.zone)
        if begin >= times[0] and end <= times[-1]:
            assert any(begin <= t < end for t in times)
        at += timedelta(days=1)


def test_an_evening_over_midnight_belongs_to_the_day_it_began() -> None:
    evening = evening_of("22：00~02:00")
    assert evening == Evening(22 * 60, 2 * 60)
    late = datetime(2026, 12, 1, 1, 30)
    assert evening.holds(late)
    assert not evening.holds(late.replace(hour=3))
    assert evening.day(late).isoformat() == "2026-11-30"


@pytest.mark.parametrize(("every_h", "days"), [(0.001, 1), (4, 0.1), (1 / 60, 30)])
def test_times_that_make_no_trial_are_refused(every_h: float, days: float) -> None:
    with pytest.raises(ScheduleError):
        made(every_h, days)


def test_an_unknown_time_zone_is_named() -> None:
    with pytest.raises(ScheduleError, match="Asia/Nowhere"):
        zone_of("Asia/Nowhere")


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    found = made().with_slot(Slot(3, START, "quick", "missed", "0003", "a note"))
    write(tmp_path, found)
    assert read(tmp_path) == found


@pytest.mark.parametrize("text", ["[]", "{}", '{"schema": "accept.trial/9"}'])
def test_another_file_is_no_plan(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(ScheduleError):
        read(tmp_path)


def test_all_runs_are_made_at_their_times(tmp_path: Path) -> None:
    clock = Clock(START)
    ended = through(tmp_path, made(), clock, finishing(clock))
    assert [s.state for s in ended] == ["done"] * 18
    assert read(tmp_path).next() is None
    (span,) = presence.spans(tmp_path)
    assert (span.last - span.first).total_seconds() > 60 * 3600
    assert presence.share_up([span]) == 1.0


def test_a_run_that_outlasts_the_next_ones_makes_them_missed(tmp_path: Path) -> None:
    clock = Clock(START)
    slow = finishing(clock, minutes=11 * 60)
    quick = finishing(clock)
    ended = through(tmp_path, made(), clock, lambda s, f: (slow if s.number == 2 else quick)(s, f))
    assert [s.number for s in ended if s.state == "missed"] == [3, 4]
    assert all(s.folder is None for s in ended if s.state == "missed")


def test_killed_in_a_run_the_next_start_goes_on_and_runs_nothing_twice(tmp_path: Path) -> None:
    clock = Clock(START)
    ran: list[int] = []
    finish = finishing(clock)

    def killed(slot: Slot, folder: Path) -> Optional[str]:
        ran.append(slot.number)
        if slot.number == 2:
            folder.mkdir()
            raise KeyboardInterrupt
        return finish(slot, folder)

    with pytest.raises(KeyboardInterrupt):
        through(tmp_path, made(), clock, killed)
    assert read(tmp_path).slots[1].state == "running"
    clock.time += timedelta(hours=9)

    def going_on(slot: Slot, folder: Path) -> Optional[str]:
        ran.append(slot.number)
        return finish(slot, folder)

    again = through(tmp_path, read(tmp_path), clock, going_on)
    states: Sequence[str] = [s.state for s in read(tmp_path).slots]
    assert states[:3] == ["done", "broken-off", "missed"]
    assert set(states[3:]) == {"done"}
    assert len(ran) == len(set(ran))
    assert again[0].state == "missed"


def test_a_run_that_ended_just_before_the_kill_counts(tmp_path: Path) -> None:
    (tmp_path / "0001").mkdir()
    (tmp_path / "0001" / "result.json").write_text('{"complete": true}')
    found = recover(tmp_path, made().with_slot(Slot(1, START, "standard", "running", "0001")))
    assert found.slots[0].state == "done"


def test_a_full_disk_in_one_run_does_not_end_the_trial(tmp_path: Path) -> None:
    clock = Clock(START)
    finish = finishing(clock)

    def full(slot: Slot, folder: Path) -> Optional[str]:
        if slot.number == 3:
            raise OSError(28, "No space left on device")
        return finish(slot, folder)

    through(tmp_path, made(), clock, full)
    slots = read(tmp_path).slots
    assert (slots[2].state, slots[2].note) == ("broken-off", "No space left on device")
    assert [s.state for s in slots].count("done") == 17


def test_a_timer_does_what_is_due_and_returns(tmp_path: Path) -> None:
    clock = Clock(START)
    assert [s.number for s in through(tmp_path, made(), clock, finishing(clock), due=True)] == [1]
    assert through(tmp_path, read(tmp_path), clock, finishing(clock), due=True) == []
    clock.time = made().slots[1].at
    assert [s.number for s in through(tmp_path, read(tmp_path), clock, finishing(clock), due=True)] == [2]


def test_a_clock_set_back_waits_and_repeats_nothing(tmp_path: Path) -> None:
    clock = Clock(START)
    finish = finishing(clock)

    def stepping(slot: Slot, folder: Path) -> Optional[str]:
        finish(slot, folder)
        if slot.number == 5:
            clock.time -= timedelta(hours=10)
        return None

    ended = through(tmp_path, made(), clock, stepping)
    assert [(s.number, s.state) for s in ended] == [(n, "done") for n in range(1, 19)]
    (span,) = presence.spans(tmp_path)
    assert [step.by_s for step in span.steps] == [-36000]


def test_a_clock_set_forward_misses_what_lies_between_and_is_told(tmp_path: Path) -> None:
    clock = Clock(START)
    finish = finishing(clock)

    def stepping(slot: Slot, folder: Path) -> Optional[str]:
        finish(slot, folder)
        if slot.number == 5:
            clock.time += timedelta(hours=9)
        return None

    ended = through(tmp_path, made(), clock, stepping)
    assert [s.number for s in ended if s.state == "missed"] == [6], "and the seventh is late, but not too late"
    (span,) = presence.spans(tmp_path)
    assert [step.by_s for step in span.steps] == [32400]
    assert presence.share_up([span]) == 1.0


def test_down_time_is_from_the_last_sight_to_the_next_start(tmp_path: Path) -> None:
    presence.seen(tmp_path, START, Boot("a", 100))
    presence.seen(tmp_path, START + timedelta(hours=10), Boot("a", 36100))
    presence.seen(tmp_path, START + timedelta(hours=20), Boot("b", 9 * 3600))
    found = presence.spans(tmp_path)
    (outage,) = presence.outages(found)
    assert outage.seconds == 3600
    assert presence.share_up(found) == pytest.approx(0.95)
    assert presence.share_up(found, forgiven=[0]) == 1.0


def test_a_broken_record_of_the_boots_is_put_aside_and_the_trial_goes_on(tmp_path: Path) -> None:
    (tmp_path / presence.FILE).write_text("{broken")
    presence.seen(tmp_path, START, Boot("a", 100))
    assert [span.boot for span in presence.spans(tmp_path)] == ["a"]
    assert (tmp_path / f"{presence.FILE}.broken").read_text() == "{broken"
