"""A redacted copy of a run folder: with its own manifest, the original's digest, and the same verdict.

What was recorded is rewritten word by word, so that the parsers still read it; reports are rendered anew. Before the
copy is handed on it is searched for everything that was found, and judged: it must come to the same findings.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

from agent import contract as contracts
from agent import report, resources
from agent.evidence import (
    EVIDENCE,
    MANIFEST,
    RESULT,
    manifest,
    read_json,
    readable,
    sha256,
    write_atomic,
    write_json,
    write_manifest,
)
from agent.model import Run
from agent.redact import REDACTION, is_redacted
from agent.redact.find import Found, find, machine
from agent.redact.replace import Redactor, unescaped
from agent.result import dumps, from_json, to_json
from agent.runner import CONTRACT, JOB, REPORT_NAMES, RunError, judge_again, read_result
from agent.text import Text, msg

META = "meta.json"
_PROBES = Path(__file__).resolve().parents[1] / "probes"
# Compressed or compiled: names inside cannot be found, so such files stay behind.
_OPAQUE = (b"\x1f\x8b", b"PK\x03\x04", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"BZh", b"\x7fELF", b"\x89PNG", b"%PDF")


class RedactionError(Exception):
    """A run that cannot be redacted, in one sentence."""

    def __init__(self, text: Text) -> None:
        super().__init__(str(text))
        self.text = text


@dataclass(frozen=True)
class Redacted:
    """The copy, and what made it, for the ledger."""

    folder: Path
    redactor: Redactor


@dataclass(frozen=True)
class _File:
    """One file of the run as text; ``meta`` is what the host noted about its probe."""

    name: str
    text: str
    meta: Mapping[str, Any]

    @property
    def of_ps(self) -> bool:
        """Whether it lists processes: the last column is a program or a command line."""
        argv = self.meta.get("argv") or ("",)
        return self.name.endswith("/stdout") and str(argv[0]).rpartition("/")[2] == "ps"


@contextmanager
def redacted(
    folder: Path, families: Mapping[str, ModuleType], also: Sequence[str] = (), ledger: bytes = b""
) -> Iterator[Redacted]:
    """A redacted copy of a run in a temporary folder. ``also``: further words to take out. Raises RedactionError."""
    with TemporaryDirectory(prefix="accept-redact-") as place:
        yield redact(folder, Path(place) / "run", families, also, ledger)


def redact(
    folder: Path, target: Path, families: Mapping[str, ModuleType], also: Sequence[str] = (), ledger: bytes = b""
) -> Redacted:
    """Write the redacted copy to ``target``, which must not exist. Raises RedactionError, OSError."""
    if not (folder / MANIFEST).is_file():
        raise RedactionError(msg("{folder} is no finished run: it has no {file}", folder=str(folder), file=MANIFEST))
    if is_redacted(folder):
        raise RedactionError(msg("{folder} is a redacted copy already: leave --redact out", folder=str(folder)))
    files, kept, removed = _read(folder)
    redactor = _redactor(files, also, ledger)
    redactor.fix(_new_names(folder, files, redactor))
    target.mkdir(parents=True)
    try:
        for one in files:
            _write(target, one, redactor)
    except (ValueError, AttributeError, TypeError, KeyError, IndexError) as error:
        # A name that is also a word of the recording itself: rather no copy than a broken one.
        text = msg("{folder} cannot be redacted: {error}", folder=folder.name, error=repr(error))
        raise RedactionError(text) from error
    for name in kept:
        _put(target, redactor.text(name), (folder / name).read_bytes())
    contract = sha256(target / CONTRACT)
    _replace_contract_hash(target, sha256(folder / CONTRACT), contract)
    write_json(
        target / REDACTION,
        {
            "schema": "accept.redaction/1",
            "original_digest": sha256(folder / MANIFEST),
            "original_contract_sha256": sha256(folder / CONTRACT),
            "replaced": redactor.names.counts,
            "removed": [redactor.text(name) for name in removed],
        },
    )
    _render(folder, target)
    write_manifest(target)
    _search(target, redactor)
    _judge_both(folder, target, families)
    return Redacted(target, redactor)


def redacted_ledger(data: bytes, redactor: Redactor, folder: Path) -> list[dict[str, Any]]:
    """The entries of a ledger with the same words replaced; the chain of hashes has to be made anew."""
    original = read_json(folder / REDACTION)["original_contract_sha256"]
    text = _decoded(data).replace(original, sha256(folder / CONTRACT))
    entries = []
    for line in text.splitlines():
        try:
            value = json.loads(redactor.text(line, "ledger"))
        except ValueError:
            continue  # a line that a full disk had cut off
        if isinstance(value, dict):
            entries.append(value)
    return entries


def _read(folder: Path) -> tuple[list[_File], list[str], list[str]]:
    """What has to be rewritten; names of files that ship with accept; names of files nobody can search."""
    shipped = _shipped()
    files: list[_File] = []
    kept: list[str] = []
    removed: list[str] = []
    metas: dict[str, Mapping[str, Any]] = {}
    for name in sorted(manifest(folder)):
        data = (folder / name).read_bytes()
        if name in REPORT_NAMES.values() or name == REDACTION:
            continue
        if hashlib.sha256(data).digest() in shipped:
            kept.append(name)
        elif data.startswith(_OPAQUE):
            removed.append(name)
        else:
            place = "/".join(name.split("/")[:2])
            if place not in metas:
                metas[place] = _meta(folder / place / META)
            files.append(_File(name, unescaped(_decoded(data)), metas[place]))
    return files, kept, removed


def _meta(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = read_json(path)
    except ValueError:
        return {}  # an interrupted probe; its text is searched like any other
    return value if isinstance(value, dict) else {}


def _shipped() -> frozenset[bytes]:
    """The probes and workers that a run copies into its evidence: nobody's secret, and long."""
    places = (_PROBES, resources.path("benchmarks"))
    return frozenset(hashlib.sha256(p.read_bytes()).digest() for place in places for p in sorted(place.glob("*.py")))


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _redactor(files: Sequence[_File], also: Sequence[str], ledger: bytes) -> Redactor:
    found = [Found("words", word, 0, 0) for word in also if word.strip()]
    own = machine(next((f.text for f in files if f.name == JOB), ""))
    if own is not None:
        found.append(Found("machine", own, 0, 0))
    texts = [(f.name, f.text, f.of_ps) for f in files]
    book = unescaped(_decoded(ledger))
    for name, text, ps in [*texts, *(("", f.name, False) for f in files), ("ledger", book, False)]:
        found += find(text, name, ps=ps)
    return Redactor(found, [*(t for _, t, _ in texts), book])


def _new_names(folder: Path, files: Sequence[_File], redactor: Redactor) -> dict[str, str]:
    """Names of folders that change: the run's, which holds the host's by default, and those named for a probe."""
    own = folder.resolve().name
    names = {own: "run"} if re.match(r"\d{8}T\d{6}Z-.", own) else {}
    for one in files:
        root, _, rest = one.name.partition("/")
        old = rest.split("/")[0]
        probe = one.meta.get("probe")
        if root == EVIDENCE and isinstance(probe, str) and old not in names:
            clean = redactor.text(probe)
            if clean != probe:
                names[old] = f"{old[:5]}{readable(clean)}"
    return names


def _write(target: Path, one: _File, redactor: Redactor) -> None:
    parts = one.name.split("/")
    if parts[0] != EVIDENCE or len(parts) < 3:
        text = redactor.text(one.text, one.name)
        if one.name == RESULT:
            text = _own_words(json.loads(text), json.loads(one.text))
        _put(target, redactor.text(one.name), _encoded(text))
        return
    if parts[2] == META and one.meta.get("kind") == "read":
        text = json.dumps(_read_meta(one.meta, redactor), ensure_ascii=False, indent=1) + "\n"
    else:
        text = redactor.text(one.text, one.name, ps=one.of_ps)
    _put(target, _evidence_name(one.name, one.meta, redactor), _encoded(text))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _put(target: Path, name: str, data: bytes) -> None:
    path = target / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as out:
        out.write(data)


def _evidence_name(name: str, meta: Mapping[str, Any], redactor: Redactor) -> str:
    """A file's new place. What a recorded file is called follows from its path, as in the recording."""
    root, folder, *rest = name.split("/")
    stored = {v: k for k, v in (meta.get("files") or {}).items()}
    inner = "/".join(rest)
    inner = _stored(redactor.text(stored[inner])) if inner in stored else redactor.text(inner)
    return f"{root}/{redactor.text(folder)}/{inner}"


def _stored(path: str) -> str:
    return f"files/{path.strip('/').replace('/', '__')}"[:200]


def _read_meta(meta: Mapping[str, Any], redactor: Redactor) -> dict[str, Any]:
    clean: dict[str, Any] = json.loads(redactor.text(json.dumps({**meta, "files": {}}, ensure_ascii=False)))
    paths = [redactor.text(path) for path in meta.get("files") or {}]
    return {**clean, "files": {path: _stored(path) for path in paths}}


def _own_words(clean: Any, original: Any) -> str:
    """The result with the templates of our own sentences as they were, and the sentences made anew from them.

    A user may be called Page: that word goes out of what was recorded, not out of what accept says.
    """
    _put_back(clean, original)
    return dumps(to_json(from_json(clean)))


def _put_back(clean: Any, original: Any) -> None:
    if isinstance(original, dict):
        if "template" in original:
            clean["template"] = original["template"]
        for one, other in zip(clean.values(), original.values()):
            _put_back(one, other)
    elif isinstance(original, list):
        for one, other in zip(clean, original):
            _put_back(one, other)


def _replace_contract_hash(folder: Path, old: str, new: str) -> None:
    """The result is now of the redacted contract."""
    for name in (RESULT, JOB):
        path = folder / name
        write_atomic(path, path.read_bytes().replace(old.encode(), new.encode()))


def _render(folder: Path, target: Path) -> None:
    try:
        run = read_result(target)
    except RunError as error:
        raise RedactionError(error.text) from error
    for name, file in REPORT_NAMES.items():
        if (folder / file).is_file():
            text = report.render(run, name, target, run.language)
            write_atomic(target / file, text.encode("utf-8", "backslashreplace"))


def _search(target: Path, redactor: Redactor) -> None:
    shipped = _shipped()
    for name in manifest(target):
        data = (target / name).read_bytes()
        prose = name in REPORT_NAMES.values() or name == RESULT
        left = redactor.left(name)
        if name != MANIFEST and hashlib.sha256(data).digest() not in shipped:
            left += redactor.left(_decoded(data), prose=prose)
        if left:
            raise RedactionError(
                msg("{n} names could not be taken out of {file}; nothing was written", n=len(left), file=name)
            )


def _judge_both(folder: Path, target: Path, families: Mapping[str, ModuleType]) -> None:
    before, after = (_judged(place, families) for place in (folder, target))
    if before.verdict != after.verdict or _outcomes(before) != _outcomes(after):
        changed = _outcomes(before) - _outcomes(after)
        raise RedactionError(
            msg("the redacted run would be judged differently ({findings}); nothing was written",
                findings=tuple(f"{outcome} {code}" for outcome, _, code in changed)[:5])
        )  # fmt: skip


def _judged(folder: Path, families: Mapping[str, ModuleType]) -> Run:
    grammars = {n: m.GRAMMAR for n, m in families.items() if hasattr(m, "GRAMMAR")}
    try:
        return judge_again(folder, contracts.load(folder / CONTRACT, grammars), families)[1]
    except (RunError, contracts.ContractErrors) as error:
        text = msg("{folder} cannot be judged again: {error}", folder=folder.name, error=str(error))
        raise RedactionError(text) from error


def _outcomes(run: Run) -> Counter[tuple[str, str, str]]:
    """Findings without the names in their ids, which are what was replaced."""
    return Counter((f.outcome, f.severity, f.reason_code) for f in run.findings)
