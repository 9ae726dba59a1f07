"""Checking a bundle or a run folder that may come from an opponent: no network, no GPU, nothing executed.

What is checked: the archive, each file against the manifest, the statement, the signatures, the timestamp, the
ledger, and whether the recorded evidence judged by the contained contract gives the verdict that the result claims.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Literal, Optional

from agent import __version__
from agent import contract as contracts
from agent.evidence import EVIDENCE, MANIFEST, RESULT, read_json, sha256
from agent.redact import REDACTION
from agent.runner import CONTRACT, RunError, judge_again
from agent.seal import archive
from agent.seal.bundle import (
    COUNTERSIGNATURE,
    COUNTERSIGNATURE_SCHEMA,
    LEDGER_NAME,
    RUN,
    SIGNATURE,
    SIGNATURE_SCHEMA,
    STAMP,
    STATEMENT,
    STATEMENT_SCHEMA,
    Json,
    checkable,
    countersigned_message,
    dumps,
    signed_message,
)
from agent.seal.keys import NoLibrary, fingerprint, verifies
from agent.seal.ledgers import Account, account
from agent.seal.timestamp import NoTimestamp, Stamp, check
from agent.text import Text, msg

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

State = Literal["intact", "not intact", "signature unknown"]
EXIT: Mapping[State, int] = {"intact": 0, "not intact": 1, "signature unknown": 3}
# What reading a hostile result, contract or recording may end in: each is an answer about it, none is ours.
UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, OSError)
_HEX = re.compile(r"[0-9a-f]{64}")
_SEAL_FILES = frozenset({STATEMENT, SIGNATURE, COUNTERSIGNATURE, STAMP, LEDGER_NAME})


@dataclass(frozen=True)
class FileState:
    """One file against the manifest."""

    name: str
    state: Literal["intact", "changed", "missing", "not listed"]


@dataclass(frozen=True)
class Signed:
    """A signature: ``good`` is None where no library is there to check it, ``known`` whether the reader named it."""

    fingerprint: str
    good: Optional[bool]
    known: bool
    at: str


@dataclass(frozen=True)
class Judged:
    """The evidence judged again: ``claimed`` is the result's verdict, ``found`` that of this version of accept."""

    claimed: Optional[str]
    found: Optional[str]
    made_with: str
    error: Optional[str] = None

    @property
    def same(self) -> bool:
        return self.error is None and self.claimed == self.found


@dataclass(frozen=True)
class Verification:
    """All that was found. ``problems`` make it not intact; ``notes`` are worth knowing."""

    run_id: Optional[str] = None
    digest: Optional[str] = None
    original_digest: Optional[str] = None
    digest_confirmed: bool = False
    files: tuple[FileState, ...] = ()
    signature: Optional[Signed] = None
    countersignature: Optional[Signed] = None
    stamp: Optional[Stamp] = None
    account: Optional[Account] = None
    judged: Optional[Judged] = None
    problems: tuple[Text, ...] = ()
    notes: tuple[Text, ...] = ()
    language: Optional[str] = None
    """Of the contract, as far as it could be read."""

    @property
    def state(self) -> State:
        """``intact`` needs somebody who vouches for it: a known signature, or a digest the reader had before."""
        if self.problems:
            return "not intact"
        signed = self.signature is not None and self.signature.good is True and self.signature.known
        return "intact" if signed or self.digest_confirmed else "signature unknown"


@dataclass(frozen=True)
class Trusted:
    """What the reader brings: fingerprints of keys, roots of timestamp authorities, a digest received earlier."""

    keys: frozenset[str] = frozenset()
    roots: tuple[Certificate, ...] = ()
    digest: Optional[str] = None


@dataclass
class _Findings:
    problems: list[Text] = field(default_factory=list)
    notes: list[Text] = field(default_factory=list)

    def problem(self, text: Text) -> None:
        self.problems.append(text)

    def note(self, text: Text) -> None:
        self.notes.append(text)


def verify_bundle(path: Path, trusted: Trusted, families: Mapping[str, ModuleType]) -> Verification:
    """Check a bundle. Raises OSError where it cannot be read or unpacked at all."""
    with tempfile.TemporaryDirectory(prefix="accept-verify-") as place:
        unpacked = Path(place)
        try:
            names = archive.unpack(path, unpacked)
        except archive.ArchiveError as error:
            return Verification(problems=(error.text,))
        return verify_unpacked(unpacked, names, trusted, families)


def verify_unpacked(
    unpacked: Path, names: list[str], trusted: Trusted, families: Mapping[str, ModuleType]
) -> Verification:
    """Check what was unpacked by :func:`agent.seal.archive.unpack`."""
    found = _Findings()
    for name in names:
        if not name.startswith(f"{RUN}/") and name not in _SEAL_FILES:
            found.problem(msg("the bundle holds a file that does not belong there: {file}", file=name))
    run = _folder(unpacked / RUN, trusted, families, found)
    statement = _json(unpacked / STATEMENT, STATEMENT_SCHEMA, found)
    if statement is None:
        return _done(run, found)
    _compare(statement, run, unpacked, found)
    run = replace(
        run,
        signature=_signature(unpacked, statement, trusted, found),
        countersignature=_countersignature(unpacked, trusted, found),
        stamp=_stamp(unpacked, run, trusted, found),
        account=_account(unpacked, statement, run, found),
    )
    return _done(run, found)


def verify_folder(folder: Path, trusted: Trusted, families: Mapping[str, ModuleType]) -> Verification:
    """Check a run folder that was not sealed."""
    found = _Findings()
    run = _folder(folder, trusted, families, found)
    ledger = folder.resolve().parent / Path(LEDGER_NAME).name
    if ledger.is_file():
        told = _read_account(ledger.read_bytes(), folder, run, found)
        run = replace(run, account=told if told.number is not None else None)
    found.note(msg("the run is not sealed: nobody has signed it"))
    return _done(run, found)


def _done(run: Verification, found: _Findings) -> Verification:
    return replace(run, problems=tuple(found.problems), notes=tuple(found.notes))


def _folder(folder: Path, trusted: Trusted, families: Mapping[str, ModuleType], found: _Findings) -> Verification:
    """Files, digest and verdict of a run folder."""
    language = contracts.written_language(folder / CONTRACT)
    try:
        listed = {str(k): str(v) for k, v in read_json(folder / MANIFEST)["files"].items()}
        digest = sha256(folder / MANIFEST)
    except UNREADABLE as error:
        found.problem(msg("the manifest cannot be read: {error}", error=_words(error)))
        return Verification(language=language)
    files = tuple(_files(folder, listed))
    broken = [f for f in files if f.state != "intact"]
    for one in broken[:20]:
        found.problem(msg(_STATES[one.state].template, file=one.name))
    if len(broken) > 20:
        found.problem(msg("and {n} more files", n=len(broken) - 20))
    run = Verification(digest=digest, files=files, original_digest=_original(folder, found), language=language)
    if trusted.digest is not None:
        run = replace(run, digest_confirmed=trusted.digest in (digest, run.original_digest))
        if not run.digest_confirmed:
            found.problem(msg("the digest is {digest}, not the one you named", digest=digest))
        elif trusted.digest != digest:
            # Only the signer says that this came from that: the words that were replaced cannot be compared.
            run = replace(run, digest_confirmed=False)
            found.note(msg("redacted from the run whose digest you named, as its maker says"))
    if broken:
        return run
    judged = _judge(folder, families)
    _judged_problems(judged, found)
    return replace(run, judged=judged, run_id=_run_id(folder))


_STATES = {
    "changed": msg("{file} was changed"),
    "missing": msg("{file} is missing"),
    "not listed": msg("{file} was added"),
}


def _files(folder: Path, listed: Mapping[str, str]) -> list[FileState]:
    there = checkable(folder)
    states: list[FileState] = []
    for name in sorted({*listed, *there}):
        if name not in listed:
            states.append(FileState(name, "not listed"))
        elif name not in there:
            # Also where the manifest names something outside: only what lies in the folder is ever opened.
            states.append(FileState(name, "missing"))
        elif (folder / name).is_symlink() or not (folder / name).is_file() or sha256(folder / name) != listed[name]:
            states.append(FileState(name, "changed"))
        else:
            states.append(FileState(name, "intact"))
    return states


def _original(folder: Path, found: _Findings) -> Optional[str]:
    if not (folder / REDACTION).is_file():
        return None
    try:
        original = str(read_json(folder / REDACTION)["original_digest"])
    except UNREADABLE as error:
        found.problem(msg("{file} cannot be read: {error}", file=REDACTION, error=_words(error)))
        return None
    found.note(msg("redacted: names, addresses and serials were replaced; digest of the original: {of}", of=original))
    return original


def _run_id(folder: Path) -> Optional[str]:
    try:
        return str(read_json(folder / RESULT)["run_id"])
    except UNREADABLE:
        return None  # the judgement has said already that the result cannot be read


def _judge(folder: Path, families: Mapping[str, ModuleType]) -> Judged:
    claimed, made_with = None, "?"
    try:
        result = read_json(folder / RESULT)
        claimed, made_with = result["verdict"], str(result["agent_version"])
        _check_recordings(folder)
        grammars = {n: m.GRAMMAR for n, m in families.items() if hasattr(m, "GRAMMAR")}
        contract = contracts.load(folder / CONTRACT, grammars)
        if result["contract"]["sha256"] != contract.sha256:
            return Judged(claimed, None, made_with, "result.json is of another contract.yaml")
        _, run = judge_again(folder, contract, families)
    except (RunError, contracts.ContractErrors, *UNREADABLE) as error:
        return Judged(claimed, None, made_with, _words(error))
    return Judged(claimed, run.verdict, made_with)


def _check_recordings(folder: Path) -> None:
    """A recording may name only files of its own folder: not a device, not a file of the reader's machine."""
    for path in sorted((folder / EVIDENCE).glob("*/meta.json")):
        names = read_json(path).get("files", {})
        inside = checkable(path.parent)
        outside = [n for n in names.values() if n not in inside]
        if outside:
            raise ValueError(f"{path.parent.name}/meta.json names {outside[0]!r}, which is not in its folder")


def _judged_problems(judged: Judged, found: _Findings) -> None:
    if judged.error is not None:
        found.problem(msg("the evidence cannot be judged again: {error}", error=judged.error))
    elif not judged.same:
        found.problem(msg("the evidence judges to {found}, the result says {claimed}",
                      found=judged.found or "–", claimed=judged.claimed or "–"))  # fmt: skip
    if not judged.same and judged.made_with != __version__:
        found.note(msg("it was made with accept {theirs}; this is {ours}", theirs=judged.made_with, ours=__version__))


def _json(path: Path, schema: str, found: _Findings) -> Optional[Json]:
    """A file of the seal in exactly the spelling it was written in."""
    try:
        data = path.read_bytes()
        value = json.loads(data)
        if not isinstance(value, dict) or value.get("schema") != schema or dumps(value) != data:
            raise ValueError(f"not {schema}")
    except UNREADABLE as error:
        found.problem(msg("{file} cannot be read: {error}", file=path.name, error=_words(error)))
        return None
    return value


def _compare(statement: Json, run: Verification, unpacked: Path, found: _Findings) -> None:
    """What the statement names against what is there."""

    def at(name: str) -> Optional[str]:
        return sha256(unpacked / name) if (unpacked / name).is_file() else None

    stated, stamped = statement.get("ledger"), statement.get("timestamp")
    pairs = (
        ("digest", statement.get("digest"), run.digest),
        ("original_digest", statement.get("original_digest"), run.original_digest),
        ("contract_sha256", statement.get("contract_sha256"), at(f"{RUN}/{CONTRACT}")),
        ("run_id", statement.get("run_id"), run.run_id),
        ("verdict", statement.get("verdict"), run.judged.claimed if run.judged else None),
        ("ledger", stated.get("sha256") if isinstance(stated, dict) else stated, at(LEDGER_NAME)),
        ("timestamp", stamped.get("sha256") if isinstance(stamped, dict) else stamped, at(STAMP)),
    )
    for name, said, there in pairs:
        if said != there:
            found.problem(msg("the seal is not of this run: its {name} is another", name=name))


def _signature(unpacked: Path, statement: Json, trusted: Trusted, found: _Findings) -> Optional[Signed]:
    path = unpacked / SIGNATURE
    if not path.is_file():
        if statement.get("signer") is not None:
            found.problem(msg("the signature was taken out"))
        found.note(msg("the bundle is not signed"))
        return None
    data = _json(path, SIGNATURE_SCHEMA, found)
    if data is None:
        return None
    message = signed_message((unpacked / STATEMENT).read_bytes())
    signed = _signed(data, message, str(statement.get("sealed_at")), trusted, found)
    if signed is not None and statement.get("signer") != signed.fingerprint:
        found.problem(msg("the signature is not by the key that the seal names"))
    return signed


def _countersignature(unpacked: Path, trusted: Trusted, found: _Findings) -> Optional[Signed]:
    path = unpacked / COUNTERSIGNATURE
    if not path.is_file():
        return None
    data = _json(path, COUNTERSIGNATURE_SCHEMA, found)
    if data is None or not (unpacked / SIGNATURE).is_file():
        found.problem(msg("there is a countersignature but no signature"))
        return None
    at = str(data.get("signed_at"))
    message = countersigned_message(at, (unpacked / STATEMENT).read_bytes(), (unpacked / SIGNATURE).read_bytes())
    return _signed(data, message, at, trusted, found)


def _signed(data: Json, message: bytes, at: str, trusted: Trusted, found: _Findings) -> Optional[Signed]:
    try:
        public = base64.b64decode(data["public_key"], validate=True)
        signature = base64.b64decode(data["signature"], validate=True)
    except (KeyError, TypeError, binascii.Error) as error:
        found.problem(msg("the signature cannot be read: {error}", error=_words(error)))
        return None
    who = fingerprint(public)
    try:
        good: Optional[bool] = verifies(public, signature, message)
    except NoLibrary as error:
        good = None
        found.notes.append(error.text)
    if good is False:
        found.problem(msg("the signature of {who} does not hold", who=who))
    elif who not in trusted.keys:
        found.note(msg("you have not named the key {who}: compare it with what its owner gave you", who=who))
    return Signed(who, good, who in trusted.keys, at)


def _stamp(unpacked: Path, run: Verification, trusted: Trusted, found: _Findings) -> Optional[Stamp]:
    path = unpacked / STAMP
    if not path.is_file() or run.digest is None:
        return None
    try:
        stamp = check(path.read_bytes(), bytes.fromhex(run.digest), trusted.roots)
    except NoTimestamp as error:
        found.problems.append(error.text)
        return None
    except NoLibrary as error:
        found.notes.append(error.text)
        return None
    if not stamp.anchored:
        found.note(msg("name the root certificate of the timestamp's authority with --authority to check who gave it"))
    return stamp


def _account(unpacked: Path, statement: Json, run: Verification, found: _Findings) -> Optional[Account]:
    path = unpacked / LEDGER_NAME
    if not path.is_file():
        found.note(msg("no ledger is in the bundle: whether there were other runs cannot be told from it"))
        return None
    told = _read_account(path.read_bytes(), unpacked / RUN, run, found)
    stated = statement.get("ledger")
    if isinstance(stated, dict) and (stated.get("number"), stated.get("of")) != (told.number, told.of):
        found.problem(msg("the seal is not of this run: its {name} is another", name="ledger"))
    found.problems += told.problems if told.number is None else ()
    return told


def _read_account(data: bytes, folder: Path, run: Verification, found: _Findings) -> Account:
    try:
        attempt = read_json(folder / RESULT)["attempt"]
        stated = None if attempt is None else (int(attempt["number"]), int(attempt["of"]))
    except UNREADABLE:
        stated = None  # said already: a result that cannot be read
    told = account(data, run.run_id or "", run.original_digest or run.digest or "", stated)
    if told.number is not None:
        found.problems += told.problems
    return told


def _words(error: BaseException) -> str:
    text = str(getattr(error, "text", None) or error) or type(error).__name__
    return text[:300]


def valid_digest(text: str) -> bool:
    """Whether a text is a digest as accept prints it."""
    return bool(_HEX.fullmatch(text))
