"""Making a bundle: the run folder, its ledger, a statement about both, the signature over the statement.

``seal/statement.json`` names the run's digest (the sha256 of its manifest) and the sha256 of everything beside the
run; the signature is over its bytes. The vendor's countersignature is over the statement and the first signature.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from agent import __version__
from agent.evidence import LEDGER, MANIFEST, RESULT, UNLISTED, manifest, read_json, sha256
from agent.host import utc_now
from agent.redact import REDACTION
from agent.runner import CONTRACT
from agent.seal import archive
from agent.seal.archive import Source
from agent.seal.keys import Signer, fingerprint
from agent.seal.ledgers import Account, account
from agent.text import Text, msg

RUN, SEAL = "run", "seal"
STATEMENT = f"{SEAL}/statement.json"
SIGNATURE = f"{SEAL}/signature.json"
COUNTERSIGNATURE = f"{SEAL}/countersignature.json"
STAMP = f"{SEAL}/timestamp.tsr"
LEDGER_NAME = f"{SEAL}/{LEDGER}"
STATEMENT_SCHEMA = "accept.seal/1"
SIGNATURE_SCHEMA = "accept.signature/1"
COUNTERSIGNATURE_SCHEMA = "accept.countersignature/1"
EXTENSION = ".accept.tar.gz"

Json = dict[str, Any]


class SealError(Exception):
    """A run that cannot be sealed, in one sentence."""

    def __init__(self, text: Text) -> None:
        super().__init__(str(text))
        self.text = text


@dataclass(frozen=True)
class Sealable:
    """A run folder whose files are as its manifest says; ``ledger`` is None where the run stands in none."""

    folder: Path
    digest: str
    result: Mapping[str, Any]
    files: tuple[str, ...]
    original_digest: Optional[str]
    ledger: Optional[bytes]
    account: Optional[Account]

    @property
    def run_id(self) -> str:
        return str(self.result["run_id"])


def sealable(folder: Path, ledger: Optional[Path]) -> Sealable:
    """Check a run folder before it is sealed. Raises SealError."""
    try:
        listed = read_json(folder / MANIFEST)["files"]
        result = read_json(folder / RESULT)
        run_id, attempt = str(result["run_id"]), result["attempt"]
        original = read_json(folder / REDACTION)["original_digest"] if (folder / REDACTION).exists() else None
    except FileNotFoundError as error:
        raise SealError(msg("{folder} is no finished run: it has no {file}", folder=str(folder),
                            file=Path(error.filename).name)) from error  # fmt: skip
    except (ValueError, KeyError, TypeError) as error:
        raise SealError(msg("{folder} cannot be read: {error}", folder=str(folder), error=repr(error))) from error
    changed = sorted(set(manifest(folder).items()) ^ set(listed.items()))
    if changed:
        raise SealError(msg("files of this run are not as its manifest says: {files}",
                            files=tuple(dict.fromkeys(name for name, _ in changed))[:5]))  # fmt: skip
    digest = sha256(folder / MANIFEST)
    book = ledger.read_bytes() if ledger is not None and ledger.is_file() else None
    told = None
    if book is not None:
        stated = None if attempt is None else (attempt["number"], attempt["of"])
        told = account(book, run_id, original or digest, stated)
        if told.number is None:
            book = told = None
    return Sealable(folder, digest, result, tuple(sorted(listed)), original, book, told)


def seal(run: Sealable, out: Path, signer: Optional[Signer], stamp: Optional[bytes], authority: Optional[str]) -> None:
    """Write the bundle. Without a signer it is unsigned, to be signed elsewhere. Raises ArchiveError, OSError."""
    statement = dumps(_statement(run, signer, stamp, authority))
    files: dict[str, Source] = {f"{RUN}/{name}": run.folder / name for name in run.files}
    files[f"{RUN}/{MANIFEST}"] = run.folder / MANIFEST
    files[STATEMENT] = statement
    if run.ledger is not None:
        files[LEDGER_NAME] = run.ledger
    if stamp is not None:
        files[STAMP] = stamp
    if signer is not None:
        files[SIGNATURE] = dumps({"schema": SIGNATURE_SCHEMA, **_signed(signer, signed_message(statement))})
    archive.write(out, files)


def countersign(unpacked: Path, names: list[str], out: Path, signer: Signer) -> None:
    """Add the second signature to an unpacked, verified bundle. Raises SealError, ArchiveError, OSError."""
    if SIGNATURE not in names:
        raise SealError(msg("the bundle is not signed: there is nothing to countersign"))
    if COUNTERSIGNATURE in names:
        raise SealError(msg("the bundle is countersigned already"))
    at = utc_now()
    message = countersigned_message(at, (unpacked / STATEMENT).read_bytes(), (unpacked / SIGNATURE).read_bytes())
    files: dict[str, Source] = {name: unpacked / name for name in names}
    files[COUNTERSIGNATURE] = dumps({"schema": COUNTERSIGNATURE_SCHEMA, "signed_at": at, **_signed(signer, message)})
    archive.write(out, files)


def dumps(value: Any) -> bytes:
    """JSON in the one spelling that a bundle may have."""
    return (json.dumps(value, ensure_ascii=False, indent=1, allow_nan=False) + "\n").encode()


def signed_message(statement: bytes) -> bytes:
    """What the signature is over: never mistaken for another kind of message."""
    return STATEMENT_SCHEMA.encode() + b"\n" + statement


def countersigned_message(at: str, statement: bytes, signature: bytes) -> bytes:
    """What the countersignature is over."""
    parts = (COUNTERSIGNATURE_SCHEMA.encode(), at.encode(), hashlib.sha256(signature).hexdigest().encode(), statement)
    return b"\n".join(parts)


def _signed(signer: Signer, message: bytes) -> Json:
    return {
        "public_key": base64.b64encode(signer.public).decode(),
        "signature": base64.b64encode(signer.sign(message)).decode(),
    }


def _statement(run: Sealable, signer: Optional[Signer], stamp: Optional[bytes], authority: Optional[str]) -> Json:
    return {
        "schema": STATEMENT_SCHEMA,
        "agent_version": __version__,
        "run_id": run.run_id,
        "digest": run.digest,
        "original_digest": run.original_digest,
        "contract_sha256": sha256(run.folder / CONTRACT),
        "verdict": run.result["verdict"],
        "sealed_at": utc_now(),
        "signer": None if signer is None else fingerprint(signer.public),
        "ledger": _ledger(run),
        "timestamp": None if stamp is None else {"authority": authority, "sha256": hashlib.sha256(stamp).hexdigest()},
    }


def _ledger(run: Sealable) -> Optional[Json]:
    if run.ledger is None or run.account is None:
        return None
    before = run.account.previous
    return {
        "sha256": hashlib.sha256(run.ledger).hexdigest(),
        "number": run.account.number,
        "of": run.account.of,
        "previous_run": None if before is None else {"run_id": before.run_id, "digest": before.digest},
    }


def checkable(folder: Path) -> frozenset[str]:
    """Names of the files of a run folder, by which what the manifest does not list is found."""
    files = (p for p in folder.rglob("*") if not p.is_dir() or p.is_symlink())
    return frozenset(
        n for n, p in ((str(p.relative_to(folder)), p) for p in files)
        if n not in UNLISTED and not p.name.endswith(".tmp")
    )  # fmt: skip
