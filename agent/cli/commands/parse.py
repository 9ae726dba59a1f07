"""``accept parse KIND [FILE]``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Optional

import click

from agent import tools

NOT_THAT = 1
LIMIT = 64 << 20


class Kind(click.Choice):
    """The kinds, found when they are needed."""

    def __init__(self) -> None:
        super().__init__(sorted(tools.parsers()))


@click.command(name="parse")
@click.argument("kind", type=Kind())
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path))
def command(kind: str, file: Optional[Path]) -> None:
    """Read one tool's output (FILE or stdin) and print it as JSON.

    Exit 1, with one line on stderr that begins with the kind of failure, when the text is not that tool's
    output, is cut off, or is the tool's own error message.
    """
    module = tools.parsers()[kind]
    try:
        data = sys.stdin.buffer.read(LIMIT + 1) if file is None else _read(file)
    except OSError as error:
        click.echo(f"accept: {file}: {error.strerror}", err=True)
        sys.exit(2)
    if len(data) > LIMIT:
        click.echo("unparsable: more than 64 MiB", err=True)
        sys.exit(NOT_THAT)
    try:
        result = module.parse(decoded(data))
    except tools.ParseError as error:
        click.echo(f"{error.kind}: {error}".replace("\n", " "), err=True)
        sys.exit(NOT_THAT)
    click.echo(json.dumps(tools.to_json(module, result), ensure_ascii=False, indent=1))


_UTF16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}


def decoded(data: bytes) -> str:
    """The text of a tool's output: UTF-8, UTF-16 as PowerShell redirects it, or GB18030 of a Chinese shell.

    What is none of these is read as UTF-8 with replacement characters: the numbers stay readable.
    """
    utf16 = _UTF16.get(data[:2])
    if utf16 is not None:
        return data[2:].decode(utf16, "replace")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        pass
    try:
        return data.decode("gb18030")
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")


def _read(file: Path) -> bytes:
    with file.open("rb") as source:
        return source.read(LIMIT + 1)
