"""``result.json``: a run as JSON in the shape of ``contracts/result.schema.json``, and back without loss.

Sentences are stored twice: rendered in the run's language, and as ``<field>_text`` (template and arguments), so
that a run made in Chinese can be reported in English. What only repeats other fields (``headline``, a
measurement's ``value``) is written for the reader and ignored when reading.
"""

from __future__ import annotations

import json
import math
import re
import string
from collections.abc import Iterable, Iterator, Mapping
from statistics import median
from typing import Any, Optional

from agent import resources
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
from agent.text import Text, Translate, text_from_json, text_to_json, translator

SCHEMA = "accept.run/1"
Json = dict[str, Any]

_LONGEST_FORMAT = 8
_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SURROGATE = re.compile("[\ud800-\udfff]")


class ResultError(ValueError):
    """The data is not a result of a schema this version reads."""


def result_schema() -> Json:
    """The JSON Schema (2020-12) of ``result.json``."""
    schema: Json = json.loads(resources.path("contracts", "result.schema.json").read_text(encoding="utf-8"))
    return schema


def dumps(data: Any) -> str:
    """JSON as it is written to disk: readable Chinese, and no lone surrogate that UTF-8 could not carry."""
    text = json.dumps(data, ensure_ascii=False, indent=1, allow_nan=False)
    return _SURROGATE.sub(lambda m: f"\\u{ord(m[0]):04x}", text) + "\n"


def to_json(run: Run) -> Json:
    """The run as JSON-ready data. A number that is not finite becomes null and is named in ``not_finite``."""
    t = translator(run.language, resources.locale_dir())
    ids = measurement_ids(run.measurements)
    data: Json = {
        "schema": SCHEMA,
        "run_id": run.run_id,
        "attempt": _run_number_to(run.attempt),
        "agent_version": run.agent_version,
        "complete": run.complete,
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "profile": run.profile,
        "language": run.language,
        "contract": {"id": run.contract_id, "sha256": run.contract_sha256, "header": _plain(run.contract_header)},
        "sessions": [_session_to(s) for s in run.sessions],
        "stack": dict(run.stack),
        "node": _plain(run.node),
        "scope": _scope_to(run.scope, t),
        "verdict": run.verdict if run.complete else None,
        **_text_to("headline", run.headline, t),
        "findings": [_finding_to(f, ids, t) for f in run.findings],
        "measurements": [_measurement_to(m, ids[m.key], t) for m in run.measurements],
        "steps": [_step_to(s, t) for s in run.steps],
        "terms": _plain(run.terms),
        **_texts_to("notes", run.notes, t),
    }
    replaced: list[Json] = []
    finite: Json = _finite(data, "", replaced)
    return {**finite, "not_finite": replaced} if replaced else finite


def from_json(data: Mapping[str, Any]) -> Run:
    """The run that :func:`to_json` wrote. Raises :class:`ResultError`."""
    if not isinstance(data, Mapping) or data.get("schema") != SCHEMA:
        found = data.get("schema") if isinstance(data, Mapping) else type(data).__name__
        raise ResultError(f"not a result of schema {SCHEMA}: {found!r}")
    try:
        schema = result_schema()
        misfit = _misfit(data, schema, schema["$defs"], "")
        if misfit is not None:
            raise ResultError(f"{misfit or '/'} is not what {SCHEMA} has there")
        return _run_from(_restore(data))
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ResultError(f"the result does not have the shape of {SCHEMA}: {error!r}") from error


def measurement_ids(measurements: Iterable[Measurement]) -> dict[str, str]:
    """``Measurement.key`` → ``gemm.bf16/2``: the clause's key and the ordinal of the subject, from 1."""
    counts: dict[str, int] = {}
    ids: dict[str, str] = {}
    for m in measurements:
        clause = clause_of(m)
        counts[clause] = counts.get(clause, 0) + 1
        ids[m.key] = f"{clause}/{counts[clause]}"
    return ids


def clause_of(measurement: Measurement) -> str:
    """The clause's key: the measurement's without its subject."""
    suffix = f"@{measurement.subject}"
    key = measurement.key
    return key[: -len(suffix)] if measurement.subject is not None and key.endswith(suffix) else key


def last_counted(measurement: Measurement) -> Optional[Attempt]:
    """The last attempt that is not void and has blocks; the earlier ones are kept and shown beside it."""
    counted = [a for a in measurement.attempts if a.void is None and a.blocks]
    return counted[-1] if counted else None


# Writing.


def _text_to(name: str, text: Optional[Text], t: Translate) -> Json:
    if text is None:
        return {name: None}
    return {name: text.render(t), f"{name}_text": text_to_json(text)}


def _texts_to(name: str, texts: Iterable[Text], t: Translate) -> Json:
    kept = tuple(texts)
    return {name: [x.render(t) for x in kept], f"{name}_text": [text_to_json(x) for x in kept]}


def _plain(value: Any) -> Any:
    """Mappings and sequences as JSON has them; anything that is no JSON value as its ``str``."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)


def _run_number_to(number: Optional[RunNumber]) -> Optional[Json]:
    return None if number is None else {"number": number.number, "of": number.of, "ledger": number.ledger}


def _session_to(s: Session) -> Json:
    return {
        "boot_id": s.boot_id,
        "argv": list(s.argv),
        "uid": s.uid,
        "container": s.container,
        "clock_offset_s": s.clock_offset_s,
        "simulated_root": s.simulated_root,
    }


def _scope_to(scope: Scope, t: Translate) -> Json:
    def entries(kept: tuple[ScopeEntry, ...]) -> list[Json]:
        return [{"key": e.key, **_text_to("why", e.why, t)} for e in kept]

    return {
        "full": scope.full,
        "left_out": entries(scope.left_out),
        "shortened": entries(scope.shortened),
        "pending_trial": entries(scope.pending_trial),
    }


def _limit_to(limit: Optional[Limit]) -> Optional[Json]:
    if limit is None:
        return None
    return {
        "op": limit.op,
        "value": _plain(limit.value),
        "unit": limit.unit,
        "tolerance": f"{limit.tolerance * 100:g} %" if limit.tolerance else None,
        "tolerance_fraction": limit.tolerance,
        "origin": {"kind": limit.origin.kind, "detail": limit.origin.detail},
    }


def _finding_to(f: Finding, ids: Mapping[str, str], t: Translate) -> Json:
    return {
        "id": f.id,
        "clause": f.clause,
        "subject": f.subject,
        "outcome": f.outcome,
        "severity": f.severity,
        "promised": f.promised,
        "measured": _plain(f.measured),
        "unit": f.unit,
        "interval": None if f.interval is None else list(f.interval),
        "interval_rule": f.interval_rule,
        "limit": _limit_to(f.limit),
        "reason_code": f.reason_code,
        **_text_to("reason", f.reason, t),
        **_text_to("grant", f.grant, t),
        "remedy": f.remedy,
        "ref": f.ref,
        "quote": f.quote,
        "measurement_ids": [ids.get(key, key) for key in f.measurements],
        "depth": f.depth,
        "reproduce": list(f.reproduce),
        "evidence": list(f.evidence),
        **_texts_to("notes", f.notes, t),
    }


def _block_to(b: Block) -> Json:
    return {
        "value": b.value,
        "samples": list(b.samples),
        "warmup": list(b.warmup),
        "conditions": _plain(b.conditions),
    }


def _void_to(void: Optional[Void], t: Translate) -> Optional[Json]:
    return None if void is None else {"code": void.code, **_text_to("reason", void.text, t)}


def _attempt_to(a: Attempt, t: Translate) -> Json:
    return {
        "started_at": a.started_at,
        "depth": a.depth,
        "void": _void_to(a.void, t),
        "weak": _void_to(a.weak, t),
        "blocks": [_block_to(b) for b in a.blocks],
        "correct": a.correct,
        "evidence": list(a.evidence),
        "reproduce": list(a.reproduce),
        **_texts_to("notes", a.notes, t),
    }


def _measurement_to(m: Measurement, id_: str, t: Translate) -> Json:
    counted = last_counted(m)
    values = [b.value for b in counted.blocks] if counted else []
    answers = {a.correct for a in m.attempts}
    return {
        "id": id_,
        "key": m.key,
        "subject": m.subject,
        "unit": m.unit,
        "statistic": m.statistic,
        "value": median(values) if values else None,
        "interval": [min(values), max(values)] if len(values) > 1 else None,
        "attempts": [_attempt_to(a, t) for a in m.attempts],
        "correct": False if False in answers else (True if True in answers else None),
    }


def _step_to(s: StepRecord, t: Translate) -> Json:
    return {
        "name": s.name,
        "argv": list(s.argv),
        "started_at": s.started_at,
        "seconds": s.seconds,
        "exit": s.exit,
        **_text_to("skipped", s.skipped, t),
        "evidence": list(s.evidence),
    }


def _finite(value: Any, at: str, replaced: list[Json]) -> Any:
    """``value`` with NaN and infinities as null; ``replaced`` collects where they were (JSON pointers)."""
    if isinstance(value, float) and not math.isfinite(value):
        replaced.append({"at": at, "was": str(value)})
        return None
    if isinstance(value, dict):
        return {k: _finite(v, f"{at}/{_pointer_part(k)}", replaced) for k, v in value.items()}
    if isinstance(value, list):
        return [_finite(v, f"{at}/{i}", replaced) for i, v in enumerate(value)]
    return value


def _pointer_part(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


# Reading.

_TYPES: Mapping[str, tuple[type, ...]] = {
    "array": (list,),
    "boolean": (bool,),
    "integer": (int,),
    "null": (type(None),),
    "number": (int, float),
    "object": (dict,),
    "string": (str,),
}


def _misfit(value: Any, schema: Json, defs: Json, at: str) -> Optional[str]:
    """JSON pointer to what has another type or word than the schema says, so that no reader meets it; else None.

    Types, enums and nesting alone: the package has no validator of whole JSON Schemas with it.
    """
    if "$ref" in schema:
        return _misfit(value, defs[schema["$ref"].rpartition("/")[2]], defs, at)
    choices = schema.get("oneOf") or schema.get("anyOf")
    if choices and all(_misfit(value, choice, defs, at) is not None for choice in choices):
        return at
    kinds = schema.get("type", list(_TYPES))
    of_type = isinstance(value, tuple(t for k in ([kinds] if isinstance(kinds, str) else kinds) for t in _TYPES[k]))
    if not of_type or value not in schema.get("enum", [value]) or (isinstance(value, bool) and "boolean" not in kinds):
        return at
    inner: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        named, others = schema.get("properties", {}), schema.get("additionalProperties")
        inner = ((key, named.get(key, others)) for key in value)
    elif isinstance(value, list):
        inner = enumerate(schema.get("prefixItems") or [schema.get("items")] * len(value))
    found = (_misfit(value[key], s, defs, f"{at}/{key}") for key, s in inner if isinstance(s, dict))
    return next((place for place in found if place is not None), None)


def _restore(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """``data`` with the numbers that were not finite put back."""
    if not data.get("not_finite"):
        return data
    copy: Json = json.loads(json.dumps(data))
    for entry in copy["not_finite"]:
        *parents, last = [p.replace("~1", "/").replace("~0", "~") for p in entry["at"].split("/")[1:]]
        target: Any = copy
        for part in parents:
            target = target[int(part) if isinstance(target, list) else part]
        target[int(last) if isinstance(target, list) else last] = float(entry["was"])
    return copy


def _run_from(d: Mapping[str, Any]) -> Run:
    keys = {m["id"]: m["key"] for m in d["measurements"]}
    attempt = d["attempt"]
    return Run(
        run_id=d["run_id"],
        agent_version=d["agent_version"],
        complete=d["complete"],
        started_at=d["started_at"],
        finished_at=d["finished_at"],
        contract_id=d["contract"]["id"],
        contract_sha256=d["contract"]["sha256"],
        contract_header=d["contract"]["header"],
        attempt=None if attempt is None else RunNumber(attempt["number"], attempt["of"], attempt["ledger"]),
        sessions=tuple(_session_from(s) for s in d["sessions"]),
        stack=d["stack"],
        node=d["node"],
        scope=_scope_from(d["scope"]),
        verdict=d["verdict"],
        headline=sentence(d, "headline"),
        findings=tuple(_finding_from(f, keys) for f in d["findings"]),
        measurements=tuple(_measurement_from(m) for m in d["measurements"]),
        steps=tuple(_step_from(s) for s in d["steps"]),
        profile=d["profile"],
        language=d["language"],
        terms=tuple(d["terms"]),
        notes=_texts_from(d, "notes"),
    )


def sentence(d: Mapping[str, Any], name: str) -> Text:
    """The sentence ``<name>`` of a part of a result, to be said in any language. ResultError for none of ours."""
    return _checked(text_from_json(d[f"{name}_text"]))


def _maybe_sentence(d: Mapping[str, Any], name: str) -> Optional[Text]:
    return None if d[name] is None else sentence(d, name)


def _texts_from(d: Mapping[str, Any], name: str) -> tuple[Text, ...]:
    return tuple(_checked(text_from_json(x)) for x in d[f"{name}_text"])


def _checked(text: Text) -> Text:
    """``text`` if its template only names its arguments: the file may come from somebody else."""
    if not text.args:
        return text
    args = dict(text.args)
    for field, spec in _fields(text.template):
        if not _FIELD.match(field) or field not in args or len(spec) > _LONGEST_FORMAT or "{" in spec:
            raise ResultError(f"a sentence asks for what it does not have: {text.template!r}")
    for value in args.values():
        for inner in value if isinstance(value, tuple) else (value,):
            if isinstance(inner, Text):
                _checked(inner)
    return text


def _fields(template: str) -> Iterator[tuple[str, str]]:
    try:
        parsed = list(string.Formatter().parse(template))
    except ValueError as error:
        raise ResultError(f"not a sentence template: {template!r}: {error}") from error
    return ((field, spec or "") for _, field, spec, _ in parsed if field is not None)


def _frozen(value: Any) -> Any:
    return tuple(_frozen(v) for v in value) if isinstance(value, list) else value


def _session_from(d: Mapping[str, Any]) -> Session:
    return Session(
        boot_id=d["boot_id"],
        argv=tuple(d["argv"]),
        uid=d["uid"],
        container=d["container"],
        clock_offset_s=d["clock_offset_s"],
        simulated_root=d["simulated_root"],
    )


def _scope_from(d: Mapping[str, Any]) -> Scope:
    def entries(name: str) -> tuple[ScopeEntry, ...]:
        return tuple(ScopeEntry(e["key"], sentence(e, "why")) for e in d[name])

    return Scope(entries("left_out"), entries("shortened"), entries("pending_trial"))


def _limit_from(d: Optional[Mapping[str, Any]]) -> Optional[Limit]:
    if d is None:
        return None
    origin = Origin(d["origin"]["kind"], d["origin"]["detail"])
    return Limit(d["op"], _frozen(d["value"]), d["unit"], d["tolerance_fraction"], origin)


def _finding_from(d: Mapping[str, Any], keys: Mapping[str, str]) -> Finding:
    interval = d["interval"]
    return Finding(
        id=d["id"],
        clause=d["clause"],
        outcome=d["outcome"],
        severity=d["severity"],
        promised=d["promised"],
        reason_code=d["reason_code"],
        reason=sentence(d, "reason"),
        subject=d["subject"],
        measured=_frozen(d["measured"]),
        unit=d["unit"],
        interval=None if interval is None else (interval[0], interval[1]),
        interval_rule=d["interval_rule"],
        limit=_limit_from(d["limit"]),
        grant=_maybe_sentence(d, "grant"),
        remedy=d["remedy"],
        ref=d["ref"],
        quote=d["quote"],
        measurements=tuple(keys.get(id_, id_) for id_ in d["measurement_ids"]),
        depth=d["depth"],
        reproduce=tuple(d["reproduce"]),
        evidence=tuple(d["evidence"]),
        notes=_texts_from(d, "notes"),
    )


def _block_from(d: Mapping[str, Any]) -> Block:
    return Block(d["value"], tuple(d["samples"]), tuple(d["warmup"]), d["conditions"])


def _void_from(d: Optional[Mapping[str, Any]]) -> Optional[Void]:
    return None if d is None else Void(d["code"], sentence(d, "reason"))


def _attempt_from(d: Mapping[str, Any]) -> Attempt:
    return Attempt(
        blocks=tuple(_block_from(b) for b in d["blocks"]),
        depth=d["depth"],
        started_at=d["started_at"],
        evidence=tuple(d["evidence"]),
        void=_void_from(d["void"]),
        weak=_void_from(d["weak"]),
        correct=d["correct"],
        notes=_texts_from(d, "notes"),
        reproduce=tuple(d["reproduce"]),
    )


def _measurement_from(d: Mapping[str, Any]) -> Measurement:
    attempts = tuple(_attempt_from(a) for a in d["attempts"])
    return Measurement(d["key"], d["unit"], d["statistic"], attempts, d["subject"])


def _step_from(d: Mapping[str, Any]) -> StepRecord:
    return StepRecord(
        name=d["name"],
        argv=tuple(d["argv"]),
        started_at=d["started_at"],
        seconds=d["seconds"],
        exit=d["exit"],
        skipped=_maybe_sentence(d, "skipped"),
        evidence=tuple(d["evidence"]),
    )
