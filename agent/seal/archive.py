"""One file out of many and back: a deterministic ``.tar.gz`` that any ``tar`` opens, read with no trust at all.

The same files always give the same bytes. The comment in the gzip header holds the sha256 of everything behind the
header, so that a single changed bit is seen before anything is decompressed. The reader accepts exactly what the
writer writes: regular files with plain relative names in ascending order and nothing else. Links, devices, absolute
names, names twice, odd headers and padding are not handled but refused.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
import unicodedata
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Union

from agent.text import Text, msg

Source = Union[Path, bytes]

MOST_FILES = 100_000
MOST_BYTES = 8 << 30  # all files together, unpacked; also what the size field of a ustar header can say
MOST_OF_ONE = 1 << 30
MOST_HEADER = 8192  # bytes of one extended header: a name of 255 characters a part and 4096 in all fits
RATIO_FROM = 256 << 20  # below this size a bomb is no bomb
MOST_RATIO = 250
MOST_PART, MOST_NAME = 255, 4096

_PIECE = 1 << 16
_BLOCK = 512
_COMMENT = b"accept.bundle/1 sha256="
# RFC 1952: deflate, FCOMMENT, no time, slowest compression, unknown system.
_FIXED = b"\x1f\x8b\x08\x10\x00\x00\x00\x00\x02\xff" + _COMMENT
_HEADER = len(_FIXED) + 64 + 1
_PAX_NAME = b"PaxHeader"
_PAX = re.compile(rb"([1-9][0-9]*) path=(.*)\n", re.DOTALL)
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f\\]")


class ArchiveError(Exception):
    """The file is no archive of ours, was changed, or must not be unpacked; in one sentence."""

    def __init__(self, text: Text) -> None:
        super().__init__(str(text))
        self.text = text


def write(path: Path, files: Mapping[str, Source]) -> None:
    """Write ``files`` (by name in the archive) to ``path``, whole or not at all. Raises ArchiveError, OSError."""
    names = _checked_names(files)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("w+b") as out:
            _write(out, [(name, files[name]) for name in names])
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _write(out: BinaryIO, files: Iterable[tuple[str, Source]]) -> None:
    out.write(_FIXED + b"0" * 64 + b"\x00")
    behind = hashlib.sha256()
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    crc = size = packed = 0

    def put(data: bytes) -> None:
        nonlocal packed
        behind.update(data)
        packed += len(data)
        out.write(data)

    for piece in _tar(files):
        crc = zlib.crc32(piece, crc)
        size += len(piece)
        put(deflate.compress(piece))
    put(deflate.flush())
    _check_ratio(size, packed)
    put(struct.pack("<II", crc, size & 0xFFFFFFFF))
    out.seek(len(_FIXED))
    out.write(behind.hexdigest().encode())


def _tar(files: Iterable[tuple[str, Source]]) -> Iterator[bytes]:
    total = 0
    for name, source in files:
        size = len(source) if isinstance(source, bytes) else source.stat().st_size
        total += size
        _check_sizes(name, size, total)
        yield _headers(name, size)
        done = 0
        for piece in _pieces(source):
            done += len(piece)
            yield piece
        if done != size:
            raise ArchiveError(msg("{name} changed while it was read", name=name))
        yield b"\x00" * (-size % _BLOCK)
    yield b"\x00" * 2 * _BLOCK


def _pieces(source: Source) -> Iterator[bytes]:
    if isinstance(source, bytes):
        yield source
        return
    with source.open("rb") as opened:
        while piece := opened.read(_PIECE):
            yield piece


def _headers(name: str, size: int) -> bytes:
    """The header blocks of one file: one, or with an extended header (POSIX pax) where the name needs it."""
    raw = name.encode()
    if len(raw) <= 100 and raw.isascii():
        return _header(raw, size, b"0")
    record = _pax_record(raw)
    return (
        _header(_PAX_NAME, len(record), b"x") + record + b"\x00" * (-len(record) % _BLOCK)
        + _header(hashlib.sha256(raw).hexdigest().encode(), size, b"0")
    )  # fmt: skip


def _pax_record(raw: bytes) -> bytes:
    body = b" path=" + raw + b"\n"
    length = len(body)
    while length != len(str(length)) + len(body):
        length = len(str(length)) + len(body)
    return str(length).encode() + body


def _header(name: bytes, size: int, kind: bytes) -> bytes:
    """One ustar header (POSIX.1-1988): a regular file of nobody, readable, without a time."""
    block = (
        name.ljust(100, b"\x00")
        + b"0000644\x00" + b"0000000\x00" * 2
        + f"{size:011o}\x00".encode() + b"00000000000\x00"
        + b" " * 8 + kind + b"\x00" * 100
        + b"ustar\x0000" + b"\x00" * 64
        + b"0000000\x00" * 2 + b"\x00" * 167
    )  # fmt: skip
    return block[:148] + f"{sum(block):06o}\x00 ".encode() + block[156:]


def unpack(path: Path, into: Path) -> list[str]:
    """Unpack into the empty folder ``into`` and return the names, ascending. Raises ArchiveError, OSError."""
    with path.open("rb") as source:
        _check_comment(source)
        source.seek(_HEADER)
        stream = _Inflated(source, path.stat().st_size)
        names = list(_members(stream, into))
        stream.finish()
    return names


def is_archive(path: Path) -> bool:
    """Whether the file begins as one of ours."""
    with path.open("rb") as source:
        return source.read(len(_FIXED)) == _FIXED


def _check_comment(source: BinaryIO) -> None:
    head = source.read(_HEADER)
    if len(head) != _HEADER or not head.startswith(_FIXED) or head[-1:] != b"\x00":
        raise ArchiveError(msg("this is no bundle of accept, or its first bytes were changed"))
    found = hashlib.sha256()
    while piece := source.read(_PIECE):
        found.update(piece)
    if found.hexdigest().encode() != head[len(_FIXED) : -1]:
        raise ArchiveError(msg("the bundle is damaged or was changed: its checksum is another"))


class _Inflated:
    """The decompressed bytes, counted: never more in memory than one piece, never more in all than is allowed."""

    def __init__(self, source: BinaryIO, packed: int) -> None:
        self._source = source
        self._packed = packed
        self._inflate = zlib.decompressobj(-zlib.MAX_WBITS)
        self._rest = b""
        self._crc = 0
        self._size = 0

    def read(self, count: int) -> bytes:
        """Exactly ``count`` bytes."""
        while len(self._rest) < count:
            piece = self._more()
            if not piece:
                raise _short()
            self._rest += piece
        piece, self._rest = self._rest[:count], self._rest[count:]
        return piece

    def _more(self) -> bytes:
        while not self._inflate.eof:
            packed = self._inflate.unconsumed_tail or self._source.read(_PIECE)
            if not packed:
                raise _short()
            try:
                piece = self._inflate.decompress(packed, _PIECE)
            except zlib.error as error:
                raise ArchiveError(msg("the bundle is damaged: {error}", error=str(error))) from error
            if piece:
                self._crc = zlib.crc32(piece, self._crc)
                self._size += len(piece)
                _check_ratio(self._size, self._packed)
                return piece
        return b""

    def finish(self) -> None:
        """Nothing may follow but the trailer of the gzip format."""
        if self._rest or self._more():
            raise ArchiveError(msg("the bundle holds bytes behind its last file"))
        trailer = self._inflate.unused_data + self._source.read(_PIECE)
        if trailer != struct.pack("<II", self._crc, self._size & 0xFFFFFFFF):
            raise ArchiveError(msg("the bundle is damaged or was changed: its checksum is another"))


def _short() -> ArchiveError:
    return ArchiveError(msg("the bundle ends too early"))


def _members(stream: _Inflated, into: Path) -> Iterator[str]:
    seen = _Names()
    total = 0
    while True:
        block = stream.read(_BLOCK)
        if block == b"\x00" * _BLOCK:
            if stream.read(_BLOCK) != block:
                raise _odd()
            return
        name, size = _name_and_size(stream, block)
        total += size
        _check_sizes(name, size, total)
        seen.add(name)
        _extract(stream, into.joinpath(*name.split("/")), size)
        yield name


def _name_and_size(stream: _Inflated, block: bytes) -> tuple[str, int]:
    """The name and size of the next file; its headers must be byte for byte what the writer makes of these two."""
    read = block
    raw = block[:100].rstrip(b"\x00")
    if block[156:157] == b"x":
        length = _octal(block)
        if length > MOST_HEADER:
            raise _odd()
        record = stream.read(length)
        padding = stream.read(-length % _BLOCK)
        found = _PAX.fullmatch(record)
        if found is None:
            raise _odd()
        raw = found[2]
        block = stream.read(_BLOCK)
        read += record + padding + block
    size = _octal(block)
    try:
        name = raw.decode()
    except UnicodeDecodeError as error:
        raise _odd() from error
    if read != _headers(name, size):
        raise _odd()
    return name, size


def _octal(block: bytes) -> int:
    field = block[124:135]
    if not re.fullmatch(rb"[0-7]{11}", field):
        raise _odd()
    return int(field, 8)


def _odd() -> ArchiveError:
    return ArchiveError(msg("the bundle holds something other than the plain files that accept puts there"))


def _extract(stream: _Inflated, path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # O_EXCL and O_NOFOLLOW: never through something that is already there.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as out:
        left = size
        while left:
            piece = stream.read(min(left, _PIECE))
            out.write(piece)
            left -= len(piece)
    if stream.read(-size % _BLOCK).strip(b"\x00"):
        raise _odd()


def _check_sizes(name: str, size: int, total: int) -> None:
    if size > MOST_OF_ONE or total > MOST_BYTES:
        raise ArchiveError(msg("{name} makes the bundle larger than it may be", name=name))


def _check_ratio(size: int, packed: int) -> None:
    if size > MOST_BYTES or (size > RATIO_FROM and size > MOST_RATIO * max(packed, 1)):
        raise ArchiveError(msg("the bundle unpacks to far more than it is: it is not opened"))


def _checked_names(names: Iterable[str]) -> list[str]:
    ordered = sorted(names)
    seen = _Names()
    for name in ordered:
        seen.add(name)
    return ordered


class _Names:
    """Names in ascending order that are safe and distinct on every file system."""

    def __init__(self) -> None:
        self._last = ""
        self._files: set[str] = set()
        self._folders: dict[str, str] = {}

    def add(self, name: str) -> None:
        """Raises ArchiveError where the name is unsafe, or meets an earlier one on some file system."""
        parts = name.split("/")
        if _unsafe(name, parts):
            raise ArchiveError(msg("a file in the bundle has an unsafe name: {name}", name=ascii(name)))
        if name <= self._last or len(self._files) >= MOST_FILES:
            raise ArchiveError(msg("the bundle holds too many files, or names that are not in order"))
        self._last = name
        # macOS and Windows take upper and lower case, and both ways to write an accent, for one name.
        folders = ["/".join(parts[:n]) for n in range(1, len(parts))]
        own, above = _folded(name), [(_folded(f), f) for f in folders]
        taken = own in self._files or own in self._folders
        if taken or any(f in self._files or self._folders.get(f, folder) != folder for f, folder in above):
            text = msg("two names in the bundle would be one file on some systems: {name}", name=ascii(name))
            raise ArchiveError(text)
        self._files.add(own)
        self._folders.update(above)


def _unsafe(name: str, parts: list[str]) -> bool:
    if _FORBIDDEN.search(name) or any(0xD800 <= ord(c) <= 0xDFFF for c in name):
        return True
    if len(name.encode()) > MOST_NAME or any(len(p.encode()) > MOST_PART for p in parts):
        return True
    # Names of one letter and a colon are drives to Windows; colons elsewhere are PCI addresses.
    return any(p in ("", ".", "..") for p in parts) or bool(re.match(r"[A-Za-z]:", name))


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())
