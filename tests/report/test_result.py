"""result.json: valid by the shipped schema, and read back without loss."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Optional

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from agent.model import (
    Attempt,
    Block,
    Finding,
    Limit,
    Measurement,
    Origin,
    Run,
    RunNumber,
    Scope,
    ScopeEntry,
    Session,
    StepRecord,
    Void,
)
from agent.result import ResultError, dumps, from_json, measurement_ids, result_schema, to_json
from agent.text import Text, msg
from tests.report.samples import CASES, SLOTS, Case, sample_run

VALIDATOR = Draft202012Validator(result_schema())


def _errors(data: Mapping[str, Any]) -> list[str]:
    return [f"{'/'.join(map(str, e.absolute_path))}: {e.message}" for e in VALIDATOR.iter_errors(data)]


def _same(a: Any, b: Any) -> bool:
    """Equal, with NaN equal to NaN."""
    return repr(a) == repr(b)


def test_the_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(result_schema())


@pytest.mark.parametrize("case", [c for c in CASES if c != "hostile"])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_samples_are_valid_and_come_back(case: Case, language: str) -> None:
    run = replace(sample_run(case), language=language)
    data = json.loads(dumps(to_json(run)))
    assert _errors(data) == []
    assert from_json(data) == run


def test_a_hostile_run_comes_back_too() -> None:
    data = json.loads(dumps(to_json(sample_run("hostile"))))
    # Its step and its attempt claim to have started at a time that is none; nothing else is wrong.
    assert sorted({e.split(": ")[0] for e in _errors(data)}) == [
        "measurements/0/attempts/0/started_at",
        "steps/0/started_at",
    ]
    assert _same(from_json(data), sample_run("hostile"))


def test_ids_of_measurements() -> None:
    data = to_json(sample_run("rejected"))
    pairs = [f"p2p_bandwidth/{n}" for n in range(1, 57)]
    expected = [*(f"gemm.bf16/{n}" for n in range(1, 9)), *pairs, "allreduce.busbw/1", "disk[/data].read/1"]
    assert [m["id"] for m in data["measurements"]] == expected
    cited = {f["id"]: f["measurement_ids"] for f in data["findings"]}
    assert cited[f"gemm.bf16@{SLOTS[2]}"] == ["gemm.bf16/3"]
    assert data["measurements"][5]["value"] == pytest.approx(512.4, rel=0.02)
    assert len(data["measurements"][5]["attempts"]) == 2


def test_an_incomplete_run_has_no_verdict() -> None:
    data = to_json(replace(sample_run("accepted"), complete=False))
    assert data["verdict"] is None
    assert _errors({**data, "verdict": "accepted"}) != []
    assert _errors({**data, "complete": True, "verdict": "accepted", "findings": []}) != []


def test_sentences_are_kept_for_another_language() -> None:
    finding = replace(sample_run("accepted").findings[0], reason=msg("{path} may not be read", path="/dev/kmsg"))
    data = to_json(replace(sample_run("accepted"), language="zh", findings=(finding,)))
    assert data["findings"][0]["reason"] == "没有权限读取 /dev/kmsg"
    assert data["findings"][0]["reason_text"] == {"template": "{path} may not be read", "args": {"path": "/dev/kmsg"}}
    assert str(from_json(data).findings[0].reason) == "/dev/kmsg may not be read"


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("findings", 0, "outcome"), "passed"),
        (("findings", 0, "surprise"), 1),
        (("findings", 0, "grant"), "root, please"),
        (("contract", "sha256"), "abc"),
        (("attempt", "number"), 0),
        (("measurements", 0, "id"), "gemm.bf16"),
        (("started_at",), "yesterday"),
        (("steps", 0, "exit"), "0"),
    ],
)
def test_the_schema_refuses(where: tuple[Any, ...], value: Any) -> None:
    data = copy.deepcopy(to_json(sample_run("rejected")))
    target: Any = data
    for part in where[:-1]:
        target = target[part]
    target[where[-1]] = value
    assert _errors(data) != []


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d.update(schema="accept.run/2"),
        lambda d: d.pop("findings"),
        lambda d: d["findings"][0].pop("reason_text"),
        lambda d: d["findings"].insert(0, 7),
        lambda d: d.update(headline_text={"template": "{a.__class__}", "args": {"a": "x"}}),
        lambda d: d.update(headline_text={"template": "{a:>999999999}", "args": {"a": "x"}}),
        lambda d: d.update(headline_text={"template": "{b}", "args": {"a": "x"}}),
        lambda d: d.update(headline_text={"template": "{", "args": {"a": "x"}}),
    ],
)
def test_what_is_no_result_is_said_so(damage: Any) -> None:
    data = to_json(sample_run("rejected"))
    damage(data)
    with pytest.raises(ResultError):
        from_json(data)


# Property: whatever a run holds comes back.

_names = st.text(min_size=1, max_size=8)
_maybe = st.none() | _names
_number = st.floats(width=32) | st.integers(-(10**12), 10**12)
_time = st.just("2026-11-30T12:04:11.5Z")
_scalar: st.SearchStrategy[Any] = st.none() | st.booleans() | _number | st.text(max_size=12)
_data = st.recursive(_scalar, lambda s: st.lists(s, max_size=3) | st.dictionaries(_names, s, max_size=3), max_leaves=6)
_mapping = st.dictionaries(_names, _data, max_size=3)
_strings = st.lists(st.text(max_size=10), max_size=3).map(tuple)


def _texts() -> st.SearchStrategy[Text]:
    plain = st.text(alphabet=st.characters(exclude_characters="{}"), max_size=20).map(msg)
    argument = plain | _scalar | st.lists(_scalar, max_size=2).map(tuple)
    return plain | st.builds(lambda a, b: msg("{a} of {b}", a=a, b=b), argument, argument)


_text = _texts()
_value = _scalar | st.lists(_scalar, max_size=3).map(tuple)
_void = st.none() | st.builds(Void, _names, _text)
_block = st.builds(Block, _number, st.lists(_number, max_size=3).map(tuple), st.just(()), _mapping)
_attempt = st.builds(
    Attempt,
    blocks=st.lists(_block, max_size=3).map(tuple),
    depth=st.sampled_from(["quick", "standard", "deeper"]),
    started_at=_time,
    evidence=_strings,
    void=_void,
    weak=_void,
    correct=st.none() | st.booleans(),
    notes=st.lists(_text, max_size=2).map(tuple),
    reproduce=_strings,
)
_limit = st.builds(
    Limit,
    op=st.sampled_from([">=", "<=", "=="]),
    value=_value,
    unit=st.text(max_size=5),
    tolerance=st.floats(0, 0.5),
    origin=st.builds(
        Origin, st.sampled_from(["contract", "catalogue", "topology", "agent"]), st.none() | st.text(max_size=5)
    ),
)
_entries = st.lists(st.builds(ScopeEntry, _names, _text), max_size=2).map(tuple)


def _measurement(key: str, subject: Optional[str]) -> st.SearchStrategy[Measurement]:
    return st.builds(
        Measurement,
        key=st.just(f"{key}@{subject}" if subject else key),
        unit=st.text(max_size=5),
        statistic=st.sampled_from(["median of block medians", "share of time"]),
        attempts=st.lists(_attempt, max_size=2).map(tuple),
        subject=st.just(subject),
    )


_measurements = st.lists(
    st.tuples(
        st.sampled_from(["gemm.bf16", "disk[/a@b].read", "x"]), st.sampled_from([None, "0000:1b:00.0", "@", "a/1"])
    ),
    max_size=4,
    unique=True,
).flatmap(lambda keys: st.tuples(*(_measurement(*k) for k in keys)))


def _finding(keys: tuple[str, ...]) -> st.SearchStrategy[Finding]:
    return st.builds(
        Finding,
        id=_names,
        clause=_names,
        outcome=st.sampled_from(["pass", "fail", "inconclusive", "not-asked"]),
        severity=st.sampled_from(["breach", "advisory"]),
        promised=st.text(max_size=9),
        reason_code=_names,
        reason=_text,
        subject=st.none() | _names,
        measured=_value,
        unit=st.text(max_size=5),
        interval=st.none() | st.tuples(_number, _number),
        interval_rule=st.none() | _names,
        limit=st.none() | _limit,
        grant=st.none() | _text,
        remedy=st.none() | _names,
        ref=st.none() | _names,
        quote=st.none() | _names,
        measurements=st.lists(st.sampled_from(keys), max_size=3).map(tuple) if keys else st.just(()),
        depth=st.none() | st.just("standard"),
        reproduce=_strings,
        evidence=_strings,
        notes=st.lists(_text, max_size=2).map(tuple),
        again=st.none(),
    )


@st.composite
def _runs(draw: st.DrawFn) -> Run:
    measurements = draw(_measurements)
    complete = draw(st.booleans())
    return Run(
        run_id=draw(_names),
        agent_version="0.1.0",
        complete=complete,
        started_at=draw(_time),
        finished_at=draw(st.none() | _time),
        contract_id=draw(st.none() | _names),
        contract_sha256="0" * 64,
        contract_header=draw(_mapping),
        attempt=draw(st.none() | st.builds(RunNumber, st.integers(1, 9), st.integers(1, 9), _names)),
        sessions=draw(
            st.lists(
                st.builds(Session, _maybe, _strings, st.integers(0, 9), _maybe, st.none() | _number),
                max_size=2,
            ).map(tuple)
        ),
        stack=draw(st.dictionaries(_names, st.none() | _names, max_size=3)),
        node=draw(_mapping.map(lambda m: {f"x{k}": v for k, v in m.items()})),
        scope=draw(st.builds(Scope, _entries, _entries, _entries)),
        verdict=draw(st.sampled_from(["accepted", "rejected", "inconclusive"])) if complete else None,
        headline=draw(_text),
        findings=draw(st.lists(_finding(tuple(m.key for m in measurements)), min_size=1, max_size=3).map(tuple)),
        measurements=measurements,
        steps=draw(
            st.lists(
                st.builds(StepRecord, _names, _strings, st.none() | _time, st.none() | _number, st.none() | st.just(1),
                          st.none() | _text, _strings),
                max_size=2,
            ).map(tuple)
        ),
        profile="standard",
        language=draw(st.sampled_from(["en", "zh"])),
        terms=draw(st.lists(_mapping, max_size=2).map(tuple)),
        notes=draw(st.lists(_text, max_size=2).map(tuple)),
    )  # fmt: skip


@given(_runs())
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_a_run_comes_back_as_it_was(run: Run) -> None:
    written = dumps(to_json(run))
    written.encode("utf-8")
    data = json.loads(written)
    assert _errors(data) == []
    back = from_json(data)
    assert _same(back, run)
    assert to_json(back) == json.loads(written)
    assert len(set(measurement_ids(run.measurements).values())) == len(run.measurements)
