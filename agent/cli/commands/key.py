"""``accept key``."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import click

from agent.cli.shared import LANGUAGE, fail_text, language_of, translate_for
from agent.seal import keys
from agent.text import msg


@click.command(name="key")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="The private key's file.")
@LANGUAGE
def command(out: Optional[Path], lang: Optional[str]) -> None:
    """Make the key pair that seals are signed with, on your own machine.

    The private key goes to --out (default: ~/.config/accept/key.pem), readable by you alone, and the public key
    beside it (.pub). Nothing is overwritten. Never make or copy it to a rented node: whoever runs the node can read
    it there.
    """
    place = out or keys.default_place()
    language = language_of(lang)
    try:
        fingerprint = keys.make(place)
    except keys.UnusableKey as error:
        fail_text(error.text, language)
    translate = translate_for(language)
    for line in (
        msg("private key: {file} (keep it on your own machine, never on the rented node)", file=str(place)),
        msg("public key: {file} (give it to whoever is to check your seals)", file=str(keys.public_place(place))),
        msg("fingerprint: {fingerprint}", fingerprint=fingerprint),
    ):
        click.echo(line.render(translate))
