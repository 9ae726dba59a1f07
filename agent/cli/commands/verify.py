"""``accept verify BUNDLE``."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

import click

from agent.cli.shared import LANGUAGE, checks, fail_text, language_in, language_of, translate_for
from agent.cli.terminal import Terminal
from agent.report import looks
from agent.seal import keys, timestamp
from agent.seal.verify import EXIT, Signed, Trusted, Verification, valid_digest, verify_bundle, verify_folder
from agent.text import Text, Translate, msg


@click.command(name="verify")
@click.argument("bundle", type=click.Path(exists=True, path_type=Path))
@click.option("--key", "named", metavar="PUBLIC", multiple=True, help="A key you trust: its file or fingerprint.")
@click.option("--authority", type=click.Path(dir_okay=False, exists=True, path_type=Path),
              help="Root certificates (PEM) of the timestamp's authority.")  # fmt: skip
@click.option("--digest", help="The digest that you were sent when the run ended.")
@click.option("--format", "name", type=click.Choice(["txt", "json"]), default="txt", show_default=True)
@LANGUAGE
def command(
    bundle: Path, named: tuple[str, ...], authority: Optional[Path], digest: Optional[str], name: str,
    lang: Optional[str],
) -> int:  # fmt: skip
    """Check a bundle, or a run folder: files, signatures, time, ledger, and the verdict from the evidence.

    Needs no network and no GPU and executes nothing of the bundle. Exit 0: intact, and vouched for by a key you named
    (or your own) or by --digest. 1: not intact. 3: intact as it is, but signed by nobody you named.
    """
    language = language_in(lang, bundle) if bundle.is_dir() else language_of(lang)
    if digest is not None and not valid_digest(digest):
        raise click.BadParameter(f"no digest: {digest!r}", param_hint="--digest")
    try:
        trusted = Trusted(_keys(named), timestamp.load_roots(authority) if authority else (), digest)
    except (keys.UnusableKey, timestamp.NoTimestamp) as error:
        fail_text(error.text, language)
    try:
        found = (verify_folder if bundle.is_dir() else verify_bundle)(bundle, trusted, checks())
    except OSError as error:
        why = error.strerror or str(error)
        fail_text(msg("{file}: {error}", file=str(error.filename or bundle), error=why), language)
    # A bundle says its language only once it is unpacked.
    translate = translate_for(language_of(lang or found.language))
    if name == "json":
        click.echo(json.dumps(_plain(found, translate), ensure_ascii=False, indent=1))
    else:
        terminal = Terminal(translate)
        for line in lines(found):
            terminal.say(line)
    return EXIT[found.state]


def _keys(named: tuple[str, ...]) -> frozenset[str]:
    """What was named, and the user's own key where there is one."""
    own = keys.public_place(keys.default_place())
    return frozenset(map(keys.load_fingerprint, [*named, *([str(own)] if own.is_file() else [])]))


def lines(found: Verification) -> Iterator[Text]:
    """The answer in words: what speaks against it last, beside the state."""
    if found.digest:
        yield msg("digest: {digest}", digest=found.digest)
    if found.files:
        good = sum(f.state == "intact" for f in found.files)
        yield msg("files: {n} of {m} intact", n=good, m=len(found.files))
    if found.signature:
        yield _signed(msg("signed by {who} at {at}"), found.signature)
    if found.countersignature:
        yield _signed(msg("countersigned by {who} at {at}"), found.countersignature)
    if found.stamp and found.stamp.anchored:
        yield msg("existed at {at}, attested by {authority}", at=found.stamp.at, authority=found.stamp.authority)
    elif found.stamp:
        yield msg(
            "a timestamp says {at}, by {authority}: not checked", at=found.stamp.at, authority=found.stamp.authority
        )
    if found.account and found.account.number:
        yield msg("run {n} of {m} of this contract on this machine", n=found.account.number, m=found.account.of)
        for run in found.account.runs:
            yield msg(
                "  run {n}: {id}, {verdict}", n=run.number, id=run.run_id, verdict=looks.verdict_word(run.verdict)
            )
    if found.judged and found.judged.same:
        yield msg(
            "verdict: {verdict}, and the evidence judged again gives the same",
            verdict=looks.verdict_word(found.judged.found),
        )
    for note in found.notes:
        yield msg("note: {note}", note=note)
    for problem in found.problems:
        yield msg("✗ {problem}", problem=problem)
    yield _STATES[found.state]


_STATES = {
    "intact": msg("intact"),
    "not intact": msg("not intact"),
    "signature unknown": msg("unchanged in itself, but signed by nobody you named"),
}


def _signed(template: Text, signed: Signed) -> Text:
    return msg(template.template, who=signed.fingerprint, at=signed.at)


def _plain(found: Verification, translate: Translate) -> dict[str, Any]:
    data = dataclasses.asdict(dataclasses.replace(found, problems=(), notes=(), account=None))
    account = found.account
    return {
        "schema": "accept.verification/1",
        "state": found.state,
        **data,
        "account": None if account is None else {
            "number": account.number, "of": account.of, "runs": [dataclasses.asdict(r) for r in account.runs]
        },
        "judged": None if found.judged is None else {**data["judged"], "same": found.judged.same},
        "problems": [t.render(translate) for t in found.problems],
        "notes": [t.render(translate) for t in found.notes],
    }  # fmt: skip
