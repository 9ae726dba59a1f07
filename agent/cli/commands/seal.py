"""``accept seal RUN``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Optional

import click

from agent.cli.shared import LANGUAGE, checks, fail_text, language_in, language_of, outside_records, translate_for
from agent.evidence import LEDGER
from agent.redact.folder import RedactionError, redacted, redacted_ledger
from agent.seal import archive, bundle, keys, timestamp
from agent.seal.bundle import Sealable
from agent.seal.ledgers import chained
from agent.seal.verify import Trusted, verify_unpacked
from agent.text import Text, msg

ERRORS = (bundle.SealError, archive.ArchiveError, keys.UnusableKey, timestamp.NoTimestamp, RedactionError)


@click.command(name="seal")
@click.argument("run", metavar="RUN", type=click.Path(exists=True, path_type=Path))
@click.option("--key", type=click.Path(dir_okay=False, path_type=Path), help="Your private key (see: accept key).")
@click.option("--timestamp", "authority", metavar="URL", help="Let this RFC 3161 authority attest the time.")
@click.option("--redact", is_flag=True, help="Replace names, addresses, serials, paths and secrets first.")
@click.option("--also", metavar="WORD", multiple=True, help="With --redact: replace this word too (repeatable).")
@click.option("--countersign", is_flag=True, help="RUN is a signed bundle: add the other party's signature.")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="The bundle to write.")
@LANGUAGE
def command(
    run: Path, key: Optional[Path], authority: Optional[str], redact: bool, also: tuple[str, ...], countersign: bool,
    output: Optional[Path], lang: Optional[str],
) -> None:  # fmt: skip
    """Put a run into one signed archive that `accept verify` checks anywhere.

    RUN is a run folder, or a bundle that is not signed yet. Without --key (and without a key of your own in
    ~/.config/accept) nothing is signed: on the rented node only the digest is printed, or with -o an unsigned bundle
    written, to be signed on your own machine.
    """
    language = language_of(lang)
    try:
        with _unpacked(run) if countersign else _opened(run) as opened:
            language = language_in(lang, opened.folder)
            if countersign:
                lines = _countersign(opened, run, key, output)
            else:
                lines = _seal(opened, run, key, authority, redact, also, output)
            for line in lines:
                click.echo(line.render(translate_for(language)))
    except ERRORS as error:
        fail_text(error.text, language)
    except OSError as error:
        fail_text(msg("{file}: {error}", file=str(error.filename), error=error.strerror or str(error)), language)


@dataclass(frozen=True)
class _Opened:
    """The run folder and the ledger of what is to be sealed; ``names``: the files of a bundle, none of a folder."""

    folder: Path
    ledger: Optional[Path]
    names: tuple[str, ...] = ()


def _seal(
    opened: _Opened, place: Path, key: Optional[Path], authority: Optional[str], redact: bool, also: tuple[str, ...],
    output: Optional[Path],
) -> Iterator[Text]:  # fmt: skip
    if bundle.SIGNATURE in opened.names:
        raise bundle.SealError(msg("the bundle is signed already; --countersign adds the other party's signature"))
    own = keys.default_place()
    key = key or (own if own.is_file() else None)
    signer = keys.load_private(key) if key is not None else None
    folder, ledger = opened.folder, opened.ledger
    with ExitStack() as stack:
        if redact:
            folder, ledger = _redacted(folder, ledger, also, stack)
        run = bundle.sealable(folder, ledger)
        yield from _about(run)
        out = output or (Path(f"{run.run_id}{bundle.EXTENSION}") if signer or redact else None)
        if out is not None:
            outside_records(out)
            if out.exists():
                raise bundle.SealError(msg("{file} exists already and is not overwritten", file=str(out)))
            stamp = None if authority is None else timestamp.fetch(authority, bytes.fromhex(run.digest))
            bundle.seal(run, out, signer, stamp, authority)
            yield msg("bundle: {file}", file=str(out))
    if signer is not None:
        yield msg("signed by {fingerprint}", fingerprint=keys.fingerprint(signer.public))
    else:
        yield from _where_to_sign(out or place)


def _about(run: Sealable) -> Iterator[Text]:
    yield msg("digest: {digest}", digest=run.digest)
    if run.account is None:
        yield msg("this run stands in no ledger: other runs cannot be counted")
    else:
        yield msg("run {n} of {m} of this contract on this machine", n=run.account.number, m=run.account.of)


def _where_to_sign(what: Path) -> Iterator[Text]:
    yield msg("not signed: a key does not belong on the rented node, whose owner could read it")
    yield msg("copy {what} to your own machine and sign there: accept seal {what} --key FILE", what=what.name)


@contextmanager
def _opened(place: Path) -> Iterator[_Opened]:
    """A run folder or an unsigned bundle."""
    if place.is_dir():
        yield _Opened(place, place.resolve().parent / LEDGER)
        return
    with _unpacked(place) as opened:
        yield opened


@contextmanager
def _unpacked(place: Path) -> Iterator[_Opened]:
    """A bundle, while its files lie in a temporary folder."""
    with TemporaryDirectory(prefix="accept-seal-") as temporary:
        unpacked = Path(temporary)
        names = archive.unpack(place, unpacked)
        yield _Opened(unpacked / bundle.RUN, unpacked / bundle.LEDGER_NAME, tuple(names))


def _redacted(
    folder: Path, ledger: Optional[Path], also: tuple[str, ...], stack: ExitStack
) -> tuple[Path, Optional[Path]]:
    book = ledger.read_bytes() if ledger is not None and ledger.is_file() else b""
    copy = stack.enter_context(redacted(folder, checks(), also, book))
    clean = copy.folder.parent / LEDGER
    clean.write_bytes(chained(redacted_ledger(book, copy.redactor, copy.folder)))
    return copy.folder, clean


def _countersign(opened: _Opened, place: Path, key: Optional[Path], output: Optional[Path]) -> Iterator[Text]:
    signer = keys.load_private(key or keys.default_place())
    unpacked, names = opened.folder.parent, list(opened.names)
    found = verify_unpacked(unpacked, names, Trusted(), checks())
    if found.problems:
        why = found.problems[0]
        raise bundle.SealError(msg("the bundle is not intact and is not countersigned: {why}", why=why))
    out = output or place
    bundle.countersign(unpacked, names, out, signer)
    yield msg("bundle: {file}", file=str(out))
    yield msg("countersigned by {fingerprint}", fingerprint=keys.fingerprint(signer.public))
